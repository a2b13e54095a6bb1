"""Experts on their own ranks: where tokens go, how long that takes, and what a rank stores."""

import pytest

import drbench
from drbench.chains.answer import seen
from drbench.chains.model.choose import choose
from drbench.chains.model.costs import LayoutCosts, Training
from drbench.chains.model.mesh import DeviceMesh, meshes
from drbench.chains.model.programs import ExchangeProgram, RankGroup
from drbench.chains.model.transformers import preset
from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.machine_models import find_machine

#: Qwen3-30B-A3B: 128 experts of 2048 x 2·768 and 768 x 2048, 8 a token.
EXPERTS = preset("qwen3-30b-a3b:experts", 32768, backward=True)
WEIGHTS = 128 * 3 * 2048 * 768


def answer(mesh, dtype="bfloat16", chain=EXPERTS, fixed=None, machine="dgxh100", **step):
    model = seen(find_machine(f"{machine},memory_bytes=1e13"), dtype, "auto")
    costs = LayoutCosts(model, DeviceMesh.read(mesh), dtype, Training(**step))
    return choose(chain, [costs], fixed, effort_s=0)


def of(mesh, name="EP × FSDP", **more):
    return next(known for known in answer(mesh, **more).contenders if known.name == name)


@pytest.mark.parametrize("mesh, ranks", [("ep=8", 8), ("dp=2,ep=8", 8), ("ep=16", 16)])
def test_tokens_are_sent_twice_and_come_back_twice_in_a_training_step(mesh, ranks):
    known = of(mesh)
    exchanges = [
        (use.operation, use.matrix, use.program.name)
        for use in known.uses
        if use.program.name in ("dispatch", "combine")
    ]
    assert exchanges == [
        ("Y1", "A", "dispatch"),
        ("Y2", "C", "combine"),
        ("dH1", "A", "dispatch"),
        ("dX", "C", "combine"),
    ]
    assert not any(use.hidden for use in known.uses if use.program.name == "dispatch")
    for name in ("W1", "W2", "Y1"):
        assert known.layouts[name][-1] == "E"
    assert known.memory["weights"] == 2 * WEIGHTS // known.mesh.ranks
    of_one = known.way(EXPERTS.multiplications[0]).gemm.program
    tokens = 32768 // known.mesh.ranks * ranks  # of the ranks that share the experts
    assert of_one._gemm[:3] == (tokens * 8 // ranks, 2 * 768, 2048)
    assert of_one._experts == 128 // ranks


def test_gradients_of_experts_take_all_their_tokens_and_are_whole():
    known = of("ep=8")
    gradient = next(x for x in EXPERTS.multiplications if x.c == "dW1")
    way = known.way(gradient)
    assert way.moves == () and way.inner == (("E",),) * 3
    assert way.gemm.program._gemm[:3] == (2048, 2 * 768, 32768 * 8 // 8)


def test_tokens_of_other_ranks_are_stored_for_the_gradient_of_weights():
    pairs = 32768 // 8 * 8 * 2048 * 2  # of a rank, in bfloat16
    chosen, again = (of("ep=8", layers=4, recompute=x).memory for x in ("none", "full"))
    one, two = (of("ep=8", layers=x).memory["activations"] for x in (1, 2))
    per_layer = (32768 // 8 * 2048 + 32768 * (2 * 768 + 768)) * 2
    assert two - one == per_layer + pairs
    assert chosen["activations"] - again["activations"] > 3 * pairs


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_an_exchange_takes_the_measured_time_of_deepep(nodes):
    machine = find_machine("dgxh100")
    ranks, link = 8 * nodes, machine.nccl.link_bytes_per_s
    for tokens in (64, 4096):
        sizes = tokens, 7168, 8, 256
        for kind in ("dispatch", "combine"):
            program = ExchangeProgram(kind, RankGroup(1, ranks, ranks), sizes, machine, 1)
            normal = machine.exchanges[kind].throughput_s(link, *sizes, ranks, nodes, 24)
            quick = machine.exchanges[f"low_latency_{kind}"].low_latency_s(
                link, *sizes, ranks, nodes, machine.compute.units
            )
            wanted = min(normal, quick) if tokens == 64 else normal
            assert program.times.seconds == pytest.approx(wanted)
    wide = [
        ExchangeProgram("dispatch", RankGroup(1, ranks, ranks), sizes, machine, x) for x in (1, 2)
    ]
    assert wide[0].times.seconds < wide[1].times.seconds < 2.1 * wide[0].times.seconds
    assert wide[1].nbytes == 2 * wide[0].nbytes


def test_a_machine_without_these_kernels_sends_as_an_all_to_all():
    known = of("ep=8", machine="h100x8")
    dispatch = next(use.program for use in known.uses if use.program.name == "dispatch")
    assert dispatch.nbytes / 8 / 450e9 < dispatch.times.seconds < 5 * dispatch.nbytes / 8 / 400e9


def test_ranks_share_experts_evenly_or_not_at_all():
    few = preset("mixtral-8x7b:experts", 24576)
    for mesh in ("ep=3", "ep=16"):
        found = answer(mesh, chain=few)
        assert "8 experts cannot be shared evenly by" in found.refused["EP × FSDP"].why
        assert all("E" not in layout for layout in found.best.layouts.values())


def test_experts_are_on_their_ranks_only_along_ep():
    with pytest.raises(UsageError, match="does not fit mesh tp=8"):
        answer("tp=8", fixed={"W1": "E"})
    fixed = answer("dp=2,ep=4", fixed={"W1": "R,E"})
    assert fixed.best.layouts["W1"] == ("R", "E") and fixed.best.layouts["Y1"][-1] == "E"
    with pytest.raises(UsageError):
        DeviceMesh.read("ep=2,tp=2").layout("S(0),E")
    tried = {count: [*map(str, meshes(16, 8, experts=count))] for count in (0, 5, 8, 64)}
    assert tried[0] == tried[5] == [*map(str, meshes(16, 8))]
    assert tried[8] == [*tried[0], "dp=2,ep=8"]
    assert tried[64] == [*tried[0], "dp=2,ep=8", "ep=16"]
    wide = [*map(str, meshes(64, 8, experts=256))]
    assert wide[-4:] == ["dp=8,ep=8", "dp=4,ep=16", "dp=2,ep=32", "ep=64"]


def test_expert_parallelism_is_tried_and_compared():
    choice = drbench.chain(
        "qwen3-30b-a3b:experts", "dgxh100", 8, tokens=131072, backward=True, effort=1
    )
    assert {"EP × FSDP", "EP × DP"} <= {row.name for row in choice.ranking}
    with pytest.raises(UnsupportedError, match="DTensor cannot send tokens"):
        choice.script("EP x FSDP")
    dense = drbench.chain("llama3-8b:mlp", "dgxh100", 8, effort=0)
    assert not any("EP" in name for name in dense.search.refused)
