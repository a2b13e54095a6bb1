"""Uses of the machine models: predict a case, a sweep or a chain, and explain a run."""
