"""What MeshSlice's evaluation says (§5, Figures 9 to 14, Tables 2 and 3), beside what the rows of a
study say (:mod:`plots.select.llm_rows`). No claim has constants of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["Verdict", "check", "lead_percent", "show_claims"]

#: Points by which a percentage may differ from the paper's and still agree.
NEAR = 6.0
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
MODELS = ("gpt3", "megatron-nlg")
TWO_DIMENSIONAL = ("meshslice", "wang", "collective", "cannon", "summa")


@dataclass(frozen=True)
class Verdict:
    """One claim; ``holds`` is None if the rows do not decide it."""

    claim: str
    where: str
    text: str
    numbers: str
    holds: bool | None


def lead_percent(row, other) -> float:
    """By how much a row is faster than another."""
    return 100 * (other.seconds / row.seconds - 1)


class _Rows:
    """Rows by what sets them apart."""

    def __init__(self, rows: Iterable):
        self.rows = list(rows)

    def of(self, study: str, **fields) -> list:
        fields = {"product": "all"} | fields
        return [
            row
            for row in self.rows
            if row.study == study
            and all(getattr(row, name) == value for name, value in fields.items())
        ]

    def one(self, study: str, **fields):
        return next(iter(self.of(study, **fields)), None)

    def by_algorithm(self, study: str, **fields) -> dict:
        """Those of the paper: Wang's algorithm with its loop count."""
        return {
            row.algorithm: row for row in self.of(study, **fields) if row.algorithm != "wang-free"
        }


def check(rows: Iterable) -> list[Verdict]:
    """Every claim, in the order of the paper; those whose rows are missing are undecided."""
    found = _Rows(rows)
    return [verdict for claim in _CLAIMS for verdict in claim(found)]


def _near(ours: Iterable[float | None], paper: tuple) -> tuple[bool | None, str]:
    """Whether the models' numbers are within :data:`NEAR` of the paper's, and both as text."""
    ours = list(ours)
    if None in ours:
        return None, "no rows"
    return all(abs(one - other) <= NEAR for one, other in zip(ours, paper)), ", ".join(
        f"{one:.1f} (paper {other})" for one, other in zip(ours, paper)
    )


def _all_models(test: Callable[[str], bool | None]) -> bool | None:
    told = [test(model) for model in MODELS]
    return None if None in told else all(told)


def _fastest_everywhere(found: _Rows):
    chips = sorted({row.chips for row in found.of("weak")})
    lost = [
        f"{model} on {each}"
        for model in MODELS
        for each in chips
        if (rows := found.by_algorithm("weak", model=model, chips=each))
        and min(found.of("weak", model=model, chips=each), key=lambda row: row.seconds).algorithm
        != "meshslice"
    ]
    numbers = "; ".join(
        " ".join([model, *(f"{row.utilization_percent:.1f}" for row in rows)])
        for model in MODELS
        if (rows := found.of("weak", model=model, algorithm="meshslice")) or True
    )
    yield Verdict(
        "M1",
        "Figure 9",
        "MeshSlice is the fastest in all cases, 16 to 256 chips",
        f"{numbers} %{f'; not on {lost}' if lost else ''}",
        not lost if chips else None,
    )


def _of_256(found: _Rows):
    rows = {model: found.by_algorithm("weak", model=model, chips=256) for model in MODELS}
    have = all("meshslice" in each for each in rows.values())
    holds, numbers = _near(
        [lead_percent(rows[m]["meshslice"], rows[m]["wang"]) if have else None for m in MODELS],
        PAPER["lead over wang"],
    )
    free = {
        model: found.one("weak", model=model, chips=256, algorithm="wang-free") for model in MODELS
    }
    if have and all(free.values()):
        numbers += "; than Wang with the fastest loop count " + ", ".join(
            f"{lead_percent(rows[m]['meshslice'], free[m]):.1f}" for m in MODELS
        )
    yield Verdict(
        "M2", "§5.1.1", "256 chips: MeshSlice is 13.8 % and 26.0 % faster than Wang", numbers, holds
    )
    losses = []
    for model in MODELS:
        few, many = (
            found.one("weak", model=model, algorithm="meshslice", chips=each) for each in (16, 256)
        )
        losses.append(
            100 * (1 - many.utilization_percent / few.utilization_percent) if few and many else None
        )
    holds, numbers = _near(losses, PAPER["loss from 16 to 256"])
    yield Verdict(
        "M3",
        "§5.1.1",
        "from 16 to 256 chips it loses 16.8 % and 5.8 % of its efficiency",
        numbers,
        holds,
    )
    holds, numbers = _near(
        [rows[m]["meshslice"].utilization_percent if have else None for m in MODELS],
        PAPER["utilization"],
    )
    yield Verdict("M4", "Table 2", "256 chips: FLOP utilization 67.4 % and 82.2 %", numbers, holds)
    order = {m: sorted(rows[m], key=lambda name: rows[m][name].seconds) for m in MODELS}
    between = (
        all(order[m][:3] == ["meshslice", "wang", "collective"] for m in MODELS) if have else None
    )
    numbers = "; ".join(
        f"{m}: "
        + ", ".join(
            f"{name} {rows[m][name].utilization_percent:.1f} % on {rows[m][name].mesh}"
            for name in order[m]
        )
        for m in MODELS
    )
    yield Verdict(
        "M5",
        "§5.1.1",
        "256 chips: Wang is between MeshSlice and Collective; SUMMA, Cannon, 1-D TP and FSDP are "
        "slower still",
        numbers,
        between,
    )


def _breakdown(found: _Rows):
    def total(row):
        return (row.launch_s + row.sync_s + row.transfer_s) / row.compute_s

    rows = {model: found.by_algorithm("weak", model=model, chips=256) for model in MODELS}
    texts = {
        "M6": "Collective communicates least, Wang and MeshSlice slightly more, all others much "
        "more",
        "M7": "Wang adds launches, MeshSlice adds synchronisation",
        "M8": "SUMMA's synchronisation dominates; Cannon moves more than Collective, Wang and "
        "MeshSlice",
    }
    if not all(len(each) == 7 for each in rows.values()):
        for claim, text in texts.items():
            yield Verdict(claim, "Figure 10", text, "no rows", None)
        return
    ordered = {
        model: sorted(rows[model].items(), key=lambda item: total(item[1])) for model in MODELS
    }
    numbers = "; ".join(
        f"{model}: " + ", ".join(f"{name} {total(row):.2f}" for name, row in ordered[model])
        for model in MODELS
    )
    yield Verdict(
        "M6",
        "Figure 10",
        texts["M6"],
        numbers,
        _all_models(
            lambda m: (
                min(rows[m], key=lambda name: total(rows[m][name])) == "collective"
                and max(total(rows[m][name]) for name in ("wang", "meshslice"))
                < min(
                    total(rows[m][name])
                    for name in ("cannon", "summa", "fsdp", "tensor_parallel_1d")
                )
            )
        ),
    )
    part = lambda m, name, field: getattr(rows[m][name], field) / rows[m][name].compute_s
    numbers = "; ".join(
        f"{m}: launch Wang {part(m, 'wang', 'launch_s'):.3f}, Collective "
        f"{part(m, 'collective', 'launch_s'):.3f}; synchronisation MeshSlice "
        f"{part(m, 'meshslice', 'sync_s'):.2f}, Wang {part(m, 'wang', 'sync_s'):.2f}, Collective "
        f"{part(m, 'collective', 'sync_s'):.2f}"
        for m in MODELS
    )
    yield Verdict(
        "M7",
        "Figure 10",
        texts["M7"],
        numbers,
        _all_models(
            lambda m: (
                part(m, "wang", "launch_s") > part(m, "collective", "launch_s")
                and part(m, "meshslice", "sync_s")
                > max(part(m, "wang", "sync_s"), part(m, "collective", "sync_s"))
            )
        ),
    )
    numbers = "; ".join(
        f"{m}: SUMMA synchronisation {part(m, 'summa', 'sync_s'):.2f} of "
        f"{total(rows[m]['summa']):.2f}, Cannon transfer "
        f"{part(m, 'cannon', 'transfer_s'):.2f} of {total(rows[m]['cannon']):.2f}"
        for m in MODELS
    )
    yield Verdict(
        "M8",
        "Figure 10",
        texts["M8"],
        numbers,
        _all_models(
            lambda m: (
                part(m, "summa", "sync_s") > part(m, "summa", "transfer_s")
                and part(m, "cannon", "transfer_s")
                > max(part(m, name, "transfer_s") for name in ("meshslice", "wang", "collective"))
            )
        ),
    )


def _shapes(found: _Rows):
    leads, faster = {"collective": [], "wang": []}, True
    for model in MODELS:
        seen = set()
        for row in (
            found.of("weak", model=model, chips=256, algorithm="meshslice", product="forward")
            + found.of(
                "weak", model=model, chips=256, algorithm="meshslice", product="backward data"
            )
            + found.of(
                "weak", model=model, chips=256, algorithm="meshslice", product="backward weight"
            )
        ):
            if (row.m, row.n, row.k) in seen:
                continue
            seen.add((row.m, row.n, row.k))
            for other in TWO_DIMENSIONAL[1:]:
                theirs = found.one(
                    "weak",
                    model=model,
                    chips=256,
                    algorithm=other,
                    layer=row.layer,
                    product=row.product,
                )
                if theirs is None:
                    continue
                faster &= theirs.seconds > row.seconds
                if other in leads:
                    leads[other].append(lead_percent(row, theirs))
    count = len(leads["wang"])
    mean = {name: sum(each) / count if count else 0.0 for name, each in leads.items()}
    numbers = (
        f"{count} shapes: {mean['collective']:.1f} % (paper 27.8) and {mean['wang']:.1f} % "
        f"(paper 19.1) on average{'' if faster else '; not in all'}"
    )
    yield Verdict(
        "M9",
        "Figure 11",
        "MeshSlice is the fastest in all 16 products",
        numbers,
        faster if count else None,
    )
    holds, _ = _near([mean["collective"], mean["wang"]], (27.8, 19.1))
    yield Verdict(
        "M10",
        "Figure 11",
        "on average 27.8 % faster than Collective and 19.1 % than Wang",
        numbers,
        holds if count else None,
    )


def _strong(found: _Rows):
    many = {model: found.by_algorithm("strong", model=model, chips=256) for model in MODELS}
    few = {model: found.by_algorithm("strong", model=model, chips=16) for model in MODELS}
    have = all("meshslice" in each for each in (*many.values(), *few.values()))
    text = lambda rows: ", ".join(
        f"{name} {row.utilization_percent:.1f}" for name, row in rows.items()
    )
    yield Verdict(
        "M11",
        "Figure 12",
        "batch 32 on 16 chips: all algorithms are rather efficient",
        "; ".join(f"{m}: {text(few[m])}" for m in MODELS) + " %",
        all(row.utilization_percent > 50 for m in MODELS for row in few[m].values())
        if have
        else None,
    )
    numbers = "; ".join(f"{m}: {text(many[m])}" for m in MODELS) + " %"
    yield Verdict(
        "M12",
        "Figure 12",
        "on 256: MeshSlice is similar to Collective and Wang, above 1-D TP and SUMMA",
        numbers,
        _all_models(
            lambda m: (
                max(
                    lead_percent(many[m]["meshslice"], many[m][name])
                    for name in ("wang", "collective")
                )
                < 20
                and min(
                    lead_percent(many[m]["meshslice"], many[m][name])
                    for name in ("summa", "tensor_parallel_1d")
                )
                > 0
            )
        )
        if have
        else None,
    )


def _autotuner(found: _Rows):
    both = {
        model: {row.variant: row for row in found.of("dataflows", model=model)} for model in MODELS
    }
    have = all(len(each) == 2 for each in both.values())
    holds, numbers = _near(
        [
            lead_percent(both[m]["the largest stays"], both[m]["Y stays"]) if have else None
            for m in MODELS
        ],
        PAPER["dataflow speedup"],
    )
    utilizations = "; ".join(
        f"{row.utilization_percent:.1f} %" for m in MODELS for row in both[m].values()
    )
    yield Verdict(
        "M13",
        "Table 2",
        "choosing dataflows brings 21.2 % and 5.1 % (55.6 to 67.4 %, 78.2 to 82.2 %)",
        f"{numbers}; {utilizations}",
        holds,
    )
    for claim, study, field, figure, text in (
        ("M14", "meshes", "mesh", "Figure 13", "the cost model finds the best mesh, 32x8"),
        (
            "M15",
            "slices",
            "slices",
            "Figure 14",
            "the cost model finds the best slice count on 32x8",
        ),
    ):
        rows = {model: found.of(study, model=model) for model in MODELS}
        have, picks = all(rows.values()), []
        for model in MODELS if have else ():
            estimated, simulated = (
                min(rows[model], key=lambda row: row.estimated_s),
                min(rows[model], key=lambda row: row.seconds),
            )
            picks.append((getattr(estimated, field), getattr(simulated, field)))
        numbers = "; ".join(
            f"{model}: {one} by the cost model, {other} simulated"
            for model, (one, other) in zip(MODELS, picks)
        )
        if study == "meshes" and have:
            other = {row.mesh: row for row in rows["gpt3"]}
            numbers += (
                f"; GPT-3 on 32x8 is {other['8x32'].seconds / other['32x8'].seconds:.2f} times "
                "as fast as on 8x32 (paper: up to 2.4 on another shape)"
            )
        right = all(one == other and (study != "meshes" or one == "32x8") for one, other in picks)
        yield Verdict(claim, figure, text, numbers, right if have else None)


def _slice(found: _Rows):
    for claim, name, algorithm, variant in (
        ("M16", "collective 4x4", "collective", ""),
        ("M17", "wang 4x4", "wang", "nothing overlaps"),
        ("M18", "meshslice 4x4", "meshslice", "nothing overlaps"),
        ("M19", "overlapped 4x4", "meshslice", "overlapped"),
    ):
        rows = [
            found.one("slice4x4", model=model, algorithm=algorithm, variant=variant)
            for model in MODELS
        ]
        holds, numbers = _near([row and row.utilization_percent for row in rows], PAPER[name])
        yield Verdict(
            claim,
            "Table 3",
            f"4x4 slice, {algorithm}{', ' * bool(variant)}{variant}: "
            f"{' and '.join(map(str, PAPER[name]))} %",
            numbers,
            holds,
        )


_CLAIMS = (_fastest_everywhere, _of_256, _breakdown, _shapes, _strong, _autotuner, _slice)


def show_claims(rows: Iterable) -> None:
    """Print every claim with the paper's numbers, ours and the verdict."""
    rows = list(rows)
    if not rows:
        return
    words = {True: "holds", False: "does not hold", None: "undecided"}
    for verdict in check(rows):
        print(f"{verdict.claim:4} {words[verdict.holds]:14} {verdict.where}: {verdict.text}")
        print(f"{'':19} {verdict.numbers}")
