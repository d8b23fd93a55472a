"""The tutorial notebook runs from its first cell to its last, in a Jupyter kernel."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.notebook
TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.py"


@pytest.mark.filterwarnings("default")  # jupytext's and nbclient's own
def test_the_tutorial_runs(tmp_path: Path) -> None:
    import jupytext
    from nbclient import NotebookClient

    notebook: Any = jupytext.read(TUTORIAL)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output.get("text") or output["data"].get("text/plain", "") for output in outputs]
    said = "".join(shown)
    assert "after training: success" in said and "tool: " in said
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not list(tmp_path.iterdir())
