"""A machine without MPI: every rank's trace worked off by the real scheduler in the planned arena,
completions in random order.

Values are plain arrays cut out of the arena; what a buffer holds before it is filled is NaN, and
becomes NaN again whenever another buffer of the plan begins there. Elements of A and B are read
from the whole matrices by the global indices the steps name; every element of C remembers how often
it was overwritten from elsewhere.
"""

import random

import numpy as np

from drbench.plan.schedule import Lookahead, Scheduler, plan_arena
from drbench.program.group_steps import AllGather, Broadcast, Piece, Reduce, Shift
from drbench.program.steps import Add, Copy, Fence, Get, Join, Part, ReplicaGet, Scratch, Zero


def dealt(shape, grid, order):
    """Who owns each element when one tile of ⌈extent / grid⌉ goes to each place of a grid: element
    by element."""
    owner = np.empty(shape, int)
    tile = [-(-extent // parts) for extent, parts in zip(shape, grid)]
    for row in range(shape[0]):
        for col in range(shape[1]):
            x, y = row // tile[0], col // tile[1]
            owner[row, col] = x * grid[1] + y if order == "row" else y * grid[0] + x
    return owner


def elements(piece):
    """np.ix_ of a piece's rows and columns, in global indices."""
    return np.ix_(
        [r for start, stop in piece.rows for r in range(start, stop)],
        [c for start, stop in piece.cols for c in range(start, stop)],
    )


class Rank:
    def __init__(self, machine, trace, depth):
        self.machine, self.trace, self.rank = machine, trace, trace.rank
        lookahead = Lookahead(trace, depth)
        self.plan = plan_arena(lookahead, 8)
        self.arena = np.full(max(1, self.plan.size), np.nan)
        self.schedule = Scheduler(lookahead)
        self.started = {}  # group name -> steps issued so far

    def buffer(self, t, shape):
        offset = self.plan.offsets[t]
        return self.arena[offset : offset + shape[0] * shape[1]].reshape(shape)

    def value(self, step):
        """What a token holds now."""
        if type(step) is Get:
            return self.machine.read(Piece(step.block), self.rank)
        if type(step) is Part:
            whole = self.value(step.inputs[0])
            return (
                whole[step.start : step.stop]
                if step.axis == 0
                else whole[:, step.start : step.stop]
            )
        if type(step) is Join:
            return np.concatenate([self.value(token) for token in step.inputs], axis=step.axis)
        if step.onto is not None:
            return self.value(step.onto)
        if type(step) in (Broadcast, AllGather) and step.index not in self.plan.offsets:
            pieces = [step.piece] if type(step) is Broadcast else step.pieces
            return np.concatenate(
                [self.machine.read(piece, self.rank) for piece in pieces],
                axis=getattr(step, "axis", 0),
            )
        if step.index not in self.plan.offsets:
            assert 0 in step.shape, step
            return np.zeros(step.shape)
        return self.buffer(step.index, step.shape)

    def store(self, step, value):
        """Put a value where a token's memory is."""
        if type(step) is Join:
            at = 0
            for token in step.inputs:
                extent = token.shape[step.axis]
                self.store(
                    token, value[at : at + extent] if step.axis == 0 else value[:, at : at + extent]
                )
                at += extent
        elif type(step) is Part:
            whole = np.array(self.value(step.inputs[0]))
            (whole if step.axis == 0 else whole.T)[step.start : step.stop] = (
                value if step.axis == 0 else value.T
            )
            self.store(step.inputs[0], whole)
        elif step.onto is not None:
            self.store(step.onto, value)
        elif value.size:
            self.buffer(step.index, value.shape)[...] = value

    def compute(self, step):
        machine = self.machine
        if type(step) is Zero:
            machine.write(Piece(step.block), np.zeros(step.block.shape), self.rank)
        elif type(step) is Copy and step.block is None:
            self.store(step, self.value(step.inputs[0]))
        elif type(step) is Copy:
            machine.write(Piece(step.block), self.value(step.inputs[0]), self.rank)
        elif type(step) is Add:
            value = self.value(step.inputs[0])
            if step.block is None:
                self.store(step.onto, self.value(step.onto) + value)
            else:
                piece = Piece(step.block)
                machine.write(piece, machine.sum_in(piece) + value, self.rank)
        else:
            product = self.value(step.inputs[0]) @ self.value(step.inputs[1])
            if step.block is not None:
                piece = Piece(step.block)
                machine.write(
                    piece, product + machine.sum_in(piece) if step.beta else product, self.rank
                )
            elif step.onto is not None:
                self.store(step.onto, product + self.value(step.onto) if step.beta else product)
            elif product.size:
                self.store(step, product)


class Machine:
    """All ranks; ``run`` returns C, or raises if nothing can go on."""

    def __init__(self, traces, a, b, owners, depth, seed):
        self.chance = random.Random(seed)
        self.a, self.b, self.owners = a, b, owners
        replicas = traces[0].problem.c.partition.replicas
        self.chips = len(traces) // replicas
        self.c = np.full((replicas, a.shape[0], b.shape[1]), np.nan)
        self.ranks = [Rank(self, trace, depth) for trace in traces]
        self.meetings = {}  # (group name, members, number) -> {rank: step}
        self.open = []  # (rank, step, meeting) that may complete
        self.arrived = {}  # meeting -> values by member, once the first has completed

    def sum_in(self, piece):
        """What a piece of C holds now."""
        return self.c[piece.block.replica][elements(piece)]

    def check(self, piece, rank, does):
        owners = self.owners[piece.block.matrix][elements(piece)]
        assert (owners + piece.block.replica * self.chips == rank).all(), (
            f"rank {rank} {does} {piece}, which is not its own"
        )

    def read(self, piece, rank):
        matrix = {"A": self.a, "B": self.b}[piece.block.matrix]
        self.check(piece, rank, "reads")
        return matrix[elements(piece)]

    def write(self, piece, value, rank):
        self.check(piece, rank, "writes")
        self.c[piece.block.replica][elements(piece)] = value

    def start(self, rank, t):
        step = rank.trace.steps[t]
        if type(step) in (Get, Part, Join, Scratch):
            if type(step) is Scratch and t in rank.plan.offsets:
                rank.buffer(t, step.shape)[...] = np.nan
            rank.schedule.finish(t)
            return
        if t in rank.plan.offsets and step.shape is not None:
            # whoever still needs what lay here has lost it
            rank.buffer(t, step.shape)[...] = np.nan
        if type(step) is ReplicaGet:
            self.open.append((rank, step, None))
            return
        name, members = (
            ("world", range(len(self.ranks)))
            if type(step) is Fence
            else (step.group.name, step.group.members)
        )
        number = rank.started[name] = rank.started.get(name, 0) + 1
        key = name, members, number
        meeting = self.meetings.setdefault(key, {})
        meeting[rank.rank] = step
        if len(meeting) == len(members):
            assert len({type(other) for other in meeting.values()}) == 1, meeting
            self.open += [(self.ranks[member], other, key) for member, other in meeting.items()]

    def complete(self, rank, step, key):
        if type(step) is ReplicaGet:
            rank.store(step, np.array(self.sum_in(Piece(step.block))))
        if type(step) in (ReplicaGet, Fence):
            rank.schedule.finish(step.index)
            return
        meeting = self.meetings[key]
        members = step.group.members
        if (
            key not in self.arrived
        ):  # the first to complete: from now on senders may reuse what they sent
            self.arrived[key] = {
                r: np.array(self.sent(self.ranks[r], other)) for r, other in meeting.items()
            }
        sent = self.arrived[key]
        if type(step) is Shift:
            assert sent[step.source].shape == step.shape, (step, sent[step.source].shape)
            assert meeting[step.source].target == rank.rank
            rank.store(step, sent[step.source])
        elif type(step) is Broadcast:
            if step.index in rank.plan.offsets:
                rank.store(step, sent[members[step.root]])
        elif type(step) is AllGather:
            assert [piece.owner for piece in step.pieces] == list(members)
            if step.index in rank.plan.offsets:
                rank.store(
                    step, np.concatenate([sent[member] for member in members], axis=step.axis)
                )
        elif type(step) is Reduce:
            if members[step.root] == rank.rank:
                self.write(step.piece, sum(sent.values()), rank.rank)
        else:
            total, me, axis = sum(sent.values()), members.index(rank.rank), step.axis
            starts = np.cumsum([0] + [piece.shape[axis] for piece in step.pieces])
            assert total.shape[axis] == starts[-1]
            part = (
                total[starts[me] : starts[me + 1]]
                if axis == 0
                else total[:, starts[me] : starts[me + 1]]
            )
            self.write(step.pieces[me], part, rank.rank)
        rank.schedule.finish(step.index)

    def sent(self, rank, step):
        """What a member gives to its group."""
        if type(step) is Broadcast:
            return (
                self.read(step.piece, rank.rank) if step.piece.owner == rank.rank else np.zeros(0)
            )
        if type(step) is AllGather:
            return self.read(step.pieces[step.group.position], rank.rank)
        return rank.value(step.inputs[0])

    def run(self):
        waiting, idle = [rank for rank in self.ranks if rank.schedule.pending], set()
        while waiting:
            rank = self.chance.choice(waiting)
            moved = False
            for t in rank.schedule.take():
                self.start(rank, t)
                moved = True
            t = rank.schedule.next_compute()
            if t is not None:
                rank.compute(rank.trace.steps[t])
                rank.schedule.finish(t)
                moved = True
            if self.open and (not moved or self.chance.random() < 0.5):
                self.complete(*self.open.pop(self.chance.randrange(len(self.open))))
                moved = True
            idle = set() if moved else idle | {rank.rank}
            waiting = [rank for rank in self.ranks if rank.schedule.pending]
            assert not waiting or len(idle & {rank.rank for rank in waiting}) < len(waiting), (
                f"ranks {sorted(idle)} wait for each other"
            )
        return self.c[0]
