"""The notebook of *predict and choose*: it runs without MPI, and prints what it shows.
``DRBENCH_WRITE_TUTORIALS=1`` writes what it prints into it."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from starting import ROOT

pytestmark = pytest.mark.apart
NOTEBOOK = ROOT / "docs/tutorials/predict-and-choose.ipynb"


class OfThisPython(AsyncKernelManager):
    """Starts the kernel by this Python, whatever kernels are installed."""

    @property
    def kernel_spec(self):
        """Nothing of a file."""
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        )


def texts(notebook) -> list[str]:
    """What each cell of code prints, errors included; of a picture that it is one."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts = []
            for each in cell.outputs:
                known = ["image/png"] if "image/png" in each.get("data", {}) else []
                parts.append(each.get("text") or each.get("evalue") or "".join(known))
            found.append("".join(parts))
    return found


def run(notebook, folder: Path):
    """The notebook with what its cells print in an empty folder where no MPI can be loaded."""
    (folder / "mpi4py").mkdir()
    (folder / "mpi4py/__init__.py").write_text("raise ImportError('there is no MPI here')\n")
    kernel = OfThisPython()
    client = NotebookClient(
        notebook,
        timeout=240,
        km=kernel,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    path = os.pathsep.join([str(folder), str(ROOT)])
    client.execute(env=os.environ | {"PYTHONPATH": path, "MPLBACKEND": "inline"})
    return notebook


def cleaned(notebook):
    """Without what differs from run to run, and without objects that are shown as text."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [each for each in cell.outputs if each.output_type != "execute_result"]
            for each in cell.outputs:
                each.get("data", {}).pop("text/plain", None)
                each.pop("metadata", None)
                if "data" in each:
                    each["metadata"] = {}
    notebook.metadata.pop("widgets", None)
    return notebook


@pytest.mark.timeout(120)
def test_the_notebook_runs_without_mpi_and_prints_what_it_shows(tmp_path):
    shown = nbformat.read(NOTEBOOK, as_version=4)
    expected = texts(shown)
    ran = cleaned(run(nbformat.read(NOTEBOOK, as_version=4), tmp_path))
    if os.environ.get("DRBENCH_WRITE_TUTORIALS"):
        ran.metadata = shown.metadata
        nbformat.write(ran, NOTEBOOK)
    assert texts(ran) == expected
    assert (tmp_path / "why.html").stat().st_size
