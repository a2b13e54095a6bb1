"""Verdicts on made-up rows."""

from pandas import DataFrame

from launch.papers import meshslice, overlap, slicing
from launch.papers.claims import Rows, check_claims
from plots.select.records import frame


def of_slicing(records):
    return check_claims(slicing.CLAIMS, slicing.Figures(frame(records)))


def of_meshslice(rows):
    return check_claims(meshslice.PAPER.claims, meshslice.PAPER.judged(rows, None))


def of_overlap(rows, ranges):
    numbers = dict.fromkeys(("low", "high", "mean"), float)
    found = Rows(DataFrame(rows), DataFrame(ranges).astype(numbers))
    return check_claims(overlap.PAPER.claims, found)
