"""Constants of machine files, checked by their descriptions: the annotation of a constant is its
type, :data:`RANGES` has the range of its numbers.
"""

from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from math import inf, isfinite
from numbers import Integral, Real
from types import NoneType
from typing import Any, NamedTuple, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from drbench.errors import UsageError, did_you_mean, shown


class Range(NamedTuple):
    """The least and the most that a number may be. If ``most`` is inf: a rate, or inf."""

    least: float
    most: float


_WHOLE = Range(0, 1 << 20)
_COUNT = Range(1, 1 << 20)
_SECONDS = Range(0, 1e9)
_RATE = Range(1e-3, 1e30)

#: Ranges of numbers by the constant's name, or else by the unit that it ends with; whole numbers
#: that are not listed here are counts, or 0 for none. A constant may also be its default.
RANGES = {
    "Link.bandwidth_bytes_per_s": Range(_RATE.least, inf),  # inf: reading in place moves nothing
    "Collective.bandwidth_bytes_per_s": Range(_RATE.least, inf),  # of cores that share memory
    "Collective.across_bandwidth_bytes_per_s": Range(_RATE.least, inf),
    "Link.node": _COUNT,
    "Compute.sustained": Range(1e-6, 1),
    "Compute.units": _COUNT,
    "Compute.tiles": _COUNT,
    "Compute.fused_tiles": _COUNT,
    "Compute.splits": _COUNT,
    "Compute.edge": Range(0, 1e9),
    "Compute.k_ramp": Range(0, 1e9),
    "Compute.k_block": Range(1, 1e12),
    "Compute.functions": _SECONDS,
    "Machine.clock": Range(1e-2, 10),
    "Machine.devices": Range(1, 1 << 40),
    "Machine.torus": _COUNT,
    "Machine.packets": _COUNT,
    "Machine.residuals": Range(1e-6, 1e6),
    "Machine.calibrated": Range(1, 1 << 62),
    "AllReduceKernel.two_shot_s": Range(0, inf),
    "Nccl.network_bytes_per_s": Range(_RATE.least, inf),
    "doubt": Range(1, 100),
    "intervals": Range(0, 1e15),
    "Nccl.switch_link_share": Range(0, 1e3),
    "Compute.burst": Range(1, 100),
    "Compute.norm": Range(1, 100),
    "PrefillAttention.balance": Range(1, 100),
    "_share": Range(1e-3, 1e3),
    "_s": _SECONDS,
    "_per_s": _RATE,
    "_flops": _RATE,
    "_bytes": Range(1, 1e30),
    "_efficiency": Range(1e-6, 1e3),
    "_slowdown": Range(0, 1e6),
}


class Calibrated(TypedDict, total=False):
    """The range of a calibration: processes, nodes and threads, the least and the most of each
    extent of GEMMs and of the bytes of messages, and where and when it was measured."""

    ranks: int
    nodes: int
    node: int
    threads: int
    dtypes: tuple[str, ...]
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    bytes: tuple[int, int]
    shards: tuple[int, int]
    date: str
    processor: str


def read_table(kind: type, values: Any, where: str, prefix: str = "", **more) -> Any:
    """The object of a dataclass of constants, from a table of a file.

    Parameters
    ----------
    kind : type
        Fields that begin with an underscore are no constants.
    values : dict
    where : str
        The table, for errors.
    prefix : str
        Prefix of the names of the constants in the file.
    **more
        Fields that are not in the table.

    Raises
    ------
    UsageError
        If a constant is missing, unknown, or does not fit its description.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> read_table(Compute, {"peak_flops": 1e12, "splits": [1, 2]}, "model.compute").splits
    (1, 2)
    >>> read_table(Compute, {"peak_flops": 1e12, "units": 1.5}, "compute")
    Traceback (most recent call last):
    drbench.errors.UsageError: compute.units must be a whole number from 1 to 1048576, got 1.5.
    """
    check_table(values, where)
    known = {
        prefix + constant.name: constant
        for constant in fields(kind)
        if constant.name not in more and not constant.name.startswith("_")
    }
    refuse_unknown(values, known, where)
    for name, constant in known.items():
        if (
            name not in values
            and constant.default is MISSING
            and constant.default_factory is MISSING
        ):
            raise UsageError(f"{where} needs {name}. Add it, with its source.")
    read = {
        name.removeprefix(prefix): _read_constant(kind, known[name], value, f"{where}.{name}")
        for name, value in values.items()
    }
    return kind(**more | read)


def check_table(values: Any, where: str) -> None:
    """Raise a UsageError if the values are not a table."""
    if not isinstance(values, dict):
        raise UsageError(f"{where} must be a table of constants, got {shown(values)}.")


def refuse_unknown(values: Any, known: Any, where: str) -> None:
    """Raise a UsageError for an unknown name in a table."""
    for name in values:
        if name not in known:
            raise UsageError(
                f"{where} has no constant {name!r}. It takes {', '.join(sorted(known))}."
                f"{did_you_mean(name, known)}"
            )


def _read_constant(kind: type, of: Field, value: Any, where: str) -> Any:
    if of.default is not MISSING and type(value) is type(of.default) and value == of.default:
        return value
    return _read(value, _annotations(kind)[of.name], _range_of(kind, of.name), where)


@cache
def _annotations(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _range_of(kind: type, name: str) -> Range:
    units = sorted((unit for unit in RANGES if name.endswith(unit)), key=len)
    return RANGES.get(f"{kind.__name__}.{name}") or (RANGES[units[-1]] if units else _WHOLE)


def _read(value: Any, kind: Any, span: Range, where: str) -> Any:
    """The value in the type of an annotation, numbers checked against a range."""
    origin, inner = get_origin(kind), get_args(kind)
    if NoneType in inner:
        return None if value is None else _read(value, inner[0], span, where)
    if kind is int or kind is float:
        return _read_number(value, kind, span, where)
    if kind is bool or kind is str:
        wanted = "true or false" if kind is bool else "a text"
        _require(type(value) is kind, where, wanted, value)
        _require(kind is bool or value.isprintable(), where, "a text on one line", value)
        return value
    if is_dataclass(kind):
        return value if isinstance(value, kind) else read_table(kind, value, where)
    if is_typeddict(kind) or origin is dict:
        check_table(value, where)
        known = _annotations(kind) if is_typeddict(kind) else dict.fromkeys(value, inner[1])
        refuse_unknown(value, known, where)
        return {name: _read(value[name], known[name], span, f"{where}.{name}") for name in value}
    several = isinstance(value, (list, tuple))
    if origin is list or inner[-1] is Ellipsis:
        _require(several, where, "a list", value)
        return origin(_read(item, inner[0], span, where) for item in value)
    _require(several and len(value) == len(inner), where, f"a list of {len(inner)}", value)
    return tuple(_read(item, of, span, where) for item, of in zip(value, inner))


def _read_number(value: Any, kind: type, span: Range, where: str) -> Any:
    number = isinstance(value, Real) and not isinstance(value, bool)
    whole = isinstance(value, Integral) or (number and isfinite(value) and value == int(value))
    most = _RATE.most if span.most == inf else span.most
    fits = number and (whole or kind is float)
    fits = fits and (span.least <= value <= most or value == span.most)
    if not fits:
        ends = f"from {_end(span.least)} to {_end(most)}{', or inf' if span.most == inf else ''}"
        _require(False, where, f"a {'whole ' if kind is int else ''}number {ends}", value)
    return int(value) if kind is int else value


def _end(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def _require(holds: bool, where: str, what: str, value: Any) -> None:
    if not holds:
        raise UsageError(f"{where} must be {what}, got {shown(value)}.")
