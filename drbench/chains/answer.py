"""The sharding of a chain on a machine model, as ``drbench chain`` chooses it: rows, JSON, and the
text of a script."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from drbench.chains.model.choose import EFFORT_S, ShardingSearch, Solution, choose
from drbench.chains.model.costs import ONE_LAYER, LayoutCosts, Training
from drbench.chains.model.description import Chain
from drbench.chains.model.mesh import DeviceMesh, meshes
from drbench.chains.model.programs import EVERYTHING
from drbench.chains.model.transformers import text_of
from drbench.chains.order import Asked, dtype_of, keys_of, order_of
from drbench.chains.script import script_text
from drbench.errors import UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.intervals import alternatives, combine_errors, residuals_of
from drbench.launch.models.predict import ranks_on
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.transport import parse_transport


def seen(machine: Machine, dtype: str, transport: str) -> Machine:
    """The machine as a chain uses it, with its element type and its transport.

    Raises
    ------
    UsageError
        If the machine has no model of the transport.
    UnsupportedError
        If it has no peak for the element type.
    """
    return machine.for_dtype(dtype).for_transport(parse_transport(transport))


class ShardingRow(NamedTuple):
    """A chain with layouts: its name (``chosen`` for the choice) and the interval of its time; None
    if the interval is unknown."""

    name: str
    solution: Solution
    low_s: float | None
    high_s: float | None

    def to_dict(self) -> dict[str, Any]:
        """The row for a table or for JSON."""
        solution = self.solution
        return {
            "name": solution.name,
            "time_s": solution.time_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "mesh": str(solution.mesh),
            "memory_bytes": solution.memory_bytes,
            "memory": solution.memory,
            "layouts": {x: solution.mesh.text(layout) for x, layout in solution.layouts.items()},
            "how": {
                matmul.c: solution.describe(matmul) for matmul in solution.chain.multiplications
            },
            "bytes": {name: count for name, count in solution.counters.items() if count},
        }


@dataclass(frozen=True)
class ShardingChoice:
    """What :func:`choose_sharding` found.

    Attributes
    ----------
    asked : Asked
        The chain: its name and its text.
    search : ShardingSearch
        All that is known of the search, such as ``search.refused`` and ``search.gap``.
    ranking : list of ShardingRow
        The best first, then each known scheme that is possible, the fastest first.
    """

    asked: Asked
    search: ShardingSearch
    ranking: list[ShardingRow]

    @property
    def time_s(self) -> float:
        """Predicted seconds of one layer in the best sharding."""
        return self.search.best.time_s

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Seconds between which a run is expected; None where nothing is known of it."""
        low_s, high_s = self.ranking[0][2:]
        return None if low_s is None else (low_s, high_s)

    @property
    def mesh(self) -> str:
        """The mesh of the best sharding, as ``dp=8,tp=8``."""
        return str(self.search.best.mesh)

    @property
    def layouts(self) -> dict[str, str]:
        """By the first of all matrices that share a layout: the best layout, as
        ``R,S(1)@8x8``."""
        return self.ranking[0].to_dict()["layouts"]

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of a rank by what they are: weights, gradients, optimizer, activations, buffers."""
        return self.search.best.memory

    @property
    def decided(self) -> bool:
        """Whether no other chain is faster by more than the interval of the choice, by the
        bounds."""
        first = self.ranking[0]
        low_s = first.low_s or first.solution.time_s
        return self.search.gap <= 1 - low_s / first.solution.time_s

    @property
    def within(self) -> list[str]:
        """Known schemes that may be as fast as the choice: their times are in its interval."""
        first, *others = self.ranking
        most_s = first.high_s or 0.0
        return [row.name for row in others if row.solution.time_s <= most_s]

    def row(self, name: str) -> ShardingRow:
        """The row of a name.

        Parameters
        ----------
        name : str
            ``chosen``, or a known scheme, with ``x`` for ``×``.

        Raises
        ------
        UsageError
            If there is none.
        """
        plain = lambda text: text.lower().replace("×", "x").replace(" ", "")
        for row in self.ranking:
            if plain(row.name) == plain(name):
                return row
        raise UsageError(
            f"--placements {name!r}: there are {', '.join(row.name for row in self.ranking)}."
        )

    @property
    def shown(self) -> list[ShardingRow]:
        """The ranking, in which a known scheme that is the best is once, by its own name."""
        return self.ranking[self.search.best.name != "chosen" :]

    def rows(self) -> list[dict[str, Any]]:
        """What the command's table shows, with layouts and bytes, for ``pandas.DataFrame``."""
        return [row.to_dict() for row in self.shown]

    def script(self, name: str = "chosen") -> str:
        """A script for PyTorch with the placements of a row, as ``--placements`` prints it.

        Parameters
        ----------
        name : str
            ``chosen``, or a known scheme as ``"TP x FSDP"``.
        """
        return script_text(self.row(name).solution)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as ``--json`` prints it."""
        search, chosen = self.search, self.search.best
        best, *others = (row.to_dict() for row in self.ranking)
        return {
            "chain": chosen.chain.name,
            "ranks": chosen.mesh.ranks,
            "dtype": chosen.costs.dtype,
            "flops": chosen.chain.flops,
            "training": chosen.costs.training._asdict(),
            "best": best,
            "contenders": others,
            "within_interval": self.within,
            "refused": search.refused,
            "bound_s": search.least_s,
            "gap": search.gap,
            "decided": self.decided,
            "bounded": search.counts[0],
            "simulated": search.counts[1],
            "finished": search.finished,
            "measured": None,
        }

    def __str__(self) -> str:
        from .show import text_of_choice  # Rich

        return text_of_choice(self)


def choose_sharding(
    chain: str,
    machine: str,
    ranks: int | None = None,
    *,
    tokens: int | None = None,
    backward: bool = False,
    dtype: str | None = None,
    mesh: str | None = None,
    fix: Sequence[str] = (),
    memory: float | None = None,
    layers: int = 1,
    micro_batches: int = 1,
    recompute: bool = False,
    transport: str = "auto",
    effort: float = EFFORT_S,
) -> ShardingChoice:
    """Choose the sharding of a transformer layer or of another chain of multiplications, and
    compare it with published ones, as ``drbench chain`` does.

    Parameters
    ----------
    chain : str
        Part of a transformer as ``"llama3-70b:mlp"`` (``drbench list chains``), the part of a
        config.json as ``"./config.json:mlp"``, or the path of a text file with a chain.
    machine : str
        Name of a machine model (``drbench list machines``), or the path of a machine file.
    ranks : int, optional
        How many multiply; by default those of the mesh, or one on each device of the machine.
    tokens : int, optional
        Rows of X: tokens of all sequences; by default one sequence of the model, or as in the file.
    backward : bool
        Include the gradients of input and weights.
    dtype : str, optional
        Element type of all matrices; by default bfloat16 where the machine has it, else float32.
    mesh : str, optional
        Mesh of ranks, the last dimension inside a node, as ``"dp=8,tp=8"``; by default the best of
        one and two dimensions.
    fix : sequence of str
        Layouts of matrices, each ``"NAME=LAYOUT"``.
    memory : float, optional
        Most bytes of a training step per rank; by default the memory of the device.
    layers : int
        Layers of the model, for its memory; the time is that of one.
    micro_batches : int
        Passes whose gradients are added up before data-parallel ranks reduce them.
    recompute : bool
        Keep only the input of each layer, and run the forward pass again in the backward pass.
    transport : str
        How data moves (``drbench list transports``).
    effort : float
        CPU seconds of the search; published shardings are always simulated.

    Returns
    -------
    ShardingChoice
        The best sharding, published ones, their times, layouts and memory.

    Raises
    ------
    UsageError
        If the chain, the machine or a layout makes no sense.
    UnsupportedError, OutOfMemory
        If the element type cannot be predicted, or nothing fits into memory.

    Examples
    --------
    >>> from drbench.chains import choose_sharding
    >>> choice = choose_sharding("llama3-8b:mlp", "h100x8", mesh="tp=8", effort=0)
    >>> [row["name"] for row in choice.rows()], choice.layouts["W1"]
    (['Megatron TP', 'TP + SP', 'FSDP'], 'S(1)@8')
    >>> print(str(choice).partition(";")[0])
    Best found: Megatron TP on tp=8, 826 µs (716-1000) predicted, 44 % of peak
    """
    if min(layers, micro_batches) < 1 or (micro_batches > 1 or recompute) and not backward:
        raise UsageError(
            "layers and micro_batches must be at least 1, and micro_batches and recompute belong "
            f"to backward=True; got {layers=}, {micro_batches=}, {recompute=}, {backward=}."
        )
    request = read_request(chain, machine, ranks, mesh, tokens, backward, dtype)
    training = Training(layers, micro_batches, recompute)
    return answer(*request, transport, training, fix, limit=memory, effort_s=effort)


def read_request(
    name: str,
    machine: str,
    ranks: int | None,
    mesh: str | None,
    tokens: int | None,
    backward: bool,
    dtype: str | None,
    run: bool = False,
) -> tuple[Asked, Machine, int | DeviceMesh, str]:
    """The chain, the machine, the number of ranks or their mesh, and the element type, from what a
    user gives; ``run`` if the chain is run here."""
    asked = Asked(name, text_of(name, tokens), backward)
    asked.chain()
    grid = DeviceMesh.read(mesh) if mesh else None
    model = find_machine(machine)
    ranks = ranks_on(model, ranks or (grid.ranks if grid else None))
    if grid and grid.ranks != ranks:
        raise UsageError(f"--mesh {grid} has {grid.ranks} ranks, got -p {ranks}. Leave -p out.")
    return asked, model, grid or ranks, dtype_of(dtype, model, run)


def answer(
    asked: Asked,
    machine: Machine,
    ranks: int | DeviceMesh,
    dtype: str = "float32",
    transport: str = "auto",
    training: Training = ONE_LAYER,
    fix: Sequence[str] = (),
    programs: Collection[str] = EVERYTHING,
    limit: float | None = None,
    effort_s: float = EFFORT_S,
    progress: Callable[[str], None] = lambda line: None,
) -> ShardingChoice:
    """Choose the layouts of a chain, and compare them with published ones, with intervals.

    Parameters
    ----------
    asked : Asked
        The chain.
    machine : Machine
        As in its file.
    ranks : int or DeviceMesh
        A number of ranks, whose meshes are all tried; or a mesh.
    dtype, transport : str
        Element type of all matrices, and how data moves.
    fix : sequence of str
        ``NAME=LAYOUT`` of matrices.
    training, programs
        As of :class:`drbench.chains.model.costs.LayoutCosts`.
    limit, effort_s, progress
        As of :func:`drbench.chains.model.choose.choose`.
    """
    chain, of = asked.chain(), seen(machine, dtype, transport)
    is_mesh = isinstance(ranks, DeviceMesh)
    tried = [ranks] if is_mesh else meshes(ranks, of.node_ranks or ranks, of.torus)
    costs = [LayoutCosts(of, mesh, dtype, training, programs) for mesh in tried]
    search = choose(chain, costs, fixed_of(chain, fix), limit, effort_s, progress)
    residuals, ranking = residuals_of(machine, transport), []
    others = [[seen(other, dtype, transport) for other in group] for group in alternatives(machine)]
    known = {"chosen": search.best} | {solution.name: solution for solution in search.contenders}
    for name, solution in known.items():
        # computed like those of single multiplications
        time_s = solution.time_s
        ends = combine_errors(residuals, time_s, map(solution.times_on, others)) or (None, None)
        ranking.append(ShardingRow(name, solution, *(end and time_s * end for end in ends)))
    return ShardingChoice(asked, search, ranking)


def fixed_of(chain: Chain, given: Sequence[str]) -> dict[str, str]:
    """The layouts of variables from ``NAME=LAYOUT`` of matrices.

    Raises
    ------
    UsageError
        If a matrix is unknown, or two that share a layout get different ones.
    """
    fixed: dict[str, str] = {}
    first: dict[str, str] = {}  # variable -> the matrix that gives its layout
    for text in given:
        name, _, layout = text.partition("=")
        if name not in chain.matrices or not layout:
            raise UsageError(
                f"--fix {text} names no matrix of the chain, which has "
                f"{', '.join(chain.matrices)}. Use NAME=LAYOUT."
            )
        variable = chain.variable(name)
        other = first.setdefault(variable, name)
        if fixed.setdefault(variable, layout) != layout:
            raise UsageError(
                f"--fix {text}: {name} shares the layout of {other}, {fixed[variable]}. Leave "
                "one out."
            )
    return fixed


def records_of(choice: ShardingChoice) -> list[Record]:
    """The simulated records of the choice and of each contender, with intervals."""
    machine = choice.search.best.costs.machine
    return [
        Record(
            **keys_of(order_of(solution, choice.asked, machine.name, "uniform"), "simulated")
            | {"case": name},
            arbitration=machine.arbitration,
            status="ok",
            best_s=solution.time_s,
            median_s=solution.time_s,
            median_low_s=low_s,
            median_high_s=high_s,
            samples_s=[solution.time_s],
            gflops=solution.chain.flops / solution.time_s / 1e9,
            pool_bytes=solution.memory_bytes,
            **solution.counters,
        )
        for name, solution, low_s, high_s in choice.ranking
    ]
