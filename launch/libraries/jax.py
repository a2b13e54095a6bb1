"""JAX: ``jax.jit`` of a matmul of arrays with a ``NamedSharding`` each, for which XLA inserts the
collectives (GSPMD), on one CPU device a process."""

import os
import re
import socket
from functools import partial
from math import prod

import numpy as np

from drbench.arrays import numpy_type
from drbench.errors import UnsupportedError
from drbench.host.blas import BlasInfo
from drbench.program.problem import RUN_TYPES

from .base import ArrayBlas, Library, host_type, installed
from .dtensor import DTensorLibrary
from .meshes import find_placements, share_mesh

#: Collectives in the text of a compiled function.
_COLLECTIVES = re.compile(
    r" (all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute)(?:-start)?\("
)


class JaxLibrary(Library):
    """The compiled matmul."""

    name = "jax"
    description = "JAX: jax.jit of a matmul on arrays with NamedSharding, gloo"
    transposes = True
    dtypes = RUN_TYPES
    layout = staticmethod(DTensorLibrary.layout)
    settings = staticmethod(DTensorLibrary.settings)

    @staticmethod
    def available():
        """Whether JAX is available."""
        return installed("Install it with: pip install -U jax.", "jax", least="0.8")

    def prepare(self, options):
        """Refuse uneven shards; then start JAX, place operands, and compile."""
        stored = [operand.stored for operand in self.work.operands]
        placed = share_mesh([find_placements(bound, self.name) for bound in stored])
        shapes, meshes = [bound.shape for bound in stored], [mesh for _, mesh in placed]
        specs = [spec_of(shape, *where) for shape, where in zip(shapes, placed)]
        self.attempt(self._import)  # on all ranks, before any waits for the others
        self.attempt(lambda: self._compile(shapes, specs, meshes))

    def _import(self):
        import jax

        self.jax = jax
        self._matmul = partial(jax.numpy.matmul, precision="highest")  # not what is configured

    def _compile(self, shapes, specs, meshes):
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax = self.jax
        start_jax(self.topology.comm, self.topology.nodes, self.threads)
        *inputs, output = (
            NamedSharding(
                Mesh(np.reshape(jax.devices(), mesh), [*map(str, range(len(mesh)))]),
                PartitionSpec(*spec),
            )
            for spec, mesh in zip(specs, meshes)
        )
        self.operands = [
            jax.make_array_from_single_device_arrays(shape, sharding, [self._load(local)])
            for shape, sharding, local in zip(shapes, inputs, self.filled())
        ]

        def multiply(*stored):
            operands = zip(stored, self.work.operands)
            return self._matmul(*(x.T if operand.transposed else x for x, operand in operands))

        self._multiply = jax.jit(multiply, out_shardings=output).lower(*self.operands).compile()
        text = self._multiply.as_text()
        moves, kernel = _COLLECTIVES.findall(text), re.search("__(ynn|onednn)", text)
        info = BlasInfo(f"jax {jax.__version__} XLA", kernel[1] if kernel else "eigen")
        self.blas = ArrayBlas(info, self._local_gemm, lambda: None)
        self.resolved = {
            "mesh": "x".join(map(str, meshes[0])),
            "dataflow": ", ".join(moves),
            "transport": "gloo",
            "backend": "jax-cpu",
        }
        self.moved = {} if moves else {"collective_bytes": 0}  # otherwise unknown
        self.run()

    def _load(self, local):
        """A NumPy array on the device of this rank, in the type of the operands."""
        return self.jax.device_put(
            local.astype(numpy_type(self.work.dtype), copy=False), self.jax.local_devices()[0]
        )

    def _local_gemm(self, a, b, c):
        """A function that multiplies NumPy arrays on this rank's device (C is allocated anew)."""
        a, b = self._load(a), self._load(b)
        multiply = self.jax.jit(self._matmul).lower(a, b).compile()
        return lambda: multiply(a, b).block_until_ready()

    def run(self):
        """Call the compiled matmul, and wait."""
        self.out = self._multiply(*self.operands).block_until_ready()

    def result(self):
        """This rank's part of C, in a type that NumPy has."""
        return np.asarray(self.out.addressable_data(0)).astype(host_type(self.work.dtype))


def spec_of(shape, placements, mesh) -> tuple[tuple[str, ...], ...]:
    """The dimensions of a mesh that cut the rows and the columns of a matrix, outermost first, as a
    ``PartitionSpec`` lists them.

    Raises
    ------
    UnsupportedError
        If they do not cut evenly.

    Examples
    --------
    >>> spec_of((8, 8), (None, 1, 1), (2, 2, 2))
    ((), ('1', '2'))
    """
    spec = []
    for dim, extent in enumerate(shape):
        cuts = [at for at, placement in enumerate(placements) if placement == dim]
        parts = prod(mesh[at] for at in cuts)
        if extent % parts:
            raise UnsupportedError(
                f"jax cuts matrices evenly (NamedSharding): {extent} {('rows', 'columns')[dim]} on "
                f"{parts} ranks are not. Use a multiple of {parts}, or --algorithm universal."
            )
        spec.append(tuple(map(str, cuts)))
    return tuple(spec)


def start_jax(comm, nodes: int, threads: int) -> None:
    """Start JAX on the ranks of a communicator, once for each number of threads (collective)."""
    import jax
    from jax.extend.backend import clear_backends

    if jax.distributed.is_initialized():
        if os.environ["NPROC"] == str(threads):
            return
        jax.distributed.shutdown()
        clear_backends()
    os.environ["NPROC"] = str(threads)  # XLA's, read when its client starts
    host = comm.bcast("127.0.0.1" if nodes == 1 else socket.gethostname())
    os.environ["no_grpc_proxy"] = host
    for name, value in {
        "jax_platforms": "cpu",
        "jax_num_cpu_devices": 1,
        "jax_cpu_collectives_implementation": "gloo",
        "jax_enable_x64": True,
        "jax_check_proxy_envs": False,
    }.items():
        jax.config.update(name, value)
    with socket.socket() as reserved:  # until gRPC has the port
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("", 0))
        address = f"{host}:{comm.bcast(reserved.getsockname()[1])}"
        jax.distributed.initialize(
            address,
            comm.size,
            comm.rank,
            local_device_ids=[0],
            initialization_timeout=60,
            coordinator_bind_address=address if nodes == 1 else None,
        )


LIBRARY = JaxLibrary
