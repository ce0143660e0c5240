"""The error classes; the tests of other modules cover who raises them."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from nnet3_descriptors import (
    ConfigError,
    DescriptorSyntaxError,
    FileError,
    ModelFileError,
    NetworkError,
    Nnet,
    Nnet3Error,
    SerializationError,
    parse_config,
    parse_descriptor,
    read_nnet,
    write_nnet,
)
from nnet3_descriptors.editing import apply_edits
from nnet3_descriptors.errors import file_error

NNET = parse_config("input-node name=i dim=1\noutput-node name=o input=i")


@pytest.mark.parametrize(
    "error",
    [
        NetworkError("the input is missing", node="output"),
        DescriptorSyntaxError("expected a descriptor", "a, )", (3, 4)),
        ConfigError("'dim' is missing", "input-node name=a\n", (0, 17)),
        SerializationError("expected version 1"),
        ModelFileError(
            "unexpected token",
            path="final.mdl",
            offset=12,
            component="tdnn1",
            expected="'<LinearParams>'",
            found="'<BiasParams>'",
        ),
        file_error(FileNotFoundError(2, "No such file or directory"), "read", "final.raw"),
        file_error(ValueError("closed"), "write", "final.raw"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_pass_between_processes(error: Nnet3Error) -> None:
    """An error from a worker process arrives with the same class, message and attributes."""
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301, bytes of our own

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_a_missing_file_is_both_errors(tmp_path: Path) -> None:
    """A missing file gives an error of Python's class and of the package's class."""
    path = tmp_path / "missing.nnet"

    with pytest.raises(FileNotFoundError) as caught:
        Nnet.load(path)

    assert isinstance(caught.value, Nnet3Error)
    assert isinstance(caught.value, FileError)
    assert str(caught.value) == f"cannot read '{path}': No such file or directory"
    assert (caught.value.errno, caught.value.filename) == (2, str(path))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Nnet.load(b"x"), FileError, "cannot read '<bytes>': expected a path, found bytes"),
        (lambda: Nnet.load("a\0b"), FileError, r"cannot read 'a\\x00b': no name has a null"),
        (lambda: NNET.save(None), FileError, "cannot write '<NoneType>': expected a path"),
        (lambda: Nnet.from_bytes("x"), SerializationError, "expected bytes, found str"),
        (lambda: read_nnet(b"x"), ModelFileError, "a file open for reading bytes, found bytes"),
        (lambda: read_nnet(None), ModelFileError, "expected a path or a file open .*NoneType"),
        (lambda: write_nnet(NNET, 3), FileError, "cannot write '<stream>': 'int' object"),
        (lambda: write_nnet(NNET, io.StringIO()), FileError, "cannot write '<stream>': string arg"),
        (lambda: parse_config(b"x"), ConfigError, "^expected text, found bytes$"),
        (lambda: parse_descriptor(3), DescriptorSyntaxError, "^expected text, found int$"),
        (lambda: apply_edits(NNET, None), ConfigError, "^expected text, found NoneType$"),
    ],
)
def test_what_is_no_file_or_text(
    call: Callable[[], object], error: type[Nnet3Error], message: str
) -> None:
    """Objects of wrong types are refused by type, not by a missing method."""
    with pytest.raises(error, match=message):
        call()


class TestMessages:
    """Messages quote the contents of files in a form that a terminal can show."""

    def test_control_characters_are_escaped(self) -> None:
        """The marker stays below the fault."""
        with pytest.raises(ConfigError) as caught:
            parse_config("input-node name=\x1b[31m\x00 dim=1")

        assert str(caught.value).splitlines()[1:] == [
            r"    input-node name=\x1b[31m\x00 dim=1",
            "                    ^^^^^^^^^^^^",
        ]
        assert r"(got '\x1b[31m\x00')" in str(caught.value)

    def test_long_lines_are_cut(self) -> None:
        """Of a long line, the beginning and the end are shown."""
        text = str(NetworkError("name '" + "n" * 100_000 + "' is too long"))

        assert len(text) == 1500
        assert text.startswith("name 'nnn")
        assert text.endswith("nnn' is too long")

    def test_escapes_count_in_long_lines(self) -> None:
        """A line is cut as it is shown, with its escapes."""
        assert len(str(NetworkError("\0" * 100_000))) == 1500

    def test_many_lines_are_cut(self) -> None:
        """Of many lines, the first and the last are shown."""
        lines = str(NetworkError("\n".join(map(str, range(1000))))).splitlines()

        assert len(lines) == 51
        assert lines[24:27] == ["24", "... 950 more lines ...", "975"]
