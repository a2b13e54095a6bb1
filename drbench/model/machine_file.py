"""Performance models in TOML files: read, checked, and read again with other constants.

A model is the section ``[model]`` of a file (``launch/data/machines``), in which every number has
its unit in its name and its source next to it.
"""

import copy
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod
from os.path import isfile
from pathlib import Path
from typing import Any, Self

from drbench.errors import UnsupportedError, UsageError, did_you_mean, shown
from drbench.mappings import remembered
from drbench.program.problem import ITEMSIZES, REAL_OF
from drbench.transport import TransportChoice

from .constants import RANGES, check_table, read_table, refuse_unknown
from .gemm import Compute
from .kernels.collectives import AllReduceKernel
from .kernels.experts import ExpertExchange
from .network import Collective, Link, Rate

#: Arithmetics of GEMMs, each with a peak of its own: element types, and TF32, an arithmetic for
#: float32.
ARITHMETICS = (*(name for name in ITEMSIZES if ":" not in name), "tf32")
#: Names in tables of a machine, by table.
_KNOWN = {
    "collectives": ("allgather", "reducescatter", "broadcast", "reduce", "shift"),
    "transports": ("direct", "rma"),
    "residuals": ("direct", "rma", "throttled", "any"),
}
#: Machine files that come with drbench.
_SHIPPED = Path(__file__).parents[1] / "launch" / "data" / "machines"
#: What each of the tables inside these tables of a file describes.
_NAMED = {
    "collectives": Collective,
    "allreduces": AllReduceKernel,
    "exchanges": ExpertExchange,
}
#: Prefixes in a file of the constants of a link's rates, by field.
_RATES = {"add": "core_add_", "get": "core_"}


class MachineFile:
    """The part of a machine model that reads and changes its file."""

    name: str
    dtype: str
    dtypes: dict[str, Compute]
    sources: dict
    known: dict

    @classmethod
    def from_dict(cls, section: dict, name: str | None = None) -> Self:
        """The machine of a ``[model]`` section.

        Raises
        ------
        UsageError
            If a key is missing or unknown, or a value is invalid.
        """
        raw = copy.deepcopy(section)
        check_table(raw, "model")
        if "doubt" in raw:
            _set_in_fitted(raw, "doubt", raw["doubt"])
        values = {"torus": None} | _at_clock(raw, raw.get("clock"))
        for table in (
            *("compute", "links", "dtypes", "transports", "residuals"),
            *_NAMED,
        ):
            check_table(values.setdefault(table, {}), f"model.{table}")
        values["name"] = name or values.get("name", "unnamed")
        _check_names(values)
        values["dtypes"] = {
            name: read_table(Compute, _of_dtype(values, name), f"model.dtypes.{name}")
            for name in values["dtypes"]
        }
        values["compute"] = read_table(Compute, values["compute"], "model.compute")
        links, _ = (
            tuple(
                _read_link(key, link, f"model.{table}.{key}")
                for key, link in values.pop(table).items()
            )
            for table in ("links", "transports")
        )
        values["links"] = links
        for table, kind in _NAMED.items():
            values[table] = {
                key: read_table(kind, constants, f"model.{table}.{key}")
                for key, constants in values[table].items()
            }
        values["assumed"], factors = _assumed(values.get("assumed", ()))
        if isinstance(values["torus"], str):
            raise UsageError(
                f"machine {values['name']} needs the shape of its torus. Name it "
                f"{values['name']}-RxC, as {values['name']}-4x8."
            )
        if values["torus"] is not None:
            values.pop("devices", None)
        machine = read_table(cls, values, "model", sources=raw, factors=factors)
        return replace(machine, devices=prod(machine.torus)) if machine.torus else machine

    @classmethod
    def load(cls, path, name: str | None = None, **changes) -> Self:
        """Read the ``[model]`` section of a TOML file; ``changes`` replace constants of it.

        Raises
        ------
        UsageError
            If the file is missing, is not TOML, or has no valid ``[model]``.
        """
        section = read_section(Path(path))
        machine = cls.from_dict(section | changes, name)
        where = f"machine {machine.name} (model.assumed)"
        for constant in machine.assumed:
            (place, *_) = machine._tables(section, constant, True, where)
            _number(place[constant.rpartition(".")[2]], constant, where)
        return machine

    def vary(self, path: str, factor: float) -> Self:
        """The machine with one constant times a factor; ``path`` as in
        ``links.xe.bandwidth_bytes_per_s``."""
        return self.with_value(path, lambda value: _number(value, path, self.name) * factor)

    def with_value(self, path: str, value) -> Self:
        """The machine with one constant replaced (or mapped by a function): ``*`` in its path
        matches every table that has it.

        Examples
        --------
        >>> from drbench.model.machine import Machine
        >>> constants = {"allgather": {"launch_s": 1.0}, "shift": {"launch_s": 0.5}, "reduce": {}}
        >>> section = {"compute": {"peak_flops": 1e12}, "collectives": constants}
        >>> varied = Machine.from_dict(section).vary("collectives.*.launch_s", 2).collectives
        >>> {kind: collective.launch_s for kind, collective in varied.items()}
        {'allgather': 2.0, 'shift': 1.0, 'reduce': 0.0}
        """
        return self.with_values({path: value})

    def with_values(self, values: dict) -> Self:
        """The machine with several constants replaced, as :meth:`with_value` replaces one."""
        raw = copy.deepcopy(self.sources)
        for path, value in values.items():
            last = path.rpartition(".")[2]
            for place in self._tables(raw, path, callable(value)):
                place[last] = value(place[last]) if callable(value) else value
        return self.from_dict(raw, self.name)

    def at_end(self, end: str) -> Self:
        """The machine whose measured times are all at one end of their intervals, ``low`` or
        ``high`` (:class:`~drbench.model.kernels.Fitted`)."""
        raw = copy.deepcopy(self.sources)
        _set_in_fitted(raw, "end", end)
        return self.from_dict(raw, self.name)

    def constant(self, path: str) -> float:
        """One constant as it is in the file, with ``*`` the first."""
        return self._tables(self.sources, path, True)[0][path.rpartition(".")[2]]

    def _tables(self, raw: dict, path: str, known: bool, where: str = "") -> list[dict]:
        """The tables of a section that contain the constant of a path (with ``known`` at least
        one), or may contain it."""
        *folders, last = path.split(".")
        places = [raw]
        for name in folders:
            matches = [p.values() if name == "*" else [p.get(name)] for p in places]
            places = [table for tables in matches for table in tables if isinstance(table, dict)]
        if known or "*" in folders:
            places = [place for place in places if last in place]
        if not places:
            raise UsageError(
                f"{where or self.name} has no constant {shown(path)}. Its tables are "
                f"{', '.join(k for k, v in raw.items() if isinstance(v, dict))}."
            )
        return places

    def for_transport(self, choice: TransportChoice) -> Self:
        """The machine with the links of a transport: throttled is exact by definition; others are
        ``[model.transports.NAME]``, the link of local ranks (all, or those ``within`` a node).
        Links of the file join the other ranks.

        Raises
        ------
        UsageError
            If the machine has no model of that transport.

        Examples
        --------
        >>> from drbench.model.machine import Machine
        >>> section = {
        ...     "compute": {"peak_flops": 1e12},
        ...     "transports": {"rma": {"within": 2, "bandwidth_bytes_per_s": 1e10}},
        ...     "links": {"nic": {"bandwidth_bytes_per_s": 1e9}},
        ... }
        >>> seen = Machine.from_dict(section).for_transport(TransportChoice("rma"))
        >>> [seen.link(0, other).name for other in (1, 2)]
        ['rma', 'nic']
        """
        return remembered(self.known, choice, lambda: self._seen_through(choice))

    def _seen_through(self, choice: TransportChoice) -> Self:
        transports = self.sources.get("transports", {})
        if choice.kind == "throttled":  # adds are made in place, at the rate of the link
            link = {
                "bandwidth_bytes_per_s": choice.bandwidth_bytes_per_s,
                "latency_s": choice.latency_s,
                "shared": "initiator",
                "reads_in_place": True,
            }
            direct = transports.get("direct", {})
            link |= {name: direct[name] for name in direct if name.startswith("core_add_")}
            seen = {"links": {"throttled": link}, "accumulate_efficiency": 1.0}
            seen |= dict.fromkeys(("collectives", "allreduces"), {})
            rest = {key: self.sources[key] for key in self.sources if key != "nccl"}
            return self.from_dict(rest | seen, self.name)
        if choice.kind == "auto" and not transports:
            return self
        kind = "direct" if choice.kind == "auto" else choice.kind
        if kind not in transports:
            raise UsageError(
                f"machine {self.name} has no model of the transport {choice.kind}. It has "
                f"{', '.join(('auto', 'throttled', *transports))}."
            )
        tiers = {kind: transports[kind]} | self.sources.get("links", {})
        return self.from_dict(self.sources | {"links": tiers}, self.name)

    def for_dtype(self, dtype: str) -> Self:
        """The machine for GEMMs of an element type (``"tf32"``: of float32 in TF32). Products
        of complex numbers need four times the FLOPs, at the rate of real ones unless the machine
        has one of theirs.

        Raises
        ------
        UnsupportedError
            If it has no peak for that type: with that of another type the predicted GEMM times
            would be wrong, and communication would seem too cheap or too expensive.

        Examples
        --------
        >>> from drbench.model.machine import Machine
        >>> section = {"compute": {"peak_flops": 1e12}, "dtypes": {"float64": {"peak_flops": 5e11}}}
        >>> Machine.from_dict(section).for_dtype("float64").compute.peak_flops
        500000000000.0
        >>> Machine.from_dict(section, "toy").for_dtype("bfloat16")
        Traceback (most recent call last):
        drbench.errors.UnsupportedError: machine toy has peaks for float32, float64, none for ...
        """
        if dtype == self.dtype:
            return self
        own = dtype if dtype in self.dtypes else REAL_OF.get(dtype, dtype)
        if own not in (self.dtype, *self.dtypes):
            raise UnsupportedError(
                f"machine {self.name} has {'peaks' if self.dtypes else 'a peak'} for "
                f"{', '.join(self.peaks)}, none for {dtype}. Add to its file "
                f"[model.dtypes.{dtype}] and below it peak_flops = (FLOP/s of one device), or use "
                f"--dtype {self.dtype}."
            )
        compute = _of_dtype(self.sources, own) if own in self.dtypes else self.sources["compute"]
        if dtype in REAL_OF:
            compute = compute | {"sustained": compute.get("sustained", 1.0) / 4}
        return self.from_dict(self.sources | {"compute": compute, "dtype": dtype}, self.name)


def read_section(path: Path, above: tuple[Path, ...] = ()) -> dict:
    """The section ``[model]`` of a file, with the constants of its ``base`` that it does not
    replace."""
    try:
        with open(path, "rb") as file:
            section = tomllib.load(file).get("model")
    except OSError as error:
        raise UsageError(
            f"machine file {path}: {error.strerror}. Use drbench list, or drbench calibrate "
            f"--save {path}."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"machine file {path} is not TOML: {error}. Correct it.") from None
    if section is None:
        raise UsageError(
            f"machine file {path} has no section [model]. Add one, or make one with drbench "
            f"calibrate --save {path}."
        )
    check_table(section, "model")
    base = section.pop("base", None)
    if base is None:
        return section
    if not isinstance(base, str) or not base.isprintable() or path in above:
        raise UsageError(
            f"machine file {path}: base must be another machine file, got {shown(base)}. Name one "
            "beside it or of drbench list machines, as base = 'dgxh100.toml'."
        )
    places = path.parent / base, _SHIPPED / base
    below = next(filter(isfile, places), places[0])
    return _replace_constants(read_section(below, (*above, path)), section)


def _set_in_fitted(section: dict, name: str, value: Any) -> None:
    """Give a value to a constant of each table inside a section that has intervals."""
    for table in section.values():
        if isinstance(table, dict):
            _set_in_fitted(table, name, value)
            if "intervals" in table:
                table[name] = value


def _at_clock(table: dict, clock: Any) -> dict:
    """A table whose units run at this share of their clock rate: rates of products are lower, and
    softmax takes longer. A share that is refused where it is read changes nothing.

    Examples
    --------
    >>> _at_clock({"compute": {"peak_flops": 8.0, "memory_bytes_per_s": 1.0}}, 0.5)
    {'compute': {'peak_flops': 4.0, 'memory_bytes_per_s': 1.0}}
    """
    least, most = RANGES["Machine.clock"]
    if not (isinstance(clock, (int, float)) and least <= clock <= most):
        return dict(table)

    def change(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _at_clock(value, clock)
        is_rate, is_number = name.endswith("_flops"), isinstance(value, (int, float))
        if not is_number or not (is_rate or name == "score_s"):
            return value
        return value * clock if is_rate else value / clock

    return {name: change(name, value) for name, value in table.items()}


def _replace_constants(table: dict, by: dict) -> dict:
    """A table with the constants of another, those of inner tables one by one.

    Examples
    --------
    >>> _replace_constants({"compute": {"units": 8, "edge": 2}}, {"compute": {"edge": 4}})
    {'compute': {'units': 8, 'edge': 4}}
    """
    both = [key for key in by if isinstance(by[key], dict) and isinstance(table.get(key), dict)]
    return table | by | {key: _replace_constants(table[key], by[key]) for key in both}


def _read_link(name: str, values: Any, where: str) -> Link:
    """The link of a table; the constants of its rates begin with :data:`_RATES`."""
    check_table(values, where)
    left, rates = dict(values), {}
    for field, prefix in _RATES.items():
        own = {key: left.pop(key) for key in values if key in left and key.startswith(prefix)}
        rates[field] = read_table(Rate, own, where, prefix)
    return read_table(Link, left, where, name=name, **rates)


def _check_names(values: dict) -> None:
    """Refuse an unknown element type, operation or transport: its constants would never be used."""
    for table, known in _KNOWN.items():
        refuse_unknown(values[table], known, f"model.{table}")
    names = {f"dtypes.{dtype}": dtype for dtype in values["dtypes"]}
    for where, name in ({"dtype": values.get("dtype", "float32")} | names).items():
        if name not in ARITHMETICS:
            raise UsageError(
                f"model.{where}: no element type {name!r}. Use {', '.join(ARITHMETICS)}."
                f"{did_you_mean(str(name), ARITHMETICS)}"
            )


def _assumed(texts: Sequence[str]) -> tuple[tuple[str, ...], dict[str, float]]:
    """The paths of assumed constants, and the factors of some of them.

    Examples
    --------
    >>> _assumed(["fence_s", "links.xe.bandwidth_bytes_per_s by 1.33"])
    (('fence_s', 'links.xe.bandwidth_bytes_per_s'), {'links.xe.bandwidth_bytes_per_s': 1.33})
    """
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"model.assumed must be a list of texts, got {shown(texts)}.")
    pairs = [text.partition(" by ")[::2] for text in texts]
    try:
        factors = {path: float(by) for path, by in pairs if by}
    except ValueError:
        factors = {"": 0.0}
    if not all(1 <= by < inf for by in factors.values()):
        raise UsageError(
            "model.assumed must be paths of constants, and may have a factor of at least 1, got "
            f"{shown(list(texts))}. Write it as fence_s by 1.5."
        )
    return tuple(path for path, _ in pairs), factors


def _number(value, path: str, machine: str) -> float:
    """The number of a constant that is to be varied."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{machine} has no number {shown(path)} to vary. Name one, as 'fence_s'.")
    return value


def _of_dtype(section: dict, dtype: str, above: tuple[str, ...] = ()) -> dict:
    """The table ``compute`` of a section for GEMMs of an element type: its own peak, and other
    constants that differ from ``compute`` or, with ``like``, from those of another type."""
    own, where = section["dtypes"].get(dtype), f"model.dtypes.{dtype}"
    if not isinstance(own, dict) or "peak_flops" not in own:
        raise UsageError(f"{where} needs peak_flops. Add it, with its source.")
    like, own = own.get("like"), {key: own[key] for key in own if key != "like"}
    if like is None:
        return section.get("compute", {}) | own
    if like not in section["dtypes"] or like in (dtype, *above):
        raise UsageError(
            f"{where}.like must be another element type of the file, got {shown(like)}."
        )
    return _of_dtype(section, like, (*above, dtype)) | own
