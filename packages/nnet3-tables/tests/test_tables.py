"""Reading and writing Kaldi's tables, especially with errors."""

import itertools
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from nnet3_descriptors.files import Reader, SparseMatrix, compressed, new_writer
from nnet3_tables import (
    MatrixLookup,
    MatrixWriter,
    ObjectLookup,
    ObjectWriter,
    TableError,
    TableWarning,
    VectorLookup,
    VectorWriter,
    commands,
    read_matrices,
    read_objects,
    read_tokens,
)
from nnet3_tables.entries import matrix
from nnet3_tables.entries import value as any_value

MATRICES = {f"utterance{k}": np.arange(12.0, dtype=np.float32).reshape(4, 3) + k for k in range(3)}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of three matrices, with a script file beside it."""
    with MatrixWriter(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as writer:
        for key, matrix in MATRICES.items():
            writer.write(key, matrix)
    return tmp_path / "a.ark"


def read_all(rspecifier: str) -> dict[str, np.ndarray]:
    """The matrices of a table by key."""
    return {key: read() for key, read in read_matrices(rspecifier)}


def assert_equal(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Compares keys, in order, and values."""
    assert list(expected) == list(actual)
    for key, value in expected.items():
        np.testing.assert_array_equal(actual[key], value)


@pytest.mark.parametrize("form", ["ark", "ark,t"])
def test_round_trip(form: str, tmp_path: Path) -> None:
    """Matrices are read back as written, binary or as text."""
    with MatrixWriter(f"{form}:{tmp_path}/b.ark") as writer:
        for key, matrix in MATRICES.items():
            writer.write(key, matrix)

    assert_equal(read_all(f"ark:{tmp_path}/b.ark"), MATRICES)


def test_script_file(archive: Path) -> None:
    """A script file gives the matrices at its places."""
    assert_equal(read_all(f"scp:{archive.with_suffix('.scp')}"), MATRICES)


def test_ranges_in_script_files(archive: Path, tmp_path: Path) -> None:
    """A line can have a range of rows and columns, including the last one."""
    first = archive.with_suffix(".scp").read_text().splitlines()[0]
    (tmp_path / "part.scp").write_text(f"{first}[1:2]\n{first.replace('0 ', 'x ')}[0:1,2:2]\n")

    part = read_all(f"scp:{tmp_path}/part.scp")

    np.testing.assert_array_equal(part["utterance0"], MATRICES["utterance0"][1:3])
    np.testing.assert_array_equal(part["utterancex"], MATRICES["utterance0"][0:2, 2:3])


@pytest.mark.parametrize("is_sparse", [True, False])
def test_ranges_of_compressed_and_sparse_matrices(is_sparse: bool, tmp_path: Path) -> None:
    """A range of a matrix of another form is a full matrix, whatever form the reader takes."""
    given, writer = np.eye(9, 4, dtype=np.float32), new_writer()
    if is_sparse:
        splits = np.minimum(np.arange(10), 4)
        SparseMatrix(4, splits, np.arange(4), np.ones(4, np.float32)).write(writer)
    else:
        writer.compressed_matrix(compressed.compress(given))
    with ObjectWriter(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as table:
        table.write("a", writer.data)
    line = (tmp_path / "a.scp").read_text().strip()
    (tmp_path / "part.scp").write_text(f"{line}[1:8,0:1]\n")

    def stored(reader: Reader) -> object:
        return SparseMatrix.read(reader) if is_sparse else reader.compressed_matrix()

    for decode in (stored, any_value):
        (part,) = read_objects(f"scp:{tmp_path}/part.scp", decode)
        np.testing.assert_array_equal(part.value, given[1:9, :2])


@pytest.mark.parametrize(
    "text", ["0:8", "0:3,0:3", "4:4", "2:1", "0:1,", ",0:1", "1", "x", "", "0:1,0:1,0:1"]
)
def test_ranges_that_make_no_sense(text: str, archive: Path, tmp_path: Path) -> None:
    """An invalid range, or one beyond the matrix, is an error that states the size."""
    (tmp_path / "part.scp").write_text(f"key {archive}:11[{text}]\n")

    ((_, read),) = read_matrices(f"scp:{tmp_path}/part.scp")
    with pytest.raises(TableError, match=rf"line 1: 'key': .* within 4 x 3, found \[{text}\]"):
        read()


def test_range_of_a_rounded_segment(archive: Path, tmp_path: Path) -> None:
    """As in Kaldi, a range of rows can end up to three rows beyond the last."""
    (tmp_path / "part.scp").write_text(f"key {archive}:11[2:6]\n")

    assert_equal(read_all(f"scp:{tmp_path}/part.scp"), {"key": MATRICES["utterance0"][2:]})


def test_command_as_input(archive: Path) -> None:
    """A command in place of a file is run, if the user wrote it."""
    assert_equal(read_all(f"ark:cat {archive} |"), MATRICES)
    assert_equal(read_all(f"ark,s,cs:cat {archive}|"), MATRICES)
    script = archive.with_suffix(".scp")
    assert_equal(read_all(f"scp:head -n 2 {script} |"), dict(list(MATRICES.items())[:2]))
    with MatrixLookup(f"ark:cat {archive} |") as lookup:
        np.testing.assert_array_equal(lookup.get("utterance1"), MATRICES["utterance1"])


def test_command_that_fails(archive: Path) -> None:
    """A failed command is an error once its output has been read; not if reading stops before."""
    entries = read_matrices(f"ark:cat {archive}; exit 7 |")

    assert [key for key, _ in itertools.islice(entries, 3)] == list(MATRICES)
    with pytest.raises(TableError, match=f"^the command 'cat {archive}; exit 7' failed with .* 7$"):
        next(entries)
    with MatrixLookup(f"ark:cat {archive}; yes |") as lookup:
        assert lookup.get("utterance0") is not None
    with (
        pytest.raises(TableError, match="'exit 7' failed"),
        MatrixLookup("ark:exit 7 |") as lookup,
    ):
        assert lookup.get("utterance0") is None


def test_commands_in_script_files_do_not_run(tmp_path: Path) -> None:
    """A line of data that looks like a command is refused, and not run."""
    (tmp_path / "bad.scp").write_text(f"utterance touch {tmp_path}/touched |\n")

    ((_, read),) = read_matrices(f"scp:{tmp_path}/bad.scp")
    message = r"bad.scp, line 1: 'utterance' is to come from a command \('touch .* not run comm"
    with pytest.raises(TableError, match=message):
        read()

    assert not (tmp_path / "touched").exists()


def test_one_bad_entry(archive: Path, tmp_path: Path) -> None:
    """An unreadable entry is an error; the other entries can be read."""
    lines = archive.with_suffix(".scp").read_text().splitlines()
    (tmp_path / "mixed.scp").write_text(f"{lines[0]}\nmissing {tmp_path}/none.ark:3\n{lines[2]}\n")
    found, errors = [], []

    for key, read in read_matrices(f"scp:{tmp_path}/mixed.scp"):
        try:
            read()
            found.append(key)
        except TableError as error:
            errors.append(str(error))

    assert found == ["utterance0", "utterance2"]
    assert errors == [
        f"{tmp_path}/mixed.scp, line 2: 'missing' at {tmp_path}/none.ark:3: cannot be read: No "
        "such file or directory"
    ]


def test_command_of_a_reader_that_gives_up(archive: Path, tmp_path: Path) -> None:
    """A command that still runs is ended when reading stops."""
    entries = read_matrices(f"ark:echo $$ > {tmp_path}/pid; cat {archive}; exec sleep 600 |")
    next(entries)

    entries.close()

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_absent_entries(archive: Path, tmp_path: Path) -> None:
    """With the option p, unreadable entries count as missing."""
    lines = archive.with_suffix(".scp").read_text().splitlines()
    (tmp_path / "mixed.scp").write_text(f"{lines[0]}\nmissing {tmp_path}/none.ark:3\n{lines[2]}\n")

    with pytest.warns(
        TableWarning, match="line 2: 'missing' at .*; left out because of the option p"
    ):
        assert list(read_all(f"scp,p:{tmp_path}/mixed.scp")) == ["utterance0", "utterance2"]
    with pytest.warns(
        TableWarning, match="line 2: 'missing' at .*; left out because of the option p"
    ):
        assert MatrixLookup(f"scp,p:{tmp_path}/mixed.scp").get("missing") is None
    with pytest.raises(TableError, match="No such file"):
        MatrixLookup(f"scp:{tmp_path}/mixed.scp").get("missing")


def test_key_that_is_no_text(archive: Path) -> None:
    """Keys must be UTF-8."""
    archive.write_bytes(archive.read_bytes().replace(b"utterance1", b"\xc4u\xdferung"))
    entries = read_matrices(f"ark:{archive}")

    next(entries)
    with pytest.raises(TableError, match=r"after 'utterance0', byte 74: the key .* UTF-8"):
        next(entries)


def test_archive_that_breaks_off(archive: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Entries before a damage are read; the damage is an error, and nothing is printed."""
    archive.write_bytes(archive.read_bytes()[:-10])
    entries = read_matrices(f"ark:{archive}")

    for number in range(2):
        key, read = next(entries)
        np.testing.assert_array_equal(read(), MATRICES[f"utterance{number}"])
    with pytest.raises(TableError, match=rf"{archive}' .* after '{key}', byte \d+"):
        next(entries)

    assert capfd.readouterr().err == ""


def test_the_end_of_a_process(tmp_path: Path) -> None:
    """A process that has used tables, one still open, ends without a message."""
    program = """
import numpy, nnet3_tables
writer = nnet3_tables.VectorWriter("ark:v.ark")
writer.write("speaker", numpy.arange(3.0))
with nnet3_tables.VectorWriter("ark:w.ark") as other:
    other.write("speaker", numpy.arange(3.0))
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stderr == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"key \0BFV \4\1\0\0\0", "byte 6: this is no matrix; .*, found 'FV', a vector"),
        (b"key \0BFM \4\1\0\0\0\4\xff\xff\xff\xff", "byte 6: impossible size; .*, found 1 by -1"),
        (b"key \0BFM \4\0\0\0\x7f\4\0\0\0\x7f", "byte 6: .* an array of .*, found 0 bytes"),
        (b"key \0BFM \4\1", "byte 9: .*; expected an integer of 4 bytes, found 1 bytes"),
        (b"key \0BCM3 \0", "byte 6: .*; expected a header of 16 bytes, found 1 bytes"),
        (b"key  [ 1 2\n 3 4", r"byte 5: .* no end; expected '\]', found the end of the file"),
        (b"key 1 2 3\n4", r"byte 4: this is no matrix; .* begins with '.' in text, found '1 2 3"),
        (b"key [ 1 x ]\n", "byte 8: this is no number; expected number, found 'x'"),
        (b"k" * 5000, "byte 0: this is no key; expected a key, found 'kk"),
        (b"RIFF\0\0\0\0WAVE", "byte 0: this is no key"),
        (b"key RIFF\0\0\0\0WAVE", "byte 4: this is sound, a WAV file; expected what is computed"),
    ],
)
def test_damage(data: bytes, message: str, tmp_path: Path) -> None:
    """The error has the place, what was expected, and what was found."""
    (tmp_path / "a.ark").write_bytes(data)

    if not data.startswith(b"RIFF"):
        with pytest.raises(TableError, match=f"^cannot read archive '{tmp_path}/a.ark', {message}"):
            read_all(f"ark:{tmp_path}/a.ark")
    (tmp_path / "a.ark").write_bytes(b"first  [ 1 ]\n" + data)
    with pytest.raises(TableError, match="is damaged or breaks off after 'first', byte"):
        read_all(f"ark:{tmp_path}/a.ark")
    message = (
        "breaks off after 'first', byte .*; the rest of '.*' is left out because of the option p"
    )
    with pytest.warns(TableWarning, match=message):
        assert_equal(read_all(f"ark,p:{tmp_path}/a.ark"), {"first": np.ones((1, 1), np.float32)})


def test_others_compute_while_a_command_is_waited_for(archive: Path, tmp_path: Path) -> None:
    """Other threads run while a reader waits for a command, which here waits for such a thread."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    entries = read_matrices(f"ark:cat {archive}; cat {fifo} |")
    assert [key for key, _ in itertools.islice(entries, 3)] == list(MATRICES)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(fifo.write_bytes, archive.read_bytes())
        assert [key for key, _ in entries] == list(MATRICES)
    assert written.result() > 0


def test_empty_archive(tmp_path: Path) -> None:
    """An empty file is a table without entries."""
    (tmp_path / "empty.ark").touch()

    assert read_all(f"ark:{tmp_path}/empty.ark") == {}


def test_lookup(archive: Path) -> None:
    """Matrices are found by key in archives and by script files; unknown keys give None."""
    for rspecifier in (f"ark:{archive}", f"scp:{archive.with_suffix('.scp')}"):
        with MatrixLookup(rspecifier) as lookup:
            np.testing.assert_array_equal(lookup.get("utterance2"), MATRICES["utterance2"])
            np.testing.assert_array_equal(lookup.get("utterance0"), MATRICES["utterance0"])
            assert lookup.get("nobody") is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_lookup_that_is_interrupted(error: type[BaseException], archive: Path) -> None:
    """After an interruption a lookup does not say that what it has not read is not there."""
    decode = Mock(side_effect=[matrix, error])
    with ObjectLookup(f"ark:{archive}", decode) as lookup:
        assert lookup.get("utterance0") is matrix
        with pytest.raises(error):
            lookup.get("utterance2")
        with pytest.raises(
            TableError, match=rf"^archive '{archive}': reading ended: {error.__name__}"
        ):
            lookup.get("utterance2")
        assert lookup.get("utterance0") is matrix


def test_lookup_of_another_kind(archive: Path) -> None:
    """An archive of other objects is an error for each key, not a table without the keys."""
    message = f"cannot read archive '{archive}', byte 13: this is no vector; .*'FM', a matrix"

    with VectorLookup(f"ark:{archive}") as lookup:
        for key in ("utterance0", "utterance1"):
            with pytest.raises(TableError, match=message):
                lookup.get(key)


def test_vectors(tmp_path: Path) -> None:
    """Vectors are written, and read by key."""
    with VectorWriter(f"ark:{tmp_path}/v.ark") as writer:
        writer.write("speaker", np.array([1.0, 2.0], dtype=np.float32))

    with VectorLookup(f"ark:{tmp_path}/v.ark") as lookup:
        np.testing.assert_array_equal(lookup.get("speaker"), [1, 2])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"key \0BFM \4\1\0\0\0", "byte 6: this is no vector; .*, found 'FM', a matrix"),
        (b"key \0BCM3 ", "byte 6: this is no vector; .*, found 'CM3', a matrix"),
        (b"key \0BFV \4\xff\xff\xff\xff", "byte 6: impossible size; .*, found -1"),
        (b"key \0BFV \4\0\0\0\x7f", "byte 6: .* an array of .*, found 0 bytes"),
        (b"key \0BFV \4\1", "byte 9: .*; expected an integer of 4 bytes, found 1 bytes"),
        (b"key 1 2 3\n", "byte 4: this is no vector; .* begins with '.' in text, found '1 2 3"),
        (b"key ", "byte 4: this is no vector; .*, found the end of the file"),
    ],
)
def test_damage_of_vectors(data: bytes, message: str, tmp_path: Path) -> None:
    """Damage is an error for each key that was not found before it."""
    (tmp_path / "a.ark").write_bytes(b"first  [ 1 2 ]\n" + data)
    start = len(b"first  [ 1 2 ]\n")
    message = re.sub(r"(?<=^byte )\d+", lambda found: str(int(found[0]) + start), message)

    with VectorLookup(f"ark:{tmp_path}/a.ark") as lookup:
        for key in ("key", "first", "nobody"):
            if key == "first":
                np.testing.assert_array_equal(lookup.get("first"), [1, 2])
                continue
            with pytest.raises(TableError, match=f"breaks off after 'first', {message}"):
                lookup.get(key)
    with VectorLookup(f"ark,p:{tmp_path}/a.ark") as lookup:
        with pytest.warns(TableWarning, match=f"breaks off after 'first', {message}"):
            assert lookup.get("key") is None
        assert lookup.get("nobody") is None
        np.testing.assert_array_equal(lookup.get("first"), [1, 2])


def test_keys_that_are_asked_for_once(tmp_path: Path) -> None:
    """With the option o, a value is forgotten once it was given; otherwise it is kept."""
    (tmp_path / "a.ark").write_text("b  [ 1 ]\na  [ 2 ]\n")

    for options, again in (("o", None), ("no", 2.0), ("p", 2.0)):
        with MatrixLookup(f"ark,{options}:{tmp_path}/a.ark") as lookup:
            assert lookup.get("a") == 2.0
            assert lookup.get("b") == 1.0
            assert lookup.get("a") == again


def test_sorted_archives(tmp_path: Path) -> None:
    """A key that a sorted archive lacks is searched for only up to its place in the order."""
    (tmp_path / "a.ark").write_text("a  [ 1 ]\nc  [ 2 ]\ndamaged")

    with MatrixLookup(f"ark,s:{tmp_path}/a.ark") as lookup:
        assert lookup.get("b") is None
        assert lookup.get("a") == 1.0
        assert lookup.get("c") == 2.0
        with pytest.raises(TableError, match="breaks off after 'c'"):
            lookup.get("d")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("a.ark", "this is no vector; .*, found bytes 75 74"),
        ("a.ark:11", "this is no vector; expected 'FV' or 'DV', found 'FM', a matrix"),
        ("a.ark:100000", "the offset is behind the end of the file"),
        (f"a.ark:{10**30}", "cannot be read: No such file"),
        ("none.ark:3", "cannot be read: No such file"),
        (".", "Is a directory"),
        ("word.txt", "this is no number"),
    ],
)
def test_locations_of_nothing(location: str, message: str, archive: Path, tmp_path: Path) -> None:
    """A line of a script file whose place has no vector is an error that says so."""
    (tmp_path / "word.txt").write_text(" [ 1 x ]\n")
    (tmp_path / "v.scp").write_text(f"key {tmp_path}/{location}\n")

    with (
        VectorLookup(f"scp:{tmp_path}/v.scp") as lookup,
        pytest.raises(TableError, match=f"v.scp, line 1: 'key' at {tmp_path}/.*: .*{message}"),
    ):
        lookup.get("key")


def test_locations(archive: Path, tmp_path: Path) -> None:
    """A line can name a file of one value, or a place in an archive, binary or text."""
    (tmp_path / "one.txt").write_text(" [ 1 2\n 3 4 ]\n")
    (tmp_path / "some.ark").write_text("a  [ 1 ]\nb  [ 2 ]\n")
    lines = f"one {tmp_path}/one.txt", f"b {tmp_path}/some.ark:11", f"u {archive}:11"
    (tmp_path / "m.scp").write_text("\n".join(lines))

    expected = {"one": [[1, 2], [3, 4]], "b": [[2]], "u": MATRICES["utterance0"]}
    assert_equal(read_all(f"scp:{tmp_path}/m.scp"), expected)


def test_tokens(tmp_path: Path) -> None:
    """A table of words becomes a mapping."""
    (tmp_path / "utt2spk").write_text("utterance1 anna\nutterance2 bert\n")

    assert read_tokens(f"ark:{tmp_path}/utt2spk") == {"utterance1": "anna", "utterance2": "bert"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("count", [1, 3000])
def test_full_disk(count: int) -> None:
    """A failed write is an error, even if it fails only at closing."""

    def fill() -> None:
        with MatrixWriter("ark:/dev/full") as writer:
            for number in range(count):
                writer.write(f"utterance{number}", MATRICES["utterance0"])

    with pytest.raises(TableError, match=r"^cannot write '/dev/full': No space left on device$"):
        fill()


class TestIncomplete:
    """An archive gets its name when it is complete."""

    def test_name_at_the_end(self, tmp_path: Path) -> None:
        """Until it is complete, it has a name of its own, and an earlier archive stays."""
        path = tmp_path / "a.ark"
        path.write_bytes(b"old")
        path.chmod(0o640)

        with MatrixWriter(f"ark:{path}") as writer:
            writer.write("utterance0", MATRICES["utterance0"])
            assert path.read_bytes() == b"old"
            assert [str(each) for each in tmp_path.glob("a.ark.*.incomplete")] == [
                writer.unfinished
            ]

        assert writer.unfinished is None
        assert read_all(f"ark:{path}").keys() == {"utterance0"}
        assert path.stat().st_mode & 0o777 == 0o640
        assert [each.name for each in tmp_path.iterdir()] == ["a.ark"]

    def test_an_interruption(self, tmp_path: Path) -> None:
        """After an error, the entries written so far stay, under a name with a suffix."""
        path = tmp_path / "a.ark"

        def write() -> None:
            with MatrixWriter(f"ark:{path}") as writer:
                writer.write("utterance0", MATRICES["utterance0"])
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write()

        (part,) = tmp_path.iterdir()
        assert re.fullmatch(r"a\.ark\.[0-9a-f]{8}\.incomplete", part.name)
        assert read_all(f"ark:{part}").keys() == {"utterance0"}

    @pytest.mark.parametrize("words", ["ark,f", "ark,t,f"])
    def test_prompt_archives(self, words: str, tmp_path: Path) -> None:
        """With the option f, each entry is in the file at once, which still is not complete."""
        with MatrixWriter(f"{words}:{tmp_path}/a.ark") as writer:
            writer.write("utterance0", MATRICES["utterance0"])
            assert read_all(f"ark:{writer.unfinished}").keys() == {"utterance0"}
            assert not (tmp_path / "a.ark").exists()

        assert (tmp_path / "a.ark").exists()

    def test_links_and_long_names(self, tmp_path: Path) -> None:
        """A link stays a link; a name may be as long as the folder allows."""
        link, long = tmp_path / "link", tmp_path / ("n" * 250)
        link.symlink_to("target")
        for path in (link, long):
            with MatrixWriter(f"ark:{path}") as writer:
                writer.write("utterance0", MATRICES["utterance0"])

        assert link.is_symlink()
        assert {each.name for each in tmp_path.iterdir()} == {"link", "target", long.name}


def test_archive_and_script(tmp_path: Path) -> None:
    """Archive and script file are written together; the script file finds all entries."""
    with MatrixWriter(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as writer:
        for key, matrix in MATRICES.items():
            writer.write(key, matrix)

    assert read_all(f"scp:{tmp_path}/a.scp").keys() == MATRICES.keys()


def test_files_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A writer of an archive with a script file removes no file but its own old script file."""
    (tmp_path / "a.scp").write_text("of others")
    (tmp_path / "-").write_text("of others")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    with MatrixWriter("ark,scp:a.ark,a.scp") as writer:
        writer.write("utterance0", MATRICES["utterance0"])
        monkeypatch.chdir(tmp_path)
    with MatrixWriter("ark,scp:a.ark,-") as writer:
        writer.write("utterance0", MATRICES["utterance0"])

    assert (tmp_path / "a.scp").read_text() == (tmp_path / "-").read_text() == "of others"
    assert capsysbinary.readouterr().out == b"utterance0 a.ark:11\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    """Files have the system's names for them, in any encoding."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(TableError, match="there is no folder"):
        MatrixWriter(f"ark:{folder}/a.ark")
    Path(folder).mkdir()

    with VectorWriter(f"ark:{folder}/v.ark") as writer:
        writer.write("speaker", np.arange(3.0))

    with VectorLookup(f"ark:{folder}/v.ark") as lookup:
        np.testing.assert_array_equal(lookup.get("speaker"), range(3))


def test_command_without_a_shell(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no shell, as on Windows, an error says so; one that PATH finds is used."""
    sh = commands._shell("")[0]
    monkeypatch.setattr(commands, "_SHELL", str(tmp_path / "no" / "sh"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for action in (
        lambda: read_all(f"ark:cat {archive} |"),
        lambda: ObjectWriter("ark:| cat > /dev/null"),
    ):
        with pytest.raises(TableError, match=r"^the command 'cat .*' needs the shell 'sh', and"):
            action()

    (tmp_path / "sh").symlink_to(sh)

    assert_equal(read_all(f"ark:/bin/cat {archive} |"), MATRICES)


def test_output_command_that_reads_nothing() -> None:
    """A failed command is named, even if the failure is noticed during a write."""
    matrix = np.zeros((100, 1000))

    def write() -> None:
        with MatrixWriter("ark:| exit 3") as writer:
            while True:
                writer.write("utterance", matrix)

    with pytest.raises(TableError, match="the command 'exit 3' failed"):
        write()
