"""``drbench explain``: pages of any case, what ``--compare`` changes, and what is refused before a
page is written."""

import json
import re

import pytest

SIZES = "-m 64 -n 48 -k 80".split()


@pytest.fixture
def page(run_cli, tmp_path):
    """``page(*options)``: the names of the cases of a page, and its data."""

    def make(*options):
        path = tmp_path / "page.html"
        ended = run_cli("explain", *options, "--save", path)
        assert (ended.returncode, ended.stderr) == (0, "")
        text = path.read_text(encoding="utf-8")
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
        names = re.findall(r"<h2>(.*?)</h2>", text)
        assert ended.stdout.splitlines()[-1] == f"{path}: open it in a browser"
        return names, json.loads(data)["cases"]

    return make


def texts(case):
    return [matrix["text"] for matrix in case["matrices"]]


def test_a_page_without_a_machine_shows_shares_and_with_one_times(page):
    (name,), (case,) = page(*SIZES, *"-p 4 --preset column --stationary B".split())
    assert name.startswith("universal S-B") and not case["timed"] and len(case["ranks"]) == 4
    (name,), (case,) = page(*SIZES, "--preset", "column", "--machine", "pvc12")
    assert case["timed"] and len(case["ranks"]) == 12


def test_the_compared_run_differs_in_its_description(page):
    first = [*SIZES, *"-p 4 --a row --b column --c row --stationary C".split()]
    for compare, name, layouts in (
        ("--stationary B", "universal S-B", ["row", "column", "row"]),
        ("--c column", "universal S-C", ["row", "column", "column"]),
        ("--preset outer", "universal S-C", ["column", "row", "row"]),
        ("--preset column --b row", "universal S-C", ["column", "row", "column"]),
        ("--algorithm cannon", "cannon", None),
        ("--algorithm gemm_rs -o tile=16", "gemm_rs", None),
        ("-k 160 -p 2", "universal S-C", ["row", "column", "row"]),
    ):
        (one, other), (left, right) = page(*first, "--compare", compare)
        assert one.startswith("universal S-C") and other.startswith(name), compare
        assert texts(left) == ["row", "column", "row"]
        assert layouts is None or texts(right) == layouts
        assert len(right["ranks"]) == (2 if "-p" in compare.split() else 4)


def test_a_timeline_describes_its_run(page, run_cli, tmp_path):
    path = tmp_path / "run.json"
    case = [*SIZES, *"-p 4 --algorithm cannon --machine pvc12".split()]
    assert run_cli("simulate", *case, "--timeline", path).returncode == 0
    (name,), (traced,) = page("--timeline", path)
    (known,), (simulated,) = page(*case)
    assert name == known and traced["regions"] == simulated["regions"]
    names, _ = page("--timeline", path, "--compare", "-m 64 -n 48 -k 80 -p 4 --stationary A")
    assert names == [name, names[1]] and names[1].startswith("universal S-A")


@pytest.mark.mpi
def test_the_timeline_of_a_real_run_is_shown_step_by_step(page, lines_on_ranks, tmp_path):
    words = "run -m 96 -n 64 -k 128 --budget 0 --iters 1 -o gemm_only=false".split()
    more = {
        "rma.json": "--preset column --stationary C --transport rma",
        "throttled.json": "--algorithm gemm_rs --transport throttled:1,5",
        # what is packed by default follows from the model of cores that is built in
        "packed.json": "-m 1024 -n 3072 -k 768 --preset row --stationary B -o check=false",
    }
    lines = {path: [*words, *more[path].split(), "--timeline", path] for path in more}
    for path, ended in lines_on_ranks(2, lines, tmp_path).items():
        assert ended.returncode == 0, ended.stderr
        events = json.loads((tmp_path / path).read_text())["traceEvents"]
        _, (case,) = page("--timeline", tmp_path / path)
        shown = {(rank, bar[0]) for rank, bars in enumerate(case["ranks"]) for bar in bars}
        made = {(each["pid"], each["args"]["step"]) for each in events if each["ph"] == "X"}
        assert shown == made and case["timed"]
        kinds = {bar[1] for bars in case["ranks"] for bar in bars}
        assert path != "packed.json" or kinds >= {"fetch", "multiply", "add", "copy"}
