"""Programs with signals run again and again on operands that change from run to run; answer how
many elements of C were wrong in each.

``signals.py CASES.json [--mutant NAME] [--delays SEED]``; with a mutant rank 0 begins each run
late. A case has ``algorithm``, ``shape``, ``options`` and, if need be, ``texts`` (partitions),
``prefetch`` (if not all), ``throttle`` (bytes a
second, seconds), ``late_s`` for rank 0, and ``flops_per_s``, the speed of GEMMs.

``signals.py --cost COUNT``: seconds of a core for a Push and an Await of 16 elements, of ``COUNT``
each way between two ranks.
"""

import argparse
import json
import random
import time
from functools import partial

from harness import SLOTS, TRANSPORT, answer, ranks, refilled, restored, shared_slots, wrong_in

from benchmarks.signals import cost
from drbench.algorithms import get_algorithm
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.inbox import Inbox
from drbench.host.matrix import distributed
from drbench.host.throttle import Throttle
from drbench.host.topology import Topology
from drbench.program.problem import Problem
from drbench.program.signal_steps import Offer, Take
from drbench.program.steps import Add, Copy, Gemm, Get, Part
from drbench.program.trace import trace

RUNS = 3


def no_flag_check():
    """An Await is done as soon as anybody looks."""
    arrived = Inbox.arrived

    def at_once(self):
        self.flags[:] = self.epoch
        return arrived(self)

    Inbox.arrived = at_once


def no_epoch():
    """The values of any run count."""
    begin = Inbox.begin

    def always_the_first(self):
        begin(self)
        self.epoch = 1

    Inbox.begin = always_the_first


MUTANTS = {each.__name__: each for each in (no_flag_check, no_epoch, shared_slots)}


def late(function, chance):
    """Now and then a rank sleeps before."""

    def wrapped(*args):
        if chance.random() < 0.2:
            time.sleep(chance.random() * 2e-3)
        return function(*args)

    return wrapped


class SlowBlas:
    """GEMMs at a fixed number of FLOPs a second; C is read when they begin, and written when they
    end."""

    def __init__(self, flops_per_s):
        self.flops_per_s, self.blas = flops_per_s, load_blas()

    def prepare_gemm(self, *arrays, conjugated):
        return partial(self.gemm, *arrays)

    def gemm(self, a, b, c, beta, alpha=1.0, conjugated=""):
        start = time.perf_counter()
        found = c.copy()
        self.blas.gemm(a, b, found, beta, alpha)
        until = start + 2 * a.size * b.shape[1] / self.flops_per_s
        time.sleep(max(0.0, until - time.perf_counter()))
        c[...] = found


def columns_offered(problem, rank):
    """Two ranks, each with a half of k: it multiplies for all of C, and offers the other its
    columns, which are strided."""
    half, other = problem.n // 2, 1 - rank
    (a,), (b,), (c,) = ([*each.own_tiles(rank)] for each in (problem.a, problem.b, problem.c))
    token = yield Gemm((yield Get(a)), (yield Get(b)))
    yield Offer((yield Part(token, 1, other * half, (other + 1) * half)), other, "c")
    yield Copy((yield Part(token, 1, rank * half, (rank + 1) * half)), c)
    yield Add((yield Take(other, "c", (problem.m, half))), c)


def run(case, topology, late_s):
    """Wrong elements of C in each run, over all ranks."""
    comm, (m, n, k) = topology.comm, case["shape"]
    if case["algorithm"] == "columns offered":
        problem = Problem(m, n, k, comm.size, "column", "row", "column")
        found = trace(columns_offered(problem, comm.rank), problem, comm.rank)
    else:
        algorithm = get_algorithm(case["algorithm"])
        problem = algorithm.problem(m, n, k, comm.size, *case.get("texts", ()), **case["options"])
        resolved = algorithm.resolve(problem, **case["options"])
        found = algorithm.trace(problem, comm.rank, **resolved)
    throttle = Throttle(*case["throttle"]) if "throttle" in case else None
    late_s = case.get("late_s", late_s)
    blas = SlowBlas(case["flops_per_s"]) if "flops_per_s" in case else None
    wrong, seconds = [], []
    with distributed(problem, topology, TRANSPORT) as matrices:
        how = {"prefetch": case.get("prefetch", "all"), "throttle": throttle, "blas": blas}
        with Executor(found, matrices, **how) as executor:
            for number in range(RUNS):
                right = refilled(problem, matrices, number)
                executor.poison()
                comm.Barrier()
                start = time.perf_counter()
                time.sleep(0.0 if comm.rank else late_s)
                executor.run()
                seconds.append(comm.allgather(time.perf_counter() - start))
                comm.Barrier()
                wrong.append(wrong_in(matrices["C"], right))
            apart = executor.inbox.sends_messages
    return {
        "wrong": wrong,
        "seconds": min(map(max, seconds)),
        "seconds_of": [min(times) for times in zip(*seconds)],
        "apart": comm.allreduce(int(apart)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="?")
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--delays", type=int)
    parser.add_argument("--cost", type=int)
    options = parser.parse_args()
    delayed = ("_start", "_arrived", "_receive", "_finish")
    changed = SLOTS, *((Inbox, name) for name in ("arrived", "begin"))
    kept = restored(*changed, *((Executor, name) for name in delayed))
    with ranks() as comm, Topology(comm) as topology, kept:
        if options.cost:
            answer(comm, cost(options.cost, topology, TRANSPORT))
            return
        if options.mutant:
            MUTANTS[options.mutant]()
        if options.delays is not None:
            chance = random.Random(f"{options.delays} {comm.rank}")
            for name in delayed:
                setattr(Executor, name, late(getattr(Executor, name), chance))
        with open(options.cases) as file:
            cases = json.load(file)
        answer(comm, [run(case, topology, 0.02 * bool(options.mutant)) for case in cases])


if __name__ == "__main__":
    main()
