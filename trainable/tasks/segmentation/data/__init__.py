"""Reads images whose pixels have labels: each with a mask, a second image of class numbers."""
