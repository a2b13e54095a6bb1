"""The last part of ``drbench calibrate``: compare whole programs with their predictions by the new
file, which gives the intervals of all predictions.

A shared machine is slow for seconds at a time. So programs are interleaved in rounds, each with its
own order, and normalised to the speed at which GEMMs were measured (:mod:`.speed`).
"""

import random
import tomllib
from collections.abc import Callable
from pathlib import Path

from drbench.launch.cases.case import Case

from .speed import SpeedNormalisation

#: The GEMMs and programs that are measured.
MEASURED = tomllib.loads((Path(__file__).parents[1] / "data/calibration.toml").read_text("utf-8"))
#: The link of the throttled transport for these programs: transfers take about as long as GEMMs.
_THROTTLED = "throttled:0.5,50"


def whole_programs(backend: str, nodes: bool = False) -> dict[str, list[Case]]:
    """The programs that are compared with predictions, by the name of their residuals: on the cores
    of one node with every transport, without packing, which depends on the model. Over several
    nodes the programs are the default ones.

    Examples
    --------
    >>> {kind: len(cases) for kind, cases in whole_programs("numpy").items()}
    {'direct': 15, 'rma': 15, 'throttled': 15}
    >>> whole_programs("numpy", nodes=True)["any"][0].options
    {'stationary': 'C'}
    """
    transports, more = {"any": "auto"}, {"pack": "never"}
    if backend == "numpy" and not nodes:
        transports = {"direct": "direct", "rma": "rma", "throttled": _THROTTLED}
    elif nodes:
        more = {}
    return {
        kind: [
            Case(
                *shape,
                *layouts.split(),
                options={"stationary": stationary, **more},
                transport=transport,
                backend=backend,
                check=False,
                budget=0.0,
            )
            for shape, layouts, stationary in MEASURED["programs"]["cases"]
        ]
        for kind, transport in transports.items()
    }


def in_rounds(
    programs: list, rounds: int, run: Callable[[object], float | None], speed: SpeedNormalisation
) -> list[float | None]:
    """The seconds of each program, the median over the rounds at the usual speed; None for refused
    programs, which are not run again.

    Parameters
    ----------
    programs : list
    rounds : int
    run : callable
        ``run(program)``: seconds, or None.
    speed : SpeedNormalisation

    Examples
    --------
    A machine that is half as fast until the third program has run:

    >>> from drbench.measure.noise import Timed
    >>> ran = []
    >>> slow = lambda: 2.0 if len(ran) < 3 else 1.0
    >>> run = lambda program: (slow() * program, ran.append(program))[0]
    >>> look = lambda: Timed(slow(), 0.0)
    >>> in_rounds([3.0, 5.0, 7.0, 9.0], 3, run, SpeedNormalisation(look))
    [3.0, 5.0, 7.0, 9.0]
    """
    took: list[list] = [[] for _ in programs]
    todo = list(zip(programs, took))
    for round_index in range(rounds):
        random.Random(round_index).shuffle(todo)
        speed.begin()
        for program, times in list(todo):
            seconds, reference_s = speed.around(lambda: run(program))
            if seconds is None:
                todo = [entry for entry in todo if entry[1] is not times]
            else:
                times.append((seconds, reference_s))
    return [speed.median(times) if times else None for times in took]
