"""Products of fp32 accuracy on tensor cores, for `precision="fp32x3"`: factors split in two.

A factor is `big`, its first 11 bits, and `small`, the rest rounded to 11 bits; both are numbers of
TF32. Three products of these are added: small big, big small, big big. Tensor cores round sums
toward zero, so that an error of one sign would grow with the number of terms. So they add 16 terms
at a time only, and the kernel adds those sums to its own in float32.

A block computes a tile of the output. Its threads copy 16 terms of both factors after another to
shared memory, two steps ahead, and split what they read from there. Where there are few tiles and
many terms, several blocks share the terms of a tile; a second kernel adds their parts, always in
the same order. What follows a product (factors, an addend, a bias, rectification) is done as its
output is written.

Infinite factors, and those that are not numbers, give results that are not finite, where fp32 might
give infinity. Of factors below 1e-35 the rest is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from nnet3_runtime_cuda.cuda.platform import Call, Gemm, Matrix

# ---- which products, and how: by counting, for an H200, where it has never run ----

LEAST_FLOP = 5e8
"""Smaller products take 10 microseconds or less."""

LEAST_TERMS = 256
"""With fewer, a block begins and ends as long as it multiplies."""

MOST_PADDING = 1.25
"""The most that tiles compute for each element of the output."""

LEAST_CAPABILITY = (8, 0)
"""The compute capability of the first devices with TF32 and asynchronous copies."""

FLOPS = 66e12
"""An assumption: 0.4 of a third of the 495e12 of an H200 in TF32. Only instructions that Hopper
alone has reach that peak, `mma` perhaps 0.6 of it; loads, splits and sums take the rest."""

BYTES = 4.27e12
"""Of memory, per second."""

START_STEPS, START_SECONDS = 4, 2e-6
"""What a tile takes beside its terms, in steps, and what a kernel takes: assumptions."""

TILES = (128, 64), (64, 128)
"""Rows and columns of a tile."""

TERMS = 16
"""Of a step."""

THREADS = 256

MOST_PARTS = 32

MOST_OF_GRID = 65535
"""Blocks along the second and third axis of a grid."""


@attrs.frozen
class Tiling:
    """How a product is computed.

    Attributes:
        tile: Rows and columns.
        tiles: Their number in one output.
        parts: How many blocks share the terms of a tile.
        terms: Of a part; a multiple of `TERMS`.
        seconds: By the model.
    """

    tile: tuple[int, int]
    tiles: int
    parts: int
    terms: int
    seconds: float


def is_faster(rows: int, columns: int, inner: int, batch: int = 1) -> bool:
    """Whether counting says that split products are faster than cuBLASLt in fp32."""
    size = batch * rows * columns
    return (
        2.0 * size * inner >= LEAST_FLOP
        and inner >= LEAST_TERMS
        and batch <= MOST_OF_GRID
        and min(_padded(rows, columns, tile) for tile in TILES) <= MOST_PADDING * rows * columns
    )


def tiling_of(
    rows: int, columns: int, inner: int, batch: int, multiprocessors: int, most_bytes: int
) -> Tiling:
    """The fastest one by the model.

    Args:
        rows: Of the output.
        columns: Of the output.
        inner: Terms of each sum.
        batch: Number of products.
        multiprocessors: Of the device.
        most_bytes: Of working memory.
    """
    part_bytes = 4 * batch * rows * columns
    tile = min(TILES, key=lambda each: _padded(rows, columns, each))
    tiles = _padded(rows, columns, tile) // (tile[0] * tile[1])
    step_seconds = 2 * tile[0] * tile[1] * TERMS * multiprocessors / FLOPS
    tilings = []
    for wanted in range(1, MOST_PARTS + 1):
        terms = -(-inner // (wanted * TERMS)) * TERMS
        parts = -(-inner // terms)
        if parts > 1 and parts * part_bytes > most_bytes:
            break
        rounds = -(-batch * tiles * parts // multiprocessors)
        seconds = rounds * (terms // TERMS + START_STEPS) * step_seconds
        if parts > 1:
            seconds += START_SECONDS + 2 * parts * part_bytes / BYTES
        tilings.append(Tiling(tile, tiles, parts, terms, seconds))
    return min(tilings, key=lambda tiling: tiling.seconds)


def _padded(rows: int, columns: int, tile: tuple[int, int]) -> int:
    """Elements of the tiles that cover an output."""
    return -(-rows // tile[0]) * tile[0] * (-(-columns // tile[1]) * tile[1])


# ---- the kernels ----

KERNEL, SUM_KERNEL = "split_product", "sum_of_parts"

PARAMETERS = (
    *("float* a", "float* b", "float* out", "float* addend", "float* bias", "float* alpha"),
    *("float* partial", "long long rows", "long long columns", "long long inner"),
    *("long long terms", "long long parts", "long long a_stride", "long long b_stride"),
    *("long long out_stride", "long long addend_stride", "long long a_batch"),
    *("long long b_batch", "long long out_batch", "long long addend_batch"),
)

_SOURCE = r"""
constexpr int TERMS = 16, STAGES = 3, THREADS = 256;

#ifdef __CUDACC__
// sum += a b, of TF32: a (16, 8), b (8, 8), sum (16, 8) lie in the registers of a warp.
__device__ inline void multiply(float* sum, const unsigned* a, const unsigned* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Begins to copy `count` of WIDTH numbers to shared memory; zeros take the place of the others.
template <int WIDTH> __device__ inline void begin_copy(float* to, const float* from, int count) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  if (WIDTH == 4)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(place), "l"(from), "r"(4 * count) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(place), "l"(from), "r"(4 * count) : "memory");
}

// The copies that this thread has begun become a group.
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread but the last PENDING.
template <int PENDING> __device__ inline void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#endif

// x = big + small, up to 2^-22 of it. What is not finite stays so in `big`.
__device__ inline void split(float x, unsigned& big, unsigned& small) {
  big = __float_as_uint(x) & 0xffffe000u;
  small = (__float_as_uint(x - __uint_as_float(big)) + 0x1000u) & 0xffffe000u;
}

// Some rows (or columns) of a factor in shared memory, for the terms of a step. Lines are as in
// memory, and so far apart that the threads of a warp read from different banks.
template <bool ALONG_TERMS, int SIZE, int WIDTH> struct Tile {
  static constexpr int LENGTH = ALONG_TERMS ? TERMS : SIZE, LINES = ALONG_TERMS ? SIZE : TERMS;
  static constexpr int STRIDE = LENGTH + (ALONG_TERMS ? 4 : 8), FLOATS = LINES * STRIDE;

  __device__ static int at(int row, int term) {
    return ALONG_TERMS ? row * STRIDE + term : term * STRIDE + row;
  }

  // Where a row and a term lie in the factor.
  __device__ static long long place(long long row, long long term, long long stride) {
    return ALONG_TERMS ? row * stride + term : term * stride + row;
  }

  // Begins to copy from the first row and term on; zeros follow the last of so many.
  __device__ static void fetch(float* to, const float* from, int stride, int rows, int terms) {
    const int lines = ALONG_TERMS ? rows : terms, length = ALONG_TERMS ? terms : rows;
#pragma unroll WIDTH
    for (int k = 0; k < LINES * LENGTH / (WIDTH * THREADS); ++k) {
      const int piece = k * THREADS + threadIdx.x;
      const int line = piece / (LENGTH / WIDTH), place = piece % (LENGTH / WIDTH) * WIDTH;
      const int left = line < lines && place < length ? length - place : 0;
      begin_copy<WIDTH>(to + line * STRIDE + place, from + line * stride + place,
                        left < WIDTH ? left : WIDTH);
    }
  }
};

using TileA = Tile<A_ALONG_TERMS, TILE_ROWS, A_WIDTH>;
using TileB = Tile<B_ALONG_TERMS, TILE_COLUMNS, B_WIDTH>;

struct __align__(8) Pair {
  float first, second;
};

// An element of the output, of its sum.
__device__ inline float ended(float sum, const float* alpha, const float* addend,
                              const float* bias, long long place, int column) {
  const float value = ALPHA * sum ADDEND BIAS;
  return RELU && value < 0.0f ? 0.0f : value;
}

extern "C" __global__ void __launch_bounds__(256, 2) split_product(PARAMETERS) {
  constexpr int STAGE = TileA::FLOATS + TileB::FLOATS, ACROSS = TILE_COLUMNS / 32;
  __align__(16) __shared__ float tiles[STAGES * STAGE];
  const int tiles_across = ((int)columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
  const int first_row = blockIdx.x / tiles_across * TILE_ROWS;
  const int first_column = blockIdx.x % tiles_across * TILE_COLUMNS;
  const int begin = blockIdx.y * (int)terms;
  const int end = begin + terms < inner ? begin + (int)terms : (int)inner;
  const int steps = (end - begin + TERMS - 1) / TERMS;
  // A warp computes 32 rows and columns; its lanes are 8 groups of 4 members.
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
  const int warp_row = warp / ACROSS * 32, warp_column = warp % ACROSS * 32;
  a += blockIdx.z * a_batch + TileA::place(first_row, begin, a_stride);
  b += blockIdx.z * b_batch + TileB::place(first_column, begin, b_stride);
  const long long next_a = TileA::place(0, TERMS, a_stride);
  const long long next_b = TileB::place(0, TERMS, b_stride);

  int left = end - begin, writes = 0;  // terms that are not copied yet, and the stage for them
  auto fetch = [&] {
    if (left > 0) {
      float* to = tiles + writes * STAGE;
      TileA::fetch(to, a, (int)a_stride, (int)rows - first_row, left);
      TileB::fetch(to + TileA::FLOATS, b, (int)b_stride, (int)columns - first_column, left);
      a += next_a;
      b += next_b;
      left -= TERMS;
      writes = writes == STAGES - 1 ? 0 : writes + 1;
    }
    end_group();
  };

  float total[2][4][4] = {};
  for (int k = 0; k < STAGES - 1; ++k) fetch();
  for (int step = 0, reads = 0; step < steps; ++step) {
    wait_for_groups<STAGES - 2>();
    __syncthreads();  // all have what this step reads, and are done with what the next one writes
    fetch();
    const float* tile_a = tiles + reads * STAGE;
    const float* tile_b = tile_a + TileA::FLOATS;
    reads = reads == STAGES - 1 ? 0 : reads + 1;
    unsigned big_a[2][2][4], small_a[2][2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int row = warp_row + 16 * i + 8 * (k % 2) + group;
          const int term = 8 * half + 4 * (k / 2) + member;
          split(tile_a[TileA::at(row, term)], big_a[half][i][k], small_a[half][i][k]);
        }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned big_b[2][2], small_b[2][2];
      float sum[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int column = warp_column + 8 * j + group, term = 8 * half + 4 * k + member;
          split(tile_b[TileB::at(column, term)], big_b[half][k], small_b[half][k]);
        }
#pragma unroll
      for (int kind = 0; kind < 3; ++kind)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            multiply(sum[i], kind == 0 ? small_a[half][i] : big_a[half][i],
                     kind == 1 ? small_b[half] : big_b[half]);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) total[i][j][k] += sum[i][k];
    }
  }

#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        const int row = first_row + warp_row + 16 * i + 4 * k + group;
        const int column = first_column + warp_column + 8 * j + 2 * member;
        if (row >= rows || column >= columns) continue;
        Pair value = {total[i][j][k], total[i][j][k + 1]};
#if IN_PARTS
        float* to = partial + ((blockIdx.y * gridDim.z + blockIdx.z) * rows + row) * columns;
#else
        float* to = out + blockIdx.z * out_batch + row * out_stride;
        const long long place = blockIdx.z * addend_batch + row * addend_stride + column;
        value.first = ended(value.first, alpha, addend, bias, place, column);
        if (column + 1 < columns)
          value.second = ended(value.second, alpha, addend, bias, place + 1, column + 1);
#endif
        if (IN_PAIRS && column + 1 < columns) {
          *(Pair*)(to + column) = value;
        } else {
          to[column] = value.first;
          if (column + 1 < columns) to[column + 1] = value.second;
        }
      }
}

extern "C" __global__ void __launch_bounds__(256) sum_of_parts(PARAMETERS) {
  const unsigned element = blockIdx.x * THREADS + threadIdx.x, size = (unsigned)(rows * columns);
  if (element >= size) return;
  const unsigned row = element / (unsigned)columns, column = element % (unsigned)columns;
  float sum = 0.0f;
  for (long long part = 0; part < parts; ++part)
    sum += partial[(part * gridDim.y + blockIdx.y) * size + element];
  const long long place = blockIdx.y * addend_batch + row * addend_stride + column;
  out[blockIdx.y * out_batch + row * out_stride + column] =
      ended(sum, alpha, addend, bias, place, column);
}
"""


def source_of(product: Gemm, tiling: Tiling) -> str:
    """The kernels of all products of this form, whatever their sizes and addresses."""
    in_parts = tiling.parts > 1
    pairs = product.columns if in_parts else _common(product.out)
    defined = {
        "TILE_ROWS": tiling.tile[0],
        "TILE_COLUMNS": tiling.tile[1],
        "A_ALONG_TERMS": int(not product.a.transposed),
        "B_ALONG_TERMS": int(product.b.transposed),
        "A_WIDTH": 4 if _common(product.a) % 4 == 0 else 1,
        "B_WIDTH": 4 if _common(product.b) % 4 == 0 else 1,
        "IN_PARTS": int(in_parts),
        "IN_PAIRS": int(pairs % 2 == 0),
        "ALPHA": "alpha[0]" if product.alpha_at else f"{product.alpha!r}f",
        "ADDEND": f"+ {product.beta!r}f * addend[place]" if product.beta else "",
        "BIAS": "+ bias[column]" if product.bias else "",
        "RELU": int(product.relu),
    }
    lines = (f"#define {name} {value}\n" for name, value in defined.items())
    return "".join(lines) + _SOURCE.replace("PARAMETERS", ", ".join(PARAMETERS))


def _common(matrix: Matrix) -> int:
    """A number of elements whose powers of two divide the places of all rows of a matrix."""
    return matrix.address // 4 | matrix.stride | matrix.batch_stride


# ---- binding ----


def workspace_bytes(product: Gemm, tiling: Tiling) -> int:
    """The working memory that a product needs."""
    size = product.batch * product.rows * product.columns
    return 4 * tiling.parts * size if tiling.parts > 1 else 0


def arguments_of(product: Gemm, tiling: Tiling, workspace: int) -> tuple[int, ...]:
    """The arguments of both kernels, see `PARAMETERS`; workspace: the address of the memory."""
    g, addend = product, product.addend or product.out
    pointers = g.a.address, g.b.address, g.out.address, addend.address, g.bias, g.alpha_at
    sizes = g.rows, g.columns, g.inner, tiling.terms, tiling.parts
    matrices = g.a, g.b, g.out, addend
    strides = [matrix.stride for matrix in matrices]
    return *pointers, workspace, *sizes, *strides, *(each.batch_stride for each in matrices)


def bind(
    product: Gemm,
    tiling: Tiling,
    build: Callable[[str, Sequence[str]], Mapping[str, object]],
    launch: Callable[..., Call],
    workspace: Callable[[], int],
) -> Call:
    """Binds a product.

    Args:
        product: The product.
        tiling: How it is computed.
        build: `Platform.build`.
        launch: `Platform.launch`.
        workspace: The address of the working memory, asked for when the product runs.
    """
    grids = {KERNEL: (tiling.tiles, tiling.parts, product.batch)}
    if tiling.parts > 1:
        grids[SUM_KERNEL] = -(-product.rows * product.columns // THREADS), product.batch, 1
    kernels = build(source_of(product, tiling), tuple(grids))
    calls: list[Call] = []

    def run() -> None:
        if not calls:
            arguments = arguments_of(product, tiling, workspace())
            calls.extend(
                launch(kernels[name], grid, (THREADS, 1, 1), arguments)
                for name, grid in grids.items()
            )
        for call in calls:
            call()

    return run
