"""Which random mutants of the source the tests kill, and which survive.

    python -m benchmarks mutants SEED COUNT COMMIT OUT    # such as 1 200 HEAD build/mutants

A mutant changes one operator, condition or small number. An instrumented run of the suite notes
which tests reach which mutant (none: all count). They run until one fails: first 60 s of those of
its package that need no mpiexec, then all. Five times the time kills a mutant too, a test that
fails without it does not. A second start adds the missing rows of OUT/mutants.csv."""

import ast
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cache
from itertools import accumulate
from pathlib import Path

import pandas as pd

from benchmarks.__main__ import parser_of

TESTS = {"algorithms": "algorithms frozen", "partitions": "partitions", "launch": "launch"}
TESTS["drbench"] = "chains device host library measure model plan program"
FIRST_S, TIMES_LONGER, COLUMNS = 60, 5, "number file line before after killed_by"
PAIRS = "Lt LtE Gt GtE Eq NotEq In NotIn Is IsNot Mult Add Add Sub FloorDiv Mod And Or".split()
SWAPS = {getattr(ast, name): getattr(ast, PAIRS[x ^ 1]) for x, name in enumerate(PAIRS)}
#: All descendants end with the tests; no mutant ends another process or removes its shared memory.
ALONE = "unshare -pf --kill-child --mount-proc sh -c".split() * (not os.geteuid())
ALONE += ['mount -t tmpfs x /dev/shm; "$0" "$@"'] * (not os.geteuid())
SEEN = """import functools, os
note = functools.cache(lambda *key: open({path!r}, "a").write("%s %s\\n" % key))
def at(number):
    test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    note(number, test if phase == "(call)" else test.split("::")[0])
"""


def find_mutants(tree: Path, file: str):
    """(file, line, first and last byte of an expression, its new text) of all mutants of it."""
    text, skipped = (tree / file).read_bytes(), set()
    lines = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:  # messages, types, patterns
        inside = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        inside += getattr(node, "decorator_list", [])
        inside += [node] * isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.pattern)
        skipped |= {id(child) for top in inside if top for child in ast.walk(top)}
    for node in (node for node in nodes if id(node) not in skipped and hasattr(node, "lineno")):
        new = None
        match node:
            case ast.If() | ast.IfExp() | ast.While():
                node, new = node.test, ast.UnaryOp(ast.Not(), node.test)
            case ast.Constant() if type(node.value) is int and node.value < 3:
                new = ast.Constant(node.value + 1)
            case ast.Compare(ops=[op]) | ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
                new = copy(node)
                new.op, new.ops = SWAPS[type(op)](), [SWAPS[type(op)]()]
        first = lines[node.lineno - 1] + node.col_offset
        last = lines[node.end_lineno - 1] + node.end_col_offset
        if new and not re.search(rb"TYPE_CHECKING|__name__", text[first:last]):
            yield file, node.lineno, first, last, f"({ast.unparse(new)})".encode()


def run_tests(tree: Path, mark: str, *words: str, limit_s: float = 0.0):
    """The ended pytest in a tree, which prints the seconds of its tests; code -9 if late."""
    environ = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    how = "-m pytest -p no:cacheprovider --durations=0 --durations-min=0 --tb=no -m".split()
    command = ["timeout", "-sKILL", str(limit_s), *ALONE, sys.executable, *how, mark]
    return subprocess.run([*command, *words], cwd=tree, env=environ, text=True, capture_output=True)


def find_reaching(tree: Path, mutants: list, out: Path) -> tuple[dict, dict]:
    """number -> tests that reach a mutant, all of a file if a fixture does; test -> seconds."""
    marks, seconds, reached = defaultdict(list), Counter(), defaultdict(set)
    if not (out / "seconds.txt").exists():
        (tree / "seen.py").write_text(SEEN.format(path=str(out / "reached.txt")))
        for number, (file, _, first, last, _) in enumerate(mutants):
            marks[file] += (first, b"(__import__('seen').at(%d) or (" % number), (last, b"))")
        for file, inserted in marks.items():
            text = (tree / file).read_bytes()
            for at, mark in sorted(inserted, reverse=True):
                text = text[:at] + mark + text[at:]
            (tree / file).write_bytes(text)
        (out / "seconds.txt").write_text(run_tests(tree, "not thorough", "-n2").stdout)
    for match in re.finditer(r"(?m)^([\d.]+)s \w+ +(.+)$", (out / "seconds.txt").read_text()):
        seconds[match[2]] += float(match[1])
    within = cache(lambda begin: {test for test in seconds if test.startswith(begin)})
    for match in re.finditer(r"(?m)^(\d+) (tests/mpi/|.*)", (out / "reached.txt").read_text()):
        reached[int(match[1])] |= within(match[2])
    return {n: reached[n] or {*seconds} for n in range(len(mutants))}, seconds


def find_killer(tree: Path, clean: Path, mark: str, tests: list, seconds: dict) -> str:
    """The test that fails in a tree and not in the clean one, or what else ended the tests."""
    left_out, limit_s = [], TIMES_LONGER * (10 + sum(map(seconds.get, tests)))
    (listed := tree.with_suffix(".txt")).write_text("\n".join(tests))
    run = lambda: run_tests(tree, mark, "-x", *left_out, f"@{listed}", limit_s=limit_s)
    while failed := re.search(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - .*)?$", (ended := run()).stdout):
        if "::" not in failed[1] or not run_tests(clean, "not thorough", failed[1]).returncode:
            return failed[1]
        left_out.append(f"--deselect={failed[1]}")
    ends = re.search(r"(?m)^(?:\d|no tests).* in [\d.]+s", ended.stdout) and {0: "", 5: ""}
    return (ends or {-9: "time limit"}).get(ended.returncode, "tests do not end")  # after an exec


def main() -> None:
    options = parser_of(__doc__)
    options.add_argument("words", nargs=4, metavar="WORD", help="SEED COUNT COMMIT OUT")
    seed, count, commit, folder = options.parse_args().words
    commit = subprocess.check_output(["git", "rev-parse", commit], text=True).strip()
    out, table = Path(folder).resolve(), Path(folder).resolve() / "mutants.csv"
    for name in ("clean", "reaching", "one", "two"):
        subprocess.run(["git", "clone", "-qs", ".", out / name], stderr=subprocess.DEVNULL)
        subprocess.run(["git", "-C", out / name, "checkout", "-qf", commit], check=True)
    chance, drawn, clean = random.Random(int(seed)), [], out / "clean"
    for package in sorted(TESTS):
        files = sorted(p.relative_to(clean).as_posix() for p in (clean / package).rglob("*.py"))
        every = [m for f in files if "drbench/torch/" not in f for m in find_mutants(clean, f)]
        drawn.append(chance.sample(every, -(-int(count) // len(TESTS))))
    mutants = [mutant for turn in zip(*drawn) for mutant in turn][: int(count)]
    reached, seconds = find_reaching(out / "reaching", mutants, out)
    rows = [*map(tuple, pd.read_csv(table, na_filter=False).values)] if table.exists() else []
    left = iter(sorted({*range(len(mutants))} - {row[0] for row in rows}))

    def judge(name: str) -> None:
        for number in left:
            path, line, first, last, new = mutants[number]
            tree, text, package = out / name, (clean / path).read_bytes(), path.split("/")[0]
            (tree / path).write_bytes(text[:first] + new + text[last:])
            folders = (f"{package}/", *(f"tests/{name}/" for name in TESTS[package].split()))
            tests = sorted(reached[number] | {test for test in seconds if test.startswith(path)})
            own = [test for test in tests if test.startswith(folders)]
            own = own[: sum(total <= FIRST_S for total in accumulate(map(seconds.get, own)))]
            killer = own and find_killer(tree, clean, "not thorough and not mpi", own, seconds)
            killer = killer or find_killer(tree, clean, "not thorough", tests, seconds)
            (tree / path).write_bytes(text)
            rows.append((number, path, line, text[first:last].decode(), new.decode(), killer or ""))
            pd.DataFrame(sorted(rows)).to_csv(table, index=False, header=COLUMNS.split())

    list(ThreadPoolExecutor().map(judge, ("one", "two")))
    print(f"{sum(bool(row[-1]) for row in rows)} of {len(rows)} mutants are killed: {table}")


if __name__ == "__main__":
    main()
