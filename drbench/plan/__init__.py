"""What follows from a trace before anything runs: starting order, memory, edges, bytes. (The plans
that a user of the library makes and calls are in :mod:`drbench.library.plan`.)"""
