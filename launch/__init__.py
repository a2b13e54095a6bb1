"""Everything that starts, repeats and reports runs: the case, the command line, environment
capture."""
