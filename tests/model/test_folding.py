"""One chip that stands for a process row or column: the same times and bytes as all of them,
simulated one by one."""

from dataclasses import replace
from itertools import product

import pytest

from algorithms import algorithms, get_algorithm
from drbench.common import PHASES
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from drbench.model.simulate import simulate
from drbench.model.symmetry import even, fits_torus, packed_by_any
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.predict import predict, traces_of

MESHES = [(1, 1), (1, 4), (4, 1), (2, 2), (2, 4), (3, 3), (4, 2)]
OPERATIONS = ("allgather", "reducescatter", "broadcast", "reduce", "shift")


def torus(shape, both_ways, rate, launch_s=0.25):
    """An element a second on each link; memory slow enough that packing counts."""
    compute = Compute(rate, memory_bytes_per_s=96.0)
    kept = {
        name: Collective(launch_s, 0.125, both_ways=both_ways and name != "shift")
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
    """(name, options) of every algorithm that says its chips are congruent, in all its
    dataflows."""
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
def test_folded_simulations_equal_those_of_all_chips(mesh):
    """Sizes that every mesh divides; links that carry more, and less, than products take; no, one
    and two products of look-ahead."""
    folds = 0
    for name, options in cases(*mesh):
        algorithm = get_algorithm(name)
        sizes = (36, 36, 72) if mesh == (3, 3) else (24, 48, 24)
        problem = algorithm.problem(*sizes, mesh[0] * mesh[1], **options)
        resolved = algorithm.resolve(problem, **options)
        everyone = [algorithm.trace(problem, rank, **resolved) for rank in range(problem.nprocs)]
        for both_ways, rate, depth, slowdown in (
            (False, 2000.0, 1, 0.0),
            (True, 500.0, 2, 0.125),
            (True, 8000.0, 0, 0.0),
        ):
            machine = replace(torus(mesh, both_ways, rate), transfer_slowdown=slowdown)
            folded, some = traces_of(algorithm, problem, resolved, machine)
            if not folded:
                continue
            folds += 1
            assert len(some) == (1 if "row" in folded else mesh[1])
            all_of_them, alone = (
                simulate(everyone, machine, prefetch=depth),
                simulate(some, machine, prefetch=depth),
            )
            assert alone.time_s == pytest.approx(all_of_them.time_s, rel=1e-12), (
                name,
                options,
                both_ways,
                rate,
                depth,
            )
            assert alone.counters == all_of_them.counters, (name, options)
            assert [alone.phases[phase] for phase in PHASES] == pytest.approx(
                [all_of_them.phases[phase] for phase in PHASES]
            )
    assert folds >= 3 * 20  # slices that do not divide the shards are simulated in full


def signature(trace):
    """What of a trace decides its times, but for who is a root: equal signatures are what makes
    chips congruent."""
    found = []
    for step in trace.steps:
        of_group = ()
        if step.grouped:
            of_group = (
                step.group.name,
                len(step.group),
                step.axis,
                packed_by_any(step),
                tuple(piece.shape for piece in step.pieces),
                step.by % len(step.group) if step.kind == "shift" else None,
            )
        block = (
            None
            if step.block is None
            else (step.block.matrix, step.block.shape, step.block.owner == trace.rank)
        )
        found.append(
            (
                type(step).__name__,
                tuple(value.index for value in step.inputs),
                step.shape,
                block,
                of_group,
            )
        )
    return found


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: f"{mesh[0]}x{mesh[1]}")
def test_folded_chips_run_the_same_program(mesh):
    """Step by step, of every chip of a folded row or column: the same kinds, inputs, shapes and
    relative neighbours."""
    for name, options in cases(*mesh):
        algorithm = get_algorithm(name)
        problem = algorithm.problem(72, 72, 72, mesh[0] * mesh[1], **options)
        resolved = algorithm.resolve(problem, **options)
        assert even(problem)
        folded = algorithm.congruent(problem, **resolved)
        traces = [algorithm.trace(problem, rank, **resolved) for rank in range(problem.nprocs)]
        found = [signature(trace) for trace in traces]
        for trace in traces:
            assert all(
                found[member] == found[trace.rank]
                for group in trace.groups
                if group.name in folded
                for member in group.members
            )


def test_what_cannot_be_folded_is_simulated_in_full():
    machine = torus((2, 2), True, 100.0)
    collective = get_algorithm("collective")
    for sizes, others in (
        ((8, 7, 8), machine),
        ((8, 8, 8), replace(machine, torus=None)),
        ((8, 8, 8), replace(machine, adds_on_core=True)),
        ((8, 8, 8), replace(machine, torus=(1, 4))),
        ((8, 8, 8), replace(machine, links=(Link("ici", 4.0, shared="device"),))),
    ):
        problem = collective.problem(*sizes, 4, mesh="2x2")
        folded, traces = traces_of(
            collective, problem, collective.resolve(problem, mesh="2x2"), others
        )
        assert not folded and len(traces) == 4
    cannon = get_algorithm("cannon")
    problem = cannon.problem(8, 8, 8, 4)
    # its skew takes each chip another way
    assert cannon.congruent is None
    assert not fits_torus(
        collective.trace(collective.problem(8, 8, 8, 4), 0, dataflow="OS", mesh="2x2"),
        replace(machine, devices=8),
        ("row",),
    )


def test_a_prediction_folds_what_it_can_and_its_record_says_nothing_of_it():
    """4 x 4 chips of the TPU model, against the simulation of all of them."""
    machine = find_machine("tpuv4-4x4")
    for name, dataflow in product(("collective", "summa", "wang", "meshslice"), ("OS", "LS", "RS")):
        case = Case(
            4096,
            2048,
            1024,
            algorithm=name,
            options={"dataflow": dataflow, "mesh": "4x4"},
            dtype="bfloat16",
        )
        record, algorithm = predict(case, machine), get_algorithm(name)
        problem = algorithm.problem(4096, 2048, 1024, 16, dataflow=dataflow, mesh="4x4")
        problem = replace(problem, dtype="bfloat16")
        resolved = algorithm.resolve(problem, dataflow=dataflow, mesh="4x4")
        traces = [algorithm.trace(problem, rank, **resolved) for rank in range(16)]
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
