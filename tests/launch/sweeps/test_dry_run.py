"""``--dry-run`` describes a sweep, and starts nothing."""

import re
import time
from dataclasses import replace
from math import ceil

import pytest
from starting import within

from drbench.host.cores import usable_cores
from drbench.launch.cases.case import Case
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.host.kernels import KernelSpeed
from drbench.launch.sweeps.dry_run import plan_needs
from drbench.measure.noise import MOST_REPEATS


@pytest.fixture
def dry(run_cli, monkeypatch, tmp_path):
    """``dry(*arguments)``: a dry run whose processor does 100 GFLOP/s a core; fails if it starts
    ranks."""
    monkeypatch.setattr(
        "drbench.launch.sweeps.estimate.measure_kernels", lambda: KernelSpeed("Test", 100e9)
    )
    monkeypatch.setattr(
        "drbench.launch.sweeps.starter.Ranks.__init__", lambda *_: pytest.fail("ranks were started")
    )
    return lambda *arguments: run_cli("sweep", *arguments, "--out", tmp_path / "out", "--dry-run")


def test_it_lists_the_cases_and_their_sum(dry, tmp_path):
    ended = dry("mlp1-small", "-p", 4, "--resume")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("48 cases on 4 ranks: about ") and "… 28 more" in ended.stdout
    assert "that a core reaches now" in ended.stdout
    assert not (tmp_path / "out").exists()


def test_memory_is_the_tiles_of_every_rank_and_its_buffers():
    case = Case(100, 60, 80, "row/c2", "column", "block", options={"stationary": "C"})
    # half the rows of A in each replica, a quarter of B's columns, one of C's 2x2 blocks
    tiles = 50 * 80 + 80 * 15 + 50 * 30
    assert plan_needs(case, 4).total_bytes == 4 * 4 * tiles
    made = plan_needs(replace(case, get="copy"), 4)
    assert 4 * tiles < made.rank_bytes < 4 * tiles * 2 and 4 * 4 * tiles < made.total_bytes


def test_cases_that_will_be_refused_or_are_too_large_are_reported_beforehand(dry, sweep_file):
    file = sweep_file(
        '[[cases]]\nm = [64, "2Ki"]\nn = 64\nk = 64\na = ["block", "block:3x3"]\n\n[[cases]]\nm '
        '= 8\nn = 8\nk = 8\nalgorithm = "cannon"\nmesh = "1x4"\n'
    )
    text = dry(file, "-p", 4, "--mem-limit", "256KiB").stdout
    assert text.count("refused: ") == 3 and "square" in text and "block:3x3" in text
    assert "1 beyond --mem-limit" in text and "3 refused;" in text


def test_the_estimate_counts_the_repeats_that_a_budget_allows(dry, sweep_file):
    """At 100 GFLOP/s a core a multiplication of 1024³ takes 10.7 ms on two."""

    def multiplications(iters, roof, budget):
        file = sweep_file(
            f'[[cases]]\nm = 1024\nn = 1024\nk = 1024\npreset = "row"\niters = {iters}\n'
            f"gemm_only = {roof}\nbudget = {budget}"
        )
        number, unit = dry(file, "-p", 2).stdout.partition("the time is that of ")[2].split()[:2]
        return float(number) * {"G": 1e9, "T": 1e12}[unit[0]] / (2 * 1024**3)

    cores = min(2, usable_cores())
    pair_s = 2 * (2 * 1024**3) / (100e9 * cores)
    assert multiplications(3, "false", 0) == pytest.approx(3, rel=0.01)
    assert multiplications(3, "true", 0) == pytest.approx(12 + 2 * 3, rel=0.01)
    assert multiplications(3, "true", 0.2) == pytest.approx(12 + 2 * ceil(0.2 / pair_s), rel=0.01)
    assert multiplications(3, "true", 60) == pytest.approx(12 + 2 * MOST_REPEATS, rel=0.01)


def test_lines_that_are_left_out_change_no_count(dry, sweep_file):
    """Cases without a line are planned without buffers: the same counts, and the same largest case
    where its tiles decide."""
    file = sweep_file(
        '[[cases]]\nm = 64\nn = 64\nk = [64, 65]\npartitions = "all"\nreplication = "equal"\n'
        'stationary = ["A", "C"]\n[[cases]]\nm = 8\nn = 8\nk = 8\na = "block:3x3"\n'
    )
    every, few = (dry(file, "-p", 4, "--limit", limit).stdout for limit in (0, 3))
    of = lambda text: re.sub(r"(about|up to) \S+ \S+ ", "", text.splitlines()[0])
    assert of(every) == of(few) and "1 refused;" in few and "1 refused;" in every


def test_a_shape_sets_the_three_sizes(run_cli):
    cases = lambda name, shape: load_sweep(name, 1, "1", overrides=[("shape", shape)]).cases
    sizes = lambda shape: {(case.m, case.n, case.k) for case in cases("exhaustive", shape)}
    assert sizes("3x1Kix5,7x7x7") == {(3, 1024, 5), (7, 7, 7)}
    batches = [1024 << step for step in range(4)]
    mlp1, mlp2 = ({(m, n << 10, k << 10) for m in batches} for n, k in ((48, 12), (12, 48)))
    assert (sizes("mlp1"), sizes("all")) == (mlp1, mlp1 | mlp2)
    assert len(cases("mlp", "8x8x8")) < len(load_sweep("mlp", 1).cases)
    for text in ("8x8", "8x8x0", "mlp3", "8x8x8x8"):
        assert text in run_cli("sweep", "square", "-p", 2, "-o", f"shape={text}").refusal()


def test_the_exhaustive_sweep_of_the_paper_is_planned_in_seconds(dry):
    """At most 20 s of CPU for 17496 cases, so that a part in 16 takes at most 2."""
    start = time.process_time()
    text = dry("exhaustive", "-p", 12, "--part", "1/16").stdout
    assert text.startswith("1094 cases on 12 ranks: ")
    assert within(time.process_time() - start, 2.5)
