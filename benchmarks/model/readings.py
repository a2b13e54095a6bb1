"""The assumptions of the claims P7 and P10: MLP-2 simulated again as other programs, under other
readings of the paper and with other constants.

    python -m benchmarks model.readings [--out results/simulated/readings]

Writes lines.csv, a row a line of the figures, stationary matrix and batch size, with the best
replication factor, and verdicts.csv, a row a claim. Two minutes on one core.
"""

from datetime import date
from pathlib import Path

from pandas import concat

from benchmarks.__main__ import parser_of
from benchmarks.core import commit, write_rows
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_values import read_toml
from drbench.launch.host.files import ROOT
from drbench.launch.models.simulate_sweeps import predict_on
from drbench.launch.papers.claims import check_claims
from drbench.launch.papers.slicing import CLAIMS, Figures, cases_for_claims
from drbench.plots.select.records import frame

NAMES = ("P7", "P10")


def lines_of(cases, description: dict):
    """The rows of lines.csv."""
    for layer in dict.fromkeys(cases.layer):
        figure = Figures(cases)[description["machine"], layer]
        for name, line in figure.lines.items():
            for stationary in "BC":
                best = figure.best(name, stationary=stationary)
                for m, case in best.dropna(subset="percent_of_peak").iterrows():
                    yield description | {
                        "layer": layer,
                        "line": name,
                        "stationary": stationary,
                        "drawn": line.stationary == stationary,
                        "m": m,
                        "percent_of_peak": round(case.percent_of_peak, 4),
                        "factor_a": case.factors[0],
                        "factor_c": case.factors[2],
                    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results/simulated/readings")
    out = parser.parse_args().out
    command = "python -m benchmarks model.readings"
    origin = {"command": command, "date": date.today(), "commit": commit()}
    file = read_toml(Path(__file__).with_suffix(".toml"))
    runs = [(reading, program) for reading in file["readings"] for program in reading["programs"]]
    tables = {}
    for point, program in runs:
        machine = find_machine(point["machine"])
        cases = cases_for_claims("mlp2", machine.devices, options=file["programs"][program])
        for path, value in point.get("changes", {}).items():
            machine = machine.with_value(path, value)
        (records,) = predict_on([machine], cases, machine.devices)
        tables[point["machine"], point["reading"], program] = frame(records)
        print(f"{point['machine']}, {point['reading']}, {program}: {len(cases)} cases", flush=True)
    lines, verdicts = [], []
    for point, program in runs:
        name, reading = point["machine"], point["reading"]
        ours = tables[name, reading, program]
        others = tables["h100x8" if name == "pvc12" else "pvc12", "as it is", program]
        for replicas in point["most_replicas"]:
            description = {"machine": name, "program": program, "reading": reading}
            description["most_replicas"] = replicas
            admitted = ours[[a <= replicas for a, _, _ in ours.factors]]
            lines += [row | origin for row in lines_of(admitted, description)]
            table = concat([admitted, others], ignore_index=True)
            for verdict in check_claims(CLAIMS, Figures(table), NAMES.__contains__):
                row = description | {"claim": verdict.claim.name, "holds": verdict.holds}
                verdicts.append(row | origin)
    write_rows(out / "lines.csv", lines)
    write_rows(out / "verdicts.csv", verdicts)


if __name__ == "__main__":
    main()
