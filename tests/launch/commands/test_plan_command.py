"""``drbench plan``: counts that add up, and a program to read, without MPI."""

import json
import re
import sys

import pytest
from starting import within

from drbench.launch.libraries import LIBRARIES

COUNTERS = ("get_bytes", "direct_bytes", "put_bytes", "accumulate_bytes")
COUNTERS += ("collective_bytes", "replica_bytes")
#: Varied problems: m, n, k, ranks, and further options.
PROBLEMS = [
    (30, 40, 50, 4, "--preset column --stationary C".split()),
    (31, 32, 33, 3, "--a tiles:7x5 --b tiles:4x9@1x3 --c row --stationary B".split()),
    (
        *(30, 40, 50, 4),
        "--a row/c2 --b column --c block/c2 --stationary A -o replicate_result=true".split(),
    ),
    (7, 5, 3, 12, "--a row --b column --c block --stationary C -o chunk=2".split()),
]


def command(m, n, k, p, options):
    return ["plan", "-m", m, "-n", n, "-k", k, "-p", p, *options]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_sums_over_all_ranks_are_the_sums_of_each(run_cli, problem):
    total = run_cli(*command(*problem), "--rank", "all", "--json").json()
    each = [
        run_cli(*command(*problem), "--rank", rank, "--json").json() for rank in range(problem[3])
    ]
    for name in ("steps", "flops", *COUNTERS):
        assert total[name] == sum(one[name] for one in each), name
    for name in ("tile_bytes", "pool_bytes", "pool_direct_bytes"):
        assert total[name] == max(one[name] for one in each), name
    for rank, one in enumerate(each):
        m, n, k, p, options = problem
        asked = {"m": m, "n": n, "k": k, "ranks": p, "rank": rank, "dtype": "float32"}
        asked["stationary"] = options[options.index("--stationary") + 1]
        assert {name: one[name] for name in asked} == asked


def test_replicating_the_result_moves_each_replica_of_it(run_cli):
    problem = (30, 40, 50, 4, ["--c", "block/c4"])
    once, everywhere = (
        run_cli(*command(*problem), *option, "--rank", "all", "--json").json()
        for option in ([], ["-o", "replicate_result=true"])
    )
    assert everywhere["replica_bytes"] - once["replica_bytes"] == 3 * 30 * 40 * 4


def test_the_bytes_by_peer_add_up(run_cli):
    problem = command(30, 40, 50, 6, ["--preset", "outer", "--stationary", "B"])
    text = run_cli(*problem, "--rank", 2, "-v").stdout
    units = {"B": 1, "KiB": 1024}
    rows = re.findall(r"^ +(\d+) +([\d.]+) (K?i?B)$", text, re.M)
    plan = run_cli(*problem, "--rank", 2, "--json").json()
    assert "2" not in [rank for rank, *_ in rows] and len(rows) > 1 and " from rank " in text
    (name,) = (name for name in COUNTERS if plan[name])
    assert sum(float(n) * units[unit] for _, n, unit in rows) == pytest.approx(plan[name], rel=1e-3)


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["run", "--help"], 0),
        ("run -p 3 -m 8 -n 8 -k 8 --a block:2x2".split(), 2),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_commands_without_ranks_of_their_own_import_nothing_heavy(process, arguments, code):
    heavy = "mpi4py.MPI numpy pandas matplotlib rich importlib.metadata torch".split()
    heavy += [f"drbench.launch.libraries.{name}" for name in LIBRARIES]
    program = (
        "import sys; from drbench.launch.commands.cli import main; code = main(sys.argv[1:]); "
        f"print(code, sorted(sys.modules.keys() & set({heavy})))"
    )
    ended = process(sys.executable, "-c", program, *arguments)
    assert ended.stdout.splitlines()[-1] == f"{code} []"


def test_one_rank_of_thousands_is_planned_quickly(drbench):
    """The limit (20 ms, and 300 ms with 512 x 512 tiles) is measured elsewhere; this is a wide
    limit for the whole command."""
    large = "plan -m 256Ki -n 256Ki -k 256Ki -p 4096 --rank 4095 --json".split()
    ended = drbench(*large, *"--a block:64x64 --b block:64x64 --c block:64x64".split())
    plan = json.loads(ended.stdout)
    assert plan["flops"] == 2 * 2**54 // 4096
    assert within(plan["plan_s"], 0.3) and within(ended.seconds, 5)


SIGNALLED = "plan -p 3 -m 24 -n 12 -k 12 --algorithm gemm_rs -o tile=4".split()


def test_signals_are_matched_and_counted_where_all_ranks_are_planned(run_cli):
    """Each of three ranks sends two tiles to each of two others."""
    everybody = [*SIGNALLED, "--rank", "all"]
    assert run_cli(*everybody, "--json").json()["signals"] == 12
    assert "signals: 12, each with its counterpart" in run_cli(*everybody, "-v").stdout
    one = run_cli(*SIGNALLED, "--rank", 1).stdout
    assert "Push(" in one and "Await(from" in one and "side)" in one and "signals:" not in one
    pulled = run_cli(*SIGNALLED, "-o", "variant=pull", "--rank", 1).stdout
    assert "Offer(" in pulled and "Take(from" in pulled


def test_the_experts_of_a_layer_are_described(run_cli):
    words = "--algorithm moe_rs2 -o experts=4 -o topk=1 -o routing=skewed:1".split()
    shown = run_cli(*"plan -p 2 -m 64 -n 32 -k 16".split(), *words).stdout
    assert "64 × 32 × 16 (m × n × k), 64 tokens to 1 of 4 experts each (skewed:1)" in shown


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_check_says_in_its_first_line_what_it_proved(run_cli, problem):
    ended = run_cli(*command(*problem), "--check")
    steps = run_cli(*command(*problem), "--rank", "all", "--json").json()["steps"]
    assert ended.stdout.splitlines()[0] == (
        f"checked: {problem[3]} ranks, {steps} steps, in every order in which they may complete: "
        "no race, every product once, no sum overwritten."
    )
    answer = run_cli(*command(*problem), "--check", "--json").json()
    assert (answer["checked_steps"], answer["findings"]) == (steps, [])


def test_a_check_of_large_matrices_is_refused_before_any_work(run_cli):
    line = run_cli(*"plan -p 4096 -m 256Ki -n 256Ki -k 256Ki --check".split()).refusal()
    assert "Reduce -m, -n or -k." in line
    many = run_cli(*"plan -p 2 -m 100 -n 100 -k 100 --c tiles:1x1 -o chunk=1 --check".split())
    assert "use larger tiles" in many.refusal()
