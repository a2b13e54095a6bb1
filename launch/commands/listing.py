"""``drbench list``: the algorithms, libraries, machines and so on, and their options."""

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from algorithms import algorithms, get_algorithm
from drbench.common import TransportChoice
from drbench.errors import UsageError, did_you_mean
from drbench.model.machine import Machine
from drbench.model.machine_file import ARITHMETICS
from drbench.options import Option
from drbench.texts import number
from launch.cases.case import FIELDS, OURS
from launch.cases.machine_models import describe_file, file_of, find_machine, machine_names
from launch.cases.sweep_values import read_toml, shipped
from launch.host.show import console, table
from launch.libraries import LIBRARIES, get_library
from partitions import PRESETS
from partitions.text import LAYOUT_FORMS, added_kinds

from .completion import NAMES, complete_list, one_of
from .options import command, json_option

Row = tuple[str, ...]


class _Kind(NamedTuple):
    """A kind of things to list: columns, rows (the name first), and a function that describes the
    one of a name."""

    columns: str
    rows: Callable[[], Iterable[Row]]
    show: Callable[[str], str] | None = None


@command("list")
@click.argument("what", required=False, metavar="[KIND]", shell_complete=one_of(*NAMES))
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_list)
@json_option()
def list_(what, name, as_json):
    """List everything of a KIND, or describe the one called NAME with its options: {kinds}.

    \b
      drbench list algorithms
      drbench list algorithms universal
      drbench list machines h100x8

    Without KIND all names are listed.
    """
    if what is None:
        rows = [(kind, " ".join(row[0] for row in KINDS[kind].rows())) for kind in KINDS]
        return _print("kind|~names", rows, as_json)
    _check_name(what, KINDS, f"list of {what}")
    kind = KINDS[what]
    if name is None:
        return _print(kind.columns, kind.rows(), as_json)
    if what in ("machines", "chains") and not as_json:  # files, too
        return print(kind.show(name).rstrip("\n"))
    rows = [*kind.rows()]
    if kind.show is None:  # tiles is tiles:128x96@2x3
        so = [row[0] for row in rows if row[0].startswith(name)]
        name = min(so, key=len, default=name)
    _check_name(name, [row[0] for row in rows], f"{name!r} among {what}")
    if as_json or kind.show is None:
        return _print(kind.columns, [row for row in rows if row[0] == name], as_json)
    return print(kind.show(name).rstrip("\n"))


def _print(columns: str, rows: Iterable[Row], as_json: bool) -> None:
    if as_json:
        names = [name.lstrip(">~ ") for name in columns.split("|")]
        for row in rows:
            print(json.dumps(dict(zip(names, row))))
    else:
        console().print(table(columns, rows))


def _check_name(name: str, known: Iterable[str], what: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"there is no {what}. There are {', '.join(known)}.{hint}")


def _algorithm(name: str) -> str:
    found = get_algorithm(name)
    return f"{name}: {found.description}\n\n{_options(name, found.options, ())}"


def _library(name: str) -> str:
    found, (_, _, description) = get_library(name), _library_row(name)
    return f"{name}: {description}\n\n{_options(name, found.options, OURS)}"


def _options(name: str, own: Mapping[str, Option], out_of_reach: Collection[str]) -> str:
    """The options of an algorithm or library, and those of every run by ``-o``."""
    out = click.HelpFormatter(width=min(shutil.get_terminal_size().columns, 100))
    every = [each for each in FIELDS.values() if not (each.group or each.name in out_of_reach)]
    for title, options in ((f"Options of {name}", own.values()), ("Of every run, by -o", every)):
        if options:
            with out.section(title):
                out.write_dl([_described(each) for each in options])
    return out.getvalue()


def _described(option: Option) -> tuple[str, str]:
    """An option with its value, and its help.

    Examples
    --------
    >>> _described(Option("width", int, 4, words=("all",), least=1, help="how wide."))
    ('-o width=N|all', 'how wide. [default: 4]')
    """
    value = "|".join(option.values)
    more = f" [default: {option.shown_default}]" if option.shown_default else ""
    return f"{option.flag}{' ' if option.group else '='}{value}", f"{option.help}{more}"


def _preset(name: str) -> str:
    found = PRESETS[name]
    texts = ", ".join(f"{x} {text}" for x, text in zip("ABC", found.operands))
    return f"{name}: {found.description}\n{texts}\n{found.source}"


def _machine(name: str) -> str:
    _seen(name)  # raises an error for an unknown machine
    return f"# {file_of(name)}\n{Path(file_of(name)).read_text(encoding='utf-8')}"


def _library_row(name: str) -> Row:
    library = get_library(name)
    found = library.available()
    remedy = "" if found.ok else f". {found.get}"
    return name, "yes" if found.ok else "no", f"{library.description}\n{found.what}{remedy}"


def _machine_row(name: str) -> Row:
    """Each class of links with its bandwidth, the nearest ranks first, and each element type with
    its peak."""
    machine = _seen(name)
    links = (
        f"{link.name} {'in place' if link.free else _rate(link.bandwidth_bytes_per_s / 1e9)}"
        for link in machine.links
    )
    peaks = machine.peaks
    described = (f"{each} {_rate(peaks[each] / 1e12)}" for each in ARITHMETICS if each in peaks)
    ranks = "RxC" if machine.torus else str(machine.devices or "any")
    return name, ranks, ", ".join(links), ", ".join(described), str(len(machine.assumed))


def _rate(value: float) -> str:
    return number(value, 4)


def _seen(name: str) -> Machine:
    """The machine of a name with its links; a torus without a shape gets 4 x 4 devices."""
    shapeless = name in machine_names() and "torus" in read_toml(file_of(name))["model"]
    return find_machine(f"{name}-4x4" if shapeless else name).for_transport(TransportChoice("auto"))


def _figures() -> Iterable[Row]:
    from plots.registry import figures

    for figure in figures().values():
        takes = " ".join(f"--{each.replace('_', '-')}" for each in figure.takes)
        yield figure.name, figure.summary, takes


def _chains() -> Iterable[Row]:
    from algorithms.chains.presets import presets

    return [(name,) for name in presets()]


def _chain(name: str) -> str:
    """The text of a preset, with one sequence: to be changed and given as a file."""
    from algorithms.chains.presets import text_of

    return text_of(name)


_TRANSPORTS = [
    ("auto", "in place if the rank's memory is shared, else RMA"),
    ("direct", "in place only: tiles are read without a copy and accumulated under locks"),
    ("rma", "MPI Rget and Raccumulate, even on one node"),
    ("throttled:GBps,us", "in place, a timer completes each transfer; for overlap experiments"),
]
KINDS = {
    "algorithms": _Kind(
        "algorithm|~about",
        lambda: [(name, each.description) for name, each in algorithms().items()],
        _algorithm,
    ),
    "partitions": _Kind("partition|~about", lambda: [*LAYOUT_FORMS, *added_kinds()]),
    "presets": _Kind(
        "preset|~about|~source",
        lambda: [(name, each.description, each.source) for name, each in PRESETS.items()],
        _preset,
    ),
    "libraries": _Kind("library|here|~what", lambda: map(_library_row, LIBRARIES), _library),
    "machines": _Kind(
        "machine|ranks|~links, GB/s|~peaks of a device, TFLOP/s|>assumed",
        lambda: map(_machine_row, machine_names()),
        _machine,
    ),
    "launchers": _Kind(
        "launcher|~about",
        lambda: [(name, describe_file(path)) for name, path in shipped("machines").items()],
        lambda name: shipped("machines")[name].read_text("utf-8"),
    ),
    "transports": _Kind("transport|~about", lambda: _TRANSPORTS),
    "sweeps": _Kind(
        "sweep|~about",
        lambda: [
            (name, read_toml(path)["description"]) for name, path in shipped("sweeps").items()
        ],
        lambda name: shipped("sweeps")[name].read_text("utf-8"),
    ),
    "figures": _Kind("figure|~about|~takes", _figures),
    "chains": _Kind("chain", _chains, _chain),
}
list_.help = (list_.help or "").replace("{kinds}", ", ".join(KINDS))
