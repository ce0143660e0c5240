"""Reading and writing Kaldi's tables, especially with errors."""

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
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
    read_table,
    read_tokens,
    write_table,
)
from nnet3_tables.entries import matrix
from nnet3_tables.entries import value as any_value

KEYS = st.lists(st.text("abcäß0-_", min_size=1, max_size=4), unique=True, max_size=4)
FLOATS = st.floats(width=32, allow_nan=False)
MATRIX = np.ones((2, 3), np.float32)
MATRICES = {f"utterance{k}": np.arange(12.0, dtype=np.float32).reshape(4, 3) + k for k in range(3)}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of three matrices, with a script file beside it."""
    with MatrixWriter(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as writer:
        for key, matrix in MATRICES.items():
            writer.write(key, matrix)
    return tmp_path / "a.ark"


@pytest.fixture
def with_a_bad_line(archive: Path) -> Path:
    """The script file of the archive, whose second line names a file that is missing."""
    script = archive.with_suffix(".scp")
    first, _, last = script.read_text().splitlines()
    script.write_text(f"{first}\nmissing /none.ark:3\n{last}\n")
    return script


def read_all(rspecifier: str) -> dict[str, np.ndarray]:
    """The matrices of a table by key."""
    return {key: read() for key, read in read_matrices(rspecifier)}


def assert_equal(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Compares keys, in order, and values."""
    assert list(expected) == list(actual)
    for key, value in expected.items():
        np.testing.assert_array_equal(actual[key], value)


def test_ranges_in_script_files(archive: Path, tmp_path: Path) -> None:
    """A line can have a range of rows and columns; as in Kaldi, rows may end up to three beyond."""
    ranges = {"rows": "[1:2]", "columns": "[0:1,2:2]", "beyond": "[2:6]"}
    lines = [f"{key} {archive}:11{text}\n" for key, text in ranges.items()]
    (tmp_path / "part.scp").write_text("".join(lines))

    whole = MATRICES["utterance0"]
    expected = {"rows": whole[1:3], "columns": whole[0:2, 2:3], "beyond": whole[2:]}
    assert_equal(read_all(f"scp:{tmp_path}/part.scp"), expected)


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


def test_one_bad_entry(with_a_bad_line: Path) -> None:
    """An unreadable entry is an error; the other entries can be read."""
    found, errors = [], []

    for key, read in read_matrices(f"scp:{with_a_bad_line}"):
        try:
            read()
            found.append(key)
        except TableError as error:
            errors.append(str(error))

    assert found == ["utterance0", "utterance2"]
    assert errors == [
        f"{with_a_bad_line}, line 2: 'missing' at /none.ark:3: cannot be read: No such file or "
        "directory"
    ]


def test_command_of_a_reader_that_gives_up(archive: Path, tmp_path: Path) -> None:
    """A command that still runs is ended when reading stops."""
    entries = read_matrices(f"ark:echo $$ > {tmp_path}/pid; cat {archive}; exec sleep 600 |")
    next(entries)

    entries.close()

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_absent_entries(with_a_bad_line: Path) -> None:
    """With the option p, unreadable entries count as missing."""
    message = "line 2: 'missing' at .*; left out because of the option p"
    with pytest.warns(TableWarning, match=message):
        assert list(read_all(f"scp,p:{with_a_bad_line}")) == ["utterance0", "utterance2"]
    with pytest.warns(TableWarning, match=message):
        assert MatrixLookup(f"scp,p:{with_a_bad_line}").get("missing") is None
    with pytest.raises(TableError, match="No such file"):
        MatrixLookup(f"scp:{with_a_bad_line}").get("missing")


@pytest.mark.parametrize(
    "data",
    [b"key \0BFM \4\1", b"key [ 1 x ]\n", b"RIFF\0\0\0\0WAVE", b"\xc4u\xdferung  [ 1 ]\n"],
    ids=["binary", "text", "sound", "a key that is no text"],
)
def test_damage(data: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Entries before a damage are read; it is an error, and with the option p a warning."""
    path = tmp_path / "a.ark"
    path.write_bytes(b"first  [ 1 ]\n" + data)
    entries = read_matrices(f"ark:{path}")

    key, read = next(entries)
    assert (key, read()) == ("first", 1.0)
    message = rf"^archive '{path}' is damaged or breaks off after 'first', byte \d+: "
    with pytest.raises(TableError, match=message):
        next(entries)
    with pytest.warns(TableWarning, match="; the rest of '.*' is left out because of the option p"):
        assert_equal(read_all(f"ark,p:{path}"), {"first": np.ones((1, 1), np.float32)})
    assert capfd.readouterr().err == ""


def test_damage_of_lookups(tmp_path: Path) -> None:
    """Damage is an error for each key that was not found before it, with the option p a warning."""
    (tmp_path / "a.ark").write_bytes(b"first  [ 1 2 ]\nkey \0BFV \4\1")

    with VectorLookup(f"ark:{tmp_path}/a.ark") as lookup:
        for key in ("key", "nobody"):
            with pytest.raises(TableError, match="breaks off after 'first', byte 24: the file"):
                lookup.get(key)
        np.testing.assert_array_equal(lookup.get("first"), [1, 2])
    with VectorLookup(f"ark,p:{tmp_path}/a.ark") as lookup:
        with pytest.warns(TableWarning, match="breaks off after 'first', byte 24: the file"):
            assert lookup.get("key") is None
        assert lookup.get("nobody") is None
        np.testing.assert_array_equal(lookup.get("first"), [1, 2])


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


@pytest.mark.parametrize("words", ["ark", "ark,t"])
@given(data=st.data(), keys=KEYS, ndim=st.sampled_from([1, 2]))
def test_round_trip(
    words: str,
    data: st.DataObject,
    keys: list[str],
    ndim: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Values of all kinds are read back as written, in order."""
    path = tmp_path_factory.getbasetemp() / "round_trip.ark"
    shapes = arrays.array_shapes(min_dims=ndim, max_dims=ndim, max_side=4)
    values = {key: data.draw(arrays.arrays(np.float32, shapes, elements=FLOATS)) for key in keys}

    with write_table(f"{words}:{path}") as table:
        for key, value in values.items():
            table.write(key, value)
    read = dict(read_table(f"ark:{path}"))

    assert list(read) == list(values)
    for key, value in values.items():
        assert read[key].shape == value.shape
        np.testing.assert_allclose(read[key], value, rtol=1e-5)


def test_values_belong_to_the_caller(tmp_path: Path) -> None:
    """Values keep their numbers when others are read, and can be changed."""
    with write_table(f"ark:{tmp_path}/a.ark") as table:
        for number in range(100):
            table.write(f"key{number:02}", np.full((30, 20), number))

    values = [value for _, value in read_table(f"ark:{tmp_path}/a.ark")]
    values[0] += 1

    assert [value.mean() for value in values] == [1, *range(1, 100)]
    assert all(value.flags.owndata and value.flags.writeable for value in values)


def test_longest_key(tmp_path: Path) -> None:
    """A key of 4,096 bytes is written and read."""
    key = "ü" * 2048
    with write_table(f"ark:{tmp_path}/a.ark") as table:
        table.write(key, [1.0])

    assert [found for found, _ in read_table(f"ark:{tmp_path}/a.ark")] == [key]


def test_table_without_entries(tmp_path: Path) -> None:
    """A table without entries is written and read, but not written after an error of the caller."""
    with write_table(f"ark:{tmp_path}/a.ark"):
        pass
    with pytest.raises(KeyError), write_table(f"ark:{tmp_path}/b.ark"):
        raise KeyError

    assert list(read_table(f"ark:{tmp_path}/a.ark")) == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.ark"]


def test_empty_values(tmp_path: Path) -> None:
    """A matrix without elements has no rows and no columns in Kaldi's files."""
    for number, value in enumerate((np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(0))):
        with write_table(f"ark:{tmp_path}/{number}") as table:
            table.write("key", value)

    shapes = [dict(read_table(f"ark:{tmp_path}/{number}"))["key"].shape for number in range(3)]
    assert shapes == [(0, 0), (0, 0), (0,)]


def test_writers_in_threads(tmp_path: Path) -> None:
    """Threads write tables at the same time; failures are noticed, and standard error stays."""
    before = os.fstat(2)

    def write(number: int) -> str:
        good = f"ark:{tmp_path}/{number}.ark"
        target = "ark:| cat >/dev/null; exit 3" if number % 2 else good
        try:
            with write_table(target) as table:
                for entry in range(20):
                    table.write(f"k{entry}", MATRIX)
        except TableError as error:
            return str(error)
        return "written"

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(write, range(60)))

    assert found == ["written", "the command 'cat >/dev/null; exit 3' failed with status 3"] * 30
    assert os.path.samestat(before, os.fstat(2))


def test_threads_that_share_a_writer(tmp_path: Path) -> None:
    """A script file has the right places of entries that threads write to one archive."""
    with (  # with the option f, each entry lets others run
        write_table(f"ark,f,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as table,
        ThreadPoolExecutor(4) as threads,
    ):
        list(threads.map(lambda n: table.write(f"k{n}", MATRIX[:1] * n), range(800)))

    found = {key: value[0, 0] for key, value in read_table(f"scp:{tmp_path}/a.scp")}
    assert found == {f"k{n}": n for n in range(800)}


def test_words_of_several_bytes(tmp_path: Path) -> None:
    """A view of memory is written, and counted, by its bytes."""
    words = memoryview(np.frombuffer(b"\0B\4\1\0\0\0\4\2\0\0\0", np.int16))
    with ObjectWriter(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as table:
        for key in "ab":
            table.write(key, words)

    assert {key: value.tolist() for key, value in read_table(f"scp:{tmp_path}/a.scp")} == {
        "a": [2],
        "b": [2],
    }


def test_blanks_are_those_of_ascii(tmp_path: Path) -> None:
    """A blank of Unicode is a part of a word, in keys, in names of files and in words."""
    key = "a\u3000b\x85"
    with write_table(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a\xa0") as table:
        table.write(key, MATRIX)
    (tmp_path / "b.scp").write_text(f"{key}\t{tmp_path}/a.ark:8 \n", encoding="utf-8")
    (tmp_path / "words").write_text(f"{key} {key}\n", encoding="utf-8")

    assert [*dict(read_table(f"ark:{tmp_path}/a.ark"))] == [key]
    assert [*dict(read_table(f"scp:{tmp_path}/b.scp"))] == [key]
    assert read_tokens(f"ark:{tmp_path}/words") == {key: key}


def test_text_behind_a_value(tmp_path: Path) -> None:
    """What follows the bracket of a value on its line is the next entry, as in Kaldi."""
    (tmp_path / "a.ark").write_text("a [ 1 2 ] b [ 3 ]\n")
    found = {key: value.tolist() for key, value in read_table(f"ark:{tmp_path}/a.ark")}
    assert found == {"a": [1, 2], "b": [3]}
