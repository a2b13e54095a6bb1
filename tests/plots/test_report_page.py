"""The report is one page that loads nothing, shows every case, and runs no text of a record."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest
from begun import begun
from made_up import of_universal
from pages import EVIL, Elements, hostile

from drbench.measure.record_file import append_csv
from drbench.plots.draw.svg import spots
from drbench.plots.registry import find
from drbench.plots.report.page import build, page
from drbench.plots.report.verdict import verdict
from drbench.plots.select.cases import Options
from drbench.plots.select.records import frame, read_records

ROOT = Path(__file__).parents[2]


def case(m=64, **values):
    known = {"best_s": 1e-3, "median_s": 2e-3, "samples_s": [1e-3, 2e-3], "phase_gemm_s": 5e-4}
    known |= {"get_bytes": 4096, "percent_of_gemm_only": 50.0, "gemm_only_gflops": 9.0}
    return of_universal(m=m, **{**known, **values})


def failed(**values):
    return of_universal(**{"status": "timeout", "reason": "no end in 60 s", **values})


@pytest.fixture(scope="module")
def of_texts(tmp_path_factory):
    """``of_texts(texts)``: the page of records and an environment that hold the texts."""

    def build_(texts):
        folder = tmp_path_factory.mktemp("texts")
        append_csv(folder / "records.csv", *hostile(texts))
        described = {text: {"value": text} for text in texts}
        (folder / "environment.json").write_text(json.dumps(described))
        return Elements(build([folder]))

    return build_


def test_records_and_environment_add_no_element_no_attribute_and_no_markup_in_the_data(of_texts):
    evil, plain = of_texts(EVIL), of_texts(["one", "two"])
    kinds = lambda page: {(tag, name) for tag, attrs in page.found for name in (None, *attrs)}
    assert kinds(evil) == kinds(plain)
    evil.check_safe()
    data = json.loads(evil.scripts[0])
    assert {record.reason for record in hostile()} == set(data["columns"]["reason"][0])
    assert data["count"] == len(hostile())


def test_counts_failures_and_provenance_are_shown(tmp_path):
    append_csv(
        tmp_path / "records.csv",
        case(),
        case(m=128),
        failed(m=256),
        failed(m=512, status="out_of_memory", reason="needs 9 GiB, 1 GiB is free"),
    )
    (tmp_path / "environment.json").write_text(
        json.dumps({"git": {"commit": "abc123", "dirty": False}, "hosts": ["n1", "n2"]})
    )
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "e1.json").write_text("{")
    text = build([tmp_path])
    for message in (
        "4 cases",
        "2 ok",
        "1 timeout",
        "1 out_of_memory",
        "no end in 60 s",
        "needs 9 GiB, 1 GiB is free",
        "git.commit",
        "abc123",
        "n1, n2",
    ):
        assert message in text, message
    assert re.search("environments/e1.json cannot be read: ", text)
    assert "strong: 2 cases, and no problem that is the same on several numbers of ranks" in text


def test_the_verdict_is_the_best_case_that_is_not_noisy_and_what_limits_it():
    records = [
        case(a="row", median_s=3e-3, phase_get_wait_s=1.5e-3, phase_gemm_s=9e-4, gflops=2.0),
        case(a="column", median_s=1e-3, noisy=True, percent_of_gemm_only=213.0),
        case(a="block", median_s=4e-3, percent_of_gemm_only=900.0),  # no ratio chooses
        case(m=128, median_s=5e-3, percent_of_gemm_only=97.0, percent_of_peak=81.0),
        case(m=256, noisy=True),
        failed(m=512),
    ]
    described = verdict(frame(records))
    assert described.counts == [("ok", 5), ("timeout", 1), ("noisy", 2)]
    assert described.notes == ["1 problem without a ranked case: a quiet machine would decide"]
    assert described.needs == "interleaved rounds would decide"
    first, second = described.best
    assert (first.number, first.time, first.rate, first.roof) == (0, "3 ms", "2 GFLOP/s", "50 %")
    assert first.limit == "get wait 50 %, gemm 30 %, unattributed 20 %"
    assert (second.number, second.limit, second.peak) == (3, "gemm 10 %, unattributed 90 %", "81 %")
    unknown = {"percent_of_gemm_only": float("nan"), "gemm_only_gflops": float("inf")}
    text = page([*records, case(noisy=True, **unknown)], [], "x")
    assert "NaN" not in Elements(text).scripts[0] and "Infinity" not in Elements(text).scripts[0]
    assert "a quiet machine" in text and "3 noisy" in text and first.limit in text
    assert text.index("Fastest case of each problem") < text.index("Figures</h2>")


def test_every_mark_is_where_its_case_is_drawn():
    records = [
        case(m=m, median_s=1e-6 * m * (2 + number), stationary=each)
        for m in (64, 128, 256)
        for number, each in enumerate("ABC")
    ]
    for name in ("mlp1", "algorithms", "best", "libraries"):
        picture = find(name).make(records, Options()).picture
        found = spots(picture)
        assert found and {spot[4] for spot in found} <= set(range(9)), name
        assert all(0 <= part <= 1000 for spot in found for part in spot[:4]), name
        assert len({spot[4] for spot in found}) >= 3, name


def test_the_commands_of_committed_folders_run_their_cases_and_are_accepted_today(
    dealt, monkeypatch, capsys
):
    count = 0
    every, here = ROOT.glob("results/measured/**/records.csv"), ROOT / "results/measured/here"
    for path in dealt(sorted(path for path in every if here not in path.parents), 1, 4):
        found = read_records([path.parent])
        fastest = verdict(found).best
        assert len({(each.problem, each.source) for each in fastest}) == len(fastest)
        for each in fastest:
            program, *words = shlex.split(each.command)
            options, row = dict(zip(words, words[1:])), found.loc[each.number]
            assert (program, options["-m"], options.get("--a")) == ("drbench", str(row.m), row.a)
            assert begun(words, monkeypatch) == 0, f"{each.command}: {capsys.readouterr().err}"
        count += len(fastest)
    assert count > 10


def test_a_command_repeats_the_multiplication_that_was_run():
    described = {
        "transpose": "b",
        "alpha": 2.0,
        "beta": 0.5,
        "experts": 5,
        "topk": 2,
        "routing": "skewed",
    }
    (fastest,) = verdict(frame([case(algorithm="ag_moe", **described)])).best
    for words in ("--transpose b --alpha 2.0 --beta 0.5", "experts=5 -o topk=2 -o routing=skewed"):
        assert words in fastest.command


def test_parts_of_a_sweep_and_several_folders_are_one_page(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    every = [case(m=64 << number % 2, case=f"id{number}") for number in range(1, 13)]
    whole.mkdir()
    append_csv(whole / "records.csv", *every)
    for number in range(1, 12):
        (parts / f"part-{number}").mkdir(parents=True)
        # the last case of a part was run by the next part too: its first row is kept
        late = [dataclasses.replace(every[number - 1], best_s=9.0)] * (number > 1)
        append_csv(parts / f"part-{number}" / "records.csv", *late, every[number])
        (parts / f"part-{number}" / "environment.json").write_text(f'{{"part": {number}}}')
    append_csv(parts / "part-1" / "records.csv", every[0])
    rows = read_records([parts])
    assert sorted(rows.case) == sorted(record.case for record in every)
    assert list(rows.best_s) == [1e-3] * 12 and list(rows.case)[:3] == ["id2", "id1", "id3"]
    text = build([parts])
    assert "12 cases" in text and "part-11/environment.json" in text
    assert "environment.json next to the records" not in text
    other = tmp_path / "other"
    other.mkdir()
    append_csv(other / "records.csv", every[0])
    both = build([whole, other])
    assert "13 cases" in both and "<title>whole, other" in both and "other/environment.json" in both
