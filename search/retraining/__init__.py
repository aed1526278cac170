"""Trains a recipe again, with other seeds or without a technique, and says what holds of it."""
