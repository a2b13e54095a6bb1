"""The command that runs a case, and a short description of a record."""

import shlex

from drbench.algorithms import get_algorithm
from drbench.measure.record import Record
from drbench.program.problem import PLANNED

from .case import FIELDS, Case, given_fields

#: Fields that are not options of the command: other fields contain them, or they are not the
#: case's.
_OTHERS = ("m", "n", "k", "dtype", "backend", "label", "machine", "preset", "gemm_only", "timeline")


def run_command(case: Case, ranks: int) -> str:
    """The ``drbench run`` command of a case on ``ranks`` ranks, quoted for a shell, without
    defaults.

    A case in bfloat16, which sums in bfloat16 on machine models, runs as ``bfloat16:float32``, and
    so do narrower types; that type, TF32 and concurrent GEMMs need GPUs.

    Examples
    --------
    >>> run_command(
    ...     Case(1024, 3072, 768, "row", "S(1)", "block/c2", options={"stationary": "C"}), 4
    ... )
    "drbench run -p 4 -m 1024 -n 3072 -k 768 --a row --b 'S(1)' --c block/c2 --stationary C"
    """
    words = ["drbench", "run", "-p", ranks, "-m", case.m, "-n", case.n, "-k", case.k]
    dtype, backend = case.dtype, case.backend
    if dtype in PLANNED:
        dtype = "bfloat16:float32"
    concurrent = case.max_gemms or case.max_accumulates or case.accumulate_blocks
    on_gpus = case.compute == "tf32" or concurrent
    if dtype == "bfloat16:float32" or on_gpus:
        backend = "cupy"
    given = {name: getattr(case, name) for name in given_fields(case) if name not in _OTHERS}
    words += _flags(FIELDS, given | {"dtype": dtype, "backend": backend})
    words += _flags(get_algorithm(case.algorithm).options, case.options)
    return shlex.join(map(str, words))


def describe(record: Record, sizes: bool = False) -> str:
    """The algorithm and options of a record, in short; with ``sizes`` also those that follow from
    the problem if they are not given: the chunk and the look-ahead.

    Examples
    --------
    >>> describe(
    ...     Record(
    ...         mode="simulated",
    ...         algorithm="meshslice",
    ...         dataflow="OS",
    ...         mesh="2x4",
    ...         slices=8,
    ...         status="failed",
    ...         reason="-",
    ...     )
    ... )
    'meshslice OS 2x4 S=8'
    >>> describe(
    ...     Record(
    ...         mode="simulated",
    ...         algorithm="ag_gemm",
    ...         options="variant=push;swizzle=ranks;order=ranks;tile=512;part=128;kernel=fused",
    ...         prefetch=4,
    ...         status="failed",
    ...         reason="-",
    ...     )
    ... )
    'ag_gemm push tile 512'
    """
    algorithm = get_algorithm(record.algorithm)
    others = [pair.partition("=") for pair in (record.options or "").split(";") if pair]
    plain = {name: option.default_text for name, option in algorithm.options.items()}
    words = [
        record.algorithm,
        record.stationary and f"S-{record.stationary}",
        record.dataflow,
        record.mesh,
        record.slices and f"S={record.slices}",
        record.unroll and record.unroll > 1 and f"unroll {record.unroll}",
        sizes and record.chunk and f"chunk {record.chunk}",
        *(
            value
            if type(algorithm.options[name].type) is tuple and value != "always"
            else f"{name} {value}"
            for name, _, value in others
            if name in plain and value != plain[name]
        ),
        sizes
        and algorithm.signalling(**{name: value for name, _, value in others})
        and record.prefetch is not None
        and f"prefetch {record.prefetch}",
    ]
    return " ".join(str(word) for word in words if word)


def _flags(described: dict, values: dict) -> list:
    """The command-line words of values, in the order of their descriptions, without defaults."""
    words: list = []
    for name, option in described.items():
        value = values.get(name)
        if value is None or value == option.default or value == option.default_text:
            continue
        text = str(value).lower() if option.type is bool else value
        words += [option.flag, text] if option.group else ["-o", f"{name}={text}"]
    return words
