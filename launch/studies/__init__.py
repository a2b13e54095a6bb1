"""Studies of many cases: bandwidths, comparisons of runs, other libraries."""
