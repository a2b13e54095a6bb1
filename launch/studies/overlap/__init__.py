"""FLUX and Triton-distributed: studies, claims and how these move with assumed constants."""
