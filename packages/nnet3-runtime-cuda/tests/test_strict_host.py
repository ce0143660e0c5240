"""The strict host platform finds faults of kernels."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from emulated_device import HostPlatform, compiler
from nnet3_runtime_cuda.errors import DeviceError

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")

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
extern "C" __global__ void never_written(float* x) {
  __shared__ float kept[32];
  if (threadIdx.x < 16) kept[threadIdx.x] = 0;
  __syncthreads();
  x[blockIdx.x * 32 + threadIdx.x] = kept[threadIdx.x];
}
"""


def run(name: str, blocks: int = 2) -> np.ndarray:
    """The result of a kernel for (blocks, 32) numbers."""
    platform = HostPlatform(strict=True)
    names = KERNELS.split("void ")[1:]
    kernels = platform.build(KERNELS, [text.partition("(")[0] for text in names])
    x = np.arange(32 * blocks, dtype=np.float32).reshape(blocks, 32)
    address = platform.allocate(x.nbytes)
    platform.upload(address, x)
    platform.launch(kernels[name], (blocks, 1, 1), (32, 1, 1), [address])()
    found = np.ctypeslib.as_array((ctypes.c_float * x.size).from_address(address))
    return found.reshape(x.shape).copy()


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
    ],
)
def test_what_is_wrong_is_found(name: str, blocks: int, message: str) -> None:
    """Races within a block and between blocks, bad addresses, and unequal barriers are found."""
    with pytest.raises(DeviceError, match=f"kernel {name}: .*{message}"):
        run(name, blocks)


def test_shared_memory_is_poisoned() -> None:
    """Shared memory that no thread of the block has written is NaN."""
    found = run("never_written", 3)
    assert np.isnan(found[:, 16:]).all()
    assert (found[:, :16] == 0).all()
