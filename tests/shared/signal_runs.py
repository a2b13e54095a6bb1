"""Where programs with signals are run under mpiexec, the m, n, k they are run on, and whether what
is broken on purpose is noticed."""

SHAPES = [(64, 48, 32), (101, 67, 53), (3, 9, 9)]
#: (ranks, situation) -> what the test program is told.
RUNS = {
    (1, "direct"): (),
    (2, "direct"): (),
    (3, "rma"): ("--small-pieces",),
    (3, "remote"): ("--small-pieces",),
    (4, "mixed"): ("--delays", "1", "--small-pieces"),
    (5, "direct"): ("--delays", "2"),
    (6, "nodes"): (),
    (8, "direct"): (),
}


def unnoticed(run, cases, tries=4):
    """Cases of which ``run(cases)`` tells no wrong result. Those are tried again: where a machine
    has more to do, ranks may by chance come in the order that nothing holds them to."""
    for _ in range(tries):
        if cases:
            cases = [case for case, out in zip(cases, run(cases)) if not sum(out["wrong"])]
    return cases
