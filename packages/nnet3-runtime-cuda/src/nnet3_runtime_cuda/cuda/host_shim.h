// CUDA C++ on the processor: what kernels use of the language, with threads as loops or fibres.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(threads)
// One block runs at a time, so what its threads share may be static.
#define __shared__ static

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace fibres {

constexpr size_t STACK = 1 << 16;

struct Fibre {
  ucontext_t context;
  void* sp;
  char* stack;
  Index index;
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

static void leave() {
#if defined(__x86_64__)
  fibre_switch(&all[current].sp, scheduler_sp);
#else
  swapcontext(&all[current].context, &scheduler);
#endif
}

static void enter() {
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

static void resume(unsigned number) {
  current = number;
  threadIdx = all[number].index;
#if defined(__x86_64__)
  fibre_switch(&scheduler_sp, all[number].sp);
#else
  swapcontext(&scheduler, &all[number].context);
#endif
}

}  // namespace fibres

static inline void __syncthreads() { fibres::leave(); }

template <class F> static void for_blocks(const unsigned* sizes, F f) {
  gridDim = {sizes[0], sizes[1], sizes[2]};
  blockDim = {sizes[3], sizes[4], sizes[5]};
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) f();
}

// Kernels without barriers.
template <class F> static void run_threads(const unsigned* sizes, F kernel) {
  for_blocks(sizes, [&] {
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
      for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel();
  });
}

// Kernels with barriers: between two of them the threads run in turn, the last one first, so that
// what depends on an order shows. Threads that have left a kernel do not hold up the others.
template <class F> static void run_fibres(const unsigned* sizes, F kernel) {
  using namespace fibres;
  const unsigned count = sizes[3] * sizes[4] * sizes[5];
  if (count > capacity) {
    all = (Fibre*)realloc((void*)all, count * sizeof(Fibre));
    for (; capacity < count; ++capacity) all[capacity].stack = (char*)malloc(STACK);
  }
  body = [](const void* f) { (*(const F*)f)(); };
  closure = &kernel;
  for_blocks(sizes, [&] {
    for (unsigned k = 0; k < count; ++k) {
      all[k].index = {k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
      prepare(all[k]);
    }
    for (bool running = true; running;) {
      running = false;
      for (unsigned k = count; k-- > 0;) {
        if (all[k].done) continue;
        resume(k);
        running = running || !all[k].done;
      }
    }
  });
}
