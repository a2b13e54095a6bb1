"""One case of a peer under MPI: the same fill, clock, repeats, roof, verification and record as a
case of ours."""

import threadpoolctl

from drbench.common import PHASES, Clock
from drbench.errors import UsageError
from drbench.host.fill import Fill
from drbench.host.topology import Topology
from drbench.measure.record import HEADER
from drbench.measure.roof import HostWork
from drbench.measure.verify import Verification, verify
from launch.cases.case import Case, bound, refuse_our_options
from launch.peers import Parts, get_peer, present

from .backends import Need, check_memory, everywhere

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
    case: Case, topology: Topology, keys: dict, mem_limit: int | None, measure
) -> Verification:
    """Run one case of a peer on all ranks (collective); fills in the columns of its record.

    Parameters
    ----------
    mem_limit
        As of :func:`launch.ranks.case.run_case`.
    measure : callable
        ``measure(case, problem, comm, job, clock, work, fill, baseline)`` -> measured columns; what
        cases of ours are measured with.

    Raises
    ------
    MissingError, UnsupportedError
        If the peer is not here, or refuses the case: the same on every rank.
    """
    peer, comm = get_peer(case.algorithm), topology.comm
    refuse_our_options(case)
    if peer.prepare is None:
        raise UsageError(
            f"{peer.name} is a program of its own: start it with drbench run -p {comm.size}, not "
            "under mpirun."
        )
    everywhere(comm, lambda: present(peer))
    _, problem, options = bound(case, comm.size)
    keys.update(
        dict.fromkeys(_UNKNOWN),
        transport=None,
        **{name: problem.operand(name).partition.text for name in "abc"},
    )
    fill, clock = Fill(case.fill, case.seed, case.k), Clock()
    threads = case.threads or topology.cores_per_rank
    keys.update(threads=threads, nodes=topology.nodes)
    threadpoolctl.threadpool_limits(threads)
    check_memory(topology, Need.of(problem, comm.rank, case.roof), limit=mem_limit)
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
        verdict = Verification()
        if case.check:
            replica, parts = job.parts()
            verdict = verify(Parts(topology, replica, parts), problem, fill, job.replicas)
    finally:
        job.close()
    told = comm.bcast(list(job.moved))
    for name in list(measured):
        if name in _UNKNOWN or (name.endswith("_bytes") and name not in told):
            measured[name] = None
    keys.update(measured)
    return verdict
