//===- fibers.cpp - Threads of a kernel as fibers -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulation/cuda_on_host.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace grt::cuda::emulation {
namespace {

constexpr size_t stackBytes = 64 * 1024;
constexpr int mostThreads = 1024, lanes = 32;

enum class State { Ready, AtWarp, AtBlock, Done };

struct Fiber {
  ucontext_t context; ///< of its first line
  jmp_buf stopped;
  bool begun = false;
  State state = State::Done;
  Place place;
};

/// The values that a warp's lanes hand each other. Two sets take turns: a lane
/// may be one exchange ahead of one that has yet to read.
struct Warp {
  uint64_t values[2][lanes];
  int turn[lanes];
};

/// The blocks that one host thread runs, one after the other.
class Machine {
public:
  ~Machine() {
    if (stacks)
      munmap(stacks, stackBytes * mostThreads);
  }

  void run(dim3 grid, dim3 block, int sharedBytes,
           const std::function<void()> &newBody) {
    int threads = int(block.x * block.y * block.z);
    if (threads < 1 || threads > mostThreads || block.y != 1 || block.z != 1)
      stop("a block has 1 to 1024 threads in one dimension");
    if (!stacks) {
      void *memory =
          mmap(nullptr, stackBytes * mostThreads, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED)
        stop("no memory for stacks");
      stacks = static_cast<char *>(memory);
      fibers = std::make_unique<Fiber[]>(mostThreads);
    }
    body = &newBody;
    count = threads;
    shared.resize((size_t(sharedBytes) + 63) / 64 * 8);
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x)
          runBlock({x, y, z}, block, grid);
  }

  const Place &place() const { return current->place; }
  void *sharedMemory() { return shared.data(); }

  void wait(State state) {
    current->state = state;
    // swapcontext would ask the kernel for the signal mask every time.
    if (_setjmp(current->stopped) == 0)
      _longjmp(scheduler, 1);
  }

  bool any(bool mine) {
    given[current - fibers.get()] = mine;
    wait(State::AtBlock);
    bool result = false;
    for (int t = 0; t < count; ++t)
      result |= fibers[t].state != State::Done && given[t];
    wait(State::AtBlock);
    return result;
  }

  /// Hands in a value and waits for the warp; returns all that were handed in.
  const uint64_t *give(uint64_t mine) {
    int thread = int(current - fibers.get()), lane = thread % lanes;
    Warp &warp = warps[thread / lanes];
    int turn = warp.turn[lane]++ % 2;
    warp.values[turn][lane] = mine;
    wait(State::AtWarp);
    return warp.values[turn];
  }

private:
  [[noreturn]] static void stop(const char *why) {
    std::fprintf(stderr, "emulated kernel: %s\n", why);
    std::abort();
  }

  static void enter(unsigned low, unsigned high) {
    auto *machine =
        reinterpret_cast<Machine *>(uintptr_t(low) | uintptr_t(high) << 32);
    // Each block has one turn.
    for (;;) {
      (*machine->body)();
      machine->wait(State::Done);
    }
  }

  /// Runs the current fiber up to where it waits.
  void resume() {
    if (_setjmp(scheduler) != 0)
      return;
    if (current->begun)
      _longjmp(current->stopped, 1);
    current->begun = true;
    getcontext(&current->context);
    current->context.uc_stack.ss_sp =
        stacks + stackBytes * size_t(current - fibers.get());
    current->context.uc_stack.ss_size = stackBytes;
    current->context.uc_link = nullptr;
    uintptr_t self = reinterpret_cast<uintptr_t>(this);
    makecontext(&current->context, reinterpret_cast<void (*)()>(enter), 2,
                unsigned(self), unsigned(self >> 32));
    setcontext(&current->context);
  }

  void runBlock(dim3 index, dim3 block, dim3 grid) {
    std::fill(shared.begin(), shared.end(), ~uint64_t(0));
    std::memset(warps, 0, sizeof(warps));
    for (int t = 0; t < count; ++t) {
      Fiber &fiber = fibers[t];
      fiber.state = State::Ready;
      fiber.place = {dim3(unsigned(t)), index, block, grid};
    }
    while (turnOver()) {
    }
  }

  /// Runs what can run, then opens barriers; false when all is done.
  bool turnOver() {
    order = order * 6364136223846793005u + 1442695040888963407u;
    bool backwards = order >> 63;
    bool ran = false, left = false;
    for (int i = 0; i < count; ++i) {
      current = &fibers[backwards ? count - 1 - i : i];
      if (current->state != State::Ready)
        continue;
      ran = true;
      resume();
    }
    for (int begin = 0; begin < count; begin += lanes)
      ran |= open(begin, std::min(begin + lanes, count), State::AtWarp);
    for (int t = 0; t < count; ++t)
      left |= fibers[t].state != State::Done;
    ran |= open(0, count, State::AtBlock);
    if (left && !ran)
      stop("threads wait at different barriers");
    return left;
  }

  /// Lets threads [begin, end) go on if all that still run stand at `state`.
  bool open(int begin, int end, State state) {
    int waiting = 0;
    for (int t = begin; t < end; ++t) {
      if (fibers[t].state != state && fibers[t].state != State::Done)
        return false;
      waiting += fibers[t].state == state;
    }
    for (int t = begin; t < end; ++t)
      if (fibers[t].state == state)
        fibers[t].state = State::Ready;
    return waiting > 0;
  }

  char *stacks = nullptr;
  std::unique_ptr<Fiber[]> fibers;
  jmp_buf scheduler;
  Fiber *current = nullptr;
  const std::function<void()> *body = nullptr;
  int count = 0;
  bool given[mostThreads];
  uint64_t order = 1;
  Warp warps[mostThreads / lanes];
  std::vector<uint64_t> shared;
};

thread_local Machine machine;

} // namespace

const Place &place() { return machine.place(); }
void *dynamicShared() { return machine.sharedMemory(); }
void run(dim3 grid, dim3 block, int shared, const std::function<void()> &body) {
  machine.run(grid, block, shared, body);
}
void blockBarrier() { machine.wait(State::AtBlock); }
void warpBarrier() { machine.wait(State::AtWarp); }
bool blockAny(bool mine) { return machine.any(mine); }
uint64_t exchange(uint64_t mine, int from) { return machine.give(mine)[from]; }
void shareAddress(const void *mine, const void **all) {
  const uint64_t *given = machine.give(reinterpret_cast<uintptr_t>(mine));
  for (int l = 0; l < lanes; ++l)
    all[l] = reinterpret_cast<const void *>(given[l]);
}
uint32_t ballot(bool mine) {
  const uint64_t *all = machine.give(mine);
  uint32_t bits = 0;
  for (int l = 0; l < lanes; ++l)
    bits |= uint32_t(all[l] != 0) << l;
  return bits;
}

} // namespace grt::cuda::emulation
