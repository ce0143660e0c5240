"""Tables as Kaldi's own code reads and writes them, by its Python wrapper kaldi-native-io."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import kaldi_native_io as kaldi
import numpy as np
import pytest
from kaldi_tables import write_arrays
from nnet3_descriptors.files import Writer, compressed, new_writer
from nnet3_tables import (
    MatrixLookup,
    MatrixWriter,
    ObjectWriter,
    TableError,
    VectorLookup,
    VectorWriter,
    read_matrices,
    read_matrix,
    read_objects,
    read_table,
    read_tokens,
    read_vector,
    write_matrix,
    write_vector,
)
from nnet3_training.egs import read_alignment, read_posterior

VALUES = np.linspace(-3.0, 5.0, 60).reshape(12, 5)
METHODS = (
    kaldi.CompressionMethod.kSpeechFeature,
    kaldi.CompressionMethod.kTwoByteAuto,
    kaldi.CompressionMethod.kTwoByteSignedInteger,
    kaldi.CompressionMethod.kOneByteAuto,
    kaldi.CompressionMethod.kOneByteUnsignedInteger,
    kaldi.CompressionMethod.kOneByteZeroOne,
)
UNUSUAL = np.array(
    [[np.inf, -np.inf, np.nan, -0.0], [1e-45, 3.4e38, 1 / 3, 123456789.0], [1, -1e-7, 1e16, 0.1]],
    np.float32,
)


@pytest.mark.parametrize("words", ["ark", "ark,t"])
@pytest.mark.parametrize(
    ("ours", "theirs", "value"),
    [
        (MatrixWriter, kaldi.FloatMatrixWriter, VALUES.astype(np.float32)),
        (MatrixWriter, kaldi.FloatMatrixWriter, UNUSUAL),
        (MatrixWriter, kaldi.FloatMatrixWriter, UNUSUAL.T),
        (MatrixWriter, kaldi.FloatMatrixWriter, np.zeros((0, 0), np.float32)),
        (VectorWriter, kaldi.FloatVectorWriter, UNUSUAL.ravel()),
        (VectorWriter, kaldi.FloatVectorWriter, np.zeros(0, np.float32)),
    ],
)
def test_bytes(
    words: str,
    ours: type[MatrixWriter],
    theirs: Callable[[str], kaldi.FloatMatrixWriter],
    value: np.ndarray,
    tmp_path: Path,
) -> None:
    """Tables of matrices and vectors, and script files, have the bytes that Kaldi writes."""
    for folder, writer in (("ours", ours), ("theirs", theirs)):
        (tmp_path / folder).mkdir()
        with writer(f"{words}:{tmp_path}/{folder}/a.ark") as table:
            table.write("first", value)
            table.write("second", value)
        with writer(f"{words},scp:{tmp_path}/both.ark,{tmp_path}/{folder}/a.scp") as table:
            table.write("first", value)
            table.write("second", value)
        (tmp_path / "both.ark").rename(tmp_path / folder / "both.ark")
    for name in ("a.ark", "a.scp", "both.ark"):
        found = (tmp_path / "ours" / name).read_bytes()
        assert found == (tmp_path / "theirs" / name).read_bytes()


@pytest.mark.parametrize("binary", [True, False])
def test_bytes_of_elements(binary: bool, tmp_path: Path) -> None:
    """Doubles, compressed matrices, integers, posteriors and words have Kaldi's bytes, too."""
    words = "ark" if binary else "ark,t"
    path = tmp_path / "theirs.ark"

    def data(write: Callable[[Writer], object]) -> bytes:
        writer = new_writer(binary=binary)
        write(writer)
        return writer.data

    def integers(writer: Writer) -> None:
        if binary:
            writer.integer(3)
        for number in (1, -2, 2**31 - 1):
            writer.integer(number)
        writer.newline()

    stored = compressed.compress(VALUES.astype(np.float32))
    for writer, arguments, encode in (
        (kaldi.DoubleMatrixWriter, (VALUES,), lambda w: w.double_matrix(VALUES)),
        (kaldi.DoubleVectorWriter, (VALUES[0],), lambda w: w.double_vector(VALUES[0])),
        (
            kaldi.CompressedMatrixWriter,
            (VALUES.astype(np.float32), METHODS[0]),
            lambda w: w.compressed_matrix(stored),
        ),
        (kaldi.Int32VectorWriter, ([1, -2, 2**31 - 1],), integers),
        (kaldi.TokenWriter, ("word",), lambda w: w.raw(b"word\n")),
    ):
        is_token = writer is kaldi.TokenWriter
        with writer(f"{words}:{path}") as table:
            table.write("key", *arguments)
        with ObjectWriter(f"{words}:{tmp_path}/ours.ark") as ours:
            ours.write("key", b"word\n" if is_token else data(encode))
        assert (tmp_path / "ours.ark").read_bytes() == path.read_bytes(), writer


def test_forms_of_matrices(tmp_path: Path) -> None:
    """For all forms that Kaldi writes, the values equal those of Kaldi's reader."""
    table, pieces = f"ark:{tmp_path}/all.ark", []
    for form, writer, arguments in (
        ("ark", kaldi.FloatMatrixWriter, ()),
        ("ark,t", kaldi.FloatMatrixWriter, ()),
        ("ark", kaldi.DoubleMatrixWriter, ()),
        ("ark,t", kaldi.DoubleMatrixWriter, ()),
        *(("ark", kaldi.CompressedMatrixWriter, (method,)) for method in METHODS),
        ("ark,t", kaldi.CompressedMatrixWriter, (METHODS[0],)),
    ):
        is_double = writer is kaldi.DoubleMatrixWriter
        array = VALUES if is_double else VALUES.astype(np.float32)
        with writer(f"{form}:{tmp_path}/one.ark") as one:
            one.write(f"key{len(pieces)}", array, *arguments)
            if not arguments:  # Kaldi reads its own compressed matrices without rows differently
                one.write(f"none{len(pieces)}", array[:0, :0])
        pieces.append((tmp_path / "one.ark").read_bytes())
    (tmp_path / "all.ark").write_bytes(b"".join(pieces))

    with kaldi.SequentialFloatMatrixReader(table) as reader:
        expected = {key: np.array(matrix) for key, matrix in reader}
    assert len(expected) == 15
    for found in (dict(read_table(table)), {key: read() for key, read in read_matrices(table)}):
        assert list(found) == list(expected)
        for key, matrix in expected.items():
            np.testing.assert_array_equal(found[key], matrix)


def test_forms_of_vectors(tmp_path: Path) -> None:
    """For all forms that Kaldi writes, the values equal those of Kaldi's reader."""
    pieces, values = [], np.linspace(-3.0, 5.0, 7)
    for form, writer in itertools.product(
        ("ark", "ark,t"), (kaldi.FloatVectorWriter, kaldi.DoubleVectorWriter)
    ):
        is_double = writer is kaldi.DoubleVectorWriter
        array = values if is_double else values.astype(np.float32)
        with writer(f"{form}:{tmp_path}/one.ark") as one:
            one.write(f"key{len(pieces)}", array)
            one.write(f"none{len(pieces)}", array[:0])
        pieces.append((tmp_path / "one.ark").read_bytes())
    (tmp_path / "all.ark").write_bytes(b"".join(pieces))

    with kaldi.SequentialFloatVectorReader(f"ark:{tmp_path}/all.ark") as reader:
        expected = {key: np.array(vector) for key, vector in reader}
    assert len(expected) == 8
    with VectorLookup(f"ark:{tmp_path}/all.ark") as lookup:
        for key, vector in expected.items():
            np.testing.assert_array_equal(lookup.get(key), vector)


@pytest.mark.parametrize("words", ["ark", "ark,t"])
def test_integers_and_words(words: str, tmp_path: Path) -> None:
    """Integers, posteriors and words that Kaldi writes are read, with those that are empty."""
    table = f"{words}:{tmp_path}/a.ark"
    alignments = {"a": [3, 1, 2**31 - 1], "b": [], "c": [-5]}
    with kaldi.Int32VectorWriter(table) as writer:
        for key, numbers in alignments.items():
            writer.write(key, numbers)
    found = dict(read_table(f"ark:{tmp_path}/a.ark"))
    assert {key: value.tolist() for key, value in found.items()} == alignments
    assert {value.dtype for value in found.values()} == {np.dtype(np.int32)}
    labels = read_objects(f"ark:{tmp_path}/a.ark", read_alignment)
    assert {entry.key: entry.value.tolist() for entry in labels} == alignments

    posteriors = {"a": [[(1, 0.5), (2, 0.25)], []], "b": []}
    with kaldi.PosteriorWriter(table) as writer:
        for key, frames in posteriors.items():
            writer.write(key, frames)
    entries = read_objects(f"ark:{tmp_path}/a.ark", read_posterior)
    assert {entry.key: entry.value for entry in entries} == posteriors

    with kaldi.TokenWriter(table) as writer:
        writer.write("utterance", "speaker")
    assert read_tokens(f"ark:{tmp_path}/a.ark") == {"utterance": "speaker"}


@pytest.mark.parametrize("binary", [True, False])
def test_files_of_one_value(binary: bool, tmp_path: Path) -> None:
    """A file of one matrix or vector has Kaldi's bytes, and is read as Kaldi reads it."""
    matrix, vector = VALUES.astype(np.float32), VALUES[0].astype(np.float32)
    for ours, theirs, value, read in (
        (write_matrix, kaldi.FloatMatrix, matrix, read_matrix),
        (write_vector, kaldi.FloatVector, vector, read_vector),
    ):
        ours(f"{tmp_path}/ours", value, binary=binary)
        theirs(value).write(f"{tmp_path}/theirs", binary)
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
        np.testing.assert_allclose(read(f"{tmp_path}/theirs"), value, rtol=0 if binary else 1e-6)
        np.testing.assert_array_equal(
            read(f"{tmp_path}/ours"), np.array(theirs.read(f"{tmp_path}/ours"))
        )


ORDERED = {f"k{n}": np.full((1, 1), n, np.float32) for n in range(0, 8, 2)}


@pytest.mark.parametrize("options", ["", ",s", ",o", ",s,cs", ",cs", ",o,s,cs", ",p"])
def test_options_of_archives(options: str, tmp_path: Path) -> None:
    """With any options about the order, each key gives the value that Kaldi's reader gives."""
    table = f"ark{options}:{tmp_path}/a.ark"
    write_arrays(f"ark:{tmp_path}/a.ark", ORDERED)

    with kaldi.RandomAccessFloatMatrixReader(table) as reader, MatrixLookup(table) as lookup:
        for key in (f"k{n}" for n in range(9)):
            expected = np.array(reader[key]) if key in reader else None
            np.testing.assert_array_equal(lookup.get(key), expected)


@pytest.mark.parametrize(
    ("options", "text", "keys", "message"),
    [
        ("s", "b  [ 1 ]\na  [ 1 ]\n", "c", "'a' comes after 'b', out of the order that the opt"),
        ("s", "a  [ 1 ]\na  [ 1 ]\n", "c", "the key 'a' comes twice"),
        ("b", "a  [ 1 ]\nb  [ 1 ]\na  [ 1 ]\n", "c", "the key 'a' comes twice"),
        ("s,cs", "a  [ 1 ]\nb  [ 1 ]\n", "ba", "'a' is asked for after 'b', out of the order"),
    ],
)
def test_promises_that_are_broken(
    options: str, text: str, keys: str, message: str, tmp_path: Path
) -> None:
    """An archive, or its use, that contradicts its options is an error, as in Kaldi."""
    (tmp_path / "a.ark").write_text(text)
    table = f"ark,{options}:{tmp_path}/a.ark"

    with kaldi.RandomAccessFloatMatrixReader(table) as reader, MatrixLookup(table) as lookup:
        for key in keys[:-1]:
            assert (lookup.get(key) is not None) == (key in reader)
        with pytest.raises(RuntimeError):
            _ = keys[-1] in reader
        with pytest.raises(TableError, match=f"^archive '{tmp_path}/a.ark': {message}"):
            lookup.get(keys[-1])
