"""Networks are read, described, edited and written as Kaldi does."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from nnet3_descriptors import Nnet, parse_config, read_nnet, set_test_mode, vectorize, write_nnet
from nnet3_descriptors.editing import (
    CollapseOptions,
    apply_edits,
    average,
    collapse_model,
    scale,
)
from nnet3_graph import compute_context
from nnet3_report import context_of
from reference_cases import (
    DIGITS_EXAMPLE,
    DIGITS_REFERENCE,
    TOOLS_REFERENCE,
    ReferenceCase,
    case_names,
    load_case,
    parametrize_cases,
)

BINARY = [
    *(load_case(name).binary_path for name in case_names()),
    DIGITS_EXAMPLE / "final.raw",
    *(DIGITS_REFERENCE / f"{name}.raw" for name in ("initial", "trained.m0.9")),
]


def written(nnet: Nnet) -> bytes:
    """The bytes of the network in Kaldi's binary form."""
    file = io.BytesIO()
    write_nnet(nnet, file)
    return file.getvalue()


@pytest.mark.parametrize("path", BINARY, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_binary_model_is_written_back_unchanged(path: Path) -> None:
    """Networks, some with the statistics of a real training run, are written as the same bytes.

    So are networks restored from their container, whose bytes are the same again.
    """
    nnet = read_nnet(path)
    data = nnet.to_bytes()
    restored = Nnet.from_bytes(data)

    assert path.read_bytes() == written(nnet) == written(restored)
    assert data == restored.to_bytes()


def assert_same_structure(one: Nnet, other: Nnet) -> None:
    """Checks that nodes, and types and dimensions of components, are the same."""
    kinds = [
        [(type(each), each.input_dim, each.output_dim) for each in nnet.components]
        for nnet in (one, other)
    ]
    assert one.nodes == other.nodes
    assert one.component_names == other.component_names
    assert kinds[0] == kinds[1]


@parametrize_cases()
def test_text_and_binary_hold_the_same_network(case: ReferenceCase) -> None:
    """The text form gives the same nodes, components and parameters, to its number of digits."""
    from_text, from_binary = read_nnet(case.text_path), read_nnet(case.binary_path)

    assert_same_structure(from_text, from_binary)
    np.testing.assert_allclose(vectorize(from_text), vectorize(from_binary), rtol=1e-5, atol=1e-6)


@parametrize_cases(only=lambda case: case.info is not None)
def test_info_is_what_nnet3_info_prints(case: ReferenceCase) -> None:
    """The info text equals Kaldi's, line by line."""
    assert case.info is not None
    nnet = read_nnet(case.network_path)
    assert case.info.splitlines() == nnet.info(context_of(nnet)).splitlines()


@parametrize_cases(only=lambda case: "params_before" in case.arrays)
def test_parameters_as_a_vector(case: ReferenceCase) -> None:
    """The updatable parameters as one vector are Kaldi's, in Kaldi's order."""
    np.testing.assert_array_equal(
        vectorize(read_nnet(case.binary_path)), case.arrays["params_before"]
    )


@parametrize_cases()
def test_config_describes_the_network(case: ReferenceCase) -> None:
    """The config lines give Kaldi's network, except for initial values."""
    from_config = parse_config(case.config, rng=np.random.default_rng(0))
    from_file = read_nnet(case.binary_path)

    assert_same_structure(from_config, from_file)
    assert from_config.num_parameters == case.structure["num_parameters"]


COPIES = TOOLS_REFERENCE / "copy"
EDITS = {
    "learning-rate": "set-learning-rate learning-rate=0.0005",
    "reduce-rank": "reduce-rank name=tdnnf3.affine rank=12",
    "fixed-affine": "convert-to-fixed-affine name=tdnn1.affine",
    "rename": "rename-node old-name=tdnn4.relu new-name=fourth.relu",
    "edits-many": "set-learning-rate name=tdnn* learning-rate=0.001\n"
    "set-learning-rate-factor name=output.affine learning-rate-factor=0.1",
    "svd": "apply-svd name=tdnn4.affine bottleneck-dim=16 shrinkage-threshold=0.999",
}

KALDIS_PAIRS = CollapseOptions(dropout=False, batchnorm=False)
"""The pairs of components that Kaldi's preparation collapses."""


COPIED: dict[str, Callable[[Nnet], Nnet]] = {
    **{name: partial(apply_edits, text=edits) for name, edits in EDITS.items()},
    "prepare-for-test": lambda nnet: collapse_model(set_test_mode(nnet), KALDIS_PAIRS),
    "scale": lambda nnet: scale(nnet, 0.5),
    "average": lambda nnet: average(
        [read_nnet(DIGITS_REFERENCE / "initial.raw"), nnet], [0.25, 0.75]
    ),
}
"""What Kaldi's tools made of the digits network."""


@pytest.mark.parametrize("name", COPIED)
def test_networks_are_those_of_kaldis_tools(name: str) -> None:
    """Edits, scales, averages and preparation for tests give what nnet3-copy and others wrote."""
    nnet = COPIED[name](read_nnet(DIGITS_EXAMPLE / "final.raw"))

    copy, context = read_nnet(COPIES / f"{name}.raw"), compute_context(nnet)
    info = COPIES / f"{name}.info.txt"
    assert nnet.info(context) == (info.read_text() if info.exists() else copy.info(context))
    expected, arrays = copy.state_dict(), nnet.state_dict()
    assert expected.keys() == arrays.keys()
    if name == "svd":  # single singular vectors have arbitrary signs
        factors = "tdnn4.affine_b.linear_params", "tdnn4.affine_a.params"
        products = [np.matmul(*map(each.pop, factors)) for each in (arrays, expected)]
        np.testing.assert_allclose(*products, atol=1e-5)
    for key in expected:
        # Kaldi's copying multiplies statistics by their count and divides them by it.
        np.testing.assert_allclose(arrays[key], expected[key], rtol=1e-6, err_msg=key)
