"""The strict host platform finds faults of kernels."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from computations import needs_compiler
from emulated_device import HostPlatform
from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix
from nnet3_runtime_cuda.errors import DeviceError

pytestmark = needs_compiler

UNWRITTEN = "a read of what nothing has written"

KERNELS = """
extern "C" __global__ void right(float* x) {
  __shared__ float kept[32], total;
  kept[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  if (threadIdx.x == 0) total = 1;
  __syncthreads();
  x[blockIdx.x * 32 + threadIdx.x] = kept[31 - threadIdx.x] + total;
}
extern "C" __global__ void no_barrier(float* x) {
  __shared__ float kept[32];
  kept[threadIdx.x] = 0;
  __syncthreads();
  kept[threadIdx.x] = x[threadIdx.x];
  if (blockIdx.x > 1) __syncthreads();
  x[threadIdx.x] = kept[31 - threadIdx.x];
}
extern "C" __global__ void same_element(float* x) {
  x[threadIdx.x / 2] = 1;
}
extern "C" __global__ void other_block(float* x) {
  if (blockIdx.x) x[threadIdx.x] = x[threadIdx.x + 1];
  else x[threadIdx.x + 1] = 2;
}
extern "C" __global__ void reads_then_writes(float* x) {
  const float value = x[(threadIdx.x + 1) % 32];
  x[threadIdx.x] = value;
}
extern "C" __global__ void outside(float* x) {
  x[blockIdx.x * 32 + threadIdx.x + 1] = 0;
}
extern "C" __global__ void apart(float* x) {
  if (threadIdx.x % 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
extern "C" __global__ void shared_by_half(float* x) {
  __shared__ float kept[32];
  if (threadIdx.x < 16) kept[threadIdx.x] = 0;
  __syncthreads();
  x[blockIdx.x * 32 + threadIdx.x] = kept[threadIdx.x];
}
extern "C" __global__ void writes(float* x) {
  x[blockIdx.x * 32 + threadIdx.x] = 1;
}
extern "C" __global__ void writes_odd(float* x) {
  if (threadIdx.x % 2) x[blockIdx.x * 32 + threadIdx.x] = 1;
}
extern "C" __global__ void adds(double* y, float* x) {
  x[threadIdx.x] += y[threadIdx.x];
}
extern "C" __global__ void masked(double* y, float* x) {
  x[threadIdx.x] = threadIdx.x % 2 ? y[threadIdx.x] : y[threadIdx.x] * 0;
}
extern "C" __global__ void by_address(unsigned long long* addresses) {
  ((float*)addresses[0])[threadIdx.x] += 1;
}
"""


class Device:
    """A strict platform with the kernels."""

    def __init__(self) -> None:
        self.platform = HostPlatform(strict=True)
        names = [text.partition("(")[0] for text in KERNELS.split("void ")[1:]]
        self._kernels = self.platform.build(KERNELS, names)

    def run(self, name: str, *arguments: int, blocks: int = 1) -> None:
        """Runs a kernel with 32 threads in each block."""
        self.platform.launch(self._kernels[name], (blocks, 1, 1), (32, 1, 1), arguments)()

    def memory(self, values: np.ndarray) -> int:
        """The address of memory with these values."""
        address = self.platform.allocate(values.nbytes)
        self.platform.upload(address, values)
        return address


def run(name: str, blocks: int = 2) -> np.ndarray:
    """The result of a kernel for (blocks, 32) numbers."""
    device = Device()
    x = np.arange(32 * blocks, dtype=np.float32).reshape(blocks, 32)
    address = device.memory(x)
    device.run(name, address, blocks=blocks)
    device.platform.download(address, x)
    return x


def test_what_is_right_passes() -> None:
    """A kernel that waits before it reads other threads' results passes, in every run."""
    for _ in range(3):
        np.testing.assert_array_equal(run("right")[1], np.arange(64, 32, -1))


@pytest.mark.parametrize(
    ("name", "blocks", "message"),
    [
        ("no_barrier", 1, "races with a"),
        ("same_element", 1, "two writes that race: thread .* of block 0"),
        ("other_block", 2, "races with a"),
        ("reads_then_writes", 1, "races with a"),
        ("outside", 2, "an access outside of memory, at 0x[0-9a-f]+: thread 31 of block 1"),
        ("apart", 1, "threads of block 0 wait at different barriers"),
        ("shared_by_half", 3, f"{UNWRITTEN}, at 0x[0-9a-f]+: thread (1[6-9]|2.|3[01]) of block"),
    ],
)
def test_what_is_wrong_is_found(name: str, blocks: int, message: str) -> None:
    """Races, bad addresses, unequal barriers, and reads of new shared memory are found."""
    with pytest.raises(DeviceError, match=f"kernel {name}: .*{message}"):
        run(name, blocks)


# ---- reads of memory that nothing has written ----


def product(a: Matrix, b: Matrix, out: Matrix, **options: Any) -> Gemm:
    """A product of matrices with 4 rows and columns."""
    return Gemm(rows=4, columns=4, inner=4, a=a, b=b, out=out, **options)


def test_reads_after_writes_pass() -> None:
    """Uploads, fills with zeros, kernels and products write; a product need not read its output."""
    device = Device()
    x, out = (device.platform.allocate(128) for _ in range(2))
    y = device.platform.allocate(256)
    device.run("writes", x)
    device.platform.clear(y, 256)
    device.run("adds", y, x)
    ones, result = (Matrix(address=address, stride=4) for address in (x, out))

    device.platform.gemm(product(ones, ones, result))()

    found = np.zeros((4, 4), np.float32)
    device.platform.download(out, found)
    assert (found == 4).all()


def test_reads_by_kernels_are_found() -> None:
    """The message names the argument and its element; a value that is not used counts, too."""
    device = Device()
    x, y = device.platform.allocate(128), device.memory(np.ones(32))
    device.run("writes_odd", x)
    even = r"element \d*[02468] of argument"
    with pytest.raises(DeviceError, match=rf"kernel adds: {UNWRITTEN}.*{even} 1 \(float\* x\)"):
        device.run("adds", y, x)

    y = device.platform.allocate(256)
    device.run("writes", x)
    with pytest.raises(DeviceError, match=rf"kernel masked: {UNWRITTEN}.* 0 \(double\* y\)"):
        device.run("masked", y, x)


def test_reads_through_tables_of_addresses_are_found() -> None:
    """Memory that is not an argument's is named by its size."""
    device = Device()
    table = device.memory(np.array([device.platform.allocate(144)], np.uint64))
    with pytest.raises(DeviceError, match=rf"{UNWRITTEN}.*byte \d+ of 144, no argument's"):
        device.run("by_address", table)


def test_what_was_written_before_does_not_count() -> None:
    """Neither by another owner of the same memory, nor by kernels of a run that is forgotten."""
    device = Device()
    y = device.memory(np.ones(32))
    for is_forgotten in (False, True, True, False, False):
        x = device.platform.allocate(128)
        with pytest.raises(DeviceError, match=UNWRITTEN):
            device.run("adds", y, x)
        device.run("writes", x)
        device.run("adds", y, x)
        if is_forgotten:
            device.platform.forget()
            with pytest.raises(DeviceError, match=rf"{UNWRITTEN}.* 1 \(float\* x\)"):
                device.run("adds", y, x)
            device.run("writes", x)
            device.run("adds", y, x)
        device.platform.free(x)


def test_reads_by_products_are_found() -> None:
    """All operands count but the output, with their strides and transposes; gaps do not."""
    device = Device()
    kept = np.ones((4, 8), np.float32)
    whole = Matrix(address=device.memory(kept), stride=8)
    half = Matrix(address=device.platform.allocate(128), stride=4)
    device.run("writes", half.address)
    out = Matrix(address=device.platform.allocate(128), stride=8)
    new = Matrix(address=device.platform.allocate(128), stride=8)
    device.platform.upload(new.address, kept[0])
    turned = attrs.evolve(new, transposed=True)
    for wrong, element in (
        (product(new, whole, out), r"element \(1, 0\) of a"),
        (product(turned, whole, out), r"element \(0, 1\) of a"),
        (product(whole, new, out), r"element \(1, 0\) of b"),
        (product(whole, half, out, beta=1.0), r"element \(0, 0\) of the addend"),
        (product(whole, half, out, beta=1.0, addend=new), r"element \(1, 0\) of the addend"),
        (product(whole, half, out, bias=out.address), r"element \(0, 0\) of the bias"),
        (product(whole, half, out, alpha_at=out.address), r"element \(0, 0\) of alpha"),
    ):
        with pytest.raises(DeviceError, match=rf"nothing has written: {element}"):
            device.platform.gemm(wrong)()

    device.platform.gemm(product(whole, half, out, bias=new.address))()
    with pytest.raises(DeviceError, match=r"a copy to the host .* byte 16 of 128"):
        device.platform.download(out.address, kept)
