"""``drbench list``: the algorithms, libraries, machines and so on, and their options."""

import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import click

from drbench.algorithms import algorithms, get_algorithm
from drbench.errors import UsageError, did_you_mean
from drbench.launch.cases.case import FIELDS, OURS
from drbench.launch.cases.machine_models import describe_file, file_of, find_machine, machine_names
from drbench.launch.cases.sweep_values import read_toml, shipped
from drbench.launch.libraries import LIBRARIES, get_library
from drbench.model.machine import Machine
from drbench.options import Option
from drbench.partitions import PRESETS
from drbench.partitions.text import LAYOUT_FORMS, added_kinds
from drbench.texts import number
from drbench.transport import TransportChoice

from .completion import NAMES, complete_list, one_of
from .options import FORM, command, json_option

Row = tuple[str, ...]


class _Listing(NamedTuple):
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
    """List everything of a KIND, one per line, or describe the one called NAME: {kinds}.

    \b
      drbench list algorithms
      drbench list algorithms universal
      drbench list machines h100x8

    Without KIND the kinds are listed.
    """
    if what is None:
        rows = [(kind, " ".join(NAMES[kind]())) for kind in KINDS]
        return _print("kind|names", rows, as_json)
    _check_name(what, KINDS, f"list of {what}")
    kind = KINDS[what]
    if name is None:
        first = _FIRST.get(what, "").split()
        place = lambda row: first.index(row[0]) if row[0] in first else len(first)
        return _print(kind.columns, sorted(kind.rows(), key=place), as_json)
    if what in ("machines", "chains") and not (as_json or FORM.get()):  # files, too
        return print(kind.show(name).rstrip("\n"))
    rows = [*kind.rows()]
    if kind.show is None:  # tiles is tiles:128x96@2x3
        so = [row[0] for row in rows if row[0].startswith(name)]
        name = min(so, key=len, default=name)
    _check_name(name, [row[0] for row in rows], f"{name!r} among {what}")
    if as_json or FORM.get() or kind.show is None:
        return _print(kind.columns, [row for row in rows if row[0] == name], as_json, whole=True)
    return print(kind.show(name).rstrip("\n"))


#: What most users look for, by kind: it comes first.
_FIRST = {
    "algorithms": "universal summa cannon collective meshslice ag_gemm gemm_rs",
    "machines": "h100x8 dgxh100 h200x8 gb200nvl72 mi300x pvc12",
    "sweeps": "mlp square libraries algorithms scaling exhaustive",
}


def _print(columns: str, rows: Iterable[Row], as_json: bool, whole: bool = False) -> None:
    """Print rows as JSON, or a line each, cut at the width of the terminal unless ``whole``."""
    names, rows = columns.split("|"), [*rows]
    if FORM.get():
        from drbench.launch.host.show import console, table

        return console().print(table(columns, rows))
    most = shutil.get_terminal_size((160, 24)).columns
    widths = [max(map(len, column)) for column in zip(names, *rows)]
    for row in rows:
        line = "  ".join(map(str.ljust, row, widths)).rstrip()
        if as_json:
            line = json.dumps(dict(zip(names, row)))
        elif len(line) > most and not whole:
            line = f"{line[: most - 1]}…"
        print(line)


def _check_name(name: str, known: Iterable[str], what: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"there is no {what}. There are {', '.join(known)}.{hint}")


def _algorithm(name: str) -> str:
    algorithm = get_algorithm(name)
    return f"{name}: {algorithm.description}\n\n{_options(name, algorithm.options, ())}"


def _library(name: str) -> str:
    library = get_library(name)
    state = library.available()
    remedy = "" if state.ok else f". {state.get}"
    options = _options(name, library.options, OURS)
    return f"{name}: {library.description}\n{state.what}{remedy}\n\n{options}"


def _options(name: str, own: Mapping[str, Option], out_of_reach: Collection[str]) -> str:
    """The options of an algorithm or library, and those of every run by ``-o``."""
    out = click.HelpFormatter(width=min(shutil.get_terminal_size().columns, 100))
    every = [
        option for option in FIELDS.values() if not (option.group or option.name in out_of_reach)
    ]
    for title, options in ((f"Options of {name}", own.values()), ("Of every run, by -o", every)):
        if options:
            with out.section(title):
                out.write_dl([_described(option) for option in options])
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
    layouts = PRESETS[name]
    texts = ", ".join(f"{x} {text}" for x, text in zip("ABC", layouts.operands))
    return f"{name}: {layouts.description}\n{texts}\n{layouts.source}"


def _machine(name: str) -> str:
    _seen(name)  # raises an error for an unknown machine
    return f"# {file_of(name)}\n{file_of(name).read_text('utf-8')}"


def _library_row(name: str) -> Row:
    library = get_library(name)
    state = library.available()
    where = "here" if state.ok else "not here"
    return name, f"{library.description} ({where}: {state.what})"


def _machine_row(name: str) -> Row:
    """Ranks, each class of links with its bandwidth, the nearest ranks first, and the peaks of two
    element types."""
    machine = _seen(name)
    links = (
        f"{link.name} {'in place' if link.free else number(link.bandwidth_bytes_per_s / 1e9, 4)}"
        for link in machine.links
    )
    peaks = machine.peaks
    described = (
        f"{dtype} {number(peaks[dtype] / 1e12, 4)}"
        for dtype in ("float32", "bfloat16")
        if dtype in peaks
    )
    ranks = "RxC" if machine.torus else str(machine.devices or "any")
    return name, f"{ranks} ranks", f"{', '.join(links)} GB/s", f"{', '.join(described)} TFLOP/s"


def _seen(name: str) -> Machine:
    """The machine of a name with its links; a torus without a shape gets 4 x 4 devices."""
    shapeless = name in machine_names() and "torus" in read_toml(file_of(name))["model"]
    return find_machine(f"{name}-4x4" if shapeless else name).for_transport(TransportChoice("auto"))


def _figures() -> Iterable[Row]:
    """Those of drbench, and those of plugins, which have loaded the registry."""
    from drbench.plots.summaries import SUMMARIES

    registry = sys.modules.get("drbench.plots.registry")
    every = registry.figures().values() if registry else ()
    return [*(SUMMARIES | {figure.name: figure.summary for figure in every}).items()]


def _chains() -> Iterable[Row]:
    from drbench.chains.model.transformers import MODELS, presets

    words = (
        "width {hidden_size}, inner {intermediate_size}, {num_attention_heads} heads, "
        "{num_key_value_heads} key/value heads"
    )
    return [(name, words.format(**MODELS[name.partition(":")[0]])) for name in presets()]


def _chain(name: str) -> str:
    """The text of a preset, with one sequence: to be changed and given as a file."""
    from drbench.chains.model.transformers import text_of

    return text_of(name)


_TRANSPORTS = [
    ("auto", "in place if the rank's memory is shared, else RMA"),
    ("direct", "in place only: tiles are read without a copy and accumulated under locks"),
    ("rma", "MPI Rget and Raccumulate, even on one node"),
    ("throttled:GBps,us", "in place, a timer completes each transfer; for overlap experiments"),
]
KINDS = {
    "algorithms": _Listing(
        "algorithm|about",
        lambda: [(name, algorithm.description) for name, algorithm in algorithms().items()],
        _algorithm,
    ),
    "partitions": _Listing("partition|about", lambda: [*LAYOUT_FORMS, *added_kinds()]),
    "presets": _Listing(
        "preset|about|source",
        lambda: [(name, layouts.description, layouts.source) for name, layouts in PRESETS.items()],
        _preset,
    ),
    "libraries": _Listing("library|about", lambda: map(_library_row, LIBRARIES), _library),
    "machines": _Listing(
        "machine|ranks|links|peaks of a device",
        lambda: map(_machine_row, machine_names()),
        _machine,
    ),
    "launchers": _Listing(
        "launcher|about",
        lambda: [(name, describe_file(path)) for name, path in shipped("machines").items()],
        lambda name: shipped("machines")[name].read_text("utf-8"),
    ),
    "transports": _Listing("transport|about", lambda: _TRANSPORTS),
    "sweeps": _Listing(
        "sweep|about",
        lambda: [
            (name, read_toml(path)["description"]) for name, path in shipped("sweeps").items()
        ],
        lambda name: shipped("sweeps")[name].read_text("utf-8"),
    ),
    "figures": _Listing("figure|about", _figures),
    "chains": _Listing("chain|about", _chains, _chain),
}
list_.help = (list_.help or "").replace("{kinds}", ", ".join(KINDS))
