"""One case of a peer under MPI: the same fill, clock, repeats, roof, verification and record as a
case of ours."""

import resource
from contextlib import nullcontext

import threadpoolctl
from mpi4py import MPI

from drbench.common import PHASES, Clock
from drbench.errors import MissingError, UsageError
from drbench.host.fill import Fill
from drbench.host.topology import Topology
from drbench.measure.record import HEADER, Record
from drbench.measure.roof import HostWork
from drbench.measure.verify import verify
from launch.cases.case import Case, refuse_our_options
from launch.host.memory import Need, check_memory
from launch.peers import Parts, Peer, get_peer, present

#: What a peer does not tell us.
_UNKNOWN = (
    "prefetch",
    "get",
    "progress",
    "pool_bytes",
    "steps",
    "plan_s",
    *(f"phase_{name}_s" for name in PHASES),
)


def run_peer(
    case: Case,
    comm: MPI.Comm,
    keys: dict,
    measure,
    topology: Topology | None = None,
    mem_limit: int | None = None,
) -> Record:
    """Run one case of a peer on all ranks of ``comm`` (collective).

    Parameters
    ----------
    measure : callable
        ``measure(case, problem, comm, job, clock, work, fill, baseline)`` -> measured columns; what
        cases of ours are measured with.
    topology, mem_limit
        As of :func:`launch.ranks.case.run_case`.

    Raises
    ------
    MissingError, UnsupportedError
        If the peer is not here, or refuses the case: the same on every rank.
    """
    peer = get_peer(case.algorithm)
    refuse_our_options(case)
    options = peer.pick(case.options)
    if peer.prepare is None:
        raise UsageError(
            f"{peer.name} is a program of its own: start it with drbench run -p {comm.size}, not "
            "under mpirun."
        )
    _everyone_has(peer, comm)
    problem = peer.problem(
        case.m, case.n, case.k, comm.size, case.a, case.b, case.c, case.dtype, **options
    )
    keys.update(
        dict.fromkeys(_UNKNOWN),
        transport=None,
        **{name: problem.operand(name).partition.text for name in "abc"},
    )
    fill, clock = Fill(case.fill, case.seed, case.k), Clock()
    with Topology(comm) if topology is None else nullcontext(topology) as topology:
        threads = case.threads or topology.cores_per_rank
        keys.update(threads=threads, nodes=topology.nodes)
        threadpoolctl.threadpool_limits(threads)
        check_memory(topology, Need.of(problem, comm.rank, 0, case.roof), None, mem_limit)
        job = peer.prepare(problem, topology, fill, threads, options)
        try:
            threadpoolctl.threadpool_limits(threads)  # also what the peer has loaded meanwhile
            keys.update(
                dict(zip("abc", job.layouts)),
                blas=job.blas.info.library,
                blas_kernel=job.blas.info.kernel,
            )
            keys.update({name: value for name, value in job.settled.items() if name in HEADER})
            measured = measure(case, problem, comm, job, clock, HostWork(job.blas), fill, None)
            verdict = None
            if case.check:
                replica, parts = job.parts()
                verdict = verify(Parts(topology, replica, parts), problem, fill, job.replicas)
        finally:
            job.close()
    told = comm.allgather(sorted(job.moved))
    for name in list(measured):
        if name in _UNKNOWN or (name.endswith("_bytes") and name not in told[0]):
            measured[name] = None
    keys.update(
        measured,
        peak_rss_bytes=comm.allreduce(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, MPI.MAX
        ),
    )
    if verdict is None:
        return Record(**keys, status="ok")
    if verdict.ok:
        return Record(**keys, status="ok", error=verdict.error)
    return Record(**keys, status="wrong", reason=verdict.reason, error=verdict.error)


def _everyone_has(peer: Peer, comm: MPI.Comm) -> None:
    """Raise on every rank alike if the peer is missing on one of them."""
    try:
        missing = None
        present(peer)
    except MissingError as error:
        missing = str(error)
    said = [text for text in comm.allgather(missing) if text]
    if said:
        raise MissingError(said[0])
