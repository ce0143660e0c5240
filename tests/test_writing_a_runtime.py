"""The page for writers of runtimes: its tables match the code, and its Python runs models.

python tests/test_writing_a_runtime.py    # writes the tables into the page
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
import pytest
from component_forms import CONFIGS, from_config
from kaldi_tables import read_archive
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_computation import (
    COMMAND_TYPES,
    Access,
    Command,
    NnetComputation,
)
from nnet3_descriptors import Nnet, component_types, read_nnet, set_test_mode
from nnet3_descriptors.components import Component, ComponentProperties, component_class
from nnet3_optimizer import optimize
from nnet3_runtime_reference import ReferenceComputer
from nnet3_runtime_reference.formulas import formula_of
from nnet3_tables import read_table
from reference_cases import DIGITS_EXAMPLE, DIGITS_REFERENCE, ROOT
from small_networks import network, request_for, stacked

PAGE = ROOT / "docs" / "writing-a-runtime.md"

OTHER_SETTINGS = {
    "BatchNormComponent": "dim=6 block-dim=6 test-mode=true",
    "ConstantComponent": "output-dim=3 output-stddev=1 is-updatable=true",
    "ConstantFunctionComponent": "input-dim=2 output-dim=2 is-updatable=false",
    "GeneralDropoutComponent": "dim=6 block-dim=6",
    "NormalizeComponent": "dim=6",
    "PerElementOffsetComponent": "dim=6",
    "RectifiedLinearComponent": "dim=4",
    "ScaleAndOffsetComponent": "dim=6",
    "StatisticsExtractionComponent": "input-dim=3 include-variance=false",
    "StatisticsPoolingComponent": (
        "input-dim=7 left-context=2 right-context=3; "
        "input-dim=7 left-context=2 right-context=3 num-log-count-features=1"
    ),
    "TdnnComponent": "input-dim=3 output-dim=2 time-offsets=-1,0,1 use-bias=false",
}
"""Config lines for types whose properties depend on settings, with other settings than CONFIGS."""

ACCESS = {Access.READ: " (r)", Access.WRITE: " (w)", Access.READ_WRITE: " (rw)"}


# -- tables ----------------------------------------------------------------------------------------


def command_row(command_type: type[Command]) -> str:
    """A command in the table: opcode, name, operands in the order of their columns, meaning."""
    cells = []
    for operand in command_type.OPERANDS:
        access = ACCESS.get(operand.access, "")
        if operand.adds_if:
            access = f" (w; rw if {operand.adds_if.name})"
        cells.append(f"`{operand.name}`{access}")
    meaning = (command_type.__doc__ or "").splitlines()[0]
    alpha = "yes" if command_type.HAS_ALPHA else ""
    return (
        f"| {command_type.OPCODE} | {command_type.__name__} | {alpha} | {', '.join(cells)} "
        f"| {meaning} |"
    )


def flags(component: Component) -> set[str]:
    """The names of a component's properties."""
    return {flag.name or "" for flag in ComponentProperties if flag in component.properties}


def component_row(type_name: str) -> str:
    """A component in the table: type, formula with its letters explained, flags."""
    component = from_config(type_name, CONFIGS[type_name])
    always = sometimes = flags(component)
    for settings in filter(None, OTHER_SETTINGS.get(type_name, "").split("; ")):
        other = flags(from_config(type_name, settings))
        always, sometimes = always & other, sometimes | other
    formula = formula_of(component)
    lines = textwrap.dedent((type(formula).__doc__ or "").replace("\n    ", "\n")).splitlines()
    text = " ".join(line for line in lines if line).replace("|", "\\|")
    shown = [
        f"{flag.name}{'' if flag.name in always else '*'}"
        for flag in ComponentProperties
        if flag.name in sometimes
    ]
    return f"| {type_name.removesuffix('Component')} | {text} | {', '.join(shown)} |"


def tables() -> dict[str, str]:
    """The tables of the page by name."""
    commands = (
        "| opcode | command | alpha | operands, from column 2 on | meaning |\n|---|---|---|---|---|"
    )
    components = "| type | formula | flags |\n|---|---|---|"
    return {
        "commands": "\n".join([commands, *map(command_row, COMMAND_TYPES)]),
        "components": "\n".join([components, *map(component_row, component_types())]),
    }


def with_tables(page: str) -> str:
    """The page with current tables."""
    for name, table in tables().items():
        pattern = f"<!-- {name} -->\n.*?<!-- /{name} -->"
        new = f"<!-- {name} -->\n{table}\n<!-- /{name} -->"
        page, count = re.subn(pattern, lambda _, new=new: new, page, flags=re.DOTALL)
        assert count == 1, name
    return page


def test_the_tables_are_those_of_the_code() -> None:
    """Commands, formulas and flags of the page are those that the code declares."""
    page = PAGE.read_text()

    assert page == with_tables(page)


def test_all_components_whose_flags_depend_on_settings_are_shown_so() -> None:
    """A type that computes its properties is in OTHER_SETTINGS, or is made of parts."""
    computed = {
        name
        for name in component_types()
        if component_class(name).properties is not Component.properties
    }

    assert computed - {"CompositeComponent"} <= OTHER_SETTINGS.keys()


# -- the interpreter -------------------------------------------------------------------------------


def interpreter() -> dict[str, object]:
    """The names that the Python code of the page defines."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102  the project's own page
    return names


def run_by_the_page(
    nnet: Nnet, computation: NnetComputation, chunks: list[np.ndarray], folder: Path
) -> list[np.ndarray]:
    """The outputs of the page's interpreter for each chunk, read from files."""
    nnet.save(folder / "network")
    computation.save(folder / "computation")
    names = interpreter()
    load = names["load"]
    interpret = names["Interpreter"](
        load(folder / "network", "nnet3.nnet"), load(folder / "computation", "nnet3.computation")
    )
    return [interpret.forward({"input": chunk})["output"] for chunk in chunks]


@pytest.fixture(scope="module")
def digits() -> Nnet:
    """The digits network in test mode."""
    return set_test_mode(read_nnet(DIGITS_EXAMPLE / "final.raw"))


def utterances(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features with the context that the digits model reads, and Kaldi's outputs."""
    expected = read_archive(DIGITS_REFERENCE / "test.output.ark")
    table = read_table(f"ark:{DIGITS_EXAMPLE / 'test.feats.ark'}")
    for (key, features), _ in zip(table, range(count), strict=False):
        yield np.pad(features, ((12, 12), (0, 0)), mode="edge"), expected[key]


def test_the_interpreter_of_the_page_gives_kaldis_posteriors(digits: Nnet, tmp_path: Path) -> None:
    """The page's interpreter runs the digits model, compiled and optimized."""
    for given, expected in utterances(2):
        compiled = compile_computation(
            digits, request_for(range(-12, len(expected) + 12), range(len(expected)))
        )
        for computation in (compiled, optimize(digits, compiled)):
            [found] = run_by_the_page(digits, computation, [given], tmp_path)

            np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_interpreter_of_the_page_runs_loops(tmp_path: Path) -> None:
    """The page's interpreter gives the outputs of the reference runtime, chunk by chunk."""
    config = stacked(
        3,
        "affine Affine input-dim=5 output-dim=2",
        "relu RectifiedLinear dim=2",
        splice="Append(input, IfDefined(Offset(relu, -1)))",
    )
    output = "output input=Sum(relu, Offset(relu, -2))"
    nnet = network(config.replace("output input=relu", output), seed=3)
    requests = looped_requests(nnet, chunk_size=4)
    loop = compile_looped(nnet, requests, optimize=lambda each: optimize(nnet, each))
    rng = np.random.default_rng(4)
    sizes = [len(each.inputs[0].indexes) for each in requests]
    chunks = [rng.normal(size=(size, 3)) for size in (*sizes, *[sizes[-1]] * 5)]
    reference = ReferenceComputer(nnet, loop)

    found = run_by_the_page(nnet, loop, chunks, tmp_path)

    for chunk, output in zip(chunks, found, strict=True):
        expected = reference.forward({"input": chunk})["output"]
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
