"""Every rule once: types of steps, sums of bytes and starts of processes are each handled in one
place."""

import ast
from functools import cache
from pathlib import Path

import pytest

import drbench.program.group_steps
import drbench.program.steps
from drbench.program.steps import COUNTERS, Step

ROOT = Path(__file__).parents[1]
PACKAGES = ("partitions", "drbench", "algorithms", "plots", "launch")

STEPS = {
    name
    for module in (drbench.program.steps, drbench.program.group_steps)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Step)
}
#: Modules that compare types of steps: those that run steps, for real or by the model, and those
#: that order or rewrite them. All others ask the step.
COMPARE_TYPES = {
    "algorithms/lowering/graph.py",
    "algorithms/lowering/lowering.py",
    "algorithms/lowering/op_costs.py",
    "algorithms/lowering/search.py",
    "drbench/device/executor.py",
    "drbench/device/gpu/nccl.py",
    "drbench/host/collectives.py",
    "drbench/host/executor.py",
    "drbench/host/executor_base.py",
    "drbench/host/mover.py",
    "drbench/model/costs.py",
    "drbench/model/rank.py",
    "drbench/model/simulate.py",
    "drbench/plan/edges.py",
    "drbench/plan/explain.py",
    "drbench/plan/strips.py",
    "drbench/plan/schedule.py",
    "drbench/program/steps.py",
    "drbench/program/trace.py",
}


@cache
def modules(folder):
    """Path from the root -> syntax tree."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def names(tree):
    """Attributes and constants of a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant):
            yield node.value


def called(call):
    """The last part of the name of a called function."""
    return getattr(call.func, "id", getattr(call.func, "attr", None))


def compares_types(tree):
    """Lines that compare a type with that of a step, or ask isinstance."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and called(node) in ("isinstance", "issubclass"):
            asked = node.args[1:]
        else:
            continue
        if any(
            isinstance(name, ast.Name) and name.id in STEPS
            for each in asked
            for name in ast.walk(each)
        ):
            yield node.lineno


def lists_counters(tree):
    """Lines of expressions that name three counters of bytes or more."""
    counters = set(COUNTERS)
    if len(counters.intersection(names(tree))) >= 3:
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and len(counters.intersection(names(node))) >= 3:
                yield node.lineno


def starts_processes(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) == "Popen":
            yield node.lineno


def offenders(finds, allowed):
    """Places with a finding outside the allowed modules."""
    return [
        f"{path}:{line}"
        for package in PACKAGES
        for path, tree in modules(package).items()
        if path not in allowed
        for line in sorted(set(finds(tree)))
    ]


def test_only_modules_that_run_or_rewrite_steps_compare_their_types():
    assert offenders(compares_types, COMPARE_TYPES) == []


def test_what_counts_as_moved_is_listed_once():
    assert offenders(lists_counters, {"drbench/program/steps.py"}) == []


def test_processes_that_are_waited_for_and_ended_are_started_in_one_place():
    assert offenders(starts_processes, {"launch/host/processes.py"}) == []


@pytest.mark.parametrize(
    "finds, text",
    [
        (compares_types, "if type(step) is Gemm: pass"),
        (compares_types, "kind in (Reduce, ReduceScatter)"),
        (compares_types, "isinstance(step, (int, Shift))"),
        (lists_counters, "r.get_bytes + (r.put_bytes or 0) + r.replica_bytes"),
        (lists_counters, "sum(row[x] for x in ('get_bytes', 'direct_bytes', 'put_bytes'))"),
        (starts_processes, "with subprocess.Popen(['mpiexec']) as ranks: pass"),
    ],
)
def test_a_finding_outside_its_place_is_reported(finds, text):
    assert list(finds(ast.parse(text)))
