"""Where programs with signals are run under mpiexec, and the m, n, k they are run on."""

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
