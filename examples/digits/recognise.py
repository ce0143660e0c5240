"""Recognise spoken digits with a network that Kaldi trained.

For each frame of 10 ms the network gives the log-probability of silence (column 0) and of the words
zero to nine (columns 1 to 10). The word with the largest sum over all frames is the recognised
word. The key of an utterance ends in the correct word.
"""

from pathlib import Path

import nnet3
from nnet3_tables import read_table

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FOLDER = Path(__file__).parent


def main() -> None:
    """Print the word recognised in each utterance, and how many are right."""
    model = nnet3.load(FOLDER / "final.raw")
    right = total = 0
    for key, features in read_table(f"ark:{FOLDER / 'test.feats.ark'}"):
        log_posteriors = model.compute(features)
        word = WORDS[log_posteriors[:, 1:].sum(axis=0).argmax()]
        print(f"{key:38} {word}")
        right += word == key.rpartition("-")[2]
        total += 1
    print(f"{right} of {total} right")


if __name__ == "__main__":
    main()
