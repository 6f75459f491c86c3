//===- streams_test.cpp - Programs on a model of a device -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs on the recording backend give the bits of runs on plain memory, and what
// is broken on purpose is found. grt-session-test-streams runs the twins there.
//
//===----------------------------------------------------------------------===//

#include "comm/activity.h"
#include "core/backend_table.h"
#include "core/device.h"
#include "recording.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>

using namespace grt;
using namespace grt::test;

namespace {

/// A fault that a backend between the executor and the model makes.
struct Fault {
  enum Kind {
    None,
    DropWait,
    DropRecord,
    DropSendWaits,
    /// A buffer's life ends as soon as it begins.
    EndLife,
    ShiftBuffer,
    SwapCollectives
  } kind;
  int rank = 0;
  uint64_t at = 0; ///< which call of the rank's, from 1
};

struct Faults {
  std::mutex mutex;
  Fault fault{Fault::None};
  std::map<void *, int> ranks; ///< by state
  uint64_t calls = 0;
  bool armed = false, done = false;
  std::function<int32_t()> held;
  /// State of the rank: whether its last exchange only sends, and the events
  /// behind such exchanges.
  bool onlySends = false;
  std::set<uint32_t> sent;

  void reset(const Fault &next) {
    std::lock_guard<std::mutex> lock(mutex);
    fault = next;
    ranks.clear();
    calls = 0;
    armed = done = false;
    held = nullptr;
    onlySends = false;
    sent.clear();
  }
  bool isFaulty(Fault::Kind kind, void *state) {
    return armed && fault.kind == kind && ranks[state] == fault.rank;
  }
  /// True if this call is the one to be changed.
  bool hits(Fault::Kind kind, void *state) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!isFaulty(kind, state) || ++calls != fault.at)
      return false;
    return done = true;
  }
};
Faults faults;

const grt_backend *model() {
  return recording::backendAround(referenceBackend());
}

/// The model's table with faults in front.
const grt_backend *faultyBackend() {
  static const BackendTable backend = [] {
    BackendTable table(*model());
    grt_device_collectives &collectives = table.localCollectives;
    collectives.join = [](void *state, const void *identity, int32_t rank,
                          int32_t ranks, char *message, size_t bytes) {
      {
        std::lock_guard<std::mutex> lock(faults.mutex);
        faults.ranks[state] = rank;
      }
      return model()->device->local_collectives->join(state, identity, rank,
                                                      ranks, message, bytes);
    };
    collectives.exchange =
        [](void *state, uint32_t stream, const grt_exchange_piece *sends,
           uint64_t sendCount, const grt_exchange_piece *receives,
           uint64_t receiveCount, char *message, size_t bytes) {
          {
            std::lock_guard<std::mutex> lock(faults.mutex);
            if (faults.isFaulty(Fault::DropSendWaits, state))
              faults.onlySends = receiveCount == 0;
          }
          return model()->device->local_collectives->exchange(
              state, stream, sends, sendCount, receives, receiveCount, message,
              bytes);
        };
    collectives.all_reduce = [](void *state, void *group, uint32_t stream,
                                void *data, uint64_t count, uint32_t dtype,
                                char *message, size_t bytes) {
      auto call = [=](char *text, size_t most) {
        return model()->device->local_collectives->all_reduce(
            state, group, stream, data, count, dtype, text, most);
      };
      if (faults.hits(Fault::SwapCollectives, state)) {
        faults.held = [call] {
          char text[512];
          return call(text, sizeof(text));
        };
        return 0;
      }
      int32_t status = call(message, bytes);
      if (status == 0 && faults.held &&
          faults.ranks[state] == faults.fault.rank)
        status = std::exchange(faults.held, nullptr)();
      return status;
    };
    table.device.wait = [](void *state, uint32_t stream, uint32_t event,
                           char *message, size_t bytes) {
      bool drops = faults.hits(Fault::DropWait, state);
      if (stream == GRT_STREAM_COMPUTE) {
        std::lock_guard<std::mutex> lock(faults.mutex);
        drops |= faults.isFaulty(Fault::DropSendWaits, state) &&
                 faults.sent.count(event);
      }
      return drops
                 ? 0
                 : model()->device->wait(state, stream, event, message, bytes);
    };
    table.device.record = [](void *state, uint32_t stream, uint32_t event,
                             char *message, size_t bytes) {
      // Marks of the flight recorder order nothing.
      const uint32_t events = model()->device->event_count;
      bool orders = event < events - Device::marksOf(events);
      if (orders && faults.hits(Fault::DropRecord, state))
        return 0;
      {
        std::lock_guard<std::mutex> lock(faults.mutex);
        if (faults.isFaulty(Fault::DropSendWaits, state)) {
          faults.sent.erase(event);
          if (stream == GRT_STREAM_TRANSFER && faults.onlySends)
            faults.sent.insert(event);
        }
      }
      return model()->device->record(state, stream, event, message, bytes);
    };
    table.device.note = [](void *state, uint32_t kind, const void *address,
                           uint64_t bytes, const char *name) {
      model()->device->note(state, kind, address, bytes, name);
      if (kind == GRT_NOTE_BEGIN && faults.hits(Fault::EndLife, state))
        model()->device->note(state, GRT_NOTE_END, address, bytes, name);
    };
    table.kernels[GRT_KERNEL_GEMM] = [](const grt_call *call, char *message,
                                        size_t bytes) {
      grt_call shifted = *call;
      std::vector<void *> buffers(call->buffers,
                                  call->buffers + call->op->buffer_count);
      if (faults.hits(Fault::ShiftBuffer, call->rank_state))
        buffers[2] = static_cast<char *>(buffers[2]) + GRT_ALIGNMENT;
      shifted.buffers = buffers.data();
      return model()->kernels[GRT_KERNEL_GEMM](&shifted, message, bytes);
    };
    return table;
  }();
  return &*backend;
}

struct Outcome {
  Status status;
  std::vector<double> losses;
  std::vector<StepKind> kinds;
  std::vector<bool> skipped;
  TensorMap parameters, gradients;
};

Outcome train(const ModelPlan &plan, const grt_backend *backend, int steps,
              bool poison = true, bool graphs = true,
              const std::string &flightFile = "", bool skips = false) {
  Outcome outcome;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;
  SessionOptions options;
  options.seed = 17;
  options.backend = backend;
  options.poison = poison;
  options.graphs = graphs;
  options.flightFile = flightFile;
  // Ranks wait for ever if a call is missing.
  if (faults.fault.kind == Fault::SwapCollectives)
    options.timeoutSeconds = 2;
  outcome.status = Program::loadMemory(code.file(), "test", program);
  if (outcome.status)
    outcome.status = Session::create(program, options, session);
  EXPECT_TRUE(outcome.status) << outcome.status.message();
  if (!outcome.status)
    return outcome;
  {
    std::lock_guard<std::mutex> lock(faults.mutex);
    faults.armed = true;
  }
  session->hyperparameters().learningRate = 0.05;
  session->hyperparameters().clipNorm = 0.1;
  std::mt19937 random(5);
  for (int step = 0; step < steps && outcome.status; ++step) {
    std::vector<int32_t> tokens, labels;
    for (int64_t i = 0; i < plan.batch * plan.seqLen; ++i) {
      tokens.push_back(int32_t(random() % uint64_t(plan.vocab)));
      labels.push_back(int32_t(random() % uint64_t(plan.vocab)));
    }
    EXPECT_TRUE(session->setBatch(tokens, labels));
    // The rate differs from step to step, so a graph must not hold it.
    session->hyperparameters().learningRate = 0.05 / (1 + step);
    // The limit of every third step is below any gradient, so its update is
    // left out.
    session->hyperparameters().skipNorm = skips && step % 3 == 2 ? 1e-9 : 0;
    StepResult result;
    outcome.status = session->step(result);
    outcome.losses.push_back(result.loss);
    outcome.kinds.push_back(result.kind);
    outcome.skipped.push_back(result.skipped);
    // The evaluation runs between two graphs, on the streams themselves.
    double loss = 0;
    uint64_t valid = 0;
    if (outcome.status && step == 2) {
      outcome.status = session->evaluate(loss, valid);
      outcome.losses.push_back(loss);
    }
  }
  if (outcome.status)
    outcome.status = session->finish();
  if (outcome.status) {
    EXPECT_TRUE(session->parameters(outcome.parameters));
    EXPECT_TRUE(session->gradients(outcome.gradients));
  }
  return outcome;
}

/// Plans that use all streams between them.
std::vector<ModelPlan> plans() {
  ModelPlan sharded;
  sharded.streams = true;
  sharded.tied = true;
  for (LayerPlan &layer : sharded.layers)
    layer.levels = {{"dp", 2}, {"sdp", 2}};
  sharded.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};

  ModelPlan pipeline;
  pipeline.streams = true;
  pipeline.tied = true;
  pipeline.microBatches = 4;
  pipeline.oneForwardOneBackward = true;
  for (LayerPlan &layer : pipeline.layers)
    layer.levels = {{"dp", 2}};
  pipeline.stages = {{{0, 1}, {1, 0}}, {{2}, {2, 3}}};

  ModelPlan mixed;
  mixed.streams = true;
  mixed.layers[0].levels = {{"tp", 2}, {"sdp", 2}};
  mixed.layers[1].levels = {{"sdp", 4}};
  mixed.layers[2].levels = {{"dp", 2}, {"tp", 2}};
  mixed.layers[2].ckpt = true;
  mixed.stages = {{{0, 1}, {0, 1, 2, 3}}, {{2}, {4, 5, 6, 7}}};
  return {sharded, pipeline, mixed};
}

std::vector<double> bitsOf(const TensorMap &tensors) {
  std::vector<double> all;
  for (const auto &[name, tensor] : tensors)
    all.insert(all.end(), tensor.values.begin(), tensor.values.end());
  return all;
}

TEST(Streams, GiveTheBitsOfPlainMemoryInEveryOrder) {
  faults.reset({Fault::None});
  for (const ModelPlan &plan : plans()) {
    Outcome expected = train(plan, referenceBackend(), 4);
    for (uint64_t seed = 1; seed <= 25; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      recording::setSeed(seed);
      Outcome found = train(plan, model(), 4, /*poison=*/seed % 2);
      ASSERT_TRUE(found.status) << found.status.message();
      EXPECT_EQ(expected.losses, found.losses);
      EXPECT_EQ(bitsOf(expected.parameters), bitsOf(found.parameters));
      EXPECT_EQ(bitsOf(expected.gradients), bitsOf(found.gradients));
    }
  }
}

/// Counts of the calls that were made of the model.
struct Calls {
  std::atomic<int> begun, launched, products;
};
Calls calls;

const grt_backend *countedBackend() {
  static const BackendTable backend = [] {
    BackendTable table(*model());
    table.device.begin_graph = [](void *state, char *message, size_t bytes) {
      ++calls.begun;
      return model()->device->begin_graph(state, message, bytes);
    };
    table.device.launch_graph = [](void *state, uint32_t graph, char *message,
                                   size_t bytes) {
      ++calls.launched;
      return model()->device->launch_graph(state, graph, message, bytes);
    };
    table.kernels[GRT_KERNEL_GEMM] = [](const grt_call *call, char *message,
                                        size_t bytes) {
      ++calls.products;
      return model()->kernels[GRT_KERNEL_GEMM](call, message, bytes);
    };
    return table;
  }();
  calls.begun = calls.launched = calls.products = 0;
  return &*backend;
}

/// `decides` says whether the backend can decide of the update.
void expectGraphs(bool decides, uint64_t workspace, int graphs) {
  for (ModelPlan plan : plans()) {
    plan.workspace = workspace;
    const BackendTable cannot = [] {
      BackendTable table(*countedBackend());
      table.device.decide_update = nullptr;
      return table;
    }();
    auto counted = [&] {
      const grt_backend *backend = countedBackend();
      return decides ? backend : &*cannot;
    };
    int ranks = 0;
    for (const StagePlan &stage : plan.stages)
      ranks += int(stage.devices.size());
    Outcome expected =
        train(plan, counted(), 2, /*poison=*/true, /*graphs=*/false);
    ASSERT_TRUE(expected.status) << expected.status.message();
    int products = calls.products;
    EXPECT_EQ(calls.begun, 0);
    EXPECT_GT(products, 0);
    Outcome two = train(plan, counted(), 2);
    ASSERT_TRUE(two.status) << two.status.message();
    EXPECT_EQ(calls.products, products);
    EXPECT_EQ(calls.begun, graphs * ranks);
    EXPECT_EQ(calls.launched, graphs * ranks);
    EXPECT_EQ(two.losses, expected.losses);
    EXPECT_EQ(bitsOf(two.parameters), bitsOf(expected.parameters));

    // The evaluation behind the third step does not call the device less.
    expected = train(plan, counted(), 6, true, false);
    int plain = calls.products;
    Outcome six = train(plan, counted(), 6);
    ASSERT_TRUE(six.status) << six.status.message();
    EXPECT_EQ(calls.begun, graphs * ranks);
    EXPECT_EQ(calls.launched, 5 * graphs * ranks);
    EXPECT_EQ(calls.products, plain - 4 * (products / 2));
    EXPECT_EQ(six.losses, expected.losses);
    // Making graphs is not running them.
    EXPECT_EQ(expected.kinds, std::vector<StepKind>(6, StepKind::Calls));
    std::vector<StepKind> kinds(6, StepKind::Graphs);
    kinds[0] = kinds[1] = StepKind::Calls;
    EXPECT_EQ(six.kinds, kinds);
    EXPECT_EQ(bitsOf(six.parameters), bitsOf(expected.parameters));
    EXPECT_EQ(bitsOf(six.gradients), bitsOf(expected.gradients));
  }
}

/// A step is one graph where the device decides of the update, and results of
/// all ranks have room; else two.
TEST(Streams, StepsArePutOnStreamsTwiceAndThenAreOneGraph) {
  faults.reset({Fault::None});
  constexpr uint64_t room = 8 * 2 * sizeof(double);
  expectGraphs(true, room, 1);
  expectGraphs(true, room / 2 - 1, 2);
  expectGraphs(false, room, 2);
}

/// Plans whose steps are one graph.
std::vector<ModelPlan> plansOfOneGraph() {
  std::vector<ModelPlan> all = plans();
  for (ModelPlan &plan : all)
    plan.workspace = 8 * 2 * sizeof(double);
  return all;
}

TEST(Streams, AGraphLeavesUpdatesOut) {
  faults.reset({Fault::None});
  for (const ModelPlan &plan : plansOfOneGraph()) {
    Outcome expected =
        train(plan, referenceBackend(), 7, true, true, "", /*skips=*/true);
    Outcome found = train(plan, model(), 7, true, true, "", /*skips=*/true);
    ASSERT_TRUE(found.status) << found.status.message();
    EXPECT_EQ(found.skipped, (std::vector<bool>{false, false, true, false,
                                                false, true, false}));
    EXPECT_EQ(found.skipped, expected.skipped);
    EXPECT_EQ(found.kinds.back(), StepKind::Graphs);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(bitsOf(found.parameters), bitsOf(expected.parameters));
  }
}

/// A device that decides wrongly, a host that waits for what no graph records,
/// and for an event of the graph's own; an event that comes too early.
TEST(Streams, FaultsOfOneGraphAreFound) {
  faults.reset({Fault::None});
  const ModelPlan plan = plansOfOneGraph()[0];
  const Outcome expected = train(plan, model(), 4);
  ASSERT_TRUE(expected.status) << expected.status.message();
  auto outcomeWith = [&](auto change) {
    BackendTable table(*model());
    change(table.device);
    return train(plan, &*table, 4);
  };
  Outcome found = outcomeWith([](grt_device &device) {
    device.decide_update = [](void *state, const double *results,
                              uint64_t ranks, int32_t, grt_step *step,
                              char *message, size_t bytes) {
      return model()->device->decide_update(state, results, ranks, /*clips=*/0,
                                            step, message, bytes);
    };
  });
  EXPECT_NE(found.status.message().find(
                "the device decides otherwise than the host: it updates and "
                "clips by 1.0"),
            std::string::npos)
      << found.status.message();

  // The step block says that the results are of another step.
  found = outcomeWith([](grt_device &device) {
    device.await = [](void *, uint32_t, char *, size_t) { return 0; };
  });
  EXPECT_TRUE(found.status) << found.status.message();
  EXPECT_EQ(found.losses, expected.losses);

  found = outcomeWith([](grt_device &device) {
    device.record_for_host = [](void *, uint32_t, uint32_t, char *, size_t) {
      return 0;
    };
  });
  EXPECT_NE(found.status.message().find("which nothing records"),
            std::string::npos)
      << found.status.message();

  found = outcomeWith([](grt_device &device) {
    device.record_for_host = model()->device->record;
  });
  EXPECT_NE(found.status.message().find("which only a graph"),
            std::string::npos)
      << found.status.message();
}

/// Calls that no device takes fail at once.
TEST(Streams, WrongCallsAreRefused) {
  const grt_device &device = *model()->device;
  const grt_device_collectives &world = *device.local_collectives;
  char text[512] = "";
  auto refusal = [&](auto body) -> std::string {
    void *state = model()->create_rank(0, 1);
    std::string problem = body(state) == 0 ? "" : text;
    model()->destroy_rank(state);
    return problem;
  };
  const uint32_t events = device.event_count, compute = GRT_STREAM_COMPUTE;
  const std::string unknown = "unknown event " + std::to_string(events);
  const size_t room = sizeof(text);
  EXPECT_EQ(refusal([&](void *state) {
              return device.record(state, GRT_STREAM_OUT, events - 1, text,
                                   room);
            }),
            "");
  EXPECT_EQ(refusal([&](void *state) {
              return device.record(state, GRT_STREAM_COUNT, 0, text, room);
            }),
            "unknown stream 6");
  EXPECT_EQ(refusal([&](void *state) {
              return device.record(state, compute, events, text, room);
            }),
            unknown);
  EXPECT_EQ(refusal([&](void *state) {
              return device.wait(state, compute, events, text, room);
            }),
            unknown);
  EXPECT_EQ(refusal([&](void *state) {
              return device.record_for_host(state, compute, events, text, room);
            }),
            unknown);
  EXPECT_EQ(refusal([&](void *state) {
              return device.await(state, events, text, room);
            }),
            unknown);
  EXPECT_EQ(
      refusal([&](void *state) { return device.await(state, 5, text, room); }),
      "the host waits for event 5, which nothing records");
  double milliseconds = 0;
  EXPECT_EQ(refusal([&](void *state) {
              return device.elapsed(state, 1, 2, &milliseconds, text, room);
            }),
            "event 1 is not done");
  EXPECT_EQ(refusal([&](void *state) {
              return device.record(state, compute, 1, text, room) ||
                     device.synchronise(state, compute, text, room) ||
                     device.elapsed(state, 1, 2, &milliseconds, text, room);
            }),
            "event 2 is not done");
  EXPECT_EQ(refusal([&](void *state) {
              return device.stamp(state, compute, 0, text, room) ||
                     device.synchronise(state, compute, text, room) ||
                     device.stamped(state, 0, &milliseconds, text, room);
            }),
            "");
  EXPECT_EQ(refusal([&](void *state) {
              return device.stamped(state, 0, &milliseconds, text, room);
            }),
            "stamp 0 is not there");
  int32_t done = 0;
  EXPECT_EQ(refusal([&](void *state) {
              return device.query(state, 7, &done, text, room);
            }),
            "event 7 was never recorded");

  // Graphs.
  auto begin = [&](void *state) {
    return device.begin_graph(state, text, room);
  };
  auto end = [&](void *state) {
    return device.end_graph(state, 0, text, room);
  };
  EXPECT_EQ(refusal([&](void *state) { return begin(state) || begin(state); }),
            "a graph is begun inside another");
  EXPECT_EQ(refusal(end), "a graph is ended that was not begun");
  for (uint32_t graph : {0, 1})
    EXPECT_EQ(refusal([&](void *state) {
                return begin(state) || end(state) ||
                       device.launch_graph(state, graph, text, room);
              }),
              graph ? "graph 1 cannot be started here" : "");
  EXPECT_EQ(refusal([&](void *state) {
              return begin(state) || end(state) || begin(state) ||
                     device.launch_graph(state, 0, text, room);
            }),
            "graph 0 cannot be started here");
  EXPECT_NE(refusal([&](void *state) {
              return begin(state) ||
                     device.stamp(state, compute, 0, text, room);
            }).find("stamp 0 (compute 0) is in a graph"),
            std::string::npos)
      << text;

  // Memory of the host that nobody pinned, and no memory of its own.
  std::vector<char> bytes(8);
  EXPECT_NE(refusal([&](void *state) {
              return device.copy(state, compute, bytes.data(), bytes.data(), 8,
                                 text, room);
            }).find(" names 8 bytes of the host that are not pinned"),
            std::string::npos)
      << text;

  // Worlds.
  auto joined = [&](int32_t number, int32_t ranks) {
    return refusal([&](void *state) {
      uint64_t identity[16] = {};
      return world.make_identity(identity, text, room) ||
             world.join(state, identity, number, ranks, text, room);
    });
  };
  EXPECT_EQ(joined(0, 1), "");
  for (int32_t number : {-1, 1})
    EXPECT_EQ(joined(number, 1), "rank " + std::to_string(number) +
                                     " of 1 does not fit into the world");
  void *group = nullptr;
  for (int32_t member : {0, 1})
    EXPECT_EQ(refusal([&](void *state) {
                return world.make_group(state, &member, 1, &group, text, room);
              }),
              member ? "rank 0 is not in its group" : "");
  EXPECT_EQ(refusal([&](void *state) {
              return world.all_reduce(state, nullptr, compute, bytes.data(), 1,
                                      GRT_F32, text, room);
            }),
            "a collective without a group");
  for (int peer : {-1, 0, 1}) {
    grt_exchange_piece piece{};
    piece.peer = peer;
    EXPECT_NE(refusal([&](void *state) {
                return world.exchange(state, compute, &piece, 1, nullptr, 0,
                                      text, room);
              }).find(" names rank " + std::to_string(peer)),
              std::string::npos)
        << text;
  }
}

TEST(Streams, AGraphKnowsItsOwnEventsOnly) {
  const grt_device &device = *model()->device;
  char text[512] = "";
  auto problemOf = [&](auto body) {
    void *state = model()->create_rank(0, 1);
    std::string problem = body(state) == 0 ? "" : text;
    model()->destroy_rank(state);
    return problem;
  };
  auto record = [&](void *state, uint32_t stream) {
    return device.record(state, stream, 3, text, sizeof(text));
  };
  auto wait = [&](void *state, uint32_t stream) {
    return device.wait(state, stream, 3, text, sizeof(text));
  };
  auto begin = [&](void *state) {
    return device.begin_graph(state, text, sizeof(text));
  };
  auto end = [&](void *state) {
    return device.end_graph(state, 0, text, sizeof(text));
  };
  EXPECT_NE(problemOf([&](void *state) {
              return record(state, GRT_STREAM_COMPUTE) || begin(state) ||
                     wait(state, GRT_STREAM_GATHER);
            })
                .find("wait for event 3 (gather 0), which was recorded outside "
                      "of the graph"),
            std::string::npos)
      << text;
  EXPECT_NE(problemOf([&](void *state) {
              return begin(state) || record(state, GRT_STREAM_COMPUTE) ||
                     end(state) || wait(state, GRT_STREAM_GATHER);
            }).find("which was recorded in another graph"),
            std::string::npos)
      << text;
  EXPECT_NE(problemOf([&](void *state) {
              return begin(state) || device.synchronise(state, GRT_STREAM_COUNT,
                                                        text, sizeof(text));
            }).find("the host waits while a graph is made"),
            std::string::npos)
      << text;
  // Nor does one graph know the events of another.
  EXPECT_NE(problemOf([&](void *state) {
              return begin(state) || record(state, GRT_STREAM_COMPUTE) ||
                     end(state) || begin(state) ||
                     wait(state, GRT_STREAM_GATHER);
            }).find("which was recorded in another graph"),
            std::string::npos)
      << text;
  // Another stream has something that COMPUTE has not waited for.
  EXPECT_NE(problemOf([&](void *state) {
              return begin(state) || record(state, GRT_STREAM_COMPUTE) ||
                     end(state) || record(state, GRT_STREAM_TRANSFER) ||
                     device.launch_graph(state, 0, text, sizeof(text)) ||
                     device.synchronise(state, GRT_STREAM_COUNT, text,
                                        sizeof(text));
            }).find("the start of graph 0"),
            std::string::npos)
      << text;
}

TEST(Streams, TheFlightRecorderSaysWhatTheDeviceHasNotDone) {
  std::string file = testing::TempDir() + "grt-streams-flight.json";
  std::set<std::string> states, streams;
  // The scheduler decides how far the device comes before the failure: on a
  // busy machine it may not have done anything yet.
  for (uint64_t seed = 3; seed < 40 && !states.count("done"); ++seed) {
    std::remove(file.c_str());
    faults.reset({Fault::DropSendWaits, 1});
    recording::setSeed(seed);
    Outcome outcome = train(plans()[1], faultyBackend(), 2, true, true, file);
    ASSERT_EQ(outcome.status.exitCode(), 1);
    std::ifstream in(file);
    ASSERT_TRUE(in);
    nlohmann::json flight = nlohmann::json::parse(in);
    EXPECT_EQ(flight.at("reason"), outcome.status.message());
    ASSERT_EQ(flight.at("ranks").size(), 4u);
    for (const nlohmann::json &rank : flight.at("ranks")) {
      uint64_t last = 0;
      EXPECT_GT(rank.at("operations").size(), 3u);
      for (const nlohmann::json &operation : rank.at("operations")) {
        auto number = operation.at("number").get<uint64_t>();
        EXPECT_GT(number, last);
        last = number;
        states.insert(operation.at("state").get<std::string>());
        streams.insert(operation.at("stream").get<std::string>());
        EXPECT_NE(operation.at("operation"), "");
      }
    }
  }
  EXPECT_TRUE(states.count("done"));
  EXPECT_TRUE(states.count("enqueued"));
  EXPECT_TRUE(streams.count("transfer"));
  EXPECT_TRUE(streams.count("compute"));
  std::remove(file.c_str());
}

/// Breaks the first, second, ... call of a rank until there are no more. Each
/// time that is found, with one of `expected` in the message; or else the
/// values are `otherwise`: the same, as the call was one too many, or wrong, as
/// it did what a program may do. At least `share` of them is found.
enum class Values { Same, Wrong };
void breakEach(Fault::Kind kind, const std::vector<const char *> &expected,
               Values otherwise, double share) {
  constexpr int rank = 1;
  for (const ModelPlan &plan : plans()) {
    faults.reset({Fault::None});
    Outcome right = train(plan, referenceBackend(), 2);
    uint64_t found = 0, at = 1;
    for (;; ++at) {
      faults.reset({kind, rank, at});
      recording::setSeed(at);
      Outcome outcome = train(plan, faultyBackend(), 2);
      if (!faults.done)
        break;
      const std::string &text = outcome.status.message();
      SCOPED_TRACE("call " + std::to_string(at) + ": " + text);
      if (outcome.status) {
        bool same = right.losses == outcome.losses &&
                    bitsOf(right.parameters) == bitsOf(outcome.parameters);
        EXPECT_EQ(same, otherwise == Values::Same);
      } else {
        ++found;
        EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                                [&](const char *part) {
                                  return text.find(part) != std::string::npos;
                                }));
        // A value that is not finite was found, not the fault itself.
        EXPECT_TRUE(text.find(" is nan; ") != std::string::npos ||
                    text.find("rank " + std::to_string(rank)) !=
                        std::string::npos);
      }
      if (testing::Test::HasFailure())
        return;
    }
    EXPECT_GE(double(found), share * double(at - 1));
    EXPECT_GT(found, 0u);
  }
}

// A wait may be one too many: another one orders the same memory, or the host
// has waited in between. Whatever is not found changes nothing, in whatever
// order things run.
TEST(Streams, AMissingWaitIsFound) {
  breakEach(Fault::DropWait,
            {"and nothing orders the two", "does not wait for"}, Values::Same,
            0.5);
}

TEST(Streams, AMissingRecordIsFound) {
  breakEach(Fault::DropRecord,
            {"and nothing orders the two", "does not wait for",
             "which was never recorded", "recorded outside of the graph",
             "recorded in another graph"},
            Values::Same, 0.3);
}

// A result that goes 64 bytes too far may still be inside the buffer, where
// only its value shows it.
TEST(Streams, AShiftedBufferIsFound) {
  breakEach(Fault::ShiftBuffer,
            {"not within one buffer that is alive",
             "outside the device's memory", "the gradient norm is nan"},
            Values::Wrong, 0.3);
}

// The last one of a run is not swapped but left out.
TEST(Streams, SwappedCollectivesAreFound) {
  breakEach(Fault::SwapCollectives, {"in one order", "no rank makes progress"},
            Values::Same, 1);
}

// Memory whose buffer has ended is another's.
TEST(Streams, AUseBehindTheEndOfABufferIsFound) {
  for (uint64_t at : {1, 2, 5, 9}) {
    faults.reset({Fault::EndLife, 1, at});
    Outcome outcome = train(plans()[1], faultyBackend(), 2);
    EXPECT_TRUE(faults.done) << at;
    EXPECT_EQ(outcome.status.exitCode(), 1) << at;
    EXPECT_NE(
        outcome.status.message().find("not within one buffer that is alive"),
        std::string::npos)
        << outcome.status.message();
  }
}

/// Functions of rank 1 do not wait until its sends are done.
TEST(Streams, ASendBufferThatIsUsedTooEarlyIsFound) {
  faults.reset({Fault::DropSendWaits, 1});
  recording::setSeed(3);
  Outcome outcome = train(plans()[1], faultyBackend(), 2);
  EXPECT_EQ(outcome.status.exitCode(), 1);
  for (const char *part :
       {"rank 1, step 1, layer 'layer1', transfer: exchange (transfer ",
        "rank 1, step 1, layer 'layer1', functions: add (compute ", " writes",
        " reads", " bytes ", ", and nothing orders the two"})
    EXPECT_NE(outcome.status.message().find(part), std::string::npos)
        << part << "\n"
        << outcome.status.message();
}

/// A session of a plan's program on a backend, and how its start went.
struct OpenedSession {
  TestProgram code;
  std::unique_ptr<Session> session;
  Status status;

  OpenedSession(const ModelPlan &plan, const grt_backend &backend)
      : code{plan} {
    std::shared_ptr<const Program> program;
    SessionOptions options;
    options.backend = &backend;
    status = Program::loadMemory(code.file(), "test", program);
    if (status)
      status = Session::create(program, options, session);
  }
};

TEST(Streams, ADeviceThatDoesNotStartSaysWhy) {
  grt_backend backend = *model();
  backend.create_rank = [](int32_t, int32_t) -> void * { return nullptr; };
  backend.failure = [] { return "no device here"; };
  OpenedSession opened(ModelPlan(), backend);
  EXPECT_EQ(opened.status.exitCode(), 1);
  EXPECT_EQ(opened.status.message(),
            "rank 0: backend 'recording' does not start: no device here");
}

/// The peak of a device's memory is looked at when a run ends, too.
TEST(Streams, APeakIsThatOfTheWholeRun) {
  static std::atomic<uint64_t> peak;
  peak = 1 << 20;
  grt_device device = *model()->device;
  device.peak_bytes = [](void *) { return peak.load(); };
  grt_backend backend = *model();
  backend.device = &device;
  ModelPlan plan;
  plan.streams = true;
  OpenedSession opened(plan, backend);
  ASSERT_TRUE(opened.status) << opened.status.message();
  EXPECT_EQ(opened.session->memory().at(0).deviceBytes, 1u << 20);
  peak = 3 << 20;
  ASSERT_TRUE(opened.session->finish());
  EXPECT_EQ(opened.session->memory().at(0).deviceBytes, 3u << 20);
}

} // namespace
