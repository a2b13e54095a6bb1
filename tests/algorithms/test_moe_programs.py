"""Products of experts without MPI: what they compute, in every order of completion, out of their
planned memory, against a loop over experts and tokens; what they move; and what they refuse."""

from itertools import product

import numpy as np
import pytest
from oracles import Violation
from signal_machine import SignalMachine

from algorithms import algorithms, get_algorithm
from algorithms.overlap import experts
from drbench.errors import UnsupportedError, UsageError
from drbench.plan.explain import traffic
from drbench.plan.signals import pairs_of
from drbench.program.steps import Combine, Gemm
from partitions.mixture import Mixture, Routes

SHAPES = [(32, 16, 24), (29, 7, 9), (3, 5, 4)]
#: Even and uneven, one expert alone, every expert of every token, more experts than pairs.
EXPERTS = [
    Mixture(4, 2),
    Mixture(5, 3, "skewed:3"),
    Mixture(1, 1),
    Mixture(4, 4, "uniform:5"),
    Mixture(30, 1, "skewed"),
]
PROGRAMS = [
    ("ag_moe", {"variant": variant, "order": order})
    for variant, order in product(("pull", "push", "ring"), ("ranks", "mesh"))
]
PROGRAMS += [("moe_rs", {"variant": variant}) for variant in ("write", "reduce", "pull", "ring")]
#: Over nodes of half of the ranks, of one and of all.
PROGRAMS += [
    (name, options)
    for name in ("ag2_moe", "moe_rs2")
    for options in ({}, {"per_node": "one"}, {"per_node": "all"})
]
named = pytest.mark.parametrize(
    "name, options",
    PROGRAMS,
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)


def made(name, options, p, shape, mixture, **more):
    """The problem, and the traces of all ranks; None if it is refused."""
    algorithm = get_algorithm(name)
    more = {each: value for each, value in more.items() if value is not None}
    options = {each: {"one": 1, "all": p}.get(value, value) for each, value in options.items()}
    options |= {each: value for each, value in more.items() if each in algorithm.options}
    problem = algorithm.problem(*shape, p, mixture=mixture)
    try:
        settled = algorithm.resolve(problem, **options)
    except UnsupportedError:
        return None
    return problem, [algorithm.trace(problem, rank, **settled) for rank in range(p)]


@named
@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 8])
def test_c_is_what_a_loop_over_experts_makes_in_every_order_of_completion(dealt, name, options, p):
    """Each program takes its turn of shapes and mixtures, another on each number of ranks."""
    ran = refused = 0
    turn = PROGRAMS.index((name, options)) + p
    mine = dealt(enumerate(product(SHAPES, EXPERTS)), turn, 4)
    for seed, (shape, mixture) in mine:
        tile, part = (None, 2, 100)[seed % 3], (1, 3, 100)[seed // 3 % 3]
        swizzle = ("ranks", "naive")[seed % 2]
        found = made(name, options, p, shape, mixture, tile=tile, part=part, swizzle=swizzle)
        if found is None:
            refused += 1
            idle = [extent for extent in shape if -(-extent // p) * (p - 1) >= extent]
            assert idle and (options.get("variant") == "ring" or name in ("ag2_moe", "moe_rs2"))
            continue
        problem, traces = found
        pairs_of(traces)
        depth = ("all", 0, 1, 2)[(seed + p) % 4]
        c, expected = SignalMachine(problem, traces, depth, seed).run()
        assert np.array_equal(c[0], expected), (shape, mixture, tile, part, depth)
        assert sum(trace.flops for trace in traces) == problem.flops
        ran += 1
    whole = [shape for _, (shape, _) in mine if shape == SHAPES[0]]  # which has rows for everyone
    assert ran >= len(whole) and ran + refused == len(mine)


def test_tokens_are_gathered_once_and_sums_are_scattered_once():
    (m, n, k), p, mixture = (32, 16, 24), 4, Mixture(6, 3, "skewed")
    for name, variants, width in (
        ("ag_moe", ("pull", "push", "ring"), k),
        ("moe_rs", ("write", "reduce", "pull", "ring"), n),
    ):
        for variant in variants:
            _, traces = made(name, {"variant": variant}, p, (m, n, k), mixture, tile=3)
            moved = sum(sum(traffic(trace).counters.values()) for trace in traces)
            assert moved == (p - 1) * m * width * 4, (name, variant)


def test_over_nodes_tokens_and_sums_cross_once():
    """Between two nodes of three: each node's tokens once, each node's sums once."""
    (m, n, k), p, local, mixture = (36, 16, 24), 6, 3, Mixture(6, 3, "skewed")
    for name, width in (("ag2_moe", k), ("moe_rs2", n)):
        _, traces = made(name, {}, p, (m, n, k), mixture, tile=2)
        within = across = 0
        for trace in traces:
            for peer, moved in traffic(trace).by_peer.items():
                if peer // local == trace.rank // local:
                    within += sum(moved.values())
                else:
                    across += sum(moved.values())
        assert across == m * width * 4, name
        assert within == 2 * (local - 1) * m * width * 4, name


def test_all_parts_share_one_kernel_and_are_as_high_as_they_are_asked_to_be():
    mixture = Mixture(5, 2, "skewed")
    for name in ("ag_moe", "moe_rs", "ag2_moe", "moe_rs2"):
        problem, traces = made(name, {}, 4, (64, 8, 12), mixture, tile=2, part=6)
        counts = problem.routes.counts
        for trace in traces:
            gemms = [step for step in trace.steps if type(step) is Gemm]
            (kernel,) = {step.kernel for step in gemms}
            assert 2 * kernel.m * kernel.n * kernel.k == trace.flops
            rows = [step.extents[0] for step in gemms]
            assert sum(rows) == 128
            assert all(each >= 6 or each in counts for each in rows)
            assert len(gemms) > 5  # popular experts have several parts
    _, (trace, *_) = made("ag_moe", {"kernel": "parts"}, 4, (64, 8, 12), mixture)
    assert {step.kernel for step in trace.steps if type(step) is Gemm} == {None}


def test_the_own_tokens_are_multiplied_first_and_own_sums_made_last():
    mixture = Mixture(2, 2)
    _, traces = made("ag_moe", {}, 4, (16, 4, 8), mixture, tile=4, part=1)
    for rank, trace in enumerate(traces):
        gemms = [step for step in trace.steps if type(step) is Gemm]
        assert [step.block.row0 % 16 for step in gemms][::2] == [
            4 * ((rank + x) % 4) for x in range(4)
        ]
    problem, traces = made("moe_rs", {}, 4, (16, 4, 8), mixture, tile=4, part=1)
    for rank, trace in enumerate(traces):
        sums = [step for step in trace.steps if type(step) is Combine]
        takers = [step for step in trace.steps if sums[-1] in step.inputs]
        assert len(sums) == 4
        assert takers[0].block.row0 == 4 * rank


# -- mutants: what is broken on purpose gives a wrong C


def wrong_offset(monkeypatch):
    right = Routes.rows
    monkeypatch.setattr(
        Routes,
        "rows",
        lambda self, e, *tokens: tuple(x - (e == 1) for x in right(self, e, *tokens)),
    )


def a_skipped_expert(monkeypatch):
    right = experts.expert_parts
    monkeypatch.setattr(
        experts, "expert_parts", lambda *a: [part for part in right(*a) if part.expert != 1]
    )


def weights_ignored(monkeypatch):
    class Unweighted(Combine):
        def __new__(cls, tokens, places, weights, *rest):
            return Combine(tokens, places, [[1] * len(each) for each in weights], *rest)

    monkeypatch.setattr(experts, "Combine", Unweighted)


def rows_of_another_tile(monkeypatch):
    right = experts.tokens_of
    monkeypatch.setattr(
        experts, "tokens_of", lambda *a: (found := right(*a)) and [max(0, row - 1) for row in found]
    )


@pytest.mark.parametrize(
    "name, mutant",
    [
        *product(("ag_moe", "moe_rs", "ag2_moe", "moe_rs2"), (wrong_offset, a_skipped_expert)),
        *product(("moe_rs", "moe_rs2"), (weights_ignored,)),
        *product(("ag_moe", "ag2_moe"), (rows_of_another_tile,)),
    ],
)
def test_routes_broken_on_purpose_are_caught(monkeypatch, name, mutant):
    mutant(monkeypatch)
    problem, traces = made(name, {}, 4, (24, 8, 12), Mixture(4, 2), tile=4, part=1)
    try:
        c, expected = SignalMachine(problem, traces, "all", 0).run()
    except (Violation, ValueError, IndexError):
        return
    assert not np.array_equal(c[0], expected)


# -- refusals


@pytest.mark.parametrize("name", algorithms(mixture=False))
def test_an_algorithm_of_one_b_takes_no_experts(name):
    with pytest.raises(UsageError, match="takes no --experts. Leave it out, or use --algorithm"):
        get_algorithm(name).problem(8, 8, 8, 2, mixture=Mixture(4))


@pytest.mark.parametrize("name", algorithms(mixture=True))
def test_an_algorithm_of_experts_says_what_it_wants(name):
    with pytest.raises(UsageError, match="got none. Give --experts 8 --topk 2") as refused:
        get_algorithm(name).problem(8, 8, 8, 2)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "name, options, texts, said",
    [
        ("ag_moe", {}, {"a": "column"}, "ag_moe needs A as row"),
        ("moe_rs", {}, {"b": "row"}, r"moe_rs needs B as _S\(0,4\)"),
        ("moe_rs", {"variant": "ring"}, {}, "needs a share of k on every rank"),
        ("moe_collective", {"dataflow": "RS"}, {"c": "column"}, "moe_collective RS needs C as row"),
        ("ag2_moe", {"per_node": 3}, {}, "got 4 ranks, 3 a node"),
        ("moe_rs2", {}, {}, "needs a share of A and of C on every rank"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name, options, texts, said):
    algorithm = get_algorithm(name)
    problem = algorithm.problem(
        9, 8, 3, 4, *map(texts.get, "abc"), mixture=Mixture(4, 2), **options
    )
    with pytest.raises(UnsupportedError, match=said) as refused:
        algorithm.resolve(problem, **options)
    assert "\n" not in str(refused.value)
