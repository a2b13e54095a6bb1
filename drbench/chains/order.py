"""The description of a chain: the request, and the order that ranks receive and carry out."""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from drbench.chains.model.choose import Solution
from drbench.chains.model.costs import Training
from drbench.chains.model.description import Chain, LocalMap, read
from drbench.chains.model.whole import Whole
from drbench.errors import UnsupportedError, UsageError
from drbench.launch.host.kernels import ONE_THREAD
from drbench.launch.host.mpi import run_ranks
from drbench.measure.record import Record
from drbench.model.machine import Machine


@dataclass(frozen=True)
class Asked:
    """A chain as requested: its name, its text, and whether gradients are included."""

    name: str
    text: str
    backward: bool = False
    whole: Whole | None = None  # the model of which it is a layer

    def chain(self) -> Chain:
        """The chain.

        Examples
        --------
        >>> Asked("mine", "X = input(8, 4)\\nW = weight(4, 2)\\nY = X @ W").chain().flops
        128
        """
        return read(self.text, self.name, backward=self.backward)


@dataclass(frozen=True)
class ChainOrder:
    """An order to ranks: a chain, its layouts, how each multiplication is computed (the layouts of
    A, B and C, and the stationary matrix), and how it is measured."""

    asked: Asked
    ranks: int
    dtype: str
    layouts: dict
    multiplications: dict
    fill: str
    seed: int = 0
    iters: int = 10
    budget_s: float = 10.0
    transport: str = "auto"
    machine: str | None = None
    training: dict = field(default_factory=dict)

    def text(self) -> str:
        """The order as JSON, for :meth:`read`.

        Examples
        --------
        >>> order = ChainOrder(Asked("mine", "X = …"), 2, "float64", {}, {}, "integer")
        >>> ChainOrder.read(order.text()) == order
        True
        """
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "ChainOrder":
        """The order of a text."""
        given = json.loads(text)
        return cls(Asked(**given.pop("asked")), **given)


def order_of(solution: Solution, asked: Asked, machine: str | None, fill: str, **how) -> ChainOrder:
    """The order to run a chain with layouts; ``how`` it is measured."""
    mesh = solution.mesh
    multiplications = {
        way.operation: [*map(mesh.text, way.inner), way.gemm.program.stationary]
        for way in solution.ways
    }
    return ChainOrder(
        replace(asked, whole=None),
        mesh.ranks,
        solution.costs.dtype,
        {name: mesh.text(layout) for name, layout in solution.layouts.items()},
        multiplications,
        fill,
        machine=machine,
        training=solution.costs.training._asdict(),
        **how,
    )


def run_order(order: ChainOrder) -> Record:
    """Start MPI ranks on this machine for an order, and return its record."""
    with TemporaryDirectory(prefix="drbench-chain-") as folder:
        path, answer = Path(folder, "order.json"), Path(folder, "record.json")
        path.write_text(order.text(), "utf-8")
        environ = os.environ | ONE_THREAD
        run_ranks(order.ranks, ["serve-chain", str(path), str(answer)], environ=environ)
        return Record.from_row(json.loads(answer.read_text("utf-8")))


def keys_of(order: ChainOrder, mode: str = "measured") -> dict:
    """The columns of the record that describe the request."""
    asked, chain = order.asked, order.asked.chain()
    layouts = ";".join(f"{name}={layout}" for name, layout in order.layouts.items())
    usual = Training()._asdict()
    training = "".join(f";{x}={y}" for x, y in order.training.items() if y != usual[x])
    return {
        "mode": mode,
        "label": order.machine,
        "machine": order.machine if mode == "simulated" else None,
        "algorithm": "chain",
        "m": chain.matrices["X"].rows,
        "preset": asked.name,
        "options": f"{layouts};backward={str(asked.backward).lower()}{training.lower()}",
        "dtype": order.dtype,
        "ranks": order.ranks,
        "transport": order.transport,
        "prefetch": 1,
        "fill": order.fill if mode == "measured" else None,
    }


#: Element types of chains: of all matrices.
DTYPES = "float32", "float64", "bfloat16", "float16", "float8"


def dtype_of(dtype: str | None, machine: Machine, run: bool) -> str:
    """The element type of a chain: the requested one; else bfloat16 if the machine has it and the
    chain is not run, or float32.

    Raises
    ------
    UnsupportedError
        If matrices of the type cannot be predicted, or run.
    """
    known = DTYPES[:3] if run else DTYPES
    if dtype is not None and dtype not in known:
        raise UnsupportedError(
            f"chains {'run' if run else 'are predicted'} in {', '.join(known)}, got {dtype}. Use "
            "one of them."
        )
    return dtype or ("bfloat16" if "bfloat16" in machine.peaks and not run else "float32")


#: Functions that map integers to integers.
_WHOLE = ("relu", "relu_grad", "add")


def fill_of(chain: Chain, asked: str | None, dtype: str) -> str:
    """The fill of a chain: the requested one, else integers if all their sums are exact.

    Elements of the inputs are -1, 0 or 1.

    Raises
    ------
    UsageError
        If integers are requested, but some sum of them may be inexact.

    Examples
    --------
    >>> text = "X = input(8, 16)\\nW = weight(16, 32)\\nY = X @ W\\nH = {}(Y)"
    >>> [fill_of(read(text.format(of), of), None, "float32") for of in ("relu", "gelu")]
    ['integer', 'uniform']
    """
    why = why_not_exact(chain, dtype)
    if asked == "integer" and why:
        raise UsageError(f"-o fill=integer: {why}. Use -o fill=uniform.")
    return asked or ("uniform" if why else "integer")


def why_not_exact(chain: Chain, dtype: str) -> str | None:
    """The reason why sums of integers may be rounded; None if they are exact."""
    limit = {"float32": 1 << 24, "float64": 1 << 53, "bfloat16": 1 << 8}[dtype]
    most = {name: 1 for name, matrix in chain.matrices.items() if matrix.kind != "made"}
    for operation in chain.operations:
        if isinstance(operation, LocalMap):
            if operation.function.name not in _WHOLE:
                return f"results of {operation.function.name} are not integers"
            taken = [most[name] for name in operation.takes]
            most[operation.c] = sum(taken) if operation.function.name == "add" else taken[0]
        else:
            most[operation.c] = most[operation.a] * most[operation.b] * chain.extents(operation)[2]
        size = most[operation.c]
        if size >= limit:
            return f"elements of {operation.c} may be as large as {size}, which {dtype} rounds"
    return None
