"""``drbench calibrate`` on the ranks: measure this machine and write a machine file."""
