"""Tables of docs/reference, made from the code: options, columns, constants, presets."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Any

import drbench.launch.papers  # noqa: F401  (its figures)
from drbench import errors
from drbench.algorithms import algorithms
from drbench.algorithms.registry import texts_of
from drbench.launch.cases.case import FIELDS
from drbench.launch.cases.launchers import Launcher
from drbench.launch.cases.sweep_file import BLOCK_KEYS, FILE_KEYS
from drbench.mappings import grouped
from drbench.measure.record import Record
from drbench.model.gemm import Compute
from drbench.model.kernels import Fitted
from drbench.model.kernels.attention import DecodeAttention, PrefillAttention
from drbench.model.kernels.collectives import AllReduceKernel, Nccl
from drbench.model.kernels.experts import ExpertExchange, ExpertGemms
from drbench.model.machine import Collective, Link, Machine, Rate
from drbench.options import Option
from drbench.partitions import PRESETS
from drbench.partitions.text import LAYOUT_FORMS
from drbench.plots.registry import figures

from .tables import table


def _as_code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def algorithm_list() -> str:
    """Every algorithm: its layouts and its description."""
    lines = []
    for name, algorithm in algorithms().items():
        if name == "universal":
            layout = "any"
        elif "mesh" in algorithm.options or "replicas" in algorithm.options:
            layout = "blocks on the mesh"
        elif name == "dtensor_mm":
            layout = "row or column each"
        elif name in ("dispatch_moe", "moe_combine"):
            layout = "by experts"
        else:
            flow = algorithm.options.get("dataflow")
            given = [{"dataflow": value} for value in flow.type] if flow else [{}]
            own = (texts_of(algorithm.layout, 64, 64, 64, 4, **options) for options in given)
            layout = " or ".join(map(", ".join, own))
        lines.append((f"`{name}`", layout, algorithm.description.rstrip(".")))
    return table(["algorithm", "A, B, C", "what it does"], lines)


def _options(heading: str, options: Iterable[tuple[str, Option]]) -> str:
    """Values, default and meaning of options by their names."""
    lines = (
        (f"`{name}`", ", ".join(option.values), option.shown_default, option.help.rstrip("."))
        for name, option in options
    )
    return table([heading, "values", "default", "meaning"], lines)


def options_of(name: str) -> str:
    """The options of one algorithm."""
    return _options(
        "option", ((option.flag, option) for option in algorithms()[name].options.values())
    )


def options_of_every_run() -> str:
    """The ``-o`` options of every run."""
    return _options("option", ((field.flag, field) for field in FIELDS.values() if not field.group))


def sweep_keys(of: str) -> str:
    """Keys of a sweep ``file`` before its blocks, or of a ``block``."""
    return _options("key", {"file": FILE_KEYS, "block": BLOCK_KEYS}[of].items())


def case_keys() -> str:
    """The fields of a case that the command line has, too, by their heading there."""
    names = grouped((name for name in FIELDS if FIELDS[name].group), lambda x: FIELDS[x].group)
    return table(["options of", "keys"], ((kind, _as_code(group)) for kind, group in names.items()))


def layout_forms() -> str:
    """The text forms of partitions."""
    forms = ((text.split(", ") if '"' not in text else [text], what) for text, what in LAYOUT_FORMS)
    return table(["form", "meaning"], ((_as_code(texts), what) for texts, what in forms))


def preset_list() -> str:
    """The named triples of partitions."""
    lines = []
    for preset in PRESETS.values():
        first, *others = dict.fromkeys(preset.operands)
        operands = ", ".join(preset.operands) if others else f"all {first}"
        lines.append((f"`{preset.name}`", operands, preset.description, preset.source))
    return table(["preset", "A, B, C", "what it is, and what moves", "source"], lines)


def record_columns(first: str, last: str) -> str:
    """Columns of a record, from one to another."""
    columns = fields(Record)
    start, end = ([column.name for column in columns].index(name) for name in (first, last))
    described = (
        column.metadata["description"] + " (elements)" * (column.metadata["unit"] == "elements")
        for column in columns
    )
    lines = [(f"`{column.name}`", text) for column, text in zip(columns, described)]
    return table(["column", "meaning"], lines[start : end + 1])


_ATTRIBUTES = re.compile(r"^ {4}Attributes\n {4}-+\n(.*?)(?=^ {4}\w+\n {4}-+\n|\Z)", re.M | re.S)


def meanings(kind: type) -> dict[str, str]:
    """The first sentence or line of each attribute's description in a class's docstring.

    Examples
    --------
    >>> meanings(Rate)["row_s"]
    'Added for each row of such a block.'
    """
    (text,) = _ATTRIBUTES.findall(kind.__doc__ or "")
    described = re.findall(r"^ {4}(\w.*?) : .*\n {8}(.*)\n", text, re.M)
    return {name: about for names, about in described for name in names.split(", ")}


#: Constants in elements; all others have their units in their names, or none.
_ELEMENTS = {"edge", "k_ramp", "k_block"}


def _constants(kind: type, prefix: str, *without: str) -> Iterator[tuple[str, str]]:
    """Key and meaning of each constant of a dataclass, with its unit and default if these are not
    what the name and 0 say."""
    columns = {"intervals": meanings(Fitted)["intervals"]} | meanings(kind)
    for field in fields(kind):
        if field.name not in without and not field.name.startswith("_"):
            notes = ["elements"] * (field.name in _ELEMENTS)
            if field.default is MISSING:
                notes += ["needed"] * (field.default_factory is MISSING)
            elif field.default:
                notes.append(f"default {_written(field.default)}")
            note = f" ({', '.join(notes)})" if notes else ""
            yield f"`{prefix}{field.name}`", columns[field.name].rstrip(".") + note


def _written(value: Any) -> str:
    """A constant as a file has it.

    Examples
    --------
    >>> _written(1.0), _written((1.0, 1)), _written("fair"), _written(True)
    ('1', '[1, 1]', 'fair', 'true')
    """
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


#: Of measured kernels: what a machine fills in.
_FITTED = {field.name for field in fields(Fitted)} - {"intervals"}
#: The tables of measured kernels.
_KERNELS = {
    "compute.experts": ExpertGemms,
    "nccl": Nccl,
    "allreduces.ENGINE": AllReduceKernel,
    "prefill": PrefillAttention,
    "decode": DecodeAttention,
    "exchanges.KERNEL": ExpertExchange,
}


def machine_constants() -> str:
    """The keys of the section ``[model]`` of a machine file."""
    lines = [
        *_constants(Machine, "", "compute", "links", "collectives", "factors", "sources"),
        *_constants(Compute, "compute.", *_FITTED),
        *_constants(Link, "links.NAME.", "name", "get", "add"),
        *_constants(Rate, "links.NAME.core_"),
        *_constants(Collective, "collectives.OPERATION."),
        *(
            row
            for prefix, kind in _KERNELS.items()
            for row in _constants(kind, f"{prefix}.", *_FITTED)
        ),
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


def launcher_keys() -> str:
    """The keys of a machine file for starting ranks."""
    columns = meanings(Launcher)
    lines = ((f"`{key}`", columns[name]) for name, key in _OF_LAUNCHER.items())
    return table(["key", "meaning"], lines)


def figure_list() -> str:
    """The figures with their options, without those of one paper each."""
    flags = lambda figure: _as_code(f"--{option.replace('_', '-')}" for option in figure.takes)
    lines = (
        (f"`{figure.name}`", figure.summary, flags(figure))
        for figure in figures().values()
        if not figure.name.startswith(("llm-", "overlap-"))
    )
    return table(["figure", "what it draws", "options"], lines)


def exit_codes() -> str:
    """Exit codes with the status of a record that each belongs to."""
    about = {"ok": "Every result is right.", "wrong": "A result is wrong, or a comparison failed."}
    for kind in vars(errors).values():
        if isinstance(kind, type) and errors.DrbenchError in kind.__mro__[1:]:
            text = (kind.__doc__ or "").partition("\n")[0]
            if kind.status in about:
                text = f"{about[kind.status].rstrip('.')}, or {text[0].lower()}{text[1:]}"
            about[kind.status] = text
    lines = [(code, name, about[name]) for name, code in errors.EXIT_CODES.items()]
    lines.append((130, "", "Interrupted by Ctrl-C, SIGTERM or SIGHUP."))
    return table(["code", "status", "meaning"], lines)
