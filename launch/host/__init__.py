"""The computer that starts jobs: MPI launchers, files, environment. Does not initialise MPI."""
