"""What follows from a trace before anything runs: starting order, memory, edges, bytes."""
