"""One self-contained page about one run, or two side by side: the matrices with their tiles, and
what every rank does at any moment. It loads nothing from anywhere.

It is drawn from what :func:`launch.models.explained.explained` tells. Texts and data go into it as
those of the report do (:mod:`plots.report.page`).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plots.draw.numbers import bytes_text, number, time_unit

from .page import embedded, rendered

_SCRIPT = Path(__file__).parent / "explain.js"
#: Times in the page are whole numbers of this part of each run.
TICKS = 10_000_000
#: What the facts are called in the table of two.
_CALLED = {
    "local GEMMs": "local GEMMs of the busiest rank",
    "mean of the ranks": "local GEMMs, mean of the ranks",
    "moved": "moved between ranks",
    "busiest": "sent or received by the busiest rank",
    "buffers": "buffers of the rank that holds most",
}
#: What the page needs of a case; the rest is told in its text.
_DATA = ("ranks", "regions", "matrices", "time_s", "timed")


def explained_page(cases: Sequence[dict[str, Any]], version: str, command: str = "") -> str:
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
    >>> "2 s (between 1.5 s and 2.5 s): local GEMMs" in text
    True
    >>> "&lt;b&gt;" in text, '[[0,"multiply",0,10000000,0,0,[],[],[],1]]' in text
    (True, True)
    """
    script = _SCRIPT.read_text(encoding="utf-8")
    if len({case["name"] for case in cases}) < len(cases):  # they differ in their layouts
        cases = [case | {"name": f"{case['name']}, {case['description'][0]}"} for case in cases]
    kept = [{name: case[name] for name in _DATA} | {"ranks": _ticks(case)} for case in cases]
    return rendered(
        "explain.html",
        script,
        name=" next to ".join(case["name"] for case in cases),
        product=cases[0]["multiplication"],
        cases=[
            case
            | {
                "links": [
                    [name, where, _amount(nbytes, "B"), _busy(case, seconds)]
                    for name, where, nbytes, seconds in case["links"]
                ],
                "moves": any(bar[8] for bars in case["ranks"] for bar in bars),
            }
            for case in cases
        ],
        verdict=_verdict(cases),
        facts=_facts(cases),
        ticks=TICKS,
        version=version,
        command=command,
        data=embedded({"ticks": TICKS, "cases": kept}),
    )


def data_text(cases: Sequence[dict[str, Any]], command: str) -> str:
    """What the page is made of, as JSON, and the command that made it; ``drbench plot layouts``
    draws it."""
    return json.dumps({"command": command, "cases": list(cases)}, separators=(",", ":")) + "\n"


def _ticks(case: dict[str, Any]) -> list[list]:
    """The bars of all ranks, their times in ticks."""
    one = TICKS / (case["time_s"] or 1.0)
    tick = lambda seconds: round(seconds * one)
    return [
        [[*bar[:2], *map(tick, bar[2:5]), *bar[5:9], int(bar[9])] for bar in bars]
        for bars in case["ranks"]
    ]


def _verdict(cases: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence about each case, and one about the two."""
    text = []
    for case in cases:
        fact = {name: value for name, value, _ in case["facts"]}
        share = f"{100 * fact['local GEMMs'] / fact['time']:.3g} %" if fact["time"] else "all"
        time = _amount(fact["time"], "s")
        if case["interval"]:
            time += f" (between {' and '.join(_amount(end, 's') for end in case['interval'])})"
        whole = f"{time}: local GEMMs" if case["timed"] else "Local GEMMs"
        moved = (
            f"the ranks move {_amount(fact['moved'], 'B')}, the busiest sends or receives "
            f"{_amount(fact['busiest'], 'B')}, and buffers take {_amount(fact['buffers'], 'B')}"
            if fact["moved"]
            else "nothing moves between ranks"
        )
        name = f"{case['name']}: " if len(cases) > 1 else ""
        text.append(f"{name}{whole} of the busiest rank take {share} of the time; {moved}.")
    if len(cases) > 1:
        times, moved = ([case["facts"][at][1] for case in cases] for at in (0, 3))
        message = []
        if len({case["timed"] for case in cases}) == 1 and times[0]:
            message.append(f"takes {number(times[1] / times[0])} × the time")
        if moved[0]:
            message.append(f"moves {number(moved[1] / moved[0])} × the bytes")
        text.append(f"The second {' and '.join(message)} of the first." if message else "")
    return text


def _facts(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each fact: its value for every case, and how many times that of the first the
    second is."""
    rows = []
    for found in zip(*(case["facts"] for case in cases)):
        values = [value for _, value, _ in found]
        name, _, unit = found[0]
        comparable = unit == "B" or all(case["timed"] == cases[0]["timed"] for case in cases)
        ratio = f"{number(values[-1] / values[0])} ×" if values[0] and comparable else "–"
        texts = [_value_text(case, value, unit) for case, value in zip(cases, values)]
        rows.append({"name": _CALLED.get(name, name), "texts": texts, "ratio": ratio})
    return rows


def _value_text(case: dict[str, Any], value: float, unit: str) -> str:
    """A value with its unit; a time with its share of the whole."""
    if unit != "s":
        return _amount(value, unit)
    share = f"{100 * value / case['time_s']:.3g} %" if case["time_s"] else ""
    if not case["timed"]:
        return "1" if value == case["time_s"] else f"{value / case['time_s']:.3f}"
    return _amount(value, "s") + (f" ({share})" if value != case["time_s"] else "")


def _busy(case: dict[str, Any], seconds: float) -> str:
    share = f"{100 * seconds / case['time_s']:.3g} %" if case["time_s"] else ""
    return f"{_amount(seconds, 's')} ({share})" if case["timed"] else share


def _amount(value: float, unit: str) -> str:
    """A number of bytes or seconds that reads well.

    Examples
    --------
    >>> _amount(3 * 2**20, "B"), _amount(2.5e-3, "s"), _amount(0, "s")
    ('3 MiB', '2.5 ms', '0 s')
    """
    if unit == "B":
        return bytes_text(value)
    one, name = time_unit(value) if value else (1.0, "s")
    return f"{number(value / one)} {name}"
