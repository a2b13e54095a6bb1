"""Communication in tiles during one GEMM (Triton-distributed, FLUX): gathers and reductions
whose tiles are signalled one by one to the parts of one kernel."""
