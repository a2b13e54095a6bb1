"""Expert parallelism without MPI: who has which experts and pairs, what crosses between ranks and
what does not, and what overlaps."""

from collections import Counter, defaultdict

import pytest
from any_multiplications import prove
from traced import everyone_of, resolved_as
from whole_multiplications import pairs_of_experts

from drbench.errors import UnsupportedError
from drbench.partitions import part
from drbench.plan.explain import traffic
from drbench.program.signal_steps import Await, Push, Take
from drbench.program.steps import Add, Gemm, Get

NAMES = "dispatch_moe", "moe_combine"
VARIANTS = "push", "pull", "separate"
#: Tokens, ranks; experts, those of a token, routing: even; uneven; every expert of every token; one
#: expert alone, more experts than pairs; one rank; a rank without tokens.
LAYERS = [
    (32, 4, 8, 2, "uniform"),
    (37, 5, 7, 3, "skewed:3"),
    (30, 4, 6, 6, "uniform"),
    (29, 3, 5, 4, "skewed"),
    (16, 4, 1, 1, "uniform"),
    (6, 4, 30, 1, "skewed"),
    (11, 1, 4, 2, "uniform"),
    (5, 4, 4, 2, "skewed:1"),
]


def made(name, layer, variant="push", n=4, k=6):
    """The problem, and the traces of all ranks."""
    m, p, experts, topk, routing = layer
    options = {"experts": experts, "topk": topk, "routing": routing, "variant": variant}
    found = resolved_as(name, m, n, k, p, **options)
    return found[1], everyone_of(*found)


def rank_of(problem, expert):
    """The rank that has an expert: p equal parts of the line from 0 to E."""
    return ((expert + 1) * problem.nprocs - 1) // problem.experts


def crossing(problem):
    """(rank of the token, rank of the expert) -> the tokens of one that have an expert of the
    other."""
    tokens = defaultdict(set)
    high = part(problem.m, 0, problem.nprocs).stop
    for expert, token in pairs_of_experts(problem):
        tokens[token // high, rank_of(problem, expert)].add(token)
    return tokens


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_rank_has_whole_experts_and_the_pairs_of_these(name, layer):
    problem, _ = made(name, layer)
    of_pairs = problem.a if problem.second else problem.c
    experts = Counter(rank_of(problem, expert) for expert in range(problem.experts))
    most = -(-problem.experts // problem.nprocs)
    assert {experts[rank] for rank in range(problem.nprocs)} <= {most - 1, most}
    for expert in range(problem.experts):
        for row in range(expert * problem.k, (expert + 1) * problem.k):
            assert problem.b.block((row, row + 1), (0, problem.n)).owner == rank_of(problem, expert)
    width = of_pairs.partition.shape[1]
    for row, (expert, _) in enumerate(pairs_of_experts(problem)):
        assert of_pairs.block((row, row + 1), (0, width)).owner == rank_of(problem, expert)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_token_or_its_sum_crosses_once_to_each_rank_with_its_experts(name, variant, layer):
    problem, traces = made(name, layer, variant)
    width, moved = (problem.n if problem.second else problem.k), Counter()
    for trace in traces:
        for peer, counted in traffic(trace).by_peer.items():
            ends = (trace.rank, peer) if variant != "pull" else (peer, trace.rank)
            moved[ends[::-1] if problem.second else ends] += sum(counted.values())
    assert moved == {
        ends: 4 * width * len(tokens)
        for ends, tokens in crossing(problem).items()
        if ends[0] != ends[1]
    }


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_pair_is_multiplied_once_by_its_own_expert_in_one_kernel_a_rank(name, layer):
    problem, traces = made(name, layer)
    pairs, done = pairs_of_experts(problem), Counter()
    for trace in traces:
        gemms = [step for step in trace.steps if type(step) is Gemm]
        rows = sum(step.extents[0] for step in gemms)
        assert len({step.kernel for step in gemms}) == bool(gemms)
        for step in gemms:
            assert (step.kernel.m, step.kernel.n, step.kernel.k) == (rows, problem.n, problem.k)
            (weights,) = step.inputs[1].reads()
            expert = weights.row0 // problem.k
            of_pairs = step.inputs[0].block if problem.second else step.block
            assert weights.owner == of_pairs.owner == trace.rank
            assert {pairs[row][0] for row in range(*of_pairs.rows)} == {expert}
            done.update(range(*of_pairs.rows))
    assert done == Counter(range(len(pairs)))


def test_own_tokens_are_multiplied_first_and_own_sums_made_last():
    layer = (64, 4, 8, 2, "uniform")
    problem, traces = made("dispatch_moe", layer)
    for trace in traces:
        gemms = [step for step in trace.steps if type(step) is Gemm]
        sources = [pairs_of_experts(problem)[step.block.row0][1] // 16 for step in gemms]
        assert [*dict.fromkeys(sources)] == [(trace.rank + x) % 4 for x in range(4)]
    problem, traces = made("moe_combine", layer)
    for trace in traces:
        gemms = [step for step in trace.steps if type(step) is Gemm]
        homes = [pairs_of_experts(problem)[step.inputs[0].block.row0][1] // 16 for step in gemms]
        assert [*dict.fromkeys(homes)] == [(trace.rank + x) % 4 for x in range(1, 5)]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_results_are_exact_with_and_without_look_ahead(name, variant, layer):
    m, p, *of = layer
    case = {"algorithm": name, "sizes": [m, 3, 4], "p": p, "texts": [], "seed": m}
    options = dict(zip(("experts", "topk", "routing"), of)) | {"variant": variant}
    for depth in (0, 2, "all"):
        assert prove(case | {"depth": depth, "options": options}) == name


def test_all_tokens_of_a_rank_are_one_message():
    """Two experts of each token on two ranks: as many pairs as tokens, from any of them on."""
    _, traces = made("dispatch_moe", (40, 2, 2, 2, "uniform"))
    assert [sum(type(step) is Push for step in trace.steps) for trace in traces] == [1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_separate_is_in_different_operations(name):
    """Those of the exchange and those of the GEMMs."""
    _, traces = made(name, LAYERS[1], "separate")
    for trace in traces:
        by_kind = lambda wanted: {op for op, step in zip(trace.ops, trace.steps) if wanted(step)}
        gemms = by_kind(lambda step: type(step) is Gemm)
        exchange = by_kind(lambda step: step.signals)
        if name == "dispatch_moe":
            assert max(exchange, default=-1) < min(gemms, default=99)
        else:
            assert max(gemms, default=-1) < min(exchange, default=99)
        assert not any(step.concurrent for step in trace.steps)


def test_with_pull_tokens_are_read_and_sums_taken():
    for name, wanted in (("dispatch_moe", Get), ("moe_combine", Take)):
        _, traces = made(name, LAYERS[1], "pull")
        steps = [step for trace in traces for step in trace.steps]
        assert not any(type(step) is Await for step in steps)
        assert any(step.moved(-1) for step in steps if type(step) is wanted)


def test_results_of_one_token_are_added_where_its_experts_are():
    """All six experts of each token, on four ranks: 1, 2, 1 and 2 of them."""
    _, traces = made("moe_combine", LAYERS[2])
    for trace in traces:
        here = [step for step in trace.steps if type(step) is Add and step.block is None]
        assert [len(step.terms) for step in here] == [1] * (4 * (trace.rank % 2))


@pytest.mark.parametrize("name", NAMES)
def test_another_layout_is_refused_in_one_line(name):
    with pytest.raises(
        UnsupportedError, match=rf"{name} needs B as tiles:.* got column"
    ) as refused:
        resolved_as(name, 9, 8, 3, 4, None, "column", experts=6)
    assert "\n" not in str(refused.value)
    with pytest.raises(UnsupportedError, match=rf"{name} needs [AC] as tiles:"):
        resolved_as(name, 9, 8, 3, 4, *["row"] * 3, experts=8, routing="skewed")
