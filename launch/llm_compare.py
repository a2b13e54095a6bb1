"""The 2-D algorithms on the FC layers of a transformer, simulated, each at its own best mesh (MeshSlice, §4.2 and Figure 9)."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms import get_algorithm
from algorithms.wang import costlier_direction
from drbench.bounds import lower_bound
from drbench.machine import Machine

from .case_fields import Case
from .llm import Plan, Product
from .predict import predict

__all__ = ["ALGORITHMS", "Best", "best_mesh"]

ALGORITHMS = ("meshslice", "wang", "collective", "cannon", "summa")


@dataclass(frozen=True)
class Best:
    """An algorithm at its best mesh.

    Attributes
    ----------
    seconds : float
        Simulated, of all products of one block.
    products : list of float
        By layer and product, in order.
    simulated : int
        Meshes that were simulated to the end; the others are slower by their lower bound, or were given up when they were.
    """

    algorithm: str
    mesh: tuple
    slices: tuple
    seconds: float
    products: list
    simulated: int


def best_mesh(algorithm: str, dataflows: list, plan: Plan, machine_of) -> Best:
    """Simulate an algorithm on the meshes of a plan, and keep the best.

    Parameters
    ----------
    dataflows : list
        Of :func:`launch.llm.choose_dataflows`.
    plan : Plan
        Its slice counts by mesh are MeshSlice's S, and the number of iterations Wang's algorithm is unrolled to.
    machine_of : callable
        ``machine_of(mesh)`` -> Machine.
    """
    bounded = []
    for each in plan.estimates:
        mesh, slices = each["mesh"], each["slices"]
        if algorithm == "cannon" and mesh[0] != mesh[1]:
            continue
        cases = [(_case(algorithm, product, mesh, s), mesh[::-1] if product.flipped else mesh)
                 for (_, _, products), s in zip(dataflows, slices) for product in products]
        bounds = [_bound(case, machine_of(turned), mesh[0] * mesh[1]) for case, turned in cases]
        bounded.append((sum(bounds), mesh, slices, cases, bounds))
    best, simulated = None, 0
    for total, mesh, slices, cases, bounds in sorted(bounded, key=lambda entry: entry[0]):
        if best is not None and total >= best.seconds:
            break
        seconds, left = [], total
        for (case, turned), bound in zip(cases, bounds):
            seconds.append(predict(case, machine_of(turned)).best_s)
            left -= bound
            if best is not None and sum(seconds) + left >= best.seconds:
                break
        else:
            simulated += 1
            if best is None or sum(seconds) < best.seconds:
                best = Best(algorithm, mesh, slices, sum(seconds), seconds, 0)
    return None if best is None else Best(**{**best.__dict__, "simulated": simulated})


def _case(algorithm: str, product: Product, mesh: tuple, slices: int) -> Case:
    """The product as a case. A slice is one range of each shard, not several blocks of 8: as many bytes, packed as often."""
    rows, cols = mesh[::-1] if product.flipped else mesh
    options = {"dataflow": product.dataflow, "mesh": f"{rows}x{cols}"}
    if algorithm == "meshslice":
        options["slices"] = slices
    elif algorithm == "wang":
        problem = get_algorithm("wang").problem(product.m, product.n, product.k, rows * cols, dtype="bfloat16", **options)
        ring = cols if costlier_direction(problem, product.dataflow, options["mesh"]) == "row" else rows
        options["unroll"] = max(1, -(-ring // slices))
    return Case(product.m, product.n, product.k, algorithm=algorithm, options=options, dtype="bfloat16")


def _bound(case: Case, machine: Machine, chips: int) -> float:
    algorithm = get_algorithm(case.algorithm)
    problem = algorithm.problem(case.m, case.n, case.k, chips, dtype=case.dtype, **case.options)
    return lower_bound(algorithm.trace(problem, 0, **algorithm.settle(problem, False, **case.options)), machine)
