"""Traces of all ranks: of programs that tests write, and of algorithms by name."""

from drbench.algorithms import get_algorithm
from drbench.program.trace import trace


def traced(program, problem):
    """The trace of ``program(rank)`` on each rank; C is not fresh."""
    return [trace(program(rank), problem, rank, fresh=False) for rank in range(problem.nprocs)]


def resolved_as(name, *sizes, **options):
    """An algorithm, its problem of m, n, k on p ranks, and its resolved options."""
    algorithm = get_algorithm(name)
    problem = algorithm.problem(*sizes, **options)
    return algorithm, problem, algorithm.resolve(problem, **options)


def everyone_of(algorithm, problem, resolved):
    """The traces of all ranks."""
    return [algorithm.trace(problem, rank, **resolved) for rank in range(problem.nprocs)]


def of_algorithm(name, *sizes, **options):
    """The traces of an algorithm with some of its options on m, n, k and p ranks."""
    return everyone_of(*resolved_as(name, *sizes, **options))
