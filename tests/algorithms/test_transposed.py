"""Operands stored transposed and beta, as plans: what moves, and what is read."""

import pytest
from oracles import check_block, home_of
from traced import everyone_of

from drbench.algorithms import algorithms, get_algorithm
from drbench.errors import UsageError
from drbench.program.problem import TRANSPOSES, Problem
from drbench.program.steps import Copy, Gemm, Get, Zero

M, N, K = 7, 5, 6


@pytest.mark.parametrize("transpose", TRANSPOSES)
@pytest.mark.parametrize("name", algorithms(plain=True))
def test_an_algorithm_moves_the_same_whatever_is_stored_transposed(name, transpose):
    """On the algorithm's own layout, which describes the operands after transposition."""
    algorithm = get_algorithm(name)

    def moved(transpose):
        problem = algorithm.problem(48, 36, 24, 4, transpose=transpose)
        traces = everyone_of(algorithm, problem, algorithm.resolve(problem))
        return [[(type(step), step.moved(each.rank)) for step in each.steps] for each in traces]

    assert moved(transpose) == moved("")


def test_beta_is_applied_to_the_first_copy_alone_and_zero_reads_nothing():
    problem = Problem(8, 8, 8, 4, "row", "row", "row/c2", updates=True)
    for rank in range(4):
        steps = get_algorithm("universal").trace(problem, rank, stationary="C").steps
        first = {step.beta for step in steps if type(step) is Gemm} - {1.0}
        assert first == {None if rank < 2 else 0.0}
    plain = Problem(8, 8, 8, 4, "row", "row", "tiles:3x3@1x2/c2")
    steps = get_algorithm("universal").trace(plain, 0, stationary="B").steps
    assert {step.beta for step in steps if type(step) in (Zero, Copy)} == {0.0}


def test_blocks_of_a_transposed_operand_have_their_storage_order():
    problem = Problem(M, N, K, 6, "tiles:3x2@2x3", "row", "block", transpose="a")
    at = home_of(problem.a)
    for step in get_algorithm("universal").trace(problem, 0, stationary="C").steps:
        if type(step) is Get and step.matrix == "A":
            block = step.block
            assert step.transposed and repr(block).startswith("Aᵀ[")
            check_block(at, block)
            assert block.transposed


@pytest.mark.parametrize("word", ["c", "ba", "A", "aa", "none"])
def test_texts_other_than_a_b_and_ab_are_refused(word):
    with pytest.raises(UsageError, match="transpose must be a, b, ab or nothing, got"):
        Problem(8, 8, 8, 2, transpose=word)
