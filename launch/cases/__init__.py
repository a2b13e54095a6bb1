"""What to run: the case, sweep files, machine files."""
