"""Seconds of a multiplication by drbench and by stock torch, from specs alone: the same on every
rank.

Both use one model of a server's core (:data:`drbench.algorithms.universal.packing.CORES`). drbench
is simulated on it, step by step. Stock redistributes by gloo, a collective after the other, then
calls one local GEMM. The constants are of two ranks on two cores of an Intel Sapphire Rapids
(``results/measured/spr-2core``: ``dtensor-p2/calls.csv`` and ``placements-p2``).
"""

from dataclasses import replace
from math import inf, prod
from typing import Any

from drbench.algorithms.registry import get_algorithm
from drbench.algorithms.universal.packing import CORES, cores
from drbench.library.plan import resolve_universal
from drbench.model.machine import Link, Machine
from drbench.model.simulate import simulate
from drbench.partitions import ceil_div, partition
from drbench.partitions.redistribution import flows, summed
from drbench.program.problem import Problem

from .layouts import layout_text
from .private import stock_steps

#: Each call of drbench, each collective of gloo, and the rate at which a rank receives by gloo.
_CALL_S, _GLOO_S, _GLOO_BYTES_PER_S = 4e-5, 2e-4, 4e8
#: The most ranks that are simulated, evenly spread.
_ASKED = 16


def predict_drbench(
    sizes: tuple[int, int, int], layouts: tuple[str, ...], dtype: str, ranks: int, in_place: bool
) -> float:
    """Seconds in which drbench multiplies.

    Parameters
    ----------
    sizes : (int, int, int)
        m, n, k.
    layouts : tuple of str
        Of A, B and C.
    dtype : str
    ranks : int
        Of the mesh.
    in_place : bool
        Ranks read each other's memory; else they receive at the rate of gloo.

    Examples
    --------
    Rows of B are read in place, or have to be received:

    >>> rows = ("S(0)@2", "S(0)@2", "S(0)@2")
    >>> seconds = [predict_drbench((512, 512, 512), rows, "float32", 2, x) for x in (True, False)]
    >>> [f"{1e3 * each:.2g} ms" for each in seconds]
    ['1.6 ms', '2.1 ms']
    """
    m, n, k = sizes
    A, B, C = (
        partition(text, shape, ranks) for text, shape in zip(layouts, ((m, k), (k, n), (m, n)))
    )
    whole = summed(A), summed(B)
    pending = [pair for pair in zip((A, B), whole) if pair[0] is not pair[1]]
    problem = Problem(m, n, k, ranks, *whole, C, dtype)  # type: ignore[arg-type]  # bound there
    elements = sum(count for pair in pending for *_, count in flows(*pair))
    nbytes = elements * problem.itemsize / ranks
    machine = _machine(dtype, in_place)
    # each element is read, and added to what is read and written
    received_s = nbytes / machine.links[0].bandwidth_bytes_per_s
    sums_s = machine.compute.memory_s(3 * nbytes) + received_s
    universal, options = get_algorithm("universal"), resolve_universal(problem, in_place)
    traces = [
        universal.trace(problem, rank, machine=cores(dtype), **options)
        for rank in range(0, ranks, ceil_div(ranks, _ASKED))
    ]
    return (1 + len(pending)) * _CALL_S + sums_s + simulate(traces, machine).time_s


def predict_stock(changes: tuple, dtype: str) -> float:
    """Seconds in which stock torch redistributes and multiplies.

    Parameters
    ----------
    changes : tuple of (DTensorSpec, DTensorSpec)
        Of addmm's first argument, A, B and C, each before and after.
    dtype : str
    """
    *_, (_, a), (_, b), _ = changes
    mesh = a.mesh
    (m, k), (_, n) = (
        partition(
            layout_text(spec.placements, mesh.shape), tuple(spec.tensor_meta.shape), mesh.size()
        ).local_shape(0)
        for spec in (a, b)
    )
    gemm_s = _machine(dtype, True).compute.gemm_s(m, n, k, a.tensor_meta.dtype.itemsize)
    return gemm_s + sum(redistribution_s(*change) for change in changes)


def redistribution_s(old: Any, new: Any) -> float:
    """Seconds in which torch redistributes a tensor between two specs."""
    steps = stock_steps(old, new)
    return len(steps) * _GLOO_S + received_bytes(steps, old) / _GLOO_BYTES_PER_S


def received_bytes(steps: list, spec: Any) -> float:
    """Bytes that each rank receives in the steps of a redistribution by torch
    (:func:`drbench.torch.private.stock_steps`), which pads parts to one size."""
    meta, count = spec.tensor_meta, 0.0
    for ranks, share, old, new in steps:
        extents = [meta.shape[part.dim] for part in (old, new) if hasattr(part, "dim")]
        padded = prod(ceil_div(extent, ranks) * ranks / max(extent, 1) for extent in extents[:1])
        # a sum that is replicated is scattered and gathered
        times = 1 + (old.is_partial() and new.is_replicate())
        count += share * padded * (ranks - 1) / ranks * times
    return count * prod(meta.shape) * meta.dtype.itemsize


def _machine(dtype: str, in_place: bool) -> Machine:
    link = Link("ranks", inf if in_place else _GLOO_BYTES_PER_S, reads_in_place=in_place)
    return replace(cores(dtype) or CORES, links=(link,))
