"""The cases to draw, from records."""
