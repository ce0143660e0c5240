"""Networks that read frames at a fixed time: the whole utterance, or an error that says why not."""

import numpy as np
import pytest
from nnet3 import Model
from nnet3_descriptors import Nnet, parse_config

FRAMES = np.arange(24, dtype=np.float32).reshape(12, 2)
"""An utterance."""


def network(output: str = "Append(ReplaceIndex(input, t, 0), input)", *lines: str) -> Nnet:
    """A network whose output reads the first frame, and its own."""
    config = ["input-node name=input dim=2", *lines, f"output-node name=output input={output}"]
    return parse_config("\n".join(config))


def test_whole_utterances() -> None:
    """In one chunk, each output has the first frame of the utterance, however many share a run."""
    model = Model(network())
    expected = np.concatenate([np.repeat(FRAMES[:1], 12, axis=0), FRAMES], axis=1)

    np.testing.assert_array_equal(model.compute(FRAMES), expected)
    for _, outputs in model.compute_many([("a", FRAMES), ("b", FRAMES)], frames_per_chunk=12):
        np.testing.assert_array_equal(outputs, expected)


LAYER = (
    "component name=c type=NoOpComponent dim=2",
    "component-node name=a component=c input=Scale(0.5, input)",
)


@pytest.mark.parametrize(
    "read",
    ["ReplaceIndex(ivector, t, 0)", "ReplaceIndex(a, t, 0)", "Offset(ReplaceIndex(a, t, 0), -3)"],
)
def test_reads_of_ivectors_are_no_frames(read: str) -> None:
    """What sees nothing but the i-vector may be read at t = 0, in chunks and in streams."""
    model = Model(
        network(
            f"Sum(input, {read})",
            "input-node name=ivector dim=2",
            LAYER[0],
            "component-node name=a component=c input=ivector",
        )
    )
    ivector = np.array([100, 200], np.float32)
    stream = model.stream(frames_per_chunk=4)

    np.testing.assert_array_equal(
        model.compute(FRAMES, ivector, frames_per_chunk=4), FRAMES + ivector
    )
    outputs = [stream.push(FRAMES, ivector), stream.finish()]
    np.testing.assert_array_equal(np.concatenate(outputs), FRAMES + ivector)
