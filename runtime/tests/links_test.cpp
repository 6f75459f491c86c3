//===- links_test.cpp - Links beside those of the plan --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/rank_messages.h"
#include "comm/threads.h"
#include "core/topology.h"
#include "error_file.h"
#include "launched.h"
#include "links.h"
#include "nccl_log.h"
#include "reference_backend.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

using namespace grt;
using namespace grt::test;

namespace {

using Groups = std::vector<std::vector<int>>;

/// Stages of four ranks each, on nodes of so many devices; every layer has the
/// levels.
Manifest manifestOf(int stages, int64_t devicesOfNode,
                    std::vector<Level> levels) {
  Manifest manifest;
  manifest.world = stages * 4;
  manifest.nodes = {
      {manifest.world / devicesOfNode, devicesOfNode, 300e9, 50e9}};
  for (int stage = 0; stage < stages; ++stage) {
    Role role;
    role.stage = stage;
    for (int i = 0; i < 4; ++i)
      role.devices.push_back(4 * stage + i);
    Layer layer;
    layer.levels = levels;
    role.layers = {layer, layer};
    manifest.roles.push_back(role);
  }
  return manifest;
}

TEST(PlannedLinks, AreLevelsWithTheGroupsThatRunTogether) {
  const Manifest manifest =
      manifestOf(1, 2, {{GRT_AXIS_SDP, 2, 2}, {GRT_AXIS_TP, 2, 1}});
  const std::vector<PlannedLink> links = plannedLinks(manifest);
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].name, "sdp2");
  EXPECT_EQ(links[0].groups, (Groups{{0, 2}, {1, 3}}));
  EXPECT_FALSE(links[0].inside);
  // Both groups leave each node, and share its link.
  EXPECT_EQ(links[0].bandwidth, 25e9);
  EXPECT_EQ(links[1].name, "tp2");
  EXPECT_EQ(links[1].groups, (Groups{{0, 1}, {2, 3}}));
  EXPECT_TRUE(links[1].inside);
  EXPECT_EQ(links[1].bandwidth, 300e9);
}

TEST(PlannedLinks, AGroupOverNodesIsAsFastAsItsSlowestPart) {
  Manifest manifest = manifestOf(1, 2, {{GRT_AXIS_DP, 4, 1}});
  std::vector<PlannedLink> links = plannedLinks(manifest);
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].bandwidth, 50e9);
  manifest.nodes = {{2, 2, 20e9, 50e9}};
  EXPECT_EQ(plannedLinks(manifest)[0].bandwidth, 20e9);
  manifest.nodes.clear();
  links = plannedLinks(manifest);
  EXPECT_TRUE(links[0].inside);
  EXPECT_EQ(links[0].bandwidth, 0);
}

TEST(PlannedLinks, StagesFollowAndEqualGroupsStandOnce) {
  // Three stages, a node each. The second level has the groups of the first.
  Manifest manifest = manifestOf(3, 4, {{GRT_AXIS_TP, 4, 1}});
  manifest.roles[1].layers[1].levels = {{GRT_AXIS_DP, 4, 1}};
  const std::vector<PlannedLink> links = plannedLinks(manifest);
  ASSERT_EQ(links.size(), 4u);
  EXPECT_EQ(links[0].name, "tp4");
  EXPECT_EQ(links[0].groups.size(), 3u);
  EXPECT_EQ(links[1].name, "dp4");
  EXPECT_EQ(links[1].groups, (Groups{{4, 5, 6, 7}}));
  for (size_t i : {2, 3}) {
    EXPECT_EQ(links[i].name, "stages");
    EXPECT_FALSE(links[i].inside);
    EXPECT_EQ(links[i].bandwidth, 12.5e9);
  }
  EXPECT_EQ(links[2].groups[1], (std::vector<int>{1, 5}));
  EXPECT_EQ(links[3].groups[1], (std::vector<int>{5, 9}));
  EXPECT_TRUE(plannedLinks(manifestOf(1, 4, {})).empty());
}

TEST(LinkRates, AreOfTheSlowestMemberOfEachGroup) {
  EXPECT_DOUBLE_EQ(sentBySecond(1000, 4, 0.5), 3000);
  const PlannedLink link{"tp2", {{0, 1}, {2, 3}, {4, 5}}, true, 2000};
  const LinkRate rate = rateOf(link, 1000, {1, 0.5, 0.5, 2, 0.1, 0.5});
  EXPECT_DOUBLE_EQ(rate.slowest, 500);
  EXPECT_DOUBLE_EQ(rate.median, 1000);
  EXPECT_EQ(rate.ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(textOf(rate), "tp2 500B/s inside a node, 2kB/s in the plan");
}

TEST(LinkRates, SaysWhichLinkIsSlowAndWhatMayBeTheCause) {
  NcclChoice nothing, shared, sockets, host;
  shared.ways = {"SHM"};
  sockets.networks = {"Socket"};
  host.networks = {"IB"};
  host.throughHost = true;
  const std::vector<int> ranks = {0, 1, 2, 3, 4, 5, 6, 7};
  struct Case {
    LinkRate rate;
    NcclChoice nccl;
    bool onDevices;
    std::string text; ///< empty: nothing is wrong
  };
  const Case cases[] = {
      {{"tp8", true, 330e9, 21e9, 21e9, ranks},
       nothing,
       true,
       "tp8: the plan expects 330GB/s inside a node, found 21GB/s: is P2P off "
       "(NCCL_P2P_DISABLE), or NVLink down (nvidia-smi nvlink --status)?"},
      {{"tp8", true, 330e9, 21e9, 21e9, ranks},
       shared,
       true,
       "tp8: the plan expects 330GB/s inside a node, found 21GB/s: NCCL goes "
       "through shared memory; is P2P off (NCCL_P2P_DISABLE, ACS of PCIe "
       "bridges, a virtual machine)?"},
      // The group is on one machine of several.
      {{"tp8", true, 330e9, 21e9, 310e9, ranks},
       nothing,
       true,
       "tp8: the plan expects 330GB/s inside a node, found 21GB/s between "
       "ranks 0 to 7 and 310GB/s between others: is P2P off "
       "(NCCL_P2P_DISABLE), or NVLink down (nvidia-smi nvlink --status)?"},
      {{"dp2", false, 45e9, 1.1e9, 1.1e9, ranks},
       sockets,
       true,
       "dp2: the plan expects 45GB/s between nodes, found 1.1GB/s: NCCL goes "
       "through TCP sockets; is InfiniBand off (NCCL_IB_DISABLE, NCCL_IB_HCA), "
       "or not in the container?"},
      {{"dp2", false, 45e9, 10e9, 10e9, ranks},
       host,
       true,
       "dp2: the plan expects 45GB/s between nodes, found 10GB/s: NCCL goes "
       "through the host's memory; is GPU-direct missing (nvidia-peermem, "
       "NCCL_NET_GDR_LEVEL)?"},
      {{"dp2", false, 45e9, 10e9, 10e9, ranks},
       nothing,
       true,
       "dp2: the plan expects 45GB/s between nodes, found 10GB/s: are adapters "
       "missing (NCCL_IB_HCA), or do others use the network?"},
      {{"tp2", true, 3e9, 1e9, 1e9, {0, 1}},
       nothing,
       false,
       "tp2: the plan expects 3GB/s inside a node, found 1GB/s: do others use "
       "the cores or the network?"},
      // A library that reaches only a part of a link is no fault, nor is an
      // unknown rate.
      {{"tp8", true, 330e9, 140e9, 140e9, ranks}, shared, true, ""},
      {{"tp8", true, 0, 1e6, 1e6, ranks}, shared, true, ""}};
  for (const Case &each : cases) {
    const Findings found = judgeLinks({{each.rate}, each.nccl}, each.onDevices);
    ASSERT_EQ(found.size(), each.text.empty() ? 0u : 1u);
    if (!found.empty()) {
      EXPECT_EQ(found[0].text, each.text);
      EXPECT_EQ(found[0].ends, 0);
    }
  }
}

TEST(NcclLog, SaysWhatWasChosen) {
  const struct {
    const char *log, *text;
  } cases[] = {
      // One node of eight; lines of 2.22 and of 2.24.
      {"a:1:2 [0] NCCL INFO Bootstrap : Using bond0:172.36.134.184<0>\n"
       "a:1:2 [0] NCCL INFO Using network IB\n"
       "a:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0 "
       "(NVLS_NCHANNELS 16)\n"
       "a:1:2 [0] NCCL INFO Channel 04/0 : 0[0] -> 7[7] via P2P/CUMEM\n",
       "P2P inside hosts, NVLS; ranks found each other over bond0"},
      {"Bootstrap: Using eth0:10.7.147.73<0>\nUsing network IBext_v8\n"
       "a:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [receive] via "
       "NET/IBext_v8/2/GDRDMA\n"
       "a:1:2 [0] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/direct "
       "pointer\n",
       "P2P inside hosts, no NVLS; InfiniBand with GPU-direct between hosts; "
       "ranks found each other over eth0"},
      {"a:1:2 [0] NCCL INFO Bootstrap : Using [0]eth0:172.17.0.2<0>\n"
       "a:1:2 [0] NCCL INFO Using network Socket\n"
       "a:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 0\n"
       "a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
       "a:1:2 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via "
       "NET/Socket/0\n",
       "shared memory inside hosts, no NVLS; TCP sockets without GPU-direct "
       "between hosts; ranks found each other over eth0"},
      // Half of the adapters; channels of a ring are no connections.
      {"a:1:2 [0] NCCL INFO Channel 00/02 :    0   1\n"
       "a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0\n"
       "a:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 2[0] [send] via "
       "NET/IB/1/GDRDMA/Shared\n",
       "InfiniBand with GPU-direct on some links between hosts"},
      {"", ""}};
  for (const auto &each : cases) {
    const NcclChoice choice = readNcclLog(each.log);
    EXPECT_EQ(textOf(choice), each.text);
    EXPECT_EQ(decodeChoice(encode(choice)), choice);
    EXPECT_EQ(joinChoices({choice, {}, choice}), choice);
  }
  EXPECT_TRUE(decodeChoice("eth0").isEmpty());
  // Ranks that differ.
  EXPECT_EQ(
      textOf(joinChoices({readNcclLog("Bootstrap: Using eth0:1.2.3.4<0>"),
                          readNcclLog("Bootstrap: Using docker0:1.2.3.5<0>")})),
      "ranks found each other over docker0 and eth0");
}

TEST(NcclLog, IsTheUsersWhereItIsAskedFor) {
  unsetenv("NCCL_DEBUG_FILE");
  setenv("NCCL_DEBUG", "WARN", 1);
  NcclLog::capture();
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "WARN");
  EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr);
  unsetenv("NCCL_DEBUG");
  NcclLog::capture();
  ASSERT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
  const char *path = std::getenv("NCCL_DEBUG_FILE");
  ASSERT_NE(path, nullptr);
  std::ofstream(path) << "Using network IB\n";
  EXPECT_EQ(NcclLog::text(), "Using network IB\n");
  unsetenv("NCCL_DEBUG");
  unsetenv("NCCL_DEBUG_FILE");
}

TEST(MeasuredLinks, OfRanksOfThisProcess) {
  ThreadsWorld world(4);
  const LinksFound found =
      measureLinks(world, *referenceBackend(),
                   plannedLinks(manifestOf(
                       1, 2, {{GRT_AXIS_DP, 2, 2}, {GRT_AXIS_TP, 2, 1}})));
  ASSERT_EQ(found.rates.size(), 2u);
  for (const LinkRate &rate : found.rates) {
    EXPECT_GT(rate.slowest, 1e6);
    EXPECT_LT(rate.slowest, 1e12);
    EXPECT_GE(rate.median, rate.slowest);
  }
  EXPECT_TRUE(found.nccl.isEmpty());
}

/// One rank of two; the other one is the test's.
class Half : public World {
public:
  int size() const override { return all.size(); }
  int firstLocal() const override { return 0; }
  int localCount() const override { return 1; }
  int machineRanks() const override { return 2; }
  std::unique_ptr<Communicator> join(int rank) override {
    return all.join(rank);
  }
  void abort(const Failure &failure) override { all.abort(failure); }

  ThreadsWorld all{2};
};

TEST(MeasuredLinks, OneThatHangsEndsAtItsDeadline) {
  Half world;
  std::thread other([&] {
    // The peer comes to the level, and not to its all-reduce.
    std::unique_ptr<Communicator> peer = world.join(1);
    EXPECT_NO_THROW(gatherOfRanks(*peer, MessageKind::Times, 0.0));
  });
  try {
    measureLinks(world, *referenceBackend(), {{"tp2", {{0, 1}}, true, 300e9}},
                 /*patience=*/0.2);
    ADD_FAILURE() << "measured";
  } catch (const Error &error) {
    EXPECT_EQ(error.exitCode(), 4);
    EXPECT_STREQ(error.what(), "all-reduces of 'tp2', which measure its links, "
                               "have not ended in 0.2 s");
  }
  other.join();
}

TEST(ErrorFile, IsTorchelastics) {
  const std::string path = testing::TempDir() + "error.json";
  setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
  writeErrorFile(Status(6, "no \"memory\""));
  unsetenv("TORCHELASTIC_ERROR_FILE");
  std::ifstream file(path);
  const nlohmann::json error = nlohmann::json::parse(file)["message"];
  EXPECT_EQ(error["message"], "galvatron-run: no \"memory\"");
  EXPECT_EQ(error["errorCode"], 6);
  EXPECT_EQ(error["extraInfo"]["py_callstack"],
            "galvatron-run: error: no \"memory\"");
  const auto now = double(std::time(nullptr));
  EXPECT_NEAR(std::stod(error["extraInfo"]["timestamp"].get<std::string>()),
              now, 60);
  std::filesystem::remove(path);
  writeErrorFile(Status(6, "nobody asks"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

#ifdef GALVATRON_RUN

/// --check of programs for two ranks.
class CheckedLinks : public Launched {
protected:
  std::string tool(const std::string &program, const std::string &rest) {
    return "env LD_LIBRARY_PATH=" TEST_BACKENDS
           " GRT_TEST_CARDS=u0,u1 " GALVATRON_RUN " " TEST_BACKENDS "/" +
           program + ".gvx " + rest;
  }
  void expectSays(const std::string &text) {
    EXPECT_NE(output.find(text), std::string::npos) << output;
  }
};

TEST_F(CheckedLinks, AreMeasuredWithoutALauncher) {
  ASSERT_EQ(run(tool("bigram2", "--check")), 0) << output;
  expectSays("link: dp2 ");
  expectSays("2 ranks, 1 process on 1 host: ");
  // The program is for devices between processes, one for each.
  ASSERT_EQ(run(tool("bigram2-cards", "--check")), 0) << output;
  expectSays("note: 2 processes, one for each of 2 GPUs\n");
  expectSays("link: dp2 ");
  expectSays("2 ranks, 2 processes on 1 host: ");
  ASSERT_EQ(run(tool("bigram2-cards", "--check --no-link-check")), 0);
  EXPECT_EQ(output.find("link"), std::string::npos) << output;
  ASSERT_EQ(run(tool("bigram2-cards", "--check --share-gpus")), 0);
  EXPECT_EQ(output.find("link"), std::string::npos) << output;
}

TEST_F(CheckedLinks, RanksOnOneDeviceAreNamed) {
  EXPECT_EQ(run(START_PROCESSES " 2 sh -c 'GRT_TEST_CARDS=same exec \"$@\"' - "
                                "env LD_LIBRARY_PATH=" TEST_BACKENDS
                                " " GALVATRON_RUN " " TEST_BACKENDS
                                "/bigram2-cards.gvx --check"),
            2);
  expectSays("error: ranks 0 and 1 are on one GPU, same of ");
}

TEST_F(CheckedLinks, AFailureIsWrittenForTorchrun) {
  EXPECT_EQ(run("TORCHELASTIC_ERROR_FILE=$PWD/error.json " +
                tool("bigram2", "--data=missing.txt --steps=1")),
            2);
  std::ifstream file(folder + "/error.json");
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("missing.txt"), std::string::npos) << text;
}

#endif

} // namespace
