"""Stage 1, with nnet3-descriptors alone: a Kaldi file becomes a serialized network."""

import sys
from pathlib import Path

from nnet3_descriptors import read_nnet


def main(model: str, folder: str) -> None:
    """Write FOLDER/network."""
    read_nnet(model).save(Path(folder, "network"))


if __name__ == "__main__":
    main(*sys.argv[1:])
