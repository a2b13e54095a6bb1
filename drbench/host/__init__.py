"""Programs run on the cores: MPI windows, transports, BLAS, and the polling run loop."""
