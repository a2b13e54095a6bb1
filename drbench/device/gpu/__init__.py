"""GPUs through CuPy: runtime, cuBLAS, kernels, IPC and NCCL."""
