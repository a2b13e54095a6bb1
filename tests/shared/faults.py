"""Faults on a rank. Copied as ``sitecustomize.py`` to a folder on the ranks' path, so that plain
``drbench`` runs it.

``DRBENCH_TEST_FAULT`` names the fault. Outside a launcher nothing happens.
"""

import ctypes
import itertools
import os
import signal
import sys
import time
import traceback
from math import prod

from drbench.launch.host.mpi import launched


def every_gemm(function):
    """Call ``function(a, b, c)`` after each GEMM."""
    from drbench.host.blas import Blas

    true = Blas.prepare_gemm  # which prepares all GEMMs

    def prepare_gemm(self, a, b, c, conjugated=""):
        gemm = true(self, a, b, c, conjugated)

        def struck(*scalars):
            gemm(*scalars)
            function(a, b, c)

        return struck

    Blas.prepare_gemm = prepare_gemm


def every_trace(function):
    """Call ``function()`` before each program is traced."""
    from drbench.algorithms.registry import Algorithm

    true = Algorithm.trace

    def trace(self, *args, **keywords):
        function()
        return true(self, *args, **keywords)

    Algorithm.trace = trace


def strike(error):
    def strikes(*_):
        raise error

    return strikes


def poison(a, b, c):
    c[0, 0] += 1


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def die_of_13(a, b, c):
    if b.shape[0] == 13:
        die()


def segfault(*_):
    ctypes.string_at(0)


def not_a_number(a, b, c):
    c[0, 0] = float("nan")


def by_k(struck_by, rank):
    """A fault in each GEMM whose k is a key of ``struck_by``: on one rank, or (None) on every
    rank."""

    def strikes(a, b, c):
        function, where = struck_by.get(b.shape[0], (None, None))
        if function is not None and where in (None, rank):
            function(a, b, c)

    return lambda: every_gemm(strikes)


def in_third_turn(fault):
    """A fault in the third run of a program of six GEMMs whose k is 13, from the start of its
    ranks."""
    seen = itertools.count()
    every_gemm(lambda a, b, c: b.shape[0] == 13 and next(seen) == 12 and fault(a, b, c))


def hang(*_):
    open("hanging", "w").close()  # for a process that waits for it
    time.sleep(3600)


def hang_once(*_):
    if not os.path.exists("hanging"):
        hang()


def impatient():
    """Shorten the wait for late ranks, which is for slow machines; here no rank will answer."""
    import drbench.launch.ranks.run_case

    drbench.launch.ranks.run_case._PATIENCE_S = 0.5


def no_memory():
    impatient()
    every_gemm(strike(MemoryError("struck by the test")))


def layout_error():
    from drbench.partitions import LayoutError

    impatient()
    raise LayoutError("struck by the test")


def unsupported_error():
    from drbench.errors import UnsupportedError

    impatient()
    raise UnsupportedError("struck by the test")


def no_threadpoolctl():
    sys.modules["threadpoolctl"] = None  # its import then fails, as in a broken installation


def few_transfers():
    """No fault: bandwidths of few transfers and repeats, which is enough to verify them."""
    from drbench.launch.ranks import bandwidth

    bandwidth._MOST_TRANSFERS, bandwidth._BUDGET_S = 3, 0.01


def small_gemms():
    """No fault: ``drbench calibrate`` measures the smaller half of its GEMMs and of its programs,
    which takes a tenth of the time, and is enough to fit a model. Other work is not refused."""
    fewer_gemms()
    if "calibrate" in sys.orig_argv:
        from drbench.launch.calibration import speed

        speed._TIMES, speed.SpeedNormalisation.refuse_other_work = 1, lambda speed: None


def fewer_gemms():
    if "calibrate" in sys.orig_argv:
        from drbench.chains.model import functions
        from drbench.launch.calibration import cores, programs

        cores._SHAPES[:] = [(m, n, k) for m, n, k in cores._SHAPES if m * n * k <= 1 << 27]
        cores._SWEPT, functions._SHAPE = 1 << 22, (512, 512)
        whole = programs.MEASURED["programs"]["cases"]
        whole[:] = [([extent // 2 for extent in shape], *rest) for shape, *rest in whole[::2]]


def few_gemms():
    """No fault: ``drbench calibrate`` measures links, and hardly more than speed probes besides.
    Other work is not refused."""
    small_gemms()
    if "calibrate" in sys.orig_argv:
        from drbench.launch.calibration import cores, nodes, programs

        cube = (512, 512, 512)  # which is also measured with operands stored transposed
        cores._SHAPES[:] = [x for x in cores._SHAPES if x == cube or prod(x) <= 1 << 25]
        cores.function_seconds = lambda *_: {}
        whole = programs.MEASURED["programs"]["cases"]
        whole[:] = whole[::6]
        cores.SIZES[:], cores.SHARDS[:] = cores.SIZES[:5:2], cores.SHARDS[:2]
        cores._STRIDED[:], nodes._EDGE, nodes._TIMES = cores._STRIDED[:4], 128, 1


def fewest_gemms():
    """No fault: ``drbench calibrate`` measures hardly more than speed probes."""
    fewer_gemms()
    if "calibrate" in sys.orig_argv:
        from drbench.launch.calibration import cores

        cores._SHAPES[:] = [(m, n, k) for m, n, k in cores._SHAPES if m * n * k <= 1 << 25]
        cores.function_seconds = cores._local_transports = lambda *_: {}


def drifting():
    """Speed measurements find the machine slower by half in the third and fourth of each four."""
    small_gemms()
    if "calibrate" in sys.orig_argv:
        from drbench.launch.calibration import speed

        timed, looks = speed.timed, itertools.count()

        def slower_now_and_then(comm, function):
            found = timed(comm, function)
            return found._replace(seconds=0.01 * (1.5 if next(looks) % 4 > 1 else 1.0))

        speed.timed = slower_now_and_then


def in_a_hurry():
    """No fault: no more repeats of ``drbench run`` than three, whatever the spread of times."""
    if "run" in sys.orig_argv:
        from drbench.measure import samples

        samples.enough = lambda samples, *_: len(samples) >= 3


EVERY_RANK = {
    "in a hurry": in_a_hurry,
    "few transfers": few_transfers,
    "small GEMMs": small_gemms,
    "few GEMMs": few_gemms,
    "fewest GEMMs": fewest_gemms,
    "drifting": drifting,
    "wrong": lambda: every_gemm(poison),
    "killed at k = 13": lambda: every_gemm(die_of_13),
    "chatter": lambda: print("a library prints hello"),
}
RANK_1 = {
    "exception in the third turn": lambda: in_third_turn(
        strike(RuntimeError("struck by the test"))
    ),
    "hang in the third turn": lambda: in_third_turn(hang),
    "exception": lambda: every_gemm(strike(RuntimeError("struck by the test"))),
    "memory": no_memory,
    "exit": lambda: every_gemm(strike(SystemExit("struck by the test"))),
    "hang": lambda: every_gemm(hang),
    "hang once at k = 22": by_k({22: (hang_once, 1)}, 1),
    "killed": lambda: every_gemm(die),
    "layout": lambda: every_trace(layout_error),
    "unsupported": lambda: every_trace(unsupported_error),
    "import": no_threadpoolctl,
}

#: One fault a case, by its k, for sweeps that continue with the others.
ZOO = {
    21: (strike(RuntimeError("struck by the test")), 1),
    22: (hang, 1),
    23: (segfault, 1),
    24: (not_a_number, None),
    25: (poison, None),
    26: (strike(MemoryError("struck by the test")), 1),
    27: (strike(SystemExit("struck by the test")), 1),
}

_fault, _here = os.environ.get("DRBENCH_TEST_FAULT"), launched()
if _fault is not None and _here is not None:
    try:
        if _fault in EVERY_RANK:
            EVERY_RANK[_fault]()
        elif _fault == "zoo":
            by_k(ZOO, _here.rank)()
        elif _here.rank == 1:
            RANK_1[_fault]()
    except ImportError:  # Python would continue, and the test would test nothing
        traceback.print_exc()
        os._exit(70)
