"""The compiled event loop of the simulator: ``events.c``, which the build compiles where there is a
compiler; what it is given (:mod:`.tables`), and how it is called (:mod:`.loop`).

It is an extra. Where it is not there, and for what it leaves out, :mod:`drbench.model.simulate`
runs its own loop, which is the oracle: both make the same events in the same order.
"""
