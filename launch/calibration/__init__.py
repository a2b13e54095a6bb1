"""``drbench calibrate`` on the ranks: measure this machine and write a machine file."""

import drbench.launch.ranks  # before MPI is imported
