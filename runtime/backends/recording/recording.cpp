//===- recording.cpp - A backend that checks how programs use a device ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "recording.h"
#include "../common/call.h"
#include "base/allocation.h"
#include "core/executor.h"
#include "core/program_text.h"
#include "grt/cpu_bounds.h"
#include "grt/update_decision.h"
#include "model.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

namespace grt::recording {
namespace {

constexpr uint32_t eventCount = 192;

const grt_backend *base = nullptr;
uint64_t nextSeed = 1;
/// By first address.
std::map<const char *, std::unique_ptr<Allocation>> allocations;
HostRanges hostRanges;

Allocation *allocationAt(const void *address) {
  auto next = allocations.upper_bound(static_cast<const char *>(address));
  if (next == allocations.begin())
    return nullptr;
  Allocation *found = std::prev(next)->second.get();
  return found->holds(address) ? found : nullptr;
}

Rank &rankOf(void *state) { return *static_cast<Rank *>(state); }

/// Runs `body` with the lock held; its exception, or what went wrong before, is
/// the call's failure.
template <typename Body>
int32_t guarded(void *state, char *message, size_t bytes, Body body) {
  // The model's own memory is none of the rank's.
  UncountedAllocations uncounted;
  ModelLock lock;
  // The body may take the rank to another world.
  std::shared_ptr<World> kept = rankOf(state).world;
  World &world = *kept;
  try {
    if (world.problem.empty() && !world.aborted)
      body(lock, rankOf(state));
  } catch (const std::exception &error) {
    world.fail(error.what());
  }
  if (world.problem.empty() && !world.aborted)
    return 0;
  std::snprintf(message, bytes, "%s",
                world.problem.empty() ? "aborted" : world.problem.c_str());
  return 1;
}

std::unique_ptr<Operation> operation(Rank &rank, uint32_t stream,
                                     Operation::Kind kind, std::string what) {
  if (stream >= GRT_STREAM_COUNT)
    throw std::runtime_error("unknown stream " + std::to_string(stream));
  auto made = std::make_unique<Operation>();
  made->kind = kind;
  made->rank = &rank;
  made->stream = stream;
  made->label = std::make_shared<OperationLabel>();
  made->label->rank = rank.number;
  made->label->stream = stream;
  made->label->queue = rank.queueOf(stream);
  made->label->place = rank.place;
  made->label->what = std::move(what);
  made->host = rank.host;
  return made;
}

void put(std::unique_ptr<Operation> made) {
  Rank &rank = *made->rank;
  Stream &stream = rank.streams[made->stream];
  made->label->number = ++stream.issued;
  stream.last = made->label;
  if (rank.capturing) {
    rank.captured.push_back(std::move(made));
    return;
  }
  rank.world->put(*made);
  stream.queue.push_back(std::move(made));
  rank.world->changed.notify_all();
}

/// Notes that the operation uses these addresses; the memory behind them. Null
/// for no bytes.
char *touch(Operation &made, const void *address, uint64_t bytes, bool writes) {
  Allocation *allocation = allocationAt(address);
  const char *begin = static_cast<const char *>(address);
  if (bytes == 0)
    return allocation ? allocation->memory(allocation->offset(address))
                      : nullptr;
  auto wrong = [&](const std::string &where) {
    throw std::runtime_error(
        made.label->text() + (writes ? " writes " : " reads ") +
        std::to_string(bytes) + " bytes" +
        (allocation
             ? " from byte " + std::to_string(allocation->offset(address)) +
                   " of its arena"
             : "") +
        ", " + where);
  };
  if (!allocation ||
      bytes > allocation->addressBytes() - allocation->offset(address))
    wrong("outside the device's memory");
  Rank &rank = *made.rank;
  if (rank.tracksLives && !rank.isAlive(begin, begin + bytes))
    wrong("not within one buffer that is alive");
  uint64_t offset = allocation->offset(address);
  rank.used.insert(allocation);
  made.touches.push_back({allocation, offset, offset + bytes, writes});
  return allocation->memory(offset);
}

//===----------------------------------------------------------------------===//
// The table of the backend
//===----------------------------------------------------------------------===//

template <int Kernel>
int32_t launch(const grt_call *call, char *message, size_t messageBytes) {
  return guarded(
      call->rank_state, message, messageBytes, [&](ModelLock &, Rank &rank) {
        const grt_kernel_op &op = *call->op;
        const KernelBuffers buffers = buffersOf(op);
        std::string what = kernelName(Kernel);
        if (op.name && what != op.name)
          what += std::string(" '") + op.name + "'";
        auto made =
            operation(rank, GRT_STREAM_COMPUTE, Operation::Kind::Work, what);
        if (op.buffer_count > buffers.size())
          throw std::runtime_error(made->label->text() + " has " +
                                   std::to_string(op.buffer_count) +
                                   " buffers");
        // Everything that the call names may be gone when it runs.
        struct Copy {
          grt_kernel_op op;
          std::vector<grt_buffer> buffers;
          std::vector<int64_t> ints;
          std::vector<double> reals;
          std::vector<void *> addresses;
          grt_coordinates coordinates;
          grt_step *step = nullptr;
          int32_t accumulate;
        };
        auto copy = std::make_shared<Copy>();
        copy->op = op;
        copy->buffers.assign(op.buffers, op.buffers + op.buffer_count);
        copy->ints.assign(op.ints, op.ints + op.int_count);
        copy->reals.assign(op.reals, op.reals + op.real_count);
        copy->coordinates = *call->coordinates;
        copy->accumulate = call->accumulate;
        for (uint32_t i = 0; i < op.buffer_count; ++i) {
          const Access access = buffers[i].access;
          // Rows that lie apart may end before their buffer.
          const int64_t unit = buffers[i].elements == Elements::Bytes
                                   ? 1
                                   : bytesOfElement(op.buffers[i].dtype);
          const uint64_t bytes = buffers[i].hasRows
                                     ? uint64_t(buffers[i].reach() * unit)
                                     : op.buffers[i].bytes;
          void *memory = nullptr;
          if (reads(access))
            memory = touch(*made, call->buffers[i], bytes, false);
          if (writes(access))
            memory = touch(*made, call->buffers[i], bytes, true);
          copy->addresses.push_back(memory);
        }
        char *step = reinterpret_cast<char *>(call->step);
        constexpr uint64_t norm = offsetof(grt_step, local_norm_squared);
        constexpr StepUse use = kernelForms[Kernel].stepUse;
        if (use == StepUse::Reads) {
          step = touch(*made, step, norm, false);
        } else if (use == StepUse::AddsNorm) {
          char *sum = touch(*made, step + norm, sizeof(double), true);
          step = sum - norm;
        }
        if (use != StepUse::None)
          copy->step = reinterpret_cast<grt_step *>(step);
        bool backward = isAttentionGrad(Kernel);
        if (isAttention(Kernel)) {
          // Another device's scratch memory may be too little for the kernels
          // that are here.
          grt_buffer &scratch =
              copy->buffers[size_t(attentionScratch(backward))];
          uint32_t element = uint32_t(dtypeBytes(op.buffers[0].dtype));
          uint64_t needed = 0;
          if (isWindowAttention(Kernel)) {
            WindowShape shape(op);
            needed = grt_cpu_window_scratch_bytes(
                shape.windows(), shape.window, shape.heads, shape.headDim,
                element, backward, /*threads=*/1);
          } else {
            const auto n = intsOf<kernels::Attention>(op);
            needed = grt_cpu_attention_scratch_bytes(n.Tq, n.Tk, n.headDim,
                                                     element, backward);
            if (isBiasedAttention(Kernel))
              needed +=
                  grt_cpu_bias_scratch_bytes(n.Tq, n.Tk, element, backward);
          }
          scratch.bytes = std::max(scratch.bytes, needed);
          rank.scratch.resize(
              std::max(rank.scratch.size(), scratch.bytes + GRT_ALIGNMENT));
          // When it runs: it may yet grow.
          copy->addresses[size_t(attentionScratch(backward))] = nullptr;
        }
        made->run = [copy, backward, &rank](char *text, size_t bytes) {
          copy->op.buffers = copy->buffers.data();
          copy->op.ints = copy->ints.data();
          copy->op.reals = copy->reals.data();
          if (isAttention(Kernel))
            copy->addresses[size_t(attentionScratch(backward))] =
                reinterpret_cast<void *>(
                    (reinterpret_cast<uintptr_t>(rank.scratch.data()) +
                     GRT_ALIGNMENT - 1) /
                    GRT_ALIGNMENT * GRT_ALIGNMENT);
          grt_call inner{&copy->op,  copy->addresses.data(), &copy->coordinates,
                         copy->step, copy->accumulate,       rank.state};
          return rank.base.kernels[Kernel](&inner, text, bytes);
        };
        put(std::move(made));
      });
}

void *createRank(int32_t number, int32_t threads) {
  void *state = base->create_rank(number, threads);
  ModelLock lock;
  auto *rank = new Rank(0, *base);
  rank->state = state;
  rank->events.resize(eventCount);
  // Alone until it joins the others.
  rank->world = std::make_shared<World>(1, nextSeed);
  rank->world->ranks[0] = rank;
  Clock clock(GRT_STREAM_COUNT + 1);
  rank->host = std::make_shared<const Clock>(clock);
  for (Stream &stream : rank->streams)
    stream.clock = clock;
  return rank;
}

void destroyRank(void *state) {
  std::unique_ptr<Rank> rank(static_cast<Rank *>(state));
  {
    ModelLock lock;
    rank->world->ranks[size_t(rank->number)] = nullptr;
    rank->world->changed.notify_all();
  }
  base->destroy_rank(rank->state);
}

void *keep(std::unique_ptr<Allocation> made) {
  char *address = made->address();
  if (address) {
    ModelLock lock;
    allocations[address] = std::move(made);
  }
  return address;
}

void *allocate(size_t bytes) {
  return keep(std::make_unique<Allocation>(
      *base, grt_arena{std::max<uint64_t>(bytes, 1), 0, 0, 0, 0, 0}, false));
}

void release(void *memory, size_t) {
  ModelLock lock;
  allocations.erase(static_cast<const char *>(memory));
}

void *mapArena(const grt_arena *arena) {
  return keep(std::make_unique<Allocation>(*base, *arena, true));
}

void unmapArena(void *memory, const grt_arena *) { release(memory, 0); }

int32_t prepare(void *state, const grt_kernel_op *op, char *message,
                size_t bytes) {
  return base->prepare(rankOf(state).state, op, message, bytes);
}

//===----------------------------------------------------------------------===//
// The table of the device
//===----------------------------------------------------------------------===//

void *allocateHost(uint64_t bytes) {
  auto *memory = static_cast<char *>(
      std::aligned_alloc(64, std::max<uint64_t>(64, (bytes + 63) / 64 * 64)));
  if (memory) {
    ModelLock lock;
    hostRanges.pin(memory, bytes);
  }
  return memory;
}

void releaseHost(void *memory, uint64_t) {
  ModelLock lock;
  hostRanges.unpin(memory);
  std::free(memory);
}

int32_t pinHost(void *memory, uint64_t bytes, char *message, size_t capacity) {
  ModelLock lock;
  if (hostRanges.anyPinned(memory, bytes)) {
    std::snprintf(message, capacity, "some of it is pinned already");
    return 1;
  }
  hostRanges.pin(memory, bytes);
  return 0;
}

void unpinHost(void *memory, uint64_t) {
  ModelLock lock;
  hostRanges.unpin(memory);
}

int32_t fill(void *state, uint32_t stream, void *to, int32_t byte,
             uint64_t bytes, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operation(rank, stream, Operation::Kind::Work, "fill");
    char *memory = touch(*made, to, bytes, true);
    made->run = [=](char *, size_t) {
      std::memset(memory, byte, bytes);
      return 0;
    };
    put(std::move(made));
  });
}

/// touch() of memory of the device or of the host; of the latter what is
/// pinned, and if `mayBePageable` the home of states too.
char *touchEither(Operation &made, const void *address, uint64_t bytes,
                  bool writes, bool mayBePageable) {
  if (allocationAt(address))
    return touch(made, address, bytes, writes);
  auto [begin, home] = hostRanges.homeAt(address, bytes);
  if (!hostRanges.isPinned(address, bytes) &&
      (!mayBePageable || !home || hostRanges.anyPinned(address, bytes)))
    throw std::runtime_error(
        made.label->text() + " names " + std::to_string(bytes) +
        " bytes of the host that are not pinned" + (home ? " as one" : ""));
  if (home) {
    auto at = uint64_t(static_cast<const char *>(address) - begin);
    made.touches.push_back({nullptr, at, at + bytes, writes, home});
  }
  return static_cast<char *>(const_cast<void *>(address));
}

int32_t copy(void *state, uint32_t stream, void *to, const void *from,
             uint64_t bytes, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operation(rank, stream, Operation::Kind::Work, "copy");
    const char *source =
        touchEither(*made, from, bytes, false, /*mayBePageable=*/true);
    char *target = touchEither(*made, to, bytes, true, /*mayBePageable=*/true);
    made->run = [=](char *, size_t) {
      std::memmove(target, source, bytes);
      return 0;
    };
    put(std::move(made));
  });
}

void checkEvent(uint32_t event) {
  if (event >= eventCount)
    throw std::runtime_error("unknown event " + std::to_string(event));
}

int32_t record(void *state, uint32_t stream, uint32_t event, char *message,
               size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    checkEvent(event);
    auto made = operation(rank, stream, Operation::Kind::Record,
                          "record of event " + std::to_string(event));
    made->marker = rank.events[event] = std::make_shared<Marker>();
    made->marker->capture = rank.capturing ? rank.captures : 0;
    put(std::move(made));
  });
}

int32_t waitFor(void *state, uint32_t stream, uint32_t event, char *message,
                size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    checkEvent(event);
    auto made = operation(rank, stream, Operation::Kind::Wait,
                          "wait for event " + std::to_string(event));
    made->marker = rank.events[event];
    if (!made->marker)
      throw std::runtime_error(made->label->text() +
                               ", which was never recorded");
    if (made->marker->capture != (rank.capturing ? rank.captures : 0))
      throw std::runtime_error(made->label->text() + ", which was recorded " +
                               (made->marker->capture
                                    ? "in another graph"
                                    : "outside of the graph"));
    put(std::move(made));
  });
}

int32_t recordForHost(void *state, uint32_t stream, uint32_t event,
                      char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    checkEvent(event);
    auto made =
        operation(rank, stream, Operation::Kind::Record,
                  "record of event " + std::to_string(event) + " for the host");
    made->marker = std::make_shared<Marker>();
    made->marker->capture = rank.capturing ? rank.captures : 0;
    rank.events[event] = made->marker;
    if (rank.capturing)
      made->hostEvent = event;
    put(std::move(made));
  });
}

int32_t await(void *state, uint32_t event, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &lock, Rank &rank) {
    checkEvent(event);
    if (rank.capturing)
      throw std::runtime_error("the host waits while a graph is made");
    const std::shared_ptr<Marker> marker = rank.events[event];
    if (!marker || marker->capture)
      throw std::runtime_error(
          "the host waits for event " + std::to_string(event) + ", which " +
          (marker ? "only a graph that was not started" : "nothing") +
          " records");
    rank.world->await(lock, rank, marker);
  });
}

int32_t addResults(void *state, const double *losses, uint64_t count,
                   grt_step *step, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operation(rank, GRT_STREAM_COMPUTE, Operation::Kind::Work,
                          "sum of losses");
    auto *from = reinterpret_cast<const double *>(
        touch(*made, losses, count * sizeof(double), false));
    auto *to = reinterpret_cast<double *>(
        touch(*made, &step->local_loss, sizeof(double), true));
    made->run = [=](char *, size_t) {
      *to = 0;
      for (uint64_t m = 0; m < count; ++m)
        *to += from[m];
      return 0;
    };
    put(std::move(made));
  });
}

int32_t decideUpdate(void *state, const double *results, uint64_t ranks,
                     int32_t clips, grt_step *step, char *message,
                     size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operation(rank, GRT_STREAM_COMPUTE, Operation::Kind::Work,
                          "decision of the update");
    auto *from = reinterpret_cast<const RankResults *>(
        touch(*made, results, ranks * sizeof(RankResults), false));
    touch(*made, &step->clip_norm, sizeof(double), false);
    touch(*made, &step->skip_norm, sizeof(double), false);
    touch(*made, &step->update_left_out, sizeof(uint32_t), true);
    auto *block = reinterpret_cast<grt_step *>(
        touch(*made, &step->clip_factor, sizeof(double), true) -
        offsetof(grt_step, clip_factor));
    made->run = [=](char *, size_t) {
      const UpdateDecision decision = grt::decideUpdate(
          from, ranks, clips != 0, block->clip_norm, block->skip_norm);
      block->clip_factor = decision.clipFactor;
      block->update_left_out = decision.leftOut;
      return 0;
    };
    put(std::move(made));
  });
}

int32_t synchronise(void *state, uint32_t stream, char *message,
                    size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &lock, Rank &rank) {
    if (rank.capturing)
      throw std::runtime_error("the host waits while a graph is made");
    rank.world->drain(lock, rank, stream);
  });
}

int32_t elapsed(void *state, uint32_t first, uint32_t second,
                double *milliseconds, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    for (uint32_t event : {first, second}) {
      checkEvent(event);
      if (!rank.events[event] || !rank.events[event]->done)
        throw std::runtime_error("event " + std::to_string(event) +
                                 " is not done");
    }
    *milliseconds =
        rank.events[second]->milliseconds - rank.events[first]->milliseconds;
  });
}

int32_t stamp(void *state, uint32_t stream, uint32_t number, char *message,
              size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operation(rank, stream, Operation::Kind::Record,
                          "stamp " + std::to_string(number));
    if (rank.capturing)
      throw std::runtime_error(made->label->text() + " is in a graph");
    made->marker = std::make_shared<Marker>();
    rank.stamps.resize(std::max(rank.stamps.size(), size_t(number) + 1));
    rank.stamps[number] = made->marker;
    put(std::move(made));
  });
}

int32_t stamped(void *state, uint32_t number, double *milliseconds,
                char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    if (number >= rank.stamps.size() || !rank.stamps[number] ||
        !rank.stamps[number]->done)
      throw std::runtime_error("stamp " + std::to_string(number) +
                               " is not there");
    *milliseconds = rank.stamps[number]->milliseconds;
  });
}

/// Asked when something went wrong already, so it goes on then.
int32_t query(void *state, uint32_t event, int32_t *done, char *message,
              size_t capacity) {
  ModelLock lock;
  const Rank &rank = rankOf(state);
  if (event >= eventCount || !rank.events[event]) {
    std::snprintf(message, capacity, "event %u was never recorded", event);
    return 1;
  }
  *done = rank.events[event]->done;
  return 0;
}

/// A number to look for.
uint64_t peakBytes(void *) { return uint64_t(64) << 20; }

/// What stands on other streams comes before what COMPUTE gets from here on.
void expectJoined(Rank &rank, const char *what, bool all) {
  auto made =
      operation(rank, GRT_STREAM_COMPUTE, Operation::Kind::Joined, what);
  bool any = false;
  for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
    if (s != GRT_STREAM_COMPUTE &&
        (all || rank.streams[s].issued > rank.issuedBefore[s])) {
      made->before[s] = rank.streams[s].last;
      any |= made->before[s] != nullptr;
    }
  if (any)
    put(std::move(made));
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

int32_t beginGraph(void *state, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    if (rank.capturing)
      throw std::runtime_error("a graph is begun inside another");
    rank.capturing = true;
    ++rank.captures;
    for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
      rank.beforeCapture[s] = {rank.streams[s].issued, rank.streams[s].last};
  });
}

int32_t endGraph(void *state, uint32_t graph, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    if (!rank.capturing)
      throw std::runtime_error("a graph is ended that was not begun");
    rank.capturing = false;
    rank.graphs[graph] = std::exchange(rank.captured, {});
    // Nothing of it stands on the streams.
    for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
      std::tie(rank.streams[s].issued, rank.streams[s].last) =
          rank.beforeCapture[s];
  });
}

/// `then` waits for what is on `first` now.
void orderStreams(Rank &rank, uint32_t first, uint32_t then,
                  const std::string &what) {
  auto before = operation(rank, first, Operation::Kind::Record, what);
  auto behind = operation(rank, then, Operation::Kind::Wait, what);
  before->marker = behind->marker = std::make_shared<Marker>();
  put(std::move(before));
  put(std::move(behind));
}

/// Puts the graph's operations on the streams anew: a device orders them by
/// what was recorded and waited for inside, and all of them by COMPUTE.
int32_t launchGraph(void *state, uint32_t graph, char *message,
                    size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto found = rank.graphs.find(graph);
    std::string name = "graph " + std::to_string(graph);
    if (rank.capturing || found == rank.graphs.end())
      throw std::runtime_error(name + " cannot be started here");
    // A graph knows of other streams only what COMPUTE has waited for.
    expectJoined(rank, ("the start of " + name).c_str(), true);
    for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
      if (s != GRT_STREAM_COMPUTE)
        orderStreams(rank, GRT_STREAM_COMPUTE, s, "start of " + name);
    std::map<const Marker *, std::shared_ptr<Marker>> markers;
    std::map<const OperationLabel *, LabelPointer> labels;
    for (const std::unique_ptr<Operation> &original : found->second) {
      auto made = std::make_unique<Operation>(*original);
      made->label = std::make_shared<OperationLabel>(*original->label);
      made->label->place = name + " of " + original->label->place;
      labels[original->label.get()] = made->label;
      made->host = rank.host;
      if (made->marker) {
        std::shared_ptr<Marker> &marker = markers[original->marker.get()];
        if (!marker)
          marker = std::make_shared<Marker>();
        made->marker = marker;
        if (made->hostEvent)
          rank.events[*made->hostEvent] = marker;
      }
      for (LabelPointer &before : made->before)
        if (before)
          before =
              labels.contains(before.get()) ? labels[before.get()] : nullptr;
      put(std::move(made));
    }
    for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
      if (s != GRT_STREAM_COMPUTE)
        orderStreams(rank, s, GRT_STREAM_COMPUTE, "end of " + name);
  });
}

void note(void *state, uint32_t kind, const void *address, uint64_t bytes,
          const char *name) {
  char message[8];
  auto *begin = static_cast<const char *>(address);
  if (kind == GRT_NOTE_HOME) {
    // Whatever went wrong before: other memory may soon be there.
    UncountedAllocations uncounted;
    ModelLock lock;
    hostRanges.setHome(begin, bytes);
    return;
  }
  guarded(state, message, sizeof(message), [&](ModelLock &, Rank &rank) {
    switch (kind) {
    case GRT_NOTE_STATIC:
      rank.kept.push_back({begin, begin + bytes});
      break;
    case GRT_NOTE_BEGIN:
      rank.live.push_back({begin, begin + bytes});
      break;
    case GRT_NOTE_END: {
      auto last = std::find_if(
          rank.live.rbegin(), rank.live.rend(), [&](const Rank::Span &span) {
            return span.begin == begin && span.end == begin + bytes;
          });
      if (last != rank.live.rend())
        rank.live.erase(std::next(last).base());
      break;
    }
    case GRT_NOTE_FORGET:
      rank.live.clear();
      rank.tracksLives = bytes != 0;
      break;
    case GRT_NOTE_PLACE:
      rank.place = name;
      break;
    case GRT_NOTE_JOINED:
      expectJoined(rank, "the end of the step", true);
      break;
    case GRT_NOTE_FUNCTION_BEGIN:
      for (uint32_t s = 0; s < GRT_STREAM_COUNT; ++s)
        rank.issuedBefore[s] = rank.streams[s].issued;
      break;
    case GRT_NOTE_FUNCTION_END:
      expectJoined(rank, "the end of the function", false);
      break;
    case GRT_NOTE_AT_HOME: {
      auto [base, home] = hostRanges.homeAt(address, bytes);
      if (!home)
        throw std::runtime_error(std::string(name) +
                                 " is done outside of the home");
      auto at = uint64_t(begin - base);
      rank.world->useByHost(rank, {nullptr, at, at + bytes, true, home}, name);
      break;
    }
    default:
      break;
    }
  });
}

//===----------------------------------------------------------------------===//
// The table of the collectives
//===----------------------------------------------------------------------===//

/// Worlds are known by number: an identity is plain bytes.
std::map<uint64_t, std::weak_ptr<World>> worlds;
uint64_t worldCount = 0;

int32_t makeIdentity(void *identity, char *, size_t) {
  ModelLock lock;
  uint64_t number = ++worldCount;
  std::memcpy(identity, &number, sizeof(number));
  return 0;
}

int32_t joinWorld(void *state, const void *identity, int32_t number,
                  int32_t ranks, char *message, size_t capacity) {
  // What the rank did alone is over, for the host too.
  if (int32_t status = synchronise(state, GRT_STREAM_COUNT, message, capacity))
    return status;
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    uint64_t which = 0;
    std::memcpy(&which, identity, sizeof(which));
    std::shared_ptr<World> world = worlds[which].lock();
    if (!world)
      worlds[which] = world = std::make_shared<World>(ranks, nextSeed + which);
    if (world->size() != ranks || number < 0 || number >= ranks ||
        world->ranks[size_t(number)])
      throw std::runtime_error("rank " + std::to_string(number) + " of " +
                               std::to_string(ranks) +
                               " does not fit into the world");
    rank.world->ranks[0] = nullptr;
    rank.number = number;
    rank.world = world;
    world->ranks[size_t(number)] = &rank;
    Clock clock(size_t(ranks) * (GRT_STREAM_COUNT + 1));
    rank.host = std::make_shared<const Clock>(clock);
    for (Stream &stream : rank.streams) {
      stream.clock = clock;
      stream.issued = 0;
      stream.last = nullptr;
    }
    std::fill(rank.events.begin(), rank.events.end(), nullptr);
    for (Allocation *allocation : rank.used)
      allocation->accesses.forget();
  });
}

int32_t makeGroup(void *state, const int32_t *ranks, int32_t count,
                  void **group, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    *group = nullptr;
    if (count == 0)
      return;
    std::vector<int> list(ranks, ranks + count);
    if (std::find(list.begin(), list.end(), rank.number) == list.end())
      throw std::runtime_error("rank " + std::to_string(rank.number) +
                               " is not in its group");
    *group = rank.world->group(list);
  });
}

/// An operation that all members of a group have.
std::unique_ptr<Operation> operationOf(Rank &rank, void *handle,
                                       uint32_t stream, Operation::Kind kind) {
  auto *group = static_cast<Group *>(handle);
  if (!group)
    throw std::runtime_error("a collective without a group");
  // The touches' messages need a name before the part is known.
  auto made = operation(rank, stream, kind, "collective");
  made->group = group;
  made->member =
      size_t(std::find(group->ranks.begin(), group->ranks.end(), rank.number) -
             group->ranks.begin());
  return made;
}

/// All members run the same layers.
void meetGroup(Operation &made, const char *name) {
  const Rank &rank = *made.rank;
  std::string text = std::string(name) + " of ranks ";
  for (size_t i = 0; i < made.group->ranks.size(); ++i)
    text += (i ? ", " : "") + std::to_string(made.group->ranks[i]);
  made.label->what = text;
  made.label->number = rank.streams[made.stream].issued + 1;
  for (int other : made.group->ranks)
    if (other != rank.number)
      made.meets.push_back(other);
  made.pairing = rank.place + text;
}

void putCollective(Rank &rank, void *handle, uint32_t stream,
                   const std::function<Part(Operation &, const Group &,
                                            size_t member)> &describe) {
  auto made = operationOf(rank, handle, stream, Operation::Kind::Collective);
  made->part = describe(*made, *made->group, made->member);
  meetGroup(*made, collectiveName(made->part.kind));
  put(std::move(made));
}

template <CollectiveKind Kind>
int32_t allReduce(void *state, void *group, uint32_t stream, void *data,
                  uint64_t count, uint32_t dtype, char *message,
                  size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(
        rank, group, stream, [&](Operation &made, const Group &, size_t) {
          uint64_t bytes = count * dtypeBytes(dtype);
          touch(made, data, bytes, false);
          char *memory = touch(made, data, bytes, true);
          return Part{Kind, memory, memory, nullptr, count, dtype, false};
        });
  });
}

int32_t allGather(void *state, void *group, uint32_t stream, const void *in,
                  void *out, uint64_t bytes, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(rank, group, stream,
                  [&](Operation &made, const Group &members, size_t) {
                    char *from = touch(made, in, bytes, false);
                    char *to =
                        touch(made, out, bytes * members.ranks.size(), true);
                    return Part{CollectiveKind::AllGather,
                                from,
                                to,
                                nullptr,
                                bytes,
                                GRT_U8,
                                false};
                  });
  });
}

int32_t allToAll(void *state, void *group, uint32_t stream, const void *in,
                 void *out, uint64_t bytes, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(rank, group, stream,
                  [&](Operation &made, const Group &members, size_t) {
                    const uint64_t all = bytes * members.ranks.size();
                    char *from = touch(made, in, all, false);
                    char *to = touch(made, out, all, true);
                    return Part{CollectiveKind::AllToAll,
                                from,
                                to,
                                nullptr,
                                bytes,
                                GRT_U8,
                                false};
                  });
  });
}

int32_t reduceScatter(void *state, void *group, uint32_t stream, const void *in,
                      void *out, uint64_t count, uint32_t dtype,
                      int32_t accumulate, void *scratch, char *message,
                      size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    putCollective(
        rank, group, stream,
        [&](Operation &made, const Group &members, size_t) {
          uint64_t bytes = count * dtypeBytes(dtype);
          char *from = touch(made, in, bytes * members.ranks.size(), false);
          if (accumulate)
            touch(made, out, bytes, false);
          char *to = touch(made, out, bytes, true);
          char *room = accumulate ? touch(made, scratch, bytes, true) : nullptr;
          return Part{CollectiveKind::ReduceScatter,
                      from,
                      to,
                      room,
                      count,
                      dtype,
                      accumulate != 0};
        });
  });
}

/// The pieces of an exchange; `peerOf(number)` is the rank that a piece names.
template <typename PeerOf>
void addPieces(Operation &made, std::span<const grt_exchange_piece> sends,
               std::span<const grt_exchange_piece> receives, PeerOf peerOf) {
  for (auto [side, isSend] : {std::pair(sends, true), {receives, false}})
    for (const grt_exchange_piece &piece : side) {
      const std::optional<int> peer = peerOf(piece.peer);
      if (!peer || *peer == made.rank->number)
        throw std::runtime_error(made.label->text() + " names rank " +
                                 std::to_string(piece.peer));
      char *memory = touchEither(made, piece.address, piece.bytes, !isSend,
                                 /*mayBePageable=*/false);
      made.pieces.push_back({*peer, isSend, memory, piece.bytes, 0});
    }
}

int32_t exchange(void *state, uint32_t stream, const grt_exchange_piece *sends,
                 uint64_t sendCount, const grt_exchange_piece *receives,
                 uint64_t receiveCount, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operation(rank, stream, Operation::Kind::Exchange, "exchange");
    made->label->number = rank.streams[stream].issued + 1;
    addPieces(*made, {sends, sendCount}, {receives, receiveCount},
              [&](int peer) -> std::optional<int> {
                if (peer < 0 || peer >= rank.world->size())
                  return std::nullopt;
                return peer;
              });
    std::set<int> peers;
    for (const Piece &piece : made->pieces)
      peers.insert(piece.peer);
    made->meets.assign(peers.begin(), peers.end());
    made->pairing = "an exchange";
    put(std::move(made));
  });
}

int32_t exchangeInGroup(void *state, void *handle, uint32_t stream,
                        const grt_exchange_piece *sends, uint64_t sendCount,
                        const grt_exchange_piece *receives,
                        uint64_t receiveCount, char *message, size_t capacity) {
  return guarded(state, message, capacity, [&](ModelLock &, Rank &rank) {
    auto made = operationOf(rank, handle, stream, Operation::Kind::Exchange);
    addPieces(*made, {sends, sendCount}, {receives, receiveCount},
              [&](int peer) -> std::optional<int> {
                const std::vector<int> &ranks = made->group->ranks;
                if (peer < 0 || size_t(peer) >= ranks.size())
                  return std::nullopt;
                return ranks[size_t(peer)];
              });
    meetGroup(*made, "exchange");
    put(std::move(made));
  });
}

int32_t check(void *state, char *message, size_t capacity) {
  return guarded(state, message, capacity, [](ModelLock &, Rank &) {});
}

void abortWorld(void *state) {
  ModelLock lock;
  World &world = *rankOf(state).world;
  world.aborted = true;
  world.changed.notify_all();
}

template <int... Kernels>
grt_backend makeTable(std::integer_sequence<int, Kernels...>) {
  static const grt_device_collectives collectives = [] {
    grt_device_collectives table{};
    table.bytes = sizeof(table);
    table.in_graphs = 1;
    table.name = "recording";
    table.identity_bytes = sizeof(uint64_t);
    table.make_identity = makeIdentity;
    table.join = joinWorld;
    table.make_group = makeGroup;
    table.all_reduce = allReduce<CollectiveKind::AllReduce>;
    table.all_reduce_max = allReduce<CollectiveKind::AllReduceMax>;
    table.all_to_all = allToAll;
    table.exchange_in_group = exchangeInGroup;
    table.all_gather = allGather;
    table.reduce_scatter = reduceScatter;
    table.exchange = exchange;
    table.check = check;
    table.abort = abortWorld;
    return table;
  }();
  static const grt_device device = [] {
    grt_device table{};
    table.bytes = sizeof(table);
    table.event_count = eventCount;
    table.allocate_host = allocateHost;
    table.release_host = releaseHost;
    table.fill = fill;
    table.copy = copy;
    table.record = record;
    table.wait = waitFor;
    table.synchronise = synchronise;
    table.begin_graph = beginGraph;
    table.end_graph = endGraph;
    table.launch_graph = launchGraph;
    table.elapsed = elapsed;
    table.stamp = stamp;
    table.stamped = stamped;
    table.query = query;
    table.peak_bytes = peakBytes;
    table.local_collectives = &collectives;
    table.note = note;
    table.pin_host = pinHost;
    table.unpin_host = unpinHost;
    table.add_results = addResults;
    table.decide_update = decideUpdate;
    table.record_for_host = recordForHost;
    table.await = await;
    return table;
  }();
  static const grt_kernel_function kernels[] = {
      base->kernels[Kernels] ? launch<Kernels> : nullptr...};
  grt_backend table{};
  table.abi_version = GRT_ABI_VERSION;
  table.bytes = sizeof(table);
  table.name = "recording";
  table.kernels = kernels;
  table.kernel_count = sizeof...(Kernels);
  table.create_rank = createRank;
  table.destroy_rank = destroyRank;
  table.allocate = allocate;
  table.release = release;
  table.map_arena = base->map_arena ? mapArena : nullptr;
  table.unmap_arena = base->unmap_arena ? unmapArena : nullptr;
  table.prepare = base->prepare ? prepare : nullptr;
  table.device = &device;
  return table;
}

} // namespace

const grt_backend *backendAround(const grt_backend *around) {
  static const BackendTable complete(*around);
  static const grt_backend table = [] {
    base = &*complete;
    return makeTable(std::make_integer_sequence<int, GRT_KERNEL_COUNT>());
  }();
  return &table;
}

void setSeed(uint64_t seed) {
  ModelLock lock;
  nextSeed = seed;
}

} // namespace grt::recording
