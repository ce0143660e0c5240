"""Products on tensor cores by split factors: the kernels, built for the processor, and tilings.

The stand-in for tensor cores (`host_shim.h`) has the layout of matrices of the PTX ISA. It rounds
sums toward zero, as the tests of Fasi and others found for devices ("Numerical behavior of NVIDIA
tensor cores", 2021).
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from computations import needs_compiler
from emulated_device import HostPlatform
from nnet3_runtime_cuda import DeviceError
from nnet3_runtime_cuda.cuda import split_products
from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix
from nnet3_runtime_cuda.cuda.split_products import arguments_of, is_faster, tiling_of
from split_cases import H200, PRODUCTS, Product, factors, off, run


@needs_compiler
@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_values(product: Product) -> None:
    """All forms have the values of float64, without a race or an access outside of memory."""
    given = factors(product, np.random.default_rng(0))
    assert off(*run(product, *given, HostPlatform(strict=True))) < 3e-7


def one_after_another(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product in float32, each term added to the sum of those before it."""
    out = np.zeros((a.shape[-2], b.shape[-1]), dtype=np.float32)
    for k in range(a.shape[-1]):
        out += a[0, :, k : k + 1] * b[0, k]
    return out


@needs_compiler
@pytest.mark.any_versions
@pytest.mark.parametrize(("terms", "parts"), [(320, 1), (13000, 11)])
def test_errors_are_below_those_of_float32(terms: int, parts: int) -> None:
    """Rounding of sums toward zero does not add up, however many terms there are."""
    product = Product(sizes=(32, 32, terms), parts=parts, transposed=(True, False))
    a, b = factors(product, np.random.default_rng(0))

    found, expected = run(product, a, b, HostPlatform())

    assert off(found, expected) < off(one_after_another(a, b), expected[0])
    assert off(found, expected) < 7e-7


@needs_compiler
def test_results_repeat() -> None:
    """Parts are added in the same order, whichever block is done first."""
    product = PRODUCTS["in parts"]
    given = factors(product, np.random.default_rng(0))
    first, second = (run(product, *given, HostPlatform(strict=True))[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@needs_compiler
def test_what_is_not_finite_stays_so() -> None:
    """Infinite factors and NaN spoil their rows alone; large and small numbers are as in fp32."""
    product = Product(sizes=(12, 9, 40), transposed=(False, True))
    a, b = factors(product, np.random.default_rng(0))
    odd = [np.inf, -np.inf, np.nan, np.float32(np.uint32(0x7F800001).view(np.float32))]
    a[0, :4, 5] = odd
    a[0, 4] *= 1e37
    a[0, 5] *= 1e-30
    a[0, 6], b[0, :, 8] = 1e30, 1e30  # the sum is too large
    with np.errstate(over="ignore", invalid="ignore"):
        (found, *_), _ = run(product, a, b, HostPlatform())
        exact = a[0].astype(np.float64) @ b[0].astype(np.float64)

    assert not np.isfinite(found[:4]).any()
    assert not np.isfinite(found[6, 8])
    rows, columns = [4, 5, *range(7, 12)], range(8)
    for row in rows:
        assert off(found[row, columns], exact[row, columns]) < 1e-6


FAULTS: dict[str, tuple[str, str]] = {
    "a copy that nothing waits for": ("groups<STAGES - 2>", "groups<STAGES - 1>"),
    "a step that is copied too far ahead": ("k < STAGES - 1; ++k", "k < STAGES; ++k"),
    "no barrier": ("    __syncthreads();  //", "    if (step > 99) __syncthreads();  //"),
    "rows behind the last one": ("line < lines && place", "place"),
    "terms behind the last one": ("place < length ? length - place", "place < length ? WIDTH"),
    "columns behind the last one": ("|| column >= columns", ""),
    "an exchanged quarter of a fragment": ("8 * (k % 2) + group", "8 * (k / 2) + group"),
    "a missing product": ("kind == 1 ? small_b[half] : big_b[half]", "big_b[half]"),
    "sums that tensor cores alone add": ("multiply(sum[i], ", "multiply(total[i][j], "),
}


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault of the kernel is found by a wrong value, the strict platform, or a broken heap."""
    right, wrong = FAULTS[fault]
    assert right in split_products._SOURCE
    monkeypatch.setattr(split_products, "_SOURCE", split_products._SOURCE.replace(right, wrong))
    product = Product(sizes=(70, 50, 90), gaps=(2,) * 4)
    given = factors(product, np.random.default_rng(0))
    process = os.fork()  # which a write to a wrong place may end
    if process == 0:
        try:
            is_found = not off(*run(product, *given, HostPlatform(strict=True))) < 3e-7
            os._exit(0 if is_found else 1)
        except DeviceError:
            os._exit(0)
        finally:
            os._exit(2)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0


# ---- tilings ----


def test_which_products_are_split() -> None:
    """Those of a TDNN-F layer of a full minibatch; not small, thin or short ones."""
    assert is_faster(13568, 320, 1536)
    assert is_faster(13568, 1536, 320)
    assert is_faster(320, 1536, 13568)
    assert is_faster(160, 1536, 13632)
    assert is_faster(3200, 64, 576, batch=40)
    for sizes in ((64, 4096, 512), (13568, 1536, 220), (13568, 80, 1536), (13568, 20, 1536)):
        assert not is_faster(*sizes)
    assert not is_faster(3200, 64, 576, batch=1 << 16)


@pytest.mark.parametrize(
    ("sizes", "tile", "parts"),
    [
        ((13568, 320, 1536), (128, 64), 1),
        ((3200, 6016, 256), (128, 64), 1),
        ((320, 1536, 13568), (64, 128), 11),
        ((160, 1536, 13632), (64, 128), 11),
    ],
)
def test_plans(sizes: tuple[int, int, int], tile: tuple[int, int], parts: int) -> None:
    """Few tiles with many terms are computed in parts, which cover all terms."""
    rows, columns, terms = sizes
    plan = tiling_of(rows, columns, terms, 1, *H200)
    assert (plan.tile, plan.parts) == (tile, parts)
    assert plan.tiles == -(-rows // tile[0]) * -(-columns // tile[1])
    assert (plan.parts - 1) * plan.terms < terms <= plan.parts * plan.terms
    assert plan.terms % split_products.TERMS == 0
    assert plan.parts * rows * columns * 4 <= H200[1] or plan.parts == 1
    assert 30e12 < 2 * rows * columns * terms / plan.seconds < split_products.FLOPS


def test_parts_fit_into_working_memory() -> None:
    """There are no more parts than the working memory holds."""
    for most in (0, 4 * 320 * 1536 * 3):
        plan = tiling_of(320, 1536, 13568, 1, 132, most)
        assert plan.parts == 1 if not most else 1 < plan.parts <= 3


def test_arguments_are_those_of_the_kernels() -> None:
    """There is a number for each parameter, in their order."""
    names = "a", "b", "out", "addend"
    matrices = {
        name: Matrix(address=64 * k, stride=10 + k, batch_stride=k) for k, name in enumerate(names)
    }
    gemm = Gemm(rows=5, columns=6, inner=7, bias=9, alpha_at=8, **matrices)
    plan = tiling_of(5, 6, 7, 1, *H200)
    expected = {"bias": 9, "alpha": 8, "partial": 99, "rows": 5, "columns": 6, "inner": 7}
    expected |= {"terms": plan.terms, "parts": plan.parts}
    for name, matrix in matrices.items():
        expected[name] = matrix.address
        expected |= {f"{name}_stride": matrix.stride, f"{name}_batch": matrix.batch_stride}
    found = [each.split()[-1] for each in split_products.PARAMETERS]
    assert dict(zip(found, arguments_of(gemm, plan, 99), strict=True)) == expected
