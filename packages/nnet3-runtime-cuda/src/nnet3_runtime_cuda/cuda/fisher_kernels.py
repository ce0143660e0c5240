"""Kernels of the natural gradient, which update the estimates of many Fisher matrices at once.

Each block serves one estimate. It reads the addresses of its operands and its numbers (rank,
dimension, ...) from two tables. The formulas are those of
`nnet3_runtime_cuda.cpu.natural_gradient`.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnet3_runtime_cuda.cuda.element_kernels import THREADS, check_size
from nnet3_runtime_cuda.cuda.recorded import HandWritten

ADDRESSES = 11
"""Addresses of an estimate: gram, k, d, rho, square sum, mix, decay, work, roots, w, j."""

NUMBERS = 6
"""Numbers of an estimate: rank, dimension, rows, eta, alpha, and the host's decision to update."""

LARGEST_RANK = 256

STEP_THREADS = 1024
"""Threads of the block that solves an eigenvalue problem: the rotations wait for memory, so the
more of them are under way, the better."""

MOST_PARTS, ELEMENTS_PER_PART = 1024, 4096
"""The most blocks of a sum over a matrix, and the fewest elements of a block.

A device reads memory at full speed only if many threads have several megabytes under way.
"""

MOST_BLOCKS_OF_ROWS = 512
"""The most blocks of a kernel that rarely has work: each block takes time to start."""


def work_size(rank: int) -> int:
    """Elements of float64 in the working memory of an estimate."""
    return 2 * rank * rank + 3 * rank


_OPERANDS = f"""\
  const unsigned long long* address = addresses + blockIdx.x * {ADDRESSES};
  const double* number = numbers + blockIdx.x * {NUMBERS};
  const int t = threadIdx.x, n = (int)number[0];
  if (number[5] == 0) return;
"""

_STEP = f"""\
// The symmetric eigenvalue problem by Jacobi's rotations, n / 2 at a time: z becomes diagonal, and
// the columns of u its eigenvectors.
__device__ inline void diagonalize(double* z, double* u, int n) {{
  __shared__ double cosine[{LARGEST_RANK // 2}], sine[{LARGEST_RANK // 2}];
  __shared__ int first[{LARGEST_RANK // 2}], second[{LARGEST_RANK // 2}];
  const int t = threadIdx.x, even = n + n % 2, pairs = even / 2;
  for (int k = t; k < n * n; k += {STEP_THREADS}) u[k] = k / n == k % n;
  __syncthreads();
  for (int sweep = 0; sweep < 30; ++sweep) {{
    double outside = 0, all = 0;
    for (int k = t; k < n * n; k += {STEP_THREADS}) {{
      const double square = z[k] * z[k];
      all += square;
      if (k / n != k % n) outside += square;
    }}
    outside = over_block<Sum, {STEP_THREADS}>(outside);
    all = over_block<Sum, {STEP_THREADS}>(all);
    if (outside <= 1e-30 * all) return;
    for (int round = 0; round < even - 1; ++round) {{
      for (int k = t; k < pairs; k += {STEP_THREADS}) {{
        const int a = k ? (round + k) % (even - 1) : even - 1;
        const int b = k ? (round + even - 1 - k) % (even - 1) : round;
        const int p = a < b ? a : b, q = a < b ? b : a;
        first[k] = q < n ? p : -1;
        second[k] = q;
        cosine[k] = 1;
        sine[k] = 0;
        if (q < n && z[p * n + q] != 0) {{
          const double angle = (z[q * n + q] - z[p * n + p]) / (2 * z[p * n + q]);
          const double root = sqrt(angle * angle + 1);
          const double tangent = angle >= 0 ? 1 / (angle + root) : 1 / (angle - root);
          cosine[k] = 1 / sqrt(tangent * tangent + 1);
          sine[k] = tangent * cosine[k];
        }}
      }}
      __syncthreads();
      for (int k = t; k < pairs * n; k += {STEP_THREADS}) {{
        const int pair = k / n, c = k % n, p = first[pair], q = second[pair];
        if (p < 0) continue;
        const double a = z[p * n + c], b = z[q * n + c];
        z[p * n + c] = cosine[pair] * a - sine[pair] * b;
        z[q * n + c] = sine[pair] * a + cosine[pair] * b;
      }}
      __syncthreads();
      for (int k = t; k < 2 * pairs * n; k += {STEP_THREADS}) {{
        const int pair = k / 2 % pairs, r = k / 2 / pairs, p = first[pair], q = second[pair];
        if (p < 0) continue;
        double* row = (k % 2 ? u : z) + r * n;
        const double a = row[p], b = row[q];
        row[p] = cosine[pair] * a - sine[pair] * b;
        row[q] = sine[pair] * a + cosine[pair] * b;
      }}
      __syncthreads();
    }}
  }}
}}

// e = 1 / (beta / d + 1), beta = rho (1 + alpha) + alpha sum(d) / dim
__device__ inline double root_of_e(double d, double rho, double sum, double alpha, double dim) {{
  return sqrt(1 / ((rho * (1 + alpha) + alpha * sum / dim) / d + 1));
}}

extern "C" __global__ void __launch_bounds__({STEP_THREADS}) @(
    unsigned long long* addresses, double* numbers) {{
{_OPERANDS}\
  const double dim = number[1], rows = number[2], eta = number[3], alpha = number[4];
  const float *gram = (float*)address[0], *k = (float*)address[1];
  double *d = (double*)address[2], *rho_at = (double*)address[3];
  const double square_sum = *(double*)address[4], rho = *rho_at;
  float *mix = (float*)address[5], *decay = (float*)address[6];
  double *z = (double*)address[7], *u = z + n * n;
  double *inverse_e = u + n * n, *root_c = inverse_e + n, *place = root_c + n;
  double* root_e = (double*)address[8];
  double mine = 0;
  for (int i = t; i < n; i += {STEP_THREADS}) mine += d[i];
  const double sum = over_block<Sum, {STEP_THREADS}>(mine);
  for (int i = t; i < n; i += {STEP_THREADS}) {{
    inverse_e[i] = 1 / root_of_e(d[i], rho, sum, alpha, dim);
    decay[i] = (float)((1 - eta) / (eta / rows) * (d[i] + rho));
  }}
  __syncthreads();
  const double part = eta / rows;
  double is_lost = !isfinite(square_sum);
  for (int e = t; e < n * n; e += {STEP_THREADS}) {{
    const int i = e / n, j = e % n, f = j * n + i;
    const double scale = inverse_e[i] * inverse_e[j];
    const double cross = gram[e] * (d[j] + rho) + gram[f] * (d[i] + rho);
    const double own = (1 - eta) * (d[i] + rho);
    z[e] = part * part * scale * 0.5 * ((double)k[e] + k[f]) + part * (1 - eta) * scale * cross
        + (i == j ? own * own : 0);
    if (!isfinite(z[e])) is_lost = 1;
  }}
  is_lost = over_block<Largest, {STEP_THREADS}>(is_lost);
  if (is_lost > 0) {{
    // A minibatch that is not finite, or whose squares are not: W, as decayed here, stays as it is.
    float* j_at = (float*)address[10];
    for (int e = t; e < n * (int)dim; e += {STEP_THREADS}) j_at[e] = 0;
    for (int e = t; e < n * n; e += {STEP_THREADS}) mix[e] = e / n == e % n;
    for (int i = t; i < n; i += {STEP_THREADS}) decay[i] = 1;
    if (t == 0) root_e[n] = root_e[n + 1] = 0;
    return;
  }}
  diagonalize(z, u, n);
  // Eigenvalues by falling magnitude.
  const double floor = rho * (1 - eta) * (rho * (1 - eta));
  double least = 1e300, roots = 0, largest = 0;
  for (int i = t; i < n; i += {STEP_THREADS}) {{
    const double value = z[i * n + i];
    int before = 0;
    for (int j = 0; j < n; ++j) {{
      const double other = z[j * n + j];
      before += fabs(other) > fabs(value) || (fabs(other) == fabs(value) && j < i);
    }}
    place[before] = i;
    root_c[before] = sqrt(larger(value, floor));
    roots += root_c[before];
    largest = larger(largest, root_c[before]);
    least = smaller(least, value);
  }}
  roots = over_block<Sum, {STEP_THREADS}>(roots);
  largest = over_block<Largest, {STEP_THREADS}>(largest);
  least = -over_block<Largest, {STEP_THREADS}>(-least);
  const double highest = z[(int)place[0] * n + (int)place[0]];
  const double lowest = z[(int)place[n - 1] * n + (int)place[n - 1]];
  const double mass = part * square_sum + (1 - eta) * (dim * rho + sum);
  const double found = (mass - roots) / (dim - n);
  const double smallest = larger(1e-10, 5e-4 * largest);
  const double new_rho = larger(found, smallest);
  mine = 0;
  for (int i = t; i < n; i += {STEP_THREADS}) {{
    d[i] = larger(root_c[i] - found, smallest);
    mine += d[i];
  }}
  const double new_sum = over_block<Sum, {STEP_THREADS}>(mine);
  for (int i = t; i < n; i += {STEP_THREADS})
    root_e[i] = root_of_e(d[i], new_rho, new_sum, alpha, dim);
  __syncthreads();
  for (int e = t; e < n * n; e += {STEP_THREADS}) {{
    const int i = e / n, j = e % n;
    mix[e] = (float)(part * root_e[i] / root_c[i] * u[j * n + (int)place[i]] * inverse_e[j]);
  }}
  if (t == 0) {{
    *rho_at = new_rho;
    root_e[n] = highest > 1e6 * lowest || least < floor;
    root_e[n + 1] = 0;
  }}
}}
"""

_RENEW = f"""\
extern "C" __global__ void __launch_bounds__({THREADS}) @(
    unsigned long long* addresses, double* numbers) {{
{_OPERANDS}\
  // k holds W W^T by now; R = E^(-1/2) W. mix becomes what W is to be multiplied with.
  const float* ww = (float*)address[1];
  float* mix = (float*)address[5];
  double *l = (double*)address[7], *inverse = l + n * n, *root_e = (double*)address[8];
  double deviation = 0;
  for (int e = t; e < n * n; e += {THREADS}) {{
    const int i = e / n, j = e % n;
    l[e] = ww[e] / (root_e[i] * root_e[j]);
    inverse[e] = 0;
    mix[e] = i == j;
    deviation = larger(deviation, fabs(l[e] - (i == j)));
  }}
  deviation = over_block<Largest, {THREADS}>(deviation);
  if (root_e[n] == 0 || deviation <= 1e-3) return;
  for (int k = 0; k < n; ++k) {{
    // Cholesky's factor, column by column, in the lower triangle.
    for (int i = k + t; i < n; i += {THREADS}) {{
      double value = l[i * n + k];
      for (int j = 0; j < k; ++j) value -= l[i * n + j] * l[k * n + j];
      l[i * n + k] = value;
    }}
    __syncthreads();
    const double pivot = l[k * n + k];
    __syncthreads();
    if (!(pivot > 0)) {{
      if (t == 0) root_e[n + 1] = 1;
      return;
    }}
    for (int i = k + t; i < n; i += {THREADS}) l[i * n + k] /= sqrt(pivot);
    __syncthreads();
  }}
  double largest = 0;
  for (int c = t; c < n; c += {THREADS}) {{
    for (int i = c; i < n; ++i) {{
      double value = i == c;
      for (int j = c; j < i; ++j) value -= l[i * n + j] * inverse[j * n + c];
      inverse[i * n + c] = value / l[i * n + i];
      largest = larger(largest, inverse[i * n + c]);
    }}
  }}
  largest = over_block<Largest, {THREADS}>(largest);
  if (!(largest < 100)) {{
    if (t == 0) root_e[n + 1] = 1;
    return;
  }}
  for (int e = t; e < n * n; e += {THREADS})
    mix[e] = (float)(root_e[e / n] * inverse[e] / root_e[e % n]);
}}
"""

_ORTHONORMALIZE = f"""\
extern "C" __global__ void __launch_bounds__({THREADS}) @(
    unsigned long long* addresses, double* numbers) {{
{_OPERANDS}\
  // Where Cholesky's factor was of no use: Gram and Schmidt, twice over, on the rows of W.
  const int dim = (int)number[1];
  double* root_e = (double*)address[8];
  float* w = (float*)address[9];
  if (root_e[n + 1] == 0) return;
  for (int i = 0; i < n; ++i) {{
    for (int again = 0; again < 2; ++again) {{
      for (int j = 0; j < i; ++j) {{
        double dot = 0;
        for (int c = t; c < dim; c += {THREADS}) dot += (double)w[i * dim + c] * w[j * dim + c];
        dot = over_block<Sum, {THREADS}>(dot);
        for (int c = t; c < dim; c += {THREADS}) w[i * dim + c] -= (float)(dot * w[j * dim + c]);
      }}
    }}
    double square = 0;
    for (int c = t; c < dim; c += {THREADS}) square += (double)w[i * dim + c] * w[i * dim + c];
    square = over_block<Sum, {THREADS}>(square);
    const double factor = square > 0 ? 1 / sqrt(square) : 0;
    for (int c = t; c < dim; c += {THREADS}) w[i * dim + c] *= (float)factor;
  }}
  __syncthreads();
  for (int e = t; e < n * dim; e += {THREADS}) w[e] *= (float)root_e[e / dim];
}}
"""

_SQUARES = f"""\
extern "C" __global__ void __launch_bounds__({THREADS}) @(float* x, double* parts) {{
  double square = 0;
  const unsigned step = gridDim.x * {THREADS};
#pragma unroll 4
  for (unsigned e = blockIdx.x * {THREADS} + threadIdx.x; e < SIZE; e += step) {{
    const double value = x[(long long)(e / COLUMNS) * X_ROW + (long long)(e % COLUMNS) * X_COLUMN];
    square += value * value;
  }}
  square = over_block<Sum, {THREADS}>(square);
  if (threadIdx.x == 0) parts[blockIdx.x] = square;
}}
"""

_NORMS = f"""\
extern "C" __global__ void __launch_bounds__({THREADS}) @(
    double* parts, float* gram, float* ww, double* before, double* after, double* is_small) {{
  // |X - H W|^2 = |X|^2 - 2 |H|^2 + tr(H W W^T H^T)
  double square = 0, rest = 0;
  for (int k = threadIdx.x; k < PARTS; k += {THREADS}) square += parts[k];
  for (int e = threadIdx.x; e < RANK * RANK; e += {THREADS}) {{
    if (e / RANK == e % RANK) rest -= 2 * (double)gram[e];
    rest += (double)gram[e] * ww[e];
  }}
  square = over_block<Sum, {THREADS}>(square);
  rest = over_block<Sum, {THREADS}>(rest);
  if (threadIdx.x == 0) {{
    before[0] = square + ONES;
    after[0] = before[0] + rest;
    is_small[0] = before[0] > 0 && after[0] < 1e-2 * before[0];
  }}
}}
"""

_FACTOR = """\
  {
    double square = 0;
    if (is_smallSIDE[0] != 0)
      for (int k = threadIdx.x; k < COUNT; k += THREADS) square += squaresSIDE[k];
    square = over_block<Sum, THREADS>(square);
    // Rows of zeros keep their norm whatever the scale is.
    const double norm = is_smallSIDE[0] != 0 ? square : afterSIDE[0];
    if (beforeSIDE[0] > 0) scale *= sqrt(beforeSIDE[0] / larger(norm, 1e-300));
  }
"""

_DIFFERENCES = f"""\
extern "C" __global__ void __launch_bounds__({THREADS}) @(
    float* x, float* h, float* w, double* is_small, double* squares) {{
  // The squared norm of each row of X - H w, element by element: this is seldom needed.
  if (is_small[0] == 0) return;
  for (int row = blockIdx.x; row < ROWS; row += gridDim.x) {{
    double square = 0;
    for (int c = threadIdx.x; c < COLUMNS; c += {THREADS}) {{
      double y = VALUE;
      for (int k = 0; k < RANK; ++k) y -= (double)h[row * RANK + k] * w[k * W_ROW + c];
      square += y * y;
    }}
    square = over_block<Sum, {THREADS}>(square);
    if (threadIdx.x == 0) squares[row] = square;
  }}
}}
"""


def _filled(text: str, **values: object) -> str:
    """A text with values in place of names, one name after another."""
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def fisher_step(estimates: int) -> HandWritten:
    """Updates d and rho of estimates, and finds the matrices that turn W and J into the new W."""
    return HandWritten("fisher_step", _STEP, grid=estimates, block=STEP_THREADS)


def fisher_renew(estimates: int) -> HandWritten:
    """Computes the matrix that makes the rows of R orthonormal again, where they might not be."""
    return HandWritten("fisher_renew", _RENEW, grid=estimates)


def fisher_orthonormalize(estimates: int) -> HandWritten:
    """Makes the rows of R orthonormal one by one, where `fisher_renew` found no matrix."""
    return HandWritten("fisher_orthonormalize", _ORTHONORMALIZE, grid=estimates)


def squares(rows: int, columns: int, row: int, column: int) -> HandWritten:
    """Sums of the squares of a matrix, in parts; row, column: distances of rows and columns."""
    size = rows * columns
    check_size(size)
    text = _filled(_SQUARES, SIZE=f"{size}u", COLUMNS=f"{columns}u", X_ROW=row, X_COLUMN=column)
    return HandWritten("squares", text, grid=min(MOST_PARTS, -(-size // ELEMENTS_PER_PART)))


def norms(parts: int, ones: int, rank: int) -> HandWritten:
    """The squared norms of X and X - H W, and whether the second is too small to be exact."""
    return HandWritten("norms", _filled(_NORMS, PARTS=parts, ONES=ones, RANK=rank))


def factor(counts: Sequence[int]) -> HandWritten:
    """The product of the scales that preserve the norms of matrices.

    The kernel's arguments are, for each matrix, the squared norms before and after, whether the
    second is inexact, and `counts` squared differences for that case; then the factor, float32.
    """
    names = ("before", "after", "is_small", "squares")
    parameters = [f"double* {name}{side}" for side in range(len(counts)) for name in names]
    sides = [
        _filled(_FACTOR, SIDE=side, COUNT=count, THREADS=THREADS)
        for side, count in enumerate(counts)
    ]
    text = (
        f'extern "C" __global__ void __launch_bounds__({THREADS}) @('
        f"{', '.join([*parameters, 'float* factor'])}) {{\n  double scale = 1;\n{''.join(sides)}"
        "  if (threadIdx.x == 0) factor[0] = (float)scale;\n}\n"
    )
    return HandWritten("factor", text)


def squared_differences(
    rows: int, columns: int, rank: int, x_row: int | None, x_column: int, w_row: int
) -> HandWritten:
    """The squared norms of the rows of X - H w, where they are needed.

    If the row distance is None, all elements of X are one.
    """
    value = "1" if x_row is None else f"x[(long long)row * {x_row} + c * {x_column}]"
    sizes = {"COLUMNS": columns, "RANK": rank, "ROWS": rows, "W_ROW": w_row}
    text = _filled(_DIFFERENCES, **sizes, VALUE=value)
    return HandWritten("squared_differences", text, grid=min(rows, MOST_BLOCKS_OF_ROWS))
