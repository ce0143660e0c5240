"""Recognise spoken digits in ONNX Runtime, with a model that nnet3-to-onnx wrote.

    nnet3-to-onnx final.raw chunks.onnx --frames=50
    python recognise_onnx.py chunks.onnx

with a model of whole utterances (without --frames), or, frame by frame as speech comes, with the
two models of a stream:

    nnet3-to-onnx final.raw stream.onnx --frames=20 --stream
    python recognise_onnx.py stream.start.onnx stream.onnx

`compute` and `compute_stream` need nothing but the models, and serve every network that
nnet3-to-onnx exports, with i-vectors or without. The words are recognised as in recognise.py.
"""

import re
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from nnet3_tables import read_table

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FOLDER = Path(__file__).parent


def numbers(session: onnxruntime.InferenceSession) -> dict[str, int]:
    """The numbers of a model's metadata, such as left_context."""
    pairs = session.get_modelmeta().custom_metadata_map.items()
    is_number = re.compile(r"-?\d+").fullmatch
    return {key.removeprefix("nnet3."): int(text) for key, text in pairs if is_number(text)}


def run(
    session: onnxruntime.InferenceSession, inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The outputs of a model by name, for inputs of any number of sequences.

    A model of a fixed number of sequences runs several times; the last sequence fills it up.
    """
    names = [each.name for each in session.get_outputs()]
    count = len(next(iter(inputs.values())))
    size = session.get_inputs()[0].shape[0]
    size = size if isinstance(size, int) else count
    parts = []
    for begin in range(0, count, size):
        chosen = np.arange(begin, begin + size).clip(0, count - 1)
        given = {name: array[chosen].astype(np.float32) for name, array in inputs.items()}
        parts.append(session.run(names, given))
    joined = (np.concatenate(arrays)[:count] for arrays in zip(*parts, strict=True))
    return dict(zip(names, joined, strict=True))


def compute(
    session: onnxruntime.InferenceSession,
    features: np.ndarray,
    ivectors: np.ndarray | None = None,
    ivector_period: int = 0,
) -> np.ndarray:
    """The outputs of an utterance: its chunks are the sequences of the model.

    Frames at the edges are repeated, as nnet3-compute does. The last chunk is as long as the
    others, where nnet3-compute takes a shorter one. A model of whole utterances has one chunk.

    Args:
        session: The model.
        features: (frames, columns).
        ivectors: (rows, columns), if the network takes i-vectors.
        ivector_period: Frames between two rows of the i-vectors; 0 for one that serves all frames.

    Returns:
        (rows, columns): a row for each frame, or for one of so many as the model is subsampled by.
    """
    about = numbers(session)
    size, step = about["frames_per_chunk"], about["frame_subsampling_factor"]
    if size == 0:  # any number of frames, but at least as many as have an output
        least = about["least_frames"] - about["left_context"] - about["right_context"]
        size = max(len(features), least)
    begins, end = np.arange(0, len(features), size), len(features)
    times = begins[:, None] + np.arange(-about["left_context"], size + about["right_context"])
    inputs = {"input": features[times.clip(0, end - 1)]}
    if ivectors is not None:
        if len(ivectors) > 1 and not ivector_period:
            raise ValueError(f"{len(ivectors)} i-vectors need an ivector_period")
        rows = np.zeros(len(begins), int)
        if ivector_period:  # the one in the middle of a chunk's outputs
            last = begins + (np.minimum(begins + size, end) - begins - 1) // step * step
            rows = ((begins + last) // 2 // ivector_period).clip(0, len(ivectors) - 1)
        inputs["ivector"] = ivectors[rows][:, None]
    outputs = run(session, inputs)["output"]
    return outputs.reshape(-1, outputs.shape[-1])[: -(-end // step)]


def compute_stream(
    start: onnxruntime.InferenceSession,
    again: onnxruntime.InferenceSession,
    features: np.ndarray,
    ivectors: np.ndarray | None = None,
    ivector_period: int = 0,
) -> np.ndarray:
    """The outputs of an utterance, as a stream: a call takes only the frames that are new.

    Args:
        start: The model of the first call.
        again: The model of all further calls.
        features: (frames, columns).
        ivectors: See `compute`. A call takes the one for the last frame so far.
        ivector_period: See `compute`.

    Returns:
        (rows, columns), as `compute`.
    """
    about = numbers(start)
    end, rows = len(features), -(-len(features) // about["frame_subsampling_factor"])
    session, time = start, -about["left_context"]
    outputs: list[np.ndarray] = []
    state: dict[str, np.ndarray] = {}
    while sum(map(len, outputs)) < rows:
        [new] = [each.shape[1] for each in session.get_inputs() if each.name == "input"]
        given = {"input": features[np.arange(time, time + new).clip(0, end - 1)][None]}
        time += new
        if ivectors is not None:
            last = min(time, end) - 1
            row = min(last // ivector_period, len(ivectors) - 1) if ivector_period else 0
            given["ivector"] = ivectors[None, row : row + 1]
        found = run(session, {**given, **state})
        outputs.append(found.pop("output")[0])
        state = {name.removeprefix("next_"): array for name, array in found.items()}
        session = again
    return np.concatenate(outputs)[:rows]


def check(sessions: list[onnxruntime.InferenceSession]) -> None:
    """Exit with what is expected, unless these are one model of the digits or the two of a stream.

    The first model of a stream returns the state; the second takes it, too.
    """
    kinds = []
    for session in sessions:
        takes = any(each.name.startswith("state.") for each in session.get_inputs())
        returns = any(each.name.startswith("next_state.") for each in session.get_outputs())
        kinds.append((takes, returns))
    if kinds not in ([(False, False)], [(False, True), (True, True)]):
        sys.exit(
            "recognise_onnx.py: expected one model without state, or the two that nnet3-to-onnx "
            "--stream writes, first NAME.start.onnx, then NAME.onnx"
        )
    about = numbers(sessions[0])
    found = [about.get(f"{name}_dim") for name in ("input", "output", "ivector")]
    if found != [23, 1 + len(WORDS), 0]:
        sys.exit(
            "recognise_onnx.py: expected a model of the digits, with 23 columns in, 11 out and no "
            f"i-vector; found {', '.join(map(str, found))}"
        )


def main() -> None:
    """Print the word recognised in each utterance, and how many are right."""
    sessions = [
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for path in sys.argv[1:]
    ]
    check(sessions)
    computed = compute if len(sessions) == 1 else compute_stream
    right = total = 0
    for key, features in read_table(f"ark:{FOLDER / 'test.feats.ark'}"):
        word = WORDS[computed(*sessions, features)[:, 1:].sum(axis=0).argmax()]
        print(f"{key:38} {word}")
        right += word == key.rpartition("-")[2]
        total += 1
    print(f"{right} of {total} right")


if __name__ == "__main__":
    main()
