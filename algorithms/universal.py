"""The universal one-sided algorithm of *Slicing Is All You Need* (§4): any partitions, any replication, get and accumulate."""

from __future__ import annotations

from typing import Iterator

from drbench.errors import UsageError
from drbench.problem import Problem
from drbench.replicas import broadcast_replica, reduce_replicas
from drbench.steps import Accumulate, Fence, Gemm, Get, Step, Zero

from .registry import algorithm
from .slicing import slices, stationary_matrix

__all__ = ["program"]


def settle(problem: Problem, *, stationary: str = "auto", chunk: int | None = None, replicate_result: bool = False) -> dict:
    """Decide ``auto``: the largest matrix stays; check the options."""
    if stationary not in ("A", "B", "C", "auto"):
        raise UsageError(f"stationary must be A, B, C or auto, got {stationary!r}.")
    if chunk is not None and chunk < 1:
        raise UsageError(f"chunk must be at least 1 element, got {chunk}.")
    if stationary == "auto":
        stationary = stationary_matrix(problem)
    return {"stationary": stationary, "chunk": chunk, "replicate_result": replicate_result}


@algorithm("universal", settle=settle)
def program(problem: Problem, rank: int, *, stationary: str = "auto", chunk: int | None = None,
            replicate_result: bool = False) -> Iterator[Step]:
    """One-sided, for any partitioning and replication of A, B and C (Slicing Is All You Need).

    Parameters
    ----------
    stationary : str
        ``"A"``, ``"B"``, ``"C"``: the matrix whose tiles do not move; ``"auto"``: the largest.
    chunk : int, optional
        Longest range of the free axis in one product; smaller chunks overlap better and multiply slower.
    replicate_result : bool
        Give the finished C to every replica of it, not only to replica 0.
    """
    stationary = settle(problem, stationary=stationary, chunk=chunk)["stationary"]
    c = problem.c
    if stationary != "C":
        for tile in c.own_tiles(rank):
            yield Zero(tile)
        yield Fence()                                       # every tile is ready for everyone's accumulates

    for group in slices(problem, rank, stationary, chunk):
        held: dict = {}                                     # a block several products of the group use is fetched once
        for product in group:
            a = held.get(product.a) or (yield Get(product.a))
            b = held.get(product.b) or (yield Get(product.b))
            if len(group) > 1:
                held[product.a], held[product.b] = a, b
            if stationary == "C":
                yield Gemm(a, b, into=product.c)            # C[m, n] += A[m, k] · B[k, n], in place
            else:
                partial = yield Gemm(a, b, into=None if product.first else partial)
                if product.last:
                    yield Accumulate(partial, product.c)    # the sum over k goes to the owner of C[m, n] once

    if stationary != "C" or c.partition.replicas > 1:
        yield Fence()                                       # the partial results are complete
    yield from reduce_replicas(c, rank)                     # replica 0 += the others
    if replicate_result:
        yield from broadcast_replica(c, rank)
