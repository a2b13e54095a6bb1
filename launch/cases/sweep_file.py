"""Sweep files: experiments as data. A TOML file of blocks, each the Cartesian product of lists, is
expanded to a list of cases.

``docs/reference/sweep-files.md`` describes the format. The same file, ranks and overrides give the
same cases in the same order.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

from drbench.algorithms import algorithms
from drbench.algorithms.registry import needs_model
from drbench.errors import UnsupportedError, UsageError, did_you_mean, shown
from drbench.launch.libraries import LIBRARIES, get_library, known_options
from drbench.measure.record import IDENTITY
from drbench.options import Option, check_options, named
from drbench.partitions import LayoutError
from drbench.partitions.arithmetic import near_square
from drbench.partitions.enumerate import KINDS, REPLICATIONS
from drbench.partitions.partition import replica_suffix

from .case import (
    FIELDS,
    OURS,
    Case,
    bind_case,
    get_algorithm_or_library,
    partition_texts,
    refuse_our_options,
    shape_of,
)
from .machine_models import find_machine
from .sweep_values import (
    check_keys,
    check_name,
    overrides_of,
    read_at,
    read_table,
    read_toml,
    require,
    scale_of,
    scaled_size,
    shipped,
    values_of,
)

_SHAPE = ("m", "n", "k")
#: The paper's layers (§5.2.1) at its batch sizes, by name.
_LAYERS = {
    layer: [(batch << 10, n << 10, k << 10) for batch in (1, 2, 4, 8)]
    for layer, n, k in (("mlp1", 48, 12), ("mlp2", 12, 48))
}
#: The tables at the end of a sweep.
VIEWS = ("scaling", "scan", "algorithms", "libraries", "mlp")
#: Keys of a whole file, other than ``scale``, the blocks and their defaults.
FILE_KEYS = named(
    Option("name", check=check_name, help="letters, digits, - and _; required"),
    Option("description", help="one line for drbench list sweeps"),
    Option(
        "ranks",
        int,
        least=1,
        words=("doubling",),
        help="numbers of ranks, each started anew; doubling: 1, 2, 4, ... up to -p; several: 1 "
        "thread a rank by default",
        default_text="-p alone",
    ),
    Option("grow", _SHAPE, help="weak scaling: this extent is multiplied by the ranks"),
    Option(
        "rounds",
        int,
        words=("known",),
        least=1,
        help="runs of every case, interleaved; known: six, more for cases that may be the fastest",
        default_text="known to compare cases, else 1",
    ),
    Option(
        "view",
        VIEWS,
        help="the table (and figure) that ends the sweep",
        default_text="the table of drbench compare",
    ),
    Option(
        "paper",
        bool,
        help="with --simulate: universal as the paper's program (whole tiles; "
        "process grids with at least as many rows as columns)",
        default_text="false",
    ),
)
_TABLES = ("scale", "defaults", "cases")
#: Keys of a block that are not fields of a case but set several of them, or add cases; benchmarks
#: compare the records of a block with its ``bar``.
BLOCK_KEYS = named(
    Option(
        "shape",
        check=shape_of,
        metavar="MxNxK|mlp1|mlp2|all",
        help="m, n and k together; mlp1, mlp2: a layer of the paper at its four batch sizes; all: "
        "both",
    ),
    Option(
        "partitions",
        check=FIELDS["a"].check,
        help="triples for A, B and C; all: row, column and block for each",
    ),
    Option(
        "replication",
        int,
        least=1,
        help="replication factors of A, B and C; see Values",
    ),
    Option(
        "libraries",
        tuple(LIBRARIES),
        help="run these libraries with their own layouts; all: every one",
    ),
    Option("settings", ("default", "all"), help="settings of each library", default_text="default"),
    Option(
        "same_tiles",
        bool,
        help="add the universal algorithm on the tiles of each case",
        default_text="false",
    ),
    Option("zip", help="lists of keys that advance together"),
    Option("bar", help="for benchmarks/bars: the expected percentage of GEMM-only speed"),
)
#: Keys whose values are triples, for A, B and C.
_TRIPLES = ("partitions", "replication")
#: Keys that give layouts; libraries have their own.
_LAYOUT = {"partitions", "replication", "preset", "a", "b", "c"}
_LIBRARIES = {"libraries", "settings"}
#: Keys that give sizes.
_SIZES = {"shape", *_SHAPE}
#: The keys of a file that an overriding key replaces.
_INSTEAD = {
    "shape": {*_SHAPE, "zip"},
    "preset": {"partitions"},
    "partitions": {"preset"},
    "backend": {"get", "threads"},
}
#: On GPUs the paper's program runs as many GEMMs and accumulates at the same time (§4.2: "a
#: configurable number") as the authors' stationary_b_plan.py by default; its accumulates have a
#: block for each 32 x 32 elements (accumulate_kernels.py; universal_gemm 6c95fed): no limit.
CONCURRENT = {"max_gemms": 2, "max_accumulates": 4, "accumulate_blocks": 1024}
#: Fields of how a case runs that change predictions too.
_PREDICTED = {"transport", "threads", "prefetch", "compute", "pool"} | CONCURRENT.keys()
#: Keys of measurements alone: rounds, and all fields of a case except those of the problem, layouts
#: and algorithm, and :data:`_PREDICTED`.
_MEASURED = {"rounds"} | {
    name
    for name, option in FIELDS.items()
    if option.group not in ("Problem", "Layout", "Algorithm") and name not in _PREDICTED
}
#: Fields that do not tell records apart, so that a block has one value of each.
_NOT_RECORDED = FIELDS.keys() - {*IDENTITY}
#: Keys of predictions alone.
_SIMULATED = {"paper"}
#: Options of the paper's own program: whole tiles are fetched and make one GEMM (§4.2), replicas of
#: C are pushed with the atomic kernel (the authors' repository), look-ahead 1 is the default.
PAPER = {"chunk": "none", "fetch": "tile", "reduce": "push"}
#: More cases than this are taken for a mistake.
_MOST_CASES = 250_000
#: The stationary matrix of the universal algorithm for each dataflow.
_STATIONARY = {"OS": "C", "LS": "A", "RS": "B", "AG": "B", "RdS": "B"}


@dataclass(frozen=True)
class Sweep:
    """An expanded sweep.

    Attributes
    ----------
    name, description : str
    cases : tuple of Case
        In the order of the file, without duplicates.
    scale : Fraction
        The factor on m, n and k.
    rounds : int, str or None
        Runs of every case, interleaved with the others; ``known``: until it is known which is
        fastest; 0: each case runs once; None: ``known`` where cases are compared.
    view : str
        The table at the end, one of :data:`VIEWS`; empty for none.
    paper : bool
        It is an experiment of the paper.
    """

    name: str
    description: str
    cases: tuple[Case, ...]
    scale: Fraction
    rounds: int | str | None = None
    view: str = ""
    paper: bool = False


def find_sweep(text: str) -> Path:
    """The file of a sweep, from a path or the name of a shipped one.

    Raises
    ------
    UsageError
    """
    known = shipped("sweeps")
    path = known.get(text, Path(text))
    if path.is_file():
        return path
    raise UsageError(
        f"sweep {text!r} is neither a file nor one of "
        f"{', '.join(known)}.{did_you_mean(text, known)}"
    )


def load_sweep(
    text: str,
    ranks: int,
    scale: str | None = None,
    overrides: Iterable[tuple[str, str]] = (),
    label: str | None = None,
    simulate: bool = False,
) -> Sweep:
    """Find, read and expand a sweep.

    Parameters
    ----------
    text : str
        Path of a TOML file, or the name of a shipped sweep.
    ranks : int
    scale : str, optional
        Replaces that of the file, as ``"1/16"``.
    overrides : iterable of (str, str)
        Keys of the file and replacements of their values, as for ``-o``.
    label : str, optional
        The label of every case; replaces its own.
    simulate : bool
        The cases are for prediction: of ``dtensor`` its program ``dtensor_mm``, and with ``paper =
        true`` in the file the paper's program of the others (:func:`as_in_the_paper`).

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
    for key in dict(overrides):
        if key in (_MEASURED if simulate else _SIMULATED):
            kind = "prediction" if simulate else "measurement"
            raise UsageError(f"-o {key}: no {kind} depends on it. Leave it out.")
    path = find_sweep(text)
    table = read_toml(path)
    return expand(table, ranks, path.name, scale, overrides, label, simulate)


def as_in_the_paper(case: Case, ranks: int) -> Case:
    """A case of the universal algorithm as in the paper's program: with :data:`PAPER` and
    :data:`CONCURRENT`, and explicit near-square grids of blocks with at least as many rows as
    columns (``closest_factors`` in the authors' ``benchmark/util.py``, universal_gemm 91fb862).
    Others are unchanged.

    Examples
    --------
    >>> case = as_in_the_paper(Case(8, 8, 8, "block/c2", "row", "block", preset="block"), 12)
    >>> case.a, case.b, case.c, case.options
    ('block:3x2/c2', 'row', 'block:4x3', {'chunk': 'none', 'fetch': 'tile', 'reduce': 'push'})
    >>> case.max_gemms, case.max_accumulates
    (2, 4)
    """
    if case.algorithm != "universal":
        return case
    values = {name: _tall(getattr(case, name), ranks) for name in "abc"}
    values |= {name: getattr(case, name) or most for name, most in CONCURRENT.items()}
    return replace(case, **values, options=PAPER | case.options)


def _tall(text: str, ranks: int) -> str:
    kind, slash, factor = text.partition("/c")
    if kind != "block":
        return text
    fewer, more = near_square(ranks // int(factor or 1))
    return f"block:{more}x{fewer}{slash}{factor}"


def ranks_of(
    text: str, most: int | None, overrides: Iterable[tuple[str, str]] = ()
) -> tuple[int, ...] | None:
    """The numbers of ranks of a sweep, sorted: ``doubling`` is 1, 2, 4, ... up to ``most``, which
    is None if unknown. None if the sweep runs on one number of ranks.

    Examples
    --------
    >>> ranks_of("scaling", 6), ranks_of("mlp1", 6), ranks_of("mlp1", 6, [("ranks", "2,1")])
    ((1, 2, 4, 6), None, (1, 2))
    """
    path = find_sweep(text)
    value = overrides_of(overrides, describe_key).get("ranks", read_toml(path).get("ranks"))
    if value is None:
        return None
    counts = _axis("ranks", value, 1, f"{path.name}: ranks")
    if "doubling" in counts:
        return (*(1 << step for step in range(((most or 1) - 1).bit_length())), most or 1)
    return tuple(sorted({*counts}))


def most_threads(overrides: Iterable[tuple[str, str]]) -> int | None:
    """The largest number of BLAS threads among overrides; None if they have none.

    Examples
    --------
    >>> most_threads([("m", "64"), ("threads", "1:4:*8")]), most_threads([("threads", "2,3")])
    (1, 3)
    """
    given = [pair for pair in overrides if pair[0] == "threads"]
    return max(read_values(given, "-o threads")) if given else None


def read_values(pairs: Iterable[tuple[str, str]], where: str) -> list:
    """All values of a key, from pairs of the key and a text of one or several.

    Raises
    ------
    UsageError
        Naming ``where``.

    Examples
    --------
    >>> read_values([("m", "64:256:*2"), ("m", "1Ki,5")], "-m")
    [64, 128, 256, 1024, 5]
    """
    ((key, given),) = overrides_of(pairs, describe_key).items()
    return _axis(key, given, 1, where)


def expand(
    table: dict,
    ranks: int,
    file: str = "sweep",
    scale: str | None = None,
    overrides: Iterable[tuple[str, str]] = (),
    label: str | None = None,
    simulate: bool = False,
) -> Sweep:
    """The cases of a parsed sweep file; see :func:`load_sweep`.

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
    given = overrides_of(overrides, describe_key)
    for key in (*FILE_KEYS, "scale"):
        if key in given:
            value = given.pop(key)
            table = table | {key: value[0] if len(value) == 1 else value}
    check_keys(table, (*FILE_KEYS, *_TABLES), f"{file}: ")
    single = {key: table[key] for key in table.keys() & FILE_KEYS.keys() - {"ranks"}}
    top = read_table(single, FILE_KEYS, file)
    require("name" in top, file, "a sweep with a name", table)
    where = f"{file}: scale" if scale is None else "--scale"
    factor = scale_of(table.get("scale", "1") if scale is None else scale, where)
    defaults, blocks = table.get("defaults", {}), table.get("cases")
    is_table = lambda value: isinstance(value, dict)
    require(is_table(defaults), f"{file}: defaults", "a table, as [defaults]", defaults)
    are_tables = blocks and isinstance(blocks, list) and all(map(is_table, blocks))
    require(are_tables, f"{file}: cases", "one or more tables, as [[cases]]", blocks)
    blocks = [defaults | block for block in blocks]
    changes, grow = {} if label is None else {"label": label}, top.get("grow")
    cases: dict[str, Case] = {}
    idle = {*given.get("machine", ())}
    unused = {*given} - (BLOCK_KEYS.keys() - {"bar"})
    for number, block in enumerate(blocks, 1):
        mine, where = _given_to(block, blocks, given), f"{file}: cases {number}"
        instead = set().union(*(_INSTEAD.get(key, ()) for key in mine))
        block = {key: value for key, value in block.items() if key not in instead} | mine
        twins = block.pop("same_tiles", False)
        twins = read_at(f"{where}: same_tiles", [BLOCK_KEYS["same_tiles"]], twins)
        for values in _choices(block, ranks, where, len(cases), mine):
            fitting = _taken(values, mine, where)
            if fitting is None:
                continue
            unused -= fitting.keys()
            idle.discard(fitting.get("machine"))
            pair = [_case(fitting, ranks, factor, mine, where)]
            if twins:
                with suppress(UnsupportedError):  # not on this mesh: gets a row with the reason
                    pair.append(_universal(*pair, ranks, where))
            for case in pair:
                if grow:
                    changes[grow] = ranks * getattr(case, grow)
                if simulate and case.algorithm == "dtensor":  # on what the machine model is of
                    rest = {name: x for name, x in case.options.items() if name != "device"}
                    case = replace(case, algorithm="dtensor_mm", options=rest)
                case = replace(case, **changes) if changes else case
                cases.setdefault(repr(case), case)
    for machine in idle:
        raise UsageError(f"-o machine: nothing is planned by {machine}. Leave it out.")
    for key in unused:
        raise UsageError(f"-o {key}: no case of {top['name']} uses it. Leave it out.")
    distinct = tuple(cases.values())
    if simulate and top.get("paper"):
        distinct = tuple(as_in_the_paper(case, ranks) for case in distinct)
    rounds = 0 if top.get("rounds") == 1 else top.get("rounds")
    about, view = top.get("description", ""), top.get("view", "")
    paper = bool(top.get("paper"))
    return Sweep(top["name"], about, distinct, factor, rounds, view, paper)


def _given_to(block: dict, blocks: list[dict], given: dict) -> dict:
    """The overrides of a block: of its own keys, and of keys that no block has. Layout keys count
    as one, and so do those of libraries and of sizes."""
    kin = lambda key: next((keys for keys in (_LAYOUT, _LIBRARIES, _SIZES) if key in keys), {key})
    named = {key for other in blocks for key in other}
    return {
        key: value
        for key, value in given.items()
        if kin(key) & block.keys() or not kin(key) & named
    }


def describe_key(key: str, where: str = "-o ") -> list[Option]:
    """The descriptions of a key's values: one option of each algorithm that has it."""
    if key in FIELDS:
        return [FIELDS[key]]
    options = known_options()
    known = {key: list(described.values()) for key, described in options.items()}
    known |= {key: [option] for key, option in (BLOCK_KEYS | FILE_KEYS).items()} | {"scale": []}
    if key not in known:
        hint = did_you_mean(key, (*FIELDS, *known))
        hint = hint or " See docs/reference/sweep-files.md for the keys."
        raise UsageError(f"{where}{key}: there is no such key.{hint}")
    return known[key]


def _axis(key: str, value: Any, ranks: int, where: str) -> list:
    """All values of one key, from one value, a list, ranges, or words for several."""
    options, words = describe_key(key, where.removesuffix(key)), {}
    if key == "replication":
        words = {word: make(ranks) for word, make in REPLICATIONS.items()}
    elif key == "algorithm":  # all in algorithms/ that run on a process mesh
        words["all"] = [
            name for name, algorithm in algorithms().items() if "mesh" in algorithm.options
        ]
    elif key == "shape":
        words = {**_LAYERS, "all": [shape for layer in _LAYERS.values() for shape in layer]}
    elif key in ("partitions", "libraries"):
        words["all"] = itertools.product(KINDS, repeat=3) if key == "partitions" else LIBRARIES
    elif tried := next((option.tried for option in options if option.tried), ()):
        words["all"] = tried(ranks) if callable(tried) else tried
    items, values = value if isinstance(value, list) else [value], []
    require(items, where, "a list that is not empty", value)
    for item in items:
        if isinstance(item, str) and item in words:
            values += words[item]
        elif key in _TRIPLES and isinstance(item, list):
            require(len(item) == 3, where, "three values, for A, B and C", item)
            values.append(tuple(read_at(where, options, part) for part in item))
        else:
            numbers = values_of(item, where, options)
            values += [(number,) * 3 for number in numbers] if key in _TRIPLES else numbers
    return values


def _choices(
    block: dict, ranks: int, where: str, before: int, typed: Collection[str]
) -> Iterator[dict]:
    """The combinations of the values of a block's keys, the first key varying slowest; ``before``
    is the number of cases of earlier blocks, ``typed`` are keys of the command line. Zipped keys
    advance together, at the position of the first of them."""
    block = dict(block)
    groups, settings = block.pop("zip", []), block.pop("settings", ["default"])
    block.pop("bar", None)
    place = {key: _place(key, typed, where) for key in block}
    axes = {
        key: [{key: item} for item in _axis(key, value, ranks, place[key])]
        for key, value in block.items()
    }
    if "libraries" in axes:
        every = "all" in _axis("settings", settings, ranks, f"{where}: settings")
        axes["libraries"] = [
            {"algorithm": name["libraries"]} | fields
            for name in axes["libraries"]
            for fields in get_library(name["libraries"]).settings(ranks)[: None if every else 1]
        ]
    if "shape" in axes:
        axes["shape"] = [dict(zip(_SHAPE, entry["shape"])) for entry in axes["shape"]]
    given = [key for axis in axes.values() for key in axis[0] if key in _SHAPE]
    if given == ["m"]:  # a cube
        axes["m"] = [dict.fromkeys(_SHAPE, entry["m"]) for entry in axes["m"]]
        given = _SHAPE
    if sorted(given) != sorted(_SHAPE):
        missing = ", ".join(sorted({*_SHAPE} - {*given}))
        wrong = f"{missing}: is missing" if missing else "sizes are given twice"
        raise UsageError(f"{where}: {wrong}. Every case needs m, n and k, or a shape.")
    at, where = where, f"{where}: zip"
    require(isinstance(groups, list), where, 'a list of lists of keys, as [["m", "n"]]', groups)
    for group in groups:
        keys = group if isinstance(group, list) else []
        if len(keys) < 2 or not all(isinstance(key, str) and key in axes for key in keys):
            raise UsageError(
                f"{where}: {shown(group)} must name two or more keys of this block, each in one "
                "group."
            )
        lengths = {key: len(axes[key]) for key in keys}
        if len({*lengths.values()}) > 1:
            raise UsageError(
                f"{where}: keys that advance together need lists of one length, got {lengths}."
            )
        first = min(keys, key=[*axes].index)
        axes[first] = [_joined(parts) for parts in zip(*(axes[key] for key in keys))]
        axes = {key: axes[key] for key in axes if key == first or key not in keys}
    for key, axis in axes.items():
        if len(axis) > 1 and axis[0].keys() <= _NOT_RECORDED:
            raise UsageError(
                f"{place[key]}: records do not tell cases apart by it. Give one value, or make a "
                "sweep of each."
            )
    if (count := before + prod(map(len, axes.values()))) > _MOST_CASES:
        lists = ", ".join(f"{len(axis)} of {key}" for key, axis in axes.items() if len(axis) > 1)
        raise UsageError(
            f"{at}: makes {count} cases in the file, at most "
            f"{_MOST_CASES} are allowed. Use shorter lists, or several files; there are {lists}."
        )
    yield from map(_joined, itertools.product(*axes.values()))


def _place(key: str, given: Collection[str], where: str) -> str:
    """The place of a key's value, for messages; ``given`` are the keys of the command line."""
    return f"-o {key}" if key in given else f"{where}: {key}"


def _joined(parts: Iterable[dict]) -> dict:
    return {key: value for part in parts for key, value in part.items()}


def uses_model(machine: str, options: dict) -> bool:
    """Whether something of a case is planned by a machine model."""
    return needs_model(options) or find_machine(machine).adds_on_core


def _taken(values: dict, given: dict, where: str) -> dict | None:
    """The values without overrides that their algorithm or library does not have; None if it
    refuses the value of one: OS is not a dataflow of every algorithm with dataflows."""
    name = values.get("algorithm", Case.algorithm)
    try:
        algorithm_or_library = get_algorithm_or_library(name)
    except UsageError as error:
        raise UsageError(f"{_place('algorithm', given, where)}: {error}") from None
    if not given:
        return values
    takes = FIELDS.keys() | BLOCK_KEYS.keys() | algorithm_or_library.options.keys()
    takes -= OURS if name in LIBRARIES else set()
    fitting = {key: value for key, value in values.items() if key not in given or key in takes}
    try:
        if "machine" in given and not uses_model(fitting["machine"], fitting):
            del fitting["machine"]
    except UsageError as error:
        raise UsageError(f"-o machine: {error}") from None
    try:
        if name not in LIBRARIES:
            check_options(
                algorithm_or_library.options,
                {key: fitting[key] for key in given.keys() & fitting.keys()},
            )
    except UsageError:
        return None
    return fitting


def _case(values: dict, ranks: int, scale: Fraction, given: dict, where: str) -> Case:
    """The case of one combination of values; ``given`` are the keys of the command line.

    Raises
    ------
    UsageError
        For values that are wrong on any number of ranks.
    """
    values = dict(values)
    name = values.get("algorithm", Case.algorithm)
    triple, factors = values.pop("partitions", None), values.pop("replication", None)
    options = {key: values.pop(key) for key in list(values) if key not in FIELDS}
    options |= options.pop("options", {})
    if values.get("backend") == "cupy" and "device" in LIBRARIES.get(name, ()):
        options["device"] = "cuda"
        values["backend"] = Case.backend
    values |= {key: scaled_size(values[key], scale, f"{where}: {key}: ") for key in _SHAPE}
    values = dict(zip("abc", triple or ())) | values
    try:
        texts = partition_texts(values, ranks)
    except LayoutError as error:
        raise UsageError(f"{_place('preset', given, where)}: {error}") from None
    for key, factor in zip("abc", factors or ()):
        if texts[key] is None or (factor > 1 and "/c" in texts[key]):
            raise UsageError(
                f"{where}: replication: needs partitions of A, B and C without their own "
                f"factors; {key} is {texts[key]}."
            )
        texts[key] += replica_suffix(factor)
    case = Case(**values | texts, options=options)
    try:
        get_algorithm_or_library(name).pick(options)
        if name in LIBRARIES:
            refuse_our_options(case)
        if case.machine and not uses_model(case.machine, options):
            raise UsageError(
                f"machine: nothing is planned by {case.machine}. Leave it out; label is the name "
                "in the records."
            )
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return case


def _universal(case: Case, ranks: int, where: str) -> Case:
    """The case of the universal algorithm on the tiles of a case, with the stationary matrix of its
    dataflow."""
    if case.algorithm in LIBRARIES:
        raise UsageError(
            f"{where}: same_tiles: {case.algorithm} is a library with its own tiles. Leave "
            "same_tiles out."
        )
    algorithm, problem, options = bind_case(case, ranks)
    algorithm.resolve(problem, **options)
    stationary = _STATIONARY.get(options.get("dataflow"), "auto")
    options = {"stationary": stationary}
    return replace(case, algorithm="universal", **problem.texts, options=options)
