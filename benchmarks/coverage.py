"""How often the 95 % interval of the median holds the true median, if one looks after each repeat
and stops as soon as the interval is narrow: simulated with the code that decides it for runs.

    python benchmarks/coverage.py [--out results/simulated/readings] [--trials 4000]

Writes coverage.csv, a row a kind of noise. Half a minute on one core.
"""

# ruff: noqa: E402

import argparse
import csv
import sys
from collections.abc import Callable
from datetime import date
from math import inf, log
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.core import commit
from drbench.measure.noise import enough, is_stable, median_interval

#: Repeats at least, as `drbench sweep mlp` asks for; and of those who do not look, for comparison.
LEAST, FIXED = 5, 20
SEED = 20261122


class Noise(NamedTuple):
    """A kind of noise: its name, how wide it is, the median of its times, and one time."""

    name: str
    spread_percent: float
    median: float
    draw: Callable[[Random], float]


def symmetric(percent: float) -> Noise:
    """Faster as often as slower: normal, of this standard deviation."""
    return Noise("symmetric", percent, 1.0, lambda random: random.gauss(1.0, percent / 100))


def one_sided(percent: float) -> Noise:
    """Never faster than undisturbed: exponential, with this mean on top."""
    width = percent / 100
    return Noise(
        "one-sided", percent, 1 + width * log(2), lambda random: 1 + random.expovariate(1 / width)
    )


def disturbed(share_percent: float) -> Noise:
    """Undisturbed, within a percent, or with this share slower by anything up to a half."""
    share, calm, far = share_percent / 100, 0.01, 0.5
    middle = 0.5 / ((1 - share) / calm + share / far)  # where half of all times are below
    if middle > calm:
        middle = far * (share - 0.5) / share
    return Noise(
        "disturbed",
        share_percent,
        1 + middle,
        lambda random: 1 + random.random() * (far if random.random() < share else calm),
    )


NOISES = [
    *map(symmetric, (1, 3, 5, 10)),
    *map(one_sided, (3, 5, 10)),
    *map(disturbed, (20, 40, 50, 55, 60, 70)),
]


def repeated(noise: Noise, random: Random) -> list[float]:
    """The samples of a case that stops as a run does, whose budget is not what ends it."""
    samples: list[float] = []
    while not enough(samples, 0.0, LEAST, inf):
        samples.append(noise.draw(random))
    return samples


def holds(samples: list[float], middle: float) -> bool:
    low, high = median_interval(samples) or (inf, -inf)
    return low <= middle <= high


def row_of(noise: Noise, trials: int) -> dict:
    """One row of coverage.csv."""
    random = Random(f"{SEED} {noise.name} {noise.spread_percent}")
    found = [repeated(noise, random) for _ in range(trials)]
    alone = [[noise.draw(random) for _ in range(FIXED)] for _ in range(trials)]
    stable = [samples for samples in found if is_stable(samples)]
    percent = lambda true: round(100 * sum(true) / trials, 2)
    return {
        "noise": noise.name,
        "spread_percent": noise.spread_percent,
        "trials": trials,
        "repeats": round(sum(map(len, found)) / trials, 1),
        "stable_percent": round(100 * len(stable) / trials, 2),
        "holds_percent": percent(holds(samples, noise.median) for samples in found),
        "holds_of_stable_percent": round(
            100 * sum(holds(each, noise.median) for each in stable) / max(1, len(stable)), 2
        ),
        f"holds_of_{FIXED}_percent": percent(holds(samples, noise.median) for samples in alone),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "simulated" / "readings")
    parser.add_argument("--trials", type=int, default=4000)
    words = parser.parse_args()
    about = {
        "command": f"python benchmarks/coverage.py --trials {words.trials}",
        "date": date.today().isoformat(),
        "commit": commit(),
    }
    rows = [row_of(noise, words.trials) | about for noise in NOISES]
    words.out.mkdir(parents=True, exist_ok=True)
    with open(words.out / "coverage.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(" ".join(f"{row[name]!s:>16}" for name in list(row)[:8]))


if __name__ == "__main__":
    main()
