"""Cases of ``mpi/programs/run_cases.py``: how they are written, and checks of their results."""


def case(m, n, k, *layouts, **more):
    """The fields of a case: extents, layouts of A, B and C, and other fields, options of the
    algorithm too."""
    return {"m": m, "n": n, "k": k} | dict(zip("abc", layouts)) | more


def amiss(case, out):
    """Errors of a case: C is exact (where it is filled with real numbers within its bound) on every
    rank, bytes and memory are those of the plan, and nothing stays
    open."""
    if out["status"] != "ok":
        return {name: out.get(name) for name in ("status", "reason", "error")}
    plan = out.get("planned", {"arena": out["pool_bytes"]})
    moved = out | {"get_bytes": out["get_bytes"] + out["direct_bytes"]}
    right = {name: moved[name] == plan[name] for name in plan if name.endswith("bytes")}
    right["error"] = 0 <= out["error"] <= (case.get("fill") == "uniform")
    right["pool_bytes"] = out["pool_bytes"] <= plan["arena"]
    right |= {"same_on_every_rank": out["same_on_every_rank"], "left_open": not out["left_open"]}
    return {name: (out[name], plan.get(name)) for name in right if not right[name]}
