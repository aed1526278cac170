"""A recipe trained again, with other seeds or without a technique, and what holds of it."""
