"""The algorithms: one file each, a generator of steps in textbook order. A new file here is all a
new algorithm needs."""

from .registry import Algorithm, algorithm, algorithms, get_algorithm

__all__ = ["Algorithm", "algorithm", "algorithms", "get_algorithm"]
