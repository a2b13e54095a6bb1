"""When each step of each rank ran, as a trace that Chrome and Perfetto show (``chrome://tracing``,
``ui.perfetto.dev``).

Standard library only: figures are drawn from such files.
"""

import json
from collections.abc import Iterable

from drbench.clock import StepTime


def chrome_trace(events: Iterable[StepTime], description: dict) -> str:
    """JSON text in Chrome's trace event format: a process a rank, a thread a track.

    Steps of one track that overlap in time, such as several transfers under way, go to lanes of
    their own ("one-sided 2").

    Parameters
    ----------
    events : iterable of StepTime
    description : dict
        What was run; kept under ``metadata``.

    Examples
    --------
    >>> text = chrome_trace(
    ...     [
    ...         StepTime(0, "compute", 2, "Gemm", 0.0, 0.5),
    ...         StepTime(0, "row", 0, "Shift", 0.0, 0.25),
    ...     ],
    ...     {"algorithm": "wang"},
    ... )
    >>> [(e.track, e.name, e.stop_s) for e in read_chrome_trace(text)[0]]
    [('compute', 'Gemm', 0.5), ('row', 'Shift', 0.25)]
    """
    out, threads, free = [], {}, {}
    for event in sorted(events, key=lambda e: (e.rank, e.track, e.start_s, e.index)):
        lane = 1
        while free.get((event.rank, event.track, lane), 0.0) > event.start_s:
            lane += 1
        free[event.rank, event.track, lane] = event.stop_s
        name = event.track if lane == 1 else f"{event.track} {lane}"
        thread = threads.setdefault(
            (event.rank, name), len([1 for rank, _ in threads if rank == event.rank])
        )
        out.append(
            {
                "name": event.name,
                "cat": event.track,
                "ph": "X",
                "ts": 1e6 * event.start_s,
                "dur": 1e6 * (event.stop_s - event.start_s),
                "pid": event.rank,
                "tid": thread,
                "args": {"step": event.index},
            }
        )
    names = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in sorted({rank for rank, _ in threads})
    ]
    names += [
        {"name": "thread_name", "ph": "M", "pid": rank, "tid": thread, "args": {"name": name}}
        for (rank, name), thread in threads.items()
    ]
    return json.dumps(
        {"traceEvents": names + out, "displayTimeUnit": "ms", "metadata": description}
    )


def read_chrome_trace(text: str) -> tuple[list[StepTime], dict]:
    """The events of :func:`chrome_trace`, and what was run.

    Raises
    ------
    ValueError
        If the text is not such a trace.
    """
    try:
        whole = json.loads(text)
        events = [
            StepTime(
                e["pid"],
                e["cat"],
                e["args"]["step"],
                e["name"],
                e["ts"] / 1e6,
                (e["ts"] + e["dur"]) / 1e6,
            )
            for e in whole["traceEvents"]
            if e["ph"] == "X"
        ]
        metadata = dict(whole["metadata"])
        if "machine" in metadata:  # older traces
            metadata["label"] = metadata.pop("machine")
        return events, metadata
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"this is no trace of drbench run --timeline ({type(error).__name__}: {error})"
        ) from None
