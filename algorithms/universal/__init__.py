"""The universal one-sided algorithm: slicing, the direct program, and its lowerings."""
