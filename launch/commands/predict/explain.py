"""``drbench explain``: write a page that shows a simulated or traced run step by step."""

import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from drbench.errors import UsageError
from drbench.launch.host.files import check_output, write_output
from drbench.version import read_version

from ..options import (
    FILE,
    PAGE_OR_PICTURE,
    TEXT,
    case_of,
    command,
    machine_option,
    modelled,
    of_case,
    option,
    problem_options,
    ranks_option,
    reading,
    take_options,
)

#: What a second case of another algorithm shares with the first unless given.
_KEPT = (
    "m n k transpose alpha beta dtype ranks machine transport experts topk routing compute"
).split()


@command("explain")
@problem_options(
    "prefetch",
    "compute",
    required=False,
    default=None,
    default_text="the machine's, else float32",
)
@ranks_option()
@of_case("transport")
@machine_option("machine")
@option(
    "--timeline",
    group="Problem",
    type=FILE,
    metavar="FILE",
    help="Show this run instead of a simulated one.",
)
@option(
    "--compare",
    metavar='"OPTIONS"',
    type=TEXT,
    group="Output",
    help='A second case to show beside it: the options that differ, as "--stationary B".',
)
@option(
    "--save",
    type=PAGE_OR_PICTURE,
    metavar="FILE",
    default="explain.html",
    group="Output",
    help="Page to write, one self-contained HTML file; .svg, .pdf, .png: a picture of it; .json: "
    "its data.",
)
@click.pass_context
def explain(context, save, compare, **values):
    """Write a page that shows step by step what each rank stores, fetches, multiplies and adds.

    \b
      drbench explain -m 4Ki -n 4Ki -k 4Ki -p 12 --preset column --save page.html
      drbench explain -m 8Ki -n 8Ki -k 8Ki --machine h100x8 --save picture.svg
      drbench explain -m 4Ki -n 4Ki -k 4Ki --machine pvc12 --stationary C
          --compare "--stationary B" --save page.html
      drbench explain --timeline run.json --save page.html

    The page has the matrices with tiles, owners and replicas, a time slider, the timeline of all
    ranks, and bytes by link. Without --machine 100 FLOPs take as long as one byte, and times are
    percentages of the run. With another --algorithm in --compare, layouts and options are its
    defaults unless they are given there too.
    """
    from drbench.plots.report.explained import data_text, explained_page, verdict

    check_output("--save", save)
    flags = {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in values
    }
    source = context.get_parameter_source
    asked = [name for name in flags if source(name) is click.core.ParameterSource.COMMANDLINE]
    described = [(dict(values), asked)]
    if compare is not None:
        given = _given(context, values, compare)
        described.append((_case_to_compare(values, given), given))
    cases = [
        _options_given(options, [flags[name] for name in names]) for options, names in described
    ]
    made_by = shlex.join(["drbench", *sys.argv[1:]])
    kind = Path(save).suffix or ".html"
    if kind == ".html":
        write_output("--save", save, explained_page(cases, read_version()["version"], made_by))
    elif kind == ".json":
        write_output("--save", save, data_text(cases, made_by))
    else:
        from drbench.plots.registry import draw

        with TemporaryDirectory() as folder, reading("Use a folder that can be written."):
            data = Path(folder, "layouts.json")
            data.write_text(data_text(cases, made_by), "utf-8")
            draw("layouts", [data], save)
    for line in filter(None, verdict(cases)):
        click.echo(line)
    click.echo(f"{save}{'' if kind != '.html' else ': open it in a browser'}")


def _case_to_compare(values: dict, given: dict) -> dict:
    """The values of the second case: those of the first, with the changes of ``--compare``."""
    first, (fields, pairs) = dict(values), values["option"]
    if given.get("algorithm", values["algorithm"]) != values["algorithm"]:
        first |= dict.fromkeys(values.keys() - _KEPT)
        pairs = {name: pairs[name] for name in pairs if name in _KEPT}
    elif "preset" in given:
        first |= dict.fromkeys("abc")
    _, more = given.get("option", (fields, {}))
    return first | {"timeline": None} | given | {"option": (fields, pairs | more)}


def _given(context: click.Context, values: dict, text: str) -> dict:
    """The values of the options in a text, parsed like those of the command."""
    own = click.Context(context.command, info_name=context.info_name)
    try:
        options, left, _ = context.command.make_parser(own).parse_args(shlex.split(text))
        if left:
            raise UsageError(
                f"--compare: {left[0]!r} is not an option. Write it as --stationary B."
            )
        refused = [name for name in options if name not in values]
        if refused:
            raise UsageError(
                f"--compare: --{refused[0]} applies to the whole page. Leave it out there."
            )
        return {
            parameter.name: parameter.process_value(own, parameter.consume_value(own, options)[0])
            for parameter in context.command.params
            if parameter.name in options
        }
    except ValueError as error:
        raise UsageError(f"--compare {text}: {error}. Close the quotes.") from None
    except click.UsageError as error:
        raise UsageError(f"--compare: {error.format_message()}") from None


def _options_given(values: dict, asked: list[str]) -> dict:
    """The data of one case on the page; ``asked`` are the options that the user gave."""
    from drbench.launch.cases.machine_models import find_machine
    from drbench.launch.models.explained import explained, explained_timeline

    ranks, timeline = values.pop("ranks"), values.pop("timeline")
    if timeline is not None:
        for flag in asked:
            if flag not in ("--timeline", "--machine"):
                raise UsageError(
                    f"--timeline has the case that ran, and takes no {flag}. Leave it out."
                )
        with reading("Use a file of drbench run."):
            text = Path(timeline).read_text(encoding="utf-8", errors="replace")
        machine = values["machine"]
        return explained_timeline(text, machine and find_machine(machine))
    options = take_options(values)
    missing = next((name for name in "mnk" if values[name] is None), None)
    if missing:
        raise UsageError(f"-{missing} is missing. Give -m, -n and -k, or --timeline FILE.")
    model, ranks = modelled(values, ranks)
    return explained(case_of(values | {"options": options}, ranks), model, ranks)
