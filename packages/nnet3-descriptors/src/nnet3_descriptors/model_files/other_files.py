"""The kinds of files that are not models of nnet3, recognised by their first bytes.

People take one file for another, or have a part or a packed form of it. The table names these
kinds, and the programs that read them.
"""

from __future__ import annotations

import re
from typing import Final

NUM_BYTES: Final = 512
"""The number of first bytes that decide."""

_KINDS: Final = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (rb"version https://git-lfs", "a Git LFS pointer; 'git lfs pull' fetches the file itself"),
        (rb"\x1f\x8b", "gzip data; gunzip unpacks it"),
        (rb"BZh", "bzip2 data; bunzip2 unpacks it"),
        (rb"\xfd7zXZ", "xz data; unxz unpacks it"),
        (rb"PK\x03\x04", "a ZIP archive, as PyTorch writes models"),
        (rb"\x80[\x02-\x05]", "a pickle, as Python programs and older PyTorch write"),
        (rb"\x89HDF", "an HDF5 file, as Keras writes models"),
        (rb".{4}TFL3", "a TensorFlow Lite model"),
        (rb"\x08[\x01-\x1f][\x12\x1a\x22\x2a\x32\x3a\x42]", "an ONNX model"),
        (rb"\x93NUMPY", "an array of NumPy"),
        (rb"RIFF.{4}WAVE", "a WAV file"),
        (rb"\s*<(!DOCTYPE|html|\?xml)", "a web page"),
        (rb"\xd6\xfd\xb2\x7e", "an FST of OpenFst"),
        (rb"(\x00B)?<(DIMENSION|DiagGMM|FullGMM)>", "a GMM model"),
        (rb"(\x00B)?<(Nnet|Nproto)> ", "a network of nnet1 or nnet2"),
        (rb"(\x00B)?<Nnet3Eg>", "an example for training"),
        (rb"(\x00B)?ContextDependency ", "a decision tree"),
        (rb"\x00B([FDC]M|CM2|CM3|[FD]V) ", "a matrix or a vector of Kaldi"),
        (rb"\S{1,400} \x00B\xd6\xfd\xb2\x7e", "an archive of lattices or FSTs"),
        (rb"\S{1,400} \x00B", "an archive: a table of several objects"),
        (rb"\S{1,400}  ?\[", "an archive: a table of several objects"),
        (
            rb"\s*(#[^\n]*\n\s*)*(component|component-node|input-node|output-node|dim-range-node) ",
            "config lines; parse_config and nnet3-init read them",
        ),
        (
            rb".{7}\x00\{",
            "a safetensors file; if nnet3-descriptors wrote it, Nnet.load reads it",
        ),
    )
)


def kind_of_file(first_bytes: bytes) -> str | None:
    """Returns the kind of a file; None if its first bytes do not show it."""
    return next((kind for pattern, kind in _KINDS if pattern.match(first_bytes)), None)
