"""``drbench list``: what there is to choose from, and what one of it takes."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click

from algorithms import algorithms, get_algorithm
from drbench.common import TransportChoice
from drbench.errors import UsageError, did_you_mean
from drbench.model.machine import Link, Machine
from drbench.model.machine_file import ARITHMETICS
from drbench.options import Option
from launch.cases.case import FIELDS, LIBRARY_FIELDS
from launch.cases.machine_models import about_file, file_of, find_machine, machine_names
from launch.cases.sweep_values import read_toml, shipped
from launch.host.show import console, table
from launch.peers import get_peer, peers
from partitions import PRESETS

from .options import command, json_option


class _Kind(NamedTuple):
    """Something that there are several of: columns of the list, its rows (the name first), and what
    shows the one of a name."""

    columns: str
    rows: Callable[[], Iterable[tuple[str, ...]]]
    show: Callable[[str], None] | None = None


@command("list")
@click.argument("what", required=False, metavar="[KIND]")
@click.argument("name", required=False, metavar="[NAME]")
@json_option()
def list_(what, name, as_json):
    """List what there is of a KIND, and with NAME one of it with its options: {kinds}.

    \b
      drbench list algorithms
      drbench list algorithms universal
      drbench list machines h100x8

    Without KIND the names of all.
    """
    if what is None:
        rows = [(kind, " ".join(row[0] for row in KINDS[kind].rows())) for kind in KINDS]
        return _print("kind|~names", rows, as_json)
    if what not in KINDS:
        hint = did_you_mean(what, KINDS)
        raise UsageError(f"there is no list of {what}. There are {', '.join(KINDS)}.{hint}")
    kind = KINDS[what]
    if what == "machines" and as_json:
        for each in [name] if name else machine_names():
            print(json.dumps(_told(each, _seen(each))))
        return None
    if name is None:
        return _print(kind.columns, kind.rows(), as_json)
    if as_json or kind.show is None:
        given = "--json" if as_json else name
        raise UsageError(f"drbench list {what} takes no {given} here. Leave it out.")
    known = [row[0] for row in kind.rows()] if what != "machines" else ()  # a file is one, too
    if known and name not in known:
        raise UsageError(
            f"there is no {name!r} among {what}. There are {', '.join(known)}."
            f"{did_you_mean(name, known)}"
        )
    return kind.show(name)


def _print(columns: str, rows: Iterable[tuple[str, ...]], as_json: bool) -> None:
    if as_json:
        names = [name.lstrip(">~ ") for name in columns.split("|")]
        for row in rows:
            print(json.dumps(dict(zip(names, row))))
    else:
        console().print(table(columns, rows))


def _show_algorithm(name: str) -> None:
    found = get_algorithm(name)
    print(f"{name}: {found.about}\n")
    _show_options(name, found.options, FIELDS.values())


def _show_library(name: str) -> None:
    found = get_peer(name)
    here = found.available()
    print(f"{name}: {found.about}\n{here.what}{'' if here.ok else f'. {here.get}'}\n")
    _show_options(name, found.options, [FIELDS[each] for each in LIBRARY_FIELDS])


def _show_options(name: str, own: dict[str, Option], fields: Iterable[Option]) -> None:
    """Print the options of an algorithm or library, and what every run takes by ``-o``."""
    out = click.HelpFormatter(width=min(shutil.get_terminal_size().columns, 100))
    for title, options in (
        (f"Options of {name}", own.values()),
        ("Of every run, by -o", [each for each in fields if not each.group]),
    ):
        if options:
            with out.section(title):
                out.write_dl([_described(each) for each in options])
    print(out.getvalue(), end="")


def _described(option: Option) -> tuple[str, str]:
    """How an option is written, and what it does.

    Examples
    --------
    >>> _described(Option("width", int, 4, words=("all",), least=1, help="how wide."))
    ('-o width=N|all', 'how wide. [default: 4]')
    """
    words = option.type if isinstance(option.type, tuple) else option.words
    kinds = {int: "SIZE" if option.unit else "N", float: "NUMBER", bool: "true|false", str: "TEXT"}
    kind = () if isinstance(option.type, tuple) else (kinds[option.type],)
    value = option.metavar or "|".join((*kind, *words))
    default = option.says or ("" if option.default is None else str(option.default).lower())
    more = f" [default: {default}]" if default else ""
    return f"{option.flag}{' ' if option.group else '='}{value}", f"{option.help}{more}"


def _show_preset(name: str) -> None:
    found = PRESETS[name]
    texts = ", ".join(f"{x} {text}" for x, text in zip("ABC", found.operands))
    print(f"{name}: {found.about}\n{texts}\n{found.source}")


def _show_machine(name: str) -> None:
    _seen(name)  # which refuses what is no machine
    print(f"# {file_of(name)}\n{Path(file_of(name)).read_text(encoding='utf-8')}", end="")


def _libraries() -> Iterable[tuple[str, ...]]:
    for peer in peers().values():
        found = peer.available()
        told = found.what if found.ok else f"{found.what}. {found.get}"
        yield peer.name, "yes" if found.ok else "no", f"{peer.about}\n{told}"


def _machines() -> Iterable[tuple[str, ...]]:
    for name in machine_names():
        machine = _seen(name)
        yield name, _size(machine), _tiers(machine), _peaks(machine), str(len(machine.assumed))


def _figures() -> Iterable[tuple[str, ...]]:
    from plots.registry import figures

    for figure in figures().values():
        takes = " ".join(f"--{each.replace('_', '-')}" for each in figure.takes)
        yield figure.name, figure.summary, takes


def _chains() -> Iterable[tuple[str, ...]]:
    from algorithms.chains.presets import presets

    return [(name,) for name in presets()]


_PARTITIONS = [
    ("row", "row blocks, one tile a rank"),
    ("column", "column blocks, one tile a rank"),
    (
        "block, block:3x2, block:3x2:col",
        "2-D blocks on a near-square or given process grid, ranks row- or column-major",
    ),
    ("tiles:128x96@2x3, ...:col", "block-cyclic: tiles of 128x96 dealt to a 2x3 process grid"),
    ("traditional, traditional:3x4", "tiles of A, B and C that align on one process grid"),
    (".../cN", "N replicas; N divides the ranks"),
    (
        'S(0), S(1), R, "S(0),R@2x3"',
        "DTensor placements on a mesh; _S(0,2) is _StridedShard, P (for C) leaves its sum pending",
    ),
]
_TRANSPORTS = [
    ("auto", "in place where a rank's memory can be reached, RMA elsewhere"),
    ("direct", "in place only: tiles are read without a copy, added to under locks"),
    ("rma", "MPI Rget and Raccumulate, even on one node"),
    ("throttled:GBps,us", "in place, each transfer completing by a timer; for overlap experiments"),
]
KINDS = {
    "algorithms": _Kind(
        "algorithm|~about",
        lambda: [(name, each.about) for name, each in algorithms().items()],
        _show_algorithm,
    ),
    "partitions": _Kind("partition|~about", lambda: _PARTITIONS),
    "presets": _Kind(
        "preset|~about|~source",
        lambda: [(name, each.about, each.source) for name, each in PRESETS.items()],
        _show_preset,
    ),
    "libraries": _Kind("library|here|~what", _libraries, _show_library),
    "machines": _Kind(
        "machine|ranks|~links, GB/s|~peaks of a device, TFLOP/s|>assumed",
        _machines,
        _show_machine,
    ),
    "launchers": _Kind(
        "launcher|~about",
        lambda: [(name, about_file(path)) for name, path in shipped("machines").items()],
        lambda name: print(shipped("machines")[name].read_text()),
    ),
    "transports": _Kind("transport|~about", lambda: _TRANSPORTS),
    "sweeps": _Kind(
        "sweep|~about",
        lambda: [(name, read_toml(path)["about"]) for name, path in shipped("sweeps").items()],
        lambda name: print(shipped("sweeps")[name].read_text()),
    ),
    "figures": _Kind("figure|~about|~takes", _figures),
    "chains": _Kind("chain", _chains),
}
list_.help = (list_.help or "").replace("{kinds}", ", ".join(KINDS))


def _seen(name: str) -> Machine:
    """A machine with its links; a torus without a shape on 4 x 4 devices."""
    shapeless = name in machine_names() and "torus" in read_toml(file_of(name))["model"]
    return find_machine(f"{name}-4x4" if shapeless else name).for_transport(TransportChoice("auto"))


def _size(machine: Machine) -> str:
    if machine.torus:
        return "RxC"
    return str(machine.devices or "any")


def _rate(value: float) -> str:
    return f"{value:.4g}"


def _speed(link: Link) -> str:
    return "in place" if link.free else _rate(link.bandwidth_bytes_per_s / 1e9)


def _peaks(machine: Machine) -> str:
    """Each element type and its peak."""
    told = [
        f"{name} {_rate(machine.peaks[name] / 1e12)}"
        for name in ARITHMETICS
        if name in machine.peaks
    ]
    return ", ".join(told) + (" (measured)" if machine.compute.peak_measured else "")


def _tiers(machine: Machine) -> str:
    """Each class of links and its bandwidth, the nearest ranks first."""
    return ", ".join(f"{link.name} {_speed(link)}" for link in machine.links)


def _told(name: str, machine: Machine) -> dict:
    """As data: bytes and FLOPs a second, seconds."""
    return {
        "machine": name,
        "about": about_file(file_of(name)),
        "file": str(file_of(name)),
        "devices": None if machine.torus else machine.devices,
        "dtype": machine.dtype,
        "peaks": machine.peaks,
        "tiers": [
            {
                "name": link.name,
                "within": link.within,
                "shared": link.shared,
                "bandwidth_bytes_per_s": None if link.free else link.bandwidth_bytes_per_s,
                "latency_s": link.latency_s,
                "through": list(link.through),
            }
            for link in machine.links
        ],
        "assumed": list(machine.assumed),
        "calibrated": machine.calibrated,
    }
