"""Communication in tiles beside one product (Triton-distributed, FLUX): gathers and reductions
whose tiles are signalled one by one to the parts of one kernel."""
