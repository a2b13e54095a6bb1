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

The algorithms run on the FC layers of a transformer, each at its own best mesh (MeshSlice, §4.2,
§4.3 and §5.1). A 2-D algorithm runs the dataflows that the autotuner chose, on every mesh of the
chips. The loops of ``wang`` have as many iterations as the autotuner gives MeshSlice slices (§4.2);
``wang-free`` is the same algorithm with the number that is fastest for each product. The 1-D ones
run on one ring of all chips, which uses two of a chip's four links (§4.3), and are overlapped in
the same way, with the number of iterations that is fastest. Their products, by layer:

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from operator import attrgetter, itemgetter, mul

from algorithms import get_algorithm
from algorithms.wang import costlier_direction
from drbench.model.bounds import bound_of, link_parts
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.predict import predict, trace_of
from launch.models.simulate_sweeps import Variant

from ..claims import Changed
from .autotuner import (
    MODELS,
    Layer,
    Plan,
    Product,
    Transformer,
    choose_dataflows,
    estimate,
    layers_of,
    slice_counts,
    tune_llm,
)
from .rows import ALL, LlmRow

#: Chips of the scaling studies, sequences of the strong one, and chips of the others (§5).
CHIPS = (16, 32, 64, 128, 256)
STRONG_BATCH, MOST_CHIPS, SEQ = 32, 256, 2048
#: Slice counts are tried on this mesh (Figure 14).
SLICES_MESH = (32, 8)
#: The machine of all studies but Table 3.
MACHINE = "tpuv4sim"
#: The variant that has the constants of the authors' autotuner before those of their simulation.
EARLIER = "earlier constants of the autotuner"
#: Columns of the products of one chip, and of what its busiest link does.
_PARTS = ("compute_s", "launch_s", "sync_s", "transfer_s")


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
    seq: int = SEQ
    machines: dict = field(default_factory=dict)
    known: dict = field(default_factory=dict)

    @cached_property
    def layers(self) -> list[Layer]:
        return layers_of(self.model, self.batch, self.seq)

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

    def utilization(self, seconds: float, flops: int | None = None) -> float:
        """Percent of the chips' peak, in so many FLOPs, by default those of all products."""
        flops = flops or sum(one.flops for _, ones in self.dataflows for one in ones)
        return 100 * flops / (self.chips * self.base.compute.peak_flops) / seconds

    def rows(self, found: Best, each: bool = False) -> Iterator:
        """The row of all products, and with ``each`` one for every product; MeshSlice's by the cost
        model too."""
        sliced = found.algorithm == "meshslice"
        estimated = lambda one, case: estimate(
            one, found.mesh, case.options["slices"], self.machine(found.mesh)
        )
        products = [
            LlmRow(
                study=self.name,
                mode="simulated",
                machine=self.base.sources["name"],
                model=self.model.name,
                chips=self.chips,
                batch=self.batch,
                seq=self.seq,
                algorithm=found.algorithm,
                mesh="{}x{}".format(*found.mesh),
                variant=self.variant,
                layer=layer.name,
                product=one.name,
                m=case.m,
                n=case.n,
                k=case.k,
                dataflow=case.options.get("dataflow", ""),
                slices=str(case.options.get("slices", "")),
                seconds=seconds,
                estimated_s=estimated(one, case) if sliced else None,
                utilization_percent=self.utilization(seconds, one.flops),
                **self._parts(case, found.mesh),
            )
            for (layer, one), case, seconds in zip(
                [
                    (layer, one)
                    for layer, (_, ones) in zip(self.layers, self.dataflows)
                    for one in ones
                ],
                found.cases,
                found.products,
            )
        ]
        summed = ("seconds", *_PARTS, *["estimated_s"] * sliced)
        yield products[0]._replace(
            layer=ALL,
            product=ALL,
            **dict.fromkeys("mnk"),
            dataflow="",
            slices="-".join(map(str, found.slices)),
            utilization_percent=self.utilization(found.seconds),
            **{name: sum(getattr(row, name) for row in products) for name in summed},
        )
        if each:
            yield from products

    def _parts(self, case: Case, mesh: tuple) -> dict:
        """Seconds of the products of one chip, and of launching, synchronising and transferring on
        its busiest link (Figure 10)."""
        # of Cannon's skew the middle chip's takes the longest way
        rank = (mesh[0] // 2) * mesh[1] + mesh[1] // 2 if case.algorithm == "cannon" else 0
        trace = trace_of(case, self.chips, rank)
        return dict(zip(_PARTS, link_parts(trace, self.machine(mesh))))

    def best(self, name: str) -> Best | None:
        """An algorithm at its best mesh; None if it takes none."""
        return self.best_ring(name) if name in ONE_DIMENSIONAL else self.best_mesh(name)

    def best_mesh(self, name: str) -> Best | None:
        """Simulate a 2-D algorithm on the meshes of the plan, and keep the best; None if it takes
        none of them. Meshes whose bound is above the best time are left out."""
        free, tried = name == "wang-free", []
        for each in self.plan.estimates:
            mesh, slices = each["mesh"], self.plan.slices if name == "wang" else each["slices"]
            if name == "cannon" and mesh[0] != mesh[1]:
                continue
            cases = self.cases_on(name, mesh, slices)
            # the loops whose bounds bound those of all others: the longest products, and those
            # without additions of sums
            bounds = [
                min(
                    bound_of([trace_of(one, self.chips)], self.machine(turned)).seconds
                    for one in ([case, _unrolled(case, 1)] if free else [case])
                )
                for case, turned in cases
            ]
            tried.append((sum(bounds), mesh, slices, cases))
        best = None
        for bound, mesh, slices, cases in sorted(tried, key=itemgetter(0)):
            if best and bound >= best.seconds:
                break
            found = [self.fastest(case, turned, free) for case, turned in cases]
            kept = slices if name in ("meshslice", "wang") else ()
            new = Best(name, mesh, kept, *zip(*found))
            best = min(best or new, new, key=attrgetter("seconds"))
        return best

    def best_ring(self, name: str) -> Best:
        """Simulate a 1-D algorithm on one ring of all chips, each product with the number of shifts
        a product that is fastest."""
        ring, most = (1, self.chips), max(1, self.chips // 2)
        cases = ring_cases(name, self.layers, self.chips)
        found = [self.fastest(_unrolled(case, most), ring, free=True) for case in cases]
        return Best(name, ring, (), *zip(*found))

    def cases_on(self, name: str, mesh: tuple, slices: tuple) -> list[tuple[Case, tuple]]:
        """The products of a 2-D algorithm on a mesh: (case, shape of the torus it runs on), by
        layer and product."""
        return [
            (_case(name, product, shape, s), shape)
            for (_, products), s in zip(self.dataflows, slices)
            for product in products
            for shape in [mesh[::-1] if product.flipped else mesh]
        ]

    def fastest(self, case: Case, mesh: tuple, free: bool = False) -> tuple[float, Case]:
        """Simulated seconds, and the case; with ``free`` the fastest number of shifts a product, of
        the case's and all powers of two below."""
        powers = range(case.options["unroll"].bit_length()) if free else ()
        cases = [case, *(_unrolled(case, 2**power) for power in powers)]
        return min(((self._seconds(each, mesh), each) for each in cases), key=itemgetter(0))

    def _seconds(self, case: Case, mesh: tuple) -> float:
        """Simulated seconds, inf if the machine cannot run it; products that are the same are
        simulated once."""
        key = str(case), mesh
        if key not in self.known:
            record = predict(case, self.machine(mesh))
            self.known[key] = record.best_s if record.status == "ok" else inf
        return self.known[key]

    def rows_of(self, *names: str, each: Iterable[str] = ()) -> Iterator:
        """The rows of algorithms at their best meshes, of some for every product."""
        for found in filter(None, map(self.best, names)):
            yield from self.rows(found, found.algorithm in each)

    def on(self, name: str, mesh: tuple, slices: tuple, **options) -> Iterator:
        """An algorithm on a given mesh."""
        cases = self.cases_on(name, mesh, slices)
        found = [self.fastest(replace(case, **options), turned) for case, turned in cases]
        yield from self.rows(Best(name, mesh, slices, *zip(*found)))


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


def _unrolled(case: Case, shifts: int) -> Case:
    return replace(case, options=case.options | {"unroll": shifts})


def weak(model: Transformer, base: Machine) -> Iterator:
    """Figures 9 and 10; with each product on 256 chips for Figure 11."""
    for chips in CHIPS:
        study = Study("weak", model, base, chips, chips // 2)
        each = ALGORITHMS if chips == MOST_CHIPS else ()
        yield from study.rows_of(*ALGORITHMS, *ONE_DIMENSIONAL, each=each)


def strong(model: Transformer, base: Machine) -> Iterator:
    """Figure 12, without FSDP, whose batch grows with the chips."""
    for chips in CHIPS:
        study = Study("strong", model, base, chips, STRONG_BATCH)
        yield from study.rows_of(*ALGORITHMS, "tensor_parallel_1d")


def meshes(model: Transformer, base: Machine) -> Iterator:
    """Figure 13."""
    study = Study("meshes", model, base)
    for each in sorted(study.plan.estimates, key=lambda each: -each["mesh"][0]):
        yield from study.on("meshslice", each["mesh"], each["slices"])


def slices(model: Transformer, base: Machine) -> Iterator:
    """Figure 14: the same slice count in all layers."""
    study = Study("slices", model, base)
    flows = study.dataflows
    for s in slice_counts([each for _, products in flows for each in products], SLICES_MESH):
        yield from study.on("meshslice", SLICES_MESH, (s,) * len(flows))


def dataflows(model: Transformer, base: Machine) -> Iterator:
    """Table 2."""
    for variant, stays in (("Y stays", "Y"), ("the largest stays", None)):
        yield from Study("dataflows", model, base, variant=variant, stays=stays).rows_of(
            "meshslice"
        )


def slice4x4(model: Transformer, base: Machine) -> Iterator:
    """Table 3: TPUs overlapped no collective, so MeshSlice runs without overlap, and its last
    column with. Batch and S are those of the authors' script."""
    machine = find_machine("tpuv4slice-4x4")
    if rule := base.sources.get("arbitration"):
        machine = machine.with_value("arbitration", rule)
    study = Study("slice4x4", model, machine, 16, 16)
    for name, study.variant, ahead in (
        ("collective", "", 0),
        ("wang", "nothing overlaps", 0),
        ("wang", "overlapped", 2),
        ("meshslice", "nothing overlaps", 0),
        ("meshslice", "overlapped", 2),
    ):
        yield from study.on(name, (4, 4), (8,) * len(study.layers), prefetch=ahead)


#: What the claims about leads compare.
_FASTEST = ("meshslice", "wang", "collective")


def changes() -> Iterator[tuple[str, Changed]]:
    """What of the machine may be otherwise, one thing at a time.

    Examples
    --------
    >>> next(words for words, _ in changes())
    'bandwidth x 0.75'
    """
    for words, machine in _varied(find_machine(f"{MACHINE}-4x4")):
        yield words, {MACHINE: Variant(machine)}


def _varied(base: Machine) -> Iterator[tuple[str, Machine]]:
    def each(constant: str, value) -> Machine:
        machine = base
        for name in base.sources["collectives"]:
            machine = machine.with_value(f"collectives.{name}.{constant}", value)
        return machine

    for factor in (0.75, 1.25, 1.5, 2):
        yield f"bandwidth x {factor}", each("bandwidth_bytes_per_s", partial(mul, factor))
    for rate in (32, 50):
        yield f"bandwidth {rate} GB/s", each("bandwidth_bytes_per_s", rate * 1e9)
    for micro in (2, 5, 20):
        yield f"synchronisation {micro} us", each("sync_s", micro * 1e-6)
    yield "shifts synchronise in 50 us", base.with_value("collectives.shift.sync_s", 50e-6)
    for micro in (0, 40):
        yield f"launch {micro} us", each("launch_s", micro * 1e-6)
    for k in (64, 256):
        yield f"k_ramp {k}", base.with_value("compute.k_ramp", k)
    for percent in (95, 90):
        changed = base.vary("compute.sustained", percent / 100)
        yield f"products at {percent} % of the rate", changed
    for percent in (10, 20):
        changed = base.with_value("transfer_slowdown", percent / 800)
        yield f"products slow by {percent} % beside two gathers", changed
    yield "memory at a quarter of its speed", base.vary("compute.memory_bytes_per_s", 0.25)


def simulate(changed: Changed) -> list:
    """MeshSlice, Wang and Collective at their best meshes of 256 chips, as rows of ``weak``."""
    base = changed[MACHINE].machine if changed else find_machine(f"{MACHINE}-4x4")
    studies = [Study("weak", model, base) for model in MODELS.values()]
    return [row for study in studies for row in study.rows_of(*_FASTEST)]


def sensitivity(model: Transformer, base: Machine) -> Iterator:
    """The same with one constant changed."""
    as_they_are = [("as it is", base), (EARLIER, find_machine("tpuv4-4x4"))]
    for words, machine in [*as_they_are, *_varied(base)]:
        yield from Study("sensitivity", model, machine, variant=words).rows_of(*_FASTEST)


def _rows(study: Callable[[Transformer, Machine], Iterator]) -> list:
    base = find_machine(f"{MACHINE}-4x4")
    return [row for model in MODELS.values() for row in study(model, base)]


#: File of rows -> what simulates them.
STUDIES: dict[str, Callable[[], list]] = {
    study.__name__: partial(_rows, study)
    for study in (weak, strong, meshes, slices, dataflows, slice4x4, sensitivity)
}
