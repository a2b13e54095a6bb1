"""Layers of experts without MPI: their routing, their bytes, their order; and their refusals."""

import itertools

import pytest
from traced import everyone_of, resolved_as
from whole_multiplications import pairs_of_experts

from drbench.algorithms import algorithms, get_algorithm
from drbench.algorithms.collective import baseline_of
from drbench.algorithms.overlap import experts
from drbench.errors import UnsupportedError, UsageError
from drbench.plan.explain import traffic
from drbench.program.signal_steps import Push
from drbench.program.steps import Add, Gemm

SHAPES = [(32, 16, 24), (29, 7, 9), (3, 5, 4)]
#: Even and uneven, one expert alone, every expert of every token, more experts than pairs.
EXPERTS = [
    (4, 2, "uniform"),
    (5, 3, "skewed:3"),
    (1, 1, "uniform"),
    (4, 4, "uniform:5"),
    (30, 1, "skewed"),
]


def made(name, options, p, shape, layer):
    """The problem, and the traces of all ranks."""
    options |= dict(zip(("experts", "topk", "routing"), layer))
    found = resolved_as(name, *shape, p, **options)
    return found[1], everyone_of(*found)


@pytest.mark.parametrize("layer", EXPERTS)
def test_a_token_has_as_many_different_experts_as_it_should(layer):
    for (m, n, k), p in itertools.product(SHAPES, (1, 3, 8)):
        problem = get_algorithm("ag_moe").problem(
            m, n, k, p, **dict(zip(("experts", "topk", "routing"), layer))
        )
        chosen = {}
        for expert, token in pairs_of_experts(problem):
            chosen.setdefault(token, []).append(expert)
        assert sorted(chosen) == list(range(m))
        assert all(len(set(each)) == len(each) == problem.topk for each in chosen.values())


def test_a_routing_is_that_of_its_seed_and_skewed_ones_are_uneven():
    def counts(text):
        (found,) = experts._counts(4096, 1, 16, 2, text)
        return found

    assert counts("uniform:3") == counts("uniform:3") != counts("uniform:4")
    even, uneven = counts("uniform"), counts("skewed")
    assert sum(even) == sum(uneven) == 2 * 4096
    assert max(even) < 1.25 * 512 < 3 * min(even)
    assert max(uneven) > 3 * 512 and min(uneven) < 512 / 2
    popular = {counts(f"skewed:{seed}").index(max(counts(f"skewed:{seed}"))) for seed in range(8)}
    assert len(popular) > 2  # not always the same expert
    assert experts._counts(3, 1, 30, 2, "uniform")[0].count(0) >= 24


def test_shapes_of_the_three_matrices():
    first = get_algorithm("ag_moe").problem(8, 3, 5, 1, experts=4, topk=3)
    assert first.shapes() == {"A": (8, 5), "B": (20, 3), "C": (24, 3)}
    second = get_algorithm("moe_rs").problem(8, 3, 5, 1, experts=4, topk=3)
    assert second.shapes() == {"A": (24, 5), "B": (20, 3), "C": (8, 3)}
    assert (first.summands, second.summands) == (5, 15)


def test_tokens_are_gathered_once_and_sums_are_scattered_once():
    (m, n, k), p, layer = (32, 16, 24), 4, (6, 3, "skewed")
    for name, variants, width in (
        ("ag_moe", ("pull", "push", "ring"), k),
        ("moe_rs", ("write", "reduce", "pull", "ring"), n),
    ):
        for variant in variants:
            _, traces = made(name, {"variant": variant}, p, (m, n, k), layer)
            moved = sum(sum(traffic(trace).counters.values()) for trace in traces)
            assert moved == (p - 1) * m * width * 4, (name, variant)


def test_over_nodes_tokens_and_sums_cross_once():
    """Between two nodes of three: each node's tokens once, each node's sums once."""
    (m, n, k), p, local, layer = (36, 16, 24), 6, 3, (6, 3, "skewed")
    for name, options, width in (
        ("ag2_moe", {}, k),
        ("moe_rs2", {}, n),
        ("moe_rs2", {"phases": "separate"}, n),
    ):
        _, traces = made(name, options, p, (m, n, k), layer)
        within = across = 0
        for trace in traces:
            for peer, moved in traffic(trace).by_peer.items():
                if peer // local == trace.rank // local:
                    within += sum(moved.values())
                else:
                    across += sum(moved.values())
        assert across == m * width * 4, name
        assert within == 2 * (local - 1) * m * width * 4, name


def test_all_gemms_share_one_kernel_and_each_is_of_one_expert_and_a_ranks_tokens():
    separate = ("moe_rs2", {"phases": "separate"})
    for name, options in (*((name, {}) for name in ("ag_moe", "moe_rs", "ag2_moe")), separate):
        problem, traces = made(name, options, 4, (64, 8, 12), (5, 2, "skewed"))
        batches = sum(len(problem.batches(rank)) for rank in range(4))
        for trace in traces:
            gemms = [step for step in trace.steps if type(step) is Gemm]
            (kernel,) = {step.kernel for step in gemms}
            assert 2 * kernel.m * kernel.n * kernel.k == trace.flops
            assert sum(step.extents[0] for step in gemms) == 128
            assert len(gemms) == batches


def test_a_loop_over_experts_has_a_gemm_of_each_and_no_kernel():
    for flow in ("AG", "RS"):
        options = {"dataflow": flow, "kernel": "parts"}
        problem, (trace, *_) = made("moe_collective", options, 4, (64, 8, 12), (5, 2, "skewed"))
        gemms = [step for step in trace.steps if type(step) is Gemm]
        assert len(gemms) == len(problem.batches())
        assert {step.kernel for step in gemms} == {None}


def test_the_own_tokens_are_multiplied_first_and_own_sums_made_last():
    problem, traces = made("ag_moe", {}, 4, (16, 4, 8), (2, 2, "uniform"))
    for rank, trace in enumerate(traces):
        gemms = [step for step in trace.steps if type(step) is Gemm]
        assert [step.block.row0 % 16 for step in gemms][::2] == [
            4 * ((rank + x) % 4) for x in range(4)
        ]
    _, traces = made("moe_rs", {}, 4, (16, 4, 8), (2, 2, "uniform"))
    for rank, trace in enumerate(traces):
        sums = [step for step in trace.steps if type(step) is Add and step.block is None]
        takers = [step for step in trace.steps if sums[-1] in step.inputs]
        assert len(sums) == 4
        assert takers[0].block.row0 == 4 * rank


def test_separate_phases_are_gemms_then_the_sums_of_all_tokens_then_transfers():
    _, traces = made("moe_rs2", {"phases": "separate"}, 4, (16, 4, 8), (3, 2, "uniform"))
    for trace in traces:
        (sums,) = (step for step in trace.steps if type(step) is Add and step.shape == (16, 4))
        gemms = {step for step in trace.steps if type(step) is Gemm}
        assert gemms <= needed(sums) and not sums.concurrent
        assert all(sums in needed(step) for step in trace.steps if type(step) is Push)


def needed(step):
    """The steps whose results a step needs."""
    return {before for value in step.inputs for before in {value} | needed(value)}


# -- refusals


@pytest.mark.parametrize("name", algorithms(plain=True))
def test_an_algorithm_of_one_b_takes_no_experts(name):
    with pytest.raises(UsageError, match="takes no experts"):
        get_algorithm(name).pick({"experts": 4})


@pytest.mark.parametrize("name", algorithms(plain=False))
def test_a_token_has_no_more_experts_than_the_layer(name):
    with pytest.raises(UsageError, match="-o topk must be 1 to 4, the number of exp.*, got 5"):
        get_algorithm(name).problem(8, 8, 8, 2, experts=4, topk=5)
    with pytest.raises(UsageError, match="routing must be uniform or skewed"):
        resolved_as(name, 8, 8, 8, 2, routing="zipf")


@pytest.mark.parametrize(
    "name, options, texts, described",
    [
        ("ag_moe", {}, {"a": "column"}, "ag_moe needs A as row"),
        ("moe_rs", {}, {"b": "row"}, r"moe_rs needs B as _S\(0,4\)"),
        ("moe_rs", {"variant": "ring"}, {}, "needs a share of k on every rank"),
        ("moe_collective", {"dataflow": "RS"}, {"c": "column"}, "moe_collective RS needs C as row"),
        ("moe_collective", {"dataflow": "RS"}, {}, "needs a share of k on every rank"),
        ("ag2_moe", {"per_node": 3}, {}, "got 4 ranks, 3 a node"),
        ("moe_rs2", {}, {}, "needs a share of A and of C on every rank"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name, options, texts, described):
    options |= {"experts": 4, "topk": 2}
    with pytest.raises(UnsupportedError, match=described) as refused:
        resolved_as(name, 9, 8, 3, 4, *map(texts.get, "abc"), **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["ag_moe", "moe_rs", "ag2_moe", "moe_rs2"])
def test_the_baseline_of_experts_multiplies_as_much_with_the_same_options(name):
    algorithm, problem, ours = resolved_as(name, 24, 8, 8, 2, experts=3, topk=2)
    baseline, options = baseline_of(problem)
    found = everyone_of(get_algorithm(baseline), problem, options)
    own = everyone_of(algorithm, problem, ours)
    work = lambda traces: 2 * sum(x.products for t in traces for x in t.steps if type(x) is Gemm)
    assert work(found) == work(own) == problem.flops
    assert {each: options[each] for each in ("experts", "topk", "routing")} == {
        each: ours[each] for each in ("experts", "topk", "routing")
    }


def test_where_the_baseline_of_experts_is_refused_there_is_none():
    problem = get_algorithm("moe_rs").problem(24, 8, 1, 2, experts=3, topk=2)
    assert baseline_of(problem) is None
