"""The example notebook runs in a real kernel: its cells' code reaches worker processes."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "first_agent.ipynb"


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own
def test_the_first_notebook_runs_and_shows_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    client = NotebookClient(
        notebook,
        timeout=200,
        resources={"metadata": {"path": str(tmp_path)}},
        kernel_name="python3",
    )
    client.execute()
    shown = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    (table,), (step,), printed, (same,), (plays,) = shown[1:]
    assert "ppo on Tilted-v0, seed 0, 0 workers" in table.data["text/html"]
    assert "<td style='text-align:left'>256</td>" in step.data["text/html"]
    assert {each.name for each in printed} == {"stdout"}
    lines = "".join(each.text for each in printed).splitlines()
    assert lines == ["512 0.512", "768 0.768", "1024 1.024"]
    assert same.data["text/plain"] == plays.data["text/plain"] == "True"
