"""``drbench peers``: drbench and every available peer on the same work, in rounds, so that a
drifting machine hurts all alike."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from drbench.errors import DrbenchError, UsageError
from drbench.measure.noise import doubts
from drbench.measure.record import Record
from drbench.measure.record_file import read_csv
from launch.cases.case import Case, case_keys, failure
from launch.cases.peaks import with_peak
from launch.host.kernels import weaker_pins, without_pins
from launch.peers import PEERS, get_peer, peers
from launch.sweeps.folder import opened
from launch.sweeps.rounds import turn_name, turned
from launch.sweeps.store import GOOD, Store
from launch.sweeps.supervisor import Settings, Watch, run_cases
from partitions import preset

from .names import NAME, PARTITIONINGS

#: The full-size problems by kind, the values of m, then n and k: a cube, and the two layers of an
#: MLP of hidden size 2048.
SHAPES = {
    "square": ((4096,), 4096, 4096),
    "mlp1": ((256, 1024, 4096), 8192, 2048),
    "mlp2": ((256, 1024, 4096), 2048, 8192),
}
#: All three stored once on the grid that needs fewest bytes, which depends on the shape.
OPTIMAL = "optimal"
_who = attrgetter("who")


class Shape(NamedTuple):
    """One problem: a label for tables, and m, n, k."""

    label: str
    m: int
    n: int
    k: int


class Contender(NamedTuple):
    """Something that multiplies: whose it is (drbench, or a peer's name), a label, the fields of
    its case, or what makes them of a shape, and whether this is how it comes (its default)."""

    who: str
    label: str
    fields: dict | Callable[[Shape], dict]
    default: bool = True

    def case(self, base: Case, shape: Shape) -> Case:
        """Its case of a shape.

        Examples
        --------
        >>> Contender("drbench", "row", {"a": "row"}).case(Case(1, 1, 1), Shape("s", 8, 9, 7)).a
        'row'
        """
        fields = self.fields(shape) if callable(self.fields) else self.fields
        return replace(base, m=shape.m, n=shape.n, k=shape.k, **fields)


def shapes(kinds: str, scale: Fraction) -> list[Shape]:
    """The problems of a comma-separated list of kinds, every extent multiplied by ``scale``; of a
    kind with an m after a colon that one alone.

    Raises
    ------
    UsageError
        If a kind or its m is unknown, or an extent would not be a whole number of at least 1.

    Examples
    --------
    >>> shapes("square,mlp1", Fraction(1, 8))[:2]
    [Shape(label='square 512', m=512, n=512, k=512), Shape(label='mlp1 m=32', m=32, n=1024, k=256)]
    >>> shapes("mlp2:1024", Fraction(1))
    [Shape(label='mlp2 m=1024', m=1024, n=2048, k=8192)]
    """
    found = []
    for word in (word.strip() for word in kinds.split(",")):
        kind, colon, one = word.partition(":")
        if kind not in SHAPES:
            raise UsageError(f"--shapes: {kind!r} is none of {', '.join(SHAPES)}.")
        batches, *layer = SHAPES[kind]
        known = [str(batch) for batch in batches]
        if colon and one not in known:
            raise UsageError(f"--shapes: {word!r} is none of {kind}:{', '.join(known)}.")
        for batch in (batch for batch in batches if one in ("", str(batch))):
            m, n, k = (size * scale for size in (batch, *layer))
            if min(m, n, k) < 1 or any(size.denominator > 1 for size in (m, n, k)):
                raise UsageError(
                    f"--scale {scale} makes {kind} {m} x {n} x {k}. Use a power of two from "
                    "1/256 on."
                )
            label = f"square {m}" if kind == "square" else f"{kind} m={m}"
            found.append(Shape(label, int(m), int(n), int(k)))
    return found


def contenders(ranks: int, every_setting: bool, only: set[str] | None = None) -> list[Contender]:
    """Who takes part: drbench's five partitionings, all matrices on the grid that needs fewest
    bytes, its other algorithms on their own layouts, the peers.

    Parameters
    ----------
    every_setting : bool
        All settings of each peer, and every stationary matrix of drbench; else what each does by
        default.
    only : set of str, optional
        ``drbench``, names of peers, and ``name:label`` of one setting, which then takes part even
        if it is no default; the others are left out.

    Examples
    --------
    >>> [(c.who, c.label) for c in contenders(2, False, {"drbench", "dtensor"})][3:5]
    [('drbench', 'outer'), ('drbench', 'block')]
    """
    from algorithms import algorithms

    found = []
    for name in PARTITIONINGS:
        texts = dict(zip("abc", preset(name, ranks)), preset=name)
        found.append(Contender("drbench", name, texts))
        found += [
            Contender("drbench", f"{name} S-{s}", texts | {"options": {"stationary": s}}, False)
            for s in "ABC"
        ]
    found.append(Contender("drbench", OPTIMAL, partial(_optimal, ranks)))
    found += [
        Contender("drbench", name, {"algorithm": name})
        for name in algorithms(plain=True)
        if name != "universal"
    ]
    for name, peer in peers().items():
        found += [
            Contender(name, setting.label, {"algorithm": name} | setting.fields, place == 0)
            for place, setting in enumerate(peer.settings(ranks))
        ]
    named = lambda each: f"{each.who}:{each.label}" in (only or ())
    return [
        each
        for each in found
        if named(each) or ((every_setting or each.default) and (only is None or each.who in only))
    ]


def only_of(text: str, ranks: int) -> set[str]:
    """What ``--only`` names, as :func:`contenders` takes it.

    Raises
    ------
    UsageError
        If nobody is called so, or has such a setting.

    Examples
    --------
    A comma may be a part of a setting:

    >>> sorted(only_of("heat, cosma:pm2,pk2, drbench:row", 4))
    ['cosma:pm2,pk2', 'drbench:row', 'heat']
    """
    known = ("drbench", *PEERS)
    words: list[str] = []
    for word in text.split(","):
        if words and word.strip().partition(":")[0] not in known and ":" in words[-1]:
            words[-1] += f",{word}"
        else:
            words.append(word)
    found, every = {word.strip() for word in words}, contenders(ranks, True)
    for word in sorted(found):
        who, colon, label = word.partition(":")
        if who not in known:
            raise UsageError(f"--only: {word!r} is none of {', '.join(known)}.")
        labels = [each.label for each in every if each.who == who]
        if colon and label not in labels:
            raise UsageError(f"--only: {who} has no setting {label!r}, but {'; '.join(labels)}.")
    return found


def _optimal(ranks: int, shape: Shape) -> dict:
    sizes = shape.m, shape.n, shape.k
    return dict(zip("abc", preset(OPTIMAL, ranks, sizes)), preset=OPTIMAL)


def rounds_of(
    chosen: list[Shape],
    taking_part: list[Contender],
    rounds: int,
    base: Case,
    goes_on: Collection[tuple[str, str, str]] | None = None,
) -> Iterator[list[tuple[str, Case]]]:
    """The batches of all rounds, in order: each is of one shape and one library, with the name of
    each case.

    Every round visits all shapes, the libraries in changing order. What is no A·B is said beside
    the shape, so that products of other forms are other cases. After the first round those alone
    take part whose (shape, who, label) is in ``goes_on``, if it is given.

    Examples
    --------
    >>> batches = list(
    ...     rounds_of(
    ...         [Shape("s", 8, 8, 8)],
    ...         [Contender("a", "x", {}), Contender("b", "y", {})],
    ...         2,
    ...         Case(1, 1, 1),
    ...     )
    ... )
    >>> [name for batch in batches for name, case in batch][:3]
    ['1 | s | a | x', '1 | s | b | y', '2 | s | b | y']
    """
    from plots.select.cases import form

    groups = [list(group) for _, group in groupby(taking_part, key=_who)]
    product = form(base)
    for turn in range(rounds):
        for shape in chosen:
            label = f"{shape.label} {product}".rstrip()
            for group in turned(groups, turn):
                batch = [
                    (
                        turn_name(turn, f"{label} | {contender.who} | {contender.label}"),
                        contender.case(base, shape),
                    )
                    for contender in group
                    if not turn
                    or goes_on is None
                    or (label, contender.who, contender.label) in goes_on
                ]
                if batch:
                    yield batch


def going_on(records: Iterable[Record], taking_part: list[Contender]) -> set[tuple[str, str, str]]:
    """Who goes on after a first round of every setting, as (shape, who, label): on each shape each
    library as it comes and with its fastest setting, and drbench's five partitionings.

    What moves nothing is another problem, and never the fastest; a noisy time counts last.
    """
    defaults = {
        (each.who, each.label)
        for each in taking_part
        if each.default and (each.who in PEERS or each.label in PARTITIONINGS)
    }
    found, best = set(), {}
    for record in records:
        turn, shape, who, label = case_name(record) or (0, "", "", "")
        if turn != 1:
            continue
        if (who, label) in defaults:
            found.add((shape, who, label))
        if record.status == "ok" and record.moved_bytes != 0:
            rank = bool(record.noisy), record.median_s, label
            best[shape, who] = min(best.get((shape, who), rank), rank)
    return found | {(*key, label) for key, (*_, label) in best.items()}


def on_devices(taking_part: list[Contender]) -> tuple[list[Contender], list[str]]:
    """Who multiplies on devices too, asked to do so, and who does not.

    Examples
    --------
    >>> found, left_out = on_devices(
    ...     [
    ...         Contender("drbench", "row", {}),
    ...         Contender("dtensor", "row", {"algorithm": "dtensor"}),
    ...         Contender("scalapack", "x", {}),
    ...     ]
    ... )
    >>> found[1].fields["options"], found[1].fields["backend"], left_out
    ({'device': 'cuda'}, 'numpy', ['scalapack'])
    """
    found, left_out = [], []
    for contender in taking_part:
        if contender.who not in PEERS:
            found.append(contender)
        elif "device" in get_peer(contender.who).options:
            options = contender.fields.get("options", {}) | {"device": "cuda"}
            ours = {"options": options, "backend": "numpy", "get": None}
            found.append(contender._replace(fields=contender.fields | ours))
        elif contender.who not in left_out:
            left_out.append(contender.who)
    return found, left_out


def case_name(record: Record) -> tuple[int, str, str, str] | None:
    """(round, shape, who, label) of a record of this command; None for any other.

    Examples
    --------
    >>> case_name(
    ...     Record(
    ...         mode="measured",
    ...         status="failed",
    ...         reason="x",
    ...         case="2 | square 64 | heat | row · row",
    ...     )
    ... )
    (2, 'square 64', 'heat', 'row · row')
    """
    found = NAME.fullmatch(record.case or "")
    return found and (int(found["turn"]), *found.groups()[1:])


def run_batches(
    name: str,
    batches: Iterable[list[tuple[str, Case]]],
    settings: Settings,
    folder: Path,
    fresh: bool,
    say: Console,
    about: str,
    on_record: Callable[[Record, int, int], None],
) -> dict[str, Record]:
    """Run what has no row in the folder yet, a library at a time; all records by the names of their
    cases.

    Parameters
    ----------
    batches : iterable of list of (str, Case)
        The cases of a list are all of one library.
    on_record : callable
        ``on_record(record, 3, 12)`` for each that was run, the third of twelve.
    """
    batches = list(batches)
    wanted = [name for batch in batches for name, _ in batch]
    with opened(folder, name, settings.ranks, wanted, say, fresh=fresh, keep=True) as store:
        say.print(f"{about}; {store.records_path}")
        before = len(store.done.keys() & set(wanted))
        if before:
            say.print(f"{before} of them are in the file already and are not run again")
        number = count(before + 1)
        watch = Watch(say, lambda record: on_record(record, next(number), len(wanted)))
        for batch in batches:
            who = batch[0][1].algorithm
            run = _launch if who in PEERS and get_peer(who).launch else run_cases
            run(batch, store, settings, watch)
        return store.done


def peers_environ() -> dict[str, str]:
    """Of the ranks: everybody with the kernels of this processor."""
    return without_pins() if weaker_pins() else dict(os.environ)


def run_peers(
    base: Case,
    chosen: list[Shape],
    rounds: int,
    which: str,
    only: set[str] | None,
    settings: Settings,
    folder: Path,
    fresh: bool,
) -> int:
    """Run what has no row in the folder yet; the exit code: 0, or 1 if some case was wrong or
    failed.

    Of each library it is its ``default``, ``all`` settings, or the ``best`` and the default: all in
    the first round, and after it those of :func:`going_on`. A case that was refused is a row with
    its reason; a peer that is not here is a line, and no row.
    """
    say, taking_part, absent, ranks = plain_console(), [], [], settings.ranks
    for who, group in groupby(contenders(ranks, which != "default", only), key=_who):
        if who in PEERS and not (found := get_peer(who).available()).ok:
            absent.append(f"without {who}: {found.what}. {found.get}")
        else:
            taking_part += group
    if base.backend != "numpy":
        taking_part, left_out = on_devices(taking_part)
        absent += [
            f"without {who}: its products run on cores, and the backend is {base.backend}"
            for who in left_out
        ]
    batches = list(rounds_of(chosen, taking_part, rounds, base))
    wanted = dict(pair for batch in batches for pair in batch)
    if not fresh:
        _check_same(folder / "records.csv", base, ranks, wanted)
    for line in absent:
        say.print(line)
    if not taking_part:
        raise UsageError("nobody is left to run. drbench list libraries says who is here.")
    bad = []

    def on_record(record: Record, at: int, total: int) -> None:
        ended = f"{record.status}: {record.reason}"
        if record.status not in GOOD:
            bad.append(f"{record.case}: {ended}")
        rate = f"{record.gflops:.0f} GFLOP/s" if record.gflops else ended
        if record.gflops and record.percent_of_roof is not None and not record.oversubscribed:
            rate += f", {record.percent_of_roof:.0f} % of its roof"
        say.print(f"{at}/{total} {record.case}: {', '.join([rate, *doubts(record)])}")

    def run(batches: list, how: str, fresh: bool) -> dict[str, Record]:
        cases = sum(map(len, batches))
        about = f"{cases} cases on {ranks} ranks in {how}, {base.iters} repeats each"
        return run_batches("peers", batches, settings, folder, fresh, say, about, on_record)

    if which == "best":
        first = list(rounds_of(chosen, taking_part, 1, base))
        done = run(first, "a first round of every setting", fresh)
        goes_on, fresh = going_on(done.values(), taking_part), False
        batches = list(rounds_of(chosen, taking_part, rounds, base, goes_on))
    run(batches, f"{rounds} rounds", fresh)
    for line in bad:
        say.print(f"not ok: {line}", style="red")
    return 1 if bad else 0


def plain_console() -> Console:
    """Standard output; lines are printed as they are."""
    return Console(highlight=False, soft_wrap=True, markup=False)


def _launch(cases: list[tuple[str, Case]], store: Store, settings: Settings, watch: Watch) -> None:
    """Cases of a program of its own, in turn."""
    for name, case in cases:
        if name in store.done:
            continue
        # nobody knows its BLAS; it is compared with drbench's roof
        case = replace(case, roof=False)
        store.beat()
        try:
            record = get_peer(case.algorithm).launch(
                case, case_keys(case), settings.ranks, settings.timeout_s
            )
        except DrbenchError as error:
            record = failure(
                case,
                settings.ranks,
                "failed" if error.status == "usage" else error.status,
                str(error),
            )
        store.add(replace(with_peak(record, settings.peaks or {}), case=name))
        watch.ended(case, store.done[name])


def _check_same(path: Path, base: Case, ranks: int, wanted: dict[str, Case]) -> None:
    """Refuse a file of another run of this command: rows of other ranks, repeats, threads, elements
    or sizes are not mixed with these."""
    for record in read_csv(path) if path.exists() else ():
        if case_name(record) is None:
            continue
        case = wanted.get(record.case, base)
        names = ("iters", "dtype", "threads", *("mnk" if record.case in wanted else ()))
        values = {name: getattr(case, name) for name in names}
        for name, value in (values | {"ranks": ranks}).items():
            if getattr(record, name) != value:
                raise UsageError(
                    f"the records there hold cases with {name} = {getattr(record, name)}, not "
                    f"{value}. Use another --out, or --fresh."
                )
