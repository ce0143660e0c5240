"""The first lines of every module: functions for both precisions, block sums, random numbers."""

PRELUDE = """\
__device__ inline float exp_(float a) { return expf(a); }
__device__ inline double exp_(double a) { return exp(a); }
__device__ inline float log_(float a) { return logf(a); }
__device__ inline double log_(double a) { return log(a); }
__device__ inline float tanh_(float a) { return tanhf(a); }
__device__ inline double tanh_(double a) { return tanh(a); }
__device__ inline float sqrt_(float a) { return sqrtf(a); }
__device__ inline double sqrt_(double a) { return sqrt(a); }
__device__ inline float ceil_(float a) { return ceilf(a); }
__device__ inline double ceil_(double a) { return ceil(a); }
__device__ inline float rint_(float a) { return rintf(a); }
__device__ inline double rint_(double a) { return rint(a); }

// As in NumPy, what is not a number stays so.
template <class T> __device__ inline T larger(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ inline T smaller(T a, T b) { return a < b || a != a ? a : b; }

struct Sum {
  template <class T> __device__ static T of(T a, T b) { return a + b; }
};
struct Largest {
  template <class T> __device__ static T of(T a, T b) { return larger(a, b); }
};

// Combines the values of all threads of a block of SIZE threads; all get the result.
template <class F, int SIZE, class T> __device__ T over_block(T value) {
  __shared__ T values[SIZE], parts[32];
  const int t = threadIdx.x;
  values[t] = value;
  __syncthreads();
  if (t < 32) {
    for (int k = t + 32; k < SIZE; k += 32) value = F::of(value, values[k]);
    parts[t] = value;
  }
  __syncthreads();
  T result = parts[0];
  for (int k = 1; k < 32; ++k) result = F::of(result, parts[k]);
  __syncthreads();
  return result;
}

// Philox 4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a number
// in [0, 1) for each element, operation, run and key.
__device__ inline float uniform(double key, double stream, double run, unsigned element) {
  unsigned c0 = element, c1 = (unsigned)stream;
  unsigned c2 = (unsigned)(unsigned long long)run, c3 = (unsigned)((unsigned long long)run >> 32);
  unsigned k0 = (unsigned)(unsigned long long)key, k1 = 0x2545F491u;
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    c0 = (unsigned)(b >> 32) ^ c1 ^ k0;
    c1 = (unsigned)b;
    c2 = (unsigned)(a >> 32) ^ c3 ^ k1;
    c3 = (unsigned)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (float)(c0 >> 8) * 5.9604644775390625e-8f;
}
"""
