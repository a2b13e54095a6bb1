"""Code that runs on the ranks: one case, workers, backends, transfers."""

import mpi4py

# A library under another MPI's launcher aborts in MPI_Init, so its launcher is checked first.
mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
