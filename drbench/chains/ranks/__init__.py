"""Code of ranks: run a chain, and verify it."""

import drbench.launch.ranks  # before MPI is imported
