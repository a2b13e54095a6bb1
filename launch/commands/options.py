"""Options that several commands take, made of their descriptions: fields of a case, and options of
algorithms and peers. Help groups them under headings."""

import importlib.util
import warnings
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import click

from drbench.errors import DrbenchError, MissingError, UsageError
from drbench.measure.record_file import TornRowWarning
from drbench.model.links import ARBITRATIONS
from drbench.options import Option, read_as_any
from drbench.program.problem import ITEMSIZES
from launch.cases.case import FIELDS, Case, partition_texts
from launch.cases.peak_files import check_peak
from launch.cases.sweep_values import ranks_list, scale_of
from launch.host.files import check_output
from launch.host.mpi import launched
from launch.peers import known_options

#: Headings of the help, in their order.
_HEADINGS = (
    "Problem",
    "Layout",
    "Algorithm",
    "Machine model",
    "Ranks and data movement",
    "Measurement",
    "GPU",
    "Sweeps",
    "Output",
    "Options",
)
_METAVARS = {"elements": "SIZE", "bytes": "BYTES", int: "N", float: "NUMBER", str: "TEXT"}


class _Option(click.Option):
    """An option with a heading in the help."""

    def __init__(self, *arguments, group: str = "Options", **words):
        super().__init__(*arguments, **words)
        self.group = group


#: Of a command with many options the help leaves to ``--help-all`` what is under these headings,
#: but for those named, and some others.
_ALL_BUT = {
    "Algorithm": {"algorithm", "stationary", "chunk", "replicate_result"},
    "GPU": {"backend"},
}
_RARE, _MANY = {"pool", "progress"}, 30


def _is_rare(parameter: click.Parameter) -> bool:
    kept = _ALL_BUT.get(getattr(parameter, "group", ""))
    return parameter.name in _RARE or kept is not None and parameter.name not in kept


class _Command(click.Command):
    """A command whose help lists its options under headings; with many options the common ones,
    and all with ``--help-all``."""

    def __init__(self, *arguments, **words):
        super().__init__(*arguments, **words)
        if len(self.params) > _MANY:
            everything = _Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show the options of particular algorithms and of GPUs too.",
            )
            self.params.append(everything)

    def format_options(self, context, formatter):
        found: dict = {}
        short = len(self.params) > _MANY and not context.meta.get(__name__)
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            shown = isinstance(parameter, click.Option) and not (short and _is_rare(parameter))
            if record and shown:
                found.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for heading in sorted(found, key=_HEADINGS.index):
            with formatter.section(heading):
                formatter.write_dl(found[heading])


def _show_all(context, parameter, value) -> None:
    if value and not context.resilient_parsing:
        context.meta[__name__] = True
        click.echo(context.get_help())
        context.exit()


def command(*name):
    """A command with grouped help."""
    return click.command(*name, cls=_Command)


def option(*names, **words):
    """An option; ``group`` is its heading in the help."""
    return click.option(*names, cls=_Option, **words)


class Value(click.ParamType):
    """A value that fits one of several descriptions."""

    name = "value"

    def __init__(self, *options: Option):
        self.options = options

    def convert(self, value, param, ctx):
        """The value as it is described."""
        try:
            return read_as_any(self.options, value)
        except DrbenchError as error:
            self.fail(str(error), param, ctx)


class _File(click.Path):
    def convert(self, value, param, ctx):
        return super().convert(TEXT.convert(str(value), param, ctx), param, ctx)


def _pair(text: str) -> tuple[str, str]:
    """Name and text of ``NAME=VALUE``."""
    name, _, value = text.partition("=")
    if not (name and value):
        raise UsageError(f"{text!r} is no option of an algorithm. Use NAME=VALUE.")
    return name.replace("-", "_"), value


TEXT, FILE = Value(Option()), _File(dir_okay=False)
SCALE = Value(Option(check=lambda text: text if scale_of(text) else None))
SIZE = Value(FIELDS["m"])
BYTES, RANK = Value(FIELDS["pool"]), Value(Option(type=int, words=("all",)))
#: Options of algorithms and peers by name, those of universal first: who takes it -> what it is.
_OPTIONS = dict(sorted(known_options().items(), key=lambda each: "universal" not in each[1]))


def installed(context, parameter, value):
    """Refuse cupy where it is not installed, before any rank is started. (Whether there is a GPU,
    the ranks' nodes know.)"""
    if value == "cupy" and importlib.util.find_spec("cupy") is None:
        raise MissingError(
            "--backend cupy needs CuPy, which is not installed. pip install 'drbench[cuda12]' or "
            "'drbench[cuda13]', as the driver has it."
        )
    return value


def _described(described: Option, kind: click.ParamType | None, *names: str, **words):
    """The click option of a description; None stands for what is not given where it has no
    default."""
    switch = described.default is False  # not given it is None: each algorithm has its own
    if described.type is bool or described.default is not None:
        words["default"] = None if switch else described.default
    words |= {
        "help": described.help + (f" [default: {described.says}]" if described.says else ""),
        "group": described.group,
    }
    flag = described.flag
    if described.type is bool:
        if not switch:
            flag = f"{flag}/--no-{flag[2:]}"
        return option(flag, described.name, is_flag=True, **words)
    if described.metavar:
        words["metavar"] = described.metavar
    if isinstance(described.type, tuple) and kind is None:
        kind = click.Choice(described.type)
    elif kind is None or isinstance(kind, Value):
        words.setdefault("metavar", _METAVARS.get(described.unit, _METAVARS.get(described.type)))
    return option(*(names or [flag]), described.name, type=kind or Value(described), **words)


def of_case(*names: str, kind: click.ParamType | None = None, required: bool = True, **changes):
    """The options of fields of a case, each described anew by ``changes``.

    ``required`` says whether m, n and k are, and ``kind`` reads the value instead.
    """

    def add(command):
        for name in reversed(names):
            words = {}
            if name in "mnk":
                words |= {"required": required and "default" not in changes}
            if name == "backend":
                words |= {"callback": installed}
            short = [f"-{name}"] if name in "mnk" else []
            described = replace(FIELDS[name], **changes)
            command = _described(described, kind, *short, **words)(command)
        return command

    return add


def arithmetic_option():
    """``--compute`` of commands that predict."""
    return of_case(
        "compute",
        group="Machine model",
        help="Multiply float32 in TF32, at the peak that the machine model has for it.",
        says="true float32",
    )


@contextmanager
def reading(way_out: str = "Use files that can be read."):
    """What cannot be read, or is no result file, as an error in one line; yields the warnings of
    torn rows."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TornRowWarning)
            yield caught
    except OSError as error:
        name = "" if error.filename is None else f"{error.filename}: "  # none of a full disk
        raise UsageError(f"{name}{error.strerror or error}. {way_out}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _shared(*names, **words):
    """An option of several commands, which differs in its help alone, or in what is said anew."""
    return lambda help="MPI ranks.", **more: option(*names, **words | more, help=help)


json_option = _shared("--json", "as_json", is_flag=True, group="Output")
ranks_list_option = _shared(
    "--ranks-list",
    "counts",
    type=Value(Option(check=ranks_list)),
    metavar="P,P,...",
    group="Ranks and data movement",
)
figure_option = _shared("--figure", type=FILE, metavar="FILE", group="Output")


def check_figure(path: str | None) -> None:
    """A figure that is drawn in the end can be: its file, and the format that its suffix says.

    Raises
    ------
    UsageError
    """
    check_output("--figure", path)
    if path:
        from plots.registry import suffixes

        with reading():
            suffixes(path)


def draw_figure(name: str, rows: list, path: str) -> list[str]:
    """Draw a figure of rows; what is said of it."""
    from plots.registry import draw

    drawn = draw(name, rows, path)
    return [*drawn.notes, *(f"figure: {each}" for each in drawn.paths)]


csv_option = _shared("--csv", "csv_path", type=FILE, group="Output")
out_option = _shared("--out", type=click.Path(file_okay=False), metavar="DIR")
peak_option = _shared(
    "--peak",
    type=Value(Option(check=check_peak)),
    metavar="GFLOPS|NAME|FILE|measure|none",
    group="Measurement",
)
PEAK_OF_MANY = (
    "For percent of peak: GFLOP/s of one rank, a machine by name or file with a table "
    "[peak.DTYPE], measure, or none. [default: what a --launcher file holds, else measure: the "
    "cores, once, between cases]"
)
ranks_option = _shared(
    "-p", "--ranks", type=click.IntRange(1), metavar="N", group="Ranks and data movement"
)
#: Help of commands that start ranks, where None stands for launch.commands.guards.default_ranks.
OWN_RANKS = "MPI ranks. [default: cores this process may use // threads; of GPUs one each]"
save_option = _shared("-o", "--save", "save", type=FILE, metavar="FILE", group="Output")
#: Element types of what is planned or predicted, and runs on nothing.
MODELLED = tuple(name for name in ITEMSIZES if ":" not in name)
#: Multiplies the paper's extents, or those of a sweep file.
scale_option = _shared("--scale", type=SCALE, metavar="FACTOR")
yes_option = _shared("--yes", is_flag=True, group="Options")
YES = "Go on although it is estimated at more than 30 minutes, or -p is far above the cores."
launcher_option = _shared(
    "--launcher",
    metavar="NAME|FILE",
    group="Ranks and data movement",
    type=TEXT,
)
arbitration_option = _shared(
    "--arbitration",
    type=click.Choice(tuple(ARBITRATIONS)),
    group="Machine model",
)
#: What ``--arbitration`` says where it is asked for.
ARBITRATION = (
    "How transfers get over links. fair: all that want a link share it evenly; fifo: one after "
    "another, the oldest first. [default: the model's]"
)
timeout_option = _shared("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS")


def label_option(**changes):
    """The name of the machine in the records, described anew by ``changes``."""
    return of_case("machine", **changes)


def machine_option():
    """The machine model of what is decided before a run."""
    return of_case(
        "model",
        help="Machine model that packing, pushed partial sums and --schedule cost and exhaustive "
        "go by. [default: built-in figures; of a schedule 100 FLOPs to a byte]",
    )


def label_beside_launcher():
    """The label of a command that has a launcher."""
    return label_option(
        default=None,
        help="Name of the machine in the records. [default: the launcher file's, or here]",
    )


def problem_options(*, required: bool = True, **dtype):
    """The options that define C = A·B and the algorithm, with those of every algorithm and peer;
    ``dtype`` describes the element types anew."""

    def add(command):
        taken = {each.name for each in getattr(command, "__click_params__", ())} | FIELDS.keys()
        flags = [
            _described(*_of_all(takers)) for name, takers in _OPTIONS.items() if name not in taken
        ]
        pairs = option(
            "--option",
            multiple=True,
            type=Value(Option(check=_pair)),
            metavar="NAME=VALUE",
            group="Algorithm",
            help="Any option of the algorithm, by its name. Repeatable.",
        )
        for each in reversed(
            [
                of_case("m", "n", "k", required=required),
                of_case("transpose", "alpha", "beta"),
                of_case("dtype", **dtype),
                of_case("a", "b", "c", "preset", "algorithm"),
                *flags,
                pairs,
                of_case("prefetch"),
            ]
        ):
            command = each(command)
        return command

    return add


def _of_all(takers: dict[str, Option]) -> tuple[Option, Value | None]:
    """One description of what several algorithms take by one name, and what reads it; None where
    each takes words."""
    told: dict = {}
    for who, each in takers.items():
        shown = each.default is not None and each.default is not False
        says = each.says or (str(each.default) if shown else "")
        says = f" [default: {says}]" if says else ""
        told.setdefault(each.help + says, []).append(who)
    types, reads = [each.type for each in takers.values()], Value(*takers.values())
    kind = types[0]
    if all(isinstance(each, tuple) for each in types):
        kind, reads = tuple(dict.fromkeys(chain(*types))), None
    about = " ".join(f"{', '.join(names)}: {text}" for text, names in told.items())
    defaults = {each.default for each in takers.values()}  # of a switch; others are each one's own
    first, default = next(iter(takers.values())), False if defaults == {False} else None
    return replace(first, type=kind, default=default, help=about, says=""), reads


def take_options(values: dict) -> dict:
    """Take the algorithm's options that were given out of the values of a command."""
    taken = {name: values.pop(name) for name in _OPTIONS if name in values}
    taken |= {
        name: _read_option(values["algorithm"], name, text) for name, text in values.pop("option")
    }
    return {name: value for name, value in taken.items() if value is not None}


def _read_option(algorithm: str, name: str, text: str):
    """The value of ``--option``, as the algorithm takes it; one it does not take is left as it is,
    for the algorithm to refuse."""
    described = _OPTIONS.get(name, {}).get(algorithm)
    try:
        return described.read(text) if described else text
    except DrbenchError as error:
        raise UsageError(f"--option {name}: {error}") from None


def modelled(machine: str | None, arbitration: str | None):
    """The machine model of ``--machine`` and ``--arbitration``; None without one.

    Raises
    ------
    UsageError
        If there is none of that name, or links are to be shared of no machine.
    """
    from launch.cases.machine_models import find_machine

    if machine is not None:
        return find_machine(machine, arbitration)
    if arbitration is not None:
        raise UsageError("--arbitration is of a machine model, got none. Name a --machine.")
    return None


def refuse_ranks(name: str) -> None:
    """Refuse to run under a launcher: the command starts ranks itself."""
    here = launched()
    if here is not None and here.size > 1:
        raise UsageError(
            f"drbench {name} starts its own ranks. Run it without mpirun, with -p for their number."
        )


def machine_of(values: dict) -> tuple[str | None, str | None]:
    """(the machine model that is named, that which the program goes by) of ``--machine`` among the
    values of a command, whose options have been taken.

    Raises
    ------
    UsageError
        If a schedule is to go by a machine that has no model, or none of that transport.
    UnsupportedError
        If its model has no peak for the element type.

    Examples
    --------
    >>> by_cost = {"schedule": "cost"}
    >>> (
    ...     machine_of({"model": "h100x8", "options": by_cost}),
    ...     machine_of({"model": "pvc12", "options": {}}),
    ...     machine_of({"model": None, "options": by_cost}),
    ... )
    (('h100x8', 'h100x8'), ('pvc12', None), (None, None))
    """
    text, options = values["model"], values["options"]
    if text is None:
        return None, None
    from launch.cases.machine_models import find_machine, of_schedule

    dtype = values.get("dtype") or "float32"
    transport = values.get("transport", "auto")
    of_cores = find_machine(text).adds_on_core and options.get("pack") != "never"
    return text, text if of_schedule(text, options, transport, dtype) or of_cores else None


def case_of(values: dict, ranks: int) -> Case:
    """The case that the values of a command describe on so many ranks, a preset's partitions
    named."""
    return Case(**values | partition_texts(values, ranks))
