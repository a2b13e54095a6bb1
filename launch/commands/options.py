"""Options of several commands, made from the descriptions of a case's fields, and ``-o NAME=VALUE``
for options of algorithms, of libraries and of tuning. The help groups them under headings."""

import importlib.util
import shlex
import warnings
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import click

from drbench.errors import DrbenchError, MissingError, UsageError, did_you_mean
from drbench.launch.cases.case import FIELDS, Case, get_algorithm_or_library, partition_texts
from drbench.launch.cases.peaks import check_peak
from drbench.launch.cases.sweep_values import is_one, is_range, scale_of
from drbench.launch.host.files import refuse_os_errors, write_output
from drbench.launch.host.mpi import launched
from drbench.launch.host.streams import FORM
from drbench.measure.record import RecordError
from drbench.measure.record_file import TornRowWarning
from drbench.model.machine import Machine
from drbench.options import Option
from drbench.texts import time_text

from .completion import OWN, STATIONARY, complete_pair, names_of, one_of, words_of

#: Headings of the help, in their order.
_HEADINGS = (
    "Problem",
    "Layout",
    "Training",
    "Algorithm",
    "Ranks and data movement",
    "Machine model",
    "Measurement",
    "Sweeps",
    "Output",
    "Options",
)


class _Option(click.Option):
    """An option with a heading in the help."""

    def __init__(self, *arguments, group: str = "Options", **words):
        super().__init__(*arguments, **words)
        self.group = group

    def type_cast_value(self, ctx, value):
        """The value of its type; no range refuses nan, which no bound refuses later."""
        number = super().type_cast_value(ctx, value)
        if number != number:
            self.type.fail(f"{value!r} is not a number.", self, ctx)
        return number


_FORM = _Option(
    ["--format"],
    expose_value=False,
    type=click.Choice(["text", "md", "csv", "json"]),
    default="text",
    group="Output",
    help="Form of tables; of csv everything else is printed to standard error.",
)


class _Command(click.Command):
    """A command whose help lists its options under headings, and which refuses options without
    effect: ``needs`` maps an option to those of which one must be given too, ``useless`` to those
    that have no effect next to it, as words. If it ``scans``, options of a case take several
    values; ``override`` has their names and texts, and those of ``-o``."""

    def __init__(self, *arguments, needs=(), useless=(), scans=False, **words):
        super().__init__(*arguments, **words)
        self.needs, self.scans = dict(needs), scans
        self.useless = {"--brief": "--json", "--json": "--format", **dict(useless)}
        if any(parameter.name == "as_json" for parameter in self.params):
            self.params.append(_FORM)

    def parse_args(self, context, args):
        opts, _, reported = self.make_parser(context).parse_args(list(args))
        left, values = super().parse_args(context, args), context.params
        if context.resilient_parsing:  # a shell completes the line
            return left
        pairs = values.get("option", ((), {}))[1]
        given = {f"-o {name}" for name in pairs}
        for parameter in reported:  # includes arguments that were not given
            value = values.get(parameter.name, True)
            if value is not None and value is not False:
                given.add(parameter.opts[0])
        for flag, words in self.needs.items():
            if flag in given and given.isdisjoint(words.split()):
                needed = " or ".join(words.split())
                raise UsageError(f"{flag} belongs to {needed}. Give both, or leave it out.")
        for flag, words in self.useless.items():
            for parameter in words.replace("--json", "--json --format").split():
                if {flag, parameter} <= given:
                    raise UsageError(f"{flag} has no use for {parameter}. Leave one of them out.")
        if self.scans:
            keys = {name: opts[name] for name in opts if name in SCANNED} | pairs
            values["override"] = (*values.get("override", ()), *keys.items())
        form = opts.get("format")
        FORM.set(form if form in ("md", "csv") else None)
        if form == "json":
            values["as_json"] = form
        return left

    def format_options(self, context, formatter):
        records: dict = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record and isinstance(parameter, click.Option):
                records.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for heading in sorted(records, key=_HEADINGS.index):
            with formatter.section(heading):
                formatter.write_dl(records[heading])


#: A command with grouped help; it refuses options by ``needs`` and ``useless``.
command = partial(click.command, cls=_Command)
#: An option; ``group`` is its heading in the help.
option = partial(click.option, cls=_Option)


class Value(click.ParamType):
    """A value that fits a description."""

    name = "value"

    def __init__(self, option: Option):
        self.option = option

    def convert(self, value, param, ctx):
        """The value, converted and checked by the description."""
        try:
            return self.option.read(value)
        except DrbenchError as error:
            scanned = param is not None and param.name in SCANNED
            several = "," in value or is_range(value, [self.option])
            if several and scanned and getattr(ctx and ctx.command, "scans", False):
                from drbench.launch.cases.sweep_file import read_values

                read_values([(param.name, value)], param.opts[0])
                return value  # a sweep reads it again
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx, param, incomplete):
        """The words that the value may be."""
        return one_of(*words_of(self.option))(ctx, param, incomplete)


def checked(check: Callable) -> Value:
    """A text that a function checks, and may convert."""
    return Value(Option(check=check))


class _File(click.Path):
    def convert(self, value, param, ctx):
        return super().convert(TEXT.convert(str(value), param, ctx), param, ctx)


def _check_suffix(path: str, suffixes: str = ".html .svg .pdf .png .json") -> str:
    suffix = Path(path).suffix
    if suffix and suffix not in suffixes.split():
        raise UsageError(
            f"it is written as {suffixes.replace(' ', ' or ')}; got {suffix!r} in {path!r}. "
            "Use that suffix."
        )
    return path


TEXT, FILE = Value(Option()), _File(dir_okay=False)
PAGE, PAGE_OR_PICTURE = checked(partial(_check_suffix, suffixes=".html")), checked(_check_suffix)
PICTURE = checked(partial(_check_suffix, suffixes=".svg .pdf .png .txt"))
SCALE = checked(lambda text: text if scale_of(text) else None)
SIZE = Value(FIELDS["m"])
BYTES, RANK = Value(FIELDS["pool"]), Value(Option(type=int, words=("all",)))
#: Options of a case that may have several values.
SCANNED = {*FIELDS, *OWN} - {"label", "machine", "timeline"}
#: How a shell completes fields of a case whose values are names.
_COMPLETED = {
    **dict.fromkeys("abc", names_of("partitions")),
    "preset": names_of("presets"),
    "algorithm": names_of("algorithms", "libraries"),
    "transport": names_of("transports"),
}


def installed(context, parameter, value):
    """Return the backend, or refuse cupy if it is not installed, before any rank starts. (The ranks
    check that there is a GPU.)"""
    if value == "cupy" and importlib.util.find_spec("cupy") is None:
        raise MissingError(
            "--backend cupy needs CuPy, which is not installed. From a checkout: pip install "
            "'.[cuda12]' or '.[cuda13]', matching the driver."
        )
    return value


def of_case(*names: str, kind: click.ParamType | None = None, required: bool = True, **changes):
    """A decorator that adds the options of fields of a case, their descriptions replaced by
    ``changes``. An option that is not given and has no default is None.

    ``required``: whether m, n and k must be given; ``kind`` converts the value instead.
    """

    def add(command):
        for name in reversed(names):
            described = replace(FIELDS[name], **changes)
            more = f" [default: {described.default_text}]" if described.default_text else ""
            words = {"help": f"{described.help}{more}", "group": described.group}
            words |= {"metavar": "|".join(described.values), "shell_complete": _COMPLETED.get(name)}
            if described.default is not None:
                words["default"] = described.default
            flag = described.flag
            if name in "mnk":
                flag, words["required"] = f"-{name}", required and name == "m"
            if name == "backend":
                words["callback"] = installed
            command = option(flag, name, type=kind or Value(described), **words)(command)
        return command

    return add


def printing() -> tuple:
    """A console on standard output, and a function that prints a line there without wrapping."""
    from drbench.launch.host.show import (
        console,  # loads Rich, which processes that start ranks avoid
    )

    out = console()
    return out, out.line


@contextmanager
def reading(remedy: str = "Use files that can be read."):
    """A context that turns unreadable or wrong files into an error of one line, and prints a line
    for each torn row."""
    try:
        with refuse_os_errors("", remedy), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TornRowWarning)
            yield
        for warning in caught:
            click.echo(str(warning.message), err=True)
    except RecordError as error:
        raise UsageError(str(error)) from None


# Options of several commands with one help text; their other attributes can be replaced.
json_option = partial(
    option, "--json", "as_json", is_flag=True, group="Output", help="Print JSON instead of text."
)


def form_options(command):
    """A decorator that adds the forms of the output, ``as_json``: json, brief or verbose."""
    brief = option(
        "--brief",
        "as_json",
        flag_value="brief",
        group="Output",
        help="Print one line to grep: seconds, GFLOP/s, bytes.",
    )
    verbose = verbose_option("as_json", flag_value="verbose")
    return json_option(flag_value="json")(brief(verbose(command)))


csv_option = partial(
    option,
    "--csv",
    "csv_path",
    type=FILE,
    metavar="FILE",
    group="Output",
    help="Append the records to this file.",
)
out_option = partial(
    option,
    "--out",
    type=click.Path(file_okay=False),
    metavar="DIR",
    group="Output",
    help="Folder of the records.",
)
verbose_option = partial(
    option,
    "-v",
    "--verbose",
    is_flag=True,
    group="Output",
    help="Print everything that is known.",
)
peak_option = partial(
    option,
    "--peak",
    type=checked(check_peak),
    metavar="GFLOPS|NAME|FILE|none",
    group="Measurement",
    help="Peak of a rank, for percent of peak.",
)
ranks_option = partial(
    option,
    "-p",
    "--ranks",
    type=Value(Option(type=int, least=1)),
    metavar="N",
    group="Ranks and data movement",
    help="Number of ranks. [default: usable cores, or the machine's devices]",
)
save_option = partial(
    option,
    "--save",
    "save",
    type=FILE,
    metavar="FILE",
    group="Output",
    help="File to write; its suffix gives the format.",
)
quantity_option = partial(
    option,
    "--quantity",
    type=click.Choice(["gemm_only", "time"]),
    help="Percent of GEMM-only speed, or the time. [default: the first if it was measured]",
)
tolerance_option = partial(
    option, "--tolerance", type=click.FloatRange(0, 10), default=0.05, help="0.05 for 5 %."
)
allow_option = partial(
    option,
    "--allow",
    multiple=True,
    type=click.Choice(["missing", "failing", "noisy"]),
    help="Do not fail because cases of OLD, or of --expect, are missing, cases fail, or all are "
    "noisy. Repeatable.",
)
expect_option = partial(
    option,
    "--expect",
    type=FILE,
    metavar="FILE",
    group="Output",
    help="Fail if a case is outside the bounds in this file of references.",
)
yes_option = partial(
    option,
    "--yes",
    is_flag=True,
    group="Options",
    help="Start even a long run, or very many ranks.",
)
timeout_option = partial(
    option,
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    group="Ranks and data movement",
    help="End a case after this time (exit 4).",
)


def output_frame(frame, answer: str, out, csv_path=None, as_json=False, shown=None) -> None:
    """Print an answer and the rows of a DataFrame, or of text only those that are ``shown``; or
    all as JSON or into a CSV file."""
    from drbench.launch.host.show import table

    frame = frame.replace([inf, -inf], None)
    if csv_path:
        write_output("--csv", csv_path, frame.to_csv(index=False))
    if as_json:
        click.echo(frame.to_json(orient="records"))
        return
    out.line(answer)
    values = frame.to_dict("records")
    frame = frame if shown is None or FORM.get() == "csv" else frame[shown]
    frame = frame.dropna(axis="columns", how="all")
    percent = lambda x: f"{x:.1f} %"
    cells = []
    for row in frame.astype(object).where(frame.notna(), "").to_dict("records"):
        unit = percent if row.get("quantity") == "gemm_only" else time_text
        cells.append([unit(x) if isinstance(x, float) else str(x) for x in row.values()])
    if cells:
        out.print(table("!~" + "|!~".join(frame), cells, values))


#: The machine model; its argument is the parameter's name.
machine_option = partial(
    option,
    "--machine",
    type=TEXT,
    metavar="NAME|FILE",
    group="Machine model",
    help="Machine model; NAME,CONSTANT=VALUE changes a constant.",
    shell_complete=names_of("machines", or_file=True),
)


def problem_options(*fields: str, required: bool = True, pairs: Callable | None = None, **dtype):
    """The options that define C = A·B and the algorithm; ``dtype`` replaces the description of the
    element types, and ``fields`` of a case are given by ``-o``, like the algorithm's options, or
    ``pairs`` adds another ``-o``."""

    def add(command):
        for add_option in reversed(
            [
                of_case("m", "n", "k", required=required),
                of_case("transpose", "alpha", "beta"),
                of_case("dtype", **dtype),
                of_case("a", "b", "c", "preset", "algorithm"),
                option(
                    "--stationary",
                    type=TEXT,
                    shell_complete=one_of(*STATIONARY),
                    metavar="A|B|C|auto",
                    group="Algorithm",
                    help="Matrix whose tiles do not move. [default: auto]",
                ),
                option(
                    "--mesh",
                    type=TEXT,
                    metavar="ROWSxCOLS",
                    group="Algorithm",
                    help="Process mesh. [default: near-square]",
                ),
                pairs or pairs_option(*fields),
            ]
        ):
            command = add_option(command)
        return command

    return add


def pair(text: str, form: str = "NAME=VALUE", example: str = "chunk=256") -> tuple[str, str]:
    """Name and text of ``NAME=VALUE``."""
    name, _, value = (part.strip() for part in text.partition("="))
    if not (name and value):
        raise UsageError(f"{text!r} has no value. Write {form}, as {example}.")
    return name.replace("-", "_"), value


def pairs_option(
    *fields: str, help: str = "Algorithm's option (drbench list algorithms NAME). Repeatable."
):
    """``-o NAME=VALUE`` for these fields of a case and the options of the command's algorithm;
    :func:`take_options` reads it."""

    def once(context, parameter, pairs) -> tuple[tuple, dict]:
        own = {parameter.name: parameter.opts[0] for parameter in context.command.params}
        for at, (name, text) in enumerate(pairs):
            if name in own:
                raise UsageError(f"{name} is a separate option: use {own[name]} {text}.")
            if name in dict(pairs[:at]):
                raise UsageError(f"-o {name} is given twice. Leave one of the two out.")
        return fields, dict(pairs)

    return option(
        "-o",
        "option",
        multiple=True,
        type=checked(pair),
        metavar="NAME=VALUE",
        help=help,
        shell_complete=complete_pair,
        group="Algorithm",
        callback=once,
    )


def plugins() -> tuple[str, ...]:
    """The files of ``--plugin`` on this command line."""
    context = click.get_current_context(silent=True)
    return context.find_root().params.get("plugins", ()) if context else ()


def plugged(command: str) -> str:
    """A command line of drbench with the plugins of this one."""
    given = (f"--plugin={name}" for name in plugins())
    return " ".join(["drbench", *map(shlex.quote, given), command.removeprefix("drbench ")])


def is_scan(keys: Iterable[tuple[str, str]]) -> bool:
    """Whether a key of a case has several values, or a range.

    Examples
    --------
    >>> is_scan([("m", "512"), ("a", "S(0),R@2x3")]), is_scan([("m", "8:8:*2")])
    (False, True)
    """
    from drbench.launch.cases.sweep_file import describe_key

    for key, text in keys:
        if {",", ":"} & {*text}:
            described = describe_key(key)
            if is_range(text, described) or ("," in text and not is_one(text, described)):
                return True
    return False


def take_options(values: dict) -> dict:
    """Move the pairs of ``-o`` out of the values of a command: fields of a case become values, and
    the options of the algorithm are returned. Without ``n`` and ``k`` they are ``m``.

    Raises
    ------
    UsageError
        If neither the command nor the algorithm has such an option, or the value is wrong.
    """
    fields, pairs = values.pop("option")
    missing = [name for name in "nk" if values.get(name, 0) is None]
    if len(missing) == 1:
        raise UsageError(f"-{missing[0]} is missing. Give it, or -m alone for a cube.")
    values |= dict.fromkeys(missing, values.get("m"))
    values |= {name: FIELDS[name].default for name in fields if name not in values}
    algorithm = values.get("algorithm")
    known = get_algorithm_or_library(algorithm).options if algorithm else {}
    given = {name: values.pop(name, None) for name in OWN} | pairs
    options = {}
    for name, text in given.items():
        if text is None:
            continue
        described = known.get(name) or FIELDS.get(name if name in fields else "")
        if described is None:
            takes = ", ".join((*known, *fields)) or "no options"
            hint = did_you_mean(name, (*known, *fields))
            raise UsageError(f"{algorithm or '-o'} takes no {name}. It takes {takes}.{hint}")
        try:
            (options if name in known else values)[name] = described.read(text)
        except DrbenchError as error:
            raise UsageError(f"{described.flag}: {error}") from None
    return options


def refuse_ranks(name: str) -> None:
    """Refuse to run under a launcher: the command starts ranks itself."""
    here = launched()
    if here is not None and here.size > 1:
        raise UsageError(
            f"drbench {name} starts its own ranks. Run it without mpirun, with -p for their number."
        )


def machine_of(values: dict) -> tuple[str | None, str | None]:
    """(the machine model of ``--machine``, that which the schedule depends on) among the values of
    a command, after :func:`take_options`.

    Raises
    ------
    UsageError
        If the schedule needs a machine without a model, or without one of that transport.
    UnsupportedError
        If its model has no peak for the element type.

    Examples
    --------
    >>> by_cost = {"schedule": "cost"}
    >>> (
    ...     machine_of({"machine": "h100x8", "options": by_cost}),
    ...     machine_of({"machine": "pvc12", "options": {}}),
    ...     machine_of({"machine": None, "options": by_cost}),
    ... )
    (('h100x8', 'h100x8'), ('pvc12', None), (None, None))
    """
    text, options = values["machine"], values["options"]
    if text is None:
        return None, None
    from drbench.launch.cases.machine_models import find_machine, find_planning_model

    dtype = values.get("dtype") or "float32"
    transport = values.get("transport", "auto")
    of_cores = find_machine(text).adds_on_core and options.get("pack") != "never"
    return text, text if find_planning_model(text, options, transport, dtype) or of_cores else None


def modelled(values: dict, ranks: int | None) -> tuple:
    """(the machine model in the values of a command, or None; the number of ranks, by default its
    devices). An open element type becomes the machine's.

    Raises
    ------
    UsageError
        If the machine is unknown or has fewer devices, or the number of ranks is not given.
    """
    from drbench.launch.cases.machine_models import find_machine
    from drbench.launch.models.predict import ranks_on

    name = values.pop("machine")
    model = None if name is None else find_machine(name)
    if model is not None:
        ranks = ranks_on(model, ranks)
    elif ranks is None:
        raise UsageError("-p is missing. Give the number of ranks, or a --machine with devices.")
    values["dtype"] = values["dtype"] or choose_type(model, values.get("compute"))
    return model, ranks


def choose_type(model: Machine | None, compute: str | None) -> str:
    """The element type where none is given: the machine's, but tf32 is arithmetic for float32."""
    return "float32" if model is None or compute == "tf32" else model.dtype


def case_of(values: dict, ranks: int) -> Case:
    """The case of the values of a command on ``ranks`` ranks, with the partitions of its preset."""
    return Case(**values | partition_texts(values, ranks))
