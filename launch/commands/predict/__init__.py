"""The commands that ask the machine models."""
