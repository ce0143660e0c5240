"""Examples, their notebooks, and scripts beside the packages do what they say."""

from __future__ import annotations

import importlib
import importlib.util
import re
import runpy
import shutil
from pathlib import Path

import nbformat
import pytest
from other_processes import printed_by_python
from reference_cases import DIGITS_EXAMPLE, ROOT
from test_borders import imports


def test_recognise_digits() -> None:
    """The digits example recognises all 40 utterances, and prints a line for each."""
    *utterances, score = printed_by_python(DIGITS_EXAMPLE / "recognise.py").splitlines()

    assert len(utterances) == 40
    assert score == "40 of 40 right"


@pytest.mark.parametrize("jobs", [1, 4])
def test_train_digits(jobs: int, tmp_path: Path) -> None:
    """Trained from scratch, with one job or four, the network recognises nearly all utterances.

    Which ones depends on rounding, as other matrix libraries have it; here it is all 40.
    """
    printed = printed_by_python(DIGITS_EXAMPLE / "train.py", f"--jobs={jobs}", cwd=tmp_path)

    *iterations, score = printed.splitlines()
    objectives = [float(line.split()[2]) for line in iterations]
    assert objectives[-1] > objectives[len(objectives) // 2] > objectives[0]
    right, total = map(int, re.findall(r"\d+", score))
    assert right >= 38
    assert total == 40
    assert (tmp_path / "run" / "final.raw").exists()


PACKAGES = {path.name for path in ROOT.glob("packages/*/src/nnet3_*")}

SCRIPTS = [
    file
    for folder in ("benchmarks", "docs", "examples", "tests")
    for file in sorted(ROOT.joinpath(folder).rglob("*.py"))
]


def is_there(module: str, name: str) -> bool:
    """Whether a module of this project exists, and has this name or a module of this name."""
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Other libraries might not be installed.
        return (error.name or "").partition(".")[0] not in PACKAGES
    if not name or hasattr(owner, name):
        return True
    return hasattr(owner, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None


def missing(text: str) -> list[str]:
    """The imports of missing modules or names from packages of this project."""
    return [
        f"{module}: {name}" if name else module
        for module, name in imports(text)
        if module.partition(".")[0] in PACKAGES and not is_there(module, name)
    ]


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports(file: Path) -> None:
    """Each name that a script imports from a package of this project exists."""
    assert missing(file.read_text(encoding="utf-8")) == []


def test_imports_of_what_is_gone() -> None:
    """Imports of missing modules and names are found anywhere in the code."""
    text = (
        "import nnet3_graph, nnet3_graph.gone\nfrom nnet3_graph import graph, lost\n"
        "def late():\n    from nnet3_graph.gone import name\n    from elsewhere import thing"
    )

    assert missing(text) == ["nnet3_graph.gone", "nnet3_graph: lost", "nnet3_graph.gone: name"]


FOLDER = ROOT / "examples" / "notebooks"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


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
def test_notebooks(name: str, tmp_path: Path) -> None:
    """A notebook runs from top to bottom; its outputs are as stored, up to rounding."""
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / name
    shutil.copy(FOLDER / name, path)

    run = runpy.run_path(str(FOLDER / "run.py"))["executed"]
    executed, kept = run(path), nbformat.read(path, as_version=4)
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
