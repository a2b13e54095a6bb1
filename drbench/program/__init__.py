"""Programs: the problem, the steps, and the trace of one rank. Integers only; no numpy, no MPI."""
