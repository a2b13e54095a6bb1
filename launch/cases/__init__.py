"""The descriptions of runs: the case, sweep files, machine files."""
