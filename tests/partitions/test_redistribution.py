"""The elements that a redistribution moves equal those counted by dealing out every element."""

import itertools
from collections import Counter

import pytest
from oracles import elements_of

from drbench.partitions import LayoutError, flows, partition, sources, summed

TEXTS = [
    *("row", "column", "block", "block:1x6", "block:3x2:col", "row/c2", "block/c3", "row/c6"),
    *("tiles:2x3@3x2", "tiles:1x1@2x3", "tiles:4x1@1x3/c2", "R"),
    *("S(0),R@2x3", "S(0),S(0)@3x2", "_S(1,2),S(0)@2x3", "S(1),P@3x2", "P,R@2x3", "R,P@2x3", "P"),
]


def summands(old, new, target):
    """The old replicas whose sum a rank is to hold, by the rules in words.

    A term stays that term where there are as many of them; else the first term takes the whole sum,
    and the others are zero. Of each term a rank reads the copy that goes with its own.
    """
    own, term = old.replica_of(target), new.term_of(new.replica_of(target))
    terms = [old.term_of(q) for q in range(old.replicas)]
    number = [q for q in range(old.replicas) if terms[q] == terms[own]].index(own)
    of_term = [[q for q in range(old.replicas) if terms[q] == t][number] for t in range(old.terms)]
    if old.terms == new.terms:
        return [of_term[term]]
    return [] if term else of_term


def by_hand(old, new):
    """Each element that a rank lacks is fetched from its owner in that rank's old replica."""
    found = Counter()
    for target in range(new.nprocs):
        for replica in summands(old, new, target):
            for row, col in elements_of(new, target):
                source = old.owner(old.tile_index(row, col), replica)
                if source != target:
                    found[source, target] += 1
    return found


@pytest.mark.parametrize("first", TEXTS)
def test_flows_are_those_of_dealing_every_element_out(first):
    for second, shape in itertools.product(TEXTS, [(12, 12), (7, 11), (1, 13), (5, 2)]):
        old, new = (partition(text, shape, 6) for text in (first, second))
        described = list(flows(old, new))
        assert {(a, b): count for a, b, count in described} == by_hand(old, new), (second, shape)
        assert len({each[:2] for each in described}) == len(described) and all(
            each[2] > 0 for each in described
        )


def test_equal_partitions_move_nothing_and_different_matrices_are_refused():
    same = partition("block:1x4", (8, 8), 4), partition("block:1x4:col", (8, 8), 4)
    assert not list(flows(*same))
    for other in (partition("row", (8, 9), 4), partition("row", (8, 8), 2)):
        with pytest.raises(LayoutError, match="not one matrix"):
            list(flows(same[0], other))


@pytest.mark.parametrize("text", ["P", "R,P@2x3", "P,S(0)@3x2", "S(1),P@2x3", "P,P@2x3", "row"])
def test_a_pending_sum_is_best_reduced_with_one_adder_for_each_element(text):
    """For each copy: as many adders as terms, each with its own part."""
    old = partition(text, (12, 12), 6)
    new = summed(old)
    assert new.terms == 1 and new.replicas * old.terms == old.replicas
    adds = sum(
        new.local_size(rank) * (len(sources(old, new, rank)) - 1) for rank in range(new.nprocs)
    )
    assert adds == 144 * (old.terms - 1) * new.replicas
    if old.terms == 1:
        assert new is old
