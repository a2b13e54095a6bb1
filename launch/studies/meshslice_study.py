"""The studies of MeshSlice's evaluation on a machine model: the rows behind its Figures 9 to 14 and
Tables 2 and 3.

===========  =================================================================  ====================
study        what is simulated                                                  in the paper
===========  =================================================================  ====================
weak         every algorithm at its best mesh, 16 to 256 chips, batch = chips   Figures 9, 10 and 11
             / 2
strong       the same at batch 32                                               Figure 12
meshes       MeshSlice on every mesh of 256 chips, beside the cost model        Figure 13
slices       MeshSlice with every slice count on 32x8, beside the cost model    Figure 14
dataflows    MeshSlice with the largest matrix of each layer in place, and      Table 2
             always with Y
slice4x4     Collective, Wang, MeshSlice on a 4x4 slice with links of one       Table 3
             direction
sensitivity  MeshSlice, Wang and Collective on 256 chips, one constant changed  --
             at a time
===========  =================================================================  ====================
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from operator import mul

from drbench.errors import UsageError
from drbench.model.bounds import link_parts
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.llm import (
    PRODUCTS,
    Layer,
    Plan,
    Transformer,
    choose_dataflows,
    estimate,
    layers_of,
    slice_counts,
    tune_llm,
)
from launch.models.predict import trace_of

from .meshslice_compare import (
    ALGORITHMS,
    ONE_DIMENSIONAL,
    Best,
    best_mesh,
    best_ring,
    cases_on,
    fastest,
)

#: Chips of the scaling studies, sequences of the strong one, and chips of the others (§5).
CHIPS = (16, 32, 64, 128, 256)
STRONG_BATCH, MOST_CHIPS, SEQ = 32, 256, 2048
#: Slice counts are tried on this mesh (Figure 14).
SLICES_MESH = (32, 8)
#: Columns of the products of one chip, and of what its busiest link does.
_PARTS = ("compute_s", "launch_s", "sync_s", "transfer_s")


@dataclass
class Study:
    """One model on one machine, with everything that its rows have in common.

    Attributes
    ----------
    base : Machine
        A torus of any shape.
    variant : str
        What sets its rows apart from those of the same study.
    stays : str or None
        Matrix of each layer that stays; None for the largest.
    """

    name: str
    model: Transformer
    base: Machine
    chips: int = MOST_CHIPS
    batch: int = MOST_CHIPS // 2
    variant: str = ""
    stays: str | None = None
    machines: dict = field(default_factory=dict)

    @cached_property
    def layers(self) -> list[Layer]:
        return layers_of(self.model, self.batch, SEQ)

    @cached_property
    def dataflows(self) -> list:
        """As the autotuner chooses them."""
        return choose_dataflows(self.layers, self.stays)

    @cached_property
    def plan(self) -> Plan:
        """Mesh and slice counts, likewise."""
        return tune_llm(self.dataflows, self.chips, self.machine((1, self.chips)))

    def machine(self, mesh: tuple) -> Machine:
        """The machine with a torus of that shape."""
        if mesh not in self.machines:
            sources = self.base.sources
            self.machines[mesh] = Machine.from_dict(
                sources | {"torus": list(mesh)}, "{}-{}x{}".format(sources["name"], *mesh)
            )
        return self.machines[mesh]

    def rows(self, found: Best, estimates: bool, each: bool = False) -> Iterator:
        """The row of all products, and with ``each`` one for every product; with ``estimates`` by
        the cost model too."""
        from plots.select.llm_rows import ALL

        known = (
            [
                estimate(one, found.mesh, s, self.machine(found.mesh))
                for (_, _, ones), s in zip(self.dataflows, found.slices)
                for one in ones
            ]
            if estimates
            else [None] * len(found.cases)
        )
        products = [
            {
                "layer": layer.name,
                "product": name,
                **{axis: getattr(case, axis) for axis in "mnk"},
                "dataflow": case.options.get("dataflow", ""),
                "slices": str(case.options.get("slices", "")),
                "seconds": seconds,
                "estimated_s": estimated,
                **self._parts(case, found.mesh),
            }
            for (layer, name), case, seconds, estimated in zip(
                product(self.layers, PRODUCTS), found.cases, found.products, known
            )
        ]
        total = {
            "layer": ALL,
            "product": ALL,
            **dict.fromkeys("mnk"),
            "dataflow": "",
            "slices": "-".join(map(str, found.slices)),
            "estimated_s": sum(known) if estimates else None,
            **{name: sum(part[name] for part in products) for name in ("seconds", *_PARTS)},
        }
        flops = [2 * case.m * case.n * case.k for case in found.cases]
        yield self._row(found, sum(flops), total)
        if each:
            yield from map(partial(self._row, found), flops, products)

    def _row(self, found: Best, flops: int, columns: dict):
        from plots.select.llm_rows import LlmRow

        peak = self.chips * self.base.compute.peak_flops
        return LlmRow(
            study=self.name,
            mode="simulated",
            machine=self.base.sources["name"],
            model=self.model.name,
            chips=self.chips,
            batch=self.batch,
            seq=SEQ,
            algorithm=found.algorithm,
            mesh="{}x{}".format(*found.mesh),
            variant=self.variant,
            utilization_percent=100 * flops / peak / columns["seconds"],
            **columns,
        )

    def _parts(self, case: Case, mesh: tuple) -> dict:
        """Seconds of the products of one chip, and of launching, synchronising and transferring on
        its busiest link (Figure 10)."""
        # of Cannon's skew the middle chip's takes the longest way
        rank = (mesh[0] // 2) * mesh[1] + mesh[1] // 2 if case.algorithm == "cannon" else 0
        trace = trace_of(case, self.chips, rank)
        return dict(zip(_PARTS, link_parts(trace, self.machine(mesh))))

    def best(self, name: str, each: bool = False) -> Iterator:
        """An algorithm at its best mesh."""
        found = (
            best_ring(name, self.layers, self.chips, self.machine)
            if name in ONE_DIMENSIONAL
            else best_mesh(name, self.dataflows, self.plan, self.machine)
        )
        if found is not None:
            yield from self.rows(found, name == "meshslice", each)

    def on(self, name: str, mesh: tuple, slices: tuple, **options) -> Iterator:
        """An algorithm on a given mesh."""
        known: dict = {}
        found = [
            fastest(replace(case, **options), self.machine(turned), known)
            for case, turned in cases_on(name, self.dataflows, mesh, slices)
        ]
        yield from self.rows(Best(name, mesh, slices, *zip(*found)), name == "meshslice")


def weak(model: Transformer, base: Machine) -> Iterator:
    """Figures 9 and 10; with each product on 256 chips for Figure 11."""
    for chips in CHIPS:
        study = Study("weak", model, base, chips, chips // 2)
        for name in (*ALGORITHMS, *ONE_DIMENSIONAL):
            yield from study.best(name, each=chips == MOST_CHIPS and name in ALGORITHMS)


def strong(model: Transformer, base: Machine) -> Iterator:
    """Figure 12, without FSDP, whose batch grows with the chips."""
    for chips in CHIPS:
        study = Study("strong", model, base, chips, STRONG_BATCH)
        for name in (*ALGORITHMS, "tensor_parallel_1d"):
            yield from study.best(name)


def meshes(model: Transformer, base: Machine) -> Iterator:
    """Figure 13."""
    study = Study("meshes", model, base)
    for each in sorted(study.plan.estimates, key=lambda each: -each["mesh"][0]):
        yield from study.on("meshslice", each["mesh"], each["slices"])


def slices(model: Transformer, base: Machine) -> Iterator:
    """Figure 14: the same slice count in all layers."""
    study = Study("slices", model, base)
    flows = study.dataflows
    for s in slice_counts([each for *_, products in flows for each in products], SLICES_MESH):
        yield from study.on("meshslice", SLICES_MESH, (s,) * len(flows))


def dataflows(model: Transformer, base: Machine) -> Iterator:
    """Table 2."""
    for variant, stays in (("Y stays", "Y"), ("the largest stays", None)):
        yield from Study("dataflows", model, base, variant=variant, stays=stays).best("meshslice")


def slice4x4(model: Transformer, base: Machine) -> Iterator:
    """Table 3: TPUs overlapped no collective, so MeshSlice runs without overlap, and its last
    column with. Batch and S are those of the authors' script."""
    study = Study("slice4x4", model, find_machine("tpuv4slice-4x4"), 16, 16)
    for name, study.variant, ahead in (
        ("collective", "", 0),
        ("wang", "nothing overlaps", 0),
        ("wang", "overlapped", 2),
        ("meshslice", "nothing overlaps", 0),
        ("meshslice", "overlapped", 2),
    ):
        yield from study.on(name, (4, 4), (8,) * len(study.layers), prefetch=ahead)


def changes(base: Machine) -> Iterator[tuple[str, Machine]]:
    """The machine, and what of it may be otherwise, one thing at a time."""

    def each(constant: str, value) -> Machine:
        machine = base
        for name in base.sources["collectives"]:
            machine = machine.with_value(f"collectives.{name}.{constant}", value)
        return machine

    yield "as it is", base
    for factor in (0.75, 1.25, 1.5, 2):
        yield f"bandwidth x {factor}", each("bandwidth_bytes_per_s", partial(mul, factor))
    for rate in (32, 50):
        yield f"bandwidth {rate} GB/s", each("bandwidth_bytes_per_s", rate * 1e9)
    for micro in (2, 5, 20):
        yield f"synchronisation {micro} us", each("sync_s", micro * 1e-6)
    yield "shifts synchronise in 50 us", base.with_value("collectives.shift.sync_s", 50e-6)
    for micro in (0, 40):
        yield f"launch {micro} us", each("launch_s", micro * 1e-6)
    for k in (0, 256):
        yield f"k_ramp {k}", base.with_value("compute.k_ramp", k)
    for percent in (95, 90):
        changed = base.vary("compute.sustained", percent / 100)
        yield f"products at {percent} % of the rate", changed
    for percent in (10, 20):
        changed = base.with_value("transfer_slowdown", percent / 800)
        yield f"products slow by {percent} % beside two gathers", changed
    yield "memory at a quarter of its speed", base.vary("compute.memory_bytes_per_s", 0.25)


def sensitivity(model: Transformer, base: Machine) -> Iterator:
    """MeshSlice, Wang and Collective at their best meshes with one constant changed."""
    for variant, machine in changes(base):
        study = Study("sensitivity", model, machine, variant=variant)
        for name in ("meshslice", "wang", "collective"):
            yield from study.best(name)


STUDIES: dict[str, Callable[[Transformer, Machine], Iterator]] = {
    "weak": weak,
    "strong": strong,
    "meshes": meshes,
    "slices": slices,
    "dataflows": dataflows,
    "slice4x4": slice4x4,
    "sensitivity": sensitivity,
}


def run_study(name: str, models: list[Transformer], base: Machine) -> list:
    """All rows of a study.

    Raises
    ------
    UsageError
        If there is no such study.
    """
    if name not in STUDIES:
        raise UsageError(f"no study {name!r}; there are {', '.join(STUDIES)}. Choose one.")
    return [row for model in models for row in STUDIES[name](model, base)]
