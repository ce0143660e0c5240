"""The notebooks of the examples run, and show the outputs stored in them."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from reference_cases import ROOT

FOLDER = ROOT / "examples" / "notebooks"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@pytest.fixture(scope="module")
def run() -> Any:
    """The script that runs notebooks."""
    place = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """The text outputs of each code cell."""
    return [
        "".join(
            output.text if output.output_type == "stream" else output.data["text/plain"]
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def pictures(notebook: nbformat.NotebookNode) -> list[str]:
    """The drawings and tables of the code cells, as elements of a page."""
    kinds = "image/svg+xml", "text/html"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [
        output.data[kind] for output in outputs for kind in kinds if kind in output.get("data", ())
    ]


def numbers(texts: list[str]) -> list[float]:
    """All numbers in texts."""
    return [float(number.replace(",", "")) for text in texts for number in NUMBER.findall(text)]


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_notebooks(name: str, run: Any, tmp_path: Path) -> None:
    """A notebook runs from top to bottom; its outputs are as stored, up to rounding."""
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / name
    shutil.copy(FOLDER / name, path)

    executed, kept = run.executed(path), nbformat.read(path, as_version=4)
    now, stored = shown(executed), shown(kept)

    assert pictures(executed) == pictures(kept), "examples/notebooks/run.py stores them anew"
    assert [NUMBER.sub("0", text) for text in now] == [NUMBER.sub("0", text) for text in stored]
    # Four epochs of training end at about 94 %; rounding decides.
    assert numbers(now) == pytest.approx(numbers(stored), rel=0.05, abs=0.11)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_notebooks_store_outputs(name: str) -> None:
    """A notebook has stored outputs, and the README of the folder lists it."""
    notebook = nbformat.read(FOLDER / name, as_version=4)

    assert any(shown(notebook))
    assert notebook.cells[0].source.startswith("# ")
    assert f"[{name}]({name})" in (FOLDER / "README.md").read_text()
