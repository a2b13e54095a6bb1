"""MeshSlice's LLM autotuner: Table 1, the cost model by hand, the search against trying everything,
and the paper's meshes."""

import itertools

import pytest

from drbench.launch.cases.machine_models import find_machine
from drbench.launch.papers.meshslice.autotuner import (
    MODELS,
    Layer,
    LayerMultiplication,
    choose_dataflows,
    estimate,
    layers_of,
    slice_counts,
    tune_llm,
)
from drbench.launch.papers.meshslice.study import ALGORITHMS, Study
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine

#: Which operand of C = A·B each dataflow keeps in place.
STAYS = {"OS": "C", "LS": "A", "RS": "B"}


@pytest.mark.parametrize("tokens, inputs, outputs", list(itertools.product([5, 70, 900], repeat=3)))
def test_the_largest_matrix_is_stationary_in_all_three_gemms(tokens, inputs, outputs):
    """The operands of each GEMM follow from its extents: X is tokens × inputs, W inputs ×
    outputs, Y tokens × outputs, or their transposes."""
    if len({tokens, inputs, outputs}) < 3:
        return  # extents that name the matrices
    (multiplications,) = choose_dataflows([Layer("l", tokens, inputs, outputs)])
    names = {
        frozenset((tokens, inputs)): "X",
        frozenset((inputs, outputs)): "W",
        frozenset((tokens, outputs)): "Y",
    }
    largest = max(names, key=lambda pair: min(pair) * max(pair))
    for each in multiplications:
        shapes = {"A": (each.m, each.k), "B": (each.k, each.n), "C": (each.m, each.n)}
        assert names[frozenset(shapes[STAYS[each.dataflow]])] == names[largest]
        assert each.flops == 2 * tokens * inputs * outputs
    assert [names[frozenset((p.m, p.n))] for p in multiplications] == ["Y", "X", "W"]


def test_only_layers_whose_input_would_be_transposed_are():
    """W-stationary layers take Xᵀ and give Y; transposed they take X and give Yᵀ: one small batch,
    alternating wide and narrow layers."""
    narrow, wide = Layer("narrow", 64, 8, 8), Layer("wide", 64, 512, 512)
    assert [
        (multiplications[0].dataflow, multiplications[0].flipped)
        for multiplications in choose_dataflows([narrow, wide, wide, narrow])
    ] == [("OS", False), ("RS", True), ("RS", False), ("OS", False)]


def test_time_is_prologue_steady_state_and_epilogue():
    """2 × 4 chips; an element takes a second, a GEMM of one slice 8·8·8·2 / 8 / 2 = 64 FLOPs at
    4 a second, 16 s."""
    machine = Machine(
        "toy",
        Compute(4.0),
        (Link("wire", 2.0),),
        collectives={"allgather": Collective(1.0, 0.5), "reducescatter": Collective(3.0, 0.5)},
    )
    shard = 8 * 8 / 8 / 2
    along_rows, along_columns = 1 + 3 * (0.5 + shard), 1 + 1 * (0.5 + shard)
    times = {
        flow: estimate(LayerMultiplication("p", 8, 8, 8, flow), (2, 4), 2, machine)
        for flow in STAYS
    }
    assert times["OS"] == max(along_rows, along_columns) + max(along_rows, 16) + 16
    assert (
        times["LS"] == along_columns + max(along_columns, 16, along_rows + 2) + 16 + along_rows + 2
    )
    assert (
        times["RS"] == along_rows + max(along_rows, 16, along_columns + 2) + 16 + along_columns + 2
    )
    assert (
        estimate(LayerMultiplication("p", 8, 8, 8, "LS", flipped=True), (4, 2), 2, machine)
        == times["LS"]
    )


def test_the_plan_is_the_best_of_all_meshes_and_slice_counts():
    machine, dataflows = (
        find_machine("tpuv4-1x16"),
        choose_dataflows(layers_of(MODELS["gpt3"], 8, 2048)),
    )
    best = min(
        sum(
            min(
                sum(estimate(p, mesh, s, machine) for p in multiplications)
                for s in range(1, 129)
                if all(s in slice_counts([p], mesh) for p in multiplications)
            )
            for multiplications in dataflows
        )
        for mesh in [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1)]
    )
    assert tune_llm(dataflows, 16, machine)[0].seconds == best


def test_the_simulated_best_is_the_best_of_all_meshes():
    study = Study("any", None, find_machine("tpuv4-2x2"), 4)
    study.layers = [Layer("l", 4096, 512, 1024)]
    plans = study.plans
    for name in ALGORITHMS:
        study.plans, alone = plans, []
        best = study.best(name)
        for each in plans:
            slices = plans[0].slices if name in ("wang", "summa") else each.slices
            study.plans = [each._replace(slices=slices)]
            alone.append(study.best(name))
        assert best.seconds == min(found.seconds for found in alone if found is not None)
