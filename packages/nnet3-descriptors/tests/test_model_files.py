"""Networks and acoustic models in files, streams and archives."""

import io
import os
import threading

import numpy as np
import pytest
from nnet3_descriptors.config.reader import parse_config
from nnet3_descriptors.errors import ModelFileError
from nnet3_descriptors.files.arrays import read_matrix, read_vector
from nnet3_descriptors.files.network import (
    AcousticModel,
    read_acoustic_model,
    read_nnet,
    write_acoustic_model,
    write_nnet,
)
from nnet3_descriptors.files.transition_model import HmmState, TransitionModel
from nnet3_descriptors.nnet import Nnet

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
        forward_pdf_class=0,
        self_loop_pdf_class=1 if chain else 0,
        transitions=((0, 0.5), (1, 0.5)),
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
    """Where a model may come from."""

    def test_path(self, nnet: Nnet, tmp_path) -> None:
        """A file, read and written over while it is mapped."""
        path = tmp_path / "final.raw"
        write_nnet(nnet, path)
        read = read_nnet(path)
        write_nnet(read, path)

        assert read_nnet(path) == nnet
        assert os.listdir(tmp_path) == ["final.raw"]

    def test_parameters_are_views_of_the_file(self, nnet: Nnet, tmp_path) -> None:
        """An array whose bytes are aligned in the file is not copied."""
        data = written(nnet)
        (tmp_path / "model").write_bytes(data)
        offset = data.index(b"<LinearParams> FM ") + len(b"<LinearParams> FM ") + 10
        (tmp_path / "archive").write_bytes(b"x" * (-offset % 4) + data)

        params = read_nnet(f"{tmp_path}/archive:{-offset % 4}").component("affine").linear_params

        assert params.flags.aligned
        assert not params.flags.writeable
        assert not params.flags.owndata

    def test_offset_in_an_archive(self, nnet: Nnet, tmp_path) -> None:
        """`path:offset` starts behind what comes before."""
        (tmp_path / "archive").write_bytes(b"utterance " + written(nnet))

        assert read_nnet(f"{tmp_path}/archive:10") == nnet

    @pytest.mark.parametrize("binary", [True, False])
    def test_open_file_is_left_behind_the_model(self, nnet: Nnet, tmp_path, binary: bool) -> None:
        """What follows the model can be read from the same file."""
        path = tmp_path / "two"
        path.write_bytes(written(nnet, binary=binary) + written(nnet) + b"rest")

        with path.open("rb") as file:
            read_nnet(file)
            assert read_nnet(file) == nnet
            assert file.read() == b"rest"

    def test_pipe(self, nnet: Nnet) -> None:
        """A stream that cannot be moved in is read to its end."""
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

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "the file is empty"),
            (b"GMM model", "this is no nnet3 model"),
            (b"\0B<DIMENSION> ", "this is no nnet3 model"),
            (b"\0B\xff\xfe\0\0", "this is no token"),
        ],
    )
    def test_foreign_files(self, tmp_path, data: bytes, message: str) -> None:
        """The error names file, offset and what is wrong."""
        path = tmp_path / "file"
        path.write_bytes(data)

        with pytest.raises(ModelFileError, match=message) as caught:
            read_nnet(path)

        assert str(path) == caught.value.path
        assert caught.value.offset in (0, 2)

    def test_missing_file(self, tmp_path) -> None:
        """A file that is not there."""
        with pytest.raises(ModelFileError, match="cannot be read: No such file"):
            read_nnet(tmp_path / "none")

    def test_file_opened_for_text(self, nnet: Nnet) -> None:
        """A file object that gives text is refused with a remedy."""
        with pytest.raises(ModelFileError, match="open it with mode 'rb'"):
            read_nnet(io.StringIO("<Nnet3>"))  # type: ignore[arg-type]


def test_every_truncation_is_an_error(nnet: Nnet) -> None:
    """A file that ends anywhere before its end is refused with the one error class."""
    for data in (written(nnet), written(nnet, binary=False)):
        for size in range(len(data.rstrip())):
            with pytest.raises(ModelFileError):
                read_nnet(io.BytesIO(data[:size]))


def test_error_names_the_component(nnet: Nnet) -> None:
    """A fault inside a component carries its name and offset."""
    data = written(nnet)
    at = data.index(b"<BiasParams>")

    with pytest.raises(ModelFileError) as caught:
        read_nnet(io.BytesIO(data.replace(b"<BiasParams>", b"<BiasParana>")))

    assert caught.value.component == "affine"
    assert at == caught.value.offset


def test_error_in_a_config_line_has_its_offset(nnet: Nnet) -> None:
    """A descriptor that is none is found at its place in the file."""
    data = written(nnet).replace(b"input=relu", b"input=rolu")

    with pytest.raises(ModelFileError, match="rolu") as caught:
        read_nnet(io.BytesIO(data))

    assert data.index(b"rolu") == caught.value.offset


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("chain", [True, False])
def test_acoustic_model(nnet: Nnet, chain: bool, binary: bool) -> None:
    """Transition model, contexts and priors survive, and so do the bytes."""
    first, second = io.BytesIO(), io.BytesIO()
    write_acoustic_model(model(nnet, chain=chain), first, binary=binary)
    first.seek(0)

    read = read_acoustic_model(first)
    write_acoustic_model(read, second, binary=binary)

    assert first.getvalue() == second.getvalue()
    assert model(nnet, chain=chain).transition_model == read.transition_model
    assert read_nnet(io.BytesIO(first.getvalue())) == read.nnet


class TestArrays:
    """Files that hold one array."""

    def test_text_matrix(self) -> None:
        """Rows end with a newline or ';'; infinity and NaN are numbers."""
        matrix = read_matrix(io.BytesIO(b" [\n  1 -2.5 \n  inf nan ; 3 4 ]\n"))

        np.testing.assert_array_equal([[1, -2.5], [np.inf, np.nan], [3, 4]], matrix)

    def test_ragged_matrix(self) -> None:
        """Rows of different length are refused."""
        with pytest.raises(ModelFileError, match="rows of a matrix differ in length"):
            read_matrix(io.BytesIO(b" [\n  1 2 \n  3 ]\n"))

    def test_long_text_vector(self) -> None:
        """A vector that is longer than a piece of text keeps its numbers whole."""
        values = np.arange(30000, dtype=np.float32) * 1.5
        text = " ".join(map(str, values.tolist()))

        np.testing.assert_array_equal(values, read_vector(io.BytesIO(f" [ {text} ]\n".encode())))

    @pytest.mark.parametrize(("token", "tolerance"), [("CM", 0.02), ("CM2", 1e-4), ("CM3", 0.02)])
    def test_compressed_matrix(self, token: str, tolerance: float) -> None:
        """The values of a line from 0 to 1 come back within the precision of the format."""
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
