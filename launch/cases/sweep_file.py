"""Sweep files: experiments as data. A TOML file of blocks, each block a product of lists, becomes a
list of cases.

``docs/sweeps.md`` says how to write one. Reading and expanding is pure: the same file, ranks and
overrides give the same cases in the same order.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

from algorithms import algorithms, get_algorithm
from drbench.errors import UsageError, did_you_mean, shown
from launch.peers import PEERS, get_peer, known_options
from partitions import LayoutError, parse
from partitions.enumerate import KINDS, REPLICATIONS, partition_triples
from partitions.partition import replica_suffix

from .case import FIELDS, Case, partition_texts, refuse_our_options
from .sweep_values import (
    check_keys,
    check_text,
    integer,
    name_of,
    read_toml,
    require,
    scale_of,
    scaled_size,
    shipped,
    values_of,
)

_TOP = ("name", "about", "scale", "defaults", "cases")
_SHAPE = ("m", "n", "k")
#: More cases than this are a slip of the pen.
_MOST_CASES = 250_000
#: Keys that are not fields of a case but set several of them.
_SPECIAL = ("partitions", "replication", "zip", "exclude")


@dataclass(frozen=True)
class Sweep:
    """An expanded sweep.

    Attributes
    ----------
    name, about : str
    cases : tuple of Case
        In the file's order, without repetition.
    scale : Fraction
        What m, n and k were multiplied by.
    repeated : int
        Cases left out because an earlier one is the same.
    """

    name: str
    about: str
    cases: tuple[Case, ...]
    scale: Fraction
    repeated: int = 0


def find_sweep(text: str) -> Path:
    """The file of a sweep: a path, or the name of a shipped one.

    Raises
    ------
    UsageError
    """
    known = shipped("sweeps")
    path = known.get(text, Path(text))
    if path.is_file():
        return path
    raise UsageError(
        f"no sweep {text!r}: neither a file nor one of "
        f"{', '.join(known)}.{did_you_mean(text, known)}"
    )


def load_sweep(text: str, ranks: int, scale: str | Fraction | None = None, **overrides) -> Sweep:
    """Find, read and expand a sweep.

    Parameters
    ----------
    text : str
        Path of a TOML file, or the name of a shipped sweep.
    ranks : int
    scale : str or Fraction, optional
        Instead of the file's own, as ``"1/16"``.
    **overrides
        Case fields that every case gets instead of its own (None: leave it).

    Raises
    ------
    UsageError
        Naming the file and the key.

    Examples
    --------
    >>> sweep = load_sweep("mlp1-small", 4)
    >>> len(sweep.cases), (sweep.cases[0].m, sweep.cases[0].n, sweep.cases[0].k)
    (48, (128, 6144, 1536))
    """
    path = find_sweep(text)
    return expand(read_toml(path), ranks, path.name, scale, **overrides)


def expand(
    table: dict, ranks: int, file: str = "sweep", scale: str | Fraction | None = None, **overrides
) -> Sweep:
    """The cases of a sweep file that has been read; see :func:`load_sweep`.

    Examples
    --------
    >>> block = {
    ...     "m": [64, "1Ki"],
    ...     "n": 64,
    ...     "k": 64,
    ...     "preset": "row",
    ...     "replication": "equal",
    ...     "stationary": ["C", "B"],
    ... }
    >>> sweep = expand({"name": "tiny", "cases": [block]}, ranks=2)
    >>> [(case.m, case.c, case.options["stationary"]) for case in sweep.cases][:4]
    [(64, 'row', 'C'), (64, 'row', 'B'), (64, 'row/c2', 'C'), (64, 'row/c2', 'B')]
    """
    check_keys(table, _TOP, f"{file}: ")
    name = name_of(table.get("name"), file)
    about = check_text(table.get("about", ""), f"{file}: about")
    factor = (
        scale_of(table.get("scale", "1"), f"{file}: scale")
        if scale is None
        else scale_of(scale, "--scale")
    )
    defaults, blocks = table.get("defaults", {}), table.get("cases")
    is_table = isinstance(defaults, dict)
    require(is_table, f"{file}: defaults", "a table, as [defaults]", defaults)
    are_tables = isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks)
    require(are_tables and blocks, f"{file}: cases", "one or more tables, as [[cases]]", blocks)
    given = {key: value for key, value in overrides.items() if value is not None}
    cases: dict[str, Case] = {}
    total = 0
    for number, block in enumerate(blocks, 1):
        block = defaults | block
        # another backend has a way to get tiles of its own
        own = {"get": None} if "backend" in given and "get" not in block else {}
        for case in _block(block, ranks, factor, f"{file}: cases {number}", total):
            case = replace(case, **own, **given)
            cases.setdefault(repr(case), case)
            total += 1
    return Sweep(name, about, tuple(cases.values()), factor, total - len(cases))


def _block(block: dict, ranks: int, scale: Fraction, where: str, before: int):
    """The cases of one block: the product of its axes, the first key turning slowest; ``before`` it
    there were so many."""
    axes = {
        key: _axis(key, value, ranks, f"{where}: {key}")
        for key, value in block.items()
        if key not in ("zip", "exclude")
    }
    for key in _SHAPE:
        if key not in axes:
            raise UsageError(f"{where}: {key}: is missing. Every case needs m, n and k.")
    merged = _zipped(axes, block.get("zip", []), f"{where}: zip")
    if (count := before + prod(map(len, merged))) > _MOST_CASES:
        lists = ", ".join(f"{len(axes[key])} of {key}" for key in axes if len(axes[key]) > 1)
        raise UsageError(
            f"{where}: makes {count} cases of the file, at most {_MOST_CASES} are taken. Use "
            f"shorter lists, or several files; there are {lists}."
        )
    excluded = _exclusions(block.get("exclude", []), axes, f"{where}: exclude")
    for choice in product(*merged):
        values = {key: value for part in choice for key, value in part.items()}
        if not any(all(values[key] in wanted for key, wanted in rule.items()) for rule in excluded):
            yield _case(values, ranks, scale, where)


def _axis(key: str, value, ranks: int, where: str) -> list:
    """All values of one key of a block."""
    if key == "partitions":
        if value == "all":
            return list(partition_triples(KINDS))
        fits = value and isinstance(value, list)
        require(fits, where, "a list that is not empty", value)
        return [tuple(check_text(text, where) for text in _triple(each, where)) for each in value]
    if key == "replication":
        if isinstance(value, str):
            if value not in REPLICATIONS:
                raise UsageError(
                    f"{where}: {value!r} is none of {', '.join(REPLICATIONS)}; or give factors, "
                    "as [1, 2] or [[1, 1, 2]]."
                )
            return list(REPLICATIONS[value](ranks))
        require(value != [], where, "a list that is not empty", value)
        triples = [
            (each,) * 3 if isinstance(each, int) else _triple(each, where)
            for each in (value if isinstance(value, list) else [value])
        ]
        return [tuple(integer(factor, where, least=1) for factor in triple) for triple in triples]
    takers = [FIELDS[key]] if key in FIELDS else list(known_options().get(key, {}).values())
    if not takers:
        known = (*FIELDS, *known_options(), *_SPECIAL)
        raise UsageError(
            f"{where}: there is no such key."
            + (
                did_you_mean(key, known)
                or " They are those of drbench run, without dashes (docs/sweeps.md)."
            )
        )
    if value == "all":
        if key == "algorithm":  # whatever is in algorithms/ and runs on a process mesh
            return [name for name, algorithm in algorithms().items() if "mesh" in algorithm.options]
        for option in takers:
            if option.tried:
                return list(option.tried(ranks) if callable(option.tried) else option.tried)
    return values_of(value, where, takers)


def _triple(value, where: str) -> tuple:
    fits = isinstance(value, list) and len(value) == 3
    require(fits, where, "three values, for A, B and C", value)
    return tuple(value)


def _zipped(axes: dict, groups, where: str) -> list[list[dict]]:
    """Axes as lists of assignments; those of a zip group advance together, at the place of the
    first of them."""
    what = 'a list of lists of keys, as [["m", "n"]]'
    require(isinstance(groups, list), where, what, groups)
    group_of = {}
    for group in groups:
        keys = group if isinstance(group, list) else []
        if len(keys) < 2 or not all(isinstance(key, str) and key in axes for key in keys):
            raise UsageError(f"{where}: {shown(group)} must name two or more keys of this block.")
        lengths = {key: len(axes[key]) for key in group}
        if len(set(lengths.values())) > 1:
            raise UsageError(
                f"{where}: keys that advance together need lists of one length, got {lengths}."
            )
        for key in group:
            if key in group_of:
                raise UsageError(f"{where}: {key} is in two groups.")
            group_of[key] = group
    merged, done = [], set()
    for key in axes:
        group = group_of.get(key, [key])
        if key not in done:
            merged.append([dict(zip(group, each)) for each in zip(*(axes[name] for name in group))])
        done |= set(group)
    return merged


def _exclusions(rules, axes: dict, where: str) -> list[dict]:
    """Each rule: key -> values; a case that has one of them for every key of a rule is left out."""
    fits = isinstance(rules, list) and all(isinstance(rule, dict) and rule for rule in rules)
    require(fits, where, 'a list of tables, as [{preset = "row", stationary = "B"}]', rules)
    found = []
    for rule in rules:
        wanted = {}
        for key, value in rule.items():
            if key not in axes:
                raise UsageError(f"{where}: {key} is no key of this block, so nothing could match.")
            wanted[key] = _axis(key, value, 1, f"{where}: {key}")
        found.append(wanted)
    return found


def _case(values: dict, ranks: int, scale: Fraction, where: str) -> Case:
    """One case of a combination of values."""
    values = dict(values)
    triple, factors = values.pop("partitions", None), values.pop("replication", None)
    for key in _SHAPE:
        values[key] = scaled_size(values[key], scale)
    options = {key: values.pop(key) for key in list(values) if key not in FIELDS}
    values = dict(zip("abc", triple or ())) | values
    try:
        texts = partition_texts(values, ranks)
    except LayoutError as error:
        raise UsageError(f"{where}: preset: {error}") from None
    if factors is not None:
        for name, factor in zip("abc", factors):
            if texts[name] is None or (factor > 1 and "/c" in texts[name]):
                raise UsageError(
                    f"{where}: replication: needs partitions of A, B and C without factors of "
                    f"their own; {name} is {texts[name]}."
                )
            texts[name] += replica_suffix(factor)
    case = Case(**{**values, **texts}, options=options)
    _check(case, where)
    return case


def _check(case: Case, where: str) -> None:
    """Refuse what no number of ranks makes right: an unknown algorithm, an option that it does not
    take, a partition that is none."""
    try:
        taker = (
            get_peer(case.algorithm) if case.algorithm in PEERS else get_algorithm(case.algorithm)
        )
    except UsageError as error:
        raise UsageError(f"{where}: algorithm: {error}") from None
    for name in case.options:
        if name not in taker.options:
            takes = ", ".join(taker.options) or "no options of its own"
            raise UsageError(f"{where}: {name}: {taker.name} takes none. It takes {takes}.")
    if case.algorithm in PEERS:
        try:
            refuse_our_options(case)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
    for name in "abc":
        try:
            _spelling(getattr(case, name))
        except LayoutError as error:
            raise UsageError(f"{where}: {name}: {error}") from None


@cache
def _spelling(text: str | None) -> None:
    """A LayoutError if a text is no partition."""
    if text is not None:
        parse(text)
