"""Multiplications for ranks, drawn by chance until every algorithm and every type of step has as
many as are wanted (:func:`draws`). They are small, so that one costs milliseconds.
"""

import random
from collections import Counter
from dataclasses import replace

from any_multiplications import SCALARS, any_other, any_universal
from cases import case

from drbench.algorithms import algorithms, get_algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.machine_models import find_planning_model
from drbench.program import group_steps, signal_steps, steps
from drbench.program.problem import REAL_OF, TRANSPOSES

SITUATIONS = ("direct", "rma", "mixed", "remote")
BACKENDS = ("numpy", "cupy")
#: Numbers of ranks, which other tests start too.
RANKS = {"direct": (1, 2, 3, 4, 6), "rma": (2, 3, 4), "mixed": (3, 4), "remote": (2, 3, 4)}

#: The types of steps that an executor runs. Those of no multiplication: a Put redistributes a
#: matrix of the library, and an OperationEnd is no step of a trace.
STEPS = {
    name
    for module in (steps, group_steps, signal_steps)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, steps.Step) and not name.startswith("_")
} - {"Step", "GroupStep", "Signal", "Put", "OperationEnd"}

OWN = {"schedule": "direct", "work": "own"}
PULLED = {"variant": "pull", "dataflow": "RS"}
LEFT = {"dataflow": "LS"}
#: Type of step -> algorithms that have it, and the options with which they do. Rare types are
#: first; any algorithm has the other ones.
SOURCES = {
    "ReplicaAdd": (("universal",), OWN | {"reduce": "push"}),
    "ReplicaGet": (("universal", "summa2.5d"), OWN | {"reduce": "pull", "replicas": 2}),
    "Pack": (("universal",), {"pack": "always", "schedule": "direct", "sums": "accumulate"}),
    "Accumulate": (("universal",), {"sums": "accumulate"}),
    "Offer": (("gemm_rs", "moe_rs", "async_tp"), PULLED),
    "Take": (("gemm_rs", "moe_rs", "async_tp"), PULLED),
    "Reduce": (("summa", "summa2.5d"), LEFT),
    "ReduceScatter": (("collective", "meshslice", "moe_collective", "dtensor_mm"), LEFT),
    "Shift": (("cannon", "wang", "fsdp", "tensor_parallel_1d"), {}),
    "AllGather": (("meshslice", "wang", "tensor_parallel_1d"), {}),
    "Push": (
        ("ag2", "ag_gemm", "te_chunks", "ag2_moe", "universal"),
        {"variant": "ring", "sums": "push", "protocol": "ll"},
    ),
}
MOST_DRAWS = 20


def draws(situation, backend, of_algorithm, of_step, seed=0):
    """ranks -> (algorithm, case, whether it is refused): so many of each algorithm; and more that
    are taken, until each type of step is in so many."""
    chance = random.Random(f"{situation} {backend} {seed}")
    found, count = {p: [] for p in RANKS[situation]}, Counter()

    def add(name, asked, wanted=None):
        p, made = _drawn(name, asked, situation, backend, chance)
        types = _types(p, made, situation)
        if wanted is None or wanted in (types or ()):
            found[p].append((name, made, types is None))
            count.update(types or ())

    for name in algorithms():
        for _ in range(of_algorithm):
            add(name, {})
    for step in sorted(STEPS, key=[*SOURCES, *sorted(STEPS - SOURCES.keys())].index):
        names, asked = SOURCES.get(step, (list(algorithms()), {}))
        for x in range(MOST_DRAWS * of_step):
            if count[step] >= of_step:
                break
            add(names[x % len(names)], asked, step)
    return found


def _types(p, made, situation):
    """The types of steps of a case, or None if it is refused."""
    algorithm = get_algorithm(made["algorithm"])
    options = {each: made[each] for each in made if each in algorithm.options}
    texts = [made[each] for each in "abc" if each in made]
    sizes = made["m"], made["n"], made["k"]
    try:
        transpose = made["transpose"] or ""
        problem = algorithm.problem(*sizes, p, *texts, transpose=transpose, **options)
        nodes = {"mixed": [rank % 2 for rank in range(p)], "remote": list(range(p))}
        problem = replace(problem, updates=made["beta"] != 0, dtype=made["dtype"])
        problem = problem.on_nodes(nodes.get(situation, [0] * p))
        options = algorithm.resolve(problem, situation == "direct", **options)
        machine = find_planning_model(None, options, dtype=made["dtype"])
        traces = [algorithm.trace(problem, rank, machine, **options) for rank in range(p)]
    except (UnsupportedError, UsageError):
        return None
    return {type(step).__name__ for trace in traces for step in trace.steps}


def _drawn(name, asked, situation, backend, chance):
    """The ranks and the case of an algorithm, with those options that it has of the asked ones."""
    made = {"p": 0}
    while made["p"] not in RANKS[situation] or (asked and made["p"] == 1):
        made = any_universal(chance) if name == "universal" else any_other(chance, name)
    (m, n, k), p, texts = made["sizes"], made["p"], list(made["texts"])
    known = get_algorithm(name).options
    options = made["options"] | {each: value for each, value in asked.items() if each in known}
    if name == "universal" and "reduce" in asked:
        texts[2] = f"{chance.choice(('row', 'column', 'block'))}/c{p if p % 2 else 2}"
    elif name == "universal" and "pack" in asked:
        texts = [f"tiles:{chance.randint(1, 3)}x{chance.randint(1, 3)}@1x{p}" for _ in "abc"]
    elif name != "universal" and chance.random() < 0.15:  # ranks without rows or columns
        m, n, k = (chance.choice((1, 2, extent)) for extent in (m, n, k))
    if name == "moe_collective":  # it has two dataflows
        options["dataflow"] = {"LS": "RS", "OS": "AG"}.get(options["dataflow"], "AG")
    alpha, beta = chance.choice((*SCALARS, (0.0, 0.0)))
    how = {
        "algorithm": name,
        "alpha": alpha,
        "beta": 0.0 if name == "gemm_ar" else beta,  # which makes C anew
        "transpose": made.get("transpose", chance.choice((None, *TRANSPOSES))) or None,
        "prefetch": chance.choice((0, 1, 2, 3, "all", None)),
        "get": chance.choice(("view", "copy")),
        "dtype": chance.choice(("float32", "float64", "complex64", "complex128")),
        "fill": chance.choice(("integer", "integer", "integer", "uniform")),
        "iters": chance.choice((1, 1, 2)),
        "warmup": chance.choice((0, 1)),
        "seed": made["seed"],
    }
    if backend == "cupy":
        how["dtype"] = REAL_OF.get(how["dtype"], how["dtype"])
        how |= {"backend": backend, "max_gemms": chance.choice((1, 2))}
        how |= {"copy_streams": chance.choice((1, 2, 7))}
    else:
        how["progress"] = chance.choice(("poll", "none"))
    return p, case(m, n, k, *texts, **how, **{x: y for x, y in options.items() if y is not None})
