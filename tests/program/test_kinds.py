"""A new kind of step fails in the tables of the consumers that forgot it, by their names."""

import subprocess
import sys

import pytest

import drbench.algorithms.lowering.graph
import drbench.device.executor
import drbench.device.gpu.nccl
import drbench.host.executor
import drbench.host.redistribution
import drbench.model.simulate  # noqa: F401  each of them has tables
from drbench.program import kinds
from drbench.program.group_steps import GroupStep
from drbench.program.signal_steps import Signal
from drbench.program.steps import DOES, Step

CONSUMERS = {
    "collectives": {"group steps on MPI", "group steps on NCCL"},
    "executors": {
        "the executor on cores",
        "waits of the executor on cores",
        "the executor on devices",
        "streams of the executor on devices",
        "the layout of executors",
        "redistributions",
    },
    "simulator": {
        "the simulator",
        "phases of the simulator",
        "memory traffic of the simulator",
    },
    "planning": {"first writes of a trace", "values in strips", "lowering"},
}


def subclasses(kind):
    yield kind
    for other in kind.__subclasses__():
        yield from subclasses(other)


def test_every_concrete_step_is_listed_as_a_kind():
    concrete = {
        kind
        for kind in subclasses(Step)
        if kind.__module__.startswith("drbench.") and not kind.__name__.startswith("_")
    }
    assert concrete - {Step, GroupStep, Signal} == set(kinds.KINDS)
    assert len(set(kinds.KINDS)) == len(kinds.KINDS)


def test_every_step_that_takes_time_says_what_a_rank_does():
    without = {kind for kind in kinds.KINDS if kind.does not in DOES}
    assert without == {*kinds.VIEWS, kinds.Scratch, kinds.OperationEnd}


def test_every_consumer_has_a_table():
    assert set(kinds.TABLES) >= set().union(*CONSUMERS.values())


@pytest.mark.parametrize("consumer", sorted(set().union(*CONSUMERS.values())))
def test_a_new_kind_of_step_is_missed_in_the_table_of_each_consumer(monkeypatch, consumer):
    family, table = kinds.TABLES[consumer]
    assert kinds.table_of_steps(consumer, table, family) == table
    swap = type("Swap", (family,), {"__slots__": ()})
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, swap))
    with pytest.raises(TypeError, match=f"the table of {consumer} has no entry for the step Swap"):
        kinds.table_of_steps(consumer, table, family)


def test_a_consumer_that_forgot_a_step_cannot_be_imported():
    program = """
from drbench.program import kinds
class Swap(kinds.Step): pass
kinds.KINDS += (Swap,)
import drbench.plan.strips
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr.endswith("the table of values in strips has no entry for the step Swap\n")
