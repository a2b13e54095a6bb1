"""Verdicts on made-up rows."""

from launch.host.files import ROOT
from launch.papers import meshslice, overlap, slicing
from launch.papers.claims import check_claims
from launch.papers.overlap.rows import table_of
from plots.select.records import frame


def of_slicing(records):
    return check_claims(slicing.CLAIMS, slicing.Figures(frame(records)))


def of_meshslice(rows):
    return check_claims(meshslice.PAPER.claims, meshslice.PAPER.judged(rows, ROOT / "results"))


def of_overlap(rows, ranges):
    return check_claims(overlap.PAPER.claims, table_of(rows, ranges))
