"""Seconds and bytes of a chain in given layouts, by hand: training memory, gathers and reductions
that other operations hide, micro-batches, layers, experts."""

from dataclasses import replace
from math import inf

import pytest
from layer_chains import layers

from drbench.chains.answer import seen
from drbench.chains.model import programs
from drbench.chains.model.choose import choose
from drbench.chains.model.costs import LayoutCosts, Training
from drbench.chains.model.description import LocalMap, read
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.programs import COLLECTIVES, LIBRARY, LocalProgram, RankGroup
from drbench.chains.model.transformers import preset
from drbench.launch.cases.machine_models import find_machine
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from drbench.program.problem import Problem

RATE = 1e8  # bytes a second
TOY = Machine(
    "toy",
    Compute(1e9, memory_bytes_per_s=1e9, launch_s=1e-6),
    (Link("wire", RATE),),
    memory_bytes=inf,
    collectives={
        name: Collective(launch_s=1e-6, sync_s=2e-6)
        for name in ("allgather", "reducescatter", "shift")
    },
)
FOUR = DeviceMesh.read("tp=4")
#: Rows by rank; weights by rows (FSDP), or copied (DP).
FSDP = {"X": "row", "Y1": "row", "W1": "row", "W2": "row"}
DP = FSDP | {"W1": "R", "W2": "R"}
SIDE = 256
CHAIN = layers(SIDE, (SIDE, SIDE, SIDE), ("relu",), backward=True)
FORWARD = layers(SIDE, (SIDE, SIDE, SIDE), ("relu",))


def of(chain, fixed, machine=TOY, mesh=FOUR, programs=COLLECTIVES, **training):
    costs = LayoutCosts(machine, mesh, "float32", Training(**training), programs)
    return choose(chain, [costs], fixed=fixed, effort_s=inf).best


def ring_s(shard):
    """A ring of 4 ranks: launch, then three times a synchronisation and a shard."""
    return 1e-6 + 3 * (2e-6 + shard / RATE)


#: Of one operation, or one redistribution, of FSDP and DP.
GEMM_S = TOY.compute.gemm_s(SIDE // 4, SIDE, SIDE, 4)
RELU_S = TOY.compute.memory_s(2 * 4 * SIDE * SIDE // 4)
WEIGHT_S = ring_s(4 * SIDE * SIDE // 4)


def gradient_s(compute=TOY.compute):
    """The GEMM of a weight's gradient, whose rows are divided; its A is transposed."""
    return compute.gemm_s(SIDE, SIDE, SIDE // 4, 4) + compute.transposed_s(
        SIDE, SIDE, SIDE // 4, "a"
    )


@pytest.mark.parametrize("layers_of", [1, 2])
@pytest.mark.parametrize("speed", [1, 100])
def test_gathers_of_weights_are_hidden_by_other_operations_of_their_pass(layers_of, speed):
    """FSDP: the first gather of one layer is not; each pass takes the longer of its operations and
    its links."""
    machine = replace(TOY, compute=Compute(speed * 1e9, memory_bytes_per_s=1e9, launch_s=1e-6))
    gemm_s = machine.compute.gemm_s(SIDE // 4, SIDE, SIDE, 4)
    backward_s = machine.compute.gemm_s(SIDE // 4, SIDE, SIDE, 4)
    backward_s += machine.compute.transposed_s(SIDE // 4, SIDE, SIDE, "b")
    found = of(FORWARD, FSDP, machine, layers=layers_of)
    first_s = WEIGHT_S if layers_of == 1 else 0.0
    forward_s = max(2 * gemm_s + RELU_S + first_s, 2 * WEIGHT_S)
    assert found.time_s == pytest.approx(forward_s)
    hidden = [use.hidden for use in found.uses if use.matrix == "B"]
    assert hidden == [layers_of > 1, True]
    # backward: both weights are gathered again, both gradients scattered
    relu_grad_s = machine.compute.memory_s(3 * 4 * SIDE * SIDE // 4)
    serial_s = 2 * backward_s + 2 * gradient_s(machine.compute) + relu_grad_s
    found = of(CHAIN, FSDP, machine, layers=layers_of)
    assert found.time_s == pytest.approx(forward_s + max(serial_s, 4 * WEIGHT_S))


def test_nothing_is_hidden_where_the_core_moves_data():
    found = of(FORWARD, FSDP, replace(TOY, adds_on_core=True))
    assert found.time_s == pytest.approx(2 * GEMM_S + RELU_S + 2 * WEIGHT_S)
    assert not any(use.hidden for use in found.uses)


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_gradients_of_copied_weights_are_reduced_once_in_all_micro_batches(micro_batches):
    """The links of the backward pass, which are busy longer than its operations here."""
    fast = replace(TOY, compute=Compute(1e13, memory_bytes_per_s=1e13))
    found = of(CHAIN, DP, fast, micro_batches=micro_batches)
    reduces = [use for use in found.uses if use.program.name == "reduce"]
    assert [use.operation for use in reduces] == ["dW2", "dW1"]
    forward_s = 2 * fast.compute.gemm_s(SIDE // 4, SIDE, SIDE, 4)
    forward_s += fast.compute.memory_s(2 * 4 * SIDE * SIDE // 4)
    reduce_s = 2 * ring_s(4 * SIDE * SIDE // 4)
    assert found.time_s == pytest.approx(forward_s + 2 * reduce_s / micro_batches)
    # those that are scattered, and sums of results, are needed in each
    scattered = [of(CHAIN, FSDP, fast, micro_batches=x).time_s for x in (1, micro_batches)]
    assert scattered[0] == pytest.approx(scattered[1])
    megatron = {"X": "R", "Y1": "column", "W1": "column", "W2": "row"}
    summed = [of(CHAIN, megatron, fast, micro_batches=x).time_s for x in (1, micro_batches)]
    assert summed[0] == pytest.approx(summed[1])


def test_recomputing_runs_the_forward_pass_twice():
    one, two = (of(CHAIN, DP, recompute=each).time_s for each in ("none", "full"))
    assert two - one == pytest.approx(of(FORWARD, DP).time_s)
    forward = [of(FORWARD, DP, recompute=each).time_s for each in ("none", "full")]
    assert forward[0] == pytest.approx(forward[1])


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("count", [1, 8])
def test_memory_of_a_training_step_by_hand(recompute, count):
    """TP and FSDP on 8 ranks, bfloat16: every matrix is on one rank once, but the fused W1."""
    chain = layers(1024, (512, 2048, 512), ("swiglu",), backward=True)
    machine = seen(find_machine("h100x8"), "bfloat16", "auto")
    mesh, training = DeviceMesh.read("dp=2,tp=4"), Training(count, 1, recompute)
    costs = LayoutCosts(machine, mesh, "bfloat16", training)
    fixed = {"X": "S(0),S(0)", "Y1": "S(0),S(1)", "W1": "S(0),S(1)", "W2": "S(1),S(0)"}
    found = choose(chain, [costs], fixed=fixed, effort_s=0).best
    weights = (512 * 4096 + 2048 * 512) // 8
    x, y1, h1 = (1024 * width // 8 for width in (512, 4096, 2048))
    # of X, Y1, H1 and Y2: the gradients take all but Y2; every second GEMM's result is a half
    shares = {"none": (1, 1, 1, 0), "selective": (1, 0.5, 0, 0.5), "full": (1, 0, 0, 0)}
    stored = sum(
        size * max(1, share * count) for size, share in zip((x, y1, h1, x), shares[recompute])
    )
    gradients = x + h1 + y1 + x  # of Y2, H1, Y1 and X, of one layer
    wanted = {
        "weights": 2 * weights * count,
        "gradients": 2 * weights * count,
        "optimizer": 12 * weights * count,
        "activations": 2 * (stored + gradients),
    }
    memory = found.memory
    assert {name: memory[name] for name in wanted} == wanted
    assert sum(memory.values()) == found.memory_bytes
    # X of the ranks of tp, and W1 of those of dp, are received for one multiplication
    assert memory["buffers"] == 2 * (512 * 512 + 512 * 1024)
    forward = layers(1024, (512, 2048, 512), ("swiglu",))
    inference = choose(forward, [costs], fixed=fixed, effort_s=0).best.memory
    assert inference["weights"] == 2 * weights * count and not inference["optimizer"]
    assert inference["activations"] == 2 * (x + y1 + h1 + x) and not inference["gradients"]


@pytest.mark.parametrize("dtype, nbytes", [("float32", 8), ("float64", 16), ("float8", 12)])
def test_optimizer_state_is_adams_in_float32_with_the_weights_of_small_types(dtype, nbytes):
    chain = layers(8, (16, 16), backward=True)
    costs = LayoutCosts(TOY, DeviceMesh.read("tp=1"), dtype)
    assert costs.count_bytes(chain, "W1", ("R",))["optimizer"] == nbytes * 16 * 16


def test_experts_fill_their_tiles_and_read_or_write_the_weights_of_those_in_use():
    tiles = Machine("toy", Compute(1e12, tiles=((128, 128),), units=1))
    seconds = lambda machine, *of: LocalProgram(*of, "float32", machine, 8).times.seconds
    filled = 8 * 128 * 128 * 2 * 32 / 1e12  # each expert fills a tile of 128 rows
    for pairs in (1000, 16, 8):
        assert seconds(tiles, (pairs, 64, 32), "") == pytest.approx(filled)
    assert seconds(tiles, (3, 64, 32), "") == pytest.approx(filled * 3 / 8)
    memory = Machine("toy", Compute(1e30, memory_bytes_per_s=1e9))
    for pairs, used in ((1000, 8), (8, 8), (2, 2)):
        data, weights = pairs * (32 + 2 * 64), used * 32 * 64
        assert seconds(memory, (pairs, 64, 32), "") == pytest.approx(4e-9 * (data + weights))
        data, weights = pairs * (32 + 64), 2 * used * 32 * 64  # a gradient is written
        assert seconds(memory, (32, 64, pairs), "a") == pytest.approx(4e-9 * (data + weights))


def test_a_layer_of_experts_takes_the_programs_of_experts():
    chain = preset("mixtral-8x7b:experts", 4096)
    machine = seen(find_machine("h100x8"), "bfloat16", "auto")
    costs = LayoutCosts(machine, DeviceMesh.read("tp=8"), "bfloat16")
    names = {program.name for each in chain.multiplications for program in overlapping(costs, each)}
    assert {"ag_moe", "moe_rs"} == names
    found = choose(chain, [costs], effort_s=5)
    assert found.best.time_s <= min(each.time_s for each in found.contenders)
    weights = found.best.memory["weights"] + found.best.memory["buffers"]
    assert weights * 8 >= 2 * 8 * 3 * 4096 * 14336  # every expert is somewhere


def overlapping(costs, each):
    chain = preset("mixtral-8x7b:experts", 4096)
    for stored in ((("S(0)",), ("S(1)",), ("S(1)",)), (("S(1)",), ("S(0)",), ("S(0)",))):
        for way in costs.ways(chain, each, stored):
            if way.gemm.program.group:
                yield way.gemm.program


def test_an_exchange_starts_and_sends_all_but_its_own_part():
    """Four ranks of 64 KiB, which each link carries in both directions."""
    seconds = programs.CollectiveProgram("exchange", RankGroup(1, 4, 4), 65536, TOY).times.seconds
    assert seconds == pytest.approx(1e-6 + 2e-6 + 3 * 16384 / RATE)


def test_one_sided_reads_take_at_least_the_time_of_their_bytes():
    """Of rows that become columns on a GPU of each of four nodes, three of four parts."""
    problem, machine = Problem(8192, 4096, 4096, 4, "row", "row", "column"), find_machine("dgxh100")
    seconds = programs.reads(problem, RankGroup(8, 4, 32), machine).times.seconds
    moved, link = 4 * 8192 * 4096 * 3 / 16, machine.link(8, 0)
    assert seconds == pytest.approx(moved / link.bandwidth_bytes_per_s, rel=0.03)


def test_programs_of_the_library_read_and_accumulate():
    found = of(CHAIN, {"X": "row", "W1": "column"}, programs=LIBRARY)
    assert {use.program.name for use in found.uses} <= {*LIBRARY, "local"}


def test_the_time_on_another_machine_is_that_of_its_programs_there():
    one, other = (seen(find_machine(name), "float32", "auto") for name in ("h100x8", "a100pcie"))
    found = of(CHAIN, {}, one, programs=COLLECTIVES | {"universal C", "ring A"})
    again = found.times_on([one, other])
    assert again[0] == pytest.approx(found.time_s) and again[1] > again[0]


def test_one_token_of_experts_is_sharded_too():
    """Fewer tokens than ranks: no program has a part of a token for each."""
    machine = seen(find_machine("h100x8"), "bfloat16", "auto")
    costs = LayoutCosts(machine, DeviceMesh.read("tp=8"), "bfloat16")
    found = choose(preset("mixtral-8x7b:experts", 1), [costs], effort_s=1)
    weights = 2 * 3 * 4096 * 14336 * 2 / 8  # of two experts, on each rank
    assert weights / 3.35e12 < found.best.time_s < 100e-6


def test_attention_that_is_not_fused_moves_its_scores():
    text = "X = input(16, 8)\nW = weight(8, 96)\nQKV = X @ W\nO = attention(QKV, heads=4, "
    chain = read(f"{text}kv_heads=4, head_dim=8, sequence=16)", "attention", backward=True)
    machine = Machine("memory", Compute(1e30, memory_bytes_per_s=1.0), dtype="bfloat16")
    mesh, times = DeviceMesh.read("tp=1"), []
    for unfused in (False, True):
        costs = LayoutCosts(machine, mesh, "bfloat16", Training(unfused=unfused))
        of = [x for x in chain.operations if isinstance(x, LocalMap)]
        times.append([costs.map_s(chain, operation, ("R",)) for operation in of])
    scores = 4 * 16 * 16
    assert [b - a for a, b in zip(*times)] == [9 * scores, 11 * scores]


def test_operands_of_8_bits_are_converted_before_they_move_and_in_every_program():
    machine, mesh, chain = find_machine("dgxh100"), DeviceMesh.read("tp=8"), preset("llama3-8b:mlp")
    received, core = {}, {}
    for dtype in ("bfloat16", "float8"):
        costs = LayoutCosts(seen(machine, dtype, "auto"), mesh, dtype)
        search = choose(chain, [costs], effort_s=0)
        known = {solution.name: solution for solution in search.contenders}
        for use in known["TP + SP"].uses:
            if use.matrix:
                received[dtype, use.program.name] = use.program.nbytes
        rings = [program for program in costs.programs if program.name == "ring A"]
        (core[dtype],) = {program.times.core_s for program in rings}
    assert received["float8", "gather"] == received["bfloat16", "gather"] / 2
    assert received["float8", "scatter"] == received["bfloat16", "scatter"]
    # parts of operands may be cached
    compute = replace(machine.for_dtype("float8").compute, cache_bytes=inf)
    divided = [(8192 // 8, 28672, 4096), (8192, 28672 // 8, 4096), (8192, 28672, 4096 // 8)]
    least = lambda *sizes: min(
        compute.gemm_s(*sizes, 2), *(compute.tiles_s(*sizes, side) for side in "mn")
    )
    times = [
        least(m, n, k) + compute.quantise_a_s(m, k) + compute.quantise_a_s(n, k)
        for m, n, k in divided
    ]
    assert core["float8"] in map(pytest.approx, times)
    plain = replace(machine.for_dtype("bfloat16").compute, cache_bytes=inf)
    times = [plain.gemm_s(*sizes, 2) for sizes in divided]
    assert core["bfloat16"] in map(pytest.approx, times)
