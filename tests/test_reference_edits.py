"""Edits of the digits model give the networks of nnet3-copy and nnet3-average."""

import numpy as np
import pytest
from nnet3_descriptors import Nnet, read_nnet, set_test_mode
from nnet3_descriptors.editing import (
    CollapseOptions,
    apply_edits,
    average,
    collapse_model,
    scale,
)
from nnet3_graph import compute_context
from reference_cases import DIGITS_EXAMPLE, DIGITS_REFERENCE, TOOLS_REFERENCE

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


def assert_reproduced(nnet: Nnet, name: str, *, except_for: tuple[str, ...] = ()) -> None:
    """Checks the info text, and the arrays, against those of Kaldi's copy."""
    copy = read_nnet(COPIES / f"{name}.raw")
    info = COPIES / f"{name}.info.txt"
    expected, arrays = copy.state_dict(), nnet.state_dict()

    context = compute_context(nnet)
    assert nnet.info(context) == (info.read_text() if info.exists() else copy.info(context))
    assert expected.keys() == arrays.keys()
    for key in expected.keys() - set(except_for):
        # Kaldi's copying multiplies statistics by their count and divides them by it.
        np.testing.assert_allclose(arrays[key], expected[key], rtol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", EDITS)
def test_edits_are_those_of_nnet3_copy(name: str) -> None:
    """Each edit gives the network that Kaldi's tool wrote."""
    nnet = apply_edits(read_nnet(DIGITS_EXAMPLE / "final.raw"), EDITS[name])

    factors = ("tdnn4.affine_a.params", "tdnn4.affine_b.linear_params") if name == "svd" else ()
    assert_reproduced(nnet, name, except_for=factors)


def test_the_product_of_the_factors_is_that_of_nnet3_copy() -> None:
    """Products of singular vectors are compared, because single vectors have arbitrary signs."""
    nnet = apply_edits(read_nnet(DIGITS_EXAMPLE / "final.raw"), EDITS["svd"])

    products = [
        arrays["tdnn4.affine_b.linear_params"] @ arrays["tdnn4.affine_a.params"]
        for arrays in (nnet.state_dict(), read_nnet(COPIES / "svd.raw").state_dict())
    ]
    np.testing.assert_allclose(*products, atol=1e-5)


def test_collapsing_is_that_of_prepare_for_test() -> None:
    """With Kaldi's choice of pairs, preparation for tests gives the network of Kaldi's tool."""
    nnet = set_test_mode(read_nnet(DIGITS_EXAMPLE / "final.raw"))

    collapsed = collapse_model(nnet, CollapseOptions(dropout=False, batchnorm=False))

    assert_reproduced(collapsed, "prepare-for-test")


def test_scaling_is_that_of_nnet3_copy() -> None:
    """Parameters and numbers of frames are scaled as Kaldi's tool does."""
    assert_reproduced(scale(read_nnet(DIGITS_EXAMPLE / "final.raw"), 0.5), "scale")


def test_averaging_is_that_of_nnet3_average() -> None:
    """Parameters and statistics of two models are averaged as Kaldi's tool does."""
    models = [DIGITS_REFERENCE / "initial.raw", DIGITS_EXAMPLE / "final.raw"]

    assert_reproduced(average([read_nnet(path) for path in models], [0.25, 0.75]), "average")
