//===- order_test.cpp - In which order the backend calls its libraries ----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whole sessions on the backend's own gpu.cpp, rank.cpp, nccl.cpp, cublaslt.cpp
// and thread_collectives.cpp, with libraries that watch them: streams, events,
// captures, graphs, communicators, memory. A session leaves nothing alive and
// gives no reason to complain; of a list of faults each is found. Programs of
// the compiler are unittests/Execution/WatchedTest.cpp's.
//
//===----------------------------------------------------------------------===//

#include "on_backend.h"
#include "order.h"

#include "../collective_blocks.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <unistd.h>

using namespace grt;
using namespace grt::test;
namespace test = grt::test;

namespace {

TEST_F(Order, SessionsAreInOrderAndLeaveNothing) {
  const int64_t times = watched().calls("record of a time");
  const ModelPlan plans[] = {ModelPlan(),
                             planOf({{"dp", 2}}),
                             planOf({{"sdp", 2}}),
                             planOf({{"tp", 2}}),
                             planOf({{"dp", 2}, {"tp", 2}}),
                             planOf({{"sdp", 2}, {"tp", 2}}),
                             pipeline()};
  for (bool graphs : {true, false})
    for (const ModelPlan &plan : plans) {
      SCOPED_TRACE(&plan - plans);
      SCOPED_TRACE(graphs ? "graphs" : "calls");
      int64_t before = watched().calls("cudaGraphLaunch");
      int64_t made = watched().calls("cudaGraphInstantiate");
      expectClean(plan, watched().withNccl(), graphs);
      // One a rank, started in all watchedSteps but the first.
      int64_t ranks = 0;
      for (const StagePlan &stage : plan.stages)
        ranks += int64_t(stage.devices.size());
      EXPECT_EQ(watched().calls("cudaGraphInstantiate") - made,
                graphs ? ranks : 0);
      EXPECT_EQ(watched().calls("cudaGraphLaunch") - before,
                graphs ? ranks * (watchedSteps - 1) : 0);
      expectClean(plan, watched().betweenThreads(), graphs);
    }
  EXPECT_GT(watched().products(), 0);
  // Nothing was recorded, so nobody wants the device's clock.
  EXPECT_EQ(watched().calls("record of a time"), times);
}

/// A communicator for each purpose, which share nothing but a part of the
/// device. Launches on all of them have one order, which every session here is
/// held to (compareOrders of the tests' NCCL).
TEST_F(Order, EveryPurposeHasACommunicatorOfItsOwn) {
  struct Case {
    ModelPlan plan;
    std::set<std::string> names; ///< of rank 0
    int most;                    ///< blocks of each
  };
  const Case cases[] = {
      {planOf({{"dp", 2}}),
       {"'world' of 2", "'gradient of ranks 0 1' of 2"},
       32},
      {planOf({{"tp", 2}}), {"'world' of 2", "'tensor of ranks 0 1' of 2"}, 32},
      {planOf({{"sdp", 2}, {"tp", 2}}),
       {"'world' of 4", "'tensor of ranks 0 1' of 2",
        "'gather of ranks 0 2' of 2", "'gradient of ranks 0 2' of 2"},
       21},
      {pipeline(),
       {"'world' of 4", "'reshard' of 4", "'transfer' of 4",
        "'gather of ranks 0 1' of 2", "'gradient of ranks 0 1' of 2"},
       16}};
  for (const Case &each : cases) {
    SCOPED_TRACE(&each - cases);
    const std::string all = communicatorsOf(each.plan, watched().withNccl());
    std::set<std::string> names;
    std::istringstream lines(all);
    const std::string own = "rank 0: ";
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(own, 0) != 0)
        continue;
      const size_t comma = line.find(", ctas ");
      ASSERT_NE(comma, std::string::npos) << line;
      names.insert(line.substr(own.size(), comma - own.size()));
      EXPECT_EQ(line.substr(comma),
                ", ctas " + std::to_string(each.most) + ", share 0");
    }
    EXPECT_EQ(names, each.names) << all;
    EXPECT_EQ(watched().complaints(), "");
    EXPECT_EQ(watched().alive(), "");
  }
}

/// A number of the kind of device, for all that work at once.
TEST(CollectiveBlocks, AreOfTheKindOfDevice) {
  using grt::cuda::blocksOfEach;
  EXPECT_EQ(blocksOfEach(90, 132, 1), 32); // what the library takes at most
  EXPECT_EQ(blocksOfEach(90, 132, 4), 16); // H100
  EXPECT_EQ(blocksOfEach(90, 114, 4), 14); // over PCIe: half of 114
  EXPECT_EQ(blocksOfEach(80, 108, 4), 12); // A100
  EXPECT_EQ(blocksOfEach(89, 128, 4), 4);  // RTX 4090, as its generation's
  EXPECT_EQ(blocksOfEach(100, 148, 3), 24);
  EXPECT_EQ(blocksOfEach(103, 160, 3), 24);
  EXPECT_EQ(blocksOfEach(120, 170, 2), 8);
  EXPECT_EQ(blocksOfEach(90, 16, 4), 2); // a part of one
  EXPECT_EQ(blocksOfEach(90, 2, 4), 1);
  EXPECT_EQ(blocksOfEach(60, 56, 2), 12); // older than all that are listed
}

/// One call of a session that goes wrong, and what is said of it.
struct Injected {
  ModelPlan plan;
  const char *function;
  int64_t number;
  const char *kind;
  const char *said;
};

TEST_F(Order, FaultsOfSessionsAreFound) {
  const ModelPlan data = planOf({{"dp", 2}}), sharded = planOf({{"sdp", 2}});
  const Injected faults[] = {
      // A graph is left when communicators end: NCCL would wait for ever.
      {data, "cudaGraphExecDestroy", 1, "skip", "waits for them for ever"},
      {data, "cudaGraphExecDestroy", 1, "twice", "graph is destroyed that is"},
      {data, "cudaGraphDestroy", 1, "skip", "graphs: 1"},
      {data, "cudaGraphInstantiate", 1, "twice", "executable graphs: 1"},
      // Ranks that do not call alike.
      {data, "ncclAllReduce", 1, "skip", "that nothing ends"},
      {data, "ncclAllReduce", 3, "twice", "that is in progress"},
      {data, "ncclAllReduce", 2, "change", "call differently"},
      {sharded, "ncclAllGather", 1, "change", "call differently"},
      {sharded, "ncclReduceScatter", 1, "skip", "call differently"},
      {data, "ncclCommDestroy", 1, "twice", "communicator that is not alive"},
      {data, "ncclCommDestroy", 2, "skip", "communicators: 1"},
      // Messages between stages.
      {pipeline(), "ncclSend", 1, "change", "another size"},
      {pipeline(), "ncclRecv", 2, "skip", "that nothing ends"},
      {pipeline(), "ncclGroupStart", 1, "skip", "ends that did not begin"},
      {pipeline(), "ncclGroupEnd", 1, "skip", "that nothing ends"},
      // What a rank takes and gives back.
      {data, "cudaStreamDestroy", 1, "twice", "stream that is not alive"},
      {data, "cudaStreamDestroy", 1, "skip", "streams: 1"},
      {data, "cudaEventDestroy", 7, "twice", "event that is not alive"},
      {data, "cudaEventDestroy", 7, "skip", "events: 1"},
      {data, "cudaFreeHost", 1, "skip", "memory: 1"},
      {data, "cuMemUnmap", 1, "skip", "memory: 1"},
  };
  for (const Injected &each : faults) {
    SCOPED_TRACE(std::string(each.kind) + " " + each.function + " " +
                 std::to_string(each.number));
    int64_t before = watched().calls(each.function);
    watched().patience(500);
    watched().fault(each.function, each.number, each.kind);
    // Some end the run, too.
    std::string error = runWatched(each.plan, watched().withNccl());
    EXPECT_GE(watched().calls(each.function), before + each.number);
    watched().fault("", 0, "");
    std::string said = watched().complaints() + watched().forgetAlive();
    EXPECT_NE(said.find(each.said), std::string::npos) << said << error;
  }
}

/// A call fails in the first step, in the one that becomes graphs, and in one
/// that only starts them; the other ranks are told, and all ends in order.
TEST_F(Order, FailuresEndInOrder) {
  for (const ModelPlan &plan : {planOf({{"dp", 2}}), pipeline()})
    for (const char *function :
         {"cudaLaunchKernel", "ncclAllReduce", "cudaGraphLaunch",
          "cudaStreamWaitEvent", "cudaGraphInstantiate", "cudaMalloc",
          "cudaEventRecordWithFlags", "cudaEventSynchronize",
          "ncclCommInitRankConfig", "ncclCommSplit"}) {
      int64_t before = watched().calls(function);
      ASSERT_EQ(runWatched(plan, watched().withNccl()), "");
      int64_t calls = watched().calls(function) - before;
      if (calls == 0)
        continue;
      for (int64_t part : {2, 4, 6, 7}) {
        SCOPED_TRACE(std::string(function) + " " + std::to_string(part));
        watched().fault(function, std::max<int64_t>(calls * part / 8, 1),
                        "fail");
        EXPECT_NE(runWatched(plan, watched().withNccl()), "");
        // A capture is dropped as it is, which CUDA refuses and ends.
        std::string said = watched().complaints();
        const std::string dropped =
            "a stream of a capture does not come back to its origin\n";
        for (size_t at; (at = said.find(dropped)) != std::string::npos;)
          said.erase(at, dropped.size());
        EXPECT_EQ(said, "");
        EXPECT_EQ(watched().forgetAlive(), "");
      }
    }
}

std::string flightPath;
bool wasThere = true;
std::atomic<int> aborts = 0;
void (*abortOf)(void *) = nullptr;

/// Whatever becomes of the abort, what ranks did last is on disk.
TEST_F(Order, TheFlightRecordIsWrittenBeforeDevicesAreAborted) {
  flightPath = testing::TempDir() + "grt-order-flight-" +
               std::to_string(getpid()) + ".json";
  BackendTable backend(*watched().withNccl());
  abortOf = backend.collectives.abort;
  backend.collectives.abort = [](void *state) {
    ++aborts;
    wasThere = wasThere && access(flightPath.c_str(), R_OK) == 0;
    abortOf(state);
  };
  watched().fault("ncclAllReduce", 5, "fail");
  EXPECT_NE(runWatched(planOf({{"dp", 2}}), &*backend, true, "", flightPath),
            "");
  EXPECT_GT(aborts, 0);
  EXPECT_TRUE(wasThere); // at every one
  std::remove(flightPath.c_str());
}

/// A rank's call never gets to its device: both ranks have enqueued it, one
/// of them waits for ever.
TEST_F(Order, AHangNamesTheCollectiveAndTheRank) {
  for (bool graphs : {false, true}) {
    SCOPED_TRACE(graphs ? "graphs" : "calls");
    const ModelPlan plan = planOf({{"dp", 2}});
    const int64_t before = watched().calls("ncclAllReduce");
    ASSERT_EQ(runWatched(plan, watched().withNccl(), graphs), "");
    const int64_t calls = watched().calls("ncclAllReduce") - before;
    // The last of the second step, which becomes a graph.
    watched().fault("ncclAllReduce", graphs ? calls : calls / watchedSteps * 2,
                    "skip");
    const std::string error =
        runWatched(plan, watched().withNccl(), graphs, "", "", /*timeout=*/0.5);
    EXPECT_NE(error.find("makes progress for 0.5 s"), std::string::npos)
        << error;
    EXPECT_NE(error.find(graphs ? "; all ranks started a graph with all-reduce "
                                : "; all ranks enqueued all-reduce "),
              std::string::npos)
        << error;
    const bool isFirst =
        error.find(", rank 0 never finished") != std::string::npos;
    EXPECT_TRUE(isFirst ||
                error.find(", rank 1 never finished") != std::string::npos)
        << error;
    watched().fault("", 0, "");
    // What hung was aborted, and nothing is left.
    watched().complaints();
    watched().forgetAlive();
  }
}

/// A backend on which one rank is slow to launch its kernels.
class SlowRank {
public:
  SlowRank(const grt_backend &of, int32_t rank) : table(of) {
    original = &of;
    slow = rank;
    for (uint32_t i = 0; i < of.kernel_count; ++i)
      kernels.push_back(of.kernels[i] ? launch : nullptr);
    table.kernels = kernels.data();
    table.create_rank = [](int32_t number, int32_t threads) {
      void *state = original->create_rank(number, threads);
      if (number == slow)
        slowState = state;
      return state;
    };
  }
  grt_backend table;
  static inline std::atomic<bool> sleeps = false;
  static inline std::atomic<int> slept = 0;
  static constexpr std::chrono::milliseconds each{2};

private:
  static int32_t launch(const grt_call *call, char *message, size_t bytes) {
    const auto *op = static_cast<const grt_kernel_op *>(call->op);
    if (call->rank_state == slowState && sleeps) {
      std::this_thread::sleep_for(each);
      ++slept;
    }
    return original->kernels[op->kernel](call, message, bytes);
  }
  static inline const grt_backend *original = nullptr;
  static inline int32_t slow = -1;
  static inline std::atomic<void *> slowState = nullptr;
  std::vector<grt_kernel_function> kernels;
};

/// On devices the rank that the others wait for is the one that waits least, in
/// collectives on COMPUTE and where COMPUTE waits for those of other streams;
/// the step in which that is measured is no graph.
TEST_F(Order, DevicesTellWhoWaits) {
  watched().clock(true);
  for (const char *axis : {"tp", "sdp"})
    for (int32_t slow : {0, 1}) {
      SCOPED_TRACE(std::string(axis) + ", rank " + std::to_string(slow));
      const SlowRank backend(*watched().withNccl(), slow);
      ModelPlan plan = planOf({{axis, 2}});
      plan.streams = true;
      TestProgram code(plan);
      std::shared_ptr<const Program> program;
      ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
      SessionOptions options;
      options.backend = &backend.table;
      options.shareDevices = true;
      std::unique_ptr<Session> session;
      ASSERT_TRUE(Session::create(program, options, session));
      const std::vector<int32_t> tokens(size_t(plan.batch * plan.seqLen), 3);
      auto step = [&](bool measures) {
        StepResult result;
        session->measureWaits(measures);
        SlowRank::sleeps = measures;
        const Status status = session->setBatch(tokens, tokens);
        EXPECT_TRUE(status) << status.message();
        const int64_t before = watched().calls("cudaGraphLaunch");
        EXPECT_TRUE(session->step(result));
        EXPECT_TRUE(session->finish());
        return watched().calls("cudaGraphLaunch") - before;
      };
      step(false);
      EXPECT_GT(step(false), 0);
      std::vector<RankWork> work = session->takeWork();
      ASSERT_EQ(work.size(), 2u);
      EXPECT_EQ(work[0].waitedSeconds + work[1].waitedSeconds, 0);
      // Twice, the second time with what was taken the first time. A busy
      // machine makes the other rank late now and then.
      int found = 0;
      for (int tries = 0; tries < 10 && found < 2; ++tries) {
        SlowRank::slept = 0;
        EXPECT_EQ(step(true), 0);
        work = session->takeWork();
        const double waited = work[size_t(1 - slow)].waitedSeconds;
        // All that the slow one is late by, wherever the two meet.
        found += waited > SlowRank::slept * SlowRank::each.count() / 2e3 &&
                 work[size_t(slow)].waitedSeconds < waited / 2;
      }
      EXPECT_EQ(found, 2);
      EXPECT_GT(step(false), 0);
    }
  watched().clock(false);
  EXPECT_EQ(watched().complaints(), "");
  EXPECT_EQ(watched().alive(), "");
}

/// Each of two ranks calls on both communicators, but not in the same order.
TEST_F(Order, CommunicatorsInDifferentOrders) {
  const grt_backend &backend = *watched().withNccl();
  const grt_device_collectives &table = *backend.device->collectives;
  std::vector<char> identity(table.identity_bytes);
  { // A thread of its own chooses its device.
    OnRank any(backend);
    test::run(table.make_identity, static_cast<void *>(identity.data()));
  }
  for (bool alike : {true, false}) {
    auto body = [&](int self) {
      OnRank rank(backend, self);
      test::run(table.join, rank.state,
                static_cast<const void *>(identity.data()), self, 2);
      void *groups[2] = {};
      const int32_t ascending[] = {0, 1}, descending[] = {1, 0};
      test::run(table.make_group, rank.state, ascending, 2, &groups[0]);
      test::run(table.make_group, rank.state, descending, 2, &groups[1]);
      void *memory = backend.allocate(256);
      // Connected one after the other.
      for (void *group : groups) {
        test::run(table.all_reduce, rank.state, group,
                  uint32_t(GRT_STREAM_COMPUTE), memory, uint64_t(64),
                  uint32_t(GRT_F32));
        rank.synchronise();
      }
      const bool turned = self == 1 && !alike;
      // On streams of their own, so that this once nobody waits for ever.
      for (bool second : {turned, !turned})
        test::run(table.all_reduce, rank.state, groups[second],
                  uint32_t(second ? GRT_STREAM_GATHER : GRT_STREAM_COMPUTE),
                  memory, uint64_t(64), uint32_t(GRT_F32));
      rank.synchronise();
      backend.release(memory, 256);
    };
    std::thread other(body, 1);
    body(0);
    other.join();
    std::string said = watched().complaints() + watched().alive();
    EXPECT_EQ(said, alike
                        ? ""
                        : "ranks 0 and 1 use their communicators in different "
                          "orders\n");
    test::run(table.make_identity, static_cast<void *>(identity.data()));
  }
}

/// With a file, algorithms are tried where they are not known yet, and nothing
/// of that is left.
TEST_F(Order, AlgorithmsAreTriedOnce) {
  const std::string file =
      testing::TempDir() + "grt-choices-" + std::to_string(getpid());
  setenv("GRT_CUDA_CHOICES", file.c_str(), 1);
  int64_t before = watched().products();
  expectClean(planOf({{"dp", 2}}), watched().withNccl(), true);
  int64_t first = watched().products() - before;
  expectClean(planOf({{"dp", 2}}), watched().withNccl(), true);
  const int64_t second = watched().products() - before - first;
  EXPECT_LT(second, first);
  const std::string chosen = watched().withNccl()->choices();
  unsetenv("GRT_CUDA_CHOICES");

  // Given by a checkpoint, without the file: the same, and nothing is tried.
  expectClean(planOf({{"dp", 2}}), watched().withNccl(), true, chosen);
  EXPECT_EQ(watched().products() - before - first - second, second);
  EXPECT_EQ(watched().withNccl()->choices(), chosen);
  std::ifstream made(file);
  std::string title, line;
  std::getline(made, title);
  EXPECT_EQ(title, "# products of cuBLASLt 130100 on compute capability 9.0, "
                   "132 multiprocessors");
  EXPECT_TRUE(std::getline(made, line));
  std::remove(file.c_str());
  std::remove((file + ".lock").c_str());
}

} // namespace
