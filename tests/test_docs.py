"""Every path, command and option that the documentation names exists, in the help texts
too."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import click
import pytest
from begun import begun

from drbench.chains.model.description import read
from drbench.launch.commands.cli import cli
from drbench.measure.record import HEADER, Record

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
#: Folders whose names begin a path, and where such a path may begin.
TOP = {path.name for base in (ROOT, ROOT / "results") for path in base.iterdir() if path.is_dir()}
#: Files that a run makes, or that a reader names.
MADE = re.compile(r"results/measured/(here|gpu-check|before)\b|.*/(NAME|yours)\b")


def code(text: str) -> list[str]:
    """Lines of the code blocks, indented ones included, and texts between backticks."""
    fence = re.compile(r"^```.*?\n(.*?)^```", re.M | re.S)
    blocks = fence.findall(text) + re.findall(r"(?:^ {4}.*\n?)+", fence.sub("", text), re.M)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.strip() for line in lines] + re.findall(r"`([^`\n]+)`", fence.sub("", text))


def paths(text: str) -> set[str]:
    """Paths below the checkout, with their wildcards, without ``:line`` and placeholders.

    >>> paths("`launch/no.py:3` `and/or`\\n\\n    python plots/no.py < in\\n") == {
    ...     "launch/no.py",
    ...     "plots/no.py",
    ... }
    True
    """
    words = re.findall(r"[\w.*/-]+", " ".join(code(text)))
    return {
        word.rstrip("/.")
        for word in words
        if word.partition("/")[0] in TOP and "/" in word.rstrip("/") and not MADE.match(word)
    }


def commands(text: str) -> list[list[str]]:
    """Every ``drbench …``, as words."""
    found = []
    for line in code(text):
        start = re.search(r"(?:^|(?<=[ /]))drbench (?=[a-z-])", line)
        if start is None or re.match(r"#|\S*pip |cd ", line):
            continue
        line = re.split(r"\s#|\s[>|<&]|;|…", line[start.end() :])[0]
        line = re.sub(r"^--plugin \S+ ", "", line)
        found.append(shlex.split(re.sub(r"[\[\]]", "", line)))
    return found


def parse(words: list[str], command: click.Command = cli) -> None:
    """Look at the names of commands and options, at how many values they have, and at those values
    that are of a list; a placeholder in capitals is any value."""
    # a command keeps the help option of its first context
    context = click.Context(command, info_name="drbench", **cli.context_settings)
    if isinstance(command, click.Group) and not words:
        return None
    if isinstance(command, click.Group) and words[0] in command.list_commands(context):
        return parse(words[1:], command.get_command(context, words[0]))
    values, left, _ = command.make_parser(context).parse_args(list(words))
    old = [name for name in values if name.startswith("--")]  # names of earlier releases
    if old:
        raise click.UsageError(f"{old[0]} is an old name")
    if left:
        raise click.UsageError(f"{left} left over")
    for option in command.params:
        value = values.get(option.name)
        if isinstance(option.type, click.Choice) and isinstance(value, str) and not value.isupper():
            option.type.convert(value, option, context)


def help_texts(command: click.Command):
    """The examples in the help text of the command and of all below it, as blocks of pages."""
    yield (
        "```\n" + "".join(re.findall(r"^ *\x08\n((?:.+\n?)+)", command.help or "", re.M)) + "\n```"
    )
    if isinstance(command, click.Group):
        context = click.Context(command, **cli.context_settings)
        for word in command.list_commands(context):
            yield from help_texts(command.get_command(context, word))


def test_every_file_that_a_page_names_exists():
    there = lambda path: any(
        [*top.glob(path), *top.glob(f"{path}.*")] for top in (ROOT, ROOT / "results")
    )
    named = {(page.name, path) for page in PAGES for path in paths(page.read_text("utf-8"))}
    assert len(named) > 80
    assert {each for each in named if not there(each[1])} == set()


#: Commands whose work begins with their words alone, and what is in those that need a file or an
#: algorithm of the reader's, or are shown because they are refused.
QUICK = ("run", "plan", "simulate", "explain", "tune", "chain", "sweep")
NOT_SO = {
    "mine.toml",
    "cluster.toml",
    "machine=mine.toml",
    "./mine.toml",
    "./mycluster.toml",
    "./cluster.toml",
    "bounds.csv",
    "run.json",
    "rows",
    "unfenced",
    "colum",
}
NOT_SO |= {"./config.json:block", "./layer.txt"}


#: A sweep of all layouts of 12 ranks has thousands of cases, that of 2 the same options.
FEWER = {"exhaustive -p 12 ": "exhaustive -p 2 "}


def test_every_command_of_a_page_of_a_help_text_and_of_the_container_is_accepted(
    monkeypatch, capsys
):
    """Commands and options by their names; those that run, plan or predict up to their work: values
    and combinations too, where missing software (3) is allowed."""
    monkeypatch.chdir(ROOT)
    container = ROOT / "containers/drbench.def"
    texts = [*(page.read_text("utf-8") for page in (*PAGES, container)), *help_texts(cli)]
    lines = {shlex.join(words): words for text in texts for words in commands(text)}
    assert len(lines) > 150
    refused = {}
    for line, words in lines.items():
        try:
            parse(words)
        except click.ClickException as error:
            refused[line] = error.format_message()
            continue
        whole = {"-m", "--preset"} & {*words} or words[0] == "sweep" and words[1:]
        known = not any(word in NOT_SO or word.isupper() or "$" in word for word in words)
        if words[0] in QUICK and whole and known:
            for long, short in FEWER.items():
                words = shlex.split(line.replace(long, short))
            code, described = begun(words, monkeypatch), capsys.readouterr().err
            if code not in (0, 3):
                refused[line] = described
    assert refused == {}


@pytest.mark.parametrize(
    "command, fault",
    [
        ("drbench runn -p 4", "'runn'"),
        ("drbench run -p 4 --presets row", "--presets"),
        ("drbench plan -p", "-p"),
        ("drbench plan -p 2 drbench plan -p 3", "drbench"),
    ],
)
def test_a_wrong_command_is_found(command, fault):
    (words,) = commands(f"```\n{command}\n```")
    with pytest.raises(click.ClickException) as error:
        parse(words)
    assert fault in error.value.format_message()


def test_the_chain_of_the_page_is_read():
    page = (ROOT / "docs/how-to/layer-chains.md").read_text("utf-8")
    chain = read(
        re.search(r"```text\n(X = .*?)^```", page, re.M | re.S)[1], "layer.txt", backward=True
    )
    assert len(chain.multiplications) == 12


def test_the_functions_of_the_call_tree_are_in_their_files():
    page = (ROOT / "docs/explanation/internals.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"^```text\n(main .*?)^```", page, re.M | re.S)
    for function, path, *_ in map(str.split, tree.splitlines()):
        text = (ROOT / path).read_text("utf-8")
        assert re.search(rf"(def|class) {function}\b", text), (function, path)


def test_the_columns_of_a_record_are_all_on_the_page_and_described():
    lines = (ROOT / "docs/reference/records.md").read_text(encoding="utf-8").splitlines()
    listed = [found[1] for line in lines if (found := re.match(r"\| `(\w+)` \|", line))]
    assert listed == [*HEADER]
    assert all(each.metadata["description"] for each in fields(Record))


def test_no_line_of_a_page_is_lost_as_a_comment():
    """Of a line that begins with %, MyST makes a comment unless conf.py forbids it."""
    blocks = re.compile(r"^```.*?^```", re.M | re.S)
    texts = {page.name: blocks.sub("", page.read_text("utf-8")) for page in PAGES}
    assert [name for name, text in texts.items() if re.search("^%", text, re.M)] == []


def test_every_row_of_a_table_belongs_to_one():
    """A table begins with a header and a rule; rows after an empty line are plain text."""
    rows = re.compile(r"(?<![^\n]\n)(?:^\|.*\n)+", re.M)
    for page in PAGES:
        for found in rows.findall(page.read_text("utf-8")):
            assert re.match(r"\|.*\n\|[ :|-]+\n", found), (page.name, found[:80])
