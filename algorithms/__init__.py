"""The algorithms: one file each, a generator of steps in textbook order. A new algorithm needs only
a new file here."""

from .registry import Algorithm, algorithm, algorithms, get_algorithm

__all__ = ["Algorithm", "algorithm", "algorithms", "get_algorithm"]
