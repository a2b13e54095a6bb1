"""The algorithms on the FC layers of a transformer, simulated, each at its own best mesh
(MeshSlice, §4.2, §4.3 and §5.1).

A 2-D algorithm runs the dataflows that the autotuner chose, on every mesh of the chips. The loops
of ``wang`` have as many iterations as the autotuner gives MeshSlice slices (§4.2); ``wang-free`` is
the same algorithm with the number that is fastest for each product. The 1-D ones run on one ring of
all chips, which uses two of a chip's four links (§4.3), and are overlapped in the same way, with
the number of iterations that is fastest. Their products, by layer:

==================  =========================  =========================  ==========================
                    Y = X·W                    X' = Y'·Wᵀ                 W' = Xᵀ·Y'
==================  =========================  =========================  ==========================
fsdp                W passes by                W passes by                sums of W' pass by
1-D TP, wide        X passes by                sums of X' pass by         X passes by
1-D TP, narrow      sums of Y pass by          Y' passes by               Y' passes by
==================  =========================  =========================  ==========================

Layers that read what the whole hidden state is made of (qkv, fc1) are divided by columns (*wide*),
those after them by rows (*narrow*).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from operator import attrgetter, itemgetter

from algorithms import get_algorithm
from algorithms.wang import costlier_direction
from drbench.model.bounds import bound_of
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.models.predict import predict, trace_of

from .autotuner import Layer, Plan, Product

ALGORITHMS = ("meshslice", "wang", "wang-free", "collective", "cannon", "summa")
ONE_DIMENSIONAL = ("fsdp", "tensor_parallel_1d")
#: Products that transfers may run ahead of: a ring's shifts go both ways round, and those of one
#: pair may belong to two products.
LOOK_AHEAD = 2


@dataclass(frozen=True)
class Best:
    """An algorithm at its best mesh.

    Attributes
    ----------
    slices : tuple of int
        By layer: MeshSlice's, or the iterations of Wang's loops; empty for the others.
    products : sequence of float
        Simulated seconds by layer and product, in order.
    cases : sequence of Case
        Likewise.
    """

    algorithm: str
    mesh: tuple
    slices: tuple
    products: Sequence[float]
    cases: Sequence[Case]

    @property
    def seconds(self) -> float:
        """Of all products of one block."""
        return sum(self.products)


def best_mesh(algorithm: str, dataflows: list, plan: Plan, machine_of) -> Best | None:
    """Simulate a 2-D algorithm on the meshes of a plan, and keep the best; None if it takes none of
    them.

    Parameters
    ----------
    dataflows : list
        Of :func:`launch.papers.meshslice.autotuner.choose_dataflows`.
    plan : Plan
        Its slice counts by mesh are MeshSlice's S; those of the best mesh are the number of
        iterations Wang's algorithm is unrolled to.
    machine_of : callable
        ``machine_of(mesh)`` -> Machine.
    """
    free, bounded = algorithm == "wang-free", []
    for each in plan.estimates:
        mesh, slices = each["mesh"], plan.slices if algorithm == "wang" else each["slices"]
        if algorithm == "cannon" and mesh[0] != mesh[1]:
            continue
        cases = cases_on(algorithm, dataflows, mesh, slices)
        # the loops whose bounds bound those of all others: the longest products, and those without
        # additions of sums
        bounds = [
            min(
                bound_of([trace_of(one, prod(mesh))], machine_of(turned)).seconds
                for one in ([case, _unrolled(case, 1)] if free else [case])
            )
            for case, turned in cases
        ]
        bounded.append((sum(bounds), mesh, slices, cases, bounds))
    best = None
    for bound, mesh, slices, cases, bounds in sorted(bounded, key=itemgetter(0)):
        found, known = [], {}
        for (case, turned), least in zip(cases, bounds):
            if best and bound >= best.seconds:
                break  # slower than the best, or given up because it will be
            found.append(fastest(case, machine_of(turned), known, free))
            bound += found[-1][0] - least
        else:
            kept = slices if algorithm in ("meshslice", "wang") else ()
            new = Best(algorithm, mesh, kept, *zip(*found))
            best = min(best or new, new, key=attrgetter("seconds"))
    return best


def best_ring(algorithm: str, layers: list[Layer], chips: int, machine_of) -> Best:
    """Simulate a 1-D algorithm on one ring of all chips, each product with the number of shifts a
    product that is fastest."""
    ring, known = (1, chips), {}
    found = [
        fastest(_unrolled(case, max(1, chips // 2)), machine_of(ring), known, free=True)
        for case in ring_cases(algorithm, layers, chips)
    ]
    return Best(algorithm, ring, (), *zip(*found))


def cases_on(
    algorithm: str, dataflows: list, mesh: tuple, slices: tuple
) -> list[tuple[Case, tuple]]:
    """The products of a 2-D algorithm on a mesh: (case, shape of the torus it runs on), by layer
    and product."""
    return [
        (_case(algorithm, product, shape, s), shape)
        for (_, products), s in zip(dataflows, slices)
        for product in products
        for shape in [mesh[::-1] if product.flipped else mesh]
    ]


def _case(algorithm: str, product: Product, mesh: tuple, slices: int) -> Case:
    """The product as a case. A slice is one range of each shard, not several blocks of 8: as many
    bytes, packed as often."""
    rows, cols = mesh
    options = {"dataflow": product.dataflow, "mesh": f"{rows}x{cols}"}
    if algorithm == "meshslice":
        options["slices"] = slices
    elif algorithm in ("wang", "wang-free"):
        problem = get_algorithm("wang").problem(
            product.m, product.n, product.k, rows * cols, **options
        )
        ring = cols if costlier_direction(problem, **options) == "row" else rows
        options["unroll"] = max(1, -(-ring // slices) if algorithm == "wang" else ring // 2)
    return Case(
        product.m,
        product.n,
        product.k,
        algorithm=algorithm.removesuffix("-free"),
        options=options,
        dtype="bfloat16",
        prefetch=LOOK_AHEAD,
    )


def ring_cases(algorithm: str, layers: list[Layer], chips: int) -> list[Case]:
    """The products of a 1-D algorithm, by layer and product (see the table above).

    Examples
    --------
    >>> from launch.papers.meshslice.autotuner import MODELS, layers_of
    >>> cases = ring_cases("tensor_parallel_1d", layers_of(MODELS["gpt3"], 8, 2048)[:1], 16)
    >>> for case in cases:
    ...     print(case.algorithm, case.options.get("dataflow"), case.m, case.n, case.k)
    tensor_parallel_1d AG 16384 36864 12288
    tensor_parallel_1d RdS 16384 12288 36864
    wang OS 12288 36864 16384
    """
    out = []
    for layer in layers:
        gather, reduce = (
            ("tensor_parallel_1d", {"dataflow": dataflow}) for dataflow in ("AG", "RdS")
        )
        if algorithm == "fsdp":
            kinds = [("fsdp", {}), ("fsdp", {}), reduce]
        elif layer.name in ("qkv", "fc1"):
            kinds = [gather, reduce, ("wang", {"dataflow": "OS", "mesh": f"1x{chips}"})]
        else:
            kinds = [reduce, gather, ("fsdp", {})]
        out += [
            Case(*shape, algorithm=name, options=options, dtype="bfloat16", prefetch=LOOK_AHEAD)
            for shape, (name, options) in zip(layer.shapes, kinds)
        ]
    return out


def fastest(case: Case, machine: Machine, known: dict, free: bool = False) -> tuple[float, Case]:
    """Simulated seconds, and the case; with ``free`` the fastest number of shifts a product, of the
    case's and all powers of two below."""
    powers = range(case.options["unroll"].bit_length()) if free else ()
    cases = [case, *(_unrolled(case, 2**power) for power in powers)]
    return min(((_predicted(each, machine, known), each) for each in cases), key=itemgetter(0))


def _unrolled(case: Case, shifts: int) -> Case:
    return replace(case, options=case.options | {"unroll": shifts})


def _predicted(case: Case, machine: Machine, known: dict) -> float:
    """Simulated seconds, inf if the machine cannot run it; products that are the same are simulated
    once."""
    key = str(case), machine.name
    if key not in known:
        record = predict(case, machine)
        known[key] = record.best_s if record.status == "ok" else inf
    return known[key]
