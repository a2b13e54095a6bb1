"""Overlap in virtual time: GEMMs hide as many transfers as the look-ahead allows."""

from collections import defaultdict

import pytest
from oracles import traces_of
from virtual_time import Links, drive

from drbench.host.throttle import Throttle
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get, ReplicaGet


class ThrottledLinks:
    """Links like those of the executor's throttle."""

    def __init__(self, flops_per_s, bytes_per_s):
        self.flops_per_s = flops_per_s
        self.links = defaultdict(lambda: Throttle(bytes_per_s, latency_s=0.0))

    def end(self, rank, step, now):
        if type(step) is Gemm:
            return now + 2 * step.products / self.flops_per_s
        if step.counter is None or step.block.owner == rank:
            return now
        return self.links[rank].due(
            "in" if isinstance(step, Get) else "out", step.block.size * 4, now
        )


def times(p, share, depth, stationary="C", links=Links):
    """Total, compute and transfer time of finely cut GEMMs whose transfers take ``share`` of
    the compute time.

    Stationary C: column/column/column, all ranks read A. Stationary B: column/row/row, all ranks
    send sums to C.
    """
    if stationary == "C":
        problem, chunk = Problem(256, 256 * p, 1024 * p, p, "column", "column", "column"), 16
    else:
        problem, chunk = Problem(1024 * p, 256, 256 * p, p, "column", "row", "row"), 16
    traces = traces_of(problem, stationary=stationary, chunk=chunk)
    nbytes = sum(s.block.size * 4 for s in traces[0].steps if s.moved(traces[0].rank))
    total = drive(traces, depth, links(traces[0].flops, nbytes / share)).time_s
    return total, 1.0, share


@pytest.mark.parametrize("share", [0.3, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("stationary", "BC")
def test_finely_cut_gemms_and_their_transfers_hide_each_other(stationary, p, share):
    """Partial sums are sent once the Fence is passed: a rank's own part of the result, 1/p of the
    work, comes before it and hides nothing."""
    total, compute, transfer = times(p, share, 1, stationary)
    own = compute / p if stationary == "B" else 0.0
    hidden = max(compute - own, transfer)
    assert own + hidden <= total <= own + 1.1 * hidden


@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("stationary", "BC")
def test_without_look_ahead_the_time_is_the_sum(stationary, p, share):
    total, compute, transfer = times(p, share, 0, stationary)
    assert total == pytest.approx(compute + transfer, rel=1e-6)


@pytest.mark.parametrize("stationary", "BC")
@pytest.mark.parametrize("depth", [0, 1])
def test_the_throttle_of_measured_runs_keeps_the_same_time(depth, stationary):
    modelled = times(3, 0.7, depth, stationary)
    assert times(3, 0.7, depth, stationary, ThrottledLinks) == pytest.approx(modelled, rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8, pytest.param(12, marks=pytest.mark.thorough)])
def test_a_look_ahead_of_two_leaves_no_gaps_on_more_ranks(p):
    """Look-ahead 1 leaves up to a tenth of the time where local GEMMs bunch between those that
    need transfers."""
    total, compute, _ = times(p, 1.0, 2)
    assert total <= 1.02 * compute
    assert times(p, 1.0, 1)[0] <= 1.12 * compute


def test_the_reduction_of_replicas_is_prefetched_too():
    """While one pulled panel is added the next is fetched."""
    problem = Problem(64, 8192, 2, 4, "block", "block", "row/c4")
    program = traces_of(problem, stationary="C")
    in_flight, seen = set(), []

    def watch(what, rank, t):
        step = program[rank].steps[t]
        if isinstance(step, ReplicaGet):
            (in_flight.add if what == "start" else in_flight.remove)(t)
        elif (
            step.computes
            and what == "start"
            and step.inputs
            and isinstance(step.inputs[0], ReplicaGet)
        ):
            seen.append(len(in_flight))

    drive(program, 1, Links(1e9, 1e9), on=watch)
    assert seen and all(seen[:-1])
