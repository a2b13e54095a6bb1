"""Tables of the papers' claims, and what their verdicts depend on."""

import re
from textwrap import fill

from drbench.launch.cases.machine_models import find_machine
from drbench.launch.papers import papers
from drbench.launch.papers.vary import FIRST, first_constants

from .records import records, rows, where
from .tables import table

#: Most characters of our numbers in a table.
_WIDTH = 100


def _cut(text: str, width: int) -> str:
    """A text shortened to a width between phrases, or else numbers, and outside of parentheses.

    Examples
    --------
    >>> _cut("Column 80.8, Row 53.2", 30), _cut("Column 80.8, Row 53.2", 18), _cut("spread", 3)
    ('Column 80.8, Row 53.2', 'Column 80.8 …', '…')
    """
    if len(text) <= width:
        return text
    best = ""
    for ends in (r"[,;] |(?<=[%)]) ", r"(?<=\d) "):
        heads = [text[: match.start()] for match in re.finditer(ends, text[: width - 1])]
        heads = [head for head in heads if head.count("(") == head.count(")")]
        if heads and len(best) < width / 2:
            best = max(best, heads[-1], key=len)
    return f"{best} …".strip()


def answer(letter: str) -> str:
    """How many claims of a paper hold, which of these prove little, and how many hold of those that
    were added later."""
    every = _claims_of(letter)
    mine, later = every[~every.later], every[every.later]
    holds = mine[mine.verdict == "PASS"]
    little = holds[holds.reason != ""].claim
    text = f"**{len(holds)} of {len(mine)} claims hold in our simulations**"
    if len(little):
        text += f", {len(little)} of which prove{'s' * (len(little) == 1)} little"
        text += f" ({', '.join(little)})"
    if len(later):
        text += f". Of {later.claim.iloc[0]} to {later.claim.iloc[-1]}, which were added "
        text += f"later, {(later.verdict == 'PASS').sum()} of {len(later)} hold"
    return fill(f"{text}.", 120) + "\n"


def claims(letter: str) -> str:
    """Each claim whose name begins with a letter: the paper's number and ours, cut where it is
    long, the verdict with a link to the section about it, and the reason."""
    lines = []
    for claim in _claims_of(letter).itertuples():
        verdict = {"PASS": "yes", "KNOWN": f"[no](#{claim.see.partition('#')[2]})"}.get(
            claim.verdict, claim.verdict
        )
        if claim.verdict == "PASS" and claim.reason:
            verdict += ", proves little"
        ours = _cut(claim.ours.replace("|", "/"), _WIDTH)
        lines.append((claim.claim, claim.text, claim.theirs, ours, verdict, claim.reason))
    return table(["", "claim", "paper", "ours", "holds", "reason"], lines)


def _claims_of(letter: str):
    """The committed claims whose names begin with a letter."""
    verdicts = rows("claims.csv").fillna("")
    return verdicts[verdicts.claim.str.startswith(letter)]


def _sensitivity():
    """The changes of machines, each with a text of the claims whose verdict it changes. Left out
    are claims whose verdict before the change is not the committed one, as that of P11, whose
    schedules are not simulated again."""
    changes = rows("simulated/readings/sensitivity.csv").fillna("")
    committed = rows("claims.csv").set_index("claim").verdict
    words = {"PASS": "holds", "KNOWN": "does not hold"}
    claims = changes.changed_claims.map(
        lambda text: dict(claim.split(" ", 1) for claim in text.split("; ") if claim)
    )
    known = {
        name
        for before in claims[changes.change == ""]
        for name, word in before.items()
        if words.get(committed[name]) == word
    }
    signs = {"holds": "+", "does not hold": "−", "undecided": "?"}
    signed = lambda words: [f"{signs[word]}{name}" for name, word in words.items() if name in known]
    return changes.assign(signed=claims.map(signed).str.join(", "))


#: Claims by the first letter of their names: whose they are, and the page with the reasons.
_WHOSE = {
    "P": ("*Slicing Is All You Need*", "slicing"),
    "M": ("MeshSlice", "meshslice"),
    "F": ("FLUX", "flux"),
    "T": ("Triton-distributed", "triton-distributed"),
    "S": ("drbench's own bars", "core"),
    "A": ("accuracy of predictions", "model-accuracy"),
}


def claim_counts(folder: str) -> str:
    """How many claims of each paper hold, how many of these prove little, and how many do not hold,
    but for those that were added later; ``folder`` is where the results pages are."""
    lines = []
    for letter, (whose, page) in _WHOSE.items():
        mine = _claims_of(letter)
        mine = mine[~mine.later]
        holds = mine.verdict == "PASS"
        counts = holds.sum(), (holds & (mine.reason != "")).sum(), (mine.verdict == "KNOWN").sum()
        sources = " and ".join(dict.fromkeys(mine.source))
        lines.append((letter, whose, sources, *counts, f"[{page}.md]({folder}/{page}.md)"))
    heads = ["claims of", "our numbers", "hold", "of these prove little", "not reproduced", "page"]
    return table(["", *heads], lines)


#: Readings of MLP-2 on pvc12, as results/simulated/readings has them, in the page's words.
_READINGS = {
    ("paper", "as it is"): "the paper's (whole tiles, C pushed)",
    ("slices, pulled", "as it is"): "drbench's default (slices, C pulled)",
    ("paper", "one Xe Link a tile"): "the paper's, one Xe Link a tile",
}


def highest_lines() -> str:
    """The two highest lines of MLP-2 on pvc12, with the stationary matrix, by program and by the
    most replicas of A and B; in bold where P7 holds."""
    lines_of = where(
        rows("simulated/readings/lines.csv"), machine="pvc12", layer="mlp2", drawn=True
    )
    verdicts = where(rows("simulated/readings/verdicts.csv"), machine="pvc12", claim="P7")
    most, lines = (6, 4, 1), []
    for (program, reading), words in _READINGS.items():
        drawn = where(lines_of, program=program, reading=reading)
        judged = where(verdicts, program=program, reading=reading).set_index("most_replicas").holds
        cells = []
        for count in most:
            means = drawn[drawn.most_replicas == count].groupby(["line", "stationary"])
            best = means.percent_of_peak.mean().sort_values(ascending=False, kind="stable").index
            text = ", ".join(
                f"{line.removesuffix(' Prod.')} S-{matrix}" for line, matrix in best[:2]
            )
            cells.append(f"**{text}**" if judged.get(count) else text or "not simulated")
        lines.append((words, *cells))
    return table(["program", *(f"at most {count}" for count in most)], lines)


def turns_by_factor(paper: str) -> str:
    """Which verdicts change when one constant of a paper's machines is multiplied by a factor: +P5
    holds then, −P5 does not."""
    changes = _sensitivity()
    changes = changes[(changes.paper == paper) & changes.change.str.contains(" x ")].copy()
    changes[["constant", "factor"]] = changes.change.str.split(" x ", expand=True)
    index = ["machine", "constant"]
    cells = changes.pivot_table("signed", index, "factor", "first", fill_value="n/a", sort=False)
    cells = cells[sorted(cells, key=float)]
    turned = cells[~cells.isin(["", "n/a"]).all(axis=1)]
    lines = [(machine, f"`{constant}`", *row) for (machine, constant), *row in turned.itertuples()]
    others = f"{len(cells) - len(turned)} others"
    lines.append((", ".join(changes.machine.unique()), others, *["none"] * len(cells.columns)))
    return table([*index, *(f"× {factor}" for factor in cells)], lines)


def changed_constants(paper: str) -> str:
    """The constants of a paper's machines that were changed after claims had been simulated, and
    the verdicts with all of their first values: +P5 holds then, −P5 does not."""
    lines = []
    for name in papers()[paper].machines:
        machine = find_machine(name)
        for constant, (first, commit) in first_constants(name).items():
            now = getattr(machine, constant, None) or machine.constant(constant)
            words = (f"{v:.4g}" if isinstance(v, float) else v for v in (first, now))
            lines.append((name, f"`{constant}`", *words, commit))
    text = table(["machine", "constant", "first", "now", "changed in"], lines)
    return f"{text}\n{verdicts_with(paper, FIRST)}"


def verdicts_with(paper: str, change: str) -> str:
    """The verdicts that differ with another assumption: +P5 holds then, −P5 does not."""
    signed = where(_sensitivity(), paper=paper, change=change).signed.iloc[0]
    return f"Verdicts with {change}: {signed or 'as now'}.\n"


def dtensor_points() -> str:
    """Errors of the published DTensor points, percent, by line and batch size."""
    points = where(rows("ledger.csv"), group="dtensor-h100")
    errors = (100 * (points.predicted / points.value - 1)).map("{:+.1f}".format)
    points = points.what.str.extract("mlp(?P<layer>.) (?P<line>.*) m=(?P<m>.*)").assign(
        error=errors.str.replace("-", "\N{MINUS SIGN}"), layer=lambda table: "MLP-" + table.layer
    )
    index = ["layer", "line"]
    cells = points.pivot_table("error", index, "m", "first", sort=False)
    lines = ((*name, *row) for name, *row in cells.itertuples())
    return table([*index, *(f"m = {m}" for m in cells)], lines)


#: What the sweep optimisations switches off: option, prefetch and concurrent GEMMs of its records.
_SWITCHED_OFF = {
    "iteration offset": ("offset=off", 1, 2),
    "its part over the whole axis": ("offset=interval", 1, 2),
    "prefetch": ("", 0, 2),
    "concurrency": ("", 1, 1),
}


def optimisations(*machines: str) -> str:
    """How many times as long the cases of the sweep take without one optimisation: the median, and
    the case with the most."""
    lines = []
    for machine in machines:
        cases = records(f"simulated/optimisations/{machine}.csv")
        cases = cases.assign(
            offset=cases.options.fillna("").str.extract(r"(offset=\w+)").fillna("")
        )
        case, ran = ["a", "b", "c", "stationary"], ["n", "offset", "prefetch", "max_gemms"]
        times = cases.pivot_table("best_s", case, ran, sort=False)
        for layer, n in (("MLP-1", 49152), ("MLP-2", 12288)):
            cells = []
            for without in _SWITCHED_OFF.values():
                ratio = (times[n, *without] / times[n, "", 1, 2]).dropna()
                *texts, stationary = ratio.idxmax()
                most = f"{' · '.join(dict.fromkeys(texts))} S-{stationary}"
                cells.append(f"{ratio.median():.2f}, {ratio.max():.2f} ({most})")
            lines.append((f"{machine}, {cases.ranks.iloc[0]} ranks", layer, *cells))
    header = ["machine", "layer", *(f"without {name}" for name in _SWITCHED_OFF)]
    return table(header, lines)
