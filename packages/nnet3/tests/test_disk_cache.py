"""The cache of earlier processes: its folder, its files, and what can happen to both."""

import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import attrs
import nnet3
import nnet3_compiler
import nnet3_graph
import numpy as np
import pytest
import small_networks
from model_cases import network_with_the_past as network
from model_cases import request_of
from nnet3 import CachingCompiler, disk_cache, known_results
from nnet3.disk_cache import DiskCache, folder_of
from nnet3_compiler import CompilationError, CompilerOptions
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import RectifiedLinearComponent
from nnet3_descriptors.editing import rename_node
from nnet3_graph import NotComputableError
from nnet3_optimizer import OptimizeOptions
from small_networks import stacked

KEY = "0123456789abcdef"

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def entries_of(folder: Path) -> list[Path]:
    """The files of a cache."""
    return sorted(folder.glob("*.nnet3-cache"))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[ComputationRequest]:
    """The requests that were compiled, as the test goes on."""
    requests: list[ComputationRequest] = []
    compile_really = nnet3_compiler.compile_computation

    def compile_and_count(
        nnet: Nnet, request: ComputationRequest, options: CompilerOptions
    ) -> object:
        requests.append(request)
        return compile_really(nnet, request, options)

    monkeypatch.setattr(nnet3_compiler, "compile_computation", compile_and_count)
    return requests


# -- the folder -----------------------------------------------------------------------------------


def test_the_argument_wins_over_the_variable_over_the_users_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each may be empty, for no cache."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", "/home/she")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NNET3_CACHE_DIR")
    assert folder_of(None) == "/home/she/.cache/nnet3"
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert folder_of(None) == "/scratch/nnet3"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert folder_of(None) == "/home/she/.cache/nnet3"
    monkeypatch.setenv("NNET3_CACHE_DIR", "/elsewhere")
    assert folder_of(None) == "/elsewhere"
    assert folder_of("") is None
    monkeypatch.setenv("NNET3_CACHE_DIR", "")
    assert folder_of(None) is None
    monkeypatch.chdir(tmp_path)
    assert folder_of("below") == str(tmp_path / "below")
    assert folder_of(tmp_path) == str(tmp_path)
    assert folder_of("~/mine") == folder_of(Path("~/mine")) == "/home/she/mine"
    monkeypatch.setenv("NNET3_CACHE_DIR", "~")
    assert folder_of(None) == "/home/she"


def test_other_systems_have_other_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the systems have for caches."""
    monkeypatch.delenv("NNET3_CACHE_DIR")
    monkeypatch.setenv("HOME", "/Users/she")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folder_of(None) == "/Users/she/Library/Caches/nnet3"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert folder_of(None) == "/local/nnet3"


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home has no folder for caches."""
    monkeypatch.delenv("NNET3_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)

    assert folder_of(None) is None
    assert len(CachingCompiler(network()).compile(request_of(2)).command_table)


# -- what is kept ---------------------------------------------------------------------------------


def test_a_second_compiler_compiles_nothing(compiled: list[object], tmp_path: Path) -> None:
    """It has the same computation, byte for byte, whatever the parameters are."""
    first = CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))
    nnet = network()
    trained = nnet.with_state_dict({k: 2 * v for k, v in nnet.state_dict().items()})
    second = CachingCompiler(trained, cache_dir=tmp_path).compile(request_of(3))

    assert len(compiled) == 1
    assert second == first
    assert second.to_bytes() == first.to_bytes()


def test_each_difference_has_an_entry_of_its_own(compiled: list[object], tmp_path: Path) -> None:
    """Structure, names of nodes, requests and options decide programs."""
    renamed = rename_node(network(), "input", "i")
    wanted = request_of(3)
    of_i = attrs.evolve(wanted, inputs=[attrs.evolve(wanted.inputs[0], name="i")])
    with_deriv = attrs.evolve(wanted.outputs[0], has_deriv=True)
    cases: list[tuple[Nnet, ComputationRequest, dict[str, object]]] = [
        (network(), wanted, {}),
        (network(dim=5), wanted, {}),
        (renamed, of_i, {}),
        (network(), request_of(4), {}),
        (network(), request_of(3, first=-2), {}),
        (network(), attrs.evolve(wanted, outputs=(with_deriv,)), {}),
        (network(), attrs.evolve(wanted, outputs=(with_deriv,), need_model_derivative=True), {}),
        (network(), attrs.evolve(wanted, store_component_stats=True), {}),
        (network(), wanted, {"optimize_options": OptimizeOptions(optimize=False)}),
        (network(), wanted, {"compiler_options": CompilerOptions(output_debug_info=False)}),
        (network(), wanted, {"compiler_options": CompilerOptions(shortcut=False)}),
    ]
    made = [
        CachingCompiler(nnet, cache_dir=tmp_path, **options).compile(request)
        for nnet, request, options in cases
    ]
    assert len(compiled) == len(cases) == len(entries_of(tmp_path))
    again = [
        CachingCompiler(nnet, cache_dir=tmp_path, **options).compile(request)
        for nnet, request, options in cases
    ]
    assert len(compiled) == len(cases)
    assert again == made


def test_default_options_may_be_named(compiled: list[object], tmp_path: Path) -> None:
    """Options that are given and those that are not have one entry where they are equal."""
    CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))
    options = {"compiler_options": CompilerOptions(), "optimize_options": OptimizeOptions()}
    CachingCompiler(network(), cache_dir=tmp_path, **options).compile(request_of(3))

    assert len(compiled) == 1


def test_other_sources_have_other_entries(
    compiled: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What another version of the compiler made is not used."""
    CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))
    monkeypatch.setattr(known_results, "digest_of_sources", lambda: "other")
    CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))

    assert len(compiled) == 2


def test_sources_are_told_apart_by_name_size_and_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each change counts; bytecode does not."""
    package = tmp_path / "some_sources"
    (package / "inner").mkdir(parents=True)
    (package / "__pycache__").mkdir()
    source, inner = package / "__init__.py", package / "inner/module.py"
    source.write_text("")
    inner.write_text("a = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(known_results, "_SOURCES", ("some_sources",))

    def digest() -> str | None:
        known_results.digest_of_sources.cache_clear()
        return known_results.digest_of_sources()

    seen = [digest()]
    (package / "__pycache__/module.py").write_text("")
    assert digest() == seen[0]
    os.utime(inner, ns=(1, 1))
    seen.append(digest())
    inner.write_text("a = 11\n")
    os.utime(inner, ns=(1, 1))
    seen.append(digest())
    inner.rename(package / "inner/other.py")
    seen.append(digest())
    assert None not in seen
    assert len({*seen}) == len(seen)
    monkeypatch.setattr(known_results, "_SOURCES", ("no_such_package",))
    assert digest() is None
    known_results.digest_of_sources.cache_clear()


def test_components_from_elsewhere_are_not_kept(compiled: list[object], tmp_path: Path) -> None:
    """Nothing tells whether their index rules are still the same."""

    class OwnComponent(RectifiedLinearComponent):
        """A component of another package, for all that the cache knows."""

    nnet = small_networks.network(stacked(3, "a RectifiedLinear dim=3"))
    own = OwnComponent(**attrs.asdict(nnet.components[0], recurse=False))
    nnet = attrs.evolve(nnet, components=(own,))
    for _ in range(2):
        CachingCompiler(nnet, cache_dir=tmp_path).compile(request_of(2, first=0))

    assert len(compiled) == 2
    assert not entries_of(tmp_path)


def test_a_model_knows_its_context_and_its_chunks(
    compiled: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A second model asks no graph, and gives the same outputs, batches among them."""
    frames = np.random.default_rng(0).standard_normal((37, 3)).astype(np.float32)

    def outputs() -> list[np.ndarray]:
        model = nnet3.load(network(), cache_dir=tmp_path)
        assert (model.left_context, model.right_context) == (1, 0)
        table = [("a", frames), ("b", frames[:31])]
        many = dict(model.compute_many(table, frames_per_chunk=5))
        stream = model.stream(frames_per_chunk=10)
        streamed = np.concatenate([stream.push(frames), stream.finish()])
        return [model.compute(frames), many["a"], many["b"], streamed]

    first = outputs()
    count = len(compiled)
    for name in ("compute_context", "fixed_frame", "build_computation_graph"):
        monkeypatch.setattr(nnet3_graph, name, None)
    second = outputs()

    assert len(compiled) == count
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


# -- damage ---------------------------------------------------------------------------------------


def test_damage_at_each_place_is_noticed(tmp_path: Path) -> None:
    """Each byte counts, and so does the length; a whole entry under another key is none."""
    cache = DiskCache(str(tmp_path))
    cache.write(KEY, b"content")
    (path,) = entries_of(tmp_path)
    whole = path.read_bytes()
    assert cache.read(KEY) == b"content"
    for place in range(len(whole)):
        for damage in (0x01, 0x80, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ damage]) + whole[place + 1 :])
            assert cache.read(KEY) is None
        path.write_bytes(whole[:place])
        assert cache.read(KEY) is None
    path.write_bytes(whole + b"\0")
    assert cache.read(KEY) is None
    path.write_bytes(whole)
    path.rename(tmp_path / "ff.nnet3-cache")
    assert cache.read("ff") is None
    (tmp_path / "00.nnet3-cache").mkdir()
    assert cache.read("00") is None


def test_a_wrong_entry_is_made_again(compiled: list[object], tmp_path: Path) -> None:
    """What is damaged, and whole entries of no computation or another one, are replaced."""
    expected = CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))
    (path,) = entries_of(tmp_path)
    whole = path.read_bytes()
    other_network = CachingCompiler(network(dim=5)).compile(request_of(3))
    other_request = CachingCompiler(network()).compile(request_of(4))
    for wrong in (None, b"", b"nonsense", other_network.to_bytes(), other_request.to_bytes()):
        if wrong is None:
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        else:
            DiskCache(str(tmp_path)).write(path.name.removesuffix(".nnet3-cache"), wrong)
        count = len(compiled)
        assert CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3)) == expected
        assert len(compiled) == count + 1
        assert path.read_bytes() == whole


def test_failures_are_not_kept(tmp_path: Path) -> None:
    """A request that can't be computed says so each time."""
    compiler = CachingCompiler(network(), cache_dir=tmp_path)
    for each in (compiler, compiler, CachingCompiler(network(), cache_dir=tmp_path)):
        with pytest.raises(NotComputableError, match="cannot compute"):
            each.compile(request_of(3, first=0))
    assert len(compiler) == 0
    with pytest.raises(CompilationError, match="expected a ComputationRequest, found str"):
        CachingCompiler(network(), cache_dir=tmp_path).compile("output")
    assert not entries_of(tmp_path)


# -- folders that cannot be used ------------------------------------------------------------------


def a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files can be made, but not filled."""
    folder.mkdir()
    open_really = open

    def open_full(path: object, mode: str = "r", *args: object) -> object:
        file = open_really(path, mode, *args)
        if "x" not in mode:
            return file
        file.close()
        return open_really("/dev/full", "wb", buffering=0)

    monkeypatch.setattr(disk_cache, "open", open_full, raising=False)
    return str(folder)


def no_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder cannot be made."""
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    monkeypatch.setattr(os, "makedirs", Mock(side_effect=refused))
    return str(folder)


def a_file(folder: Path, _: pytest.MonkeyPatch) -> str:
    """A file is where the folder should be."""
    folder.write_text("something", encoding="utf-8")
    return str(folder)


def a_name_that_is_too_long(folder: Path, _: pytest.MonkeyPatch) -> str:
    """No system has such a path."""
    return str(folder / ("x" * 5000))


def a_name_that_is_none(_: Path, __: pytest.MonkeyPatch) -> str:
    """No system has a NUL in paths."""
    return "a\0b"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "prepare", [a_full_disk, no_permission, a_file, a_name_that_is_too_long, a_name_that_is_none]
)
def test_where_nothing_can_be_written_there_is_no_cache(
    prepare: Callable[[Path, pytest.MonkeyPatch], str],
    compiled: list[object],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Everything is compiled, nothing is left behind, and only messages of DEBUG tell of it."""
    folder = prepare(tmp_path / "folder", monkeypatch)
    caplog.set_level("DEBUG")
    frames = np.zeros((9, 3), np.float32)
    for _ in range(2):
        nnet3.load(network(), cache_dir=folder).compute(frames)

    assert len(compiled) == 2
    said = [record for record in caplog.records if record.name == "nnet3.cache"]
    assert {record.levelname for record in said} == {"DEBUG"}
    assert "nothing more is written" in caplog.text
    assert not recwarn.list
    assert not (tmp_path / "folder").is_dir() or not [*(tmp_path / "folder").iterdir()]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_only_be_read_is_read(compiled: list[object], tmp_path: Path) -> None:
    """What is there is used, and nothing is added."""
    CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    compiler = CachingCompiler(network(), cache_dir=tmp_path)
    compiler.compile(request_of(3))
    compiler.compile(request_of(4))
    tmp_path.chmod(stat.S_IRWXU)
    assert len(compiled) == 2
    assert len(entries_of(tmp_path)) == 1


def test_what_can_not_be_touched_is_used(
    compiled: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a folder of somebody else the time of use stays as it is."""
    CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))
    refused = PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    monkeypatch.setattr(os, "utime", Mock(side_effect=refused))
    CachingCompiler(network(), cache_dir=tmp_path).compile(request_of(3))
    assert len(compiled) == 1


# -- size -----------------------------------------------------------------------------------------


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    """The size stays near its limit, and files of others stay where they are."""
    (tmp_path / "mine.txt").write_bytes(bytes(100_000))
    cache = DiskCache(str(tmp_path), most_bytes=160_000)
    for number in range(30):
        cache.write(f"{number:02x}", bytes(10_000))
        past = time.time() - 1000 + number
        os.utime(tmp_path / f"{number:02x}.nnet3-cache", (past, past))
        assert cache.read("00") is not None  # which counts as a use
        assert sum(path.stat().st_size for path in entries_of(tmp_path)) < 160_000 + 2 * 10_100
    left = {path.name[:2] for path in entries_of(tmp_path)}
    assert "00" in left
    assert {f"{number:02x}" for number in range(20, 30)} < left
    assert not {f"{number:02x}" for number in range(1, 14)} & left
    assert (tmp_path / "mine.txt").exists()


def test_small_entries_count_as_what_they_take_on_disk(tmp_path: Path) -> None:
    """A folder does not fill with a hundred thousand short files."""
    cache = DiskCache(str(tmp_path), most_bytes=40 * 4096)
    for number in range(200):
        cache.write(f"{number:02x}", b"1")
    assert len(entries_of(tmp_path)) <= 44


def test_large_entries_are_not_kept(tmp_path: Path) -> None:
    """One entry does not drive out all others; a file that has grown too large is not read."""
    cache = DiskCache(str(tmp_path), most_bytes=40_000)
    cache.write(KEY, bytes(10_001))
    assert not entries_of(tmp_path)
    (tmp_path / f"{KEY}.nnet3-cache").write_bytes(bytes(40_001))
    assert cache.read(KEY) is None


def test_temporary_files_of_killed_processes_go(tmp_path: Path) -> None:
    """After an hour; those of others that still write stay."""
    old, new = (tmp_path / f"{name}.nnet3-cache-tmp" for name in ("old", "new"))
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    past = time.time() - 2 * 3600
    os.utime(old, (past, past))
    DiskCache(str(tmp_path)).write(KEY, b"content")

    assert not old.exists()
    assert new.exists()


# -- many processes -------------------------------------------------------------------------------


def compile_some(folder: str, begin: object, results: object) -> None:
    """Compiles a few requests at the same time as other processes; puts their digests."""
    begin.wait(120)
    compiler = CachingCompiler(network(), cache_dir=folder)
    results.put([hash(compiler.compile(request_of(frames)).to_bytes()) for frames in (2, 3, 4)])


@fork
def test_64_processes_on_one_cold_cache(tmp_path: Path) -> None:
    """All have the same computations, and the cache is whole afterwards."""
    context = multiprocessing.get_context("fork")
    begin, results = context.Event(), context.Queue()
    folder = str(tmp_path / "cache")
    processes = [
        context.Process(target=compile_some, args=(folder, begin, results)) for _ in range(64)
    ]
    for process in processes:
        process.start()
    begin.set()
    found = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0] * 64
    assert len({*map(tuple, found)}) == 1
    assert len(entries_of(tmp_path / "cache")) == len([*(tmp_path / "cache").iterdir()]) == 3
    cache = DiskCache(folder)
    for path in entries_of(tmp_path / "cache"):
        assert cache.read(path.name.removesuffix(".nnet3-cache"))


def write_for_ever(folder: str) -> None:
    """Writes entries until somebody kills the process."""
    cache = DiskCache(folder)
    while True:
        for number in range(4):
            cache.write(f"{number:02x}", bytes([number]) * 500_000)


@fork
def test_processes_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    """Entries are whole, whenever the process that writes them is killed."""
    context = multiprocessing.get_context("fork")
    cache, random = DiskCache(str(tmp_path)), np.random.default_rng(0)
    for _ in range(40):
        process = context.Process(target=write_for_ever, args=(str(tmp_path),))
        process.start()
        time.sleep(float(random.uniform(0.001, 0.03)))
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        for path in entries_of(tmp_path):
            number = int(path.name[:2], 16)
            assert cache.read(f"{number:02x}") == bytes([number]) * 500_000
    assert entries_of(tmp_path)


# -- what is not imported -------------------------------------------------------------------------

JOB = """
import sys
import nnet3, numpy as np
model = nnet3.load(sys.argv[1])
frames = np.sin(np.arange(3 * 37)).reshape(37, 3).astype(np.float32)
outputs = [model.compute(frames)]
outputs += [each for _, each in model.compute_many([("a", frames), ("b", frames[:9])])]
stages = ("nnet3_graph", "nnet3_compiler", "nnet3_optimizer")
print(*(name for name in sys.modules if name.partition(".")[0] in stages))
print(sum(float(each.sum()) for each in outputs))
"""


def test_a_known_job_imports_no_graph_compiler_or_optimizer(tmp_path: Path) -> None:
    """The second of two equal processes has the same outputs without them."""
    nnet3.write_nnet(network(), tmp_path / "final.raw")
    environment = {**os.environ, "NNET3_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", JOB, str(tmp_path / "final.raw")]
    first, second = (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    )

    modules, outputs = first.splitlines()
    assert {"nnet3_graph", "nnet3_compiler", "nnet3_optimizer"} <= {*modules.split()}
    assert second.splitlines() == ["", outputs]
