"""The studies behind the figures of FLUX and Triton-distributed (TD) on machine models: products
that overlap with their AllGather or ReduceScatter.

=================  ===============================================================================
study              what is simulated
=================  ===============================================================================
flux8              own rows first against rows as they lie, 8 A100 on NVLink (Figure 8)
flux9              tiles pushed against tiles pulled, 8 A100 on PCIe and on NVLink (Figure 9)
flux10             each communication tile, 8 A100 on NVLink (Figure 10)
flux11 to flux13   nothing overlapped, chunks, FLUX; a node of A100 PCIe, A100 NVLink, H800
                   (Figures 11 to 13; flux13 is Figure 4, too)
flux14             the same for m of 64 and 512 (Figure 14)
flux15             two nodes (Figure 15)
td11 to td14       nothing overlapped, TD, FLUX; one node and two of H800 (Figures 11 to 14)
td17, td18         nothing overlapped, TD; MI308X (Figures 17 and 18)
order              own rows last or as they lie; one peer at a time or all of a mesh (TD, 3.7)
td-table4, -table5 a loop over experts, TD; tokens gathered, and sums scattered, on one node and
                   two of H800 (Tables 4 and 5)
headroom           the best that overlap can do by shape, and the fastest program; all machines
split              multiprocessors for sums: solved, searched, and TD's 16 (TD, 3.5, 3.8)
=================  ===============================================================================

FLUX and TD tune their kernels on the machine; so here each is at its fastest of the variants that
the papers have, and of communication tiles from a rank's rows down to 128 by halves (FLUX, 4.3).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import NamedTuple

from algorithms import get_algorithm
from drbench.errors import UsageError
from drbench.model.bounds import headroom
from drbench.model.machine import Machine
from drbench.program.problem import ITEMSIZES
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.host.files import ROOT
from launch.models.predict import predict, programs, seen_by

from ..claims import Changed
from .rows import ROWS, OverlapRow

DTYPE = "bfloat16"
#: All machines; those of FLUX by figure (5), and the products it is evaluated on: (n, k) before
#: tensor parallelism.
MACHINES = ("a100pcie", "a100nvlink", "h800", "mi308x")
FLUX_MACHINES = {"flux11": "a100pcie", "flux12": "a100nvlink", "flux13": "h800"}
FLUX_SHAPES = {"ag": (49152, 12288), "rs": (12288, 49152)}
#: m of Figures 11 to 13 (the steps between are not stated: doublings), and of Figure 14.
FLUX_M, SMALL_M = (1024, 2048, 4096, 8192), (64, 512)
#: Least rows of a communication tile: those of a GEMM tile.
LEAST_TILE = 128
#: Names of the two programs and of the layout of the baseline, by product.
_PROGRAMS = {"ag": "ag_gemm", "rs": "gemm_rs"}
#: GPUs of a node, of all machines.
NODE = 8


class Method(NamedTuple):
    """How a product and its collective run: algorithm, options, and what is tuned.

    Attributes
    ----------
    tuned : bool
        The communication tile is the fastest.
    """

    name: str
    variant: str
    algorithm: str
    options: dict
    tuned: bool = False


class Found(NamedTuple):
    """The fastest of some methods on one product."""

    method: Method
    tile: int | None
    seconds: float


def base(product: str, ranks: int) -> Method:
    """One collective, then or before one product: PyTorch with NCCL."""
    mesh = f"1x{ranks}" if product == "ag" else f"{ranks}x1"
    return Method("collective", "", "collective", {"dataflow": "RS", "mesh": mesh})


def chunks(product: str) -> Method:
    """A chunk a rank, each a product of its own: Transformer Engine."""
    return Method("chunks", "", "te_chunks", {"dataflow": product.upper()})


def fused(name: str, product: str, ranks: int, variants: Iterable[str], **options) -> list[Method]:
    """One kernel, in each of the variants; over nodes where the ranks are of several."""
    if ranks > NODE:
        algorithm = {"ag": "ag2", "rs": "rs2"}[product]
        return [Method(name, "over nodes", algorithm, {"per_node": NODE, **options}, True)]
    return [
        Method(name, each, _PROGRAMS[product], {"variant": each, **options}, True)
        for each in variants
    ]


def flux(product: str, ranks: int, machine: str) -> list[Method]:
    """FLUX: copies pulled or pushed, round a ring on PCIe (4.3); products written or, on Hopper,
    pulled by who adds them (4.2; no atomics for bfloat16)."""
    gathers = ("ring", "pull", "push") if machine == "a100pcie" else ("pull", "push")
    scatters = ("write", "pull") if machine == "h800" else ("write",)
    return fused("flux", product, ranks, gathers if product == "ag" else scatters)


def td(product: str, ranks: int, machine: str) -> list[Method]:
    """Triton-distributed: copies pulled or pushed (3.2), of all peers in turn on a mesh (3.7);
    products written (3.3, 3.6)."""
    if product == "rs":
        return fused("td", product, ranks, ("write",))
    order = {"order": "mesh"} if machine == "mi308x" else {}
    return fused("td", product, ranks, ("pull", "push"), **order)


def tiles(m: int, ranks: int) -> list[int]:
    """Communication tiles that are tried: the rows of a rank, halved down to a GEMM tile's (FLUX,
    4.3).

    Examples
    --------
    >>> tiles(8192, 8), tiles(64, 8)
    ([1024, 512, 256, 128], [8])
    """
    found = [-(-m // ranks)]
    while found[-1] >= 2 * LEAST_TILE and found[-1] % 2 == 0:
        found.append(found[-1] // 2)
    return found


class Bench:
    """A machine on which cases are simulated, each once."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self._seconds = cache(self._simulated)

    def seconds(self, ranks: int, shape: tuple, algorithm: str, **options) -> float:
        """Of one case."""
        return self._seconds(ranks, shape, algorithm, tuple(sorted(options.items())))

    def _simulated(self, ranks: int, shape: tuple, algorithm: str, options: tuple) -> float:
        case = Case(*shape, algorithm=algorithm, dtype=DTYPE, options=dict(options))
        record = predict(case, self.machine, ranks)
        if record.status != "ok":
            raise UsageError(f"{algorithm} on {self.machine.name}: {record.reason}")
        return record.best_s

    def gemm_s(self, product: str, ranks: int, shape: tuple) -> float:
        """The fastest product alone, not split (FLUX, Eq. 1)."""
        m, n, k = shape
        local = (m, -(-n // ranks), k) if product == "ag" else (m, n, -(-k // ranks))
        return self.machine.compute.gemm_s(*local, ITEMSIZES[DTYPE])

    def headroom(self, product: str, ranks: int, shape: tuple, methods: Iterable[Method]):
        """The best that overlap can do, whichever of the methods comes nearest: its
        :class:`~drbench.model.bounds.Headroom`, at the largest communication tile."""
        found, gemm_s = [], self.gemm_s(product, ranks, shape)
        for method in methods:
            options = method.options | ({"tile": shape[0]} if method.tuned else {})
            case = Case(*shape, algorithm=method.algorithm, dtype=DTYPE, options=options)
            seen = seen_by(case, self.machine)
            traces = programs(case, seen, ranks)
            found.append(headroom(gemm_s, traces, seen))
        return min(found)

    def experts_s(self, product: str, ranks: int, shape: tuple, of: dict) -> float:
        """The products of all experts alone, in one launch."""
        _, n, k = shape
        n, k = (-(-n // ranks), k) if product == "ag_moe" else (n, -(-k // ranks))
        batches = get_algorithm(product).problem(*shape, ranks, **of).batches()
        rows = [stop - start for _, (start, stop), _ in batches]
        return self.machine.compute.grouped_s(rows, n, k, ITEMSIZES[DTYPE])

    def fastest(self, ranks: int, shape: tuple, methods: Iterable[Method], only=None) -> Found:
        """The fastest of some methods, each at its fastest tile (or those of ``only``)."""
        found = []
        for method in methods:
            for tile in (only or tiles(shape[0], ranks)) if method.tuned else [None]:
                options = method.options | ({"tile": tile} if tile else {})
                seconds = self.seconds(ranks, shape, method.algorithm, **options)
                found.append(Found(method, tile, seconds))
        return min(found, key=lambda each: each.seconds)

    def best(self, product: str, ranks: int, shape: tuple, methods, variant=None, only=None):
        """The row of the fastest of some methods."""
        return self.row(product, ranks, shape, self.fastest(ranks, shape, methods, only), variant)

    def row(self, product: str, ranks: int, shape: tuple, found: Found, variant=None):
        """The row of what was found, with what it gains over the collective; of no study yet."""
        gemm_s = self.gemm_s(product, ranks, shape)
        collective_s = self.fastest(ranks, shape, [base(product, ranks)]).seconds
        return self.row_over(product, ranks, shape, found, variant, gemm_s, collective_s)

    def row_over(self, product, ranks, shape, found: Found, variant, gemm_s, over_s) -> OverlapRow:
        """The same with the time of the product alone, and of what it is compared with."""
        return OverlapRow(
            study="",
            mode="simulated",
            machine=self.machine.name,
            ranks=ranks,
            product=product,
            **dict(zip("mnk", shape)),
            method=found.method.name,
            variant=found.method.variant if variant is None else variant,
            tile=found.tile,
            seconds=found.seconds,
            gemm_s=gemm_s,
            speedup=over_s / found.seconds,
            efficiency_percent=100 * (1 - (found.seconds - gemm_s) / (over_s - gemm_s)),
            source="",
        )


#: FLUX's kernels are the fastest there are (2.3, 4.4), Triton's 5 % behind (TD, 4.1).
_FLUX_KERNELS = {"kernel_slowdown": 0.0}


def _bench(changed: Changed, name: str, constants: tuple) -> Bench:
    machine = changed[name].machine if name in changed else find_machine(name)
    for constant, value in constants:
        machine = machine.with_value(constant, value)
    return Bench(machine)


_as_they_are = cache(partial(_bench, {}))


class Benches:
    """The machines of the studies, some of them changed; each simulates a case once, and those that
    are as they are once for all."""

    def __init__(self, changed: Changed):
        self._changed, self._made = changed, cache(partial(_bench, changed))

    def of(self, name: str, **constants) -> Bench:
        """A machine, with some constants replaced."""
        made = self._made if name in self._changed else _as_they_are
        return made(name, tuple(constants.items()))

    def flux(self, name: str) -> Bench:
        """A machine of FLUX."""
        return self.of(name, **_FLUX_KERNELS)


def _flux_shapes(ms: Iterable[int]) -> list[tuple[str, tuple]]:
    return [(product, (m, *nk)) for product, nk in FLUX_SHAPES.items() for m in ms]


def _compared(benches: Benches, machines: Iterable[str], ms, ranks: int) -> Iterator:
    """Nothing overlapped, chunks, FLUX."""
    for machine in machines:
        for product, shape in _flux_shapes(ms):
            contenders = [[base(product, ranks)], flux(product, ranks, machine)]
            if ranks <= NODE:  # Transformer Engine has none over nodes (5.1)
                contenders.insert(1, [chunks(product)])
            for methods in contenders:
                yield benches.flux(machine).best(product, ranks, shape, methods)


def _with(methods: Iterable[Method], **options) -> list[Method]:
    return [each._replace(options=each.options | options) for each in methods]


def _swizzle(benches: Benches) -> Iterator:
    """Own rows first (AG) or last (RS), against rows as they lie; each at its best."""
    for product, shape in _flux_shapes((FLUX_M[0], FLUX_M[-1])):
        for swizzle in ("ranks", "naive"):
            methods = _with(flux(product, 8, "a100nvlink"), swizzle=swizzle)
            yield benches.flux("a100nvlink").best(product, 8, shape, methods, swizzle)


def _push_pull(benches: Benches) -> Iterator:
    for machine in ("a100pcie", "a100nvlink"):
        for m in FLUX_M:
            for method in fused("flux", "ag", 8, ("pull", "push")):
                yield benches.flux(machine).best("ag", 8, (m, *FLUX_SHAPES["ag"]), [method])


def _tiles(benches: Benches) -> Iterator:
    for m in FLUX_M:
        shape, methods = (m, *FLUX_SHAPES["ag"]), flux("ag", 8, "a100nvlink")
        for tile in tiles(m, 8):
            yield benches.flux("a100nvlink").best("ag", 8, shape, methods, only=[tile])


def published(study: str) -> list:
    """The published rows of a figure, or of a table."""
    folder = ROOT / "results/published/overlap"
    rows = ROWS.read([folder / "speedups.csv", folder / "moe.csv"])
    return [row for row in rows if row.study == study]


def _as_published(benches: Benches, study: str) -> Iterator:
    """Each product of a figure of TD, once; FLUX too where the figure has it."""
    rows = published(study)
    of = lambda row: (row.machine, row.ranks, row.product, row.m, row.n, row.k)
    theirs = {of(row) for row in rows if row.method == "flux"}
    for each in dict.fromkeys(map(of, rows)):
        machine, ranks, product, *shape = each
        bench, shape = benches.of(machine), tuple(shape)
        yield bench.best(product, ranks, shape, [base(product, ranks)])
        yield bench.best(product, ranks, shape, td(product, ranks, machine))
        if each in theirs:
            methods = flux(product, ranks, machine)
            yield benches.flux(machine).best(product, ranks, shape, methods)


#: The products that TD's orders are tried on: the first of Figures 11 and 12, whose communication
#: takes longest beside the product; larger ones hide all of it in any order.
_FIRST = {"ag": (8192, 11008, 4096), "rs": (8192, 4096, 11008)}


def _orders(benches: Benches) -> Iterator:
    """Own rows last or as they lie; tiles of all peers at once, or one peer after the other."""
    for machine, product, text, options, constants in (
        ("h800", "rs", "own rows last", {"swizzle": "ranks"}, {}),
        ("h800", "rs", "as they lie", {"swizzle": "naive"}, {}),
        ("mi308x", "ag", "all peers", {"order": "mesh"}, {}),
        ("mi308x", "ag", "one peer", {"order": "ranks"}, {"copy_streams": 1}),
    ):
        methods = _with(td(product, 8, machine), **options)
        yield benches.of(machine, **constants).best(product, 8, _FIRST[product], methods, text)


def experts_of(variant: str) -> dict[str, int]:
    """The experts of a row of TD's Tables 4 and 5.

    Examples
    --------
    >>> experts_of("60 experts, top 4")
    {'experts': 60, 'topk': 4}
    """
    experts, topk = (int(word) for word in variant.replace(",", "").split() if word.isdigit())
    return {"experts": experts, "topk": topk}


def td_experts(product: str, ranks: int, of: dict) -> list[Method]:
    """TD's experts: tokens pulled or pushed, sums written, or either over nodes; a product of each
    expert's rows of a rank, as in TD's code."""
    if ranks > NODE:
        algorithm = {"ag_moe": "ag2_moe", "moe_rs": "moe_rs2"}[product]
        return [Method("td", "over nodes", algorithm, {"per_node": NODE, **of})]
    variants = ("pull", "push") if product == "ag_moe" else ("write",)
    return [Method("td", each, product, {"variant": each, **of}) for each in variants]


def _experts(benches: Benches, study: str) -> Iterator:
    """A gather or a reduction and a loop over experts, as PyTorch's; TD's, a signal a rank."""
    bench = benches.of("h800")
    for row in published(study):
        if row.method != "td":
            continue
        shape, ranks, of = (row.m, row.n, row.k), row.ranks, experts_of(row.variant)
        flow = {"dataflow": "AG" if row.product == "ag_moe" else "RS", "kernel": "parts"}
        loop = bench.fastest(ranks, shape, [Method("pytorch", "", "moe_collective", flow | of)])
        found = bench.fastest(ranks, shape, td_experts(row.product, ranks, of))
        found = found._replace(tile=tiles(row.m, ranks)[0])
        gemm_s = bench.experts_s(row.product, ranks, shape, of)
        for each in (loop, found):
            more = row.variant, gemm_s, loop.seconds
            yield bench.row_over(row.product, ranks, shape, each, *more)


#: Of the headroom: (machine, GPUs); m; and (n, k) of AllGather + GEMM, of a large layer (FLUX, 5)
#: and of a small one (TD, Figure 11), the other way round for ReduceScatter.
HEADROOM_ON = (("a100pcie", 8), ("a100nvlink", 8), ("h800", 8), ("h800", 16), ("mi308x", 8))
HEADROOM_M = (512, 1024, 2048, 4096, 8192, 16384)
HEADROOM_SHAPES = ((49152, 12288), (11008, 4096))


def _headroom(benches: Benches) -> Iterator:
    """The best possible, and the fastest of all programs, on the fastest kernels."""
    for machine, ranks in HEADROOM_ON:
        bench = benches.flux(machine)
        for product in ("ag", "rs"):
            variants = ("pull", "push", "ring") if product == "ag" else ("write", "pull", "ring")
            methods = fused("best", product, ranks, variants)
            if (machine, product) == ("mi308x", "ag"):  # a mesh needs all its links
                methods += fused("best", product, ranks, variants, order="mesh")
            for nk in HEADROOM_SHAPES:
                for m in HEADROOM_M:
                    shape = (m, *(nk if product == "ag" else nk[::-1]))
                    best = bench.headroom(product, ranks, shape, methods)
                    bound = Found(Method("bound", best.decides, "", {}), None, best.seconds)
                    yield bench.row(product, ranks, shape, bound)
                    yield bench.best(product, ranks, shape, methods)


#: Multiprocessors for sums that are searched; TD's are 16 (3.8). The largest m.
SEARCHED_UNITS, _SPLIT_M = (2, 4, 8, 16, 32, 64), 16384


def _split(benches: Benches) -> Iterator:
    """GEMM + ReduceScatter on H800 with as many multiprocessors for sums as the split says, with
    the best of a search, and with TD's; the product has the others."""
    usual = benches.of("h800")
    every = usual.machine.compute.units
    for row in [*published("td12"), *published("td14")]:
        if row.method != "td" or row.m > _SPLIT_M:
            continue
        shape, ranks = (row.m, row.n, row.k), row.ranks
        methods = td("rs", ranks, "h800")
        solved = usual.headroom("rs", ranks, shape, methods).least_units
        tile = usual.fastest(ranks, shape, methods).tile
        on = {
            units: benches.of("h800", side_units=units).best(
                "rs", ranks, shape, _with(methods, units=every - units), only=[tile]
            )
            for units in sorted({solved, *SEARCHED_UNITS})
        }
        best = min(on, key=lambda units: on[units].seconds)
        for text, units in (("solved", solved), ("searched", best), ("TD", 16)):
            yield on[units]._replace(variant=f"{text}: {units}")


def _rows(name: str, study: Callable, benches: Benches | None = None) -> list:
    return [row._replace(study=name) for row in study(benches or Benches({}))]


_ON_ALL = tuple(FLUX_MACHINES.values())
#: File of rows -> what simulates them on the machines as they are, or on others.
STUDIES: dict[str, Callable[..., list]] = {
    name: partial(_rows, name, study)
    for name, study in {
        "flux8": _swizzle,
        "flux9": _push_pull,
        "flux10": _tiles,
        **{
            name: partial(_compared, machines=[machine], ms=FLUX_M, ranks=8)
            for name, machine in FLUX_MACHINES.items()
        },
        "flux14": partial(_compared, machines=_ON_ALL, ms=SMALL_M, ranks=8),
        "flux15": partial(_compared, machines=_ON_ALL, ms=FLUX_M[-1:], ranks=16),
        **{
            name: partial(_as_published, study=name)
            for name in ("td11", "td12", "td13", "td14", "td17", "td18")
        },
        "order": _orders,
        "headroom": _headroom,
        "split": _split,
        **{name: partial(_experts, study=name) for name in ("td-table4", "td-table5")},
    }.items()
}


def simulate(changed: Changed) -> list:
    """The rows of every study, on some machines that are changed."""
    benches = Benches(changed)
    return [row for study in STUDIES.values() for row in study(benches)]
