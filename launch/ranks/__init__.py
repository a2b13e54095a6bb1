"""Code that runs on the ranks: one case, workers, backends, transfers."""
