"""A case as the command that runs it."""

import shlex

from algorithms import get_algorithm

from .case import FIELDS, Case

#: Fields that are no words of the command: what was asked for is in others, or is not the case's.
_OTHERS = ("m", "n", "k", "dtype", "backend", "machine", "model", "preset", "roof", "trace")


def run_command(case: Case, ranks: int) -> str:
    """The ``drbench run`` of a case on so many ranks, quoted for a shell; what the command does
    anyway is left out.

    A case in bfloat16, which sums in bfloat16 on machine models, is run as ``bfloat16:float32`` on
    GPUs.

    Examples
    --------
    >>> run_command(
    ...     Case(1024, 3072, 768, "row", "S(1)", "block/c2", options={"stationary": "C"}), 4
    ... )
    "drbench run -p 4 -m 1024 -n 3072 -k 768 --a row --b 'S(1)' --c block/c2 --stationary C"
    """
    words = ["drbench", "run", "-p", ranks, "-m", case.m, "-n", case.n, "-k", case.k]
    dtype, backend = case.dtype, case.backend
    if dtype == "bfloat16":
        dtype, backend = "bfloat16:float32", "cupy"
    plain = vars(Case(1, 1, 1, backend=case.backend)) | {"backend": Case.backend}
    given = {"dtype": dtype, "backend": backend} | {
        name: getattr(case, name) for name in FIELDS if name not in _OTHERS
    }
    words += _flags(FIELDS, {name: v for name, v in given.items() if v != plain[name]})
    words += _flags(get_algorithm(case.algorithm).options, case.options)
    return shlex.join(map(str, words))


def _flags(described: dict, values: dict) -> list:
    """Flags with their values, in the order of the descriptions; of a truth the flag alone."""
    words: list = []
    for name, option in described.items():
        value = values.get(name)
        if option.type is bool:
            if value is not None and value != option.default:
                words.append(option.flag if value else f"--no-{option.flag[2:]}")
        elif value not in (None, option.says):  # what is done anyway
            words += [option.flag, value]
    return words
