"""One self-contained page about one run, or two next to each other: the matrices with their tiles,
and the steps of every rank at any moment. It loads no other files.

It shows the data of :func:`drbench.launch.models.explained.explained`. Texts and data are embedded
as in the report (:mod:`drbench.plots.report.page`).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from drbench.plots.select.runs import Json
from drbench.texts import bytes_text, number, span, time_text

from .page import embed_json, render_page

_SCRIPT = Path(__file__).parent / "explain.js"
#: Times in the page are whole numbers of this part of each run.
TICKS = 10_000_000
#: Names of the facts in the table of two runs.
_CALLED = {
    "local GEMMs": "local GEMMs of the busiest rank",
    "mean of the ranks": "local GEMMs, mean of the ranks",
    "moved": "moved between ranks",
    "busiest": "sent or received by the busiest rank",
    "buffers": "buffers of the rank that holds most",
}
#: The data of a case that the page's script needs; the rest is in its text.
_DATA = ("ranks", "regions", "matrices", "time_s", "timed")


def explained_page(cases: Sequence[Json], version: str, command: str = "") -> str:
    """The page of one case, or of two, and the command that made it.

    Examples
    --------
    >>> case = {
    ...     "name": "<b>",
    ...     "multiplication": "C = A · B",
    ...     "description": ["1 rank"],
    ...     "timed": True,
    ...     "time_s": 2.0,
    ...     "facts": [["time", 2, "s"], ["local GEMMs", 2, "s"], ["moved", 0, "B"]],
    ...     "links": [],
    ...     "interval": [1.5, 2.5],
    ...     "ranks": [[[0, "multiply", 0.0, 2.0, 0.0, 0, [], [], [], True]]],
    ...     "regions": [],
    ...     "matrices": [],
    ... }
    >>> text = explained_page([case], "1.0")
    >>> "2 s (1.5-2.5), GEMMs" in text
    True
    >>> "&lt;b&gt;" in text, '[[0,"multiply",0,10000000,0,0,[],[],[],1]]' in text
    (True, True)
    """
    script = _SCRIPT.read_text(encoding="utf-8")
    if len({case["name"] for case in cases}) < len(cases):  # they differ in their layouts
        cases = [case | {"name": f"{case['name']}, {case['description'][0]}"} for case in cases]
    data = [{name: case[name] for name in _DATA} | {"ranks": _ticks(case)} for case in cases]
    return render_page(
        "explain.html",
        script,
        name=" and ".join(case["name"] for case in cases),
        multiplication=cases[0]["multiplication"],
        cases=[
            case
            | {
                "links": [
                    [name, where, bytes_text(nbytes), _busy(case, seconds)]
                    for name, where, nbytes, seconds in case["links"]
                ],
                "moves": any(bar[8] for bars in case["ranks"] for bar in bars),
            }
            for case in cases
        ],
        verdict=verdict(cases),
        facts=_facts(cases),
        ticks=TICKS,
        version=version,
        command=command,
        data=embed_json({"ticks": TICKS, "cases": data}),
    )


def data_text(cases: Sequence[Json], command: str) -> str:
    """The page's data and command as JSON; ``drbench plot layouts`` draws it."""
    return json.dumps({"command": command, "cases": list(cases)}, separators=(",", ":")) + "\n"


def _ticks(case: Json) -> list[list]:
    """The bars of all ranks, their times in ticks."""
    per_second = TICKS / (case["time_s"] or 1.0)
    tick = lambda seconds: round(seconds * per_second)
    return [
        [[*bar[:2], *map(tick, bar[2:5]), *bar[5:9], int(bar[9])] for bar in bars]
        for bars in case["ranks"]
    ]


def verdict(cases: Sequence[Json]) -> list[str]:
    """A sentence about the two cases, if there are two, and one about each."""
    names, lines = _names(cases), []
    if len(cases) > 1:
        times, moved = ([case["facts"][at][1] for case in cases] for at in (0, 3))
        message = []
        timed = [case["timed"] for case in cases]
        if len({*timed}) == 1 and times[0]:
            message.append(f"takes {number(times[1] / times[0])} × the time")
        if moved[0]:
            message.append(f"moves {number(moved[1] / moved[0])} × the bytes")
        first, other = (
            f"{name} ({time_text(seconds)})" if all(timed) else name
            for name, seconds in zip(names, times)
        )
        doubt, spans = "", [case["interval"] for case in cases]
        if all(spans) and all(low <= time <= high for time, (low, high) in zip(times, spans[::-1])):
            doubt = (
                "; each time is in the predicted interval of the other, so the order is not sure"
            )
        if message:
            lines.append(f"{other} {' and '.join(message)} of {first}{doubt}.")
    for name, case in zip(names, cases):
        fact = {name: value for name, value, _ in case["facts"]}
        share = f"{100 * fact['local GEMMs'] / fact['time']:.3g} %" if fact["time"] else "all"
        time = time_text(fact["time"])
        if case["interval"]:
            time += f" ({span(*case['interval'], fact['time'])})"
        whole = f"{time}, GEMMs" if case["timed"] else "GEMMs"
        moved = (
            f"the ranks move {bytes_text(fact['moved'])}, the busiest sends or receives "
            f"{bytes_text(fact['busiest'])}, and buffers take {bytes_text(fact['buffers'])}"
            if fact["moved"]
            else "nothing moves between ranks"
        )
        who = f"{name}: " if len(cases) > 1 else ""
        lines.append(f"{who}{whole} of the busiest rank take {share} of the time; {moved}.")
    return lines


def _names(cases: Sequence[Json]) -> list[str]:
    """What distinguishes the cases: their layouts, else their programs, or both."""
    layouts = [case["description"][0] for case in cases]
    distinct = len({*layouts}) == len(cases) > 1
    return layouts if distinct else [case["name"] for case in cases]


def _facts(cases: Sequence[Json]) -> list[Json]:
    """A row for each fact: its value for every case, and the ratio of the second to the first."""
    rows = []
    for facts in zip(*(case["facts"] for case in cases)):
        values = [value for _, value, _ in facts]
        name, _, unit = facts[0]
        comparable = unit == "B" or all(case["timed"] == cases[0]["timed"] for case in cases)
        ratio = f"{number(values[-1] / values[0])} ×" if values[0] and comparable else "–"
        texts = [_value_text(case, value, unit) for case, value in zip(cases, values)]
        rows.append({"name": _CALLED.get(name, name), "texts": texts, "ratio": ratio})
    return rows


def _value_text(case: Json, value: float, unit: str) -> str:
    """A value with its unit; a time with its share of the whole."""
    if unit == "B":
        return bytes_text(value)
    if not case["timed"]:
        return "1" if value == case["time_s"] else f"{value / case['time_s']:.3f}"
    return time_text(value) if value == case["time_s"] else _busy(case, value)


def _busy(case: Json, seconds: float) -> str:
    """A time with its share of the whole, or without a machine model the share alone."""
    share = f"{100 * seconds / case['time_s']:.3g} %" if case["time_s"] else ""
    return f"{time_text(seconds)} ({share})" if case["timed"] else share
