"""Products by cuBLASLt: numbers, structures and arguments; a stand-in on the processor computes."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import attrs
import numpy as np
import pytest
from computations import needs_compiler
from emulated_device import HostPlatform
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_runtime_cuda.cuda import cublaslt
from nnet3_runtime_cuda.cuda.cublaslt import CublasLt, CublasLtError, HeuristicResult
from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix
from split_cases import Product, factors, placed, result

WORKSPACE = np.zeros(1024, dtype=np.uint8)
"""The size of the stand-in's workspace."""


FACTS = {
    # A C program that includes cublasLt.h printed these; cuBLAS 12.8.4 and 13.10.0 agree.
    "size": 96,
    "algorithm": 0,
    "workspace_bytes": 64,
    "state": 72,
    "waves": 76,
    "reserved": 80,
}


def test_structure_lies_as_in_the_header() -> None:
    """The result of the heuristics has the size and offsets that a C compiler uses."""
    offsets = {name: getattr(HeuristicResult, name).offset for name in FACTS if name != "size"}
    assert {"size": ctypes.sizeof(HeuristicResult), **offsets} == FACTS


def test_numbers_are_those_of_the_headers() -> None:
    """Enumeration values are those that a C program with the headers prints."""
    assert cublaslt.COMPUTE_TYPE == {
        "fp32": 68,  # CUBLAS_COMPUTE_32F
        "tf32": 77,  # CUBLAS_COMPUTE_32F_FAST_TF32
        "bf16": 75,  # CUBLAS_COMPUTE_32F_FAST_16BF
        "bf16x9": 78,  # CUBLAS_COMPUTE_32F_EMULATED_16BFX9
        "fp32x3": 68,  # CUBLAS_COMPUTE_32F
    }
    assert (cublaslt.POINTER_MODE, cublaslt.TRANSA, cublaslt.TRANSB) == (2, 3, 4)
    assert (cublaslt.EPILOGUE, cublaslt.BIAS_POINTER) == (7, 8)
    assert (cublaslt.BATCH_COUNT, cublaslt.STRIDED_BATCH_OFFSET) == (5, 6)
    assert cublaslt.MIN_ALIGNMENTS == (5, 6, 7, 8)
    assert cublaslt.MAX_WORKSPACE_BYTES == 1
    assert (cublaslt.EPILOGUE_RELU, cublaslt.EPILOGUE_BIAS) == (2, 4)


flags = st.booleans()
products = st.builds(
    Product,
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    transposed=st.tuples(flags, flags),
    gaps=st.tuples(*[st.integers(0, 3)] * 4),
    offset=st.integers(0, 3),
    scales=st.tuples(st.sampled_from([1.0, -0.5]), st.sampled_from([0.0, 1.0, 0.25])),
    batch=st.sampled_from([1, 3]),
    bias=flags,
    relu=flags,
    alpha_there=flags,
    in_place=flags,
)


@settings(max_examples=3 * settings.default.max_examples // 5)
@given(product=products, workspace=st.sampled_from([0, 1024]), seed=st.integers(0, 1000))
def test_products_equal_numpys(
    stand_in: ctypes.CDLL, product: Product, workspace: int, seed: int
) -> None:
    """All forms agree: strides, transposes, batches, factors, bias, ReLU; gaps stay unchanged."""
    platform = HostPlatform()
    given_factors = factors(product, np.random.default_rng(seed))
    gemm, expected = placed(product, *given_factors, platform)
    beta = np.array([gemm.beta], dtype=np.float32)

    options = {"max_workspace_bytes": workspace, "beta_at": beta.ctypes.data}
    workspace_bytes, queue = CublasLt(stand_in).bind(gemm, **options)
    assert workspace_bytes <= workspace
    queue(WORKSPACE.ctypes.data, 0)

    np.testing.assert_allclose(result(product, gemm, platform), expected, rtol=1e-5, atol=1e-5)


def square(size: int = 4) -> tuple[list[np.ndarray], Gemm]:
    """A product of square matrices of ones, and the memory of its operands."""
    arrays = [np.ones((size, size), dtype=np.float32) for _ in range(3)]
    a, b, out = (Matrix(address=array.ctypes.data, stride=size) for array in arrays)
    gemm = Gemm(rows=size, columns=size, inner=size, a=a, b=b, out=out)
    return arrays, gemm


@pytest.mark.parametrize("precision", cublaslt.COMPUTE_TYPE)
def test_precision_and_stream_reach_the_library(stand_in: ctypes.CDLL, precision: str) -> None:
    """Each precision has its own compute type; the stream is an argument of each run."""
    _arrays, gemm = square()
    _, queue = CublasLt(stand_in).bind(gemm, precision=precision)
    for stream in (0x7000_0000_1000, 0):
        queue(0, stream)
        assert stand_in.stand_in_last_stream() == stream
    assert stand_in.stand_in_last_compute_type() == cublaslt.COMPUTE_TYPE[precision]


def test_algorithms_are_chosen_once(stand_in: ctypes.CDLL) -> None:
    """Products of the same form share an algorithm; adding to the output is another form."""
    lt = CublasLt(stand_in)
    _arrays, gemm = square(16)
    lt.bind(gemm)
    count = stand_in.stand_in_heuristics()
    lt.bind(gemm)
    assert stand_in.stand_in_heuristics() == count
    lt.bind(attrs.evolve(gemm, beta=1.0))
    assert stand_in.stand_in_heuristics() == count + 1


def test_handles_are_destroyed(stand_in: ctypes.CDLL) -> None:
    """The library's objects are freed with the products and the binding."""
    gc.collect()
    before = stand_in.stand_in_alive()
    lt = CublasLt(stand_in)
    _arrays, gemm = square()
    products = [lt.bind(gemm) for _ in range(3)]
    assert stand_in.stand_in_alive() > before
    del lt, products
    gc.collect()
    assert stand_in.stand_in_alive() == before


def test_operands_that_contradict_each_other(stand_in: ctypes.CDLL) -> None:
    """A row distance below the row length is refused, with the name of the library's status."""
    arrays, gemm = square(4)
    overlapping = Matrix(address=arrays[0].ctypes.data, stride=3)
    with pytest.raises(CublasLtError, match=r"GetHeuristic failed.*CUBLAS_STATUS_INVALID_VALUE"):
        CublasLt(stand_in).bind(attrs.evolve(gemm, a=overlapping))


def test_workspace_that_is_missing(stand_in: ctypes.CDLL) -> None:
    """A run without the workspace that the algorithm needs fails."""
    _arrays, gemm = square()
    workspace_bytes, queue = CublasLt(stand_in).bind(gemm, max_workspace_bytes=4096)
    assert workspace_bytes == 1024
    with pytest.raises(CublasLtError, match="cublasLtMatmul failed with status 7"):
        queue(0, 0)


@pytest.fixture(scope="module")
def real() -> ctypes.CDLL:
    """The library in NVIDIA's wheel; its descriptors need no driver."""
    pathfinder = pytest.importorskip("cuda.pathfinder", reason="needs cuda-pathfinder")
    try:
        path = pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("libcublasLt is not installed (pip install nvidia-cublas)")
    return ctypes.CDLL(path)


def test_the_bias_counts_as_part_of_the_output() -> None:
    """An algorithm must not read a bias in pieces larger than its address allows."""
    operand = Matrix(address=512, stride=4)
    gemm = Gemm(rows=4, columns=4, inner=4, a=operand, b=operand, out=operand)
    for bias, expected in ((0, 256), (512, 256), (520, 8), (516, 4)):
        alignments = cublaslt._alignments(attrs.evolve(gemm, bias=bias))
        assert alignments == (256, 256, 256, expected)


@pytest.mark.parametrize("precision", cublaslt.COMPUTE_TYPE)
def test_real_library_takes_the_descriptions(real: ctypes.CDLL, precision: str) -> None:
    """NVIDIA's library accepts every attribute, and checks their sizes."""
    library = cublaslt.Library(real)
    description = library.create("MatmulDesc", cublaslt.COMPUTE_TYPE[precision], cublaslt.R_32F)
    for attribute, value in (
        (cublaslt.POINTER_MODE, ctypes.c_int32(1)),
        (cublaslt.TRANSA, ctypes.c_int32(cublaslt.OP_TRANSPOSE)),
        (cublaslt.TRANSB, ctypes.c_int32(cublaslt.OP_TRANSPOSE)),
        (cublaslt.EPILOGUE, ctypes.c_uint32(6)),
        (cublaslt.BIAS_POINTER, ctypes.c_void_p(256)),
    ):
        description.set(attribute, value)
    layout = library.create("MatrixLayout", cublaslt.R_32F, 3, 4, 8)
    layout.set(cublaslt.BATCH_COUNT, ctypes.c_int32(5))
    layout.set(cublaslt.STRIDED_BATCH_OFFSET, ctypes.c_int64(32))
    preference = library.create("MatmulPreference")
    preference.set(cublaslt.MAX_WORKSPACE_BYTES, ctypes.c_uint64(1 << 20))
    for attribute in cublaslt.MIN_ALIGNMENTS:
        preference.set(attribute, ctypes.c_uint32(4))

    with pytest.raises(CublasLtError, match="CUBLAS_STATUS_INVALID_VALUE"):
        layout.set(cublaslt.BATCH_COUNT, ctypes.c_int64(5))


def test_real_library_without_a_driver(real: ctypes.CDLL) -> None:
    """Without a driver, the context cannot be made, and the error says so."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    with pytest.raises(CublasLtError, match=r"cublasLtCreate failed.*NOT_INITIALIZED"):
        CublasLt(real)


@needs_compiler
@pytest.mark.parametrize(("bias", "relu"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("batch", [1, 3])
def test_ending_that_cublaslt_refuses(bias: bool, relu: bool, batch: int) -> None:
    """The kernel finishes every element once, and leaves the gaps between rows unchanged."""
    options = {"bias": bias, "relu": relu, "batch": batch}
    product = Product(sizes=(41, 7, 1), gaps=(0, 0, 0, 2), scales=(0.0, 1.0), **options)
    platform = HostPlatform()
    gemm, expected = placed(product, *factors(product, np.random.default_rng(0)), platform)
    kernel = platform.build(cublaslt.ending_source(gemm), [cublaslt.ENDING])[cublaslt.ENDING]
    block = cublaslt.ENDING_THREADS, 1, 1

    platform.launch(kernel, cublaslt.ending_grid(gemm), block, (gemm.out.address, gemm.bias))()

    np.testing.assert_allclose(result(product, gemm, platform), expected, rtol=1e-6)
