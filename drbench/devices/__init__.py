"""Devices that compute asynchronously: GPUs through CuPy, and NumPy on worker threads to test the
same executor without one."""
