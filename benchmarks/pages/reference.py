"""Tables of docs/reference, made from the code: options, columns, constants, presets."""

import re
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

import drbench.launch.papers  # noqa: F401  (its figures)
from drbench import errors
from drbench.algorithms import algorithms
from drbench.algorithms.registry import texts_of
from drbench.launch.cases.case import FIELDS
from drbench.launch.cases.launchers import Launcher
from drbench.launch.cases.sweep_file import BLOCK_KEYS, FILE_KEYS
from drbench.measure.record import KINDS, Record
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine, Rate
from drbench.options import Option
from drbench.partitions import PRESETS
from drbench.partitions.text import LAYOUT_FORMS
from drbench.plots.registry import figures

from .tables import block, table


def _as_code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _described(option: Option) -> tuple[str, str, str]:
    """Values, default and meaning of an option."""
    return ", ".join(option.values), option.shown_default, option.help.rstrip(".")


_OPTION = ("values", "default", "meaning")


@block
def algorithm_list() -> str:
    """Every algorithm: its layouts and its description."""
    lines = []
    for name, each in algorithms().items():
        if name == "universal":
            layout = "any"
        elif "mesh" in each.options or "replicas" in each.options:
            layout = "blocks on the mesh"
        elif name == "dtensor_mm":
            layout = "row or column each"
        else:
            flows = each.options["dataflow"].type if "dataflow" in each.options else ("",)
            given = [{"dataflow": flow} if flow else {} for flow in flows]
            own = [texts_of(each.layout, 64, 64, 64, 4, **flow) for flow in given]
            layout = " or ".join(", ".join(texts) for texts in own)
        lines.append((f"`{name}`", layout, each.description.rstrip(".")))
    return table(["algorithm", "A, B, C", "what it does"], lines)


@block
def options_of(name: str) -> str:
    """The options of one algorithm."""
    lines = [(f"`{each.flag}`", *_described(each)) for each in _own(name)]
    return table(["option", *_OPTION], lines)


def _own(name: str) -> list[Option]:
    return list(algorithms()[name].options.values())


@block
def options_of_every_run() -> str:
    """The ``-o`` options of every run."""
    lines = [(f"`{e.flag}`", *_described(e)) for e in FIELDS.values() if not e.group]
    return table(["option", *_OPTION], lines)


@block
def layout_forms() -> str:
    """The text forms of partitions."""
    lines = [
        (_as_code(form.split(", ") if '"' not in form else [form]), what)
        for form, what in LAYOUT_FORMS
    ]
    return table(["form", "meaning"], lines)


@block
def preset_list() -> str:
    """The named triples of partitions."""
    lines = []
    for each in PRESETS.values():
        alike = len({*each.operands}) == 1
        operands = f"all {each.operands[0]}" if alike else ", ".join(each.operands)
        lines.append((f"`{each.name}`", operands, each.description, each.source))
    return table(["preset", "A, B, C", "what it is, and what moves", "source"], lines)


@block
def sweep_keys(of: str) -> str:
    """Keys of a sweep ``file`` before its blocks, or of a ``block``."""
    known = {"file": FILE_KEYS, "block": BLOCK_KEYS}[of]
    lines = []
    for name, each in known.items():
        values, *rest = _described(each)
        lines.append((f"`{name}`", values if len(each.values) < 9 else "names", *rest))
    return table(["key", *_OPTION], lines)


@block
def case_keys() -> str:
    """The fields of a case that the command line has, too, by their heading there."""
    found: dict[str, list[str]] = {}
    for name, each in FIELDS.items():
        if each.group:
            found.setdefault(each.group, []).append(name)
    return table(["options of", "keys"], [(kind, _as_code(names)) for kind, names in found.items()])


@block
def record_columns(first: str, last: str) -> str:
    """Columns of a record, from one to another."""
    names = [*KINDS]
    between = names[names.index(first) : names.index(last) + 1]
    columns = {each.name: each.metadata for each in fields(Record)}
    unit = lambda name: " (elements)" if columns[name]["unit"] == "elements" else ""
    lines = [(f"`{name}`", columns[name]["description"] + unit(name)) for name in between]
    return table(["column", "meaning"], lines)


_ATTRIBUTES = re.compile(r"^ {4}Attributes\n {4}-+\n(.*?)(?=^ {4}\w+\n {4}-+\n|\Z)", re.M | re.S)


def meanings(kind: type) -> dict[str, str]:
    """The first sentence or line of each attribute's description in a class's docstring.

    Examples
    --------
    >>> meanings(Rate)["row_s"]
    'Added for each row of such a block.'
    """
    (text,) = _ATTRIBUTES.findall(kind.__doc__ or "")
    found: dict[str, str] = {}
    for names, about in re.findall(r"^ {4}(\w.*?) : .*\n((?: {8}.*\n)+)", text, re.M):
        for name in names.split(", "):
            found[name] = about.splitlines()[0].strip()
    return found


#: Constants in elements; all others have their units in their names, or none.
_ELEMENTS = {"edge", "k_ramp", "k_block"}


def _constants(kind: type, prefix: str, *without: str) -> list[tuple[str, str]]:
    """Key and meaning of each constant of a dataclass, with its unit and default if these are not
    what the name and 0 say."""
    columns, lines = meanings(kind), []
    for each in fields(kind):
        if each.name in without or each.name.startswith("_"):
            continue
        notes = ["elements"] * (each.name in _ELEMENTS)
        if (default := _default(each)) == "needed":
            notes.append(default)
        elif default not in ("", "0", "false", "[]"):
            notes.append(f"default {default}")
        note = f" ({', '.join(notes)})" if notes else ""
        lines.append((f"`{prefix}{each.name}`", columns[each.name].rstrip(".") + note))
    return lines


def _default(each: Any) -> str:
    if each.default is MISSING:
        return "needed" if each.default_factory is MISSING else ""
    value = each.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_written(one) for one in value)}]"
    return "" if value is None else _written(value)


def _written(value: Any) -> str:
    """A constant as a file has it.

    Examples
    --------
    >>> _written(0.0), _written((1, 1)), _written("fair")
    ('0', '[1, 1]', 'fair')
    """
    if isinstance(value, tuple):
        return str([*value])
    return f"{value:g}" if isinstance(value, float) else str(value)


@block
def machine_constants() -> str:
    """The keys of the section ``[model]`` of a machine file."""
    lines = [
        *_constants(Machine, "", "compute", "links", "collectives", "factors", "sources"),
        *_constants(Compute, "compute."),
        *_constants(Link, "links.NAME.", "name", "get", "add"),
        *_constants(Rate, "links.NAME.core_"),
        *_constants(Collective, "collectives.OPERATION."),
    ]
    return table(["key", "meaning"], lines)


#: Where a file has what a launcher consists of.
_OF_LAUNCHER = {
    "words": "[launch] launcher",
    "ranks_per_node": "[launch] ranks_per_node",
    "cores_per_node": "[launch] cores_per_node",
    "sbatch": "[launch] sbatch",
    "modules": "[modules] load",
    "environment": "[environment] NAME",
}


@block
def launcher_keys() -> str:
    """The keys of a machine file for starting ranks."""
    columns = meanings(Launcher)
    return table(
        ["key", "meaning"], [(f"`{key}`", columns[at]) for at, key in _OF_LAUNCHER.items()]
    )


@block
def figure_list() -> str:
    """The figures with their options, without those of one paper each."""
    lines = [
        (
            f"`{each.name}`",
            each.summary,
            _as_code(f"--{option.replace('_', '-')}" for option in each.takes),
        )
        for each in figures().values()
        if not each.name.startswith(("llm-", "overlap-"))
    ]
    return table(["figure", "what it draws", "options"], lines)


@block
def exit_codes() -> str:
    """Exit codes with the status of a record that each belongs to."""
    about = {"ok": "Every result is right.", "wrong": "A result is wrong, or a comparison failed."}
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    for each in kinds:
        if issubclass(each, errors.DrbenchError) and each is not errors.DrbenchError:
            text = (each.__doc__ or "").partition("\n")[0]
            if each.status in about:
                text = f"{about[each.status].rstrip('.')}, or {text[0].lower()}{text[1:]}"
            about[each.status] = text
    lines = [(code, name, about[name]) for name, code in errors.EXIT_CODES.items()]
    lines.append((130, "", "Interrupted by Ctrl-C, SIGTERM or SIGHUP."))
    return table(["code", "status", "meaning"], lines)
