// What compute-sanitizer does on a device, for kernels on the processor: finds accesses outside of
// memory, races, barriers that not all threads reach, and reads of what nothing has written: in
// global memory since its allocation, in shared memory since the block began. The compiler is told
// to report each access (-fsanitize=thread); what it would call is here in the place of its library.
// Blocks and threads run in a random order.
//
// Two accesses to a byte are a race if one of them writes, and they are of different blocks, or of
// different threads of a block without a barrier between them.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <initializer_list>

#define UNCHECKED __attribute__((no_sanitize("thread")))

namespace strict {

struct Cell {
  uint64_t writer_era, reader_era;  // a launch, or for shared memory a block
  uint32_t writer_block, writer_epoch, reader_block, reader_epoch;
  uint16_t writer, reader;
  bool many_readers, many_blocks;
};

struct Stretch {
  uintptr_t begin, end;
  Cell* cells;
  uint8_t* written;  // of global memory: not 0 for each byte that has been written
};

constexpr unsigned MOST_STRETCHES = 1 << 16, MOST_SHARED = 256;
static Stretch global_memory[MOST_STRETCHES], shared_memory[MOST_SHARED];
static unsigned num_global, num_shared, last_global;
static uint64_t era;
static uint64_t launch, block_number;
static uint32_t block, thread, epoch;
static uintptr_t stack_begin, stack_end, caller_begin, caller_end;
static uint64_t chance = 88172645463325252ull;
static char message[256];
static uintptr_t touched, place;  // by the access that is looked at; by the one of the message
static bool watching;

UNCHECKED static uint64_t draw() {
  chance ^= chance << 13;
  chance ^= chance >> 7;
  return chance ^= chance << 17;
}

UNCHECKED static void put_in_order(unsigned* numbers, unsigned count, bool) {
  for (unsigned k = 0; k < count; ++k) numbers[k] = k;
  for (unsigned k = count; k > 1; --k) {
    const unsigned other = draw() % k, kept = numbers[k - 1];
    numbers[k - 1] = numbers[other];
    numbers[other] = kept;
  }
}

UNCHECKED static void fail(const char* what) {
  if (message[0]) return;
  snprintf(message, sizeof message, "%s, at %p: thread %u of block %u", what, (void*)touched, thread, block);
  place = touched;
}

UNCHECKED static void fail(const char* what, uint32_t other_block, uint32_t other_thread) {
  if (message[0]) return;
  snprintf(message, sizeof message, "%s: thread %u of block %u, and thread %u of block %u", what,
           thread, block, other_thread, other_block);
  place = touched;
}

UNCHECKED static bool unordered(uint32_t other_block, uint32_t other_epoch, uint32_t other_thread) {
  return other_block != block || (other_thread != thread && other_epoch == epoch);
}

UNCHECKED static void read(Cell& cell, uint64_t now) {
  if (cell.writer_era == now && unordered(cell.writer_block, cell.writer_epoch, cell.writer))
    fail("a read that races with a write", cell.writer_block, cell.writer);
  if (cell.reader_era != now) {
    cell.many_blocks = cell.many_readers = false;
  } else {
    cell.many_blocks = cell.many_blocks || cell.reader_block != block;
    const bool together = cell.reader_block == block && cell.reader_epoch == epoch;
    cell.many_readers = together && (cell.many_readers || cell.reader != thread);
  }
  cell.reader_era = now;
  cell.reader_block = block;
  cell.reader_epoch = epoch;
  cell.reader = thread;
}

UNCHECKED static void write(Cell& cell, uint64_t now) {
  if (cell.writer_era == now && unordered(cell.writer_block, cell.writer_epoch, cell.writer))
    fail("two writes that race", cell.writer_block, cell.writer);
  if (cell.reader_era == now) {
    const bool many = cell.many_readers && cell.reader_epoch == epoch;
    if (cell.many_blocks || many || unordered(cell.reader_block, cell.reader_epoch, cell.reader))
      fail("a write that races with a read", cell.reader_block, cell.reader);
  }
  cell.writer_era = now;
  cell.writer_block = block;
  cell.writer_epoch = epoch;
  cell.writer = thread;
}

UNCHECKED static Stretch* find(uintptr_t at, bool* is_shared) {
  for (unsigned k = 0; k < num_shared; ++k)
    if (shared_memory[k].begin <= at && at < shared_memory[k].end) {
      *is_shared = true;
      return &shared_memory[k];
    }
  *is_shared = false;
  Stretch* found = &global_memory[last_global];
  if (num_global && found->begin <= at && at < found->end) return found;
  unsigned low = 0, high = num_global;
  while (low < high) {
    const unsigned middle = (low + high) / 2;
    if (global_memory[middle].end <= at) low = middle + 1;
    else high = middle;
  }
  if (low == num_global || at < global_memory[low].begin) return nullptr;
  last_global = low;
  return &global_memory[low];
}

UNCHECKED static void touch(const void* p, unsigned size, bool writes) {
  const uintptr_t at = (uintptr_t)p;
  if (!watching || (at >= stack_begin && at < stack_end)) return;
  if (at >= caller_begin && at < caller_end) return;
  for (const Index* index : {&threadIdx, &blockIdx, &blockDim, &gridDim})
    if (at >= (uintptr_t)index && at < (uintptr_t)(index + 1)) return;
  touched = at;
  bool is_shared;
  Stretch* stretch = find(at, &is_shared);
  if (!stretch || at + size > stretch->end) return fail("an access outside of memory");
  if (!stretch->cells)
    stretch->cells = (Cell*)calloc(stretch->end - stretch->begin, sizeof(Cell));
  const uint64_t now = is_shared ? block_number : launch;
  for (size_t offset = at - stretch->begin; size--; ++offset, ++touched) {
    Cell& cell = stretch->cells[offset];
    if (writes) {
      write(cell, now);
      if (!is_shared) stretch->written[offset] |= 1;
    } else {
      read(cell, now);
      if (is_shared ? cell.writer_era != now : !stretch->written[offset])
        fail("a read of what nothing has written");
    }
  }
}

// Called where a kernel declares what its threads share.
UNCHECKED static void share(void* p, size_t size) {
  unsigned k = 0;
  while (k < num_shared && shared_memory[k].begin != (uintptr_t)p) ++k;
  if (k == MOST_SHARED) abort();
  if (k == num_shared)
    shared_memory[num_shared++] = {(uintptr_t)p, (uintptr_t)p + size, nullptr, nullptr};
}

UNCHECKED static void begin_launch() {
  launch = ++era;
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  caller_begin = here - (1 << 16);
  caller_end = here + (1 << 16);
}

UNCHECKED static void begin_block(uint32_t number) {
  block = number;
  epoch = 0;
  block_number = ++era;
}

UNCHECKED static void enter(uint32_t number, const char* stack, size_t size) {
  thread = number;
  stack_begin = (uintptr_t)stack;
  stack_end = stack_begin + size;
  watching = true;
}

UNCHECKED static void leave() { watching = false; }

UNCHECKED static void end_epoch(bool together) {
  ++epoch;
  if (!together && !message[0])
    snprintf(message, sizeof message, "threads of block %u wait at different barriers", block);
}

}  // namespace strict

// The stretches of memory of the device, in order, and which of their bytes have been written;
// forgets the accesses to them.
extern "C" UNCHECKED void strict_memory(const uint64_t* begins, const uint64_t* ends,
                                        const uint64_t* written, unsigned n) {
  using namespace strict;
  for (unsigned k = 0; k < num_global; ++k) free(global_memory[k].cells);
  if (n > MOST_STRETCHES) abort();
  num_global = n;
  last_global = 0;
  for (unsigned k = 0; k < n; ++k)
    global_memory[k] = {begins[k], ends[k], nullptr, (uint8_t*)written[k]};
}

// What was found since the last call, or nothing.
extern "C" UNCHECKED const char* strict_message() {
  static char told[sizeof strict::message];
  memcpy(told, strict::message, sizeof told);
  strict::message[0] = 0;
  return told;
}

// The address that it is about; 0 if it is about none.
extern "C" UNCHECKED uint64_t strict_place() {
  const uint64_t told = strict::place;
  strict::place = 0;
  return told;
}

#define ACCESS(size)                                                                            \
  extern "C" UNCHECKED void __tsan_read##size(void* p) { strict::touch(p, size, false); }       \
  extern "C" UNCHECKED void __tsan_write##size(void* p) { strict::touch(p, size, true); }       \
  extern "C" UNCHECKED void __tsan_unaligned_read##size(void* p) { strict::touch(p, size, false); } \
  extern "C" UNCHECKED void __tsan_unaligned_write##size(void* p) { strict::touch(p, size, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
extern "C" UNCHECKED void __tsan_read_range(void* p, unsigned long n) { strict::touch(p, n, false); }
extern "C" UNCHECKED void __tsan_write_range(void* p, unsigned long n) { strict::touch(p, n, true); }
extern "C" UNCHECKED void __tsan_func_entry(void*) {}
extern "C" UNCHECKED void __tsan_func_exit() {}
extern "C" UNCHECKED void __tsan_init() {}
