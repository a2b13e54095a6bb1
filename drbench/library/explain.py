"""What a planned multiplication moves and does, in numbers and in words."""

import os
from dataclasses import dataclass

from drbench.model.machine import Machine
from drbench.model.simulate import simulate
from drbench.plan.explain import memory_bytes, traffic
from drbench.transport import TransportChoice

from .plan import Multiplication


@dataclass(frozen=True)
class PlanExplanation:
    """A planned multiplication.

    Attributes
    ----------
    what : str
        The multiplication in words.
    stationary : str
        The matrix whose tiles do not move.
    costs : dict of str to int
        For each choice the bytes that the busiest rank would move if it fetched each element once;
        an accumulate is counted three times.
    moved_bytes : list of int
        What each rank's steps move between ranks; what is fetched for several products without
        being kept is counted each time.
    steps : list of int
        The number of steps of each rank.
    arena_bytes : int
        Receive and scratch memory of this rank, if no tile is read in place.
    time_s : float or None
        Predicted, if a performance model was given.
    copied_bytes : dict of str to int
        Of each matrix whose array is not used in place: what each call copies of it on this rank, A
        and B into the heap, C out of it (with beta also into it: twice the bytes of the array).
    """

    what: str
    stationary: str
    costs: dict
    moved_bytes: list
    steps: list
    arena_bytes: int
    time_s: float | None
    copied_bytes: dict

    @classmethod
    def of(
        cls,
        plan: Multiplication,
        machine: Machine | str | os.PathLike[str] | None = None,
        copied: dict[str, int] | None = None,
    ) -> "PlanExplanation":
        """The explanation of a plan.

        Parameters
        ----------
        plan : Multiplication
        machine : Machine, or path of a machine file, optional
            The performance model that predicts its time.
        copied : dict of str to int, optional
            ``copied_bytes``.
        """
        traces = [plan.trace(rank) for rank in range(plan.runtime.size)]
        item, time_s = plan.problem.itemsize, None
        if machine is not None:
            if not isinstance(machine, Machine):
                machine = Machine.load(machine)
            seen = machine.for_dtype(plan.problem.dtype).for_transport(TransportChoice("auto"))
            time_s = simulate(traces, seen).time_s
        return cls(
            plan.what,
            plan.stationary,
            {name: cost * item for name, cost in plan.costs.items()},
            [sum(traffic(trace).counters.values()) for trace in traces],
            [len(trace.steps) for trace in traces],
            memory_bytes(traces[plan.runtime.rank])["pool"],
            time_s,
            copied or {},
        )

    def __str__(self) -> str:
        costs = ", ".join(f"{name} {cost}" for name, cost in self.costs.items())
        lines = [
            self.what,
            f"busiest rank by stationary matrix, in bytes: {costs}",
            f"moved by each rank, in bytes: {', '.join(map(str, self.moved_bytes))}",
            f"steps of each rank: {', '.join(map(str, self.steps))}",
            f"arena: at most {self.arena_bytes} bytes",
        ]
        if self.copied_bytes:
            parts = (f"{name} {nbytes}" for name, nbytes in self.copied_bytes.items())
            lines.append(
                f"copied by each call, into the heap or out of it, in bytes: {', '.join(parts)}"
            )
        if self.time_s is not None:
            lines.append(f"predicted: {self.time_s * 1e3:.3g} ms")
        return "\n".join(lines)
