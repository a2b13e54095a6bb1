"""One chip simulated for a process row or column: the same times and bytes as a simulation of all
chips."""

import itertools
from dataclasses import replace

import pytest
from traced import everyone_of, of_algorithm, resolved_as

from drbench.algorithms import algorithms
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict, traces_of
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from drbench.model.simulate import simulate
from drbench.model.symmetry import fits_torus

MESHES = [(1, 1), (1, 4), (4, 1), (2, 2), (2, 4), (3, 3), (4, 2)]
OPERATIONS = ("allgather", "reducescatter", "broadcast", "reduce", "shift")


def torus(shape, both_directions, rate, launch_s=0.25):
    """An element a second on each link; memory slow enough that packing counts."""
    compute = Compute(rate, memory_bytes_per_s=96.0)
    kept = {
        name: Collective(launch_s, 0.125, both_directions=both_directions and name != "shift")
        for name in OPERATIONS
    }
    return Machine(
        "toy",
        compute,
        (Link("ici", 4.0, shared="pair"),),
        torus=shape,
        devices=shape[0] * shape[1],
        collectives=kept,
        packets=3,
    )


def cases(rows, cols):
    """(name, options) of every algorithm with congruent chips, in all its dataflows."""
    mesh = {"mesh": f"{rows}x{cols}"}
    for dataflow in ("OS", "LS", "RS"):
        yield "collective", {"dataflow": dataflow, **mesh}
        yield "summa", {"dataflow": dataflow, **mesh}
        yield "summa", {"dataflow": dataflow, "panel": 1, **mesh}
        yield from (
            ("wang", {"dataflow": dataflow, "unroll": unroll, **mesh}) for unroll in (1, 2, 3)
        )
        yield from (
            ("meshslice", {"dataflow": dataflow, "slices": slices, "block": block, **mesh})
            for slices, block in ((1, 3), (3, 1), (2, 2), (3, None))
        )
    if 1 in (rows, cols):
        yield "fsdp", {"unroll": 2}
        yield from (
            ("tensor_parallel_1d", {"dataflow": dataflow, "unroll": unroll})
            for dataflow in ("AG", "RdS")
            for unroll in (1, 2)
        )


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: f"{mesh[0]}x{mesh[1]}")
def test_folded_simulations_equal_those_of_all_chips(mesh, dealt):
    """Sizes that every mesh divides; transfers longer and shorter than GEMMs; a look-ahead of 0, 1
    and 2 GEMMs."""
    folds = 0
    machines = (False, 2000.0, 1), (True, 500.0, 2), (True, 8000.0, 0)
    for case, (name, options) in enumerate(cases(*mesh)):
        sizes = (36, 36, 72) if mesh == (3, 3) else (24, 48, 24)
        algorithm, problem, resolved = resolved_as(name, *sizes, mesh[0] * mesh[1], **options)
        everyone = everyone_of(algorithm, problem, resolved)
        for both_directions, rate, depth in dealt(machines, case + sum(mesh), 3):
            machine = torus(mesh, both_directions, rate)
            folded, some = traces_of(algorithm, problem, resolved, machine)
            if not folded:
                continue
            folds += 1
            assert len(some) == (1 if "row" in folded else mesh[1])
            whole, alone = (simulate(x, machine, prefetch=depth) for x in (everyone, some))
            text = name, options, both_directions, rate, depth
            assert alone.time_s == pytest.approx(whole.time_s, rel=1e-12), text
            assert alone.counters == whole.counters, text
            assert alone.phases == pytest.approx(whole.phases), text
    assert folds >= 20  # slices that do not divide the shards are simulated in full


def test_what_cannot_be_folded_is_simulated_in_full():
    machine = torus((2, 2), True, 100.0)
    for sizes, others in (
        ((8, 7, 8), machine),
        ((8, 8, 8), replace(machine, torus=None)),
        ((8, 8, 8), replace(machine, adds_on_core=True)),
        ((8, 8, 8), replace(machine, torus=(1, 4))),
        ((8, 8, 8), replace(machine, links=(Link("ici", 4.0, shared="device"),))),
    ):
        folded, traces = traces_of(*resolved_as("collective", *sizes, 4, mesh="2x2"), others)
        assert not folded and len(traces) == 4
    first = of_algorithm("collective", 8, 8, 8, 4, dataflow="OS", mesh="2x2")[0]
    assert not fits_torus(first, replace(machine, devices=8), ("row",))


def test_a_prediction_folds_what_it_can_and_its_record_does_not_change():
    """4 x 4 chips of the TPU model, against the simulation of all of them."""
    machine = find_machine("tpuv4-4x4")
    for name, dataflow in itertools.product(
        ("collective", "summa", "wang", "meshslice"), ("OS", "LS", "RS")
    ):
        sizes, options = (4096, 2048, 1024), {"dataflow": dataflow, "mesh": "4x4"}
        record = predict(Case(*sizes, algorithm=name, options=options, dtype="bfloat16"), machine)
        algorithm, problem, resolved = resolved_as(name, *sizes, 16, **options)
        traces = everyone_of(algorithm, replace(problem, dtype="bfloat16"), resolved)
        found = simulate(traces, machine)
        assert (
            record.best_s == pytest.approx(found.time_s, rel=1e-12)
            and record.collective_bytes == found.counters["collective_bytes"]
        )
        assert record.steps == sum(len(trace.steps) for trace in traces)


def test_only_algorithms_of_a_mesh_claim_congruence():
    assert {name for name, each in algorithms().items() if each.congruent} == {
        "collective",
        "fsdp",
        "meshslice",
        "summa",
        "tensor_parallel_1d",
        "wang",
    }
