"""Whether measured medians of ten chains are in the predicted intervals: on 2 ranks with a thread
each, in the layouts that ``drbench chain`` chooses, or in given ones.

    drbench calibrate -p 2 --threads 1 --save here.toml
    python -m benchmarks model.chains --machine here.toml --out results/measured/LABEL/chains

Writes records.csv, of each chain the simulated record with its interval and the measured one, and
machine.toml, the model of the predictions. Chains are interleaved in rounds, each in another order:
seconds in which a shared machine is slow then do not affect one chain alone. Two minutes on two
cores.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pandas import DataFrame

from benchmarks.__main__ import parser_of
from benchmarks.core import interleave
from drbench.chains.answer import answer, records_of
from drbench.chains.model.description import lines
from drbench.chains.model.programs import LIBRARY
from drbench.chains.model.transformers import text_of
from drbench.chains.order import Asked, fill_of, order_of, run_order
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_values import read_toml
from drbench.launch.sweeps.rounds import pool_records
from drbench.mappings import grouped
from drbench.measure.record_file import append_csv, read_csv

from .model import summary

RANKS = 2


def list_chains() -> Iterator[tuple[Asked, list[str]]]:
    """The chains of chains.toml, each with the layouts that are given."""
    for name, layer in read_toml(Path(__file__).with_name("chains.toml")).items():
        if "preset" in layer:
            text = text_of(layer["preset"], layer["rows"])
        else:
            text = lines("X", layer["widths"], layer.get("function", ""), rows=layer["rows"])
        yield Asked(name, text, layer.get("backward", False)), layer.get("fix", [])


def planned(asked: Asked, fix: list[str], machine, budget_s: float):
    """The predicted record of a chain, with its interval, and what runs it."""
    result = answer(asked, machine, RANKS, fix=fix, programs=LIBRARY)
    fill = fill_of(asked.chain(), None, "float32")
    order = order_of(result.search.best, asked, machine.name, fill, budget_s=budget_s)
    return replace(records_of(result)[0], case=asked.name), order


def points(path: Path) -> DataFrame:
    """The chains of a file of records, as rows of :func:`.model.summary`."""
    both = grouped(read_csv(path), lambda record: record.case).values()
    rows = [
        (text.case, "s", ran.median_s, text.best_s, text.median_low_s, text.median_high_s)
        for text, ran in both
    ]
    return DataFrame(rows, columns="what unit value predicted low high".split())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--machine", required=True, help="file of drbench calibrate -p 2")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds a chain and round")
    parser.add_argument("--rounds", type=int, default=4)
    words = parser.parse_args()
    machine = find_machine(words.machine)
    words.out.mkdir(parents=True, exist_ok=True)
    path = words.out / "records.csv"
    path.unlink(missing_ok=True)
    shutil.copyfile(words.machine, words.out / "machine.toml")
    plans = {asked.name: planned(asked, fix, machine, words.budget) for asked, fix in list_chains()}
    orders = {name: order for name, (_, order) in plans.items()}
    for name, records in interleave(orders, run_order, words.rounds).items():
        append_csv(path, plans[name][0], replace(pool_records(records), case=name))
    table = points(path)
    print(table, *summary(table), sep="\n")


if __name__ == "__main__":
    main()
