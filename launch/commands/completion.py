"""Shell completion: names of algorithms, presets, machines, sweeps and so on. This module loads
nothing that draws or computes, so that a completion takes a fraction of a second."""

from collections.abc import Callable, Iterable

from click import Context, Parameter
from click.shell_completion import CompletionItem

#: Names of figures. (The modules of figures load Matplotlib and pandas, in about a second.)
FIGURES = (
    "algorithms bandwidth best layouts libraries llm-breakdown llm-model llm-shapes llm-strong "
    "llm-weak mlp mlp1 mlp2 overlap-flux overlap-td overlap-td-experts strong timeline volume weak"
).split()

#: Values of ``--stationary``.
STATIONARY = ("auto", "A", "B", "C")

Completion = Callable[[Context, Parameter, str], list[CompletionItem]]


def _algorithms() -> Iterable[str]:
    from algorithms import algorithms

    return algorithms()


def _libraries() -> Iterable[str]:
    from launch.libraries import LIBRARIES

    return LIBRARIES


def _presets() -> Iterable[str]:
    from partitions import PRESETS

    return PRESETS


def _partitions() -> Iterable[str]:
    from partitions.text import added_kinds

    return ["row", "column", "block", "traditional", *(name for name, _ in added_kinds())]


def _machines() -> Iterable[str]:
    from launch.cases.machine_models import machine_names

    return machine_names()


def _launchers() -> Iterable[str]:
    from launch.cases.sweep_values import shipped

    return shipped("machines")


def _sweeps() -> Iterable[str]:
    from launch.cases.sweep_values import shipped

    return shipped("sweeps")


def _chains() -> Iterable[str]:
    from algorithms.chains.presets import presets

    return presets()


#: The names of each kind of ``drbench list``.
NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "algorithms": _algorithms,
    "partitions": _partitions,
    "presets": _presets,
    "libraries": _libraries,
    "machines": _machines,
    "launchers": _launchers,
    "transports": lambda: ("auto", "direct", "rma", "throttled:"),
    "sweeps": _sweeps,
    "figures": lambda: FIGURES,
    "chains": _chains,
}


def one_of(*words: str) -> Completion:
    """A function that completes these words."""

    def complete(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]

    return complete


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
        found = one_of(*names)(context, parameter, incomplete)
        return found or [CompletionItem(incomplete, type="file")] * or_file

    return complete


def complete_list(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the NAME of ``drbench list KIND NAME``."""
    kind = context.params.get("what")
    return names_of(kind)(context, parameter, incomplete) if kind in NAMES else []


def complete_names(*kinds: str) -> Completion:
    """A function that completes the last name of a list with commas."""
    one = names_of(*kinds)

    def complete(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(before + comma + each.value) for each in one(context, parameter, last)
        ]

    return complete


def complete_pair(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ``NAME=`` of an option of the algorithm, then its values, as ``-o sums=push``."""
    from launch.cases.case import FIELDS, taker_of

    name, equals, _ = incomplete.partition("=")
    known = dict(taker_of(context.params.get("algorithm") or FIELDS["algorithm"].default).options)
    known |= {each.name: each for each in FIELDS.values() if not each.group}
    if not equals:  # --stationary and --mesh are separate options
        found = [f"{each}=" for each in known if each not in ("stationary", "mesh")]
    else:
        kind = known[name].type if name in known else ()
        words = ("true", "false") if kind is bool else kind if isinstance(kind, tuple) else ()
        found = [f"{name}={word}" for word in (*words, *getattr(known.get(name), "words", ()))]
    return one_of(*found)(context, parameter, incomplete)
