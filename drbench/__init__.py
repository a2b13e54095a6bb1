"""drbench: runs, predicts and explains distributed dense matrix multiplication C = A·B."""

__version__ = "0.1.0"
