"""Run a notebook in a fresh kernel so that its bytes are the same every time."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

try:
    import resource
except ImportError:  # Windows has no resource usage of children
    resource = None

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python"}


class CellFailed(Exception):
    """A cell of a notebook raised; the message says which one and what."""


def execute(notebook: nbformat.NotebookNode, folder: Path, cell_timeout: int = 300) -> float:
    """Run all cells in place, in `folder`, and normalise the outputs.

    Returns the CPU seconds of the kernel (nan where the system does not tell). The kernel gets an
    empty progress folder and an empty IPython folder, so that nothing of this machine shows.
    Raises CellFailed at the first cell that raises.
    """
    before = _cpu_seconds_of_children()
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {
            "COURSE_PROGRESS": os.path.join(empty, "progress"),
            "IPYTHONDIR": os.path.join(empty, "ipython"),
            "PYTHONHASHSEED": "0",
            # Two threads that wait for each other on a busy machine count as CPU seconds.
            "OMP_NUM_THREADS": "1",
        }
        client = NotebookClient(
            notebook,
            timeout=cell_timeout,
            kernel_name=KERNELSPEC["name"],
            record_timing=False,
            store_widget_state=False,
            coalesce_streams=True,
            extra_arguments=["--log-level=40"],
            resources={"metadata": {"path": str(folder)}},
        )
        started: list[int] = []
        client.on_cell_execute = partial(_start_cell, started)
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise CellFailed(_sentence(notebook, started, error)) from None
    normalise(notebook)
    return _cpu_seconds_of_children() - before


def _sentence(notebook: nbformat.NotebookNode, started: list[int], error: Exception) -> str:
    """Which cell failed and how. `started` are the numbers of the cells that began to run."""
    if not started:
        return f"its kernel did not start: {error}"
    cell = notebook.cells[started[-1]]
    place = f"cell {started[-1]} ({cell.id})"
    if isinstance(error, CellExecutionError):
        return f"{place}: {error.ename}: {error.evalue}\n{cell.source}"
    if isinstance(error, DeadKernelError):
        return f"{place}: its kernel died"
    return f"{place}: {str(error).splitlines()[0]}"


def _start_cell(started: list[int], cell: nbformat.NotebookNode, cell_index: int) -> None:
    started.append(cell_index)


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Take out what differs between runs or belongs to a live page only."""
    notebook.metadata.clear()
    notebook.metadata.update(kernelspec=dict(KERNELSPEC), language_info=dict(LANGUAGE))
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        for output in cell.outputs:
            output.get("data", {}).pop(WIDGET_VIEW, None)
            output.pop("transient", None)
        cell.outputs = [o for o in cell.outputs if o.output_type == "stream" or _has_content(o)]


def _has_content(output: nbformat.NotebookNode) -> bool:
    return output.output_type == "error" or bool(output.data)


def _cpu_seconds_of_children() -> float:
    if resource is None:
        return float("nan")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
