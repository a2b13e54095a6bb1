"""Options that several commands take: how their values are read, and what follows from them."""

from __future__ import annotations

import importlib.util
import re

import click

from drbench.common import parse_transport
from drbench.errors import DrbenchError, MissingError, UsageError
from launch.host.mpi import launched
from partitions import preset as preset_texts

__all__ = [
    "BACKEND",
    "BYTES",
    "CHUNK",
    "FILE",
    "PEER_OPTIONS",
    "RANK",
    "SIZE",
    "TEXT",
    "TRANSPORT",
    "decide_stationary",
    "device_options",
    "installed",
    "machine_of",
    "partitions",
    "problem",
    "problem_options",
    "refuse_ranks",
    "take_options",
]


_BINARY = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def _scaled(text: str, suffix: str = "") -> int | None:
    """A whole number with an optional binary prefix.

    Examples
    --------
    >>> _scaled("4096"), _scaled("48Ki"), _scaled("1.5Ki"), _scaled("2GiB", "b"), _scaled("-1")
    (4096, 49152, 1536, 2147483648, None)
    """
    found = re.fullmatch(
        r"(\d+(?:\.\d+)?)\s*(ki|mi|gi|ti)?" + (f"{suffix}?" if suffix else ""), text.strip().lower()
    )
    if not found:
        return None
    value = float(found[1]) * _BINARY[found[2] or ""]
    return int(value) if value == int(value) else None


class _Size(click.ParamType):
    name = "size"

    def convert(self, value, param, ctx):
        size = value if isinstance(value, int) else _scaled(value)
        if size is None or size < 1:
            self.fail(
                f"{value!r} is not an extent. Use a whole number of at least 1, such as 4096 or "
                "48Ki.",
                param,
                ctx,
            )
        return size


class _Bytes(click.ParamType):
    name = "bytes"

    def convert(self, value, param, ctx):
        size = value if isinstance(value, int) else _scaled(value, "b")
        if size is None:
            self.fail(f"{value!r} is not a number of bytes. Use for example 64MiB.", param, ctx)
        return size


class _Transport(click.ParamType):
    name = "auto|direct|rma|throttled:GBps,us"

    def convert(self, value, param, ctx):
        try:
            return str(parse_transport(value))
        except DrbenchError as error:
            self.fail(str(error), param, ctx)


class _Rank(click.ParamType):
    name = "rank|all"

    def convert(self, value, param, ctx):
        if value == "all" or isinstance(value, int):
            return value
        if not (value.isascii() and value.isdigit()):
            self.fail(f"{value!r} is not a rank. Use a number from 0 on, or all.", param, ctx)
        return int(value)


class _Chunk(click.ParamType):
    name = "size|auto|none"

    def convert(self, value, param, ctx):
        if value in ("auto", "none"):
            return value
        return SIZE.convert(value, param, ctx)


class _Text(click.ParamType):
    name = "text"

    def convert(self, value, param, ctx):
        if not value.strip():  # "$A" of a shell where A is not set
            self.fail("the text is empty. Leave the option out for its default.", param, ctx)
        return value


class _File(click.Path):
    def convert(self, value, param, ctx):
        return super().convert(TEXT.convert(str(value), param, ctx), param, ctx)


TEXT, FILE = _Text(), _File(dir_okay=False)
SIZE, BYTES, TRANSPORT, RANK, CHUNK = _Size(), _Bytes(), _Transport(), _Rank(), _Chunk()


def installed(context, parameter, value):
    """Refuse cupy where it is not installed, before any rank is started. (Whether there is a GPU,
    the ranks' nodes know.)"""
    if value == "cupy" and importlib.util.find_spec("cupy") is None:
        raise MissingError(
            "--backend cupy needs CuPy, which is not installed. pip install 'drbench[cuda12]' or "
            "'drbench[cuda13]', as the driver has it."
        )
    return value


BACKEND = click.option(
    "--backend",
    type=click.Choice(["numpy", "numpy-async", "cupy"]),
    default="numpy",
    show_default=True,
    callback=installed,
    help="Where products run. numpy: cores; cupy: GPUs; numpy-async: the executor of GPUs on "
    "worker threads (to test it, its times mean nothing).",
)


def device_options(command):
    """Add ``--backend`` and what only devices obey to a command."""
    for option in reversed(
        [
            BACKEND,
            click.option(
                "--compute",
                type=click.Choice(["tf32"]),
                default=None,
                help="cupy: multiply float32 in TF32, which keeps 10 bits of the fraction. "
                "[default: true float32]",
            ),
            click.option(
                "--max-gemms",
                type=click.IntRange(1),
                default=None,
                help="Devices: products that may run at the same time. [default: 1]",
            ),
            click.option(
                "--max-accumulates",
                type=click.IntRange(1),
                default=None,
                help="Devices: accumulates that may run at the same time. [default: 1]",
            ),
            click.option(
                "--accumulate-blocks",
                type=click.IntRange(1),
                default=None,
                help="cupy: most thread blocks of an accumulate, so that products keep the other "
                "processors. [default: no limit]",
            ),
            click.option(
                "--collectives",
                type=click.Choice(["nccl", "gpu-aware", "staged"]),
                default=None,
                help="Devices: who moves what collectives and other nodes need. nccl: one rank a "
                "GPU; gpu-aware: MPI reads device memory; "
                "staged: through pinned host memory. [default: the first that can, found by "
                "asking and trying; recorded]",
            ),
        ]
    ):
        command = option(command)
    return command


PEER_OPTIONS = ("variant", "device")


def peer_options(command):
    """Add the options that only peers take to a command."""
    for option in reversed(
        [
            click.option(
                "--variant",
                type=TEXT,
                default=None,
                help="pylops: summa or block [default: summa]; cosma: forced splits, such as "
                "sm2,pk2 [default: its own choice].",
            ),
            click.option(
                "--device",
                type=click.Choice(["cpu", "cuda"]),
                default=None,
                help="dtensor, heat: where the operands are. [default: cpu]",
            ),
        ]
    ):
        command = option(command)
    return command


def problem_options(command):
    """The options that define C = A·B and the algorithm, shared by run and plan."""
    command = peer_options(command)  # listed last
    for option in reversed(
        [
            click.option(
                "-m",
                "m",
                type=SIZE,
                required=True,
                help="Rows of A and C (whole number; 48Ki works too).",
            ),
            click.option("-n", "n", type=SIZE, required=True, help="Columns of B and C."),
            click.option("-k", "k", type=SIZE, required=True, help="Columns of A, rows of B."),
            click.option(
                "--a",
                "a",
                type=TEXT,
                default=None,
                metavar="PARTITION",
                help="Partition of A. [default: the algorithm's own; universal: block]",
            ),
            click.option(
                "--b",
                "b",
                type=TEXT,
                default=None,
                metavar="PARTITION",
                help="Partition of B, likewise.",
            ),
            click.option(
                "--c",
                "c",
                type=TEXT,
                default=None,
                metavar="PARTITION",
                help="Partition of C, likewise.",
            ),
            click.option(
                "--preset",
                type=TEXT,
                default=None,
                metavar="NAME",
                help="Partitions of A, B and C by name, see drbench list; --a, --b, --c override "
                "it.",
            ),
            click.option(
                "--algorithm",
                default="universal",
                show_default=True,
                help="Algorithm, see drbench list.",
            ),
            click.option(
                "--stationary",
                type=click.Choice(["auto", "auto:model", "A", "B", "C"]),
                default=None,
                help="universal: the matrix whose tiles do not move; auto takes the largest (on a "
                "tie C, then B), auto:model the fastest on the model "
                "of --machine. [default: auto]",
            ),
            click.option(
                "--chunk",
                type=CHUNK,
                default=None,
                metavar="SIZE|auto|none",
                help="universal: longest range of the free axis one product covers, in elements: "
                "short ranges overlap better, long ones multiply "
                "faster. auto: as long as tiles allow where tiles are read in place, elsewhere "
                "1/16 of k or 1/4 of m or n; none: never cut. [default: auto]",
            ),
            click.option(
                "--replicate-result",
                is_flag=True,
                help="universal: give the finished C to all its replicas (timed), not only to "
                "replica 0.",
            ),
            click.option(
                "--schedule",
                type=click.Choice(["direct", "greedy", "cost", "exhaustive"]),
                default=None,
                help="universal: order of a rank's products and transfers. direct: as the slicing "
                "yields them, transfers ahead by --prefetch; the others lower "
                "the program to operations of bounded concurrent products and transfers: first "
                "come first served, by a cost model (simulate: the machine's), "
                "or the cheapest of all by that model (small programs only). [default: direct]",
            ),
            click.option(
                "--ir-max-compute",
                type=click.IntRange(1),
                default=None,
                help="universal, lowered: most computes in one operation. [default: 1]",
            ),
            click.option(
                "--ir-max-comm",
                type=click.IntRange(1),
                default=None,
                help="universal, lowered: most transfers in one operation. [default: 2]",
            ),
            click.option(
                "--dataflow",
                type=click.Choice(["auto", "OS", "LS", "RS", "AG", "RdS"]),
                default=None,
                help="2-D algorithms: what stays, the output C (OS), the left input A (LS) or the "
                "right input B (RS); auto, the default: the largest. "
                "tensor_parallel_1d: AllGather, then product (AG, the default), or product, then "
                "ReduceScatter (RdS).",
            ),
            click.option(
                "--mesh",
                type=TEXT,
                default=None,
                metavar="ROWSxCOLS",
                help="2-D algorithms and scalapack: process mesh, as 2x3. [default: near-square]",
            ),
            click.option(
                "--slices",
                type=click.IntRange(1),
                default=None,
                help="meshslice: slice count S. [default: OS 8, LS and RS 2; fewer if the axis is "
                "short]",
            ),
            click.option(
                "--block",
                type=SIZE,
                default=None,
                help="meshslice: block B of its slicing, in elements. [default: the longest that "
                "divides shards evenly] "
                "scalapack: rows and columns of a block-cyclic tile. [default: 64]",
            ),
            click.option(
                "--panel",
                type=SIZE,
                default=None,
                help="summa: panel width in elements. [default: as wide as tiles allow] "
                "scalapack: width of the panels that p?gemm broadcasts. [default: as built]",
            ),
            click.option(
                "--unroll",
                type=click.IntRange(1),
                default=None,
                help="wang and the 1-D algorithms: shifts merged into one product. [default: 1]",
            ),
            click.option(
                "--dtype",
                type=click.Choice(["float32", "float64", "bfloat16:float32"]),
                default="float32",
                show_default=True,
                help="Element type; bfloat16:float32, on devices, is that of A and B and that of "
                "C.",
            ),
            click.option(
                "--prefetch",
                type=click.IntRange(0),
                default=1,
                show_default=True,
                help="Look-ahead in products that need communication; 0 overlaps nothing. Lowered "
                "programs (--schedule) have their operations instead; 0 still overlaps "
                "nothing.",
            ),
        ]
    ):
        command = option(command)
    return command


#: Options that belong to algorithms; each takes those it knows and refuses the others.
_ALGORITHM_OPTIONS = (
    "stationary",
    "chunk",
    "replicate_result",
    "schedule",
    "ir_max_compute",
    "ir_max_comm",
    "dataflow",
    "mesh",
    "slices",
    "block",
    "panel",
    "unroll",
    *PEER_OPTIONS,
)


def partitions(values: dict, ranks: int) -> dict:
    """Text forms of A, B and C: the preset's where not given, None for the algorithm's own."""
    named = (
        dict(zip("abc", preset_texts(values["preset"], ranks)))
        if values["preset"]
        else dict.fromkeys("abc")
    )
    return {name: values[name] or named[name] for name in "abc"}


def take_options(values: dict) -> dict:
    """Take the algorithm's options that were given out of the values of a command."""
    taken = {name: values.pop(name) for name in _ALGORITHM_OPTIONS}
    return {
        name: value for name, value in taken.items() if value is not None and value is not False
    }


def problem(values: dict, options: dict, ranks: int):
    """The problem that the values of a command describe; refuses what cannot be run on so many
    ranks."""
    from algorithms import get_algorithm

    algorithm = get_algorithm(values["algorithm"])
    options = algorithm.pick(options)
    problem = algorithm.problem(
        values["m"],
        values["n"],
        values["k"],
        ranks,
        **partitions(values, ranks),
        dtype=values["dtype"],
        **options,
    )
    algorithm.settle(problem, **options)
    return problem


def refuse_ranks(name: str) -> None:
    """Refuse to run under a launcher: the command starts ranks itself."""
    here = launched()
    if here is not None and here.size > 1:
        raise UsageError(
            f"drbench {name} starts its own ranks. Run it without mpirun, with -p for their number."
        )


def machine_of(
    text: str | None, options: dict, transport: str = "auto"
) -> tuple[str, str, str | None]:
    """(model that auto:model asks, name in the record, model that a schedule goes by) of
    ``--machine``.

    Raises
    ------
    UsageError
        If a schedule is to go by a machine that has no model, or none of that transport.

    Examples
    --------
    >>> (
    ...     machine_of("h100x8", {"schedule": "cost"}),
    ...     machine_of("mine/box.toml", {}),
    ...     machine_of(None, {"schedule": "cost"}),
    ... )
    (('h100x8', 'h100x8', 'h100x8'), ('mine/box.toml', 'box', None), ('here', 'here', None))
    """
    if text is None:
        return "here", "here", None
    from launch.cases.machine_models import of_schedule

    by_model = bool(of_schedule(text, options.get("schedule"), transport))
    return text, text.rpartition("/")[2].removesuffix(".toml"), text if by_model else None


def decide_stationary(
    values: dict, options: dict, ranks: int, machine, transport: str = "auto"
) -> dict:
    """The options, with ``--stationary auto:model`` decided by the model of a machine, the same on
    every rank."""
    if options.get("stationary") != "auto:model":
        return options
    from launch.cases.case import Case
    from launch.cases.machine_models import find_machine
    from launch.models.tune import choose_stationary

    fields = {name: values[name] for name in ("m", "n", "k", "algorithm", "dtype", "prefetch")}
    case = Case(**fields, **partitions(values, ranks), options=options, transport=transport)
    return options | {
        "stationary": choose_stationary(
            case, machine if not isinstance(machine, str) else find_machine(machine), ranks
        )
    }
