"""Published numbers become records, and headers distinguish their files."""

import pytest

from drbench.measure.record import RecordError
from drbench.plots.select.records import read_published, read_records

HEADER = "figure,system,devices,peak_tflops_per_device,dtype,layer,series,m,n,k,gflops,source\n"
ROW = (
    'fig3,h100,8,67,float32,mlp1,DT - Row,1024,49152,12288,319644.639,"repository 0d01971 '
    'plot.py"\n'
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "published.csv"


def test_a_published_row_keeps_rate_problem_and_source(path):
    path.write_text(HEADER + ROW)
    (record,) = read_published(path)
    assert (record.mode, record.label, record.algorithm, record.ranks) == (
        "published",
        "h100x8",
        "DT - Row",
        8,
    )
    assert (record.m, record.n, record.k, record.dtype) == (1024, 49152, 12288, "float32")
    assert record.reason == "repository 0d01971 plot.py"
    assert record.percent_of_peak == pytest.approx(100 * 319.644639 / (8 * 67))
    assert (record.peak_gflops, record.peak_source) == (536e3, "repository 0d01971 plot.py")
    assert 2 * 1024 * 49152 * 12288 / record.best_s == pytest.approx(319644.639e9)


def test_other_columns_are_refused(path):
    path.write_text("name,gflops\nx,1\n")
    with pytest.raises(
        ValueError, match="no file of published numbers: its columns are name, gflops"
    ):
        read_published(path)
    with pytest.raises(RecordError, match="another header"):
        read_records([path])


@pytest.mark.parametrize(
    "old, new", [("319644.639", "fast"), ("1024", ""), (",8,", ",0,"), ("319644.639", "0")]
)
def test_a_row_that_does_not_parse_is_named_by_file_and_line(path, old, new):
    path.write_text(HEADER + ROW + ROW.replace(old, new))
    with pytest.raises(ValueError, match=r"published\.csv, line 3: "):
        read_published(path)
