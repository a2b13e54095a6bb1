"""The check of a set of programs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from drbench.errors import UsageError
from drbench.program.problem import Problem
from drbench.program.signal_steps import Signal
from drbench.program.trace import Trace

from .findings import Fault, ProgramFault, finding
from .order import races
from .run import Run, name_of

#: Most products, over all replicas of C, that a check follows one by one.
MOST_PRODUCTS = 1 << 20
#: Most steps of all ranks together, the accesses of which are compared in pairs.
MOST_STEPS = 1 << 15


@dataclass(frozen=True)
class CheckResult:
    """What a check shows.

    Attributes
    ----------
    ranks, steps : int
    findings : list of ProgramFault
        Faults of one kind or, of the result, of two; none if the programs are right.
    """

    ranks: int
    steps: int
    findings: list[ProgramFault]

    def described(self) -> list[dict]:
        """The findings as JSON has them."""
        return [
            {**fault._asdict(), "steps": [step._asdict() for step in fault.steps]}
            for fault in self.findings
        ]

    def lines(self) -> Iterator[str]:
        """The verdict as text: what was proved, in a line, or each finding and its steps."""
        if not self.findings:
            ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}"
            yield (
                f"checked: {ranks}, {self.steps} steps, in every order in which they may complete: "
                "no race, every product once, no sum overwritten."
            )
        for fault in self.findings:
            yield f"{fault.kind}: {fault.text}"
            for culprit in fault.steps:
                yield f"  rank {culprit.rank}, step {culprit.step}: {culprit.text}"


def refuse_large(problem: Problem, steps: int = 0) -> None:
    """Refuse what a check cannot follow element by element.

    Raises
    ------
    UsageError
        With what to reduce.
    """
    replicas = len(problem.c.partition.places.replicas)
    products = replicas * prod(problem.c.partition.shape) * problem.summands
    remedy = "A check needs only a few elements of each tile"
    if products > MOST_PRODUCTS:
        raise UsageError(
            f"--check follows at most {MOST_PRODUCTS} products, one by one; here are {products}, "
            f"{replicas} replicas of C included. Reduce -m, -n or -k. {remedy}."
        )
    if steps > MOST_STEPS:
        raise UsageError(
            f"--check compares at most {MOST_STEPS} steps; the programs have more. Reduce -m, -n, "
            f"-k or -p, or use larger tiles. {remedy}."
        )


def check(traces: Sequence[Trace], everywhere: bool = False) -> CheckResult:
    """Check the programs of all ranks, in every order in which their steps may complete.

    Parameters
    ----------
    traces : sequence of Trace
        Of all ranks, in their order.
    everywhere : bool
        Every copy of C gets the result, not only the first one.

    Returns
    -------
    CheckResult

    Raises
    ------
    UsageError
        If the problem is too large, or a step is of no known type.

    Examples
    --------
    A program that is right, and the same without the last GEMM of rank 1:

    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(4, 4, 4, 2, "row", "row", "row")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> check(traces).findings
    []
    >>> del traces[1].steps[-1]
    >>> print(*check(traces).lines())
    missing: C[2, 0]@1 lacks A[2, 0]·B[0, 0], and 15 more products: no rank multiplies it
    """
    steps = sum(len(trace.steps) for trace in traces)
    refuse_large(traces[0].problem, steps)
    verdict = lambda findings: CheckResult(len(traces), steps, findings)
    if findings := list(signals(traces)):
        return verdict(findings)
    run, fault = Run(traces), None
    try:
        run.to_end()
    except Fault as error:
        fault = error.finding
    if fault and fault.kind == "deadlock":
        return verdict([fault])
    if findings := races(traces):  # without them, a run in one order is one in every order
        return verdict(findings)
    return verdict([fault] if fault else list(run.memory.findings(run.gemms, everywhere)))


def signals(traces: Sequence[Trace]) -> Iterator[ProgramFault]:
    """Signals that have one end only, or a name that another one has."""
    ends: dict[tuple, list] = {}
    for trace in traces:
        for step in trace.steps:
            if isinstance(step, Signal):
                ends.setdefault(name_of(trace.rank, step), []).append((trace.rank, step))
    for (_, source, target, key), both in ends.items():
        sends = [step.sends for _, step in both]
        text = f"from rank {source} to rank {target}, {key!r},"
        if sends == [True]:
            yield finding("signal", f"what is sent {text} is never received", both)
        elif sends == [False]:
            yield finding("signal", f"what is awaited {text} is never sent", both)
        elif sorted(sends) != [False, True]:
            yield finding("signal", f"what is sent {text} has the name of another signal", both)
