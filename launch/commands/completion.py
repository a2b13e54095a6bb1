"""Shell completion: names of algorithms, presets, machines, sweeps and so on. This module loads
nothing that draws or computes, so that a completion takes a fraction of a second."""

from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter

from click import Context, Parameter
from click.shell_completion import CompletionItem

from drbench.algorithms import algorithms
from drbench.launch.cases.case import FIELDS, Case, get_algorithm_or_library
from drbench.launch.cases.sweep_values import shipped
from drbench.launch.libraries import LIBRARIES
from drbench.options import Option
from drbench.partitions import PRESETS
from drbench.partitions.text import added_kinds

#: Values of ``--stationary``.
STATIONARY = ("auto", "A", "B", "C")
#: Options of algorithms that are separate options of the command line.
OWN = ("stationary", "mesh")

Completion = Callable[[Context, Parameter, str], list[CompletionItem]]


def _machines() -> Iterable[str]:
    from drbench.launch.cases.machine_models import machine_names

    return machine_names()


def _figures() -> Iterable[str]:
    from drbench.plots.summaries import SUMMARIES  # the modules of figures load Matplotlib

    return SUMMARIES


def _chains() -> Iterable[str]:
    from drbench.chains.model.transformers import presets  # loads NumPy

    return presets()


#: The names of each kind of ``drbench list``.
NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "algorithms": algorithms,
    "partitions": lambda: [
        "row",
        "column",
        "block",
        "traditional",
        *map(itemgetter(0), added_kinds()),
    ],
    "presets": lambda: PRESETS,
    "libraries": lambda: LIBRARIES,
    "machines": _machines,
    "launchers": partial(shipped, "machines"),
    "transports": lambda: ("auto", "direct", "rma", "throttled:"),
    "sweeps": partial(shipped, "sweeps"),
    "figures": _figures,
    "chains": _chains,
}


def one_of(*words: str) -> Completion:
    """A function that completes these words."""

    def complete(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]

    return complete


def words_of(option: Option) -> tuple[str, ...]:
    """The words that the value of an option may be."""
    if option.type is bool:
        return "true", "false"
    return (*option.type, *option.words) if isinstance(option.type, tuple) else option.words


def names_of(*kinds: str, or_file: bool = False) -> Completion:
    """A function that completes the names of these kinds, or a file where no name fits.

    Parameters
    ----------
    *kinds : str
        Of :data:`NAMES`.
    or_file : bool
        The value may also be the path of a file, which the shell completes itself.
    """

    def complete(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        names = (name for kind in kinds for name in NAMES[kind]())
        items = one_of(*names)(context, parameter, incomplete)
        return items or [CompletionItem(incomplete, type="file")] * or_file

    return complete


def complete_list(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the NAME of ``drbench list KIND NAME``."""
    kind = context.params.get("what")
    return names_of(kind)(context, parameter, incomplete) if kind in NAMES else []


def complete_names(*kinds: str) -> Completion:
    """A function that completes the last name of a list with commas."""
    complete_name = names_of(*kinds)

    def complete(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(before + comma + item.value)
            for item in complete_name(context, parameter, last)
        ]

    return complete


def complete_pair(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ``NAME=`` of an option of the algorithm, then its values, as ``-o sums=push``."""
    name, equals, _ = incomplete.partition("=")
    algorithm = context.params.get("algorithm") or Case.algorithm
    known = dict(get_algorithm_or_library(algorithm).options)
    known |= {option.name: option for option in FIELDS.values() if not option.group}
    if not equals:
        words = [f"{option}=" for option in known if option not in OWN]
    else:
        words = [f"{name}={word}" for word in words_of(known[name])] if name in known else []
    return one_of(*words)(context, parameter, incomplete)
