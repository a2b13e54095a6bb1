"""What the cases of one group share and keep on a rank between their turns: matrices in windows,
operands of the roof, programs, and what is known of the result."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from drbench.common import TransportChoice, numpy_type
from drbench.errors import DrbenchError, OutOfMemory
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import Topology
from drbench.program.problem import Problem

from .backends import Need, check_memory

#: Most programs that are kept, and most windows of them and of matrices: MPI has few.
_MOST, _MOST_WINDOWS = 1000, 200


class Kept:
    """Allocated and filled memory of a group of cases on cores. Everything is freed together: when
    another group begins, or when a case needs the memory.

    All methods but :meth:`need` are collective, and all ranks call them in the same order, because
    windows are made and freed by all ranks together.

    Attributes
    ----------
    programs : dict of str to Prepared
        By case.
    roofs : dict of tuple to Roof
    expected : dict
        Of :func:`drbench.measure.verify.verify`.
    """

    def __init__(self) -> None:
        self._group: str | None = None
        self._forget()

    def _forget(self) -> None:
        self.programs: dict[str, Any] = {}
        self.roofs: dict[tuple, Any] = {}
        self.expected: dict = {}
        self._open, self._nbytes, self._windows = ExitStack(), 0, 0
        self._matrices: dict[tuple, DistributedMatrix] = {}
        self._filled: dict[tuple, tuple] = {}

    def begin(self, group: str | None) -> None:
        """Free everything, unless the group is the one before; None is a group of its own."""
        if group is None or group != self._group:
            self.close()
        self._group = group

    @contextmanager
    def prepared(self, key: str, make: Callable[[], AbstractContextManager]) -> Iterator[Any]:
        """A context with what the context ``make()`` gives, which stays open for the next turn,
        unless there are too many."""
        if key in self.programs:
            yield self.programs[key]
        elif len(self.programs) < _MOST and self._windows < _MOST_WINDOWS:
            found = (context := make()).__enter__()  # may free all others before it allocates
            self._open.push(context)
            self.programs[key] = found
            self._windows += getattr(found.executor, "inbox", None) is not None
            yield found
        else:
            with make() as found:
                yield found

    def check(
        self, topology: Topology, need_of: Callable[[], Need], *limits, device: int | None = None
    ) -> None:
        """Check the memory of the next case, as :func:`check_memory`; if it is too little, free
        everything first. ``need_of`` gives what is needed in addition to what is kept."""
        if len(self._matrices) > _MOST_WINDOWS:
            self.close()
        try:
            check_memory(topology, need := need_of(), *limits, device, self._nbytes)
        except OutOfMemory:
            if not self.close():
                raise
            check_memory(topology, need := need_of(), *limits, device)
        self._nbytes += need.total

    def missing(self, problem: Problem, choice: TransportChoice) -> str:
        """The names of the matrices that are not there yet."""
        names = (operand.name for operand in problem.operands)
        return "".join(x for x in names if _key(problem, x, choice) not in self._matrices)

    def matrices(
        self,
        problem: Problem,
        topology: Topology,
        choice: TransportChoice,
        fill: Callable[[DistributedMatrix], None],
        values: tuple,
    ) -> dict[str, DistributedMatrix]:
        """A, B and C of a problem, by name: those of the same layout that are there, or new ones. A
        and B are filled by ``fill`` unless they have these ``values`` already."""
        found = {}
        for operand in problem.operands:
            name, key = operand.name, _key(problem, operand.name, choice)
            if key not in self._matrices:
                dtype = numpy_type(problem.type_of(name))
                self._matrices[key] = DistributedMatrix.open(
                    operand, topology, dtype, choice, problem.padded
                )
            found[name] = self._matrices[key]
            if name != "C" and self._filled.get(key) != values:
                fill(found[name])
                self._filled[key] = values
        return found

    def close(self) -> bool:
        """Free everything; return whether there was anything."""
        there, opened, matrices = bool(self.programs), self._open, self._matrices
        self._forget()
        opened.close()
        for matrix in matrices.values():
            matrix.close()
        return there or bool(matrices)

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        if exc[0] is None or issubclass(exc[0], DrbenchError):  # else one rank alone failed
            self.close()


def _key(problem: Problem, name: str, choice: TransportChoice) -> tuple:
    """What identifies the storage of a matrix."""
    operand = problem.operand(name)
    stored = operand.stored
    layout = stored.text, stored.shape, operand.transposed, problem.padded
    return (name, *layout, problem.type_of(name), choice)
