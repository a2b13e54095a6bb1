"""Machine files and sweep files that were changed at random are refused in one line, or answered
with possible times: never a traceback, never nonsense."""

import random
import tomllib
from math import inf, isfinite

import pytest
from hostile_files import machine_section, mutate, odd_numbers, sweep_table, write

from drbench.errors import DrbenchError, UsageError
from drbench.launch.cases.case import Case, bind_case
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.libraries import LIBRARIES
from drbench.launch.models.predict import predict, with_interval
from drbench.model.machine import Machine

#: Constants that may be infinite, which means no limit.
OPEN = ("bytes_per_s", "memory_bytes", "k_block")
#: Programs that are predicted on the machines.
PROGRAMS = """universal
universal stationary=C
universal stationary=B
ag_gemm tile=16
gemm_rs tile=16
gemm_ar
collective dataflow=OS
summa
cannon
meshslice slices=2"""
RANKS = (1, 2, 4, 4, 4, 6, 9, 16)


def one_line(error) -> None:
    text = str(error)
    assert text and "\n" not in text and len(text) < 1000, text[:2000]


def try_machine(seed, folder):
    """Whether a changed machine file was accepted; asserts that its times are possible."""
    rng = random.Random(seed)
    section = machine_section(rng)
    done = mutate(section, machine_section(rng), rng)
    path = folder / "machine.toml"
    path.write_text(write({"model": section}), encoding="utf-8")
    try:
        machine = Machine.load(path)
    except DrbenchError as error:
        one_line(error)
        return False
    strange = [(where, value) for where, value in odd_numbers(section) if value != 0]
    assert all(value == inf and where.endswith(OPEN) for where, value in strange), (done, strange)
    algorithm, *words = rng.choice(PROGRAMS.splitlines()).split()
    options = {name: int(x) if x.isdigit() else x for name, x in (w.split("=") for w in words)}
    ranks = machine.devices if machine.torus else rng.choice(RANKS)
    m, n, k = (rng.choice([1, 16, 64, 96, 144]) for _ in range(3))
    kinds = ["auto", "auto", "throttled:10,5", *machine.sources.get("transports", {})]
    how = {"transport": rng.choice(kinds), "dtype": machine.dtype, "options": options}
    case = Case(m, n, k, algorithm=algorithm, **how)
    try:
        record = predict(case, machine, ranks)
        if record.status == "ok":
            record = with_interval(record, case, machine, ranks)
    except DrbenchError as error:
        one_line(error)
        return True
    if record.status != "ok":
        one_line(record.reason)
        return True
    least = 2 * m * n * k / ranks / machine.compute.peak_flops
    assert isfinite(record.best_s) and record.best_s >= least * (1 - 1e-9), (done, record.best_s)
    ends = record.median_low_s, record.median_high_s
    assert all(end is None or 0 <= end < inf for end in ends), (done, ends)
    return True


def try_sweep(seed, folder):
    """Whether a changed sweep file was accepted; asserts that each of its cases is valid."""
    rng = random.Random(seed)
    table = sweep_table(rng)
    mutate(table, sweep_table(rng), rng)
    path = folder / "sweep.toml"
    path.write_text(write(table), encoding="utf-8")
    try:
        sweep = load_sweep(str(path), 4)
    except DrbenchError as error:
        one_line(error)
        return False
    assert sweep.cases and sweep.scale > 0
    for case in rng.sample(sweep.cases, min(3, len(sweep.cases))):
        for size in (case.m, case.n, case.k):
            assert type(size) is int and 1 <= size < 2**63
        try:
            taker, problem, options = bind_case(case, 4)
            if case.algorithm not in LIBRARIES:
                taker.resolve(problem, True, **options)
        except DrbenchError as error:
            one_line(error)
    return True


TRIES = {"machine": try_machine, "sweep": try_sweep}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind, count",
    [
        *(("machine", 100), ("sweep", 250)),
        *(pytest.param(kind, 10_000, marks=pytest.mark.thorough) for kind in TRIES),
    ],
)
def test_changed_files_are_refused_in_one_line_or_answered_with_sense(kind, count, tmp_path):
    taken = [TRIES[kind](seed, tmp_path) for seed in range(count)]
    assert 0.05 < sum(taken) / len(taken) < 0.95  # the test is about both


def test_an_unchanged_file_is_accepted(tmp_path):
    for seed in range(30):
        rng = random.Random(seed)
        for table, read in (
            ({"model": machine_section(rng)}, Machine.load),
            (sweep_table(rng), lambda path: load_sweep(str(path), 4)),
        ):
            path = tmp_path / "file.toml"
            path.write_text(write(table))
            assert tomllib.loads(path.read_text()) == table
            assert read(path)
    with pytest.raises(UsageError):
        Machine.load(tmp_path / "none.toml")
