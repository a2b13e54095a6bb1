"""Exhaustive lowering: branch and bound over every choice of operations (*Slicing Is All You Need*,
§4.3).

The search proceeds by operations from states (which nodes are finished) to states, cheapest bound
first. It examines fewer than all choices without missing a cheaper one:

- An operation to which an eligible node could be added within the bounds without taking longer is
  left out: doing more at no cost is never worse, as an operation never takes longer for having less
  to do.
- Parts of the graph that are connected only through Fences and equal in every cost are
  interchangeable; states that differ by such an exchange count as one.
- A state is left out if its time, plus for each range between two Fences the larger of the compute
  and the link time left, is no less than the best known.
"""

from heapq import heappop, heappush
from itertools import combinations
from math import comb, inf

from drbench.errors import UnsupportedError
from drbench.mappings import grouped
from drbench.model.costs import Cost
from drbench.program.steps import Get

from .graph import Graph, Operation
from .op_costs import operation_s, program_s

#: The limit on size: choices to examine, of operations, of their parts, and of nodes when a state's
#: bound is computed.
MOST_SELECTIONS = 500_000


class Search:
    """The search of one graph, with limits on computes and transfers in one operation."""

    def __init__(self, graph: Graph, costs: list[Cost], max_compute: int, max_comm: int):
        self.graph, self.costs = graph, costs
        self.max_compute, self.max_comm = max_compute, max_comm
        self.needs = [sum(1 << other for other in node.needs) for node in graph.nodes]
        self.stretches = [
            [_Stretch(graph, costs, numbers) for numbers in ending] for ending in _stretches(graph)
        ]
        self.classes = _interchangeable(graph, costs)
        self.place = {
            number: (which, part)
            for which, parts in enumerate(self.classes)
            for part in parts
            for number in part
        }
        self.links_only = [cost._replace(core_s=0.0) for cost in costs]
        self.looked_at = 0

    def run(self, known: list[Operation]) -> list[Operation]:
        """The cheapest operations by the model; ``known`` if none are cheaper.

        Raises
        ------
        UnsupportedError
            If more than :data:`MOST_SELECTIONS` choices would have to be examined.
        """
        everything = (1 << len(self.graph.nodes)) - 1
        best, best_s = known, program_s(known, self.costs)
        best_s *= 1 - 1e-12  # sums in another order are no improvement
        cheapest, came = {self._key(0): 0.0}, {}
        heap, count = [(self._bound(0), 0, 0, 0.0)], 0
        while heap:
            bound, _, done, spent = heappop(heap)
            if bound >= best_s:
                break
            if spent > cheapest[self._key(done)]:
                continue
            if done == everything:
                best, best_s = self._path(came, done), spent
                break
            for operation, seconds in self._operations(done):
                after = done | sum(1 << number for numbers in operation for number in numbers)
                total = spent + seconds
                key = self._key(after)
                if total >= cheapest.get(key, inf):
                    continue
                self._count_effort(1 + len(self.graph.nodes) // 2)
                bound = total + self._bound(after)
                if bound < best_s:
                    cheapest[key], came[after] = total, (done, operation)
                    count += 1
                    # of equals the latest: deeper first
                    heappush(heap, (bound, -count, after, total))
        return best

    @staticmethod
    def _path(came: dict, done: int) -> list[Operation]:
        operations = []
        while done:
            done, operation = came[done]
            operations.append(operation)
        return operations[::-1]

    def _operations(self, done: int):
        """Operations to examine in a state, with their seconds."""
        eligible = lambda numbers: [
            n for n in numbers if not done >> n & 1 and self.needs[n] & ~done == 0
        ]
        graph = self.graph
        fences, ready, waiting = map(eligible, (graph.fences, graph.computes, graph.transfers))
        before = self._exchangeable(ready + waiting, done)
        computing = self._selections(ready, self.max_compute, before)
        moving = self._selections(waiting, self.max_comm, before, fences)
        self._count_effort(len(computing) * len(moving))
        for computes, core, _, more_computes in computing:
            for transfers, own, link, more_transfers in moving:
                if not (computes or transfers or fences):
                    continue
                seconds = max(core + own, link)
                if any(more + own <= seconds for more, _ in more_computes):
                    continue
                if any(
                    core + more <= seconds and more_link <= seconds
                    for more, more_link in more_transfers
                ):
                    continue
                yield Operation(list(transfers), list(computes), fences), seconds

    def _count_effort(self, more: int) -> None:
        """Count examined choices."""
        self.looked_at += more
        if self.looked_at > MOST_SELECTIONS:
            raise UnsupportedError(
                f"exhaustive lowering of rank {self.graph.trace.rank}'s {len(self.graph.computes)} "
                f"computes and {len(self.graph.transfers)} transfers would examine more "
                f"than {MOST_SELECTIONS} choices (our limit). Use -o schedule=cost, fewer "
                "computes and transfers at a time, or fewer tiles."
            )

    def _exchangeable(self, eligible: list[int], done: int) -> dict[int, list[int]]:
        """For each eligible node those to choose before it: nodes of equal parts in the same state.
        Only where no other node of these parts is eligible; else an exchange of one node would not
        exchange the parts."""
        of_part = grouped(eligible, self.place.get)
        alike, before = {}, {number: [] for number in eligible}
        for (which, part), numbers in of_part.items():
            if len(numbers) == 1:
                others = alike.setdefault((which, tuple(done >> n & 1 for n in part)), [])
                before[numbers[0]] = others[:]
                others += numbers
        return before

    def _selections(self, eligible: list[int], most: int, before: dict, fences=()) -> list[tuple]:
        """Choices of nodes up to a limit: (nodes, core seconds, link seconds, both with one node
        more)."""
        out, count = [], len(eligible)
        sizes = range(min(most, count) + 1)
        self._count_effort(sum(comb(count, size) * (count if size < most else 1) for size in sizes))
        for size in sizes:
            for chosen in combinations(eligible, size):
                if any(number not in chosen for node in chosen for number in before[node]):
                    continue
                more = []
                if size < most:
                    more = [
                        self._seconds((*chosen, number, *fences))
                        for number in eligible
                        if number not in chosen
                    ]
                out.append((chosen, *self._seconds((*chosen, *fences)), more))
        return out

    def _seconds(self, numbers) -> tuple[float, float]:
        """Seconds of nodes on the core, and on the links."""
        return sum(self.costs[n].core_s for n in numbers), operation_s(
            self.links_only[n] for n in numbers
        )

    # -- states that are alike
    # --------------------------------------------------------------------------------------

    def _key(self, done: int) -> tuple:
        """The state, the same for all states that an exchange of interchangeable parts makes
        equal."""
        return tuple(
            tuple(sorted([tuple(done >> n & 1 for n in part) for part in parts]))
            for parts in self.classes
        )

    # -- the bound
    # ---------------------------------------------------------------------------------------------

    def _bound(self, done: int) -> float:
        """A lower bound of the time left: ranges from Fence to Fence, one after the other."""
        until = [0.0]
        for ending in self.stretches:
            until.append(
                max(until[start] + stretch.least_s(done) for start, stretch in enumerate(ending))
            )
        return until[-1]


class _Stretch:
    """Nodes that all run between two Fences, in operations without nodes from outside this range.

    ``waits``: each of its computes needs one of its transfers first. ``sends``: each of its
    computes precedes one of its transfers.
    """

    def __init__(self, graph: Graph, costs: list[Cost], numbers: list[int]):
        inside = set(numbers)
        transfers = inside.intersection(graph.transfers)
        self.computes = [(n, costs[n].core_s) for n in numbers if graph.nodes[n].step.computes]
        self.transfers = [
            (
                n,
                costs[n],
                isinstance(graph.nodes[n].step, Get)
                and any(user in inside for user in graph.users[n]),
            )
            for n in transfers
        ]
        # its operations without computes may use the core
        self.mixed = any(cost.core_s for _, cost, _ in self.transfers)
        self.waits = all(transfers & set(graph.nodes[n].needs) for n, _ in self.computes)
        self.sends = all(transfers & set(graph.users[n]) for n, _ in self.computes)
        self.fetches = sum(1 << n for n, _, fetches in self.transfers if fetches)

    def least_s(self, done: int) -> float:
        left = [core for n, core in self.computes if not done >> n & 1]
        core, on_link, fetching, shortest, last = sum(left), {}, {}, inf, inf
        for n, cost, fetches in self.transfers:
            if done >> n & 1:
                continue
            core += cost.core_s
            alone = 0.0 if self.mixed else cost.link_s
            if fetches:
                shortest = min(shortest, alone)
            else:
                last = min(last, alone)
            for link in cost.links:
                on_link[link] = on_link.get(link, 0.0) + cost.link_s
                if fetches:  # computes use the fetched blocks afterwards
                    fetching[link] = fetching.get(link, 0.0) + cost.link_s
        tail = last if left and self.sends and last < inf else 0.0
        after = min(left, default=0.0) + tail
        if left and self.waits and self.fetches & ~done == self.fetches and shortest < inf:
            core += shortest  # nothing can be computed before the first of its transfers
        return max(
            core + tail,
            max(on_link.values(), default=0.0),
            max(fetching.values(), default=0.0) + after if fetching else 0.0,
        )


def _stretches(graph: Graph) -> list[list[list[int]]]:
    """``[j][i]``: the nodes that must run after Fence i - 1 and before Fence j (i = 0: from the
    start; the last j: to the end)."""
    fences, count = graph.fences, len(graph.fences)
    after, until = [], [count] * len(graph.nodes)  # Fences wait for one another
    for node in graph.nodes:
        after.append(max((after[n] + (n in fences) for n in node.needs), default=0))
    for n in reversed(range(len(until))):
        until[n] = min((until[user] - (user in fences) for user in graph.users[n]), default=count)
    inside = sorted(graph.computes + graph.transfers)
    return [
        [[n for n in inside if after[n] >= i and until[n] <= j] for i in range(j + 1)]
        for j in range(count + 1)
    ]


def _interchangeable(graph: Graph, costs: list[Cost]) -> list[list[tuple]]:
    """The graph's parts (nodes connected other than through Fences), equal parts in one list.

    Equal: node by node, in their order, the same kind of step, the same costs on the same links,
    and the same needs. A link that only one transfer uses matches any other such link.
    """
    taken: dict = {}
    for cost in costs:
        for link in cost.links:
            taken[link] = taken.get(link, 0) + 1
    fences, part_of = set(graph.fences), list(range(len(graph.nodes)))

    def find(number):
        while part_of[number] != number:
            number = part_of[number]
        return number

    for number, node in enumerate(graph.nodes):
        if number not in fences:
            for other in set(node.needs) - fences:
                part_of[find(number)] = find(other)
    parts = grouped(range(len(graph.nodes)), find)
    classes: dict = {}
    for part in parts.values():
        place, signature = {number: x for x, number in enumerate(part)}, []
        for number in part:
            cost, step = costs[number], graph.nodes[number].step
            links = tuple(sorted((link for link in cost.links if taken[link] > 1), key=repr)) or (
                bool(cost.links),
            )
            relations = [
                tuple(place.get(other, -1 - other) for other in others)
                for others in (graph.nodes[number].needs, graph.users[number])
            ]
            signature.append(
                (type(step), cost.core_s, cost.link_s, cost.latency_s, links, *relations)
            )
        classes.setdefault(tuple(signature), []).append(tuple(part))
    return list(classes.values())
