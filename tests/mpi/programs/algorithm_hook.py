"""A stand-in of the hook for algorithms that torch has after 2.15, by what its pull request 182379
documents: after sharding propagation a selector may name an algorithm, which is cached with the
propagated sharding; torch calls its implementation where it would else redistribute the operands
and multiply, and does that if the implementation is not registered or answers not_implemented.
"""

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from unittest.mock import patch

from torch.distributed import tensor
from torch.distributed.tensor import _op_schema as schemas
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor.debug import _clear_sharding_prop_cache


@dataclass
class OpAlgorithm:
    name: str
    mesh_dim: int = 0


@contextmanager
def algorithm_hook():
    """A context manager with the module ``_op_algorithm``; ``answered`` lists what its algorithms
    have multiplied."""
    module = ModuleType("torch.distributed.tensor._op_algorithm")
    selectors, implementations = {}, {}
    module.not_implemented, module.answered = object(), []
    module._op_algorithm_selectors = selectors

    def register(table):
        def register_for(key):
            def keep(function):
                table[key] = function
                return function

            return keep

        return register_for

    module.register_op_algorithm_selector = register(selectors)
    module.register_op_algorithm_impl = register(implementations)
    propagate = OpDispatcher._propagate_op_sharding_dispatch_slow_path
    multiply = OpDispatcher._dispatch_get_local_results_slow_path

    def propagated(self, op, args, kwargs, info, *more):
        sharding = propagate(self, op, args, kwargs, info, *more)
        if isinstance(sharding, schemas.OutputSharding) and op in selectors:
            wanted = sharding.redistribute_schema or info.schema
            strategy = schemas.OpSpec(sharding.output_spec, wanted.args_spec)
            sharding.algorithm = selectors[op](info.schema, strategy)
        return sharding

    def multiplied(self, op, args, info):
        algorithm = getattr(info.output_sharding, "algorithm", None)
        implementation = algorithm and implementations.get(algorithm.name)
        if implementation and info.compute_mesh.get_coordinate() is not None:
            local = implementation(info, algorithm)
            if local is not module.not_implemented:
                module.answered.append(op)
                return local
        return multiply(self, op, args, info)

    with (
        patch.dict(sys.modules, {module.__name__: module}),
        patch.object(tensor, "_op_algorithm", module, create=True),
        patch.object(schemas, "OpAlgorithm", OpAlgorithm, create=True),
        patch.object(OpDispatcher, "_propagate_op_sharding_dispatch_slow_path", propagated),
        patch.object(OpDispatcher, "_dispatch_get_local_results_slow_path", multiplied),
    ):
        _clear_sharding_prop_cache()
        yield module
    _clear_sharding_prop_cache()
