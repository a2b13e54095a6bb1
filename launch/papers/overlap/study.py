"""The studies behind the figures of FLUX and Triton-distributed (TD) on machine models: GEMMs that
overlap with their AllGather or ReduceScatter.

=================  ===============================================================================
study              what is simulated
=================  ===============================================================================
flux8              own rows first against rows in row order, 8 A100 on NVLink (Figure 8)
flux9              tiles pushed against tiles pulled, 8 A100 on PCIe and on NVLink (Figure 9)
flux10             each communication tile, 8 A100 on NVLink (Figure 10)
flux11 to flux13   nothing overlapped, chunks, FLUX; a node of A100 PCIe, A100 NVLink, H800
                   (Figures 11 to 13; flux13 is Figure 4, too)
flux14             the same for m of 64 and 512 (Figure 14)
flux15             two nodes (Figure 15)
flux16, flux17     blocks of GPT-3 and Llama-2 70B: training, prefill; decoding (Figures 16, 17)
td11 to td14       nothing overlapped, TD, FLUX; one node and two of H800 (Figures 11 to 14)
td17, td18         nothing overlapped, TD; MI308X (Figures 17 and 18)
order              own rows last or in row order; one peer at a time or all of a mesh (TD, 3.7)
td-table4, -table5 a loop over experts, TD; tokens gathered, and sums scattered, on one node and
                   two of H800 (Tables 4 and 5)
split              multiprocessors for sums: solved, searched, and TD's 16 (TD, 3.5, 3.8)
td5                AllGather over 4 nodes with signals, and with flags in words (TD, 3.4)
td16-dispatch,     AllToAll of TD, and of DeepEP through network cards alone, 8 to 64 H800 (TD,
td16-combine       Figure 16)
=================  ===============================================================================

FLUX and TD tune their kernels on the machine; so each is the fastest of the variants of the papers,
of communication tiles from a rank's rows halved down to 128 (FLUX, 4.3), and of parts of the GEMM
with the rows of a kernel's tiles (FLUX, 4.4; TD, 3.8). A study consists of grids of operations on
machines, with the methods that are compared on each. A collective alone is a program on a machine
whose GEMMs and sums take no time.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from drbench.algorithms import get_algorithm
from drbench.chains.model.costs import LayoutCosts
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.programs import COLLECTIVES
from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine, model_version
from drbench.launch.host.files import CHECKOUT
from drbench.launch.models.predict import predict
from drbench.model.machine import Machine
from drbench.program.problem import ITEMSIZES

from ..blocks import block_of, block_s
from ..claims import Changed
from .rows import OverlapRow, read_tables

DTYPE = "bfloat16"
#: All machines; those of FLUX by figure (5), and the operations it is evaluated on: (n, k) before
#: tensor parallelism.
MACHINES = ("a100pcie", "a100nvlink", "h800", "mi308x")
FLUX_MACHINES = {"flux11": "a100pcie", "flux12": "a100nvlink", "flux13": "h800"}
FLUX_SHAPES = {"ag": (49152, 12288), "rs": (12288, 49152)}
#: m of Figures 11 to 13 (the steps between are not stated: doublings), and of Figure 14.
FLUX_M, SMALL_M = (1024, 2048, 4096, 8192), (64, 512)
#: FLUX's kernels are the fastest (2.3, 4.4), Triton's 5 % slower (TD, 4.1).
FLUX_KERNELS = (("kernel_slowdown", 0.0),)
#: A collective alone, by kernels: a transfer over NVLink takes 0.5 µs (TD, 3.4), a signal as long.
ALONE = {
    **dict.fromkeys(("compute.peak_flops", "dtypes.*.peak_flops"), 1e30),
    "compute.memory_bytes_per_s": 1e30,
    "compute.launch_s": 0.0,
    "side_units": 0,
    **dict.fromkeys(("links.nvlink.latency_s", "signal_s"), 0.5e-6),
}
#: TD's AllToAll has a block of threads for each rank, and no queue (all_to_all_kernel in its
#: repository); DeepEP's used no NVLink (TD, 4.2).
TO_ALL = {
    "td": ALONE | {"copy_streams": 0},
    "deepep": ALONE | {"copy_streams": 0, "links.nvlink.within": 1},
}
#: Least rows of a communication tile: those of a GEMM tile.
LEAST_TILE = 128
#: Rows of a part of the GEMM: of the tiles of kernels.
PARTS = 64, 128, 256
#: GPUs of a node, of all machines.
NODE = 8
#: The fused programs on a node, and over nodes; and their variants: copies pulled or pushed (TD,
#: 3.2), results pushed (3.3, 3.6).
_PROGRAMS = {
    "ag": ("ag_gemm", "ag2"),
    "rs": ("gemm_rs", "rs2"),
    "ag_moe": ("ag_moe", "ag2_moe"),
    "moe_rs": ("moe_rs", "moe_rs2"),
}
#: Own rows are first copied to where other ranks read them (TD, Alg. 2; FLUX's copy_local, in
#: src/all_gather/ths_op of github.com/bytedance/flux).
_COPIES = [{"variant": way, "buffer": "symmetric"} for way in ("pull", "push", "ring")]
#: Sums begin when the results of all ranks have arrived.
_STORED, _PULLED = [{"variant": way, "additions": "end"} for way in ("write", "pull")]
_VARIANTS = {
    "ag": _COPIES[:2],
    "ag_moe": [{"variant": way} for way in ("pull", "push")],
    "rs": [{"variant": "write"}],
    "moe_rs": [{"variant": "write"}],
}
#: Others: FLUX's sums begin at the end (TD, 4.1); copies and results go round a ring on PCIe (4.3;
#: its src/reduce_scatter); results are pulled by the rank that adds them on Hopper (4.2; no
#: atomics for bfloat16). On AMD's GPUs TD's sums begin at the end, too (3.6).
_OTHERS = {
    ("flux", "a100pcie", "ag"): _COPIES,
    ("flux", "a100pcie", "rs"): [_STORED, {"variant": "ring"}],
    ("flux", "a100nvlink", "rs"): [_STORED],
    ("flux", "h800", "rs"): [_PULLED],
    ("td", "mi308x", "rs"): [_STORED],
}
#: Tiles of TD's kernels: in the tests and autotuners of its repository (9ce6c2f1: test_ag_gemm_*,
#: test_ag_moe, gemm_reduce_scatter.py, test_moe_reduce_rs_*; on AMD all_gather_gemm.py, too).
KERNEL_TILES = {
    ("h800", "ag"): ((128, 128), (128, 256)),
    ("h800", "rs"): ((128, 256),),
    ("h800", "ag_moe"): ((128, 128), (128, 256)),
    ("h800", "moe_rs"): ((128, 128),),
    ("mi308x", "ag"): ((256, 256), (256, 128)),
    ("mi308x", "rs"): ((256, 256), (128, 256), (128, 128), (64, 128)),
}
#: FLUX's kernels store and pull results themselves (Algorithm 1; Sm90ReduceScatterDma in its
#: repository), without the copy engine.
_KERNELS = {("flux", name, "rs"): {"copy_streams": 0} for name in ("a100nvlink", "h800")}
#: Over nodes: a ring inside each on PCIe (FLUX, 4.3; its all_gather_gemm_op_internode.cc); for
#: experts GEMMs, sums, then a ReduceScatter, as a kernel of all is "left for future" (TD, 4.2;
#: moe_reduce_rs.py of its repository, 9cf7c59b).
_OVER_NODES = {
    ("a100pcie", "ag"): ({}, {"inside": "ring"}),
    ("a100pcie", "rs"): ({}, {"inside": "ring"}),
    ("h800", "moe_rs"): ({"phases": "separate"},),
}


def tiles(m: int, ranks: int) -> list[int]:
    """Communication tiles to try: the rows of a rank, halved down to a GEMM tile's (FLUX, 4.3).

    Examples
    --------
    >>> tiles(8192, 8), tiles(64, 8)
    ([1024, 512, 256, 128], [8])
    """
    sizes = [-(-m // ranks)]
    while sizes[-1] >= 2 * LEAST_TILE and sizes[-1] % 2 == 0:
        sizes.append(sizes[-1] // 2)
    return sizes


def methods(
    name: str, operation: str, shape: tuple, ranks: int, machine: str, **more
) -> list[Case]:
    """The cases over which a method is tuned; ``more`` are further options of all.

    ``collective`` is one collective before or after one GEMM (PyTorch with NCCL), ``pytorch`` the
    same with a loop over experts, ``chunks`` has one chunk and one GEMM per rank (Transformer
    Engine); ``flux`` and ``td`` are one kernel. An operation may be a program's name; tokens are
    sent in float8.
    """
    gathers = operation.startswith("ag")
    dtype = "float8" if operation == "dispatch_moe" else DTYPE
    of = lambda algorithm, **options: Case(
        *shape, algorithm=algorithm, dtype=dtype, options=options | more
    )
    if operation not in _PROGRAMS:
        return [of(operation)]
    if name == "collective":
        return [of(name, dataflow="RS", mesh=f"1x{ranks}" if gathers else f"{ranks}x1")]
    if name == "pytorch":
        return [of("moe_collective", dataflow="AG" if gathers else "RS", kernel="parts")]
    if name == "chunks":  # the best of its ways (FLUX, 5)
        chunk = {"tile": -(-shape[0] // ranks), "part": 1, "kernel": "parts"}
        ring = [] if gathers else [of("gemm_rs", variant="ring", **chunk)]
        return [of("te_chunks", dataflow=operation.upper()), *ring]
    one_node, several = _PROGRAMS[operation]
    tuned = [{}]
    if operation in FLUX_SHAPES:  # experts are not divided
        tuned = [
            {"tile": tile, "part": part}
            for tile in tiles(shape[0], ranks)
            for part in sorted({max(tile, part) for part in PARTS})  # of whole tiles
        ]
    if ranks > NODE:
        ways = _OVER_NODES.get((machine, operation), ({},))
        return [of(several, per_node=NODE, **way, **tile) for way in ways for tile in tuned]
    variants = _OTHERS.get((name, machine, operation), _VARIANTS[operation])
    orders = [{}]
    if (machine, operation) == ("mi308x", "ag"):  # a mesh needs all its links at once (TD, 3.7)
        orders = [{}, {"order": "mesh"}][name == "td" :]
    return [
        of(one_node, **variant, **order, **tile)
        for order, variant, tile in itertools.product(orders, variants, tuned)
    ]


#: Simulated seconds by machine and case: each is simulated once.
_KNOWN: dict[tuple, float] = {}


def seconds_of(machine: Machine, ranks: int, case: Case) -> float:
    """Simulated seconds of one case."""
    key = model_version(machine), ranks, repr(case)
    if key not in _KNOWN:
        record = predict(case, machine, ranks)
        if record.status != "ok":
            raise UsageError(f"{case.algorithm} on {machine.name}: {record.reason}")
        _KNOWN[key] = record.best_s
    return _KNOWN[key]


def fastest(machine: Machine, ranks: int, cases: Iterable[Case]) -> tuple[float, Case]:
    """(seconds, case) of the fastest of some cases; then the shape of its kernel's tiles is tuned,
    too (FLUX, 4.4; TD, 3.8)."""
    times = [(seconds_of(machine, ranks, case), case) for case in cases]
    best_s, case = min(times, key=lambda timed: timed[0])
    for shape in machine.compute.tiles:
        if shape[0] <= case.options.get("part", 0):
            kernel = machine.with_value("compute.fused_tiles", [shape])
            best_s = min(best_s, seconds_of(kernel, ranks, case))
    return best_s, case


def gemm_s(machine: Machine, operation: str, ranks: int, shape: tuple, **of) -> float:
    """Seconds of the fastest GEMM alone, not split (FLUX, Eq. 1); for experts of all, in one
    launch."""
    m, n, k = shape
    n, k = (-(-n // ranks), k) if operation.startswith("ag") else (n, -(-k // ranks))
    if not of:
        return machine.compute.gemm_s(m, n, k, ITEMSIZES[DTYPE])
    batches = get_algorithm(operation).problem(*shape, ranks, **of).batches()
    rows = [stop - start for _, (start, stop), _ in batches]
    return machine.compute.grouped_s(rows, n, k, ITEMSIZES[DTYPE])


class StudyContender(NamedTuple):
    """A contender: a name of :func:`methods`, further options, and the variant in the row; None for
    that of the fastest."""

    name: str
    options: dict = {}
    variant: str | None = None


class StudyGrid(NamedTuple):
    """Operations on machines, and the contenders on each.

    Attributes
    ----------
    machines : sequence of str
    shapes : sequence of (str, tuple)
        Operation, and m, n and k.
    contenders : sequence of StudyContender
    constants : sequence of (str, value), or dict
        Changed constants of the machine for the contenders.
    experts : dict
        Options of operations with experts.
    """

    machines: Sequence[str]
    shapes: Sequence[tuple[str, tuple]]
    contenders: Sequence[StudyContender]
    ranks: int = NODE
    constants: tuple | dict = FLUX_KERNELS
    experts: dict = {}

    def rows(self, changed: Changed) -> Iterator[OverlapRow]:
        """The rows of the fastest of each contender, with some machines changed."""
        for name, (operation, shape) in itertools.product(self.machines, self.shapes):
            machine = machine_of(changed, name, ())
            where = operation, shape, self.ranks, name
            over_s = alone_s = None
            if operation in _PROGRAMS:
                base = methods("pytorch" if self.experts else "collective", *where, **self.experts)
                over_s, _ = fastest(machine, self.ranks, base)
                alone_s = gemm_s(machine, operation, self.ranks, shape, **self.experts)
            for contender, more, variant in self.contenders:
                cases = methods(contender, *where, **self.experts | more)
                of = with_kernels(machine.with_values(dict(self.constants)), contender, operation)
                seconds, case = fastest(of, self.ranks, cases)
                over_nodes = "over nodes" * ("per_node" in case.options)
                how = case.options.get("variant", over_nodes) if variant is None else variant
                program = contender, how, case.options.get("tile")
                yield _row(machine, self.ranks, operation, shape, program, seconds, alone_s, over_s)


class TransformerBlock(NamedTuple):
    """A block of a transformer on a node of each machine of FLUX: Megatron-LM's, or vLLM's, and the
    same with FLUX's kernels.

    Attributes
    ----------
    phase : str
        ``training``, ``prefill`` or ``decoding``.
    model : str
        A preset; Llama-2 70B has the sizes of Llama 3.
    tokens, sequence : int
        Of a micro-batch, and of each of its sequences.
    """

    phase: str
    model: str
    tokens: int
    sequence: int

    def rows(self, changed: Changed) -> Iterator[OverlapRow]:
        """The rows of both, with some machines changed."""
        training = self.phase == "training"
        chain = block_of(self.model, self.tokens, self.sequence, training)
        shape = self.tokens, *chain.matrices["W1"].shape[::-1]
        for name in _ON_FLUX:
            machine = machine_of(changed, name, FLUX_KERNELS)
            costs = LayoutCosts(machine, DeviceMesh.read(f"tp={NODE}"), DTYPE, programs=COLLECTIVES)
            kernel_s = lambda operation, shape: fastest(
                with_kernels(machine, "flux", operation),
                NODE,
                methods("flux", operation, shape, NODE, name),
            )[0]
            base = "TP + SP" if training else "Megatron TP"
            times = {
                "collective": block_s(chain, costs, base, lambda *_: inf),
                "flux": block_s(chain, costs, "TP + SP", kernel_s),
            }
            over_s, _ = times["collective"]
            for method, (seconds, alone_s) in times.items():
                program = method, self.model, None
                yield _row(machine, NODE, self.phase, shape, program, seconds, alone_s, over_s)


def _row(
    machine: Machine,
    ranks: int,
    operation: str,
    shape: tuple,
    program: tuple,
    seconds: float,
    alone_s: float | None,
    over_s: float | None,
) -> OverlapRow:
    """The row of a program (method, variant, tile) with its time, that of the GEMM alone and that
    of the program without overlap, if it has a GEMM."""
    ratios: tuple = None, None
    if over_s is not None:
        ratios = over_s / seconds, 100 * (1 - (seconds - alone_s) / (over_s - alone_s))
    where = "", "simulated", machine.name, ranks, operation
    return OverlapRow(*where, *shape, *program, seconds, alone_s, *ratios, "")


def machine_of(changed: Changed, name: str, constants: tuple | dict) -> Machine:
    """The machine of a name, or its changed one; with some constants replaced."""
    return (changed.get(name) or find_machine(name)).with_values(dict(constants))


def with_kernels(machine: Machine, contender: str, operation: str) -> Machine:
    """A machine with what is particular to a contender's kernels for an operation."""
    name = machine.sources["name"]
    machine = machine.with_values(_KERNELS.get((contender, name, operation), {}))
    if contender == "td" and operation in _PROGRAMS:
        machine = with_tiles(machine, KERNEL_TILES[name, operation])
    return machine


def with_tiles(machine: Machine, tiles: Sequence) -> Machine:
    """A machine whose kernels have other tiles, which are as efficient as beside the library's.

    Examples
    --------
    >>> one = with_tiles(find_machine("h800"), [(128, 128)]).compute
    >>> one.sustained < find_machine("h800").compute.sustained
    True
    """
    old = machine.compute
    least = lambda shapes: 1 + old.edge * min(1 / rows + 1 / columns for rows, columns in shapes)
    sustained = min(1.0, old.sustained * least(old.tiles) / least(tiles))
    return machine.with_values({"compute.tiles": tiles, "compute.sustained": sustained})


def _flux_shapes(ms: Iterable[int], operations: Iterable[str] = tuple(FLUX_SHAPES)) -> list:
    return [
        (operation, (m, *FLUX_SHAPES[operation]))
        for operation, m in itertools.product(operations, ms)
    ]


def published(study: str) -> list:
    """The published rows of a figure, or of a table."""
    return [*read_tables([CHECKOUT / "results/published/overlap"]).where(study=study).itertuples()]


def experts_of(variant: str) -> dict[str, int]:
    """The experts of a row of TD's Tables 4 and 5.

    Examples
    --------
    >>> experts_of("60 experts, top 4"), experts_of("")
    ({'experts': 60, 'topk': 4}, {})
    """
    numbers = (int(word) for word in variant.replace(",", "").split() if word.isdigit())
    return dict(zip(("experts", "topk"), numbers))


def _as_published(study: str) -> Iterator[StudyGrid]:
    """Each operation of a figure or table of TD, once; also FLUX if a figure has it."""
    rows = published(study)
    of = lambda row: (row.machine, row.ranks, row.product, row.m, row.n, row.k, row.variant)
    theirs = {of(row) for row in rows if row.method == "flux"}
    for key in dict.fromkeys(map(of, rows)):
        machine, ranks, operation, *shape, variant = key
        base = "pytorch" if variant else "collective"
        contenders = [StudyContender(name, {}, variant or None) for name in (base, "td")]
        on = [machine], [(operation, tuple(shape))]
        yield StudyGrid(*on, contenders, ranks, (), experts_of(variant))
        if key in theirs:
            yield StudyGrid(*on, [StudyContender("flux")], ranks)


def _exchanged(study: str) -> Iterator[StudyGrid]:
    """Each AllToAll of DeepEP, and that of TD."""
    for row, name in itertools.product(published(study), TO_ALL):
        if row.method == "deepep":
            shape, of = (row.product, (row.m, row.n, row.k)), experts_of(row.variant)
            contender = StudyContender(name, {}, row.variant)
            yield StudyGrid(["h800"], [shape], [contender], row.ranks, TO_ALL[name], of)


def _split() -> Iterator[StudyGrid]:
    """GEMM + ReduceScatter on H800 with some multiprocessors for reductions, the others for the
    GEMM."""
    all_units = find_machine("h800").compute.units
    for row, units in itertools.product([*published("td12"), *published("td14")], UNITS):
        if row.method == "td" and row.m <= SPLIT_M:
            td = StudyContender("td", {"units": all_units - units}, str(units))
            shape, constants = ("rs", (row.m, row.n, row.k)), (("side_units", units),)
            yield StudyGrid(["h800"], [shape], [td], row.ranks, constants)


#: Multiprocessors for sums; TD's are 16 (3.8). The largest m.
UNITS, SPLIT_M = (2, 4, 8, 16, 32, 64), 16384
#: The operations on which TD's orders are tried: the first of Figures 11 and 12, with the longest
#: communication compared with the GEMM; larger ones hide all of it in any order.
_AG, _RS = [("ag", (8192, 11008, 4096))], [("rs", (8192, 4096, 11008))]
_ONE, _ON_FLUX = ["a100nvlink"], [*FLUX_MACHINES.values()]
_COMPARED = [StudyContender("collective"), StudyContender("chunks"), StudyContender("flux")]
_ORDERS = [
    StudyContender("td", {"swizzle": "ranks"}, "own rows last"),
    StudyContender("td", {"swizzle": "naive"}, "in row order"),
    StudyContender("td", {"order": "mesh"}, "all peers"),
    StudyContender("td", {"order": "ranks"}, "one peer"),
]
#: The presets of FLUX's models: GPT-3 175B, and the sizes of Llama-2 70B.
_MODELS = "gpt3", "llama3-70b"
#: File of rows -> its grids, or what makes them. Of Transformer Engine none is over nodes (5.1).
GRIDS: dict[str, Iterable[StudyGrid | TransformerBlock] | Callable[[], Iterable[StudyGrid]]] = {
    "flux8": [
        StudyGrid(
            _ONE,
            _flux_shapes((FLUX_M[0], FLUX_M[-1])),
            [StudyContender("flux", {"swizzle": order}, order) for order in ("ranks", "naive")],
        )
    ],
    "flux9": [
        StudyGrid(
            ["a100pcie", "a100nvlink"],
            _flux_shapes(FLUX_M, ["ag"]),
            [StudyContender("flux", {"variant": variant}, variant) for variant in ("pull", "push")],
        )
    ],
    "flux10": [
        StudyGrid(_ONE, _flux_shapes([m], ["ag"]), [StudyContender("flux", {"tile": tile})])
        for m in FLUX_M
        for tile in tiles(m, NODE)
    ],
    **{
        study: [StudyGrid([machine], _flux_shapes(FLUX_M), _COMPARED)]
        for study, machine in FLUX_MACHINES.items()
    },
    "flux14": [StudyGrid(_ON_FLUX, _flux_shapes(SMALL_M), _COMPARED)],
    "flux15": [StudyGrid(_ON_FLUX, _flux_shapes(FLUX_M[-1:]), _COMPARED[::2], 16)],
    # the micro-batch in training is not stated: one sequence
    "flux16-training": [
        TransformerBlock("training", *sizes) for sizes in zip(_MODELS, *[(2048, 4096)] * 2)
    ],
    "flux16-prefill": [TransformerBlock("prefill", model, 8 * 2048, 2048) for model in _MODELS],
    "flux17-decoding": [
        TransformerBlock("decoding", model, m, 1) for model in _MODELS for m in SMALL_M
    ],
    "order": [
        StudyGrid(["h800"], _RS, _ORDERS[:2], constants=()),
        StudyGrid(["mi308x"], _AG, _ORDERS[2:3], constants=()),
        StudyGrid(["mi308x"], _AG, _ORDERS[3:], constants=(("copy_streams", 1),)),
    ],
    "split": _split,
    "td5": [
        StudyGrid(
            ["h800"],
            # a row of each rank: 4 KiB to 32 MiB in all, as in test_fast_allgather.py of TD
            [("ag2", (32, 32, k)) for k in (64, 1024, 16384, 524288)],
            [
                StudyContender("signals", {"per_node": NODE}),
                StudyContender("td", {"per_node": NODE, "protocol": "ll"}),
            ],
            32,
            ALONE,
        )
    ],
    **{study: partial(_exchanged, study) for study in ("td16-dispatch", "td16-combine")},
    **{
        study: partial(_as_published, study)
        for study in "td11 td12 td13 td14 td17 td18 td-table4 td-table5".split()
    },
}


def rows_of(study: str, changed: Changed = MappingProxyType({})) -> list[OverlapRow]:
    """The rows of a study, on the original or changed machines."""
    grids = GRIDS[study]() if callable(GRIDS[study]) else GRIDS[study]
    return [row._replace(study=study) for grid in grids for row in grid.rows(changed)]


#: File of rows -> what simulates them.
STUDIES = {study: partial(rows_of, study) for study in GRIDS}


def simulate(changed: Changed) -> list[OverlapRow]:
    """The rows of every study, with some machines changed."""
    return [row for rows in STUDIES.values() for row in rows(changed)]
