"""``drbench paper check-claims``: the paper's claims against simulated records, and how
they move with assumed constants."""

import json
from pathlib import Path

import click

from drbench.errors import UsageError
from launch.host.files import made_folder
from launch.studies.verdicts import HOLDS, show

from ..options import command, json_option, option, out_option, reading


@command("check-claims")
@click.argument("folder", type=click.Path(exists=True))
@option(
    "--published",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Published lines to compare with. [default: results/published/h100.csv where it exists]",
)
@option(
    "--sensitivity",
    "factor",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SHARE",
    help="Simulate again with each assumed constant up and down by this share, as 0.25, and say "
    "which claims change. Of both machines: into FOLDER/readings/sensitivity.csv. Minutes.",
)
@option(
    "--extremes",
    "at_extremes",
    is_flag=True,
    help="Simulate both machines again with constants that are entirely other ones: links from a "
    "tenth to ten times as fast, no overlap, links swapped, and so on. Says which claims change, "
    "and writes FOLDER/readings/extremes.csv. Minutes.",
)
@option(
    "--machine",
    "only",
    type=click.Choice(["pvc12", "h100x8"]),
    help="With --sensitivity: vary this machine's constants only. [default: both]",
)
@option(
    "--most-replicas",
    type=click.IntRange(1),
    metavar="N",
    help="Leave out cases with A and B in more than N replicas (P7 and P10 turn on them). Wants "
    "all rows of a sweep, not an excerpt.",
)
@out_option(
    group="Output",
)
@json_option()
def check_claims(folder, published, factor, at_extremes, only, most_replicas, out, as_json):
    """Check the claims P1-P12 of "Slicing Is All You Need" on the CSV files of FOLDER, and F1-F9 of
    FLUX and T1-T11 of Triton-distributed on those of FOLDER/overlap.

    \b
      drbench paper check-claims results/simulated
      drbench paper check-claims results/simulated/overlap
      drbench paper check-claims results/simulated --extremes

    No claim has constants of its own; launch/studies/slicing_claims.py and overlap/claims.py state
    what each must show.
    PASS: it holds. KNOWN: it does not, and docs/reproduction.md says so and why. FAIL: it does not,
    or it does and the page says that it does not. SKIP: records are missing. Exit code 0 if the
    report was made, whatever it says; drbench artifact exits with 1.
    """
    from pandas import concat

    from launch.host.files import ROOT
    from launch.studies.slicing_claims import check_claims as check
    from plots.select.records import frame, read_published, read_records

    if out:
        made_folder(out)
    paths = sorted(Path(folder).glob("*.csv")) if Path(folder).is_dir() else [folder]
    if not paths:
        raise UsageError(
            f"no CSV file in {folder}. Make some with drbench simulate mlp1 --out {folder}."
        )
    with reading():
        overlapped = overlap_verdicts(Path(folder))
    if overlapped and all(holds_overlap_rows(path) for path in paths):
        if most_replicas is not None or factor or at_extremes or out or published:
            raise UsageError(
                f"{folder} holds rows of drbench paper overlap-study alone, which no option but "
                "--json is for. Leave them out, or give it results/simulated."
            )
        _print(overlapped, as_json)
        return 0
    with reading():
        records = read_records(paths)
    for asked, name in ((at_extremes, "--extremes"), (factor and not only, "--sensitivity")):
        if asked and not Path(folder).is_dir():
            raise UsageError(
                f"{name} writes into a folder, and {folder} is a file. Give it its folder."
            )
        if asked:
            made_folder(Path(folder) / "readings", "FOLDER")
    if most_replicas is not None:
        records = records[[a <= most_replicas for a, _, _ in records.factors]]
    default = ROOT / "results/published/h100.csv"
    published = published or (default if default.exists() else None)
    with reading():
        theirs = read_published(published) if published else []
    if only and not factor:
        raise UsageError("--machine belongs to --sensitivity. Give both, or leave it out.")
    if not (records["mode"] == "simulated").any():
        raise UsageError(
            f"{folder} holds no simulated records. Give it the folder of drbench simulate mlp1 "
            "--out DIR, or results/simulated."
        )
    records = concat([records, frame(theirs)], ignore_index=True)
    _print([*check(records), *overlapped], as_json)
    if out:
        _draw(records, out)
    if factor:
        _sensitivity(Path(folder), factor, theirs, only, as_json)
    if at_extremes:
        _extremes(Path(folder), theirs, as_json)
    return 0


def _extremes(folder: Path, theirs, as_json: bool) -> None:
    from launch.studies.extremes import extremes, told, write_rows

    found = extremes(theirs)
    path = folder / "readings" / "extremes.csv"
    write_rows(path, found)
    if as_json:
        print(json.dumps([row._asdict() for row in found]))
        return
    for change, turned in told(found).items():
        click.echo(f"{change:32} {turned or 'no claim changes'}")
    click.echo(f"written: {path}")


def _print(verdicts: list, as_json: bool) -> None:
    if as_json:
        print(json.dumps([vars(verdict) | {"word": verdict.word} for verdict in verdicts]))
    else:
        show(verdicts)


def holds_overlap_rows(path) -> bool:
    """Whether a file's header is that of drbench paper overlap-study."""
    from plots.select.overlap_rows import OverlapRow

    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline().rstrip("\r\n") == ",".join(OverlapRow._fields)


def overlap_verdicts(folder: Path) -> list:
    """F1-F9 and T1-T11 on the rows in a folder, or in its folder ``overlap``; none without rows."""
    from launch.studies.overlap.claims import check, committed

    for place in (folder, folder / "overlap"):
        files = sorted(place.glob("*.csv")) if place.is_dir() else []
        if files and all(holds_overlap_rows(file) for file in files):
            return check(*committed(place))
    return []


def _draw(records, folder) -> None:
    from plots.registry import draw

    for machine in sorted(records.machine[records["mode"] == "simulated"].unique()):
        ours, out = records[records.machine == machine], Path(folder) / f"mlp-{machine}"
        drawn = draw("mlp", ours, out, (".pdf", ".png"))
        click.echo(f"figure: {', '.join(str(path) for path in drawn.paths)}", err=True)


#: Of the sensitivity runs: how many of the fastest factors with the unchanged constants are
#: simulated again for each partitioning, data movement and batch size, of all and of equal ones
#: (besides none and the most).
_FASTEST, _EQUAL = 3, 1


def _candidates(machine, say) -> tuple[list, list]:
    """(layer's cases that can be best near these constants, found by simulating all of them once;
    their records)."""
    from launch.models.simulate_sweeps import LAYERS, Variant, run_variants
    from launch.studies.extremes import cases_for_claims

    cases = [case for layer in LAYERS for case in cases_for_claims(layer, machine.devices)]
    (found,) = run_variants(cases, [Variant(machine)], machine.devices)
    chosen = near_best(found, machine.devices)
    say(f"{machine.name}: {len(chosen)} cases a change")
    return [cases[at] for at in chosen], [found[at] for at in chosen]


def near_best(found: list, devices: int) -> list[int]:
    """Which of all records can be a point of a line, or of what claims say beside, when constants
    change a little; DTensor's among them."""
    from plots.select.records import frame

    table = frame(found).sort_values("best_s", kind="stable")
    moving = table[table.moved_bytes > 0]
    by = ["layer", "preset", "stationary", "m"]
    equal = moving[[len(set(each)) == 1 for each in moving.factors]]
    ends = table.factors.isin([(factor,) * 3 for factor in (1, devices)])
    chosen = {
        *moving.groupby(by).head(_FASTEST).index,
        *equal.groupby(by).head(_EQUAL).index,
        *table.index[ends],
    }
    return sorted(chosen)


def _sensitivity(folder: Path, share: float, theirs, only, as_json) -> None:
    """Each assumed constant of each machine up and down, and each assumed alternative."""
    from launch.cases.machine_models import find_machine
    from launch.models.simulate_sweeps import Variant, run_variants
    from launch.studies.extremes import Change, write_rows
    from launch.studies.slicing_claims import check_claims as check

    machines = {name: find_machine(name) for name in ("pvc12", "h100x8")}
    found = {
        name: _candidates(machine, lambda text: click.echo(text, err=True))
        for name, machine in machines.items()
    }
    base = {v.claim: v.holds for v in check([*found["pvc12"][1], *found["h100x8"][1], *theirs])}
    told = ", ".join(f"{claim} {HOLDS[holds]}" for claim, holds in base.items())
    click.echo(
        json.dumps({"unchanged": told}) if as_json else f"sensitivity; unchanged constants: {told}"
    )
    rows = []
    for name in [only] if only else machines:
        machine, (cases, _) = machines[name], found[name]
        other = found["h100x8" if name == "pvc12" else "pvc12"][1]
        names, changed = zip(*_variants(machine, share))
        records = run_variants(cases, [Variant(each) for each in changed], machine.devices)
        for told, ours in zip(names, records):
            verdicts = check([*ours, *other, *theirs])
            flips = [f"{v.claim} {HOLDS[v.holds]}" for v in verdicts if v.holds != base[v.claim]]
            line = {"machine": name, "change": told, "changed_claims": flips}
            click.echo(
                json.dumps(line)
                if as_json
                else f"{name:8} {told:50} {', '.join(flips) or 'no claim changes'}"
            )
            rows.append(Change(name, told, "; ".join(flips)))
    if not only:
        path = folder / "readings" / "sensitivity.csv"
        write_rows(path, rows)
        click.echo(f"written: {path}", err=True)


def _variants(machine, share: float) -> list:
    """(what is changed, the changed machine)."""
    from drbench.model.machine import Machine
    from launch.cases.machine_models import find_machine, machine_names

    out = [
        (f"{path} x {1 + sign * share:g}", machine.vary(path, 1 + sign * share))
        for path in machine.assumed
        if not path.startswith("dtypes.")  # the figures are of float32
        for sign in (-1, 1)
        if not (path.endswith("sustained") and machine.compute.sustained * (1 + sign * share) > 1)
    ]
    out += [
        (
            f"links.{link.name}.shared = device",
            machine.with_value(f"links.{link.name}.shared", "device"),
        )
        for link in machine.links
        if link.shared == "pair" and not link.within
    ]
    far = next((link for link in machine.links if not link.within), None)
    out += [
        (
            f"links.{link.name} as slow as {far.name} (no two ranks of a replica on one GPU)",
            machine.with_value(
                f"links.{link.name}.bandwidth_bytes_per_s", far.bandwidth_bytes_per_s
            ),
        )
        for link in machine.links
        if link.within and far
    ]
    measured = f"{machine.name}measured"
    if measured in machine_names():
        told = f"products, and accumulates beside them, as measured ({measured})"
        out.append((told, Machine.from_dict(find_machine(measured).sources, machine.name)))
    if machine.accumulate_slowdown:
        out.append(("accumulate_slowdown = 0", machine.with_value("accumulate_slowdown", 0.0)))
        out.append(
            (
                "accumulate_efficiency = 0.2 (accumulates at a fifth of a copy)",
                machine.with_value("accumulate_efficiency", 0.2),
            )
        )
        out += [
            (f"accumulate_slowdown x {times}", machine.vary("accumulate_slowdown", times))
            for times in (2, 4)
        ]
    return out
