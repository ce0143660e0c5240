"""Files are replaced as a whole or not at all."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from nnet3_descriptors.files import atomic_write, new_file, new_folder
from nnet3_descriptors.files.atomic_write import LONGEST_PAUSE, write_atomically


def test_writes_a_new_file_with_the_usual_permissions(tmp_path: Path) -> None:
    """A new file gets the usual permissions of new files."""
    (tmp_path / "other").write_bytes(b"")

    write_atomically(tmp_path / "new", [b"one ", memoryview(b"two")])

    assert (tmp_path / "new").read_bytes() == b"one two"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_replaces_a_file_and_keeps_its_permissions(tmp_path: Path) -> None:
    """An existing file keeps its permissions, and no other file is left in the folder."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)

    write_atomically(path, [b"new"])

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_follows_links(tmp_path: Path) -> None:
    """A link stays a link; its target is replaced."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")

    write_atomically(tmp_path / "link", [b"new"])

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_failure_leaves_the_old_file(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If anything fails, the old content stays, and no temporary file is left."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def chunks():
        yield b"some"
        if fails == "write":
            fail()

    if fails != "write":
        monkeypatch.setattr(os, fails, fail)

    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, chunks())

    assert caught.value.filename == str(path)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """A pipe is written to and stays a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()

    write_atomically(pipe, [b"through"])
    reader.join(timeout=10)

    assert received == [b"through"]
    assert pipe.is_fifo()


def test_an_unnamed_pipe_is_written_to() -> None:
    """A path to a pipe without a name, such as /dev/stdout, is written to."""
    read_end, write_end = os.pipe()
    try:
        write_atomically(f"/dev/fd/{write_end}", [b"through"])

        assert os.read(read_end, 100) == b"through"
    finally:
        os.close(read_end)
        os.close(write_end)


def test_an_open_file_is_written_to_where_it_stands(tmp_path: Path) -> None:
    """What stands in a file that the process has open stays, under whatever name it is written."""
    path = tmp_path / "file"
    (tmp_path / "link").symlink_to("/dev/stdout")
    program = """
import sys
from nnet3_descriptors.files import write_atomically
for name in sys.argv[1:]:
    write_atomically(name, [b"next "])
"""
    with path.open("wb") as file:
        file.write(b"first ")
        file.flush()
        names = "/dev/stdout", "/dev/fd/1", tmp_path / "link"
        subprocess.run([sys.executable, "-c", program, *names], stdout=file, check=True)

    assert path.read_bytes() == b"first next next next "
    assert set(tmp_path.iterdir()) == {path, tmp_path / "link"}


def test_a_file_that_may_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without permission to write stays, though its folder would let it be replaced."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    opened = os.open

    def refused(name: object, flags: int, *rest: int) -> int:  # as for others than root
        if name == str(path) and flags & os.O_WRONLY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return opened(name, flags, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refused)

    with pytest.raises(PermissionError, match=r"cannot write '.*file': Permission denied"):
        write_atomically(path, [b"new"])

    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("length", [4, 255])
def test_a_part_that_is_of_use(length: int, tmp_path: Path) -> None:
    """A part that its reader can use stays after an error, unless it is empty."""
    path = tmp_path / ("n" * length)

    def write(content: bytes) -> None:
        with new_file(path, keep_part=True) as file:
            file.write(content)
            raise KeyError

    for content in (b"", b"part", b"part"):
        with pytest.raises(KeyError):
            write(content)
    write_atomically(path, [b"whole"])

    parts = set(tmp_path.iterdir()) - {path}
    assert {each.read_bytes() for each in parts} == {b"part"}
    assert [each.suffix for each in parts] == [".incomplete"] * 2
    assert all(each.name.startswith("n" * min(length, 200)) for each in parts)


class TestNewFolder:
    """A folder gets its name when it is whole."""

    def test_name_at_the_end(self, tmp_path: Path) -> None:
        """Until then it has another name; after an error it is gone."""
        path = tmp_path / "folder"

        def write(error: Exception | None) -> None:
            with new_folder(path) as name:
                assert name != str(path)
                Path(name, "file").write_bytes(b"content")
                if error is not None:
                    raise error

        with pytest.raises(KeyError):
            write(KeyError())
        assert list(tmp_path.iterdir()) == []
        write(None)
        assert [each.name for each in path.iterdir()] == ["file"]
        with pytest.raises(OSError, match="not empty"):
            write(None)
        assert list(tmp_path.iterdir()) == [path]

    def test_of_a_killed_writer(self, tmp_path: Path) -> None:
        """The next writer removes what a killed one left, and leaves one that lives alone."""
        left = tmp_path / f".folder.{atomic_write._machine()}.0123abcd.nnet3-tmp"
        left.mkdir()
        (left / "file").write_bytes(b"half")

        with new_folder(tmp_path / "folder") as one, new_folder(tmp_path / "folder2"):
            assert not left.exists()
            atomic_write.remove_left_behind(str(tmp_path / "folder"))
            assert Path(one).is_dir()

        assert {each.name for each in tmp_path.iterdir()} == {"folder", "folder2"}


def test_a_name_may_be_as_long_as_the_folder_allows(tmp_path: Path) -> None:
    """A file's name may be as long as the folder allows, despite the temporary file."""
    path = tmp_path / ("n" * os.pathconf(tmp_path, "PC_NAME_MAX"))

    write_atomically(path, [b"content"])

    assert path.read_bytes() == b"content"


WRITER = """
import sys, time
from nnet3_descriptors.files.atomic_write import write_atomically

def chunks():
    yield b"half"
    print("writing", flush=True)
    time.sleep(60)

write_atomically(sys.argv[1], chunks())
"""


def begin_to_write(path: Path) -> "subprocess.Popen[str]":
    """Starts a process that has written part of a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


class TestLeftBehind:
    """Temporary files of killed writers are removed; those of other writers stay."""

    def test_of_a_killed_writer(self, tmp_path: Path) -> None:
        """The next writer of the same file removes what a killed writer left."""
        path = tmp_path / "file"
        with begin_to_write(path) as process:
            process.send_signal(signal.SIGKILL)
        assert len(list(tmp_path.iterdir())) == 1

        write_atomically(path, [b"whole"])

        assert list(tmp_path.iterdir()) == [path]
        assert path.read_bytes() == b"whole"

    def test_of_a_writer_that_lives(self, tmp_path: Path) -> None:
        """Two processes can write a file at once: each writes all of it, without disturbance."""
        path = tmp_path / "file"
        with begin_to_write(path) as process:
            write_atomically(path, [b"whole"])
            left = set(tmp_path.iterdir()) - {path}
            process.send_signal(signal.SIGKILL)

        assert len(left) == 1
        assert path.read_bytes() == b"whole"

    def test_of_a_writer_in_this_process(self, tmp_path: Path) -> None:
        """Two threads of a process can do so, too."""
        path = tmp_path / "file"

        def chunks():
            yield b"first"
            write_atomically(path, [b"second"])

        write_atomically(path, chunks())

        assert path.read_bytes() == b"first"
        assert list(tmp_path.iterdir()) == [path]

    def test_of_another_machine(self, tmp_path: Path) -> None:
        """Files of another machine, whose locks might be invisible, stay until they are old."""
        new, old = (tmp_path / f".file.0123abcd.{name}.nnet3-tmp" for name in ("new", "old"))
        for each in (new, old):
            each.write_bytes(b"half")
        long_ago = time.time() - LONGEST_PAUSE - 10
        os.utime(old, (long_ago, long_ago))

        write_atomically(tmp_path / "file", [b"whole"])

        assert set(tmp_path.iterdir()) == {tmp_path / "file", new}

    def test_of_other_files(self, tmp_path: Path) -> None:
        """Only temporary files for the same name are removed."""
        others = {tmp_path / name for name in (".file.swp", ".other.x.y.nnet3-tmp", "file.tmp")}
        for each in others:
            each.write_bytes(b"")

        write_atomically(tmp_path / "file", [b"whole"])

        assert set(tmp_path.iterdir()) == {tmp_path / "file", *others}

    def test_where_files_cannot_be_locked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without locks, files are still written, and nothing is removed."""
        import fcntl

        def fail(*_: object) -> None:
            raise OSError(95, "Operation not supported")

        left = tmp_path / ".file.x.y.nnet3-tmp"
        left.write_bytes(b"")
        monkeypatch.setattr(fcntl, "flock", fail)

        write_atomically(tmp_path / "file", [b"whole"])

        assert set(tmp_path.iterdir()) == {tmp_path / "file", left}


def test_a_target_that_goes_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that another writer removes at any moment is written as a new file."""
    target, look = tmp_path / "x", os.stat
    target.write_bytes(b"old")

    def removed_after(path: object, **how: object) -> os.stat_result:
        found = look(path, **how)  # type: ignore[call-overload]
        if path == str(target) or path == target:
            target.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os, "stat", removed_after)
    with new_file(target) as file:
        assert file.name != str(target)
