"""The stages run apart, in other processes and environments, and exchange serialized values.

NNET3_WHEELS in the environment is a folder with the wheels and a constraints.txt that lists them;
without it, the test builds them.
"""

import os
import runpy
from pathlib import Path

import attrs
import numpy as np
import pytest
import uv
from other_processes import printed_by
from reference_cases import ROOT, ReferenceCase, assert_close, load_case

STAGES = Path(__file__).parent / "stages"
HOLDS = {
    "descriptors": ["descriptors"],
    "computation": ["descriptors", "computation"],
    "graph": ["descriptors", "computation", "graph"],
    "compiler": ["descriptors", "computation", "graph", "compiler"],
    "optimizer": ["descriptors", "computation", "optimizer"],
    "runtime_cuda": ["descriptors", "computation", "runtime_cuda"],
}
"""For each package of a stage all packages that it brings, as modules without "nnet3_"."""

MODULES = tuple(HOLDS)
VALUES = ("network", "request", "compiled", "optimized")

CASES = ["network/tdnn-ivector", "network/tdnnf-inference", "network/lstmp"]


@attrs.frozen
class Stage:
    """A script of tests/stages, the package that it needs, and its arguments before the folder."""

    script: str
    package: str
    arguments: tuple[str, ...] = ()


def stages(case: ReferenceCase) -> tuple[Stage, ...]:
    """The stages for one case, in order."""
    return (
        Stage("read_network", "nnet3-descriptors", (str(case.network_path),)),
        Stage("make_request", "nnet3-graph", (str(case.folder / "case.json"),)),
        Stage("compile", "nnet3-compiler"),
        Stage("optimize", "nnet3-optimizer"),
        Stage("run", "nnet3-runtime-cuda", (str(case.folder / "arrays.npz"),)),
    )


def run_uv(*arguments: str | Path) -> None:
    """Run uv, and show what it printed if it fails."""
    printed_by([uv.find_uv_bin(), *arguments], cwd=ROOT)


def build_wheels(folder: Path) -> Path:
    """Build the wheels of all packages; returns a file of constraints that names them."""
    run_uv("build", "--all-packages", "--wheel", "--out-dir", folder)
    constraints = folder / "constraints.txt"
    constraints.write_text(
        "".join(
            f"{wheel.name.partition('-')[0]} @ {wheel.as_uri()}\n" for wheel in folder.glob("*.whl")
        )
    )
    return constraints


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Python of an environment for each package: its wheel and declared dependencies."""
    folder = tmp_path_factory.mktemp("environments")
    built = os.environ.get("NNET3_WHEELS")
    constraints = Path(built, "constraints.txt") if built else build_wheels(folder)
    pythons = {}
    for module in MODULES:
        package = package_of(module)
        run_uv("venv", folder / package)
        pythons[package] = folder / package / "bin" / "python"
        run_uv("pip", "install", "--python", pythons[package], "-c", constraints, package)
    return pythons


def package_of(module: str) -> str:
    """The package that holds one of MODULES."""
    return f"nnet3-{module.replace('_', '-')}"


def run_apart(case: ReferenceCase, folder: Path, environments: dict[str, Path]) -> None:
    """Run each stage in its own process, in the environment of its package."""
    for stage in stages(case):
        # -I: only the packages of the environment can be imported.
        command = environments[stage.package], "-I", STAGES / f"{stage.script}.py"
        printed_by([*command, *stage.arguments, folder])


def run_together(case: ReferenceCase, folder: Path) -> None:
    """Run all stages in this process."""
    for stage in stages(case):
        runpy.run_path(str(STAGES / f"{stage.script}.py"))["main"](*stage.arguments, str(folder))


def test_environments_hold_one_package_each(environments: dict[str, Path]) -> None:
    """In the environment of a stage, only the packages that it declares can be imported."""
    probe = (
        "import importlib.util as u, sys; "
        "print([m for m in sys.argv[1:] if u.find_spec('nnet3_' + m)])"
    )
    for module, held in HOLDS.items():
        python = environments[package_of(module)]

        found = printed_by([python, "-I", "-c", probe, *MODULES])

        assert str(held) == found.strip()


@pytest.mark.parametrize("name", CASES)
def test_stages_apart_give_what_one_process_gives(
    name: str, environments: dict[str, Path], tmp_path: Path
) -> None:
    """Serialized values of stages run apart are equal, byte for byte, and outputs are Kaldi's."""
    case = load_case(name)
    apart, together = tmp_path / "apart", tmp_path / "together"
    for folder in (apart, together):
        folder.mkdir()

    run_apart(case, apart, environments)
    run_together(case, together)

    for value in VALUES:
        assert (together / value).read_bytes() == (apart / value).read_bytes(), value
    with np.load(apart / "outputs.npz") as outputs:
        assert_close(outputs, case.node_arrays("output"), 1e-5)
