"""The studies of MeshSlice's evaluation on a machine model: the rows behind its Figures 9 to 14 and
Tables 2 and 3.

===========  =================================================================  ====================
study        what is simulated                                                  in the paper
===========  =================================================================  ====================
weak         every algorithm at its best mesh, 16 to 256 chips, batch = chips   Figures 9, 10 and 11
             / 2
strong       the same at batch 32                                               Figure 12
meshes       MeshSlice on every mesh of 256 chips, and the cost model            Figure 13
slices       MeshSlice with every slice count on 32x8, and the cost model        Figure 14
dataflows    MeshSlice with the largest matrix of each layer in place, and      Table 2
             always with Y
slice4x4     Collective, Wang, MeshSlice on a 4x4 slice with links of one       Table 3
             direction
===========  =================================================================  ====================

All studies but Table 3 time programs as the authors do (§4.2): they "are executed in two parts: (i)
prologue plus epilogue, which execute the operations that are not overlapped, and (ii) a single
iteration of the steady state, where communications are overlapped with computations". So part (i)
is all that a program moves before its first GEMM and after its last, at once on different links
(the gather and the scatter of Collective, or of MeshSlice's first and last slice; Cannon's skews;
Wang's one collective), and in MeshSlice and SUMMA the last GEMM, which nothing overlaps; part (ii)
is the rest, as long as the GEMMs or the busiest link. In Wang's and Cannon's algorithms that is
"the execution of the iterations", all of them. The 1-D algorithms overlap as Wang's (§4.3), and are
timed as it is.

The algorithms run on the FC layers of a transformer, each at its own best mesh (MeshSlice, §4.2,
§4.3 and §5.1). A 2-D algorithm runs the dataflows that the autotuner chose, on every mesh of the
chips. The loops of ``wang`` and ``summa`` have as many iterations as MeshSlice has slices by
the autotuner (§4.2). The 1-D ones run on one ring of all chips, which uses two of a chip's four
links (§4.3), and are overlapped as Wang's, with the fastest number of iterations. Their
multiplications, by layer:

==================  =========================  =========================  ==========================
                    Y = X·W                    X' = Y'·Wᵀ                 W' = Xᵀ·Y'
==================  =========================  =========================  ==========================
fsdp                W passes by                W passes by                sums of W' pass by
1-D TP, wide        X passes by                sums of X' pass by         X passes by
1-D TP, narrow      sums of Y pass by          Y' passes by               Y' passes by
==================  =========================  =========================  ==========================

Layers whose input is the whole hidden state (qkv, fc1) are divided by columns (*wide*), those after
them by rows (*narrow*).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from math import lcm
from typing import NamedTuple

from drbench.algorithms import get_algorithm
from drbench.algorithms.meshslice import SLICED
from drbench.algorithms.wang import costlier_direction
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict, trace_of
from drbench.model.bounds import link_parts
from drbench.model.machine import Machine
from drbench.program.steps import Gemm
from drbench.program.trace import Trace

from ..claims import Changed
from .autotuner import (
    BLOCK,
    MODELS,
    Layer,
    LayerMultiplication,
    MeshPlan,
    choose_dataflows,
    estimate,
    layers_of,
    slice_counts,
    tune_llm,
)
from .rows import ALL, LlmRow, LlmRows

#: Chips of the scaling studies, sequences of the strong one, and chips of the others (§5).
CHIPS = (16, 32, 64, 128, 256)
STRONG_BATCH, MOST_CHIPS, SEQ = 32, 256, 2048
#: Slice counts are tried on this mesh (Figure 14).
SLICES_MESH = (32, 8)
#: The machine of all studies but Table 3, with any torus.
MACHINE = "tpuv4sim-4x4"
#: Its constants that may determine leads: all are the authors', none is assumed.
VARIED = (
    "collectives.*.bandwidth_bytes_per_s",
    "collectives.*.sync_s",
    "collectives.*.launch_s",
    "compute.sustained",
    "compute.memory_bytes_per_s",
)
#: Columns of the local GEMMs of one chip, and of the transfers of its busiest link.
_PARTS = ("compute_s", "launch_s", "sync_s", "transfer_s")


ALGORITHMS = ("meshslice", "wang", "collective", "cannon", "summa")
ONE_DIMENSIONAL = ("fsdp", "tensor_parallel_1d")
#: Algorithms that GEMMs of slices or panels form, the last of which nothing overlaps.
SLICING = ("meshslice", "summa")
#: A case of these studies. The look-ahead is two GEMMs: a ring's shifts use both directions, and a
#: pair of shifts may belong to two GEMMs.
_looking_ahead = partial(Case, dtype="bfloat16", prefetch=2)


class MeshChoice(NamedTuple):
    """An algorithm on a mesh, by default its best.

    Attributes
    ----------
    slices : tuple of int
        By layer: MeshSlice's slices, or the iterations of unrolled loops; empty for others.
    multiplications : sequence of float
        Simulated seconds by layer and multiplication, in order.
    cases : sequence of Case
        Likewise.
    """

    algorithm: str
    mesh: tuple
    slices: tuple
    multiplications: tuple[float, ...]
    cases: tuple[Case, ...]

    @property
    def seconds(self) -> float:
        """Seconds of all multiplications of one block."""
        return sum(self.multiplications)


@dataclass
class Study:
    """One model on one machine, with everything that its rows share.

    Attributes
    ----------
    base : Machine
        A torus of any shape.
    variant : str
        Distinguishes its rows from others of the same study.
    stationary : str or None
        Of each layer; None for the largest matrix.
    two_parts : bool
        Programs are timed in two parts, not as they run on chips.
    """

    name: str
    model: str
    base: Machine
    chips: int = MOST_CHIPS
    batch: int = MOST_CHIPS // 2
    variant: str = ""
    stationary: str | None = None
    two_parts: bool = True
    known: dict = field(default_factory=dict)

    def __post_init__(self):
        self.machine = cache(self._machine)

    @cached_property
    def layers(self) -> list[Layer]:
        return layers_of(MODELS[self.model], self.batch, SEQ)

    @cached_property
    def dataflows(self) -> list:
        """The dataflows that the autotuner chooses."""
        return choose_dataflows(self.layers, self.stationary)

    @cached_property
    def plans(self) -> list[MeshPlan]:
        """The meshes and slice counts of the autotuner, the best first."""
        return tune_llm(self.dataflows, self.chips, self.machine((1, self.chips)))

    def _machine(self, mesh: tuple) -> Machine:
        """The machine with a torus of that shape."""
        sources = self.base.sources
        name = "{}-{}x{}".format(sources["name"], *mesh)
        return Machine.from_dict(sources | {"torus": list(mesh)}, name)

    def rows(self, choice: MeshChoice, details: bool = False) -> LlmRows:
        """The row of all multiplications, and with ``details`` one for every multiplication; for
        MeshSlice also by the cost model."""
        machine, sliced = self.machine(choice.mesh), choice.algorithm == "meshslice"
        peak = self.chips * self.base.compute.peak_flops
        multiplications = [(layer, flow) for layer, flows in zip(self.layers, self.dataflows)
                    for flow in flows]  # fmt: skip
        rows = []
        for (layer, multiplication), case, seconds in zip(
            multiplications, choice.cases, choice.multiplications
        ):
            options = case.options
            rows.append(
                LlmRow(
                    self.name,
                    "simulated",
                    self.base.sources["name"],
                    self.model,
                    self.chips,
                    self.batch,
                    SEQ,
                    choice.algorithm,
                    "{}x{}".format(*choice.mesh),
                    self.variant,
                    layer.name,
                    multiplication.name,
                    *(case.m, case.n, case.k),
                    options.get("dataflow", ""),
                    str(options.get("slices", "")),
                    seconds,
                    estimate(multiplication, choice.mesh, options["slices"], machine)
                    if sliced
                    else None,
                    100 * multiplication.flops / peak / seconds,
                    *link_parts(self._trace(case, choice.mesh), machine),
                )
            )
        times = "seconds", *_PARTS, *["estimated_s"] * sliced
        summed = {name: sum(getattr(row, name) for row in rows) for name in times}
        flops = sum(multiplication.flops for _, multiplication in multiplications)
        yield rows[0]._replace(
            **dict.fromkeys("mnk"),
            **summed,
            layer=ALL,
            product=ALL,
            dataflow="",
            slices="-".join(map(str, choice.slices)),
            utilization_percent=100 * flops / peak / summed["seconds"],
        )
        if details:
            yield from rows

    def _trace(self, case: Case, mesh: tuple) -> Trace:
        """The program of one chip; in Cannon's skew the middle one has the longest distance."""
        rank = (mesh[0] // 2) * mesh[1] + mesh[1] // 2 if case.algorithm == "cannon" else 0
        return trace_of(case, self.chips, rank)

    def _two_parts_s(self, case: Case, mesh: tuple) -> float:
        """Seconds of prologue plus epilogue, and of the steady state (§4.2)."""
        trace = self._trace(case, mesh)
        gemms = [t for t, step in enumerate(trace.steps) if type(step) is Gemm]
        first, last = gemms[0], gemms[-1] + (case.algorithm not in SLICING)
        part = lambda steps: link_parts(replace(trace, steps=steps), self.machine(mesh))
        gemms_s, *moving_s = part(trace.steps[first:last])
        ends_s = sum(part([*trace.steps[:first], *trace.steps[last:]]))
        return ends_s + max(gemms_s, sum(moving_s))

    def best(self, name: str) -> MeshChoice | None:
        """An algorithm at its best of the plan's meshes, or a 1-D one on one ring of all chips;
        None if none is possible."""
        choices = (self.on(name, *key) for key in self._meshes(name))
        return min(choices, key=lambda choice: choice.seconds, default=None)

    def _meshes(self, name: str) -> list[tuple]:
        """The meshes on which an algorithm can run, each with its slices."""
        if name in ONE_DIMENSIONAL:
            return [((1, self.chips), ())]
        best = self.plans[0].slices
        meshes = [(mesh, slices if name == "meshslice" else best) for mesh, slices, _ in self.plans]
        return [mesh for mesh in meshes if name != "cannon" or len({*mesh[0]}) == 1]

    def cases_on(self, name: str, mesh: tuple, slices: tuple) -> list[tuple[Case, tuple]]:
        """The multiplications of an algorithm on a mesh: (case, shape of its torus), by layer and
        multiplication."""
        if name in ONE_DIMENSIONAL:
            return [(case, mesh) for case in ring_cases(name, self.layers, self.chips)]
        return [
            (_case(name, multiplication, shape, s), shape)
            for multiplications, s in zip(self.dataflows, slices)
            for multiplication in multiplications
            for shape in [mesh[::-1] if multiplication.flipped else mesh]
        ]

    def _fastest(self, name: str, case: Case, mesh: tuple) -> tuple[float, Case]:
        """(simulated seconds, case): of a 1-D algorithm with the fastest number of shifts in an
        iteration, among the case's and all smaller powers of two."""
        powers = range(case.options["unroll"].bit_length()) if name in ONE_DIMENSIONAL else ()
        options = (case.options | {"unroll": 2**power} for power in powers)
        cases = [case, *(replace(case, options=of) for of in options)]
        timed = ((self._seconds(case, mesh), case) for case in cases)
        return min(timed, key=lambda pair: pair[0])

    def _seconds(self, case: Case, mesh: tuple) -> float:
        """Seconds; equal multiplications are timed once. Without look-ahead a slice begins when the
        one before has ended."""
        slices = case.options.get("slices", 1)
        if slices > 1 and not case.prefetch:
            axis = SLICED[case.options["dataflow"]]
            alone = {axis: getattr(case, axis) // slices, "options": case.options | {"slices": 1}}
            return slices * self._seconds(replace(case, **alone), mesh)
        key = str(case), mesh
        if key not in self.known:
            self.known[key] = (
                self._two_parts_s(case, mesh)
                if self.two_parts
                else predict(case, self.machine(mesh)).best_s
            )
        return self.known[key]

    def rows_of(self, *names: str, detailed: Iterable[str] = ()) -> LlmRows:
        """The rows of algorithms at their best meshes, for some of every multiplication."""
        for choice in filter(None, map(self.best, names)):
            yield from self.rows(choice, choice.algorithm in detailed)

    def on(self, name: str, mesh: tuple, slices: tuple, **options) -> MeshChoice:
        """An algorithm on a mesh."""
        cases = self.cases_on(name, mesh, slices)
        timed = (self._fastest(name, replace(case, **options), torus) for case, torus in cases)
        counts = slices if name in ("wang", *SLICING) else ()
        return MeshChoice(name, mesh, counts, *zip(*timed))


def _case(algorithm: str, multiplication: LayerMultiplication, mesh: tuple, slices: int) -> Case:
    """The case of a multiplication."""
    (rows, cols), shape = mesh, (multiplication.m, multiplication.n, multiplication.k)
    options = {"dataflow": multiplication.dataflow, "mesh": f"{rows}x{cols}"}
    if algorithm == "meshslice":
        options |= {"slices": slices, "block": BLOCK}
    elif algorithm == "summa":
        options["unroll"] = -(-lcm(rows, cols) // slices)
    elif algorithm == "wang":
        problem = get_algorithm("wang").problem(*shape, rows * cols, **options)
        ring = cols if costlier_direction(problem, **options) == "row" else rows
        options["unroll"] = -(-ring // slices)
    return _looking_ahead(*shape, algorithm=algorithm, options=options)


def ring_cases(algorithm: str, layers: list[Layer], chips: int) -> list[Case]:
    """The multiplications of a 1-D algorithm, by layer and multiplication (see the table above).

    Examples
    --------
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
        unroll = {"unroll": max(1, chips // 2)}
        out += [
            _looking_ahead(*shape, algorithm=name, options=options | unroll)
            for shape, (name, options) in zip(layer.shapes, kinds)
        ]
    return out


def simulate(changed: Changed) -> list[LlmRow]:
    """The rows of ``weak`` on 256 chips, without the 1-D algorithms, which take the longest."""
    base = changed.get(MACHINE) or find_machine(MACHINE)
    studies = [Study("weak", model, base) for model in MODELS]
    return [row for study in studies for row in study.rows_of(*ALGORITHMS, detailed=ALGORITHMS)]


def _scaling(
    study: str, batch: int, algorithms: Iterable[str], model: str, base: Machine
) -> LlmRows:
    """The rows at one batch size, or at half the number of chips; for weak scaling on 256 chips
    with each multiplication."""
    for chips in CHIPS:
        detailed = ALGORITHMS if study == "weak" and chips == MOST_CHIPS else ()
        of_chips = Study(study, model, base, chips, batch or chips // 2)
        yield from of_chips.rows_of(*algorithms, detailed=detailed)


def _meshes(model: str, base: Machine) -> LlmRows:
    study = Study("meshes", model, base)
    for mesh, slices, _ in sorted(study.plans, reverse=True):
        yield from study.rows(study.on("meshslice", mesh, slices))


def _slices(model: str, base: Machine) -> LlmRows:
    """The rows of each slice count, the same in all layers."""
    study = Study("slices", model, base)
    flows = study.dataflows
    for s in slice_counts(
        [multiplication for multiplications in flows for multiplication in multiplications],
        SLICES_MESH,
    ):
        yield from study.rows(study.on("meshslice", SLICES_MESH, (s,) * len(flows)))


def _dataflows(model: str, base: Machine) -> LlmRows:
    for variant, stationary in (("Y stays", "Y"), ("the largest stays", None)):
        study = Study("dataflows", model, base, variant=variant, stationary=stationary)
        yield from study.rows_of("meshslice")


def _slice4x4(model: str, base: Machine) -> LlmRows:
    """The rows of Table 3. TPUs overlapped no gather or scatter (§5.3), so MeshSlice runs one slice
    after another, and once with overlap. Batch and S are those of the authors' script."""
    study = Study("slice4x4", model, find_machine("tpuv4slice-4x4"), 16, 16, two_parts=False)
    for name, study.variant, ahead in (
        ("collective", "", 0),
        ("wang", "nothing overlaps", 0),
        ("wang", "overlapped", 2),
        ("meshslice", "nothing overlaps", 0),
        ("meshslice", "overlapped", 2),
    ):
        choice = study.on(name, (4, 4), (8,) * len(study.layers), prefetch=ahead)
        yield from study.rows(choice)


def _rows(study: Callable[[str, Machine], LlmRows]) -> list[LlmRow]:
    base = find_machine(MACHINE)
    return [row for model in MODELS for row in study(model, base)]


#: File of rows -> function that simulates them. FSDP's batch grows with the chips.
STUDIES: dict[str, Callable[[], list[LlmRow]]] = {
    name: partial(_rows, study)
    for name, study in {
        "weak": partial(_scaling, "weak", 0, (*ALGORITHMS, *ONE_DIMENSIONAL)),
        "strong": partial(_scaling, "strong", STRONG_BATCH, (*ALGORITHMS, "tensor_parallel_1d")),
        "meshes": _meshes,
        "slices": _slices,
        "dataflows": _dataflows,
        "slice4x4": _slice4x4,
    }.items()
}
