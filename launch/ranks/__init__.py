"""What runs on the ranks: one case, workers, backends, rates and peaks."""
