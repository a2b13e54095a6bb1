"""The commands that use machine models."""
