"""The result of a search: the places of its ranking, what redistribution to them costs, and what
was not searched."""

from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from drbench.launch.cases.case import Case
from drbench.measure.record import Record
from drbench.model.bounds import Bound

from .counts import Counted


class Moving(NamedTuple):
    """The cost of redistributing A and B to a layout, and C back, one matrix after another.

    Attributes
    ----------
    moved_bytes, busiest_bytes : int
        Total over all ranks; the most that one rank sends or receives.
    seconds : float or None
        By a machine model.
    """

    moved_bytes: int = 0
    busiest_bytes: int = 0
    seconds: float | None = None

    @property
    def price(self) -> float:
        """Seconds, or without a model the bytes of the busiest rank."""
        return self.busiest_bytes if self.seconds is None else self.seconds


class Place(NamedTuple):
    """A place of the ranking.

    Attributes
    ----------
    case : Case
    memory : int
        Bytes of the largest rank's tiles and buffers.
    moving : Moving
        From and to the current layouts; zero if none are given.
    layouts : tuple of str
        Text forms of the partitions of A, B and C.
    record : Record or None
        By a machine model; None without one.
    counts : Counted or None
        Without a machine model.
    bound : Bound or None
        By a machine model: a lower bound of its time, from its GEMMs and its busiest link.
    key : tuple
        The sort key of places, including its share of ``moving``.
    """

    case: Case
    memory: int
    moving: Moving
    layouts: tuple[str, ...]
    record: Record | None = None
    counts: Counted | None = None
    bound: Bound | None = None
    key: tuple = ()

    @property
    def moved_bytes(self) -> int:
        """Total over all ranks, in the multiplication."""
        return self.counts.loads.moved_bytes if self.counts else self.record.moved_bytes or 0

    @property
    def cost(self) -> float:
        """Seconds, or without a model the bytes that the busiest rank sends or receives."""
        return self.counts.loads.busiest_bytes if self.counts else self.record.best_s


@dataclass
class SearchResult:
    """The ranking, best first, and counts of the search.

    Attributes
    ----------
    ranking : list of Place
    tried, judged, refused, too_large : int
        Candidates; programs that were simulated, or whose bytes were counted on all ranks;
        unsupported ones; ones that exceed the memory.
    left : int
        Candidates that are not excluded by their bound, but were not judged within the effort.
    gap : float
        How much faster than the first place one of them could be at most: its time over their
        smallest bound, minus 1; 0 if there are none. Without a model in bytes.
    mine : Place or None
        The best on the current layouts; None if none are given, or none fits the memory.
    why_not : str
        Why ``mine`` is None although layouts are given.
    better : bool
        Whether the first place, on other layouts, costs less than ``mine``.
    least_bytes : float
        That some rank needs with any schedule.
    """

    ranking: list[Place] = field(default_factory=list)
    tried: int = 0
    judged: int = 0
    refused: int = 0
    too_large: int = 0
    left: int = 0
    gap: float = 0.0
    mine: Place | None = None
    why_not: str = ""
    better: bool = False
    least_bytes: float = 0.0

    @property
    def times_better(self) -> float | None:
        """Cost of ``mine`` over that of the first place, in time or in bytes of the busiest rank;
        None if that moves none, or is not better."""
        first = self.ranking[0].cost if self.better else 0
        return self.mine.cost / first if first else None

    @property
    def pays_after(self) -> int | None:
        """Multiplications after which redistributing to the first place pays, in time or in bytes
        of the busiest rank; None if it is not better."""
        if not self.better:
            return None
        first = self.ranking[0]
        return max(1, ceil(first.moving.price / (self.mine.cost - first.cost)))

    @property
    def in_doubt(self) -> bool:
        """Whether an unsearched candidate could be faster than the interval of the first place."""
        first = self.ranking[0].record
        if first is None or first.median_low_s is None:
            return self.left > 0 and self.gap > 0
        return self.left > 0 and first.best_s / (1 + self.gap) < first.median_low_s

    def within(self, multiplications: int = 1) -> list[int]:
        """The further places, the second being 2, that may be as fast as the first: their time is
        in its interval, including redistribution; without a model, their bytes are equal.

        Examples
        --------
        >>> make = lambda seconds: Record(
        ...     mode="simulated",
        ...     status="ok",
        ...     best_s=seconds,
        ...     median_low_s=0.9,
        ...     median_high_s=1.1,
        ... )
        >>> places = [Place(None, 0, Moving(0, 0, 0.1), (), make(s)) for s in (1.0, 1.05, 1.2)]
        >>> SearchResult(places).within()
        [2]
        """
        first = self.ranking[0]
        if first.record is None:
            first_cost, *costs = [(place.counts.share, place.cost) for place in self.ranking]
            return [at for at, cost in enumerate(costs, 2) if cost == first_cost]
        if first.record.median_high_s is None:
            return []
        most = first.record.median_high_s + first.moving.price / multiplications
        costs = [place.cost + place.moving.price / multiplications for place in self.ranking[1:]]
        return [at for at, cost in enumerate(costs, 2) if cost <= most]
