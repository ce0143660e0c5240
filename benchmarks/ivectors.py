"""How far rounding moves the i-vectors of an extractor, their distance to others, and their cost.

    python benchmarks/ivectors.py vosk-model/ivector ark:mfcc.ark
    python benchmarks/ivectors.py vosk-model/ivector ark:mfcc.ark --expected ark:kaldi.ark

The option --one-speaker takes all utterances for those of one speaker.

A line for each utterance: the largest and the median distance, relative to the length, of i-vectors
to those of features that are changed in their last bit (five times at random), and to the expected
ones. Then, for the features one after the other as one utterance of ten minutes: processor time
for a second of audio, for pushes of several sizes, and the growth of the resident memory in MB.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from nnet3_speech import OnlineIvectorExtractor, OnlineIvectors
from nnet3_tables import read_table

FRAMES_PER_SECOND = 100
PUSHES = (1000, 100, 10, 1)


def distances(found: list[np.ndarray], expected: np.ndarray) -> str:
    """The largest and the median distance of rows, relative to the length of the expected ones."""
    lengths = np.linalg.norm(expected, axis=1)
    each = [np.linalg.norm(rows - expected, axis=1) / lengths for rows in found]
    return f"{np.max(each):.1e} {np.median(each):.1e}"


def rounding(
    extractor: OnlineIvectorExtractor,
    features: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    *,
    one_speaker: bool,
) -> None:
    """Prints the distances for each utterance."""
    rng = np.random.default_rng(0)
    states = [None] * 6
    print("utterance, rows: largest and median distance by the last bit | to the expected ones")
    for key, frames in features.items():
        found = []
        for number, state in enumerate(states):
            changed = frames.astype(np.float64)
            if number:
                changed *= 1.0 + 3e-8 * rng.standard_normal(frames.shape)
            rows, after = extractor.compute(changed.astype(np.float32), state)
            found.append(rows)
            states[number] = after if one_speaker else None
        line = f"{key}, {len(found[0])}: {distances(found[1:], found[0])}"
        print(f"{line} | {distances(found, expected[key])}" if key in expected else line)


def cost(extractor: OnlineIvectorExtractor, frames: np.ndarray) -> None:
    """Prints processor time and memory for frames that come in pieces of several sizes."""
    for size in PUSHES:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stream, start = OnlineIvectors(extractor), time.process_time()
        count = len(frames) if size > 1 else len(frames) // 10
        for begin in range(0, count, size):
            stream.push(frames[begin : begin + size])
        seconds = (time.process_time() - start) / (count / FRAMES_PER_SECOND)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"pushes of {size:4}: {seconds:.4f} s for a second, {grown:.1f} MB")


def main() -> None:
    """Reads the options, and prints distances and costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="a folder with final.ie, final.dubm, final.mat, ...")
    parser.add_argument("features", help="a table of features, without normalisation")
    parser.add_argument("--expected", default="", help="a table of i-vectors to compare with")
    parser.add_argument("--one-speaker", action="store_true", help="all utterances are of one")
    parser.add_argument("--max-count", type=float, default=100.0)
    options = parser.parse_args()
    extractor = OnlineIvectorExtractor.of_folder(options.folder, max_count=options.max_count)
    features = dict(read_table(options.features))
    expected = dict(read_table(options.expected)) if options.expected else {}
    rounding(extractor, features, expected, one_speaker=options.one_speaker)
    joined = np.concatenate(list(features.values()))
    length = 600 * FRAMES_PER_SECOND
    cost(extractor, np.tile(joined, (-(-length // len(joined)), 1))[:length])


if __name__ == "__main__":
    main()
