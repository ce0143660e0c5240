"""The stages run apart, one package at its last release and the others as they are now.

Releases that another package declares too old are left out. NNET3_RELEASED in the environment is a
folder with the wheels of the last releases, NNET3_WHEELS one with those of the packages now;
`nox -s mixed` makes both.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import uv
from reference_cases import assert_close, load_case
from test_processes import CASES, MODULES, package_of, run_apart, run_uv

RELEASED = [
    wheel
    for wheel in sorted(Path(os.environ.get("NNET3_RELEASED", "/nonexistent")).glob("*.whl"))
    if wheel.name.partition("-")[0].removeprefix("nnet3_") in MODULES
]

pytestmark = pytest.mark.skipif(not RELEASED, reason="NNET3_RELEASED names no folder with wheels")


@pytest.mark.parametrize("released", RELEASED, ids=lambda wheel: wheel.name)
def test_one_package_is_older(released: Path, tmp_path: Path) -> None:
    """With any one package older, values are read, and outputs are Kaldi's."""
    module = released.name.partition("-")[0]
    today = (
        Path(os.environ["NNET3_WHEELS"], "constraints.txt").read_text(encoding="utf-8").splitlines()
    )
    others = [line for line in today if line.partition(" ")[0] != module]
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join([*others, f"{module} @ {released.as_uri()}"]))
    pythons = {}
    for package in map(package_of, MODULES):
        pythons[package] = tmp_path / package / "bin" / "python"
        run_uv("venv", tmp_path / package)
        install = "pip", "install", "--python", pythons[package], "-c", constraints, package
        done = subprocess.run(
            [uv.find_uv_bin(), *install], capture_output=True, text=True, check=False
        )
        if "No solution found" in done.stderr:
            pytest.skip(f"{package} of today needs a newer {package_of(module[6:])}")
        assert done.returncode == 0, done.stderr

    for name in CASES:
        case = load_case(name)
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        run_apart(case, folder, pythons)
        with np.load(folder / "outputs.npz") as outputs:
            assert_close(outputs, case.node_arrays("output"), 1e-5)
