"""Machine models and the simulator: the same programs in virtual time."""
