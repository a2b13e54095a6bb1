"""Enumerations are complete, free of duplicates, and all of what they name exists."""

from itertools import islice

import pytest

from partitions import (
    equal_replication,
    exhaustive,
    paired_replication,
    parse,
    partition,
    partition_triples,
    replication_triples,
)

RANKS = [1, 2, 4, 7, 12]


def count_divisors(p):
    return sum(p % d == 0 for d in range(1, p + 1))


@pytest.mark.parametrize("p", RANKS)
def test_there_are_27_times_the_cube_of_the_divisors_without_duplicates(p):
    triples = list(exhaustive(p))
    assert len(triples) == len(set(triples)) == 27 * count_divisors(p) ** 3


@pytest.mark.parametrize("p", RANKS)
def test_replications_are_those_a_search_over_all_factors_finds(p):
    factors = range(1, p + 1)
    valid = [
        (a, b, c) for a in factors for b in factors for c in factors if p % a == p % b == p % c == 0
    ]
    assert list(replication_triples(p)) == valid
    assert list(equal_replication(p)) == [t for t in valid if t[0] == t[1] == t[2]]
    assert list(paired_replication(p)) == [t for t in valid if t[0] == t[1]]


def test_partition_triples_are_all_choices_of_the_kinds_given():
    assert len(set(partition_triples())) == 27
    assert list(partition_triples(["block"])) == [("block", "block", "block")]
    assert len(set(partition_triples(kind for kind in ["row", "R"]))) == 8


@pytest.mark.parametrize("p", [1, 4, 7])
def test_every_text_is_canonical_and_binds(p):
    texts = {text for triple in exhaustive(p) for text in triple}
    assert len(texts) == 3 * count_divisors(p)
    for text in texts:
        assert str(parse(text)) == text
        assert partition(text, (9, 9), p).nprocs == p


def test_a_factor_of_one_is_not_written():
    assert next(exhaustive(4)) == ("row", "row", "row")
    assert not any("/c1" in text for triple in exhaustive(4) for text in triple)


def test_the_factors_may_be_restricted():
    triples = list(exhaustive(12, factors=equal_replication(12)))
    assert len(triples) == len(set(triples)) == 27 * 6


def test_enumeration_is_lazy():
    p = 2**20  # 27 · 21³ combinations: only those asked for are made
    assert len(list(islice(exhaustive(p), 5))) == 5
