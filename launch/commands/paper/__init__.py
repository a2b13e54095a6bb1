"""The commands of the papers behind drbench: their claims and their studies."""
