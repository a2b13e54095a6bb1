"""The sharding of a chain on a machine model, as ``drbench chain`` chooses it: rows, JSON, and the
text of a script."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from drbench.chains.model.choose import EFFORT_S, ShardingSearch, Solution, choose
from drbench.chains.model.costs import ONE_LAYER, RECOMPUTED, LayoutCosts, Training
from drbench.chains.model.description import Chain
from drbench.chains.model.mesh import EXPERTS_DIM, DeviceMesh, meshes
from drbench.chains.model.programs import COLLECTIVES, EVERYTHING, PROGRAMS
from drbench.chains.model.published import CONTENDERS, contender
from drbench.chains.model.search import search as search_layouts
from drbench.chains.model.transformers import text_of
from drbench.chains.model.whole import Whole
from drbench.chains.order import Asked, dtype_of, keys_of, order_of
from drbench.chains.script import script_text
from drbench.errors import UsageError, shown
from drbench.launch.cases.case import FIELDS
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.intervals import alternatives, combine_errors, residuals_of
from drbench.launch.models.predict import ranks_on
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.transport import parse_transport

if TYPE_CHECKING:
    import pandas


#: What rows of single operations of a chain have in the column ``algorithm``.
OPERATION = "chain operation"


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

    @property
    def ends_s(self) -> tuple[float | None, ...]:
        """The ends of the interval of a layer's time, or of the whole model's in proportion."""
        share = self.solution.total_s / self.solution.time_s
        return tuple(end and end * share for end in (self.low_s, self.high_s))

    def to_dict(self) -> dict[str, Any]:
        """The row for a table or for JSON."""
        solution = self.solution
        return {
            "name": solution.name,
            "time_s": solution.time_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "mesh": str(solution.mesh),
            "mfu": solution.mfu,
            "total_s": solution.total_s,
            "step_s": solution.step if solution.costs.whole else None,
            "parts_s": solution.parts,
            "operations": [row._asdict() for row in solution.operations],
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
    """What :func:`drbench.chain` found; in a notebook its table is shown.

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
    def best(self) -> ShardingRow:
        """The best sharding, with ``.solution`` and the interval of its time."""
        return self.shown[0]

    @property
    def table(self) -> "pandas.DataFrame":
        """What the command's table shows: a row for each sharding, the best first; the time is that
        of a layer, or of a step of a whole model."""
        import pandas

        columns = "name mesh total_s low_s high_s memory_bytes mfu".split()
        table = pandas.DataFrame(self.rows())[columns].rename(columns={"total_s": "time_s"})
        ends = [row.ends_s for row in self.shown]
        table[["low_s", "high_s"]] = pandas.DataFrame(ends, dtype=float)
        return table

    @property
    def operations(self) -> "pandas.DataFrame":
        """The time of each operation of a layer in the best sharding: ``compute_s`` and
        ``exposed_s`` (of communication) add up to its time, with what is computed again."""
        import pandas

        return pandas.DataFrame(self.best.solution.operations)

    def _repr_html_(self) -> str:
        from html import escape

        from .show import headlines

        lines = "".join(f"<p>{escape(line)}</p>" for line in headlines(self))
        return lines + self.table.to_html(index=False)

    @property
    def time_s(self) -> float:
        """Predicted seconds of one layer in the best sharding; of a whole model those of a step."""
        return self.search.best.total_s

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Seconds between which a run is expected; None where nothing is known of it."""
        ends = self.ranking[0].ends_s
        return None if ends[0] is None else ends

    @property
    def mesh(self) -> str:
        """The mesh of the best sharding, as ``dp=8,tp=8``."""
        return str(self.search.best.mesh)

    @property
    def layouts(self) -> dict[str, str]:
        """The best layouts, as ``R,S(1)@8x8``, each by the first of all matrices that share
        it."""
        return self.ranking[0].to_dict()["layouts"]

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of a rank by what they are (weights, gradients, optimizer, activations, …)."""
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
        """Known schemes that may be as fast as the choice, because their times are in its
        interval."""
        first, *others = self.ranking
        most_s = first.ends_s[1] or 0.0
        return [row.name for row in others if row.solution.total_s <= most_s]

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
        solution = self.row(name).solution
        alone = without_overlap(solution)
        return script_text(alone or solution, solution if alone else None)

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
            "refused": {name: refusal.why for name, refusal in search.refused.items()},
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


def chain(
    preset: str,
    machine: str,
    ranks: int | None = None,
    *,
    tokens: int | None = None,
    sequence: int | None = None,
    context: int | None = None,
    backward: bool = False,
    dtype: str | None = None,
    mesh: str | None = None,
    fix: Sequence[str] = (),
    programs: str = "all",
    memory: float | None = None,
    layers: int | None = None,
    micro_batches: int = 1,
    recompute: str = "none",
    zero: int = 0,
    gradients: str | None = None,
    attention: str = "fused",
    transport: str = "auto",
    effort: float = EFFORT_S,
) -> ShardingChoice:
    """Choose the sharding of a transformer layer or of another chain of multiplications, and
    compare it with published ones, as ``drbench chain`` does.

    Parameters
    ----------
    preset : str
        Part of a transformer as ``"llama3-70b:mlp"`` (``drbench list chains``), the part of a
        config.json as ``"./config.json:mlp"``, or the path of a text file with a chain. The
        part ``model`` is the whole model: its memory, and a step with embedding, head, norms and
        optimizer.
    machine : str
        Name of a machine model (``drbench list machines``), or the path of a machine file.
    ranks : int, optional
        How many multiply; by default those of the mesh, or one on each device of the machine.
    tokens : int, optional
        Rows of X: tokens of all sequences; by default one sequence of the model, or as in the file.
        With ``context`` the number of sequences.
    sequence : int, optional
        Tokens of a sequence; by default those of the model, at most 8192.
    context : int, optional
        Decode: one new token of each sequence, with a cache of so many tokens.
    backward : bool
        Include the gradients of input and weights.
    dtype : str, optional
        Element type of all matrices; by default bfloat16 where the machine has it, else float32.
        With float8 matrices are stored in bfloat16, and operands are converted before they are
        sent and multiplied.
    mesh : str, optional
        Mesh of ranks, the last dimension inside a node, as ``"dp=8,tp=8"``; with experts also
        ``ep``. By default the best of one and two dimensions.
    fix : sequence of str
        Layouts of matrices, each ``"NAME=LAYOUT"``.
    programs : str
        What the framework has: ``nccl``, collectives alone; ``torch`` or ``te``, also asynchronous
        tensor parallelism, as PyTorch and Transformer Engine have it; ``all``, all programs that
        drbench knows.
    memory : float, optional
        Most bytes of a training step per rank; by default the memory of the device.
    layers : int, optional
        Layers of the model, for its memory; the time is that of one. By default 1.
    micro_batches : int
        Passes whose gradients are added up before data-parallel ranks reduce them.
    recompute : str
        What the backward pass computes again: ``none``, ``attention`` (scores that are not fused),
        ``selective`` (every second GEMM, and functions), or ``full`` (all but the input).
    zero : int
        1: ranks with copies of a weight share its optimizer state, 2: and its gradient.
    gradients : str, optional
        Element type in which gradients of weights are stored and reduced; by default that of the
        weights.
    attention : str
        ``unfused``: scores are written to memory even where a fused kernel was measured.
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
    >>> import drbench
    >>> choice = drbench.chain("llama3-8b:mlp", "h100x8", mesh="tp=8", programs="nccl", effort=0)
    >>> [row["name"] for row in choice.rows()], choice.layouts["W1"]
    (['Megatron TP', 'TP + SP', 'FSDP'], 'S(1)@8')
    >>> print(str(choice).partition(";")[0])
    Best found: Megatron TP on tp=8, 826 µs (716-1000) predicted, MFU 44 %
    """
    given = {
        "micro_batches": micro_batches > 1,
        "recompute": recompute != "none",
        "zero": zero > 0,
        "gradients": gradients is not None,
    }
    if not backward and any(given.values()):
        names = " and ".join(name for name, is_given in given.items() if is_given)
        raise UsageError(f"{names} belong to backward=True, got backward=False. Add it.")
    counts = {"tokens": tokens, "sequence": sequence, "context": context, "ranks": ranks}
    counts |= {"layers": layers, "micro_batches": micro_batches}
    tokens, sequence, context, ranks, layers, micro_batches = (
        None if value is None else read_size(name, value) for name, value in counts.items()
    )
    texts = {"preset": preset, "machine": machine, "transport": transport, "mesh": mesh or ""}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{name} must be a text, got {shown(value)}.")
    fix = [fix] if isinstance(fix, str) else fix
    if memory is not None:
        memory = read_size("memory", int(memory) if isinstance(memory, float) else memory, "pool")
    if not effort >= 0:
        raise UsageError(f"effort must be CPU seconds, 0 or more, got {effort}.")
    request = read_request(
        preset, machine, ranks, mesh, tokens, backward, dtype, sequence=sequence, context=context
    )
    training = read_training(
        request[0].whole, layers, micro_batches, recompute, zero, gradients, attention
    )
    if programs not in PROGRAMS:
        raise UsageError(f"programs must be one of {', '.join(PROGRAMS)}, got {programs!r}.")
    return answer(
        *request, transport, training, fix, PROGRAMS[programs], limit=memory, effort_s=effort
    )


def read_size(name: str, value: Any, like: str = "m") -> int:
    """A size that a user gives as an integer or as a text such as ``"8Ki"``; ``like`` the field of
    a case with the same unit.

    Raises
    ------
    UsageError
        If it is none.

    Examples
    --------
    >>> read_size("tokens", "8Ki"), read_size("memory", "40GiB", "pool")
    (8192, 42949672960)
    """
    try:
        return FIELDS[like].read(value)
    except UsageError as error:
        raise UsageError(f"{name} {error}") from None


def read_training(
    whole: Whole | None,
    layers: int | None,
    micro_batches: int,
    recompute: str,
    zero: int,
    gradients: str | None,
    attention: str,
) -> Training:
    """The training step of what a user gives.

    Raises
    ------
    UsageError
        If a value is none of its choices.
    """
    choices = {
        "recompute": (recompute, tuple(RECOMPUTED)),
        "zero": (zero, (0, 1, 2)),
        "gradients": (gradients, (None, "float32", "bfloat16", "float16")),
        "attention": (attention, ("fused", "unfused")),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            more = " FSDP is ZeRO-3." if name == "zero" else ""
            raise UsageError(
                f"{name} must be one of {', '.join(map(str, known))}, got {value!r}.{more}"
            )
    if whole and layers is not None:
        raise UsageError(f"a whole model has its own {whole.layers} layers. Leave layers out.")
    layers = whole.layers if whole else 1 if layers is None else layers
    if min(layers, micro_batches) < 1:
        raise UsageError(
            f"layers and micro_batches must be at least 1, got {layers} and {micro_batches}."
        )
    unfused = attention == "unfused"
    return Training(layers, micro_batches, recompute, zero, gradients or "", unfused)


def without_overlap(solution: Solution) -> Solution | None:
    """The same layouts with collectives alone, as a script of PyTorch runs them; None if the
    programs of a solution do not overlap."""
    costs, chain = solution.costs, solution.chain
    if all(program.name in (*COLLECTIVES, "local") for program in solution.programs):
        return None
    plain = LayoutCosts(costs.machine, costs.mesh, costs.dtype, costs.training, COLLECTIVES)
    domains, stationary = {name: [layout] for name, layout in solution.layouts.items()}, None
    if solution.name in CONTENDERS:
        _, stationary = contender(chain, costs.mesh, solution.name, overlap=False)
    optimum = search_layouts(domains, plain.factors(chain, domains, stationary))
    if optimum is None:
        return None
    alone = Solution.of(solution.name, chain, plain, optimum.label)
    for program in alone.programs:
        plain.simulate(program)
    return alone


def read_request(
    name: str,
    machine: str,
    ranks: int | None,
    mesh: str | None,
    tokens: int | None,
    backward: bool,
    dtype: str | None,
    run: bool = False,
    sequence: int | None = None,
    context: int | None = None,
) -> tuple[Asked, Machine, int | DeviceMesh, str]:
    """The chain, the machine, the number of ranks or their mesh, and the element type, from what a
    user gives; ``run`` if the chain is run here."""
    lengths, (model, _, part) = (tokens, sequence, context), name.rpartition(":")
    text = text_of(name, *lengths)
    whole = Whole.of(model, *lengths) if part == "model" else None
    asked = Asked(name, text, backward, whole)
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
    costs = costs_of(asked, of, ranks, dtype, training, programs)
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


def costs_of(
    asked: Asked,
    machine: Machine,
    ranks: int | DeviceMesh,
    dtype: str,
    training: Training,
    programs: Collection[str],
) -> list[LayoutCosts]:
    """The costs on a mesh, or on each mesh to try of a number of ranks.

    Raises
    ------
    UsageError
        If a mesh shares experts that the chain does not have.
    """
    experts = asked.chain().experts
    if isinstance(ranks, DeviceMesh) and EXPERTS_DIM in ranks.names and not experts:
        raise UsageError(
            f"--mesh {ranks}: {asked.name} has no experts for {EXPERTS_DIM}. Use dp or tp."
        )
    tried = [ranks]
    if not isinstance(ranks, DeviceMesh):
        shared = experts if "dispatch" in programs else 0
        tried = meshes(ranks, machine.node_ranks or ranks, machine.torus, shared)
    return [
        LayoutCosts(machine, mesh, dtype, training, programs, instead, asked.whole)
        for mesh in tried
        for instead in (None, *repeat_heads(asked, mesh, programs))
    ]


#: The most ranks on which :func:`find_fits` tries.
_MOST_FITTED = 4096


def find_fits(
    asked: Asked,
    machine: Machine,
    dtype: str,
    transport: str = "auto",
    training: Training = ONE_LAYER,
    limit: float | None = None,
) -> tuple[list[Solution], dict[str, str]]:
    """Each known scheme on the fewest ranks, of 1, 2, 4, …, where it fits into the memory of a
    rank, the fewest ranks first; and why others do not fit.

    Parameters
    ----------
    asked, machine, dtype, transport, training
        As of :func:`answer`.
    limit : float, optional
        Bytes of a rank.
    """
    of, fits, refused = seen(machine, dtype, transport), {}, {}
    limit, ranks = min(limit or of.memory_bytes, of.memory_bytes), 1
    while ranks <= (machine.devices or _MOST_FITTED) and (ranks == 1 or refused):
        costs = costs_of(asked, of, ranks, dtype, training, COLLECTIVES)
        search = ShardingSearch(asked.chain(), costs, limit, {}, print)
        for on_mesh in costs:
            chain = on_mesh.instead or asked.chain()
            search.simulate_contenders(on_mesh, on_mesh.domains(chain))
        for solution in sorted(search.contenders, key=lambda solution: solution.memory_bytes):
            fits.setdefault(solution.name, solution)
        for name, refusal in search.refused.items():
            kinds = refused.setdefault(name, {})
            kinds[refusal.kind] = min(refusal, kinds.get(refusal.kind, refusal))
        refused = {name: kinds for name, kinds in refused.items() if name not in fits}
        ranks *= 2
    why = {  # the mesh has another shape: only if there is no other reason
        name: "; ".join(kinds[x].why for x in sorted(kinds)[:2] if x < 2 or len(kinds) == 1)
        for name, kinds in refused.items()
    }
    return [*fits.values()], why


def repeat_heads(asked: Asked, mesh: DeviceMesh, programs: Collection[str]) -> Iterator[Chain]:
    """The chain with as many key/value heads as ranks of the last dimension, if it has fewer: each
    rank stores those that its query heads need, as Megatron and vLLM do.

    Examples
    --------
    >>> asked = Asked("mine", text_of("llama3-8b:attention", 64))
    >>> (chain,) = repeat_heads(asked, DeviceMesh.read("tp=16"), COLLECTIVES)
    >>> asked.chain().matrices["Wqkv"].cols, chain.matrices["Wqkv"].cols
    (6144, 8192)
    """
    parts, text = mesh.extents[-1], asked.text
    for operation in asked.chain().operations:
        of = getattr(operation, "function", None)
        if of and of.name == "attention" and mesh.names[-1] != EXPERTS_DIM:
            taken = operation.takes[0]
            cols = asked.chain().matrices[taken].cols
            heads = cols // of.takes[0]
            shared, left = divmod(heads * of.heads, parts)
            if parts <= heads or parts % heads or left or "read" in programs:
                continue
            matmuls = asked.chain().multiplications
            weight = next(matmul.b for matmul in matmuls if matmul.c == taken)
            wider = f"{parts} * {(shared + 2) * of.head_dim}"
            text = re.sub(rf"(?m)^(\s*{weight}\s*=\s*weight\([^,]+,)[^,)]+", rf"\1 {wider}", text)
            call = rf"(?m)^(\s*{operation.c}\s*=.*\bkv_heads=)[^,)]+"
            text = re.sub(call, rf"\g<1>{parts}", text)
    if text != asked.text:
        yield replace(asked, text=text).chain()


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
            if other == name:
                raise UsageError(
                    f"--fix {text}: {name} has {fixed[variable]} already. Leave one out."
                )
            raise UsageError(
                f"--fix {text}: {name} shares the layout of {other}, {fixed[variable]}. Leave "
                "one out."
            )
    return fixed


def records_of(choice: ShardingChoice) -> list[Record]:
    """The simulated records of the choice and of each contender, with intervals, and after each
    those of its operations."""
    machine, records = choice.search.best.costs.machine, []
    for name, solution, low_s, high_s in choice.ranking:
        keys = keys_of(order_of(solution, choice.asked, machine.name, "uniform"), "simulated")
        of = keys | {"case": name, "arbitration": machine.arbitration, "status": "ok"}
        records.append(
            Record(
                **of,
                best_s=solution.time_s,
                median_s=solution.time_s,
                median_low_s=low_s,
                median_high_s=high_s,
                samples_s=[solution.time_s],
                gflops=solution.chain.flops / solution.time_s / 1e9,
                pool_bytes=solution.memory_bytes,
                **solution.counters,
            )
        )
        for row in solution.operations:
            if time_s := row.compute_s + row.exposed_s:
                names = f"operation={row.operation};pass={row.direction};kind={row.kind}"
                names += f";mesh={solution.mesh}"
                own = {"algorithm": OPERATION, "options": names.replace(" = ", ": ")}
                records.append(
                    Record(
                        **of | own,
                        best_s=time_s,
                        median_s=time_s,
                        samples_s=[time_s],
                        phase_gemm_s=row.compute_s,
                        phase_collective_wait_s=row.exposed_s,
                        effective_communication_s=row.exposed_s + row.hidden_s,
                        collective_bytes=row.received_bytes,
                    )
                )
    return records
