"""What a tuning is asked for: the problem, what may change, and how long it may search."""

from dataclasses import dataclass, replace

from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.sweep_file import CONCURRENT

#: How many of A, B and C, in this order, have equal replication factors, for each value.
REPLICATION = {"none": 3, "equal": 3, "paired": 2, "all": 0}
#: CPU seconds of a search, at least; many ranks get one second per this number.
EFFORT, _RANKS_A_SECOND = 9.0, 40
#: First places that are also tried with other look-aheads, chunks and lowerings.
_REFINED = 3


@dataclass(frozen=True)
class TuneRequest:
    """What ``tune`` chooses for.

    Attributes
    ----------
    case : Case
        The values that all candidates share; partitions that are None are open.
    algorithms : tuple of str or None
        The algorithms to try; None for all.
    memory : int or None
        Most bytes of tiles and buffers per rank; None for the device's memory.
    replication : str
        ``none``, or ``equal``, ``paired`` or ``all`` factors: a key of :data:`REPLICATION`.
    today : tuple of three (str or None)
        The current partitions of A and B, and the wanted one of C. Redistribution to and from the
        layouts of a candidate is charged.
    multiplications : int
        Multiplications that share this charge.
    effort : float or None
        Approximate CPU seconds of the search; None to search everything.
    refine : int
        Number of first places that are also tried with other :func:`.enumerate.list_settings`.
    """

    case: Case
    ranks: int
    algorithms: tuple | None = None
    memory: int | None = None
    replication: str = "all"
    top: int = 10
    today: tuple = (None, None, None)
    multiplications: int = 1
    effort: float | None = None
    refine: int = 0

    @classmethod
    def of(
        cls, case: Case, ranks: int, fix: str = "", effort: float | None = None, **more
    ) -> "TuneRequest":
        """The request of a user: the layouts of the case are the current ones, and the matrices in
        ``fix``, as ``"ac"``, keep them; ``effort`` 0 searches everything, None is the default for
        the number of ranks.

        Examples
        --------
        >>> request = TuneRequest.of(Case(8, 8, 8, "row", "column"), 400, "a", top=3)
        >>> request.case.a, request.case.b, request.today, request.effort
        ('row', None, ('row', 'column', None), 10.0)
        """
        if named := [name for name in CONCURRENT if getattr(case, name)]:
            raise UsageError(
                f"tune takes no {named[0]}: its bounds are of one GEMM at a time. Leave it out."
            )
        today = case.a, case.b, case.c
        fixed = {name: text if name in fix else None for name, text in zip("abc", today)}
        if effort is None:
            effort = max(EFFORT, ranks / _RANKS_A_SECOND)
        more |= {"today": today, "effort": effort or None, "refine": _REFINED}
        return cls(replace(case, preset=None, **fixed), ranks, **more)
