"""Records of cases that never ran."""

from drbench.measure.record import Record


def made_up(**values) -> Record:
    """A case that is ok, or ended with its status; only the given columns are known."""
    ok = values.get("status", "ok") == "ok"
    known = {"best_s": 0.5} if ok else {"reason": "made up"}
    return Record(**{"mode": "measured", "status": "ok", **known, **values})


def of_universal(**values) -> Record:
    """The same of the universal algorithm, where A, B and C have layout row and C is stationary."""
    known = {"label": "here", "algorithm": "universal", "stationary": "C", "dtype": "float32"}
    known |= {"m": 64, "n": 256, "k": 64, "ranks": 4, "a": "row", "b": "row", "c": "row"}
    return made_up(**{**known, "get_bytes": 8, **values})
