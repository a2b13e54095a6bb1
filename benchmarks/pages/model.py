"""Tables of predictions beside measurements."""

from functools import cache

from pandas import DataFrame

from ..model.chains import CHAINS, points
from ..model.model import at_calibrated_speed, errors, held, paired, picks
from ..model.tune import CHOICE, verdicts
from .records import CORE, RESULTS, records, rows
from .tables import block, say_yes, table


@block
def tune_chosen(machine: str) -> str:
    """What ``tune --measure`` chose of each problem, next to the fastest of all programs."""
    every, again = (rows(f"measured/{machine}/tune/{name}.csv") for name in ("every", "again"))
    lines = []
    for problem, each in verdicts(again.astype(str).to_dict("records")).items():
        choice = again[(again.problem == problem) & again.contender.str.startswith(CHOICE)]
        sizes = "×".join(str(choice.iloc[0][axis]) for axis in "mnk")
        ran = every[(every.problem == problem) & every.first_s.notna()]
        ratio = "it is" if each.fastest.startswith(CHOICE) else str(each.ratio).replace("-", "–")
        time = f"{1e3 * choice.time_s.median():.0f} ms"
        lines.append((f"{problem}, {sizes}", len(ran), time, ratio, say_yes(each.met)))
    return table(["problem", "programs", "choice", "choice / fastest", "met"], lines)


_TRANSPORTS = {"rma": "`rma`", "throttled": "throttled"}


@cache
def model_pairs(transport: str) -> DataFrame:
    """Cases that benchmarks/model/model.py measured and predicted."""

    folder = f"{CORE}/model/{transport}"
    return paired(records(f"{folder}/measured.csv"), records(f"{folder}/predicted.csv"))


@block
def model_errors() -> str:
    """How far the model is from this machine, by transport and shape."""
    lines = []
    for transport, name in _TRANSPORTS.items():
        pairs = model_pairs(transport)
        for shape, each in [("all", pairs), *pairs.groupby("shape", sort=False)]:
            label = shape if shape == "all" else "×".join(map(str, shape))
            lines.append((f"{name}, {label}", *_describe_errors(each)))
    return table(["", *_ERRORS], lines)


_ERRORS = ("pairs in the right order", "median error", "bias", "range")


def _describe_errors(pairs: DataFrame) -> list[str]:
    found = errors(pairs)
    return [
        f"{found.concordance:.3f} of {found.pairs}",
        f"{found.median:.1f} %",
        f"{found.bias:+.1f} %".replace("-", "−"),
        f"{found.least:+.0f} to {found.most:+.0f} %".replace("-", "−"),
    ]


_NODES = {"mixed": "two ranks a node, which share a core", "network": "one rank a node"}


@block
def model_nodes() -> str:
    """How far the model is from ranks on two virtual nodes, by what their programs move."""

    lines = []
    for folder, name in _NODES.items():
        files = (records(f"{CORE}/model/{folder}/{file}.csv") for file in ("measured", "predicted"))
        measured, predicted = files
        times = paired(measured, predicted)
        pairs = paired(at_calibrated_speed(measured, predicted), predicted)
        adds, pushes = pairs.accumulate_bytes > 0, pairs.put_bytes > 0
        kinds = {
            "all, as times": times,
            "all": pairs,
            "gets alone": pairs[~adds & ~pushes],
            "sums pushed": pairs[pushes & ~adds],
            "sums by `MPI_Accumulate`": pairs[adds],
        }
        for kind, each in kinds.items():
            if each.empty:
                continue
            interval = held(each)
            inside = f"{interval.share:.0f} % in ±{interval.half:.0f} %"
            lines.append((f"{name}: {kind}", len(each), *_describe_errors(each), inside))
    return table(["", "cases", *_ERRORS, "held by intervals"], lines)


@block
def model_picks() -> str:
    """What comes of going by the model: percent above the best measured program."""
    lines = []
    for transport, name in _TRANSPORTS.items():
        for shape, each in model_pairs(transport).groupby("shape", sort=False):
            found = picks(each)
            shares = f"{found.pick:.1f} %", f"{found.median:.0f} %", f"{found.column:.1f} %"
            lines.append((f"{name}, {'×'.join(map(str, shape))}", *shares, f"{found.apart:.1f} %"))
    return table(["", "pick", "median", "column S-C", "eight names"], lines)


@block
def search_regret() -> str:
    """How far the first place of ``tune`` is behind the best alternative, by ranks."""
    lines = []
    for (machine, mesh), each in rows("simulated/readings/regret.csv").groupby(["machine", "mesh"]):
        nodes, node = map(int, mesh.split("x"))
        most = lambda name: f"{100 * each[name].max():.1f} %"
        told = (
            f"{100 * (each.gap[each.regret > 0.02]).min():.0f} %"
            if each.regret.max() > 0.02
            else ""
        )
        sizes = len(each), int(each.tried.sum())
        within = int((each.regret <= 0.02).sum())
        line = nodes * node, machine, mesh, *sizes, within, most("regret"), told
        lines.append((*line, f"{each.cpu_s.max():.1f}"))
    heads = "ranks, machine, nodes x GPUs, problems, alternatives, at most 2 % off, furthest off"
    return table([*heads.split(", "), "gap reported there", "most s of CPU"], sorted(lines))


@block
def chain_runs() -> str:
    """Ten chains, predicted and run."""
    lines = []
    for each in points(RESULTS / CORE / "chains" / "records.csv"):
        asked, fix = CHAINS[each.name]
        what = asked.name or f"{asked.widths}, {asked.between or 'none'}"
        lines.append(
            (
                each.name,
                f"`{what}`{', backward' * asked.backward}{', layouts given' * bool(fix)}",
                asked.tokens,
                f"{1e3 * each.predicted_s:.1f} ({1e3 * each.low_s:.1f}–{1e3 * each.high_s:.1f})",
                f"{1e3 * each.median_s:.1f}",
                f"{100 * (each.median_s / each.predicted_s - 1):+.1f} %",
                "yes" if each.is_inside else "no",
            )
        )
    header = ["chain", "columns, functions", "rows", "predicted, ms", "measured, ms", "differs"]
    return table([*header, "lies in it"], lines)
