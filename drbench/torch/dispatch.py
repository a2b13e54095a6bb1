"""Handlers of DTensor's multiplications, with their contexts, decisions and counts."""

import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from mpi4py import MPI
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from drbench.errors import CaseTimeout, UsageError
from drbench.library import Context, init
from drbench.library.context import end_all
from drbench.library.spec import Spec

from . import private
from .decision import TYPES, DispatchDecision, decide, wanted
from .multiplication import Declined, DTensorMultiplication

#: Cached decisions and multiplications; then all are forgotten.
_MOST_DECISIONS = 2048
#: How long a rank waits for the other ranks of a mesh before their first multiplication.
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Counts:
    """Multiplications of DTensors since :func:`install`.

    Attributes
    ----------
    drbench : int
        Multiplications by drbench.
    stock : dict of str to int
        Multiplications by stock torch, by the reason.
    copied : int
        Operands that were copied into the heap first.
    summed : int
        Partial operands that were reduced first.
    declined : int
        Multiplications by stock because some rank could not do its part in drbench.
    """

    drbench: int = 0
    stock: dict = field(default_factory=dict)
    copied: int = 0
    summed: int = 0
    declined: int = 0


class Installed:
    """What DTensor calls once drbench is installed; made by :func:`drbench.torch.install`.

    Parameters
    ----------
    comm : MPI.Intracomm
        Its ranks are those of torch.distributed; freed in the end.
    heap : str or int
        Bytes of each rank's part of the heap of each context.
    when : str
        ``auto``, ``always`` or ``never``.
    options : dict
        Of :func:`drbench.init`.
    in_place : bool
        Ranks read each other's memory.

    Attributes
    ----------
    requested : dict
        Handlers that are registered only while placements are requested, because else torch's own
        hook asks.
    """

    def __init__(
        self, comm: MPI.Intracomm, heap: str | int, when: str, options: dict, in_place: bool = True
    ):
        self.comm, self.heap, self.when, self.options = comm, heap, when, options
        self.in_place = in_place
        self._contexts: dict[tuple, Context | None] = {}
        self._decisions: dict[tuple, DispatchDecision] = {}
        self._known: dict[tuple, tuple] = {}  # by the identity of specs, which are kept
        self._multiplications: dict[int, DTensorMultiplication] = {}
        self._tally: Counter = Counter()
        self._reasons: Counter = Counter()
        self._handled = {
            private.MM: self.multiply,
            private.ADDMM: self.multiply,
            **dict.fromkeys(private.UNDIVIDED, self._handle_undivided),
            **dict.fromkeys((private.BMM, private.BADDBMM), self._handle_batched),
        }
        self.requested: dict = {}
        self._registered = ExitStack()
        #: Torch's hook is asking; torch is to multiply whatever it asks.
        self._asked = self._silent = False

    # -- installing

    def enter(self) -> None:
        """Register with DTensor: where torch has a hook for algorithms, multiplications there."""
        handled = dict(self._handled)
        if self.when == "auto" and private.answer_hook(self._answer):
            self.requested = {op: handled.pop(op) for op in (private.MM, private.ADDMM)}
        self._registered.enter_context(private.handling(handled))

    def leave(self) -> None:
        """Remove the handlers and close the contexts (collective)."""
        self._registered.close()
        self._silent, self.requested = True, {}
        self._forget()
        for context in self._contexts.values():
            if context is not None:
                context.close()
        self._contexts.clear()
        self.comm.Free()

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        return Counts(stock=dict(self._reasons), **self._tally)

    def context(self, mesh: DeviceMesh) -> Context | None:
        """The context of the ranks of a mesh (collective over them the first time).

        Parameters
        ----------
        mesh : DeviceMesh
            Of ranks of torch.distributed.

        Returns
        -------
        Context or None
            None on ranks that are not on the mesh.
        """
        ranks = tuple(mesh.mesh.flatten().tolist())
        if ranks not in self._contexts:
            self._contexts[ranks] = self._open_context(ranks)
        return self._contexts[ranks]

    def _open_context(self, ranks: tuple) -> Context | None:
        if self.comm.rank not in ranks:
            return None
        self._meet(ranks)
        group = self.comm.group.Incl(ranks)
        comm = self.comm.Create_group(group)
        group.Free()
        try:
            return init(comm, self.heap, **self.options)
        finally:
            comm.Free()

    def _meet(self, ranks: tuple) -> None:
        """Wait until all ranks of a mesh are here; end all of MPI if one is not in time."""
        others = [rank for rank in ranks if rank != self.comm.rank]
        tag, nothing = zlib.crc32(repr(ranks).encode()) & 0x7FFF, bytearray()
        waits = [self.comm.Irecv(nothing, rank, tag) for rank in others]
        sent = [self.comm.Isend(nothing, rank, tag) for rank in others]
        # the first rank that waits reports
        deadline = time.monotonic() + _PATIENCE_S + 0.5 * ranks.index(self.comm.rank)
        while not MPI.Request.Testall(waits + sent):
            if time.monotonic() > deadline:
                late = [rank for rank, wait in zip(others, waits) if not wait.Test()]
                end_all(
                    f"drbench.torch: rank {self.comm.rank} multiplies on ranks "
                    f"{', '.join(map(str, ranks))}, of which {', '.join(map(str, late))} did not "
                    f"follow within {_PATIENCE_S:g} s: all are ended. Multiply DTensors of the "
                    "same shapes and placements on every rank; where one is late, call "
                    "torch.distributed.barrier() first.\n",
                    CaseTimeout(""),
                )
            time.sleep(0.0005)

    # -- multiplications

    def decision(self, op: Any, args: tuple, kwargs: dict) -> DispatchDecision:
        """Decide who multiplies (not collective); the same for the same specs.

        Parameters
        ----------
        op : OpOverload
            aten.mm or aten.addmm.
        args, kwargs : tuple of DTensor, dict
            Of the call.

        Returns
        -------
        DispatchDecision
        """
        placements = wanted()
        specs = [private.spec_of(arg) for arg in args]
        # comparing specs is slower than multiplying; their hash shows whether one was changed
        known = (op, placements, *map(id, specs), *map(hash, specs))
        entry = self._known.get(known)
        if entry is not None:
            return entry[0]
        key = (op, placements, *specs)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._forget()
            decision = decide(
                op, args, kwargs, placements, self.when, self.comm.size, self.in_place
            )
            self._decisions[key] = decision
        if len(self._known) >= _MOST_DECISIONS:
            self._known.clear()
        self._known[known] = decision, specs
        return decision

    def _forget(self) -> None:
        for cache in (self._known, self._decisions, self._multiplications):
            cache.clear()

    def multiplication(
        self, decision: DispatchDecision, args: tuple
    ) -> DTensorMultiplication | None:
        """The multiplication of a decision (collective over the mesh, the first time).

        Parameters
        ----------
        decision : DispatchDecision
            For drbench.
        args : tuple
            Of the call.

        Returns
        -------
        DTensorMultiplication or None
            None on ranks that are not on the mesh.
        """
        multiplication = self._multiplications.get(id(decision))
        if multiplication is None:
            a, b = args[-2:]
            context = self.context(a.device_mesh)
            if context is None:
                return None
            shape = (a.shape[0], b.shape[1], a.shape[1])
            multiplication = DTensorMultiplication(context, shape, decision.layouts, TYPES[a.dtype])
            self._multiplications[id(decision)] = (
                multiplication  # decisions are kept: ids stay unique
            )
        return multiplication

    def multiply(self, op: Any, args: tuple, kwargs: dict) -> Any:
        """The handler of mm and addmm (collective over the mesh).

        Parameters
        ----------
        op : OpOverload
            aten.mm or aten.addmm.
        args, kwargs : tuple, dict
            Of the call.

        Returns
        -------
        DTensor
            The result, by drbench or by stock torch.
        """
        if not all(isinstance(arg, DTensor) for arg in args):
            return self._stock(op, args, kwargs, "an operand is no DTensor")
        if torch.compiler.is_compiling() or any(map(private.is_traced, args)):
            return self._stock(op, args, kwargs, "torch.compile traces the program")
        a, b = args[-2:]
        decision = self.decision(op, args, kwargs)
        memory = map(private.other_memory, map(private.local_of, args))
        if other := next(filter(None, memory), ""):
            why = f"local tensors ({other}) are multiplied by torch alone"
            return self._stock(op, args, kwargs, why, decision.out)
        if decision.local and not private.watched():  # as stock multiplies, without its dispatch
            self._reasons[decision.why] += 1
            return private.wrapped(op(private.local_of(a), private.local_of(b)), decision.out)
        if not decision.layouts:
            return self._stock(op, args, kwargs, decision.why, decision.out)
        multiplication = self.multiplication(decision, args)
        if multiplication is None:  # not on the mesh: the same result as from stock
            return private.wrapped(torch.empty(0, dtype=a.dtype), decision.out)
        refusal = decision.why if decision.who == "stock" else ""
        if not refusal and private.watched():
            refusal = "the program observes what torch redistributes"
        alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1) if op is private.ADDMM else 0
        moves = beta != 0 and tuple(args[0].placements) != decision.bias[0]
        try:
            if refusal or moves or multiplication.reduces:
                multiplication.agree(refusal, beta != 0)
            start = _bias(args[0], multiplication.c, decision) if beta != 0 else None
            operands = private.local_of(a), private.local_of(b)
            local = multiplication(operands, start, alpha, beta, self._tally)
        except Declined as error:
            self._tally["declined"] += 1
            return self._stock(op, args, kwargs, str(error), decision.out)
        self._tally["drbench"] += 1
        return private.wrapped(local, decision.out)

    def _answer(self, op: Any, args: tuple, kwargs: dict) -> Any:
        """What torch's hook is answered: a result by drbench, or None."""
        if self._silent:
            return None
        self._asked = True
        try:
            return self.multiply(op, args, kwargs)
        finally:
            self._asked = False

    def _stock(self, op: Any, args: tuple, kwargs: dict, why: str, spec: Any = None) -> Any:
        """The result of stock torch, in the requested placements; None if torch's hook asks."""
        self._reasons[why] += 1
        if self._asked:
            return None
        table = private.handlers()
        table.pop(op, None)  # another thread may be here, too
        self._silent = True
        try:
            result = op(*args, **kwargs)
        finally:
            table[op] = self._handled[op]
            self._silent = False
        if spec is not None and result.placements != spec.placements:
            result = private.redistributed(result, spec)
        return result

    def _handle_batched(self, op: Any, args: tuple, kwargs: dict) -> Any:
        return self._stock(op, args, kwargs, "batched multiplications are done by torch alone")

    def _handle_undivided(self, op: Any, args: tuple, kwargs: dict) -> Any:
        """The handler of operations that inference mode does not decompose into mm and addmm."""
        return op.decompose(*args, **kwargs)


def _bias(term: DTensor, c: Spec, decision: DispatchDecision) -> Callable[[torch.Tensor], Any]:
    """A function that fills the local tensor of C with addmm's first argument, in C's layout."""
    placements, alike = decision.bias
    if tuple(term.placements) != placements:  # on all ranks
        term = term.redistribute(placements=placements)
    pairs = zip(term.placements, decision.out.placements, term.device_mesh.get_coordinate())
    if any(at and of_c.is_partial() and not mine.is_partial() for mine, of_c, at in pairs):
        return lambda local: local.zero_()  # the first term of the pending sum has it all
    part = private.local_of(term)
    if alike:
        return lambda local: local.copy_(part.expand(local.shape))
    part = part.expand(c.shape)

    def start(local: torch.Tensor) -> None:
        for there, here in c.fragments():
            local[here].copy_(part[there])

    return start


def installed() -> Installed:
    """The object that :func:`install` has made.

    Raises
    ------
    UsageError
        If drbench is not installed.
    """
    handler = private.handlers().get(private.BMM)
    owner = getattr(handler, "__self__", None)
    if not isinstance(owner, Installed):
        raise UsageError("drbench.torch is not installed. Call drbench.torch.install() first.")
    return owner
