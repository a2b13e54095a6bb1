"""Tables of reproduction.md and ARTIFACT.md: the papers' claims, and what they rest on."""

import textwrap
from functools import cache

from pandas import DataFrame

from launch.papers import papers
from launch.papers.claims import HOLDS, shown
from launch.papers.slicing import aligned

from .records import RESULTS, only, records, rows, where
from .tables import block, table

_WIDTH = 120


@cache
def verdicts(paper: str, folder: str = "simulated") -> list:
    """Verdicts of ``slicing``, ``meshslice`` or ``overlap`` on the committed records of a
    folder."""
    return papers()[paper].verdicts(RESULTS, folder=folder)


@block
def claims_by_arbitration() -> str:
    """P1 to P12, and of MeshSlice's and fused overlap's claims those whose numbers differ, with
    links that carry one transfer at a time, and with links that are shared."""
    pairs = [
        (one, shared)
        for paper in ("slicing", "meshslice", "overlap")
        for one, shared in zip(verdicts(paper), verdicts(paper, "simulated/fair"), strict=True)
        if paper == "slicing" or one.ours != shared.ours
    ]
    return table(
        ["claim", "fifo", "fair"],
        [(one.claim.name, HOLDS[one.holds], HOLDS[shared.holds]) for one, shared in pairs],
    )


def _wrapped(words: str) -> str:
    return (
        textwrap.fill(
            words,
            _WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


@block
def claims(paper: str) -> str:
    """Each claim with its verdict; and by what it holds, the paper's number and ours."""
    found = verdicts(paper)
    text = table(
        ["", "verdict", "claim"],
        [(each.claim.name, shown(each.word), each.claim.text) for each in found],
    )
    text += "\nBy what each holds, the paper's number, and ours, simulated unless it is marked:\n\n"
    for each in found:
        claim = each.claim
        source = "" if claim.source == "simulated" else f" ({claim.source})"
        words = f"- **{claim.name}** holds if: {claim.threshold}. Paper: {claim.theirs}. "
        words += f"Ours{source}: {each.ours}."
        if each.word == "KNOWN":
            words += f" Not reproduced: [why](#{claim.see.partition('#')[2]})."
        text += _wrapped(words)
    return text


@block
def not_reproduced() -> str:
    """Every claim of a paper that is not reproduced, and where the page says why."""
    found = [each for paper in ("slicing", "meshslice", "overlap") for each in verdicts(paper)]
    return table(
        ["", "claim", ""],
        [
            (each.claim.name, each.claim.text, f"[why](#{each.claim.see.partition('#')[2]})")
            for each in found
            if each.word == "KNOWN"
        ],
    )


@block
def claims_by_constants() -> str:
    """MeshSlice's claims with the constants of the authors' simulation, and with the earlier ones
    of their autotuner; and the numbers with these."""
    pairs = list(
        zip(verdicts("meshslice"), verdicts("meshslice", "simulated/earlier"), strict=True)
    )
    text = table(
        ["claim", "constants of the simulation", "earlier constants"],
        [(one.claim.name, HOLDS[one.holds], HOLDS[other.holds]) for one, other in pairs],
    )
    text += "\nOur numbers with the earlier constants, where they differ:\n\n"
    for one, other in pairs:
        if one.ours != other.ours:
            text += _wrapped(f"- **{one.claim.name}** {other.ours}.")
    return text


_LINES = "simulated/readings/lines.csv"


def _verdict(claim: str, **fields) -> str:
    found = only(rows("simulated/readings/verdicts.csv"), machine="pvc12", claim=claim, **fields)
    return HOLDS[bool(found.holds)]


def _means(count: int, **fields) -> str:
    """The highest lines of MLP-2 on pvc12 by their means, with what is in place unless C is."""
    found = where(rows(_LINES), machine="pvc12", layer="mlp2", drawn=True, **fields)
    means = found.groupby(["line", "stationary"]).percent_of_peak.mean()
    ordered = list(means.sort_values(ascending=False, kind="stable").items())[:count]
    told = ", ".join(f"{name} {mean:.1f} (S-{s})" for (name, s), mean in ordered)
    return told.replace(" Prod.", "").replace(" (S-C)", "")


@block
def by_program() -> str:
    """MLP-2 on pvc12 as each program, and what P7 and P10 say then."""
    programs = rows(_LINES).program.unique()
    lines = []
    for most in (12, 6, 4):
        for program in programs:
            each = {"program": program, "reading": "as it is", "most_replicas": most}
            claims = (_verdict(claim, **each) for claim in ("P7", "P10"))
            lines.append((program, most, _means(3, **each), *claims))
    header = ["program", "A, B factor at most", "the three highest lines, % of peak", "P7", "P10"]
    return table(header, lines)


@block
def by_links() -> str:
    """MLP-2 on pvc12 as the paper's program, by links and by the most replicas of A and B."""
    found = where(rows(_LINES), machine="pvc12", program="paper")
    lines = []
    for (reading, most), _ in found.groupby(["reading", "most_replicas"], sort=False):
        each = {"program": "paper", "reading": reading, "most_replicas": most}
        lines.append((reading, most, _means(6, **each), _verdict("P7", **each)))
    return table(["links", "A, B factor at most", "mean of each line, % of peak", "P7"], lines)


@block
def outer_on_h100() -> str:
    """MLP-2's Outer Product on 8 H100 with Stationary B and C, at each batch size."""
    found = where(rows(_LINES), machine="h100x8", layer="mlp2", line="Outer Prod.")
    by = ["program", "reading", "most_replicas"]
    lines = []
    for (program, reading, most), each in found.groupby(by, sort=False):
        told = f"{program}; {reading}" if reading != "as it is" else program
        each = each.sort_values("m")
        cells = (
            " ".join(f"{x:.1f}" for x in where(each, stationary=s).percent_of_peak) for s in "BC"
        )
        lines.append((told, "1" if most == 1 else "any", *cells))
    return table(["program", "A, B factor", "Stationary B, %", "Stationary C, %"], lines)


@cache
def lowered() -> DataFrame:
    """A row a case of the lowering study: times by schedule, whether tiles align, and by how much
    direct execution is slower than the best lowering, percent."""

    found = records("simulated/lowering-pvc12.csv", "simulated/lowering-h100x8.csv")
    case = ["machine", "m", "n", "k", "a", "b", "c", "stationary"]
    times = found.pivot(index=case, columns="schedule", values="time_s")
    least = times[["greedy", "cost", "exhaustive"]].min(axis="columns")
    times = times.assign(loss=100 * (times.direct / least - 1)).reset_index()
    some = found.drop_duplicates(case).set_index(case)
    ranks = some.ranks.reindex(times.set_index(case).index).to_numpy()
    times = times.assign(ranks=ranks)
    return times.assign(aligned=[aligned(row) for row in times.itertuples()])


@block
def lowering_losses() -> str:
    """Cases in which direct execution is more than 5 % slower than the best lowering."""
    found = lowered()
    found = found[found.loss > 5].sort_values(["aligned", "loss"], ascending=False, kind="stable")
    return table(
        ["machine", "A · B → C, Stationary", "m × n × k", "tiles align", "direct is slower by"],
        [
            (
                row.machine,
                f"{row.a} · {row.b} → {row.c}, {row.stationary}",
                f"{row.m} × {row.n} × {row.k}",
                "yes" if row.aligned else "no",
                f"{row.loss:.0f} %",
            )
            for row in found.itertuples()
        ],
    )


def _turns(paper: str) -> DataFrame:
    """What becomes of a paper's claims by change."""
    found = rows("simulated/readings/sensitivity.csv").fillna("")
    return found[(found.paper == paper) & (found.machine != "")].copy()


@block
def sensitivity() -> str:
    """Which claims change when one constant of the models does."""
    lines, found = [], _turns("slicing")
    for (machine, claims_), each in found.groupby(["machine", "changed_claims"], sort=False):
        if claims_:
            lines += [(machine, row.change, claims_) for row in each.itertuples()]
        else:
            lines.append((machine, f"{len(each)} other changes", "none"))
    return table(["machine", "change", "claims that change"], sorted(lines, key=lambda x: x[0]))


@block
def turns_by_factor(paper: str) -> str:
    """Which claims of ``meshslice`` or ``overlap`` are decided otherwise when one constant is
    another: + holds then, - does not."""
    found = _turns(paper)
    found[["constant", "factor"]] = found.change.str.split(" x ", expand=True)
    by = sorted({*found.factor}, key=float)
    lines = []
    for machine, mine in found.groupby("machine", sort=False):
        none = 0
        for constant, each in mine.groupby("constant", sort=False):
            cells = dict(zip(each.factor, map(_turned, each.changed_claims)))
            text = [cells.get(factor, "-") for factor in by]
            if {*text} <= {"", "-"}:
                none += 1
            else:
                lines.append((machine, f"`{constant}`", *text))
        lines.append((machine, f"{none} other constants", *["" for _ in by]))
    return table(["machine", "constant", *(f"× {factor}" for factor in by)], lines)


def _turned(claims_: str) -> str:
    """The claims that a change turns."""
    signs = {"holds": "+", "does": "−", "undecided": "?"}
    words = [each.split() for each in claims_.split("; ") if each]
    return ", ".join(f"{signs[word[1]]}{word[0]}" for word in words)


@block
def overlap_split() -> str:
    """The time that a product takes on H800, ms, by the multiprocessors that its sums have."""
    found = rows("simulated/overlap/split.csv")
    times = found.drop_duplicates(["ranks", "m", "n", "k", "variant"])
    times = times.pivot(index=["ranks", "m", "n", "k"], columns="variant", values="seconds")
    lines = [
        (ranks, f"{m} × {n} × {k}", *(f"{1e3 * one:.3f}" for one in each))
        for (ranks, m, n, k), each in zip(times.index, times.to_numpy())
    ]
    return table(["GPUs", "m × n × k", *map(str, times.columns)], lines)


@block
def artifact_claims() -> str:
    """The verdict that is expected of each claim, and where our number is from. (The page says
    that what is not reproduced is documented.)"""
    word = lambda verdict: {"KNOWN": "not reproduced"}.get(verdict, verdict)
    return table(
        ["", "expected", "our number is", "claim"],
        [
            (row.claim, word(row.verdict), row.source, row.text)
            for row in rows("claims.csv").itertuples()
        ],
    )


@block
def dtensor_points() -> str:
    """Errors of the published DTensor points, percent, by line and batch size."""
    lines: dict[tuple, list[str]] = {}
    for row in where(rows("ledger.csv"), group="dtensor-h100").itertuples():
        layer, line = row.what.rpartition(" ")[0].split(" ", 1)
        error = f"{100 * (row.predicted / row.value - 1):+.1f}".replace("-", "\N{MINUS SIGN}")
        lines.setdefault((layer.upper().replace("P", "P-"), line), []).append(error)
    header = ["layer", "line", *(f"m = {m}" for m in (1024, 2048, 4096, 8192))]
    return table(header, [(*name, *cells) for name, cells in lines.items()])
