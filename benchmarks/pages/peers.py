"""Tables of peers.md: drbench beside other libraries."""

from functools import cache

from pandas import DataFrame, concat

from drbench.measure.noise import Ratio
from drbench.measure.record_file import read_csv
from launch.libraries import ON_DRBENCH
from launch.studies.libraries import PARTITIONINGS, best_settings, placement_lines
from launch.studies.libraries import lines as lines_of

from ..dtensor_rows import CALLS, call_us, steps
from .records import CORE, HERE, RESULTS, records, rows
from .tables import block, describe_time, list_rows, table


@cache
def peer_lines(ranks: int) -> list:
    """Lines of :func:`launch.studies.libraries.lines`."""
    return lines_of(records(f"{CORE}/full/peers-p{ranks}"))


@cache
def contest(ranks: int) -> DataFrame:
    """For each shape the contenders that are compared, fastest median time first and noisy ones
    last: drbench's five partitionings, its other algorithms, each peer as it comes."""

    found = DataFrame(peer_lines(ranks))
    ours = found.who == "drbench"
    five = ours & found.label.isin(PARTITIONINGS)
    kind = found.who.where(~ours, "other").mask(five, "five")
    found = found.assign(kind=kind)
    first = found[~ours].drop_duplicates(["shape", "who"])
    others = ours & ~five & ~found.label.str.contains(" S-")
    return concat([found[five], found[others], first]).sort_values(
        ["noisy", "median_s"], kind="stable", na_position="last"
    )


_PEERS = {
    "dtensor": "DTensor",
    "dtensor+drbench": "DTensor on drbench",
    "scalapack": "ScaLAPACK",
    "cosma": "COSMA",
    "pylops": "pylops-mpi",
    "heat": "HeAT",
}


def _peer_cell(line, named: bool, roof: bool = True) -> str:
    if not line.median_s > 0:
        return line.reason.partition(":")[0] or "–"
    told = f"{line.label} " if named else ""
    told += f"{1e3 * line.median_s:.0f} ms"
    if roof and line.own_roof > 0 and not line.oversubscribed:
        told += f", {line.own_roof:.0f} %"
    return f"[{told}]" if line.noisy else told


@block
def peers(ranks: int) -> str:
    """Median times of drbench's fastest, its middle and its other algorithms, and of each peer."""

    found = contest(ranks)
    found = found[~found.kind.isin(ON_DRBENCH)]
    names = {name: told for name, told in _PEERS.items() if name in set(found.kind)}
    lines = []
    for shape in found["shape"].drop_duplicates().sort_values(key=_shape_order):
        each = found[found["shape"] == shape]
        five = each[each.kind == "five"].dropna(subset="median_s")
        cells = [
            _peer_cell(next(five.itertuples()), True),
            _peer_cell(five.iloc[len(five) // 2], False),
            _peer_cell(next(each[each.kind == "other"].itertuples()), True),
        ]
        for name in names:
            theirs = each[each.kind == name]
            cells.append(_peer_cell(theirs.iloc[0], False) if len(theirs) else "–")
        lines.append((shape, *cells))
    header = ["shape", "drbench's fastest", "median of its five", "fastest 2-D or 1-D algorithm"]
    return table([*header, *names.values()], lines)


def _setting_cell(line) -> str:
    of = f"{line.own_roof:.0f} %" if line.own_roof > 0 else describe_time(line.median_s)
    return f"{line.label}, {of}"


def _shape_order(labels):
    kinds = {"square": 0, "mlp1": 1, "mlp2": 2}
    return [(kinds[label.split()[0]], int(label.split("=")[-1].split()[-1])) for label in labels]


@block
def peers_settings(ranks: int) -> str:
    """The fastest setting of each that moves anything, percent of its own roof; its time where that
    is not known."""

    found = DataFrame(best_settings(peer_lines(ranks)))
    names = {"drbench": "drbench"} | {
        name: told for name, told in _PEERS.items() if name in set(found.who)
    }
    lines = []
    for shape in found["shape"].drop_duplicates().sort_values(key=_shape_order):
        each = found[found["shape"] == shape].set_index("who")
        lines.append(
            (
                shape,
                *(_setting_cell(each.loc[name]) if name in each.index else "–" for name in names),
            )
        )
    return table(["shape", *names.values()], lines)


@block
def peers_best(folder: str) -> str:
    """How many times as long as drbench's fastest the best peer takes, as it comes and with its
    best setting, in pairs of the same round; both times of COSMA, and what its own choice and
    drbench's fastest are of drbench's roof in the same rounds."""

    every = lines_of(records(f"measured/{folder}"))
    best = {(line.shape, line.who): line for line in best_settings(every)}
    found = []
    for shape in dict.fromkeys(line.shape for line in every):
        ours, cosma = best[shape, "drbench"], best.get((shape, "cosma"))
        comes = next((line for line in every if (line.shape, line.who) == (shape, "cosma")), None)
        found.append(
            (
                shape,
                _peer_cell(ours, True, False),
                _times_as_long(ours.ratio, str(ours.reference).partition(" ")[0]),
                _times_as_long(ours.best_ratio, ours.best_reference),
                _peer_cell(comes, False, False) if comes else "–",
                _peer_cell(cosma, True, False) if cosma else "–",
                " / ".join(
                    f"{line.roof:.0f} %" if line and line.roof else "–" for line in (ours, comes)
                ),
            )
        )
    header = ["shape", "drbench's fastest", "best peer's default", "best peer's best setting"]
    return table([*header, "COSMA as it comes", "its best setting", "of the roof"], found)


def _times_as_long(ratio: Ratio, reference: str | None) -> str:
    """
    Examples
    --------
    >>> _times_as_long(Ratio(0.8, 0.5, 1.0), "cosma pk2")
    '1.25 (1.00–2.00), cosma pk2'
    """
    if ratio.middle is None:
        return "–"
    between = "" if ratio.low is None else f" ({1 / ratio.high:.2f}–{1 / ratio.low:.2f})"
    return f"{1 / ratio.middle:.2f}{between}, {reference}"


_TRIPLES = f"{HERE}/dtensor-triples-p4"


@block
def triples() -> str:
    """What DTensor does with each triple without replication, and the bytes of both."""
    return list_rows(
        "A|B|C|DTensor|its steps|its bytes|drbench's bytes",
        "{a}|{b}|{c}|{dtensor}|{steps}|{dtensor_bytes}|{drbench_bytes}",
        rows(f"{_TRIPLES}/bytes.csv"),
    )


@block
def triples_replicated() -> str:
    """Over the replication factors of each triple, how often DTensor does what."""
    return list_rows(
        "A|B|C|multiplies|reshards C|reshards an operand|both|repeats products"
        "|drbench moves fewer / same / more",
        "{a}|{b}|{c}|{multiplies}|{reshards_c}|{reshards_operand}|{reshards_both}|{repeats}"
        "|{fewer} / {same} / {more}",
        rows(f"{_TRIPLES}/replicated.csv"),
    )


def _of_roof(record) -> str:
    share, low, high = (
        getattr(record, f"percent_of_roof{end}") / 100 for end in ("", "_low", "_high")
    )
    return f"{share:.2f} ({low:.2f}–{high:.2f})"


def _describe_ratio(ratio: Ratio) -> str:
    return str(ratio).replace("-", "–")


@block
def placements() -> str:
    """Products by placements."""
    header = ["A · B to C", "stock", "drbench", "stock / drbench, time", "CPU time"]
    header += ["stock, of torch's roof", "drbench, of torch's roof", "rounds"]
    return table(
        header,
        [
            (
                f"{line.placements[0]} · {line.placements[1]} to {line.placements[2]}",
                *(f"{1e3 * each.time_s:.1f} ms" for each in (line.stock, line.ours)),
                *map(_describe_ratio, (line.time, line.cpu)),
                *map(_of_roof, (line.stock, line.ours)),
                line.rounds,
            )
            for line in placement_lines(
                read_csv(RESULTS / f"{HERE}/placements-p2/rounds/records.csv")
            )
        ],
    )


@block
def dtensor_mlp() -> str:
    """The MLP, forward and backward."""
    header = ["batch × width × hidden", "", "stock", "drbench", "stock / drbench, time"]
    return table(
        [*header, "CPU time", "rounds"],
        [
            (
                "×".join(map(str, step.work[:3])),
                step.work[3],
                *(f"{1e3 * seconds:.2f} ms" for seconds in (step.stock_s, step.ours_s)),
                *map(_describe_ratio, (step.time, step.cpu)),
                step.rounds,
            )
            for step in steps(rows(f"{HERE}/dtensor-p2/mlp.csv"))
        ],
    )


@block
def dtensor_calls() -> str:
    """What a call costs."""
    lines = []
    for call, beyond, bar in CALLS:
        us, low, high = call_us(rows(f"{HERE}/dtensor-p2/calls.csv"), call, beyond)
        name = call if beyond is None else f"{call}: beyond {beyond}"
        lines.append((name, f"{us:.1f} µs ({low:.1f}–{high:.1f})", f"{bar} µs" if bar else ""))
    return table(["16×16 on 2 ranks", "time (interval)", "bar"], lines)
