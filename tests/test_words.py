"""Identifiers, comments, docstrings, help texts, messages and pages keep to the list of words in
CONTRIBUTING.md.

``python tests/test_words.py drbench launch/host`` lists what is not in it, by file and line.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: What is read: sources, what comes with them, and pages.
FOLDERS = ("partitions", "algorithms", "drbench", "launch", "plots", "benchmarks", "examples")
FOLDERS += ("containers", "docs", "tests")
SUFFIXES = (".py", ".md", ".toml", ".j2", ".js", ".html", ".cu", ".sh", ".def")
#: The list itself, and what tests it.
NOT_READ = {ROOT / "CONTRIBUTING.md", Path(__file__)}


def read_list(text: str) -> tuple[re.Pattern, re.Pattern]:
    """What must not be written, and what is allowed nevertheless, from the table of the page."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.partition("| write | not | but |")[2].splitlines()[2:]
        if line.startswith("|")
    ]
    words = [word for _, never, _ in rows for word in never.split(", ") if word and "(" not in word]
    allowed = [phrase for *_, but in rows for phrase in but.split(", ") if phrase]
    return _any_of(words), _any_of(allowed)


def _any_of(phrases: list[str]) -> re.Pattern:
    spaced = [r"[\s\0]+".join(map(re.escape, phrase.split())) for phrase in phrases]
    return re.compile(rf"(?<![a-z])(?:{'|'.join(spaced)})(?![a-z])", re.I)


NEVER, ALLOWED = read_list((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def find(text: str) -> Iterator[tuple[int, str]]:
    """Line and word of each use, in the parts of identifiers too: ``tellApart``, ``is_told``."""
    blank = lambda found: re.sub(r"\S", " ", found[0])
    text = ALLOWED.sub(blank, text)
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "\0", text).replace("_", "\0")
    parts = re.sub(r"\n *#:? ?", "\n", parts)  # a phrase goes on in the next line of a comment
    for found in NEVER.finditer(parts):
        yield parts.count("\n", 0, found.start()) + 1, " ".join(found[0].replace("\0", " ").split())


def files(*folders: str) -> list[Path]:
    """The files of folders that are read."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in found if path.suffix in SUFFIXES and path not in NOT_READ)


@pytest.mark.parametrize("folder", [*FOLDERS, "."])
def test_words_are_those_of_the_list(folder):
    paths = files(folder) if folder != "." else sorted({*ROOT.glob("*.md")} - NOT_READ)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in paths
        for line, word in find(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_another_library_is_called_a_library():
    """A peer is another rank or GPU; of records of earlier releases some are named peers."""
    found = [
        f"{path.relative_to(ROOT)}: {used[0]}"
        for path in files("launch", "plots", "docs")
        for used in re.finditer(
            r"(?i)(?<!to-)(?<!CanAccess)(?<!by )(?<!all )(?<!one )(?<!one a )(?<![\"_])"
            r"peers?(?![a-z]|-p\d|-to-peer| access| copies| \| another rank)",
            path.read_text("utf-8"),
        )
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text, words",
    [
        ("the products of a rank", ["products"]),
        ("from itertools import product", []),
        ("an inner product", []),
        ("def productOf(x): ...", ["product"]),
        ("self.is_told = TOLD", ["told", "TOLD"]),
        ("they run in\n    # turn", ["in turn"]),
        ("def runs_in_turn(): ...", ["in turn"]),
        ("reproduction of a wallet", []),
        ("A stands here,\nB lies there", ["stands", "lies"]),
    ],
)
def test_words_are_found_in_text_and_in_identifiers(text, words):
    assert [word for _, word in find(text)] == words


if __name__ == "__main__":
    for path in files(*sys.argv[1:]):
        for line, word in find(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{line}: {word}")
