"""The kernel that adds a bias, and rectifies, where cuBLASLt does neither."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import HostPlatform, compiler
from nnet3_runtime_cuda.cuda import cublaslt
from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(("bias", "relu"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("batch", [1, 3])
def test_values(bias: bool, relu: bool, batch: int) -> None:
    """The kernel finishes every element once, and leaves the gaps between rows unchanged."""
    rng = np.random.default_rng(0)
    rows, columns, stride = 41, 7, 9
    memory = rng.standard_normal((batch, rows, stride)).astype(np.float32)
    vector = rng.standard_normal(columns).astype(np.float32)
    expected = memory.copy()
    inner = expected[..., :columns]
    inner += vector if bias else 0.0
    if relu:
        np.maximum(inner, 0.0, out=inner)
    out = Matrix(address=memory.ctypes.data, stride=stride, batch_stride=rows * stride)
    gemm = Gemm(
        rows=rows,
        columns=columns,
        inner=1,
        a=out,
        b=out,
        out=out,
        bias=vector.ctypes.data if bias else 0,
        relu=relu,
        batch=batch,
    )
    platform = HostPlatform()
    kernel = platform.build(cublaslt.ending_source(gemm), [cublaslt.ENDING])[cublaslt.ENDING]
    arguments = (gemm.out.address, gemm.bias)

    block = cublaslt.ENDING_THREADS, 1, 1
    platform.launch(kernel, cublaslt.ending_grid(gemm), block, arguments)()

    np.testing.assert_array_equal(memory, expected)
