// CUDA C++ on the processor: what kernels use of the language, with threads as loops or fibres.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <initializer_list>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// One block runs at a time, so what its threads share may be static.
#define __shared__ static

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

#ifdef STRICT
#include "host_strict.h"
#else
#define UNCHECKED
// Nothing is watched; blocks run in order, threads the last one first.
namespace strict {
static inline void begin_launch() {}
static inline void begin_block(unsigned) {}
static inline void enter(unsigned, const char*, size_t) {}
static inline void leave() {}
static inline void end_epoch(bool) {}
static inline void put_in_order(unsigned* numbers, unsigned count, bool backwards) {
  for (unsigned k = 0; k < count; ++k) numbers[k] = backwards ? count - 1 - k : k;
}
}  // namespace strict
#endif

namespace fibres {

constexpr size_t STACK = 1 << 16;
constexpr int BY_WARP = -1;

struct Fibre {
  ucontext_t context;
  void* sp;
  char* stack;
  Index index;
  int line;  // of the barrier that it waits at; BY_WARP for the other lanes of its warp
  bool done;
};

static Fibre* all;
static unsigned capacity, current;
static void* scheduler_sp;
static void (*body)(const void*);
static const void* closure;

#if defined(__x86_64__)
// Saves the callee's registers on the stack, and goes on where another stack was left.
extern "C" void fibre_switch(void** from, void* to);
asm(R"(
.text
.local fibre_switch
.type fibre_switch, @function
fibre_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#else
static ucontext_t scheduler;
#endif

UNCHECKED static void leave() {
  strict::leave();
#if defined(__x86_64__)
  fibre_switch(&all[current].sp, scheduler_sp);
#else
  swapcontext(&all[current].context, &scheduler);
#endif
}

UNCHECKED static void enter() {
  body(closure);
  all[current].done = true;
  leave();
}

static void prepare(Fibre& f) {
  f.done = false;
#if defined(__x86_64__)
  void** top = (void**)(f.stack + STACK);
  *--top = 0;             // alignment, and the end of the chain of frames
  *--top = (void*)enter;  // where the first switch returns to
  for (int k = 0; k < 6; ++k) *--top = 0;
  f.sp = top;
#else
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = STACK;
  f.context.uc_link = 0;
  makecontext(&f.context, enter, 0);
#endif
}

UNCHECKED static void resume(unsigned number) {
  current = number;
  threadIdx = all[number].index;
  strict::enter(number, all[number].stack, STACK);
#if defined(__x86_64__)
  fibre_switch(&scheduler_sp, all[number].sp);
#else
  swapcontext(&scheduler, &all[number].context);
#endif
}

}  // namespace fibres

UNCHECKED static void wait_at(int line) {
  const unsigned number = fibres::current;
  fibres::all[number].line = line;
  fibres::leave();
}
#define __syncthreads() wait_at(__LINE__)

// ---- what kernels take from PTX: tensor cores, and copies that take their time ----

UNCHECKED static unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

UNCHECKED static float __uint_as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// What a lane gives to a product of its warp. There are two, since some lanes give the next one
// while others still read the last.
struct Given {
  unsigned a[4], b[2];
};
static Given given[2][1024];
static unsigned char products_made[1024];

// The number toward zero from a sum: tensor cores do not round to the nearest one.
UNCHECKED static float toward_zero(double sum) {
  const float nearest = (float)sum;
  return fabs((double)nearest) > fabs(sum) ? nextafterf(nearest, 0.0f) : nearest;
}

// mma.m16n8k8 of TF32, as the PTX ISA spreads matrices over the lanes (group = lane / 4, member =
// lane % 4): a[k] is in row group + 8 (k % 2), column member + 4 (k / 2); b[k] in row member + 4 k,
// column group; sum[k] in row group + 8 (k / 2), column 2 member + k % 2.
UNCHECKED static void multiply(float* sum, const unsigned* a, const unsigned* b) {
  const unsigned thread = fibres::current, lane = thread % 32;
  Given* const all = given[products_made[thread]++ % 2];
  Given& own = all[thread];
  for (int k = 0; k < 4; ++k) own.a[k] = a[k];
  for (int k = 0; k < 2; ++k) own.b[k] = b[k];
  for (unsigned bits : {a[0], a[1], a[2], a[3], b[0], b[1]})
    if (bits & 0x1fff) abort();  // not a number of TF32
  wait_at(fibres::BY_WARP);
  const Given* const warp = all + (thread - lane);
  for (int k = 0; k < 4; ++k) {
    const int row = lane / 4 + 8 * (k / 2), column = 2 * (lane % 4) + k % 2;
    double exact = sum[k];
    for (int term = 0; term < 8; ++term) {
      const unsigned x = warp[row % 8 * 4 + term % 4].a[row / 8 + 2 * (term / 4)];
      const unsigned y = warp[column * 4 + term % 4].b[term / 4];
      exact += (double)__uint_as_float(x) * __uint_as_float(y);
    }
    sum[k] = toward_zero(exact);
  }
}

// cp.async: until its group has been waited for, the place that a copy goes to has no number.
struct Copy {
  float* to;
  const float* from;
  int width, count;
  unsigned group;
};
constexpr unsigned MOST_COPIES = 64;
struct Copies {
  Copy waiting[MOST_COPIES];
  unsigned begin, end, groups;
};
static Copies copies[1024];

UNCHECKED static void put_off(Copy copy) {
  Copies& own = copies[fibres::current];
  copy.group = own.groups;
  if (own.end - own.begin == MOST_COPIES) abort();
  own.waiting[own.end++ % MOST_COPIES] = copy;
}

template <int WIDTH> static void begin_copy(float* to, const float* from, int count) {
  if (((size_t)to | (size_t)from) % (4 * WIDTH) || count < 0 || count > WIDTH) abort();
  for (int k = 0; k < WIDTH; ++k) to[k] = NAN;
  put_off({to, from, WIDTH, count, 0});
}

UNCHECKED static void end_group() { ++copies[fibres::current].groups; }

UNCHECKED static bool next_copy(unsigned pending, Copy* copy) {
  Copies& own = copies[fibres::current];
  if (own.begin == own.end) return false;
  *copy = own.waiting[own.begin % MOST_COPIES];
  if (copy->group + pending >= own.groups) return false;
  ++own.begin;
  return true;
}

template <int PENDING> static void wait_for_groups() {
  for (Copy copy; next_copy(PENDING, &copy);)
    for (int k = 0; k < copy.width; ++k) copy.to[k] = k < copy.count ? copy.from[k] : 0.0f;
}

static unsigned* numbers_in_order(unsigned* numbers, unsigned count, bool backwards) {
  numbers = (unsigned*)realloc(numbers, count * sizeof(unsigned));
  strict::put_in_order(numbers, count, backwards);
  return numbers;
}

template <class F> static void for_blocks(const unsigned* sizes, F f) {
  gridDim = {sizes[0], sizes[1], sizes[2]};
  blockDim = {sizes[3], sizes[4], sizes[5]};
  strict::begin_launch();
  const unsigned count = gridDim.x * gridDim.y * gridDim.z;
  unsigned* order = numbers_in_order(nullptr, count, false);
  for (unsigned k = 0; k < count; ++k) {
    const unsigned number = order[k];
    blockIdx = {number % gridDim.x, number / gridDim.x % gridDim.y, number / gridDim.x / gridDim.y};
    strict::begin_block(number);
    f();
  }
  free(order);
}

static inline Index thread_of(unsigned k) {
  return {k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
}

// Kernels without barriers.
template <class F> static void run_threads(const unsigned* sizes, F kernel) {
  unsigned *order = nullptr, count = sizes[3] * sizes[4] * sizes[5];
  for_blocks(sizes, [&] {
    order = numbers_in_order(order, count, false);
    for (unsigned k = 0; k < count; ++k) {
      threadIdx = thread_of(order[k]);
      strict::enter(order[k], nullptr, 0);
      kernel();
      strict::leave();
    }
  });
  free(order);
}

// Kernels with barriers: between two of them the threads run in turn, the last one first, so that
// what depends on an order shows. Threads that have left a kernel do not hold up the others.
template <class F> static void run_fibres(const unsigned* sizes, F kernel) {
  using namespace fibres;
  unsigned *order = nullptr, count = sizes[3] * sizes[4] * sizes[5];
  if (count > capacity) {
    all = (Fibre*)realloc((void*)all, count * sizeof(Fibre));
    for (; capacity < count; ++capacity) all[capacity].stack = (char*)malloc(STACK);
  }
  body = [](const void* f) { (*(const F*)f)(); };
  closure = &kernel;
  for_blocks(sizes, [&] {
    for (unsigned k = 0; k < count; ++k) {
      all[k].index = thread_of(k);
      prepare(all[k]);
    }
    for (bool running = true; running;) {
      running = false;
      int line = 0;
      bool together = true;
      order = numbers_in_order(order, count, true);
      for (unsigned k = 0; k < count; ++k) {
        Fibre& fibre = all[order[k]];
        if (fibre.done) continue;
        resume(order[k]);
        if (fibre.done) continue;
        together = together && (!running || line == fibre.line);
        line = fibre.line;
        running = true;
      }
      if (!together || line != BY_WARP) strict::end_epoch(together);
    }
  });
  free(order);
}
