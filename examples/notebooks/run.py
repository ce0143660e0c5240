"""Run the notebooks in this folder, and store their outputs.

uv run python examples/notebooks/run.py
"""

import asyncio
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def executed(path: Path) -> nbformat.NotebookNode:
    """Returns a notebook with new outputs of its cells, run in its folder.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.metadata = nbformat.NotebookNode()
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=600,
        startup_timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    asyncio.run(client.async_execute())  # closes its event loop before the process ends
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    return notebook


def main() -> None:
    """Run all notebooks, and write them."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = executed(path)
        nbformat.validate(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main()
