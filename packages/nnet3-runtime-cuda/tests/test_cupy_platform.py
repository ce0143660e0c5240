"""The CUDA platform: its calls, their order, streams and devices."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3_runtime_cuda.cuda import cublaslt
from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform
from nnet3_runtime_cuda.cuda.platform import ALIGNMENT, Gemm, Matrix, Platform
from nnet3_runtime_cuda.errors import DeviceError, DeviceMemoryError
from strict_cupy import CompileException, CUDARuntimeError, StrictCupy


def floats(address: int, count: int) -> np.ndarray:
    """Memory as float32."""
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def add_one(grid: tuple[int, int, int], block: tuple[int, int, int], addresses: list[int]) -> None:
    """A kernel: adds 1 to one element for each thread."""
    floats(addresses[0], grid[0] * block[0])[...] += 1.0


def finish_product(
    grid: tuple[int, int, int], block: tuple[int, int, int], addresses: list[int]
) -> None:
    """The kernel of `cublaslt.ending_source` for a (4, 4) product with bias and ReLU."""
    out = floats(addresses[0], 16).reshape(4, 4)
    np.maximum(out + floats(addresses[1], 4), 0.0, out=out)


def kernels(source: str) -> Mapping[str, Callable[..., None]]:
    """The kernels of a source, which lists their names."""
    if "syntax error" in source:
        raise CompileException("kern.cu(1): error: expected a declaration")
    if "no compiler" in source:
        raise RuntimeError("CuPy failed to load libnvrtc.so.13")
    known = {"add_one": add_one, cublaslt.ENDING: finish_product}
    return {name: function for name, function in known.items() if name in source}


def uploaded(platform: CupyPlatform, values: Any) -> int:
    """The address of new memory with float32 values."""
    array = np.ascontiguousarray(values, dtype=np.float32)
    address = platform.allocate(array.nbytes)
    platform.upload(address, array)
    array.fill(np.nan)  # the caller may change the array after the upload
    return address


def downloaded(platform: CupyPlatform, address: int, *shape: int) -> np.ndarray:
    """The float32 values at an address."""
    array = np.zeros(shape, dtype=np.float32)
    platform.download(address, array)
    return array


def increment(platform: CupyPlatform, address: int, count: int) -> Callable[[], object]:
    """A call that adds 1 to `count` elements."""
    kernel = platform.build("add_one", ["add_one"])["add_one"]
    return platform.launch(kernel, (1, 1, 1), (count, 1, 1), [address])


def square(platform: CupyPlatform, **changes: Any) -> tuple[int, Gemm]:
    """A product of (4, 4) matrices of ones, and the address of its result."""
    a, b, out = (uploaded(platform, np.ones((4, 4))) for _ in range(3))
    operands = {name: Matrix(address=at, stride=4) for name, at in zip("ab", (a, b), strict=True)}
    gemm = Gemm(rows=4, columns=4, inner=4, out=Matrix(address=out, stride=4), **operands)
    return out, attrs.evolve(gemm, **changes)


def test_memory_goes_there_and_back(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """Uploaded values can be downloaded; memory is aligned, and freed when it is given back."""
    accepted: Platform = platform
    assert accepted.properties.name == "Stand-in"
    assert accepted.properties.compute_capability == (9, 0)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    address = uploaded(platform, values.copy())
    assert address % ALIGNMENT == 0
    np.testing.assert_array_equal(downloaded(platform, address, 2, 3), values)
    platform.clear(address, 12)
    np.testing.assert_array_equal(downloaded(platform, address, 2, 3), [[0, 0, 0], [3, 4, 5]])
    platform.free(address)
    assert not cupy.cuda.blocks


@pytest.mark.parametrize("is_pinned", [False, True])
def test_uploads(platform: CupyPlatform, cupy: StrictCupy, is_pinned: bool) -> None:
    """The caller may change an array after the upload, which waits only for pinned memory."""
    values = np.ones(6, dtype=np.float32)
    cupy.cuda.runtime.pinned += [values] * is_pinned
    address = platform.allocate(values[2:].nbytes)
    platform.upload(address, values[2:])
    values.fill(np.nan)
    with cupy.cuda.Device(1):
        assert bool(cupy.cuda.get_current_stream().work) != is_pinned
    np.testing.assert_array_equal(downloaded(platform, address, 4), np.ones(4))


def test_calls_run_in_order_on_the_callers_stream(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """Work goes to the stream that is current at the call, and to no other."""
    address = uploaded(platform, np.zeros(4))
    call = increment(platform, address, 4)
    platform.synchronize()
    with cupy.cuda.Device(1), cupy.cuda.Stream(non_blocking=True) as stream:
        call()
        call()
        assert floats(address, 1)[0] == 0.0
        assert len(stream.work) == 2
        np.testing.assert_array_equal(downloaded(platform, address, 4), np.full(4, 2.0))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"beta": 1.0}, [9.0] * 4),
        ({"beta": 0.5, "at": 2.0}, [16.5] * 4),
        ({"bias": [0.0, -9.0, -5.0, 1.0], "relu": True}, [8.0, 0.0, 3.0, 9.0]),
    ],
    ids=["sum", "factor on the device", "bias and rectifier"],
)
@pytest.mark.parametrize("refused", [False, True])
def test_products(
    platform: CupyPlatform,
    stand_in: ctypes.CDLL,
    options: dict[str, Any],
    expected: list[float],
    refused: bool,
) -> None:
    """A product sees what ran before it; if cuBLASLt refuses to add a bias, a kernel does."""
    options = dict(options)
    if "at" in options:
        options["alpha_at"] = uploaded(platform, [options.pop("at") - 1.0])
    if "bias" in options:
        options["bias"] = uploaded(platform, options["bias"])
    out, gemm = square(platform, **options)
    stand_in.stand_in_refuse_epilogue(int(refused))
    try:
        product = platform.gemm(gemm)
    finally:
        stand_in.stand_in_refuse_epilogue(0)
    increment(platform, gemm.a.address, 16)()
    if gemm.alpha_at:
        increment(platform, gemm.alpha_at, 1)()
    product()
    np.testing.assert_array_equal(downloaded(platform, out, 4, 4), [expected] * 4)


def test_graph_is_captured_once_and_replayed(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """The first run makes the calls, the second captures them, later runs only launch."""
    out, gemm = square(platform, beta=1.0)
    made = 0

    def counted(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            nonlocal made
            made += 1
            call()

        return run

    calls = [counted(increment(platform, out, 16)), counted(platform.gemm(gemm))]
    replay = platform.capture(calls)
    assert made == 0
    for runs, expected in enumerate([6.0, 11.0, 16.0, 21.0], start=1):
        replay()
        assert made == min(2 * runs, 4)
        np.testing.assert_array_equal(downloaded(platform, out, 4, 4), np.full((4, 4), expected))
    assert cupy.cuda.current_device == 0
    assert {memory.device_id for memory in platform._blocks.values()} == {1}


def test_branches_of_a_graph(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """Calls of several branches are captured on a stream each; they wait for what they must."""
    out, gemm = square(platform, beta=1.0)
    other = uploaded(platform, np.zeros(4))
    calls = [
        increment(platform, other, 4),
        increment(platform, gemm.a.address, 16),
        increment(platform, gemm.b.address, 16),
        platform.gemm(gemm),
        increment(platform, out, 16),
    ]
    streams = len(cupy.cuda.all_streams)
    replay = platform.capture(calls, [0, 1, 2, 1, 0], [[], [], [], [2], [3]])
    result = np.ones((4, 4))
    for runs in range(1, 6):
        replay()
        result = result + 4 * (1 + runs) ** 2 + 1
        np.testing.assert_array_equal(downloaded(platform, out, 4, 4), result)
        np.testing.assert_array_equal(downloaded(platform, other, 4), np.full(4, runs))
    assert len(cupy.cuda.all_streams) == streams + 3


def test_what_a_capture_refuses(cupy: StrictCupy) -> None:
    """As CUDA: a stream that is not joined, an event from outside, and to wait for a stream."""

    def event() -> Any:
        return cupy.cuda.Event(disable_timing=True)

    def forked(*, joined: bool = True) -> tuple[Any, Any]:
        first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        first.begin_capture()
        second.wait_event(first.record(event()))
        second.add(lambda: None)
        if joined:
            first.wait_event(second.record(event()))
        return first, second

    assert forked()[0].end_capture()
    with pytest.raises(CUDARuntimeError, match="Unjoined"):
        forked(joined=False)[0].end_capture()
    with pytest.raises(CUDARuntimeError, match="Unmatched"):
        forked()[1].end_capture()
    first, second = forked()
    with pytest.raises(CUDARuntimeError, match="Isolation"):
        first.wait_event(cupy.cuda.Stream(non_blocking=True).record(event()))
    with pytest.raises(CUDARuntimeError, match="Invalidated"):
        first.end_capture()
    first, second = forked()
    with pytest.raises(CUDARuntimeError, match="Unsupported"):
        second.synchronize()
    with pytest.raises(CUDARuntimeError, match="Invalidated"):
        first.end_capture()


def test_products_share_a_workspace(platform: CupyPlatform) -> None:
    """Products and graphs share a given workspace, which is freed with the last of them."""
    gemms = [square(platform)[1] for _ in range(2)]
    blocks, workspace = set(platform._blocks), platform.workspace()
    products = [platform.gemm(gemm, workspace) for gemm in gemms]
    alone = platform.gemm(gemms[0])
    replay = platform.capture(products)
    replay()
    replay()
    assert len(set(platform._blocks) - blocks) == 1
    alone()
    assert len(set(platform._blocks) - blocks) == 2
    platform.synchronize()
    del alone, replay, workspace
    gc.collect()
    assert len(set(platform._blocks) - blocks) == 1
    del products
    gc.collect()
    assert set(platform._blocks) == blocks


def test_memory_is_given_back_after_a_capture(platform: CupyPlatform) -> None:
    """Memory that the garbage collector frees during a capture does not spoil the capture."""
    address, doomed = uploaded(platform, np.zeros(4)), []
    replay = platform.capture(
        [increment(platform, address, 4), lambda: doomed and platform.free(doomed.pop())]
    )
    replay()
    doomed.append(platform.allocate(16))
    kept = doomed[0]
    replay()
    assert kept not in platform._blocks
    np.testing.assert_array_equal(downloaded(platform, address, 4), np.full(4, 2.0))


def test_other_threads_wait_for_a_capture(cupy: StrictCupy, library: Any) -> None:
    """A thread that waits for a device waits until another thread's capture has ended."""
    platforms = [CupyPlatform(cupy, library, 1) for _ in range(2)]
    address = uploaded(platforms[0], np.zeros(4))
    begins, threads = threading.Event(), []

    def wait() -> None:
        begins.set()
        platforms[1].synchronize()

    def start() -> None:
        threads.append(threading.Thread(target=wait))
        threads[-1].start()
        assert begins.wait(10)

    replay = platforms[0].capture([increment(platforms[0], address, 4), start])
    for _ in range(3):
        replay()
        threads[-1].join(10)
    np.testing.assert_array_equal(downloaded(platforms[0], address, 4), np.full(4, 3.0))


def test_copies_cannot_be_captured(platform: CupyPlatform) -> None:
    """An error of the device within a capture is reported, and the stream is free again."""
    address = uploaded(platform, np.zeros(4))
    replay = platform.capture([lambda: platform.upload(address, np.ones(4, dtype=np.float32))])
    replay()
    with pytest.raises(RuntimeError, match="is capturing"):
        replay()
    increment(platform, address, 4)()
    np.testing.assert_array_equal(downloaded(platform, address, 4), np.full(4, 2.0))


def test_too_little_memory(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """The error states the requested bytes, the device, and the free bytes, of CuPy's limit."""
    with pytest.raises(DeviceMemoryError, match=r"8,589,934,592 bytes.*4,294,967,296 bytes are"):
        platform.allocate(1 << 33)
    cupy.cuda.limit = 10_000
    platform.allocate(4096)
    assert platform.properties.free_bytes == 10_000 - 4096
    message = r"'cuda:1' \(Stand-in\) has not the 8,192 bytes.*5,904 bytes are free"
    with pytest.raises(DeviceMemoryError, match=message):
        platform.allocate(8192)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("syntax error", "CUDA source does not compile.*expected a declaration"),
        ("no compiler", r"'cuda:1': .*NVRTC is missing.*libnvrtc\.so\.13"),
    ],
)
def test_sources_that_are_not_compiled(platform: CupyPlatform, source: str, message: str) -> None:
    """The compiler's message is passed on, or that of CuPy, which does not find it."""
    with pytest.raises(DeviceError, match=message):
        platform.build(source, [])


def test_errors_of_cuda_name_the_device(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """A failure that shows later is a DeviceError, too."""

    def fails() -> None:
        raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access")

    with cupy.cuda.Device(1):
        cupy.cuda.get_current_stream().add(fails)
    with pytest.raises(DeviceError, match="'cuda:1': running failed: cudaErrorIllegalAddress"):
        platform.synchronize()


def test_precision_is_the_platforms(cupy: StrictCupy, library: Any, stand_in: ctypes.CDLL) -> None:
    """Products are computed in the precision that the platform was opened with."""
    platform = CupyPlatform(cupy, library, 0, "tf32")
    platform.gemm(square(platform)[1])()
    platform.synchronize()
    assert stand_in.stand_in_last_compute_type() == 77
