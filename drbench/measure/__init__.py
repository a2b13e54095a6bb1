"""What a run is worth: GEMM-only speed, verification, records and timelines."""
