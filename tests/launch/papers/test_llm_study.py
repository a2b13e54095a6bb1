"""MeshSlice's studies: what the 1-D baselines move, the parts of communication time,
the rows, and the statements about them."""

from dataclasses import replace

import pytest

from drbench.algorithms import get_algorithm
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict
from drbench.launch.papers.meshslice.autotuner import Layer
from drbench.launch.papers.meshslice.study import (
    ONE_DIMENSIONAL,
    Study,
    ring_cases,
)
from drbench.model.bounds import link_parts
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine

LAYERS = [
    Layer("qkv", 4096, 512, 1536),
    Layer("proj", 4096, 512, 512),
    Layer("fc1", 4096, 512, 2048),
    Layer("fc2", 4096, 2048, 512),
]
OPERATIONS = ("allgather", "reducescatter", "broadcast", "reduce", "shift")


@pytest.mark.parametrize("name", ONE_DIMENSIONAL)
def test_one_dimensional_training_moves_weights_or_activations_once_a_gemm(name):
    """P - 1 times: FSDP the weights W, in all three GEMMs; 1-D TP X where it is gathered, Y
    where sums are scattered, and their gradients."""
    cases, chips = ring_cases(name, LAYERS, 8), 8
    for layer, trio in zip(LAYERS, zip(*[iter(cases)] * 3)):
        x, y, w = (
            layer.tokens * layer.inputs,
            layer.tokens * layer.outputs,
            layer.inputs * layer.outputs,
        )
        along = w if name == "fsdp" else x if layer.name in ("qkv", "fc1") else y
        for case in trio:
            assert 2 * case.m * case.n * case.k == 2 * layer.tokens * layer.inputs * layer.outputs
            record = predict(case, find_machine("tpuv4-1x8"))
            assert record.status == "ok" and record.collective_bytes == (chips - 1) * along * 2


def test_the_best_ring_is_the_best_of_all_unrollings_of_each_gemm():
    machine = find_machine("tpuv4-1x8")
    study = Study("any", None, machine, 8, two_parts=False)
    study.layers = LAYERS
    found = study.best("fsdp")
    for case, seconds in zip(ring_cases("fsdp", LAYERS, 8), found.multiplications):
        assert seconds == min(
            predict(replace(case, options=case.options | {"unroll": unroll}), machine).best_s
            for unroll in (1, 2, 4)
        )


@pytest.mark.parametrize("flops_per_s", [1e6, 1e9])
@pytest.mark.parametrize(
    "name, slices", [("collective", 1), ("meshslice", 1), ("meshslice", 4), ("wang", 2)]
)
def test_prologue_and_epilogue_are_one_part_and_the_steady_state_another(name, slices, flops_per_s):
    """On 2 × 4 chips A or C moves along rows, B or C along columns, at 4 MB/s, with fast or slow
    GEMMs. Wang's three shifts along rows are two one way round; all its GEMMs are in the steady
    state."""
    starts = Collective(2e-3, 5e-4)
    machine = Machine(
        "toy",
        Compute(flops_per_s),
        (Link("wire", 4e6),),
        collectives=dict.fromkeys(OPERATIONS, starts),
    )
    study = Study("any", None, find_machine("tpuv4sim-2x4"), 8)
    study.machine, study.layers = lambda mesh: machine, LAYERS[:1]
    timed = study.on(name, (2, 4), (slices,))
    for case, seconds in zip(timed.cases, timed.multiplications):
        a, b, c = (2 * x / 8 / 4e6 for x in (case.m * case.k, case.k * case.n, case.m * case.n))
        flow = case.options["dataflow"]
        along_rows, along_columns = c if flow == "LS" else a, c if flow == "RS" else b
        gemm = 2 * case.m * case.n * case.k / 8 / flops_per_s / slices
        ring = lambda ranks, shard: 2e-3 + (ranks - 1) * (5e-4 + shard)
        moving = max(ring(4, along_rows / slices), ring(2, along_columns / slices))
        if name == "wang" and flow != "OS":
            continue  # it also adds partial sums
        wanted = moving + gemm + (slices - 1) * max(moving, gemm)
        if name == "wang":
            wanted = ring(2, b) + max(slices * gemm, 2 * (2e-3 + 5e-4 + a))
        assert seconds == pytest.approx(wanted)


def test_without_look_ahead_meshslice_is_as_many_multiplications_as_slices():
    """Each is Collective's on a slice of the axis that the dataflow cuts."""
    machine = find_machine("tpuv4slice-2x4")
    study = Study("any", None, machine, 8, two_parts=False)
    study.layers = LAYERS[:1]
    timed = study.on("meshslice", (2, 4), (4,), prefetch=0)
    for case, seconds in zip(timed.cases, timed.multiplications):
        sliced = {"OS": "k", "LS": "n", "RS": "m"}[case.options["dataflow"]]
        extents = {name: getattr(case, name) for name in "mnk"}
        extents[sliced] //= 4
        options = {name: case.options[name] for name in ("dataflow", "mesh")}
        one = replace(case, algorithm="collective", options=options, **extents)
        assert seconds == pytest.approx(4 * predict(one, machine).best_s)
        assert (case.options["slices"], case.options["block"]) == (4, 8)


@pytest.mark.parametrize("both_directions", [False, True])
def test_parts_of_the_communication_time_are_those_of_the_busiest_link(both_directions):
    """2 × 4 chips, 16 × 32 = 16 × 8 · 8 × 32: A's shards (16 elements) pass along rows, B's (32)
    along columns; an element a second."""
    machine = Machine(
        "toy",
        Compute(8.0),
        (Link("wire", 4.0),),
        collectives={
            name: Collective(2.0, 0.5, both_directions=both_directions and name != "shift")
            for name in OPERATIONS
        },
    )
    ways = 1 + both_directions

    def parts(name, **options):
        algorithm = get_algorithm(name)
        problem = algorithm.problem(16, 32, 8, 8, dataflow="OS", mesh="2x4", **options)
        return link_parts(
            algorithm.trace(
                problem, 0, **algorithm.resolve(problem, dataflow="OS", mesh="2x4", **options)
            ),
            machine,
        )

    multiplications = 2 * 16 * 32 * 8 / 8 / 8
    assert parts("collective") == (multiplications, 2, 3 * 0.5, 3 * 16 / ways)
    assert parts("meshslice", slices=2, block=1) == (
        multiplications,
        2 * 2,
        2 * 3 * 0.5,
        3 * 16 / ways,
    )
    # A's three shifts: two one way round, one the other; the gather of B both ways, or one
    assert parts("wang") == (
        multiplications,
        *max((2 * 2, 2 * 0.5, 2 * 16), (2, 0.5, 32 / ways), key=sum),
    )
