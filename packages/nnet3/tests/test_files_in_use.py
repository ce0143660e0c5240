"""Models whose file is written to while they are in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nnet3 import Model, load
from nnet3_descriptors import parse_config, write_nnet
from small_networks import stacked

NETWORK = stacked(
    96,
    "fixed FixedAffine input-dim=96 output-dim=128",
    "affine NaturalGradientAffine input-dim=256 output-dim=128 "
    "input=Append(Offset(fixed, -1), fixed)",
    "relu RectifiedLinear dim=128",
    "linear Linear input-dim=128 output-dim=128",
    "block BlockAffine input-dim=128 output-dim=256 num-blocks=2 input=Sum(linear, relu)",
    "repeated RepeatedAffine input-dim=256 output-dim=256 num-repeats=2",
    "tdnn Tdnn input-dim=256 output-dim=256 time-offsets=-1,0,1",
    "conv TimeHeightConvolution num-filters-in=64 num-filters-out=64 height-in=4 height-out=4 "
    "height-offsets=-1,0,1 time-offsets=-1,0,1",
    "pool Convolution input-x-dim=16 input-y-dim=16 input-z-dim=1 filt-x-dim=9 filt-y-dim=8 "
    "filt-x-step=1 filt-y-step=8 num-filters=64",
    "lstm-w Affine input-dim=1088 output-dim=256 input=Append(pool, IfDefined(Offset(lstm.m, -1)))",
    "lstm LstmNonlinearity cell-dim=64 input=Append(lstm-w, IfDefined(Offset(lstm.c, -1)))",
).replace("input=lstm ", "input=lstm.m ")
NETWORK += "dim-range-node name=lstm.c input-node=lstm dim-offset=0 dim=64\n"
NETWORK += "dim-range-node name=lstm.m input-node=lstm dim-offset=64 dim=64\n"

USED = """
import os, sys
import nnet3, numpy as np
from nnet3_descriptors import ModelFileError, read_nnet

path, whole = sys.argv[1:]
features = np.random.default_rng(0).standard_normal((60, 96)).astype(np.float32)
model, copied = nnet3.load(path), nnet3.load(read_nnet(path))
streams = [each.stream(frames_per_chunk=10) for each in (model, copied)]
model.compute(features)
streams[0].push(features)
os.truncate(whole, 100)
assert (model.compute(features) == copied.compute(features)).all()
streams[1].push(features)
outputs, expected = (each.push(features) for each in streams)
assert len(outputs) and (outputs == expected).all()
try:
    model.compute(features[:31])
except ModelFileError as error:
    print(error)
"""


@pytest.mark.parametrize("offset", range(4))
def test_a_file_that_is_cut_off(tmp_path: Path, offset: int) -> None:
    """What is bound goes on as it was, whatever the file aligns; what is bound later is refused."""
    path = tmp_path / "archive"
    with path.open("wb") as file:
        file.write(b"x" * offset)
        write_nnet(parse_config(NETWORK), file)

    found = subprocess.run(
        [sys.executable, "-c", USED, f"{path}:{offset}", path],
        env={**os.environ, "NNET3_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (found.returncode, found.stderr) == (0, "")
    assert "archive: the file was written to after it was read" in found.stdout


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    """A loaded model has views of its file for large matrices, though another has its name."""
    nnet, features = parse_config(NETWORK), np.ones((40, 96), np.float32)
    path = tmp_path / "final.raw"
    write_nnet(nnet, path)
    model, expected = load(path), Model(nnet)
    path.unlink()

    arrays = [a for c in model.nnet.components for a in c.arrays().values() if a.ndim == 2]
    assert {array.flags.owndata for array in arrays if min(array.shape) >= 64} == {False}
    np.testing.assert_array_equal(model.compute(features), expected.compute(features))
    assert model.nnet.components == expected.nnet.components
    np.testing.assert_array_equal(
        model.compute(features, output="relu"), expected.compute(features, output="relu")
    )
    assert model.stream().push(features).any()
