"""What MeshSlice's evaluation says (§5, Figures 9 to 14, Tables 2 and 3), beside what the rows of a
study say (:mod:`plots.select.llm_rows`). No claim has constants of its own.
"""

from collections.abc import Callable, Iterable

from launch.models.llm import MODELS, PRODUCTS

from .verdicts import Claim, Verdict, named, show, verdicts

#: Points by which a percentage may differ from the paper's and still agree.
NEAR = 5.0
#: The paper's numbers, percent: (GPT-3, Megatron-NLG).
PAPER = {
    "lead over wang": (13.8, 26.0),
    "loss from 16 to 256": (16.8, 5.8),
    "utilization": (67.4, 82.2),
    "Y stays": (55.6, 78.2),
    "dataflow speedup": (21.2, 5.1),
    "collective 4x4": (47.4, 49.4),
    "wang 4x4": (47.7, 46.4),
    "meshslice 4x4": (45.5, 47.1),
    "overlapped 4x4": (65.7, 65.6),
}
#: Those that Figure 11 compares with MeshSlice; the others are in Figure 10 too.
_OTHERS, _SLOW = ["wang", "collective", "cannon", "summa"], ["fsdp", "tensor_parallel_1d"]


class _Rows:
    """Rows by what sets them apart."""

    def __init__(self, rows: Iterable):
        from pandas import DataFrame

        from plots.select.llm_rows import COLUMNS

        self.table = DataFrame(list(rows), columns=list(COLUMNS))

    def of(self, study: str, **fields):
        """The rows of all products of a study with these values."""
        found = self.table
        for name, value in {"study": study, "product": "all", **fields}.items():
            found = found[found[name] == value]
        return found

    def by(self, study: str, column: str, across: str = "algorithm", **fields):
        """A value by model and algorithm (those of the paper: Wang's with its loop count), where
        both models have it.

        Raises
        ------
        KeyError
            If a model has no rows; from the table, if an algorithm is not in it.
        """
        found = self.of(study, **fields).pivot_table(
            column, "model", across, aggfunc="first", sort=False
        )
        table = found.loc[list(MODELS)].dropna(axis="columns")
        if across == "algorithm" and study != "slice4x4" and "meshslice" not in table:
            raise KeyError("meshslice")
        return table.drop(columns="wang-free", errors="ignore")


def check(rows: Iterable, wanted: Callable[[str], bool] = bool) -> list[Verdict]:
    """Every claim that is wanted, in the order of the paper; those whose rows are missing are
    undecided."""
    return verdicts(CLAIMS, _Rows(rows), wanted)


def _lead(seconds, other: str | list[str]):
    """By how much MeshSlice is faster than another, or than each of several, percent."""
    return 100 * (seconds[other].div(seconds["meshslice"], axis="index") - 1)


def _near(ours, paper: str | tuple) -> tuple[bool, str]:
    """Whether the models' numbers are within :data:`NEAR` of the paper's, and both as text."""
    pairs = list(zip(ours, PAPER.get(paper, paper)))
    return all(abs(one - other) <= NEAR for one, other in pairs), ", ".join(
        f"{one:.1f} (paper {other})" for one, other in pairs
    )


def _told(text: Callable[[str], str]) -> str:
    return "; ".join(f"{model}: {text(model)}" for model in MODELS)


def _fastest_everywhere(found: _Rows):
    seconds = found.of("weak").pivot_table("seconds", ["model", "chips"], "algorithm")
    lost = [
        f"{model} on {chips}"
        for (model, chips), name in seconds.idxmin(axis="columns").items()
        if name != "meshslice"
    ]
    shares = found.of("weak", algorithm="meshslice").groupby("model").utilization_percent
    numbers = "; ".join(
        " ".join([model, *(f"{share:.1f}" for share in of_model)]) for model, of_model in shares
    )
    holds = None if seconds.empty else not lost
    return holds, f"{numbers} %{f'; not on {lost}' if lost else ''}"


def _lead_over_wang(found: _Rows):
    seconds = found.by("weak", "seconds", chips=256)
    holds, numbers = _near(_lead(seconds, "wang"), "lead over wang")
    free = found.of("weak", chips=256, algorithm="wang-free").set_index("model").seconds
    if set(free.index) == set(MODELS):
        leads = _lead(seconds.assign(free=free), "free")
        numbers += "; than Wang with the fastest loop count " + ", ".join(
            f"{lead:.1f}" for lead in leads
        )
    return holds, numbers


def _loss(found: _Rows):
    share = found.by("weak", "utilization_percent", "chips", algorithm="meshslice")
    return _near(100 * (1 - share[256] / share[16]), "loss from 16 to 256")


def _order(found: _Rows):
    columns = "seconds", "utilization_percent", "mesh"
    seconds, shares, meshes = (found.by("weak", column, chips=256) for column in columns)
    order = {model: list(seconds.loc[model].sort_values().index) for model in MODELS}
    return all(each[:3] == ["meshslice", "wang", "collective"] for each in order.values()), _told(
        lambda model: ", ".join(
            f"{name} {shares[name][model]:.1f} % on {meshes[name][model]}" for name in order[model]
        )
    )


def _parts(found: _Rows):
    """Launching, synchronising, transferring and their sum over the time of products, each by model
    and algorithm."""
    compute = found.by("weak", "compute_s", chips=256)
    compute = compute[["meshslice", *_OTHERS, *_SLOW]]
    parts = [
        found.by("weak", f"{name}_s", chips=256) / compute
        for name in ("launch", "sync", "transfer")
    ]
    return *parts, sum(parts)


def _communication(found: _Rows):
    *_, total = _parts(found)
    holds = (total.idxmin(axis="columns") == "collective") & (
        total[["wang", "meshslice"]].max(axis="columns")
        < total[["cannon", "summa", *_SLOW]].min(axis="columns")
    )
    return holds.all(), _told(lambda model: named(total.loc[model].sort_values(), 2))


def _launches(found: _Rows):
    launch, sync, *_ = _parts(found)
    holds = (launch["wang"] > launch["collective"]) & (
        sync["meshslice"] > sync[["wang", "collective"]].max(axis="columns")
    )
    return holds.all(), _told(
        lambda model: (
            f"launch Wang {launch['wang'][model]:.3f}, Collective "
            f"{launch['collective'][model]:.3f}; synchronisation MeshSlice "
            f"{sync['meshslice'][model]:.2f}, Wang {sync['wang'][model]:.2f}, Collective "
            f"{sync['collective'][model]:.2f}"
        )
    )


def _synchronisation(found: _Rows):
    _, sync, transfer, total = _parts(found)
    holds = (sync["summa"] > transfer["summa"]) & (
        transfer["cannon"] > transfer[["meshslice", "wang", "collective"]].max(axis="columns")
    )
    return holds.all(), _told(
        lambda model: (
            f"SUMMA synchronisation {sync['summa'][model]:.2f} of {total['summa'][model]:.2f}, "
            f"Cannon transfer {transfer['cannon'][model]:.2f} of {total['cannon'][model]:.2f}"
        )
    )


def _shapes(found: _Rows):
    """Of the products on 256 chips, each shape once: whether MeshSlice is the fastest in all; its
    mean leads over Collective and Wang; these as text."""
    rows = found.table[(found.table.study == "weak") & (found.table.chips == 256)]
    rows = rows[rows["product"].isin(PRODUCTS) & rows.algorithm.isin(["meshslice", *_OTHERS])]
    rows = rows.sort_values("product", key=lambda names: names.map(PRODUCTS.index), kind="stable")
    shape, where = ["model", "m", "n", "k"], ["layer", "product"]
    seconds = rows.pivot_table("seconds", [*shape, *where], "algorithm", sort=False)
    seconds = seconds.dropna(subset=["meshslice", "wang"])
    seconds = seconds[~seconds.index.droplevel(where).duplicated()]
    leads = _lead(seconds, _OTHERS)
    mean, faster = leads[["collective", "wang"]].mean(), not (leads <= 0).any(axis=None)
    if leads.empty:
        raise KeyError("wang")
    numbers = (
        f"{len(leads)} shapes: {mean['collective']:.1f} % (paper 27.8) and {mean['wang']:.1f} % "
        f"(paper 19.1) on average{'' if faster else '; not in all'}"
    )
    return faster, mean, numbers


def _mean_leads(found: _Rows):
    _, mean, numbers = _shapes(found)
    return _near(mean, (27.8, 19.1))[0], numbers


def _shares(found: _Rows) -> list:
    """Utilization in percent on the fewest and on the most chips."""
    return [found.by("strong", "utilization_percent", chips=chips) for chips in (16, 256)]


def _efficient(found: _Rows):
    few, _ = _shares(found)
    return (few > 50).all(axis=None), _told(lambda model: named(few.loc[model])) + " %"


def _similar(found: _Rows):
    seconds, (_, many) = found.by("strong", "seconds", chips=256), _shares(found)
    alike = _lead(seconds, ["wang", "collective"]) < 20
    above = _lead(seconds, ["summa", "tensor_parallel_1d"]) > 0
    holds = alike.all(axis=None) and above.all(axis=None)
    return holds, _told(lambda model: named(many.loc[model])) + " %"


def _dataflows(found: _Rows):
    seconds, shares = (
        found.by("dataflows", column, "variant") for column in ("seconds", "utilization_percent")
    )
    gain = 100 * (seconds["Y stays"] / seconds["the largest stays"] - 1)
    holds, numbers = _near(gain, "dataflow speedup")
    return holds, "; ".join([numbers, *(f"{share:.1f} %" for share in shares.to_numpy().ravel())])


def _picks(study: str, field: str, wanted: str | None = None):
    """Whether the cost model picks what is fastest in a study, and ``wanted``."""

    def picks(found: _Rows):
        rows = {model: found.of(study, model=model).set_index(field) for model in MODELS}
        if any(each.empty for each in rows.values()):
            raise KeyError(study)
        best = {model: (r.estimated_s.idxmin(), r.seconds.idxmin()) for model, r in rows.items()}
        numbers = _told(lambda m: "{} by the cost model, {} simulated".format(*best[m]))
        if wanted:
            seconds = rows["gpt3"].seconds
            numbers += (
                f"; GPT-3 on 32x8 is {seconds['8x32'] / seconds['32x8']:.2f} times as fast as on "
                "8x32 (paper: up to 2.4 on another shape)"
            )
        return all(one == two == (wanted or two) for one, two in best.values()), numbers

    return picks


_PAGE = "docs/reproduction.md#"
_LEAD, _LIST = _PAGE + "the-lead-over-wang", _PAGE + "meshslices-claims"
_POINTS = f"each model within {NEAR:g} points of the paper"


def _of(study: str, machine: str = "tpuv4") -> str:
    return f"results/simulated/tpuv4-llm/{study}.csv ({machine})"


def _slice(name: str, algorithm: str, variant: str = "", see: str = "") -> Claim:
    """Table 3: the claim of a column."""

    def near(found: _Rows):
        shares = found.by("slice4x4", "utilization_percent", variant=variant)
        return _near(shares[algorithm], name)

    words = ", ".join(filter(None, (f"4x4 slice, {algorithm}", variant)))
    theirs = " and ".join(map(str, PAPER[name])) + " %"
    return Claim(
        f"Table 3: {words}: {theirs}",
        near,
        theirs=theirs,
        threshold=_POINTS,
        records=_of("slice4x4", "tpuv4slice"),
        see=see,
    )


#: Two numbers are those of GPT-3 and Megatron-NLG.
CLAIMS: dict[str, Claim] = {
    "M1": Claim(
        "Figure 9: MeshSlice is the fastest in all cases, 16 to 256 chips",
        _fastest_everywhere,
        theirs="fastest in all",
        threshold="fewest seconds for each model and number of chips",
        records=_of("weak"),
    ),
    "M2": Claim(
        "§5.1.1: 256 chips: MeshSlice is 13.8 % and 26.0 % faster than Wang",
        _lead_over_wang,
        theirs="13.8 and 26.0 %",
        threshold=_POINTS,
        records=_of("weak"),
        see=_LEAD,
    ),
    "M3": Claim(
        "§5.1.1: from 16 to 256 chips it loses 16.8 % and 5.8 % of its efficiency",
        _loss,
        theirs="16.8 and 5.8 %",
        threshold=_POINTS,
        records=_of("weak"),
    ),
    "M4": Claim(
        "Table 2: 256 chips: FLOP utilization 67.4 % and 82.2 %",
        lambda found: _near(
            found.by("weak", "utilization_percent", chips=256)["meshslice"], "utilization"
        ),
        theirs="67.4 and 82.2 %",
        threshold=_POINTS,
        records=_of("weak"),
        see=_LEAD,
    ),
    "M5": Claim(
        "§5.1.1: 256 chips: Wang is between MeshSlice and Collective; SUMMA, Cannon, 1-D TP and "
        "FSDP are slower still",
        _order,
        theirs="this order",
        threshold="this order of seconds, for both models",
        records=_of("weak"),
    ),
    "M6": Claim(
        "Figure 10: Collective communicates least, Wang and MeshSlice slightly more, all others "
        "much more",
        _communication,
        theirs="slightly, and much more",
        threshold="this order of communication over the time of local GEMMs, for both models",
        records=_of("weak"),
    ),
    "M7": Claim(
        "Figure 10: Wang adds launches, MeshSlice adds synchronisation",
        _launches,
        theirs="more launches, more synchronisation",
        threshold="more than Collective, and MeshSlice more than Wang, for both models",
        records=_of("weak"),
    ),
    "M8": Claim(
        "Figure 10: SUMMA's synchronisation dominates; Cannon moves more than Collective, Wang "
        "and MeshSlice",
        _synchronisation,
        theirs="dominates; more",
        threshold="SUMMA synchronises for longer than it transfers; Cannon transfers for longer "
        "than the three",
        records=_of("weak"),
        see=_LIST,
    ),
    "M9": Claim(
        "Figure 11: MeshSlice is the fastest in all 16 products",
        lambda found: _shapes(found)[::2],
        theirs="fastest in all 16",
        threshold="fewest seconds in each GEMM",
        records=_of("weak"),
        see=_LIST,
    ),
    "M10": Claim(
        "Figure 11: on average 27.8 % faster than Collective and 19.1 % than Wang",
        _mean_leads,
        theirs="27.8 and 19.1 %",
        threshold=f"both within {NEAR:g} points of the paper",
        records=_of("weak"),
        see=_LEAD,
    ),
    "M11": Claim(
        "Figure 12: batch 32 on 16 chips: all algorithms are rather efficient",
        _efficient,
        theirs="relatively high efficiency",
        threshold="each above 50 %",
        records=_of("strong"),
    ),
    "M12": Claim(
        "Figure 12: on 256: MeshSlice is similar to Collective and Wang, above 1-D TP and SUMMA",
        _similar,
        theirs="similar; better",
        threshold="at most 20 % faster than Collective and Wang; faster than 1-D TP and SUMMA",
        records=_of("strong"),
        see=_LIST,
    ),
    "M13": Claim(
        "Table 2: choosing dataflows brings 21.2 % and 5.1 % (55.6 to 67.4 %, 78.2 to 82.2 %)",
        _dataflows,
        theirs="21.2 and 5.1 %",
        threshold=_POINTS,
        records=_of("dataflows"),
    ),
    "M14": Claim(
        "Figure 13: the cost model finds the best mesh, 32x8",
        _picks("meshes", "mesh", "32x8"),
        theirs="32x8",
        threshold="32x8 by the cost model and by the simulation, for both models",
        records=_of("meshes"),
    ),
    "M15": Claim(
        "Figure 14: the cost model finds the best slice count on 32x8",
        _picks("slices", "slices"),
        theirs="finds the best",
        threshold="the same count by the cost model and by the simulation, for both models",
        records=_of("slices"),
    ),
    "M16": _slice("collective 4x4", "collective"),
    "M17": _slice("wang 4x4", "wang", "nothing overlaps"),
    "M18": _slice("meshslice 4x4", "meshslice", "nothing overlaps", see=_LIST),
    "M19": _slice("overlapped 4x4", "meshslice", "overlapped", see=_LIST),
}


def show_claims(rows: list) -> None:
    """Print every claim with the paper's numbers, ours and the verdict."""
    show(check(rows) if rows else ())
