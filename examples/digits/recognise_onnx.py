"""Recognise spoken digits in ONNX Runtime, with a model that nnet3-to-onnx wrote.

    nnet3-to-onnx final.raw digits.onnx --frames=50
    python recognise_onnx.py digits.onnx

The model is for chunks of a fixed number of frames and any number of sequences, so the chunks of an
utterance are computed together. Frames at its edges are repeated, as nnet3-compute does. The words
are recognised as in recognise.py.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from nnet3_tables import read_table

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FOLDER = Path(__file__).parent


def compute(session: onnxruntime.InferenceSession, features: np.ndarray) -> np.ndarray:
    """The log-posteriors of an utterance, (frames, classes)."""
    about = session.get_modelmeta().custom_metadata_map
    left, right, size = (
        int(about[f"nnet3.{name}"])
        for name in ("left_context", "right_context", "frames_per_chunk")
    )
    chunks = range(0, len(features), size)
    times = np.array([np.arange(begin - left, begin + size + right) for begin in chunks])
    given = features[times.clip(0, len(features) - 1)].astype(np.float32)
    [outputs] = session.run(["output"], {"input": given})
    return outputs.reshape(-1, outputs.shape[-1])[: len(features)]


def main() -> None:
    """Print the word recognised in each utterance, and how many are right."""
    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    right = total = 0
    for key, features in read_table(f"ark:{FOLDER / 'test.feats.ark'}"):
        word = WORDS[compute(session, features)[:, 1:].sum(axis=0).argmax()]
        print(f"{key:38} {word}")
        right += word == key.rpartition("-")[2]
        total += 1
    print(f"{right} of {total} right")


if __name__ == "__main__":
    main()
