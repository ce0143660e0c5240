"""Packages import what they export on first use, and not before."""

import ast
import importlib
import json
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from other_processes import printed_by_python
from reference_cases import ROOT
from test_borders import listed

LAZY = sorted(
    file
    for file in ROOT.glob("packages/*/src/**/__init__.py")
    if "\n    __getattr__, __dir__ = on_first_use(__name__)\n" in file.read_text()
    and file.parent.name != "lazy_exports"
)
"""The packages that import their public names on first use, and list them as imports alone."""


def package_of(file: Path) -> str:
    """The full name of the package with this __init__."""
    parts = file.parent.parts
    return ".".join(parts[parts.index("src") + 1 :])


@pytest.mark.parametrize("file", LAZY, ids=package_of)
def test_each_export_is_listed_once(file: Path) -> None:
    """The names that a package exports are those that type checkers take for its exports."""
    names = listed(file)

    assert importlib.import_module(package_of(file)).__all__ == names
    assert len(set(names)) == len(names) > 0


@pytest.mark.parametrize("file", LAZY, ids=package_of)
def test_every_export_is_there(file: Path) -> None:
    """A package has and lists each name of __all__, and no module hides one."""
    package = importlib.import_module(package_of(file))

    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    loaded_later = {name for name in package.__all__ if name not in names_at_first(file)}
    modules = {path.stem for path in file.parent.iterdir()}
    assert loaded_later & modules == set(), "a module that is imported would hide the name"


def names_at_first(file: Path) -> set[str]:
    """The names that a file imports before any of them is used."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    imports = (each for each in body if isinstance(each, ast.ImportFrom))
    return {alias.name for each in imports for alias in each.names}


def words(text: str) -> set[str]:
    """The words of a text."""
    return set(text.split())


NEEDED = words(
    """
    nnet3 nnet3_compiler nnet3_computation nnet3_descriptors nnet3_graph nnet3_optimizer
    nnet3_runtime_cuda nnet3_tables nnet3_tools
    """
)
"""The packages of this project that a plain nnet3-compute loads."""

NOT_NEEDED = words(
    """
    cattrs cupy importlib.metadata nnet3_compiler.looped nnet3_computation.text.commands
    nnet3_computation.text.parser nnet3_computation.text.printer
    nnet3_descriptors.serialization nnet3_optimizer.equivalence nnet3_runtime_cuda.cpu.bf16
    nnet3_runtime_cuda.cuda nnet3.streams nnet3_runtime_cuda.kernels.composite
    nnet3_runtime_cuda.kernels.convolution nnet3_runtime_cuda.kernels.over_time
    nnet3_runtime_cuda.kernels.gru nnet3_runtime_cuda.kernels.lstm
    nnet3_runtime_cuda.tracing numpy.ma numpy.random safetensors scipy tqdm
    """
)
"""Modules that it does not load: for proofs, devices, streams, traces, stored forms, progress,
random numbers, masked arrays, and components that the network does not have."""

SMALL_JOBS = {
    "nnet3-info": ["{raw}"],
    "nnet3-copy": ["{raw}", "{output}"],
    "nnet3-average": ["{raw}", "{raw}", "{output}"],
    "nnet3-am-info": ["{mdl}"],
    "nnet3-am-copy": ["--raw=true", "{mdl}", "{output}"],
    "nnet3-copy-egs": ["ark:{egs}", "ark:{output}"],
}
"""What tools that do little are given."""

NOT_FOR_SMALL_JOBS = words(
    """
    kaldi_native_io logging nnet3_compiler nnet3_optimizer nnet3_runtime_cuda numpy.ma
    numpy.random pathlib scipy tqdm
    """
)
"""Modules that such a tool does not load: it would need more than twice the time of NumPy."""

HELPFUL = words(
    """
    nnet3 nnet3_compiler nnet3_computation nnet3_descriptors nnet3_report
    nnet3_descriptors.editing nnet3_descriptors.errors nnet3_descriptors.forking
    nnet3_descriptors.lazy_exports nnet3_graph nnet3_optimizer nnet3_runtime_cuda
    nnet3_runtime_cuda.device nnet3_runtime_cuda.errors nnet3_speech nnet3_speech.errors
    nnet3_speech.feature_options nnet3_speech.options nnet3_tables nnet3_training
    nnet3_training.chain nnet3_training.chain.graphs nnet3_training.chain.options
    nnet3_training.egs nnet3_training.errors nnet3_training.fields nnet3_training.recipes
    nnet3_training.recipes.options
    """
)
"""The modules of other packages that a command loads for the defaults of its options."""

HEAVY = words(
    """
    cattrs cupy dask distributed jinja2 kaldi_native_io kaldifst matplotlib numpy onnx
    pytest safetensors scipy tqdm
    """
)
"""Libraries that no command's help loads."""

DIGITS = ROOT / "examples/digits"
KALDI_DIGITS = ROOT / "tests/reference/digits"


def modules_of(statement: str) -> set[str]:
    """The modules that a new process has loaded after a statement."""
    text = f"import sys, json\n{statement}\nprint(json.dumps(list(sys.modules)))"
    return set(json.loads(printed_by_python("-c", text).splitlines()[-1]))


def modules_of_tool(module: str, function: str, *arguments: str) -> set[str]:
    """The modules that a tool has loaded when it ends well; what it prints is dropped."""
    return modules_of(
        f"import contextlib, io\nsys.argv = {[*arguments]!r}\n"
        f"from {module} import {function}\n"
        "with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):\n"
        f"    try: {function}()\n    except SystemExit as end: assert not end.code"
    )


def test_what_nnet3_compute_loads(tmp_path: Path) -> None:
    """Computing an archive loads the modules that it uses, and no others of these packages."""
    tables = f"ark:{DIGITS}/test.feats.ark", f"ark:{tmp_path}/output.ark"
    tool = "nnet3-compute", f"{DIGITS}/final.raw", *tables
    loaded = modules_of_tool("nnet3_tools.entry_points", "nnet3_compute", *tool)

    assert {name.partition(".")[0] for name in loaded if name.startswith("nnet3")} == NEEDED
    assert loaded & NOT_NEEDED == set()


@pytest.mark.parametrize("tool", SMALL_JOBS)
def test_what_small_jobs_load(tool: str, tmp_path: Path) -> None:
    """A tool that does little loads no runtime, no compiler, and only the libraries it uses."""
    names = {
        "raw": DIGITS / "final.raw",
        "mdl": KALDI_DIGITS / "final.mdl",
        "egs": KALDI_DIGITS / "egs.ark",
        "output": tmp_path / "output",
    }
    arguments = (each.format(**names) for each in SMALL_JOBS[tool])

    name = tool.replace("-", "_")
    loaded = modules_of_tool("nnet3_tools.entry_points", name, tool, *arguments)

    assert "nnet3_tools" in loaded
    assert "numpy" in loaded
    assert loaded & NOT_FOR_SMALL_JOBS == set()


COMMANDS = sorted(
    entry.name
    for entry in entry_points(group="console_scripts")
    if entry.module.partition(".")[0].startswith("nnet3")
)
"""All commands that the packages install."""


@pytest.mark.parametrize("command", COMMANDS)
def test_what_help_loads(command: str) -> None:
    """The help of a command loads no NumPy, and no module that computes, compiles or reads."""
    [entry] = entry_points(group="console_scripts", name=command)
    loaded = modules_of_tool(entry.module, entry.attr, command, "--help")

    own = entry.module.partition(".")[0]
    assert "click" in loaded
    others = {name for name in loaded if name.startswith("nnet3")}
    assert {
        name for name in others if name.partition(".")[0] not in (own, "nnet3_tools")
    } <= HELPFUL
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


def test_commands() -> None:
    """COMMANDS lists the commands that the packages declare."""
    declared = [tomllib.loads(file.read_text()) for file in ROOT.glob("packages/*/pyproject.toml")]
    scripts = [set(each["project"].get("scripts", ())) for each in declared]

    assert set(COMMANDS) == set().union(*scripts)


@pytest.mark.parametrize("package", sorted({package_of(file).partition(".")[0] for file in LAZY}))
def test_importing_a_package_makes_no_classes(package: str) -> None:
    """Importing a package loads no attrs, no NumPy and no other package."""
    loaded = {name for name in modules_of(f"import {package}") if name.startswith(("nnet3", "att"))}

    assert loaded <= {
        package,
        "nnet3_descriptors",
        "nnet3_descriptors.lazy_exports",
    }
