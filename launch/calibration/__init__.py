"""What ``drbench calibrate`` does on the ranks: times of this machine, as a machine file."""
