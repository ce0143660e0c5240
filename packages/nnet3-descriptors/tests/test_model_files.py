"""Networks and acoustic models in files, streams and archives."""

import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from nnet3_descriptors import (
    AcousticModel,
    Limits,
    ModelFileError,
    Nnet,
    parse_config,
    read_acoustic_model,
    read_model,
    read_nnet,
    use_limits,
    write_acoustic_model,
    write_nnet,
)
from nnet3_descriptors.files import (
    BinaryReader,
    BinaryWriter,
    SparseMatrix,
    TextReader,
    TextWriter,
    maps_of,
)
from nnet3_descriptors.files.source import read_matrix, read_vector
from nnet3_descriptors.model_files.transition_model import HmmState, TransitionModel
from nnet3_descriptors.serialization import from_json, to_json

CONFIG = """
input-node name=input dim=4
component name=affine type=NaturalGradientAffineComponent input-dim=12 output-dim=6
component-node name=affine component=affine input=Append(Offset(input, -1), input, Offset(input, 1))
component name=relu type=RectifiedLinearComponent dim=6
component-node name=relu component=relu input=affine
output-node name=output input=relu objective=linear
"""


@pytest.fixture
def nnet() -> Nnet:
    """A small network."""
    return parse_config(CONFIG, rng=np.random.default_rng(3))


def written(nnet: Nnet, *, binary: bool = True) -> bytes:
    """The bytes of a .raw file."""
    file = io.BytesIO()
    write_nnet(nnet, file, binary=binary)
    return file.getvalue()


def model(nnet: Nnet, *, chain: bool) -> AcousticModel:
    """An acoustic model of two phones."""
    state = HmmState(
        forward_pdf_class=0, self_loop_pdf_class=1 if chain else 0, transitions=((0, 0.5), (1, 0.5))
    )
    final = HmmState(forward_pdf_class=-1, self_loop_pdf_class=-1, transitions=())
    return AcousticModel(
        transition_model=TransitionModel(
            phones=(1, 2),
            phone_entries=(-1, 0, 0),
            entries=((state, final),),
            tuples=((1, 0, 0, 1 if chain else 0), (2, 0, 2, 3 if chain else 2)),
            log_probs=[0.0, -0.5, -0.5, -0.5, -0.5],
            chain=chain,
        ),
        nnet=nnet,
        left_context=1,
        right_context=1,
        priors=[] if chain else [0.5, 0.25, 0.25],
    )


class TestSources:
    """Sources of models."""

    def test_path(self, nnet: Nnet, tmp_path) -> None:
        """A file is read, and can be overwritten while it is mapped."""
        path = tmp_path / "final.raw"
        write_nnet(nnet, path)
        read = read_nnet(path)
        write_nnet(read, path)

        assert read_nnet(path) == nnet
        assert os.listdir(tmp_path) == ["final.raw"]

    def test_parameters_are_copies(self, nnet: Nnet, tmp_path) -> None:
        """An array that is aligned in the file is copied, too: others may write to the file."""
        data = written(nnet)
        (tmp_path / "model").write_bytes(data)
        offset = data.index(b"<LinearParams> FM ") + len(b"<LinearParams> FM ") + 10
        (tmp_path / "archive").write_bytes(b"x" * (-offset % 4) + data)

        params = read_nnet(f"{tmp_path}/archive:{-offset % 4}").component("affine").linear_params

        assert params.flags.aligned
        assert not params.flags.writeable
        assert not [*maps_of([params])]

    @pytest.mark.parametrize("offset", range(4))
    def test_large_parameters_stay_in_place(self, tmp_path, offset: int) -> None:
        """Where it is asked for, large arrays are views of the file, whatever their alignment."""
        nnet = parse_config(
            "input-node name=input dim=200\n"
            "component name=affine type=AffineComponent input-dim=200 output-dim=100\n"
            "component-node name=affine component=affine input=input\n"
            "output-node name=output input=affine"
        )
        (tmp_path / "archive").write_bytes(b"x" * offset + written(nnet))

        read = read_model(f"{tmp_path}/archive:{offset}", in_place=True)
        parameters = read.component("affine").linear_params
        (mapping,) = maps_of([parameters, parameters, np.zeros(1), b""])
        mapping.release()

        assert not parameters.flags.owndata
        assert not parameters.flags.writeable
        assert read == nnet
        mapping.check_unchanged()

        (tmp_path / "archive").write_bytes(b"x" * offset + written(nnet))
        with pytest.raises(ModelFileError) as raised:
            mapping.check_unchanged()

        assert str(raised.value) == (
            f"{tmp_path}/archive: the file was written to after it was read, and the memory of "
            "what was read is the file's; read it again (to replace a file in use, write another "
            "one and rename it)"
        )

    def test_offset_in_an_archive(self, nnet: Nnet, tmp_path) -> None:
        """`path:offset` starts reading at the offset."""
        (tmp_path / "archive").write_bytes(b"utterance " + written(nnet))

        assert read_nnet(f"{tmp_path}/archive:10") == nnet

    @pytest.mark.parametrize("binary", [True, False])
    def test_open_file_is_left_behind_the_model(self, nnet: Nnet, tmp_path, binary: bool) -> None:
        """Data after the model can be read from the same file."""
        path = tmp_path / "two"
        path.write_bytes(written(nnet, binary=binary) + written(nnet) + b"rest")

        with path.open("rb") as file:
            read_nnet(file)
            assert read_nnet(file) == nnet
            assert file.read() == b"rest"

    def test_pipe(self, nnet: Nnet) -> None:
        """A stream without random access is read to its end."""
        reading, writing = os.pipe()

        def write() -> None:
            with os.fdopen(writing, "wb") as file:
                write_nnet(nnet, file)

        thread = threading.Thread(target=write)
        thread.start()
        with os.fdopen(reading, "rb") as file:
            read = read_nnet(file)
        thread.join()

        assert nnet == read

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_text_by_other_programs(self, nnet: Nnet, tmp_path, end: str) -> None:
        """Without the blank behind <Nnet3>, the empty line, or the last line break it is read."""
        ours = written(nnet, binary=False)
        text = ours.decode().replace("<Nnet3> ", "<Nnet3>").replace("\n\n", "\n").rstrip()
        assert "<Nnet3>\ninput-node" in text
        assert "\n<NumComponents>" in text
        (tmp_path / "final.raw").write_bytes(text.replace("\n", end).encode())

        assert read_nnet(tmp_path / "final.raw") == read_nnet(io.BytesIO(ours))


def test_every_truncation_is_an_error(nnet: Nnet) -> None:
    """A file cut off anywhere is refused with the one error class."""
    for data in (written(nnet), written(nnet, binary=False)):
        for size in range(len(data.rstrip())):
            with pytest.raises(ModelFileError):
                read_nnet(io.BytesIO(data[:size]))


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("chain", [True, False])
def test_acoustic_model(nnet: Nnet, chain: bool, binary: bool) -> None:
    """Transition model, contexts and priors keep their values and bytes, and those of JSON."""
    first, second = io.BytesIO(), io.BytesIO()
    write_acoustic_model(model(nnet, chain=chain), first, binary=binary)
    first.seek(0)

    read = read_acoustic_model(first)
    write_acoustic_model(read, second, binary=binary)

    assert first.getvalue() == second.getvalue()
    assert model(nnet, chain=chain).transition_model == read.transition_model
    assert read_nnet(io.BytesIO(first.getvalue())) == read.nnet
    assert from_json(to_json(read), AcousticModel) == read


def test_probabilities_beyond_single_precision(nnet: Nnet) -> None:
    """A file with numbers of double precision can be read, and written again."""
    text = io.BytesIO()
    write_acoustic_model(model(nnet, chain=False), text, binary=False)
    large = text.getvalue().replace(b"<Transition> 0 0.5 ", b"<Transition> 0 1e300 ", 1)
    assert large != text.getvalue()

    read = read_acoustic_model(io.BytesIO(large))
    again = io.BytesIO()
    write_acoustic_model(read, again)
    again.seek(0)

    assert read_acoustic_model(again).transition_model == read.transition_model


class TestArrays:
    """Files that hold one array."""

    def test_text_matrix(self) -> None:
        """Rows end with a newline or ';'; infinity and NaN are numbers."""
        matrix = read_matrix(io.BytesIO(b" [\n  1 -2.5 \n  inf nan ; 3 4 ]\n"))

        np.testing.assert_array_equal([[1, -2.5], [np.inf, np.nan], [3, 4]], matrix)

    @pytest.mark.parametrize("separator", [b"\n", b";", b" ; \n\n "])
    def test_matrix_of_many_rows(self, separator: bytes) -> None:
        """Rows that span several pieces of text stay whole."""
        values = np.arange(60_000, dtype=np.float32).reshape(-1, 3)
        rows = [b" ".join(b"%d" % value for value in row) for row in values.astype(int)]

        matrix = read_matrix(io.BytesIO(b" [ " + separator.join(rows) + b" ]\n"))

        np.testing.assert_array_equal(values, matrix)

    def test_long_text_vector(self) -> None:
        """Numbers of a vector that spans several pieces of text stay whole."""
        values = np.arange(30000, dtype=np.float32) * 1.5
        text = " ".join(map(str, values.tolist()))

        np.testing.assert_array_equal(values, read_vector(io.BytesIO(f" [ {text} ]\n".encode())))

    @pytest.mark.parametrize(("token", "tolerance"), [("CM", 0.02), ("CM2", 1e-4), ("CM3", 0.02)])
    def test_compressed_matrix(self, token: str, tolerance: float) -> None:
        """The values of a line from 0 to 1 are restored within the precision of the format."""
        rows, cols = 256, 2
        line = np.linspace(0, 1, rows, dtype=np.float32)
        header = np.float32([0, 1]).tobytes() + np.int32([rows, cols]).tobytes()
        if token == "CM":
            points = np.uint16([0, 16384, 49151, 65535])
            codes = np.interp(line, [0, 0.25, 0.75, 1], [0, 64, 192, 255]).round()
            body = np.tile(points, cols).tobytes() + np.tile(codes, cols).astype("u1").tobytes()
        else:
            dtype, top = ("<u2", 65535) if token == "CM2" else ("u1", 255)
            body = np.repeat((line * top).round(), cols).astype(dtype).tobytes()

        matrix = read_matrix(io.BytesIO(b"\0B" + token.encode() + b" " + header + body))

        np.testing.assert_allclose(np.repeat(line[:, None], cols, 1), matrix, atol=tolerance)


class TestLimits:
    """Limits for damaged or hostile files."""

    @staticmethod
    def permutation(size: int, *, binary: bool) -> bytes:
        """A network of a permutation, made of that of two columns."""
        small = parse_config(
            "input-node name=input dim=2\n"
            "component name=c type=PermuteComponent column-map=0,1\n"
            "component-node name=c component=c input=input\noutput-node name=output input=c"
        )
        columns = range(size)
        if binary:
            two, many = (np.int32([len(each), *each]).tobytes() for each in (range(2), columns))
        else:
            two, many = (" ".join(map(str, each)).encode() for each in (range(2), columns))
        return written(small, binary=binary).replace(two, many).replace(b"dim=2", b"dim=%d" % size)

    @pytest.mark.parametrize("binary", [True, False])
    def test_vectors_of_integers_are_bounded(self, binary: bool) -> None:
        """Long vectors of integers, which need ten times their bytes in memory, are refused."""
        assert read_nnet(io.BytesIO(self.permutation(70_000, binary=binary)))

        with pytest.raises(ModelFileError, match="the vector is too long; expected at most"):
            read_nnet(io.BytesIO(self.permutation((1 << 20) + 1, binary=binary)))


def test_suffixes(tmp_path: Path) -> None:
    """A path that ends in ".txt" gives text unless binary is set."""
    nnet = parse_config("input-node name=input dim=2\noutput-node name=output input=input\n")

    write_nnet(nnet, tmp_path / "net.txt")
    write_nnet(nnet, tmp_path / "binary.txt", binary=True)
    write_nnet(nnet, tmp_path / "net.raw")

    assert (tmp_path / "net.txt").read_bytes().startswith(b"<Nnet3>")
    for name in ("binary.txt", "net.raw"):
        assert (tmp_path / name).read_bytes().startswith(b"\0B<Nnet3>")


def test_safetensors(tmp_path: Path) -> None:
    """The file has the arrays of state_dict under their names."""
    nnet = parse_config(
        "input-node name=input dim=2\n"
        "component name=a type=AffineComponent input-dim=2 output-dim=3\n"
        "component-node name=a component=a input=input\n"
        "output-node name=output input=a\n"
    )

    nnet.export_safetensors(tmp_path / "arrays.safetensors")

    found = safetensors.numpy.load_file(tmp_path / "arrays.safetensors")
    assert found.keys() == nnet.state_dict().keys()
    assert all(np.array_equal(found[name], array) for name, array in nnet.state_dict().items())


def test_signalling_nan_in_double_precision() -> None:
    """A NaN that signals becomes a NaN of single precision, without a warning."""
    number = b"\4" + (1).to_bytes(4, "little")
    data = b"\0BDM " + number + number + (0x7FF0_0000_0000_0001).to_bytes(8, "little")

    assert np.isnan(read_matrix(io.BytesIO(data))).tolist() == [[True]]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_symmetric_matrices(size: int, binary: bool) -> None:
    """Rows up to the diagonal are written, and read as a symmetric matrix."""
    values = np.arange(size * size, dtype=float).reshape(size, size)
    writer = BinaryWriter() if binary else TextWriter()
    writer.symmetric_matrix(values + values.T)

    data = b"".join(writer.chunks)

    reader = (BinaryReader if binary else TextReader)(memoryview(data), "m")
    assert (reader.symmetric_matrix() == values + values.T).all()
    assert binary or data == {0: b"[ ]\n", 1: b"[\n0 ]\n", 3: b"[\n0 \n4 8 \n8 12 16 ]\n"}[size]


def test_sparse_matrices_of_many_columns() -> None:
    """A sparse matrix with its zeros may have as many values as the limit allows."""
    columns, values = np.array([0, 3]), np.ones(2, np.float32)
    matrix = SparseMatrix(10, np.array([0, 1, 2]), columns, values)

    with use_limits(Limits(rows=20)):
        assert matrix.dense().sum() == 2.0


def test_sparse_matrices_of_infinite_elements() -> None:
    """Elements of one place are added, without a warning of what is not finite."""
    values = np.array([np.inf, -np.inf], np.float32)
    matrix = SparseMatrix(2, np.array([0, 2]), np.array([1, 1]), values)

    assert np.isnan(matrix.dense()).tolist() == [[False, True]]
