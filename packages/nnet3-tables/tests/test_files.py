"""What stands in the files of tables: whole tables only, and nothing that is still to be read."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from nnet3_tables import (
    MatrixWriter,
    ObjectWriter,
    TableError,
    TableWriter,
    opened,
    opened_to_write,
    read_matrix,
    read_table,
    read_vector,
    write_matrix,
    write_table,
    write_vector,
)

MATRIX = np.ones((2, 3), np.float32)


def keys(rspecifier: str) -> list[str]:
    """The keys of a table."""
    return [key for key, _ in read_table(rspecifier)]


def interrupted(wspecifier: str) -> None:
    """Writes an entry 'a' of a table that is not finished."""
    with contextlib.suppress(KeyboardInterrupt), write_table(wspecifier) as table:
        table.write("a", MATRIX)
        raise KeyboardInterrupt


def test_a_part_is_read_while_its_table_is_written(tmp_path: Path) -> None:
    """What an interruption leaves can be given as input, also to write the same table again."""
    interrupted(f"ark:{tmp_path}/x")
    (part,) = tmp_path.iterdir()
    assert re.fullmatch(r"x\.[0-9a-f]{8}\.incomplete", part.name)

    with write_table(f"ark:{tmp_path}/x") as table:
        for key, value in read_table(f"ark:{part}"):
            table.write(key, value)

    assert keys(f"ark:{tmp_path}/x") == keys(f"ark:{part}") == ["a"]
    for name in ("x", "x.incomplete"):  # as older versions called it
        part.rename(tmp_path / "x.incomplete")
        part = tmp_path / "x.incomplete"
        with write_table(f"ark:{tmp_path}/{name}") as table:
            for key, value in read_table(f"ark:{part}"):
                table.write(key, value)
        assert keys(f"ark:{part}") == keys(f"ark:{tmp_path}/{name}") == ["a"]


def test_a_table_is_read_while_it_is_written_over(tmp_path: Path) -> None:
    """The old table can be read to its end before the new one takes its place."""
    table = f"ark,scp:{tmp_path}/x.ark,{tmp_path}/x.scp"
    for times in (1, 2):
        with write_table(table) as writer:
            old = read_table(f"scp:{tmp_path}/x.scp") if times == 2 else [("a", MATRIX)] * 3
            for number, (_, value) in enumerate(old):
                writer.write(f"k{number}", times * np.asarray(value))
    assert {key: value.sum() for key, value in read_table(f"scp:{tmp_path}/x.scp")} == {
        "k0": 12, "k1": 12, "k2": 12
    }  # fmt: skip


@pytest.mark.parametrize("writer", [MatrixWriter, ObjectWriter])
def test_two_writers_of_one_table(writer: type[TableWriter], tmp_path: Path) -> None:
    """Of two writers of one archive each writes all of it; the last to end has the name."""
    value = MATRIX if writer is MatrixWriter else b"[ 1 2 ]\n"
    with writer(f"ark:{tmp_path}/x") as first:
        first.write("a", value)
        with writer(f"ark:{tmp_path}/x") as second:
            second.write("b", value)
        assert keys(f"ark:{tmp_path}/x") == ["b"]
        first.write("c", value)

    assert keys(f"ark:{tmp_path}/x") == ["a", "c"]
    assert os.listdir(tmp_path) == ["x"]


def test_a_write_that_fails(tmp_path: Path) -> None:
    """A table that could not take an entry gets no name, even if its owner goes on."""
    with write_table(f"ark:{tmp_path}/x") as table:
        table.write("a", MATRIX)
        table._archive.close()
        with pytest.raises(ValueError, match="closed file"):
            table.write("b", MATRIX)
        with pytest.raises(TableError, match="the table is closed"):
            table.write("c", MATRIX)

    assert not (tmp_path / "x").exists()


class TestScriptFiles:
    """A script file refers to the archive that it was made with, or is not there."""

    def test_of_an_interrupted_writer(self, tmp_path: Path) -> None:
        """After an interruption, the old archive and its script file stand."""
        table = f"ark,scp:{tmp_path}/x.ark,{tmp_path}/x.scp"
        with write_table(table) as writer:
            writer.write("old", MATRIX)
        interrupted(table)

        assert keys(f"scp:{tmp_path}/x.scp") == keys(f"ark:{tmp_path}/x.ark") == ["old"]

    def test_of_a_killed_writer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """At no moment does it refer to another archive, or to one that is missing."""
        table = f"ark,scp:{tmp_path}/x.ark,{tmp_path}/x.scp"
        states = set()

        def look() -> None:
            archive, script = tmp_path / "x.ark", tmp_path / "x.scp"
            if script.exists():
                states.add((*keys(f"scp:{script}"), *keys(f"ark:{archive}")))

        for name in ("replace", "remove", "fsync", "chmod"):
            does = getattr(os, name)

            def watched(*given: object, does=does) -> object:
                look()
                try:
                    return does(*given)
                finally:
                    look()

            monkeypatch.setattr(os, name, watched)
        for key in ("first", "second"):
            with write_table(table) as writer:
                writer.write(key * 2 if key == "second" else key, MATRIX)

        assert states == {("first", "first"), ("secondsecond", "secondsecond")}

    @pytest.mark.skipif(os.name != "posix", reason="other systems have no such names")
    def test_links_to_script_files(self, tmp_path: Path) -> None:
        """A link stays, also one to standard output, where a script file is shown."""
        (tmp_path / "link").symlink_to(tmp_path / "x.scp")
        (tmp_path / "shown").symlink_to("/dev/stdout")
        program = """
import numpy, sys
from nnet3_tables import write_table
for name in sys.argv[1:]:
    with write_table(f"ark,t,scp:x.ark,{name}") as table:
        table.write("k", numpy.ones(1))
"""
        with (tmp_path / "out").open("wb") as file:
            names = "link", "shown", "-", "link", "shown"
            subprocess.run(
                [sys.executable, "-c", program, *names], stdout=file, cwd=tmp_path, check=True
            )

        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "shown").is_symlink()
        assert (tmp_path / "x.scp").read_text() == "k x.ark:2\n"
        assert (tmp_path / "out").read_text() == "k x.ark:2\n" * 3

    def test_of_two_writers(self, tmp_path: Path) -> None:
        """Two writers of one pair end one after the other."""
        table = f"ark,scp:{tmp_path}/x.ark,{tmp_path}/x.scp"

        def write(number: int) -> None:
            for _ in range(30):
                with write_table(table) as writer:
                    writer.write("k" * number, MATRIX)

        threads = [threading.Thread(target=write, args=[number]) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert keys(f"scp:{tmp_path}/x.scp") == keys(f"ark:{tmp_path}/x.ark")
        assert sorted(os.listdir(tmp_path)) == ["x.ark", "x.scp"]


def test_values_by_a_script_file(tmp_path: Path) -> None:
    """A script file can say where each value goes, but not to a command."""
    (tmp_path / "out.scp").write_text(f"a {tmp_path}/a.mat\nb | touch {tmp_path}/touched\n")
    with write_table(f"scp:{tmp_path}/out.scp") as table:
        table.write("a", MATRIX)
        with pytest.raises(TableError, match=r"'b' is to go to a command \('\| touch .* not run"):
            table.write("b", MATRIX)
        with pytest.raises(TableError, match=r"out\.scp' has no line for 'c'"):
            table.write("c", MATRIX)
    with write_table(f"scp,p:{tmp_path}/out.scp") as table:
        table.write("c", MATRIX)

    np.testing.assert_array_equal(read_matrix(f"{tmp_path}/a.mat"), MATRIX)
    assert sorted(os.listdir(tmp_path)) == ["a.mat", "out.scp"]


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such names")
def test_standard_output_by_its_name(tmp_path: Path) -> None:
    """What stands before a table in the file of standard output stays."""
    program = """
import numpy, sys
from nnet3_tables import write_table
for name in ("/dev/stdout", "/dev/fd/1", "-"):
    with write_table(f"ark,t:{name}") as table:
        table.write("k", numpy.ones(1))
"""
    with (tmp_path / "out").open("wb") as file:
        file.write(b"first [ 0 ]\n")
        file.flush()
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)

    assert keys(f"ark:{tmp_path}/out") == ["first", "k", "k", "k"]


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write all")
def test_folders_that_take_no_file(tmp_path: Path) -> None:
    """Where no temporary file can be made, nothing is written over."""
    (tmp_path / "x").write_bytes(b"old")
    tmp_path.chmod(0o500)
    with pytest.raises(TableError, match=r"cannot write '.*x': Permission denied"):
        write_table(f"ark:{tmp_path}/x")
    assert (tmp_path / "x").read_bytes() == b"old"


def test_standard_error_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """While a table is written, other threads and child processes have their standard error."""
    done, begun = threading.Event(), threading.Event()

    def write() -> None:
        with write_table(f"ark:{tmp_path}/x") as table:
            while not done.is_set():
                table.write("k", np.ones((10, 10)))
                begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    for _ in range(20000):
        os.write(2, b"line\n")
    for _ in range(5):
        subprocess.run(["/bin/sh", "-c", "echo child >&2"], check=True)
    done.set()
    thread.join()

    lines = capfd.readouterr().err.splitlines()
    assert (lines.count("line"), lines.count("child")) == (20000, 5)


def test_files_of_one_value(tmp_path: Path) -> None:
    """Files of one matrix or vector are written and read, binary or text, and by commands."""
    for binary in (True, False):
        write_matrix(f"{tmp_path}/m", [[1, 2], [3, 4]], binary=binary)
        write_vector(f"| cat > {tmp_path}/v", [1, 2, 3], binary=binary)
        assert read_matrix(f"cat {tmp_path}/m |").tolist() == [[1, 2], [3, 4]]
        assert read_vector(f"{tmp_path}/v").tolist() == [1, 2, 3]
    with write_table(f"ark:{tmp_path}/x") as table:
        table.write("key", MATRIX)
    np.testing.assert_array_equal(read_matrix(f"{tmp_path}/x:4"), MATRIX)


def test_path_objects(tmp_path: Path) -> None:
    """A path object names a file, whatever its name is like."""
    for name in ("m", "| m", "m |"):
        write_matrix(tmp_path / name, MATRIX)
        np.testing.assert_array_equal(read_matrix(tmp_path / name), MATRIX)
        with opened_to_write(tmp_path / name) as written:
            written.write(b"x")
        with opened(tmp_path / name) as stream:
            assert stream.read() == b"x"


def test_sparse_matrices(tmp_path: Path) -> None:
    """Sparse matrices are read, binary and text."""
    dense = [[0, 0, 0.5], [0, 0, 0], [1, 2, 0]]
    text = "rows=3 dim=3 [ 2 0.5 ] dim=3 [ ] dim=3 [ 0 1 1 2 ] \n"
    row = b"SV \4\3\0\0\0\4"
    elements = [b"\4" + bytes([n, 0, 0, 0]) + b"\4" + np.float32(x).tobytes()
                for n, x in ((2, 0.5), (0, 1), (1, 2))]  # fmt: skip
    binary = (
        b"\0BSM \4\3\0\0\0" + row + b"\1\0\0\0" + elements[0] + row + bytes(4)
        + row + b"\2\0\0\0" + elements[1] + elements[2]
    )  # fmt: skip
    (tmp_path / "x").write_bytes(b"a " + binary + b"b " + text.encode() + b"c " + binary)

    found = dict(read_table(f"ark:{tmp_path}/x"))

    assert list(found) == ["a", "b", "c"]
    for value in found.values():
        assert value.shape == (3, 3)
        np.testing.assert_array_equal(value, dense)


def test_integers(tmp_path: Path) -> None:
    """Integers in text are read from their line, which may be empty."""
    (tmp_path / "x").write_text("a 3 -1 0\nb \nc\nd 7\n")
    found = {key: value.tolist() for key, value in read_table(f"ark:{tmp_path}/x")}
    assert found == {"a": [3, -1, 0], "b": [], "c": [], "d": [7]}


@pytest.mark.parametrize("words", ["ark", "ark,t"])
def test_readers_do_not_wait_for_more(words: str, tmp_path: Path) -> None:
    """An entry is given when it has come, before the command that writes it goes on."""
    with write_table(f"{words}:{tmp_path}/x") as table:
        table.write("key", np.ones((300, 800)))  # more than a pipe holds
    os.mkfifo(tmp_path / "fifo")
    entries = read_table(f"ark:cat {tmp_path}/x; cat {tmp_path}/fifo; cat {tmp_path}/x |")

    assert next(entries)[0] == "key"
    (tmp_path / "fifo").write_bytes(b"")
    assert [key for key, _ in entries] == ["key"]
