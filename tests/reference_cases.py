"""The reference cases: small networks with results that Kaldi computed for them.

`tests/reference/README.md` describes the files. A test that runs once for each case::

    from reference_cases import ReferenceCase, parametrize_cases

    @parametrize_cases(kind="component")
    def test_reads(case: ReferenceCase) -> None: ...
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, read_nnet, set_test_mode

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "tests" / "reference"
DIGITS_EXAMPLE = ROOT / "examples" / "digits"
DIGITS_REFERENCE = REFERENCE / "digits"
TOOLS_REFERENCE = REFERENCE / "tools"
CHAIN_REFERENCE = REFERENCE / "chain"

KINDS = ("component", "network")

# Kaldi wrote nnet.raw before it gave the batch-norm components statistics, nnet.txt after.
WITH_STATISTICS_IN_TEXT = frozenset({"network/tdnn-test-mode", "network/tdnnf-inference"})


def kaldi_commands(folder: Path) -> dict[str, str]:
    """The command lines of Kaldi's tools that wrote a folder of the reference, by name."""
    lines = (folder / "commands.txt").read_text().strip().splitlines()
    return dict(line.split(": ", 1) for line in lines)


@attrs.frozen(kw_only=True)
class ReferenceCase:
    """A network and a request, with Kaldi's results.

    Attributes:
        name: "component/affine", "network/lstmp", ...; the folder below tests/reference.
        test_mode: Whether batch-norm and dropout are in test mode when it runs.
        request: The request.
        structure: Kaldi's counts; the keys are described in tests/reference/README.md.
    """

    name: str
    about: str
    test_mode: bool
    request: ComputationRequest
    structure: dict[str, Any] = attrs.field(repr=False, eq=False)

    @property
    def folder(self) -> Path:
        """The folder with the files of the case."""
        return REFERENCE / self.name

    @property
    def config(self) -> str:
        """The network as config lines."""
        return (self.folder / "nnet.config").read_text()

    @property
    def binary_path(self) -> Path:
        """The network in Kaldi's binary form."""
        return self.folder / "nnet.raw"

    @property
    def text_path(self) -> Path:
        """The network in Kaldi's text form."""
        return self.folder / "nnet.txt"

    @property
    def network_path(self) -> Path:
        """The file with the network that the case's info, structure and arrays belong to."""
        return self.text_path if self.name in WITH_STATISTICS_IN_TEXT else self.binary_path

    @property
    def info(self) -> str | None:
        """The output of nnet3-info for the network; None if Kaldi refuses to print it."""
        return (self.folder / "info.txt").read_text() or None

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays of the case by their full name, such as "input/ivector" or "gradient"."""
        with np.load(self.folder / "arrays.npz", allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    def node_arrays(self, role: str) -> dict[str, np.ndarray]:
        """The arrays of a role ("input", "output", "output_deriv", "input_deriv") by node name."""
        prefix = f"{role}/"
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }


@functools.cache
def load_case(name: str) -> ReferenceCase:
    """Load the case of this name, for example "network/lstmp"."""
    description = json.loads((REFERENCE / name / "case.json").read_text())
    wanted = description["request"]
    for kind in ("inputs", "outputs"):
        wanted[kind] = [IoSpecification(**io) for io in wanted[kind]]
    return ReferenceCase(name=name, **description | {"request": ComputationRequest(**wanted)})


def case_names(kind: str | None = None) -> tuple[str, ...]:
    """Names of all cases, or of those of one kind ("component" or "network"), sorted."""
    kinds = KINDS if kind is None else (kind,)
    return tuple(
        f"{each}/{folder.name}" for each in kinds for folder in sorted((REFERENCE / each).iterdir())
    )


def parametrize_cases(
    kind: str | None = None, *, only: Callable[[ReferenceCase], bool] = lambda case: True
) -> pytest.MarkDecorator:
    """Run a test once for each case, as its argument `case`.

    Args:
        kind: "component" or "network"; both if None.
        only: Selects cases by their properties (request, test mode), never by whether they pass.
    """
    cases = [case for case in map(load_case, case_names(kind)) if only(case)]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def assert_close(
    actual: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    tolerance: float,
    dtype: type = np.float32,
) -> None:
    """Check arrays of a type by name: differences are relative to the largest value of an array."""
    assert set(expected) == set(actual)
    for name, array in expected.items():
        assert array.shape == actual[name].shape
        assert actual[name].dtype == dtype
        scale = max(np.abs(array).max(), 1e-3)
        np.testing.assert_allclose(actual[name] / scale, array / scale, rtol=0, atol=tolerance)


def network(case: ReferenceCase) -> Nnet:
    """The network in the mode in which the case runs."""
    nnet = read_nnet(case.network_path)
    return set_test_mode(nnet) if case.test_mode else nnet
