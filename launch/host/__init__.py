"""The machine that starts jobs: MPI launchers, files, environment. No MPI is initialised here."""
