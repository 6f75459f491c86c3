//===- recording.cpp - A backend that checks how programs use a device ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "recording.h"
#include "../common/call.h"
#include "core/executor.h"
#include "core/program_text.h"
#include "grt/cpu_bounds.h"
#include "grt/update_decision.h"
#include "operations.h"

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

const grt_backend *base = nullptr;

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
  rank->world = std::make_shared<World>(1, nextSeed());
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
    memories().allocations[address] = std::move(made);
  }
  return address;
}

void *allocate(size_t bytes) {
  return keep(std::make_unique<Allocation>(
      *base, grt_arena{std::max<uint64_t>(bytes, 1), 0, 0, 0, 0, 0}, false));
}

void release(void *memory, size_t) {
  ModelLock lock;
  memories().allocations.erase(static_cast<const char *>(memory));
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
    memories().host.pin(memory, bytes);
  }
  return memory;
}

void releaseHost(void *memory, uint64_t) {
  ModelLock lock;
  memories().host.unpin(memory);
  std::free(memory);
}

int32_t pinHost(void *memory, uint64_t bytes, char *message, size_t capacity) {
  ModelLock lock;
  if (memories().host.anyPinned(memory, bytes)) {
    std::snprintf(message, capacity, "some of it is pinned already");
    return 1;
  }
  memories().host.pin(memory, bytes);
  return 0;
}

void unpinHost(void *memory, uint64_t) {
  ModelLock lock;
  memories().host.unpin(memory);
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
    memories().host.setHome(begin, bytes);
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
      auto [base, home] = memories().host.homeAt(address, bytes);
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

template <int... Kernels>
grt_backend makeTable(std::integer_sequence<int, Kernels...>) {
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
    table.local_collectives = &collectivesTable();
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
  nextSeed() = seed;
}

} // namespace grt::recording
