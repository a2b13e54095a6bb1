"""Sweep files: experiments as data. A TOML file of blocks, each block a product of lists, becomes a
list of cases.

``docs/sweeps.md`` says how to write one. Reading and expanding is pure: the same file, ranks and
overrides give the same cases in the same order.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

from algorithms import algorithms, get_algorithm
from drbench.errors import UnsupportedError, UsageError, did_you_mean, shown
from drbench.options import check_options
from launch.peers import PEERS, get_peer, known_options
from partitions import LayoutError, parse
from partitions.arithmetic import near_square
from partitions.enumerate import KINDS, REPLICATIONS, partition_triples
from partitions.partition import replica_suffix

from .case import FIELDS, OURS, Case, bound, partition_texts, refuse_our_options
from .sweep_values import (
    check_keys,
    check_text,
    integer,
    name_of,
    overrides_of,
    read_toml,
    require,
    scale_of,
    scaled_size,
    shipped,
    values_of,
)

_TOP = ("name", "about", "scale", "ranks", "grow", "rounds", "view", "paper", "defaults", "cases")
_SHAPE = ("m", "n", "k")
#: Options of the paper's own program: whole tiles are fetched and make one GEMM (§4.2), replicas of
#: C are pushed with the atomic kernel (the authors' repository), look-ahead 1 is the default.
PAPER = {"chunk": "none", "fetch": "tile", "reduce": "push"}
#: The tables that a sweep may end with.
VIEWS = ("scaling", "algorithms", "libraries", "mlp")
#: More cases than this are a slip of the pen.
_MOST_CASES = 250_000
#: Keys that are not fields of a case but set several of them, or add cases; benchmarks hold the
#: records of a block against its ``bar``.
_SPECIAL = ("partitions", "replication", "libraries", "settings", "same_tiles", "zip", "bar")
#: Keys that say where matrices lie; libraries have layouts of their own.
_LAYOUT = ("partitions", "replication", "preset", "a", "b", "c")
#: The matrix that the universal algorithm keeps where an algorithm has this dataflow.
_STATIONARY = {"OS": "C", "LS": "A", "RS": "B", "AG": "B", "RdS": "B"}


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
    rounds : int or str
        How often every case is run, interleaved with the others; ``known``: until the order of the
        fastest is known; 0: each case is run once.
    view : str
        The table at the end, one of :data:`VIEWS`; empty for none.
    """

    name: str
    about: str
    cases: tuple[Case, ...]
    scale: Fraction
    repeated: int = 0
    rounds: int | str = 0
    view: str = ""


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


def load_sweep(
    text: str,
    ranks: int,
    scale: str | Fraction | None = None,
    overrides: Iterable[tuple[str, str]] = (),
    machine: str | None = None,
    simulate: bool = False,
) -> Sweep:
    """Find, read and expand a sweep.

    Parameters
    ----------
    text : str
        Path of a TOML file, or the name of a shipped sweep.
    ranks : int
    scale : str or Fraction, optional
        Instead of the file's own, as ``"1/16"``.
    overrides : iterable of (str, str)
        Keys of the file and what stands for their values, as ``-o`` takes them.
    machine : str, optional
        The label of every case, instead of its own.
    simulate : bool
        The cases are to be predicted: where the file says ``paper = true``, of the paper's own
        program (:func:`as_in_the_paper`).

    Raises
    ------
    UsageError
        Naming the file and the key.

    Examples
    --------
    >>> sweep = load_sweep("mlp1-small", 4)
    >>> len(sweep.cases), (sweep.cases[0].m, sweep.cases[0].n, sweep.cases[0].k)
    (48, (128, 6144, 1536))
    >>> sweep = load_sweep("mlp1-small", 4, overrides=[("m", "64,1Ki"), ("preset", "row")])
    >>> [(case.m, case.options["stationary"]) for case in sweep.cases]
    [(8, 'C'), (8, 'B'), (128, 'C'), (128, 'B')]
    """
    path = find_sweep(text)
    table = read_toml(path)
    sweep = expand(table, ranks, path.name, scale, overrides, machine)
    if simulate and table.get("paper", False) is True:
        cases = tuple(as_in_the_paper(case, ranks) for case in sweep.cases)
        return replace(sweep, cases=cases)
    return sweep


def as_in_the_paper(case: Case, ranks: int, options: dict | None = None) -> Case:
    """A case as the paper's program has it: :data:`PAPER`, and near-square grids of blocks with no
    fewer rows than columns, written out. Another algorithm than the universal one stays as it is.

    Parameters
    ----------
    options : dict, optional
        Options that are not the paper's.

    Examples
    --------
    >>> case = as_in_the_paper(Case(8, 8, 8, "block/c2", "row", "block", preset="block"), 12)
    >>> case.a, case.b, case.c, case.options
    ('block:3x2/c2', 'row', 'block:4x3', {'chunk': 'none', 'fetch': 'tile', 'reduce': 'push'})
    """
    if case.algorithm != "universal":
        return case
    texts = {name: _tall(getattr(case, name), ranks) for name in "abc"}
    return replace(case, **texts, options=PAPER | case.options | (options or {}))


def _tall(text: str, ranks: int) -> str:
    kind, slash, factor = text.partition("/c")
    if kind != "block":
        return text
    fewer, more = near_square(ranks // int(factor or 1))
    return f"block:{more}x{fewer}{slash}{factor}"


def ranks_of(
    text: str, most: int | None, overrides: Iterable[tuple[str, str]] = ()
) -> tuple[int, ...] | None:
    """The numbers of ranks that a sweep names, rising: ``doubling`` is 1, 2, 4, ... up to the
    ``most``, which is None where it is not known. None if the sweep runs on one number of ranks.

    Examples
    --------
    >>> ranks_of("scaling", 6), ranks_of("mlp1", 6), ranks_of("mlp1", 6, [("ranks", "2,1")])
    ((1, 2, 4, 6), None, (1, 2))
    """
    path = find_sweep(text)
    found = overrides_of(overrides, _takers).get("ranks", read_toml(path).get("ranks"))
    if found is None:
        return None
    where = f"{path.name}: ranks"
    if found == "doubling":
        return (*(1 << step for step in range(((most or 1) - 1).bit_length())), most or 1)
    listed = found if isinstance(found, list) else [found]
    require(listed, where, 'numbers of ranks as [1, 2, 4], or "doubling"', found)
    return tuple(sorted({integer(each, where, least=1) for each in listed}))


def expand(
    table: dict,
    ranks: int,
    file: str = "sweep",
    scale: str | Fraction | None = None,
    overrides: Iterable[tuple[str, str]] = (),
    machine: str | None = None,
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
    given = overrides_of(overrides, _takers)
    table = table | {key: given.pop(key) for key in _TOP if key in given}
    check_keys(table, _TOP, f"{file}: ")
    name = name_of(table.get("name"), file)
    about = check_text(table.get("about", ""), f"{file}: about")
    factor = (
        scale_of(table.get("scale", "1"), f"{file}: scale")
        if scale is None
        else scale_of(scale, "--scale")
    )
    view, grow, rounds = (table.get(key, "") for key in ("view", "grow", "rounds"))
    for key, value, words in (("view", view, VIEWS), ("grow", grow, _SHAPE)):
        require(value in ("", *words), f"{file}: {key}", f"one of {', '.join(words)}", value)
    if rounds not in ("", "known"):
        fits = type(rounds) is int and rounds >= 0
        require(fits, f"{file}: rounds", 'a whole number, or "known"', rounds)
    paper = table.get("paper", False)
    require(type(paper) is bool, f"{file}: paper", "true or false", paper)
    defaults, blocks = table.get("defaults", {}), table.get("cases")
    is_table = isinstance(defaults, dict)
    require(is_table, f"{file}: defaults", "a table, as [defaults]", defaults)
    are_tables = isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks)
    require(are_tables and blocks, f"{file}: cases", "one or more tables, as [[cases]]", blocks)
    cases: dict[str, Case] = {}
    total, used, options = 0, set(), known_options().keys()
    blocks = [defaults | block for block in blocks]
    laid_out = any(block.keys() & set(_LAYOUT) for block in blocks)
    for number, block in enumerate(blocks, 1):
        block, mine = _overridden(block, given, laid_out)
        used |= mine - options
        for case, same in _block(block, ranks, factor, f"{file}: cases {number}", total, mine):
            used |= mine & case.options.keys()
            if grow:
                case = replace(case, **{grow: ranks * getattr(case, grow)})
            if machine is not None:
                case = replace(case, machine=machine)
            total += repr(case) not in cases or not same
            cases.setdefault(repr(case), case)
    for key in given:
        if key not in used:
            raise UsageError(f"-o {key}: no case of {name} takes it. Leave it out.")
    return Sweep(name, about, tuple(cases.values()), factor, total - len(cases), rounds or 0, view)


def _takers(key: str) -> list:
    """What describes the values of a key; nothing for keys that are no field or option."""
    known = (*FIELDS, *known_options(), *_SPECIAL, *_TOP)
    if key not in known:
        raise UsageError(f"-o {key}: there is no such key.{did_you_mean(key, known)}")
    return [FIELDS[key]] if key in FIELDS else list(known_options().get(key, {}).values())


def _overridden(block: dict, given: dict, laid_out: bool) -> tuple[dict, set[str]]:
    """A block with the keys that are given instead of its own, and which of them are its: layouts
    are given to blocks that name one, if any of the file does (``laid_out``), never to libraries;
    libraries to blocks that name some."""
    theirs = "libraries" in block
    foreign = () if theirs else ("libraries", "settings")
    if theirs or laid_out and not block.keys() & set(_LAYOUT):
        foreign += _LAYOUT
    mine = {key: value for key, value in given.items() if key not in foreign}
    names = mine.get("algorithm", block.get("algorithm", Case.algorithm))
    names = names if isinstance(names, list) else [names]
    for key, takers in known_options().items():  # no axis of what no algorithm of the block takes
        if key in mine and "all" not in names and not takers.keys() & {*map(str, names)}:
            del mine[key]
    if "preset" in mine or "partitions" in mine:  # one says what the other would
        block = {key: value for key, value in block.items() if key not in ("preset", "partitions")}
    if "backend" in mine:  # another backend has a way to get tiles of its own, and other threads
        block = {key: value for key, value in block.items() if key not in ("get", "threads")}
    return block | mine, set(mine)


def _block(block: dict, ranks: int, scale: Fraction, where: str, before: int, given: set):
    """The cases of one block: the product of its axes, the first key turning slowest; ``before`` it
    there were so many. Each with False; with True what ``same_tiles`` adds, the universal algorithm
    on the tiles of a case. Options that are ``given`` from outside are those of the algorithms that
    take them."""
    block = dict(block)
    twins, settings = block.pop("same_tiles", False), block.pop("settings", "default")
    require(type(twins) is bool, f"{where}: same_tiles", "true or false", twins)
    if "libraries" in block:
        block["libraries"] = _libraries(block["libraries"], settings, ranks, where)
    axes = {
        key: _axis(key, value, ranks, f"{where}: {key}")
        for key, value in block.items()
        if key not in ("zip", "bar")
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
    for choice in product(*merged):
        values = {key: value for part in choice for key, value in part.items()}
        case = _case(values, ranks, scale, where, given)
        if not _takes_given(case, given):
            continue
        yield case, False
        if twins:
            with suppress(UnsupportedError):  # not on this mesh: a row that says so
                yield _universal(case, ranks), True


def _takes_given(case: Case, given: set) -> bool:
    """Whether the algorithm takes the values of its options that are given from outside: OS is no
    dataflow of every algorithm that has one."""
    named = {key: case.options[key] for key in given & case.options.keys()}
    if not named or case.algorithm in PEERS:
        return True
    try:
        check_options(get_algorithm(case.algorithm).options, named)
    except UsageError:
        return False
    return True


def _universal(case: Case, ranks: int) -> Case:
    """The universal algorithm on the tiles of a case, with the matrix stationary that its dataflow
    keeps."""
    algorithm, problem, options = bound(case, ranks)
    algorithm.resolve(problem, **options)
    stationary = _STATIONARY.get(options.get("dataflow"), "auto")
    options = {"stationary": stationary}
    return replace(case, algorithm="universal", **problem.texts, options=options)


def _libraries(names, settings, ranks: int, where: str) -> list[dict]:
    """The fields of each library that is named, as it comes or in every setting."""
    names = list(PEERS) if names == "all" else names if isinstance(names, list) else [names]
    for name in names:
        if name not in PEERS:
            hint = did_you_mean(str(name), PEERS)
            raise UsageError(
                f"{where}: libraries: {shown(name)} is none of {', '.join(PEERS)}.{hint}"
            )
    if settings not in ("default", "all"):
        raise UsageError(f"{where}: settings: {shown(settings)} is none of default, all.")
    found = []
    for name in names:
        every = get_peer(name).settings(ranks)
        chosen = every if settings == "all" else every[:1]
        found += [{"algorithm": name} | fields for fields in chosen]
    return found


def _axis(key: str, value, ranks: int, where: str) -> list:
    """All values of one key of a block."""
    if key == "libraries":
        return value
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


def _case(values: dict, ranks: int, scale: Fraction, where: str, given: set) -> Case:
    """One case of a combination of values."""
    library = values.get("libraries", {})
    values = {key: value for key, value in values.items() if key != "libraries"}
    values |= {key: value for key, value in library.items() if key != "options"}
    algorithm = values.get("algorithm", Case.algorithm)
    if algorithm in PEERS:  # what is given from outside for our executor is none of theirs
        values = {key: value for key, value in values.items() if key not in given & OURS}
    triple, factors = values.pop("partitions", None), values.pop("replication", None)
    for key in _SHAPE:
        values[key] = scaled_size(values[key], scale)
    options = {key: values.pop(key) for key in list(values) if key not in FIELDS}
    if given & options.keys():
        takers = known_options()
        foreign = {key for key in given & options.keys() if algorithm not in takers[key]}
        options = {key: value for key, value in options.items() if key not in foreign}
    options |= library.get("options", {})
    if library and values.get("backend") == "cupy" and "device" in PEERS[algorithm]:
        options["device"] = "cuda"
        values["backend"] = Case.backend
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
