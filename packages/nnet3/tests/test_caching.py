"""CachingCompiler: remembered, forgotten and saved computations, and errors."""

import contextlib
import inspect
import sys
import threading
from types import FrameType

import nnet3_compiler
import pytest
from model_cases import network_with_the_past as network
from model_cases import request_of
from nnet3 import CachingCompiler
from nnet3_compiler import CompilerOptions
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_optimizer import check_computation


def test_an_equal_request_gets_the_same_object() -> None:
    """A request with the same content is not compiled again."""
    compiler = CachingCompiler(network())

    assert compiler.compile(request_of(5)) is compiler.compile(request_of(5))
    assert len(compiler) == 1


def test_the_computation_is_checked() -> None:
    """Computations of the cache pass the check."""
    compiler = CachingCompiler(network())

    check_computation(compiler.nnet, compiler.compile(request_of(5)))


def test_the_least_recently_used_goes_first() -> None:
    """When the cache is full, it forgets the computation that was unused for longest."""
    compiler = CachingCompiler(network(), capacity=2)
    first, second = compiler.compile(request_of(1)), compiler.compile(request_of(2))
    compiler.compile(request_of(1))
    compiler.compile(request_of(3))

    assert compiler.compile(request_of(1)) is first
    assert compiler.compile(request_of(2)) is not second
    assert len(compiler) == 2


def test_ctrl_c_at_any_line() -> None:
    """After Ctrl-C at any line before the last ones, the next thread compiles the request."""
    lines, first = inspect.getsourcelines(CachingCompiler._compile)
    compiler = CachingCompiler(network(), cache_dir="")
    before = sys.gettrace()

    def interrupt(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code is CachingCompiler._compile.__code__ and frame.f_lineno == line:
            raise KeyboardInterrupt
        return interrupt

    for line in range(first + 1, first + lines.index("        finally:\n")):
        sys.settrace(interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            compiler.compile(request_of(line - first))
        sys.settrace(before)
        thread = threading.Thread(target=compiler.compile, args=[request_of(line - first)])
        thread.daemon = True
        thread.start()
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(("count", "is_interrupted"), [(4, False), (3, True)])
def test_threads_that_want_the_same_compile_it_once(
    count: int, is_interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for a compilation in progress; one of them compiles if it is interrupted."""
    begun, go_on = threading.Event(), threading.Event()
    calls = []
    compile_really = nnet3_compiler.compile_computation

    def compile_slowly(nnet: Nnet, request: ComputationRequest, options: CompilerOptions) -> object:
        calls.append(request)
        begun.set()
        assert go_on.wait(10)
        if is_interrupted and len(calls) == 1:
            raise KeyboardInterrupt
        return compile_really(nnet, request, options)

    monkeypatch.setattr(nnet3_compiler, "compile_computation", compile_slowly)

    compiler, results = CachingCompiler(network()), []

    def compile_and_keep() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            results.append(compiler.compile(request_of(5)))

    threads = [threading.Thread(target=compile_and_keep) for _ in range(count)]
    threads[0].start()
    assert begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(10)

    assert len(calls) == 1 + is_interrupted
    assert len(results) == count - is_interrupted
    assert all(result is results[0] for result in results)


def test_loading_replaces_nothing(tmp_path) -> None:
    """A request that is already compiled keeps its object when a loaded file has it, too."""
    CachingCompiler(network()).save(tmp_path / "empty")
    compiler = CachingCompiler(network())
    first = compiler.compile(request_of(2))
    compiler.save(tmp_path / "cache")

    for name in ("cache", "empty"):
        compiler.load(tmp_path / name)

    assert compiler.compile(request_of(2)) is first
    assert len(compiler) == 1


def test_a_saved_cache_is_read_back(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After load(), saved computations are not compiled again, and keep their order of use."""
    compiler = CachingCompiler(network())
    expected = {frames: compiler.compile(request_of(frames)).to_bytes() for frames in (1, 2, 3)}
    compiler.save(tmp_path / "cache")
    other = CachingCompiler(network(), capacity=2)
    other.load(tmp_path / "cache")
    monkeypatch.setattr(nnet3_compiler, "compile_computation", None)

    assert len(other) == 2
    for frames in (2, 3):
        assert other.compile(request_of(frames)).to_bytes() == expected[frames]


def with_learning_rate(nnet: Nnet, name: str, learning_rate: float) -> Nnet:
    """The network with another learning rate of one component."""
    changed = nnet.component(name).replace(learning_rate=learning_rate)
    return nnet.with_components({name: changed})


def test_other_parameters_and_learning_rates_do_not_matter(tmp_path) -> None:
    """A cache serves all networks of the same structure, at any learning rate."""
    compiler, nnet = CachingCompiler(network()), network()
    compiler.compile(request_of(2))
    compiler.save(tmp_path / "cache")
    trained = nnet.with_state_dict({k: 2 * v for k, v in nnet.state_dict().items()})

    for each in (trained, with_learning_rate(nnet, "a", 0.5)):
        other = CachingCompiler(each)
        other.load(tmp_path / "cache")
        assert len(other) == 1
