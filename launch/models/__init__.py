"""Uses of the machine models: predict, tune, the sweeps of the paper's figures."""
