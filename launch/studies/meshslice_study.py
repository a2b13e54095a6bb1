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

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from drbench.errors import UsageError
from drbench.model.bounds import link_parts
from drbench.model.machine import Machine
from launch.cases.case import Case, bound
from launch.cases.machine_models import find_machine
from launch.models.llm import (
    Layer,
    Plan,
    Transformer,
    choose_dataflows,
    estimate,
    layers_of,
    slice_counts,
    tune_llm,
)

from .meshslice_compare import (
    ALGORITHMS,
    ONE_DIMENSIONAL,
    Best,
    best_mesh,
    best_ring,
    cases_on,
    fastest,
)

__all__ = ["CHIPS", "STUDIES", "changes", "run_study"]

#: Chips of the scaling studies, sequences of the strong one, and chips of the others (§5).
CHIPS = (16, 32, 64, 128, 256)
STRONG_BATCH, MOST_CHIPS, SEQ = 32, 256, 2048
PRODUCTS = ("forward", "backward data", "backward weight")
#: Slice counts are tried on this mesh (Figure 14).
SLICES_MESH = (32, 8)


class Study:
    """One model on one machine, with everything that its rows have in common.

    Parameters
    ----------
    base : Machine
        A torus of any shape.
    """

    def __init__(
        self,
        name: str,
        model: Transformer,
        base: Machine,
        chips: int,
        batch: int,
        variant: str = "",
    ):
        self.name, self.model, self.base, self.chips, self.batch, self.variant = (
            name,
            model,
            base,
            chips,
            batch,
            variant,
        )
        self.layers: list[Layer] = layers_of(model, batch, SEQ)
        self.machines: dict = {}

    def machine(self, mesh: tuple) -> Machine:
        """The machine with a torus of that shape."""
        if mesh not in self.machines:
            self.machines[mesh] = Machine.from_dict(
                self.base.sources | {"torus": list(mesh)},
                f"{self.base.sources['name']}-{mesh[0]}x{mesh[1]}",
            )
        return self.machines[mesh]

    def plan(self, stays: str | None = None) -> tuple[list, Plan]:
        """Dataflows, mesh and slice counts as the autotuner chooses them."""
        dataflows = choose_dataflows(self.layers, stays)
        return dataflows, tune_llm(dataflows, self.chips, self.machine((1, self.chips)))

    def rows(
        self,
        algorithm: str,
        mesh: tuple,
        slices: tuple,
        cases: list[Case],
        seconds: list[float],
        estimates: list | None = None,
        each: bool = False,
    ) -> Iterator:
        """The row of all products, and with ``each`` one for every product."""
        from plots.select.llm_rows import ALL, LlmRow

        parts = [self._parts(case, mesh) for case in cases]
        estimates = estimates or [None] * len(cases)

        def row(flops, seconds, **columns):
            return LlmRow(
                study=self.name,
                mode="simulated",
                machine=self.base.sources["name"],
                model=self.model.name,
                chips=self.chips,
                batch=self.batch,
                seq=SEQ,
                algorithm=algorithm,
                mesh=f"{mesh[0]}x{mesh[1]}",
                variant=self.variant,
                seconds=seconds,
                utilization_percent=100
                * flops
                / (self.chips * self.base.compute.peak_flops)
                / seconds,
                **columns,
            )

        yield row(
            sum(2 * case.m * case.n * case.k for case in cases),
            sum(seconds),
            layer=ALL,
            product=ALL,
            **dict.fromkeys("mnk"),
            dataflow="",
            slices="-".join(map(str, slices)),
            estimated_s=None if None in estimates else sum(estimates),
            **{name: sum(part[name] for part in parts) for name in parts[0]},
        )
        for index, (case, each_s, estimated, part) in enumerate(
            zip(cases, seconds, estimates, parts) if each else ()
        ):
            yield row(
                2 * case.m * case.n * case.k,
                each_s,
                layer=self.layers[index // 3].name,
                product=PRODUCTS[index % 3],
                **{axis: getattr(case, axis) for axis in "mnk"},
                dataflow=case.options.get("dataflow", ""),
                slices=str(case.options.get("slices", "")),
                estimated_s=estimated,
                **part,
            )

    def _parts(self, case: Case, mesh: tuple) -> dict:
        """Seconds of the products of one chip, and of launching, synchronising and transferring on
        its busiest link (Figure 10)."""
        algorithm, problem, options = bound(case, self.chips)
        settled = algorithm.settle(problem, False, **options)
        # of Cannon's skew the middle chip's takes the longest way
        rank = (mesh[0] // 2) * mesh[1] + mesh[1] // 2 if case.algorithm == "cannon" else 0
        compute, launch, sync, transfer = link_parts(
            algorithm.trace(problem, rank, **settled), self.machine(mesh)
        )
        return {"compute_s": compute, "launch_s": launch, "sync_s": sync, "transfer_s": transfer}

    def best(self, name: str, dataflows: list, plan: Plan, each: bool = False) -> Iterator:
        """An algorithm at its best mesh."""
        found: Best | None = (
            best_ring(name, self.layers, self.chips, self.machine)
            if name in ONE_DIMENSIONAL
            else best_mesh(name, dataflows, plan, self.machine)
        )
        if found is not None:
            estimates = (
                self.estimated(dataflows, found.mesh, found.slices) if name == "meshslice" else None
            )
            yield from self.rows(
                name, found.mesh, found.slices, found.cases, found.products, estimates, each
            )

    def on(
        self,
        name: str,
        dataflows: list,
        mesh: tuple,
        slices: tuple,
        estimates: bool = True,
        **options,
    ) -> Iterator:
        """An algorithm on a given mesh."""
        known: dict = {}
        found = [
            fastest(replace(case, **options), self.machine(turned), known)
            for case, turned in cases_on(name, dataflows, mesh, slices)
        ]
        seconds, cases = [each[0] for each in found], [each[1] for each in found]
        yield from self.rows(
            name,
            mesh,
            slices,
            cases,
            seconds,
            self.estimated(dataflows, mesh, slices) if estimates else None,
        )

    def estimated(self, dataflows: list, mesh: tuple, slices: tuple) -> list[float]:
        """By the cost model, by layer and product."""
        machine = self.machine(mesh)
        return [
            estimate(product, mesh, s, machine)
            for (_, _, products), s in zip(dataflows, slices)
            for product in products
        ]


def weak(model: Transformer, base: Machine) -> Iterator:
    """Figures 9 and 10; with each product on 256 chips for Figure 11."""
    for chips in CHIPS:
        study = Study("weak", model, base, chips, chips // 2)
        dataflows, plan = study.plan()
        for name in (*ALGORITHMS, *ONE_DIMENSIONAL):
            yield from study.best(
                name, dataflows, plan, each=chips == MOST_CHIPS and name in ALGORITHMS
            )


def strong(model: Transformer, base: Machine) -> Iterator:
    """Figure 12, without FSDP, whose batch grows with the chips."""
    for chips in CHIPS:
        study = Study("strong", model, base, chips, STRONG_BATCH)
        dataflows, plan = study.plan()
        for name in (*ALGORITHMS, "tensor_parallel_1d"):
            yield from study.best(name, dataflows, plan)


def meshes(model: Transformer, base: Machine) -> Iterator:
    """Figure 13."""
    study = Study("meshes", model, base, MOST_CHIPS, MOST_CHIPS // 2)
    dataflows, plan = study.plan()
    for each in sorted(plan.estimates, key=lambda each: -each["mesh"][0]):
        yield from study.on("meshslice", dataflows, each["mesh"], each["slices"])


def slices(model: Transformer, base: Machine) -> Iterator:
    """Figure 14: the same slice count in all layers."""
    study = Study("slices", model, base, MOST_CHIPS, MOST_CHIPS // 2)
    dataflows, _ = study.plan()
    for s in sorted(
        set.intersection(
            *(
                set(slice_counts(product, SLICES_MESH))
                for _, _, products in dataflows
                for product in products
            )
        )
    ):
        yield from study.on("meshslice", dataflows, SLICES_MESH, (s,) * len(dataflows))


def dataflows(model: Transformer, base: Machine) -> Iterator:
    """Table 2."""
    for variant, stays in (("Y stays", "Y"), ("the largest stays", None)):
        study = Study("dataflows", model, base, MOST_CHIPS, MOST_CHIPS // 2, variant)
        flows, plan = study.plan(stays)
        yield from study.best("meshslice", flows, plan)


def slice4x4(model: Transformer, base: Machine) -> Iterator:
    """Table 3: TPUs overlapped no collective, so MeshSlice runs without overlap, and its last
    column with. Batch and S are those of the authors' script."""
    machine = find_machine("tpuv4slice-4x4")
    study = Study("slice4x4", model, machine, 16, 16)
    flows, _ = study.plan()
    counts = (8,) * len(flows)
    for name, variant, ahead in (
        ("collective", "", 0),
        ("wang", "nothing overlaps", 0),
        ("wang", "overlapped", 2),
        ("meshslice", "nothing overlaps", 0),
        ("meshslice", "overlapped", 2),
    ):
        study.variant = variant
        yield from study.on(name, flows, (4, 4), counts, name == "meshslice", prefetch=ahead)


def changes(base: Machine) -> list[tuple[str, Machine]]:
    """The machine, and what of it may be otherwise, one thing at a time."""
    operations = tuple(base.sources["collectives"])

    def each(machine: Machine, constant: str, value) -> Machine:
        for name in operations:
            machine = machine.with_value(f"collectives.{name}.{constant}", value)
        return machine

    out = [("as it is", base)]
    out += [
        (
            f"bandwidth x {factor}",
            each(base, "bandwidth_bytes_per_s", lambda rate, factor=factor: rate * factor),
        )
        for factor in (0.75, 1.25, 1.5, 2)
    ]
    out += [
        (f"bandwidth {rate:g} GB/s", each(base, "bandwidth_bytes_per_s", rate * 1e9))
        for rate in (32, 50)
    ]
    out += [
        (f"synchronisation {micro} us", each(base, "sync_s", micro * 1e-6)) for micro in (2, 5, 20)
    ]
    out += [("shifts synchronise in 50 us", base.with_value("collectives.shift.sync_s", 50e-6))]
    out += [(f"launch {micro} us", each(base, "launch_s", micro * 1e-6)) for micro in (0, 40)]
    out += [(f"k_ramp {k}", base.with_value("compute.k_ramp", k)) for k in (0, 256)]
    out += [
        (f"products at {percent} % of the rate", base.vary("compute.sustained", percent / 100))
        for percent in (95, 90)
    ]
    out += [
        (
            f"products slow by {percent} % beside two gathers",
            base.with_value("transfer_slowdown", percent / 800),
        )
        for percent in (10, 20)
    ]
    out += [("memory at a quarter of its speed", base.vary("compute.memory_bytes_per_s", 0.25))]
    return out


def sensitivity(model: Transformer, base: Machine) -> Iterator:
    """MeshSlice, Wang and Collective at their best meshes with one constant changed."""
    for variant, machine in changes(base):
        study = Study("sensitivity", model, machine, MOST_CHIPS, MOST_CHIPS // 2, variant)
        flows, plan = study.plan()
        for name in ("meshslice", "wang", "collective"):
            yield from study.best(name, flows, plan)


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
