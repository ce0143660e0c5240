"""The README's examples run, and its table has the formulas."""

import doctest
import inspect
from pathlib import Path

import numpy as np
import pytest
from nnet3_computation import COMMAND_TYPES
from nnet3_descriptors import component_class, component_types, parse_config, write_nnet
from nnet3_runtime_reference.formulas.formula import registered_formula
from small_networks import SPLICED

PATH = Path(__file__).resolve().parents[1] / "README.md"
README = PATH.read_text()


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples run in order, in one session."""
    monkeypatch.chdir(tmp_path)
    write_nnet(parse_config(SPLICED, rng=np.random.default_rng(0)), "final.raw")

    results = doctest.testfile(str(PATH), module_relative=False)

    assert results.attempted > 10
    assert results.failed == 0


def table() -> list[str]:
    """The rows of the table: each type, and the first line of its formula's docstring."""
    types: dict[type, list[str]] = {}
    for name in component_types():
        found = type(registered_formula(component_class(name)))
        types.setdefault(found, []).append(name.removesuffix("Component"))
    rows = []
    for found, names in types.items():
        line = (inspect.getdoc(found) or "").splitlines()[0].removesuffix(".").replace("|", "\\|")
        module = found.__module__.rpartition(".")[2]
        path = f"src/{found.__module__.replace('.', '/')}.py"
        rows.append(f"| {', '.join(names)} | {line} | [{module}]({path}) |")
    return rows


def test_table_of_formulas() -> None:
    """The table has all types, with their formulas from the docstrings."""
    rows = table()

    assert README.count(".py) |\n") == len(rows)
    assert [row for row in rows if f"{row}\n" not in README] == []
    assert [row for row in rows if " = " not in row] == []


def test_number_of_commands() -> None:
    """The README states the number of commands."""
    assert f"each of the {len(COMMAND_TYPES)} commands" in README
