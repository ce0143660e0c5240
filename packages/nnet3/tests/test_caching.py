"""CachingCompiler: remembered, forgotten and saved computations, and errors."""

import contextlib
import threading

import attrs
import nnet3_compiler
import pytest
import small_networks
from nnet3 import CachingCompiler
from nnet3_compiler import CompilerOptions
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_graph import NotComputableError
from nnet3_optimizer import check_computation
from small_networks import request_for, stacked


def network(dim: int = 4) -> Nnet:
    """A network that needs one frame of left context."""
    affine = f"a Affine input-dim=6 output-dim={dim}"
    return small_networks.network(stacked(3, affine, splice="Append(Offset(input, -1), input)"))


def request_of(frames: int, first: int = -1) -> ComputationRequest:
    """A request for the given number of output frames."""
    return request_for(range(first, frames), range(frames))


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


def test_a_failure_is_not_remembered() -> None:
    """A request that cannot be computed raises an error each time, and is not stored."""
    compiler = CachingCompiler(network())
    for _ in range(2):
        with pytest.raises(NotComputableError):
            compiler.compile(request_of(3, first=0))

    assert len(compiler) == 0


def compile_in_threads(
    compiler: CachingCompiler, count: int, begun: threading.Event, go_on: threading.Event
) -> list[object]:
    """The results of threads with the same request, which all wait until the last has come."""
    results: list[object] = []

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
    return results


def test_threads_that_want_the_same_compile_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads wait for a compilation in progress, and get its result."""
    begun, go_on = threading.Event(), threading.Event()
    calls = []
    compile_really = nnet3_compiler.compile_computation

    def compile_slowly(nnet: Nnet, request: ComputationRequest, options: CompilerOptions) -> object:
        calls.append(request)
        begun.set()
        assert go_on.wait(10)
        return compile_really(nnet, request, options)

    monkeypatch.setattr(nnet3_compiler, "compile_computation", compile_slowly)
    compiler = CachingCompiler(network())

    results = compile_in_threads(compiler, 4, begun, go_on)

    assert len(calls) == 1
    assert len(results) == 4
    assert all(result is results[0] for result in results)


def test_an_interrupted_thread_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a compilation is interrupted, a waiting thread compiles."""
    begun, go_on = threading.Event(), threading.Event()
    calls = []
    compile_really = nnet3_compiler.compile_computation

    def interrupted_at_first(
        nnet: Nnet, request: ComputationRequest, options: CompilerOptions
    ) -> object:
        calls.append(request)
        if len(calls) > 1:
            return compile_really(nnet, request, options)
        begun.set()
        assert go_on.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(nnet3_compiler, "compile_computation", interrupted_at_first)
    compiler = CachingCompiler(network())

    results = compile_in_threads(compiler, 3, begun, go_on)

    assert len(calls) == 2
    assert len(results) == 2
    assert results[0] is results[1]


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
    components = list(nnet.components)
    number = nnet.component_index(name)
    components[number] = attrs.evolve(components[number], learning_rate=learning_rate)
    return attrs.evolve(nnet, components=components)


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
