//===- rank_order_test.cpp - One rank, called out of order ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rank on the backend's own files, with libraries that watch them, called
// as the executor would not: each wrong order of calls is a complaint.
//
//===----------------------------------------------------------------------===//

#include "on_backend.h"
#include "order.h"

#include <algorithm>
#include <memory>
#include <thread>

using namespace grt;
using namespace grt::test;
namespace test = grt::test;

namespace {

/// One rank, called as the executor would not.
class OneRank : public Order {
protected:
  OneRank() : rank(std::make_unique<OnRank>(*watched().withNccl())) {}
  ~OneRank() override {
    rank.reset();
    watched().fault("", 0, "");
    watched().complaints();
    watched().forgetAlive();
  }
  void begin() { test::run(rank->device.begin_graph, rank->state); }
  void end() { test::run(rank->device.end_graph, rank->state, 0u); }
  void record(uint32_t stream, uint32_t event) {
    test::run(rank->device.record, rank->state, stream, event);
  }
  void wait(uint32_t stream, uint32_t event) {
    test::run(rank->device.wait, rank->state, stream, event);
  }
  void expectSaid(const char *what) {
    std::string said = watched().complaints() + watched().alive();
    EXPECT_NE(said.find(what), std::string::npos) << said;
  }
  std::unique_ptr<OnRank> rank;
};

TEST_F(OneRank, AStreamThatDoesNotComeBack) {
  for (int64_t left = 1; left < GRT_STREAM_COUNT; ++left) {
    begin();
    watched().fault("cudaStreamWaitEvent", left, "skip");
    EXPECT_ANY_THROW(end());
    expectSaid("does not come back to its origin");
  }
}

TEST_F(OneRank, TheHostWaitsInsideAGraph) {
  begin();
  EXPECT_ANY_THROW(rank->synchronise());
  expectSaid("cudaStreamSynchronize while a graph is captured");
  EXPECT_ANY_THROW(end());
}

TEST_F(OneRank, MemoryIsTakenInsideAGraph) {
  begin();
  EXPECT_FALSE(rank->backend.allocate(64));
  expectSaid("cudaMalloc while a graph is captured");
  EXPECT_ANY_THROW(end());
}

TEST_F(OneRank, AGraphWaitsForWhatIsOutside) {
  record(GRT_STREAM_COMPUTE, 5);
  begin();
  EXPECT_ANY_THROW(wait(GRT_STREAM_COMPUTE, 5));
  expectSaid("waits for what is outside");
  EXPECT_ANY_THROW(end());
}

TEST_F(OneRank, AnEventOfAGraphIsWaitedForOutside) {
  begin();
  record(GRT_STREAM_COMPUTE, 5);
  end();
  EXPECT_ANY_THROW(wait(GRT_STREAM_COMPUTE, 5));
  expectSaid("that only a graph recorded");
}

TEST_F(OneRank, AnEventOfAGraphIsAskedFor) {
  begin();
  record(GRT_STREAM_COMPUTE, 5);
  end();
  int32_t done = 0;
  EXPECT_ANY_THROW(
      test::run(rank->device.query, rank->state, uint32_t(5), &done));
  expectSaid("asks for an event of a graph");
}

TEST_F(OneRank, TheHostWaitsForAnEventInsideAGraph) {
  record(GRT_STREAM_COMPUTE, 5);
  begin();
  EXPECT_ANY_THROW(test::run(rank->device.await, rank->state, uint32_t(5)));
  expectSaid("cudaEventSynchronize while a graph is captured");
  EXPECT_ANY_THROW(end());
}

/// What a graph records for the host: waited for before any start, recorded as
/// an event of the graph's own, memory that work behind the record uses, and
/// events that go before the graph.
TEST_F(OneRank, TheHostWaitsForAnEventOfAGraph) {
  auto recordForHost = [&] {
    test::run(rank->device.record_for_host, rank->state,
              uint32_t(GRT_STREAM_COMPUTE), uint32_t(5));
  };
  auto await = [&] { test::run(rank->device.await, rank->state, uint32_t(5)); };
  {
    DeviceMemory before(*rank, 64), behind(*rank, 64);
    auto fill = [&](DeviceMemory &memory) {
      test::run(rank->device.fill, rank->state, uint32_t(GRT_STREAM_COMPUTE),
                memory.onDevice<void>(), 0, uint64_t(64));
    };
    begin();
    fill(before);
    recordForHost();
    fill(behind);
    end();
    EXPECT_EQ(watched().complaints(), "");
    EXPECT_ANY_THROW(await());
    expectSaid("no graph that was started, recorded");
    test::run(rank->device.launch_graph, rank->state, 0u);
    await();
  }
  EXPECT_EQ(watched().complaints(),
            "cudaFree of memory that a graph may still use\n");
  rank->synchronise();
  begin();
  record(GRT_STREAM_COMPUTE, 5);
  end();
  EXPECT_ANY_THROW(await());
  expectSaid("no graph that was started, recorded");
  begin();
  recordForHost();
  end();
  watched().fault("cudaGraphExecDestroy", 1, "skip");
  rank.reset();
  expectSaid("an event is destroyed that a graph records");
}

TEST_F(OneRank, AnotherThreadEndsAGraph) {
  begin();
  std::thread([&] { EXPECT_ANY_THROW(end()); }).join();
  expectSaid("a capture is ended by another thread");
}

/// Threads that have done nothing yet may give memory back; one whose choice of
/// a device was lost is found.
TEST_F(OneRank, ThreadsChooseTheirDevice) {
  void *memory = rank->backend.allocate(64);
  std::thread([&] { rank->backend.release(memory, 64); }).join();
  EXPECT_EQ(watched().complaints(), "");
  watched().fault("cudaSetDevice", 1, "skip");
  std::thread([&] { record(GRT_STREAM_COMPUTE, 3); }).join();
  expectSaid("cudaEventRecord on a thread that chose no device");
}

TEST_F(OneRank, APlanIsMadeInsideAGraph) {
  setenv("GRT_CUDA_ATTENTION", "cudnn", 1);
  OnRank other(*watched().withNccl());
  unsetenv("GRT_CUDA_ATTENTION");
  const grt_buffer packed = {0, GRT_BF16, 0, 128 * 384 * 2};
  const grt_buffer buffers[] = {packed,
                                packed,
                                packed,
                                {0, GRT_BF16, 0, 128 * 128 * 2},
                                {0, GRT_F32, 0, 128 * 2 * 4},
                                {0, GRT_F32, 0, 64}};
  const int64_t ints[] = {1, 128, 128, 2, 2, 64, 384, 384, 384, 1, 0, 0};
  const double reals[] = {0.125, 0};
  const grt_kernel_op op = {
      GRT_KERNEL_ATTENTION, 6, 12, 2, buffers, ints, reals, "h.0"};
  // A kernel before it has taken the workspace.
  void *workspace = other.backend.allocate(GRT_CUDA_WORKSPACE);
  test::run(other.device.use_workspace, other.state, workspace,
            uint64_t(GRT_CUDA_WORKSPACE));
  test::run(other.device.begin_graph, other.state);
  EXPECT_ANY_THROW(test::run(other.backend.prepare, other.state, &op));
  expectSaid("a plan of cuDNN while a graph is captured");
  EXPECT_ANY_THROW(test::run(other.device.end_graph, other.state, 0u));
  other.backend.release(workspace, GRT_CUDA_WORKSPACE);
}

TEST_F(OneRank, TimesThatNobodyWaitedFor) {
  test::run(rank->device.stamp, rank->state, uint32_t(GRT_STREAM_COMPUTE), 0u);
  rank->synchronise();
  double milliseconds = 0;
  test::run(rank->device.stamped, rank->state, 0u, &milliseconds);
  EXPECT_EQ(watched().complaints(), "");
  {
    DeviceMemory memory(*rank, 64);
    memory.send();
    test::run(rank->device.stamp, rank->state, uint32_t(GRT_STREAM_COMPUTE),
              1u);
    EXPECT_ANY_THROW(
        test::run(rank->device.stamped, rank->state, 1u, &milliseconds));
    rank->synchronise();
  }
  expectSaid("nobody waited for");
}

TEST_F(OneRank, MemoryGoesWhileItIsCopied) {
  for (bool waits : {true, false}) {
    {
      DeviceMemory memory(*rank, 64);
      memory.send();
      if (waits)
        rank->synchronise();
    }
    if (waits)
      EXPECT_EQ(watched().complaints(), "");
    else
      expectSaid("cudaMemcpyAsync may still use");
  }
}

TEST_F(OneRank, ACopyOfPageableMemory) {
  DeviceMemory memory(*rank, 64);
  char pageable[64];
  test::run(rank->device.copy, rank->state, uint32_t(GRT_STREAM_COMPUTE),
            memory.onDevice(), static_cast<const void *>(pageable),
            uint64_t(64));
  expectSaid("not alive, or not pinned");
  rank->synchronise();
}

TEST_F(OneRank, AGraphOfMemoryThatIsGone) {
  {
    DeviceMemory memory(*rank, 64);
    begin();
    test::run(rank->device.fill, rank->state, uint32_t(GRT_STREAM_COMPUTE),
              memory.onDevice(), 0, uint64_t(64));
    end();
    test::run(rank->device.launch_graph, rank->state, 0u);
    rank->synchronise();
  }
  EXPECT_EQ(watched().complaints(), "");
  test::run(rank->device.launch_graph, rank->state, 0u);
  expectSaid("cudaMemsetAsync of memory that is not alive");
  rank->synchronise();
}

TEST_F(OneRank, StreamsEndBehindTheirWork) {
  record(GRT_STREAM_COMPUTE, 1);
  void *memory = rank->backend.allocate(64);
  test::run(rank->device.fill, rank->state, uint32_t(GRT_STREAM_COMPUTE),
            memory, 0, uint64_t(64));
  watched().fault("cudaStreamSynchronize", 1, "skip");
  rank.reset();
  expectSaid("a stream is destroyed that nobody waited for");
  watched().withNccl()->release(memory, 64);
}

/// Those of gradients, gathers and messages go first; COMPUTE and copies of
/// states have the device's least.
TEST_F(OneRank, CollectivesGoFirst) {
  EXPECT_EQ(watched().priorities(), "0 -5 -5 -5 0 0");
}

/// Windows, mapped several times.
TEST_F(OneRank, MappedArenas) {
  const uint64_t granule = uint64_t(2) << 20;
  grt_arena arena = {};
  arena.bytes = 8 * granule;
  arena.window_offset = granule;
  arena.window_bytes = granule;
  arena.window_stride = 2 * granule;
  arena.window_count = 3;
  auto mapped = [&] {
    void *memory = rank->backend.map_arena(&arena);
    if (!memory)
      return false;
    rank->backend.unmap_arena(memory, &arena);
    return true;
  };
  // Plain memory, a window, and so on: NCCL can register all of them where no
  // buffer is in two.
  for (bool whole : {true, false}) {
    arena.whole_buffers = whole;
    const int64_t registrable = watched().calls("registrable piece");
    const int64_t others = watched().calls("other piece");
    EXPECT_TRUE(mapped());
    EXPECT_EQ(watched().complaints(), "");
    EXPECT_EQ(watched().calls("registrable piece") - registrable,
              whole ? 7 : 0);
    EXPECT_EQ(watched().calls("other piece") - others, whole ? 0 : 7);
  }
  const std::string before = watched().alive();
  struct {
    const char *function, *kind, *said;
  } faults[] = {
      {"cuMemMap", "skip", "access is given to addresses without memory"},
      {"cuMemMap", "twice", "nothing is reserved, or twice"},
      {"cuMemUnmap", "skip", "addresses are freed while memory is mapped"},
      {"cuMemUnmap", "twice", "unmapped that is not mapped so"},
      {"cuMemRelease", "skip", "pieces of memory: 1"},
      {"cuMemRelease", "twice", "memory is released twice"},
      {"cuMemAddressFree", "skip", "reserved addresses: 1"},
      {"cuMemAddressFree", "twice", "freed that were not reserved"},
  };
  for (const auto &each : faults) {
    SCOPED_TRACE(std::string(each.kind) + " " + each.function);
    watched().fault(each.function, 1, each.kind);
    mapped();
    watched().fault("", 0, "");
    expectSaid(each.said);
    watched().forgetAlive("reserved addresses");
  }
  // The driver has less: nothing is left.
  watched().forgetAlive("pieces of memory");
  for (int64_t number : {1, 2, 4}) {
    watched().fault("cuMemCreate", number, "fail");
    EXPECT_FALSE(mapped());
    EXPECT_EQ(watched().complaints(), "");
    EXPECT_EQ(watched().alive(), before);
  }
}

} // namespace
