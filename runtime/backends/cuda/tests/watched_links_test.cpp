//===- watched_links_test.cpp - Links between devices are measured --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron-profile/measure.h"
#include "links.h"
#include "watched.h"

#include "base/error.h"
#include "comm/threads.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace grt;
using namespace grt::test;

namespace {

/// The backend over NCCL, with a device for each rank as far as it can tell.
grt_backend onOwnDevices() {
  grt_backend backend = *watched().withNccl();
  backend.device_identity = nullptr;
  return backend;
}

const std::vector<PlannedLink> links = {{"tp2", {{0, 1}, {2, 3}}, true, 340e9},
                                        {"dp2", {{0, 2}, {1, 3}}, false, 45e9},
                                        {"stages", {{0, 3}}, false, 45e9}};

TEST(WatchedLinks, EveryLevelAndWhatNcclChose) {
  watched().fault("", 0, "");
  watched().complaints();
  NcclLog::capture();
  const grt_backend backend = onOwnDevices();
  ThreadsWorld world(4);
  const LinksFound found = measureLinks(world, backend, links);
  ASSERT_EQ(found.rates.size(), 3u);
  for (size_t i = 0; i < links.size(); ++i) {
    EXPECT_EQ(found.rates[i].name, links[i].name);
    EXPECT_GT(found.rates[i].slowest, 0);
  }
  EXPECT_EQ(textOf(found.nccl),
            "P2P inside hosts, NVLS; InfiniBand with GPU-direct between hosts; "
            "ranks found each other over eth0");
  EXPECT_EQ(watched().complaints(), "");
  EXPECT_EQ(watched().forgetAlive(), "");
  unsetenv("NCCL_DEBUG");
  unsetenv("NCCL_DEBUG_FILE");
}

/// galvatron-profile's measurement of links, in every size and kind.
TEST(WatchedLinks, AreMeasuredForAClusterFile) {
  watched().fault("", 0, "");
  watched().complaints();
  const grt_backend backend = onOwnDevices();
  ThreadsWorld world(4);
  profile::MeasureOptions options;
  options.seconds = 0.1;
  options.quick = true;
  profile::Measurement result;
  result.bf16Flops = 7;
  profile::measureDeviceLinks(world, backend, options, result);
  EXPECT_EQ(result.hosts, (std::vector<int>{0, 0, 0, 0}));
  // Pairs have transfers, too.
  std::vector<std::string> kinds;
  for (const profile::CollectiveTimes &times : result.collectives) {
    kinds.push_back(times.kind + std::to_string(times.ranks));
    ASSERT_EQ(times.times.size(), 3u);
    for (auto [bytes, seconds] : times.times)
      EXPECT_GT(seconds, 0);
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{
                       "all-reduce2", "all-gather2", "reduce-scatter2", "send2",
                       "all-reduce4", "all-gather4", "reduce-scatter4"}));
  EXPECT_EQ(result.bf16Flops, 7);
  // What the tests' NCCL takes for each of four ranks on the one device here.
  EXPECT_EQ(result.communicatorBytes, uint64_t(4 * 8) << 20);
  EXPECT_EQ(watched().complaints(), "");
  EXPECT_EQ(watched().forgetAlive(), "");
}

TEST(WatchedLinks, TwoRanksOnOneDeviceAreNamed) {
  ThreadsWorld world(2);
  try {
    measureLinks(world, *watched().withNccl(), {links[0]});
    FAIL() << "measured";
  } catch (const Error &error) {
    EXPECT_EQ(error.exitCode(), 2);
    EXPECT_EQ(std::string(error.what()).find("ranks 0 and 1 are on one GPU, "),
              0u)
        << error.what();
  }
  EXPECT_EQ(watched().complaints(), "");
  EXPECT_EQ(watched().forgetAlive(), "");
}

TEST(WatchedLinks, AFailureEndsAllRanks) {
  watched().fault("ncclAllReduce", 2, "fail");
  const grt_backend backend = onOwnDevices();
  ThreadsWorld world(4);
  EXPECT_THROW(measureLinks(world, backend, links), std::exception);
  watched().fault("", 0, "");
  watched().complaints();
  EXPECT_EQ(watched().forgetAlive(), "");
}

/// Every allocation that an arena may be is one piece of a kind that NCCL can
/// register, which the tests' driver looks at.
TEST(WatchedMemory, IsPiecesThatOthersCanMap) {
  watched().fault("", 0, "");
  watched().complaints();
  const grt_backend &backend = *watched().withNccl();
  const int64_t pieces = watched().calls("cuMemCreate"),
                plain = watched().calls("cudaMalloc");
  void *state = backend.create_rank(0, 1);
  ASSERT_NE(state, nullptr);
  const size_t sizes[] = {size_t(2) << 20, (size_t(5) << 20) + 1, 256};
  std::vector<void *> memory;
  for (size_t bytes : sizes)
    memory.push_back(backend.allocate(bytes));
  EXPECT_EQ(watched().calls("cuMemCreate"), pieces + 2);
  EXPECT_EQ(watched().calls("cudaMalloc"), plain + 1);
  for (size_t i = 0; i < memory.size(); ++i)
    backend.release(memory[i], sizes[i]);
  // With a window no buffer is promised to be in one piece.
  const grt_arena arena = {
      size_t(8) << 20, size_t(2) << 20, size_t(2) << 20, size_t(6) << 20, 2, 0};
  void *mapped = backend.map_arena(&arena);
  ASSERT_NE(mapped, nullptr);
  backend.unmap_arena(mapped, &arena);
  backend.destroy_rank(state);
  // None is left where a piece cannot be had.
  watched().fault("cuMemMap", 1, "fail");
  state = backend.create_rank(0, 1);
  EXPECT_EQ(backend.allocate(size_t(4) << 20), nullptr);
  watched().fault("", 0, "");
  backend.destroy_rank(state);
  EXPECT_EQ(watched().complaints(), "");
  EXPECT_EQ(watched().forgetAlive(), "");
}

} // namespace
