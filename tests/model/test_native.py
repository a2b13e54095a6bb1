"""The compiled event loop finds what the Python loop finds, which is its oracle."""

import shutil
from dataclasses import replace

import pytest
from any_simulations import DEPTHS, any_simulation

from algorithms import get_algorithm
from drbench.common import PHASES
from drbench.errors import CaseFailed, MissingError, UsageError
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.model.native import loop
from drbench.model.native.loop import Loop, build, find_loop
from drbench.model.native.tables import ALONE, SHIFTS, THROTTLED, Tables
from drbench.model.simulate import Beyond, Simulator, simulate
from drbench.program.group_steps import AllGather
from drbench.program.problem import Problem
from drbench.program.steps import Block, Fence, Gemm, Get, Group, Put
from drbench.program.trace import trace
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.predict import predict


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """The loop of this source."""
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("no C compiler: only the Python loop is tested")
    return Loop(build(tmp_path_factory.mktemp("native") / loop.BUILT.name))


@pytest.fixture
def both(compiled, monkeypatch):
    """``both(...)``: what the Python loop finds, and what the compiled one does."""

    def run(traces, machine, depth, **how):
        monkeypatch.setenv(loop.VARIABLE, "python")
        expected = simulate(traces, machine, prefetch=depth, **how)
        monkeypatch.setenv(loop.VARIABLE, "compiled")
        monkeypatch.setattr(loop, "BUILT", compiled.path)
        return expected, simulate(traces, machine, prefetch=depth, **how)

    return run


def check(both, seeds):
    for seed in seeds:
        traces, machine = any_simulation(seed)
        for depth in DEPTHS:
            expected, found = both(traces, machine, depth)
            what = f"seed {seed}, look-ahead {depth}"
            assert found.time_s == pytest.approx(expected.time_s, rel=1e-9, abs=0), what
            assert found.phases == pytest.approx(expected.phases, rel=1e-9, abs=1e-12), what
            assert found.counters == expected.counters, what


@pytest.mark.parametrize("tens", range(10))
def test_both_loops_find_the_same(both, tens):
    check(both, range(10 * tens, 10 * tens + 10))


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(10))
def test_both_loops_find_the_same_ten_thousand_times(both, part):
    """2 500 programs and machines, each with four look-aheads."""
    check(both, range(1000 + 250 * part, 1250 + 250 * part))


def test_random_cases_have_every_kind_of_step_and_of_machine(compiled):
    """So that no line of the compiled loop goes untested."""
    kinds, said, kernels, machines = set(), set(), 0, []
    for seed in range(100):
        traces, machine = any_simulation(seed)
        columns = Tables(traces, machine).columns
        kinds.update(columns["kind"])
        kernels += max(columns["kernel"]) >= 0
        flags = {
            flag for row in columns["flags"] for flag in (SHIFTS, ALONE, THROTTLED) if row & flag
        }
        said |= flags
        machines.append(machine)
    assert kinds == set(range(12)) and said == {SHIFTS, ALONE, THROTTLED} and kernels > 5
    slowdowns = ("owner_slowdown", "transfer_slowdown", "accumulate_slowdown", "side_units")
    others = ("copy_engines", "copy_streams", "memory_shared", "adds_on_core", "signal_s")
    for name in slowdowns + others:
        assert len({bool(getattr(machine, name)) for machine in machines}) == 2
    assert {machine.arbitration for machine in machines} == {"fair", "fifo"}


def test_products_of_one_size_take_longer_where_an_operand_is_stored_transposed(both):
    """In one program, as of a backward pass: each product has its own time."""

    def program(turned):
        blocks = [
            Block(name, 0, 0, (0, 0), 0, 4, 0, 4, transposed=name.lower() in turned)
            for name in "AB"
        ]
        a = yield Get(blocks[0])
        yield Gemm(a, (yield Get(blocks[1])))

    def every():
        for turned in ("", "a", "b", "ab", ""):
            yield from program(turned)

    machine = Machine("toy", Compute(128.0, turn_s=(0.25, 0.5)))
    plain = Machine("toy", Compute(128.0))
    traces = [trace(every(), None, 0, fresh=False)]
    expected, found = both(traces, machine, 1)
    (without, _) = both(traces, plain, 1)
    more = 16 * (0.25 + 0.5 + 0.75)
    assert found.time_s == pytest.approx(expected.time_s, rel=1e-12)
    assert found.time_s == pytest.approx(without.time_s + more, rel=1e-12)


@pytest.mark.parametrize("arbitration", ["fair", "fifo"])
def test_both_loops_make_as_many_events(compiled, monkeypatch, arbitration):
    made = []
    monkeypatch.setattr("drbench.model.simulate._Run.at", _counted(made))
    monkeypatch.setenv(loop.VARIABLE, "python")
    traces, machine = any_simulation(3)
    machine = replace(machine, arbitration=arbitration)
    simulate(traces, machine)
    assert compiled.run(Tables(traces, machine), 1).events == len(made) > 20


def _counted(made):
    from drbench.model.simulate import _Run

    at = _Run.at

    def counting(self, time, act, one=None, two=None):
        made.append(time)
        at(self, time, act, one, two)

    return counting


def toy():
    return Machine("toy", Compute(256.0), (Link("wire", 64.0),))


def row_traces(m=8):
    from oracles import traces_of

    return traces_of(Problem(m, 8, 8, 2, "row", "row", "row"), stationary="C")


def test_both_loops_give_up_beyond_the_same_time(both, compiled):
    traces = row_traces()
    for within in (0.5, 1.0):
        with pytest.raises(Beyond):
            both(traces, toy(), 1, within_s=within)
    assert compiled.run(Tables(traces, toy()), 1, 0.5).beyond
    whole, _ = both(traces, toy(), 1)
    both(traces, toy(), 1, within_s=whole.time_s)


def test_a_deadlock_is_told_by_the_python_loop(both, compiled, monkeypatch):
    """Only one of two ranks comes to a Fence."""

    def program(rank):
        if rank:
            yield Fence()

    traces = [trace(program(rank), None, rank, fresh=False) for rank in range(2)]
    assert compiled.run(Tables(traces, toy()), 1) is None
    monkeypatch.setenv(loop.VARIABLE, "compiled")
    monkeypatch.setattr(loop, "BUILT", compiled.path)
    with pytest.raises(CaseFailed, match="on rank 1 step 0"):
        simulate(traces, toy())


def test_members_of_a_group_that_issue_other_steps_deadlock_in_both_loops(compiled):
    """A program that is wrong, with a meeting that never is complete."""

    def program(rank):
        pieces = [Block("A", each, 0, (each, 0), 4 * each, 4 * each + 4, 0, 4) for each in (0, 1)]
        for _ in range(1 + rank):
            yield AllGather(pieces, Group("row", (0, 1), rank), axis=0)

    traces = [trace(program(rank), None, rank, fresh=False) for rank in range(2)]
    assert compiled.run(Tables(traces, toy()), 1) is None
    with pytest.raises(CaseFailed, match="on rank 1 step 1"):
        simulate(traces, toy())


def test_a_timeline_is_made_by_the_python_loop(both):
    expected, found = both(row_traces(), toy(), 1, timeline=True)
    assert found.timeline == expected.timeline != []


def test_after_a_timeline_the_compiled_loop_runs(compiled, monkeypatch):
    simulator = Simulator(row_traces(), toy())
    monkeypatch.setenv(loop.VARIABLE, "compiled")
    monkeypatch.setattr(loop, "BUILT", compiled.path)
    with_timeline = simulator.run(timeline=True)
    monkeypatch.setattr("drbench.model.simulate._Run", None)
    assert simulator.run().time_s == with_timeline.time_s


def test_puts_are_simulated(both):
    """Which no algorithm has."""

    def program(rank):
        mine = yield Get(Block("A", rank, 0, (rank, 0), 4 * rank, 4 * rank + 4, 0, 4))
        yield Put(mine, Block("C", 1 - rank, 0, (1 - rank, 0), 0, 4, 0, 4))
        yield Fence()

    traces = [trace(program(rank), None, rank, fresh=False) for rank in range(2)]
    expected, found = both(traces, toy(), 1)
    assert found == expected and found.counters["put_bytes"] == 2 * 64


def test_tables_serve_one_look_ahead_after_another(compiled, monkeypatch):
    traces, machine = any_simulation(4)
    monkeypatch.setenv(loop.VARIABLE, "compiled")
    monkeypatch.setattr(loop, "BUILT", compiled.path)
    simulator = Simulator(traces, machine)
    for depth in (*DEPTHS, 0):
        assert simulator.run(depth) == simulate(traces, machine, prefetch=depth)


@pytest.mark.parametrize("machine", ["pvc12", "h100x8"])
def test_predictions_do_not_depend_on_the_loop(compiled, monkeypatch, machine):
    monkeypatch.setattr(loop, "BUILT", compiled.path)
    case = Case(2048, 4096, 1024, "block/c2", "column", "block")
    found = []
    for choice in ("python", "compiled"):
        monkeypatch.setenv(loop.VARIABLE, choice)
        record = predict(case, find_machine(machine), 8)
        phases = [getattr(record, f"phase_{name}_s") for name in PHASES]
        found.append((record.best_s, record.steps, record.get_bytes, *phases))
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize("units, tile", [(2**31 - 1, 64), (2**20, 32), (4, 1)])
def test_numbers_beyond_an_int32_are_simulated_like_any(both, units, tile):
    """So many workers, or so many tiles of a part: sums of the former once overflowed, and what
    was written then lay behind its memory."""
    compute = Compute(1e12, units=units, tiles=((tile, tile), (tile, 1)), launch_s=1e-6)
    machine = Machine("t", compute, (Link("wire", 1e9),))
    size = 1024 if tile > 1 else 1 << 18
    problem = Problem(size, size, 64, 4, "row", "column", "column")
    rows = get_algorithm("ag_gemm")
    options = rows.settle(problem, True, tile=size // 4)
    traces = [rows.trace(problem, rank, **options) for rank in range(4)]
    expected, found = both(traces, machine, 1)
    assert found.time_s == pytest.approx(expected.time_s, rel=1e-9)
    assert found.phases == pytest.approx(expected.phases, rel=1e-9, abs=1e-12)


def test_without_it_the_python_loop_runs_unless_the_compiled_one_is_asked_for(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "BUILT", tmp_path / "nothing.so")
    monkeypatch.delenv(loop.VARIABLE, raising=False)
    assert find_loop() is None
    simulate(row_traces(), toy())
    monkeypatch.setenv(loop.VARIABLE, "compiled")
    with pytest.raises(MissingError, match="python -m drbench.model.native"):
        simulate(row_traces(), toy())
    monkeypatch.setenv(loop.VARIABLE, "fast")
    with pytest.raises(UsageError, match="auto, compiled, python"):
        find_loop()


def test_a_library_that_is_none_or_another_version_is_not_loaded(compiled, tmp_path, monkeypatch):
    none = tmp_path / "none.so"
    none.write_text("no library")
    with pytest.raises(MissingError, match="cannot be loaded"):
        Loop(none)
    monkeypatch.setattr(loop, "_ABI", found := loop._ABI + 1)
    with pytest.raises(MissingError, match=f"version {found - 1}, wanted is {found}"):
        Loop(compiled.path)


def test_a_compiler_that_refuses_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(MissingError, match="refuses events.c"):
        build(tmp_path / "x.so")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="no C compiler"):
        build(tmp_path / "x.so")
