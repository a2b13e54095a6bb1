"""2.5-D SUMMA (Solomonik & Demmel, 2011): c replicas of all three matrices, each of which does its
share of k by SUMMA on a mesh of its own; the c partial results are then added up.

A replica moves 1/c of what SUMMA on its p/c chips would, for c times the memory; c = 1 is SUMMA,
and on p = c³ chips it is the 3-D algorithm.
"""

from drbench.options import Option
from drbench.partitions import divisors, intersect, most_replicas, part
from drbench.program.problem import Problem
from drbench.program.replicas import broadcast_replica, reduce_replicas
from drbench.program.steps import Fence, Steps

from .mesh import DATAFLOW, Mesh, mesh_layout, resolve_mesh
from .registry import Texts, algorithm
from .summa import PANEL, summa
from .universal.options import REPLICATE_RESULT

REPLICAS = Option(
    "replicas",
    int,
    least=1,
    help="replication factor c of A, B and C.",
    default_text="the largest c with c³ <= ranks",
    tried=lambda nprocs: divisors(nprocs)[1:],
)


def layout(m: int, n: int, k: int, nprocs: int, *, replicas: int | None = None, **options) -> Texts:
    """The layout of SUMMA on the near-square mesh of each replica."""
    return mesh_layout(m, n, k, nprocs, replicas=replicas or most_replicas(nprocs), **options)


def resolve(
    problem: Problem,
    in_place: bool = True,
    *,
    dataflow: str | None = None,
    replicas: int | None = None,
    panel: int | None = None,
    replicate_result: bool = False,
) -> dict:
    """Decide dataflow and replicas, by C where they are not given; refuse another layout."""
    c = problem.c.partition
    replicas = replicas or c.replicas
    mesh = f"{c.rows.parts}x{c.cols.parts}" if replicas == c.replicas else None
    return resolve_mesh(problem, "summa2.5d", dataflow, mesh, replicas) | {
        "replicas": replicas,
        "panel": panel,
        "replicate_result": replicate_result,
    }


@algorithm(
    "summa2.5d",
    options=(DATAFLOW, REPLICAS, PANEL, REPLICATE_RESULT),
    resolve=resolve,
    layout=layout,
)
def program(
    problem: Problem,
    rank: int,
    *,
    dataflow: str,
    mesh: str,
    replicas: int,
    panel: int | None = None,
    replicate_result: bool = False,
) -> Steps:
    """SUMMA in each replica on its share of k, then the replicas reduced (Solomonik & Demmel)."""
    chip = Mesh(problem, rank, mesh)
    if dataflow == "OS":  # one range of k, cut by the tiles of A and of B
        own = part(problem.k, chip.replica, replicas)
        share = lambda tile: intersect(tile, own)
    else:  # C[i, :] = Σ A[i, j] · B[j, :], C[:, j] likewise: a part of k of every tile of A and B
        share = lambda tile: [tile.start + end for end in part(tile.extent, chip.replica, replicas)]
    chip.a.col_ranges = [share(tile) for tile in chip.a.col_ranges]
    chip.b.row_ranges = [share(tile) for tile in chip.b.row_ranges]
    yield from summa(chip, dataflow, panel)  # C of this replica = its share of A · B
    if replicas > 1:
        yield Fence()
    yield from reduce_replicas(problem.c, rank)  # C of replica 0 += the others
    if replicate_result:
        yield from broadcast_replica(problem.c, rank)
