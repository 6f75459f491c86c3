//===- preflight_test.cpp - What of a machine will go wrong ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "launched.h"
#include "preflight.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

using namespace grt::test;

namespace {

constexpr uint64_t gib = uint64_t(1) << 30;

/// A process of eight on a machine of eight cards, of a run on two machines;
/// nothing is wrong.
struct Healthy {
  MachineFacts machine;
  BuildFacts build{13000, "80-real, 90a-real, 90-virtual"};
  RunFacts run;

  Healthy() {
    machine.host = "alpha";
    machine.sharedMemoryBytes = 64 * gib;
    machine.openFiles = 1048576;
    machine.hasInfiniBand = true;
    machine.machineCores = machine.allowedCores = 96;
    machine.interfaces = {{"docker0", false, true},
                          {"eth0", false, false},
                          {"ib0", false, false},
                          {"lo", true, false}};
    machine.driver = "580.65.06";
    machine.driverCuda = 13000;
    for (int i = 0; i < 8; ++i)
      machine.cards.push_back({"NVIDIA H100",
                               "GPU-" + std::to_string(i),
                               9,
                               0,
                               80 * gib,
                               79 * gib,
                               {},
                               "",
                               {},
                               0,
                               false,
                               CardFacts::Fabric::Ready,
                               0,
                               false,
                               0});
    run.usesCards = true;
    run.cards = {3};
    run.bytesOfCard = 60 * gib;
    run.machineProcesses = 8;
    run.ranks = 16;
    run.severalHosts = true;
  }
};

TEST(Preflight, SaysWhatIsWrongAndNothingElse) {
  struct Case {
    std::function<void(Healthy &)> change;
    int ends;
    std::string text; ///< its beginning; empty: nothing is found
  };
  using H = Healthy;
  auto interfaces = [](const char *value) {
    return [value](H &h) { h.machine.variables["NCCL_SOCKET_IFNAME"] = value; };
  };
  const Case cases[] = {
      {[](H &) {}, 0, ""},
      {[](H &h) { h.machine.sharedMemoryBytes = 64 << 20; }, 0,
       "/dev/shm has 64 MiB, where NCCL's processes of one machine meet: "
       "expected 1 GiB or more (docker run --shm-size=1g"},
      {[](H &h) { h.machine.sharedMemoryBytes = gib; }, 0, ""},
      {[](H &h) { h.machine.sharedMemoryBytes.reset(); }, 0,
       "there is no /dev/shm"},
      {[](H &h) { h.machine.lockedBytes = 8 << 20; }, 0,
       "memory that can be locked is limited to 8 MiB (ulimit -Hl)"},
      {[](H &h) {
         h.machine.lockedBytes = 8 << 20;
         h.machine.hasInfiniBand = false;
       },
       0, ""},
      {[](H &h) { h.machine.openFiles = 1024; }, 0,
       "files that can be open are limited to 1024 (ulimit -Hn), and "
       "connections of 16 ranks are among them: expected 4096 or more"},
      {[](H &h) {
         h.machine.openFiles = 4096;
         h.run.ranks = 4096;
       },
       0,
       "files that can be open are limited to 4096 (ulimit -Hn), and "
       "connections of 4096 ranks are among them: expected 65536 or more"},
      // Cores of the machine are shared, those of a process that is bound not.
      {[](H &h) { h.machine.machineCores = h.machine.allowedCores = 16; }, 0,
       "2 processor cores for each GPU (16 that a process may run on, 8 GPUs "
       "of the run on the machine): expected 4 or more"},
      {[](H &h) { h.machine.allowedCores = 4; }, 0, ""},
      {[](H &h) { h.machine.allowedCores = 1; }, 0,
       "1 processor core for each GPU"},
      {[](H &h) { h.machine.coreQuota = 12; }, 0,
       "1.5 processor cores for each GPU (96 that a process may run on, a "
       "quota "
       "of 12,"},
      {[](H &h) {
         h.run.machineProcesses = 1;
         h.run.cards = {0, 1, 2, 3, 4, 5, 6, 7};
         h.machine.machineCores = h.machine.allowedCores = 8;
       },
       0, "1 processor core for each GPU (8 that a process may run on, 8 GPUs"},
      {interfaces("ib"), 0, ""},
      {interfaces("lo"), 2,
       "NCCL_SOCKET_IFNAME=lo picks lo, the loopback, which does not reach "
       "other hosts; those that may are eth0, ib0"},
      {interfaces("docker,eth"), 0,
       "NCCL_SOCKET_IFNAME=docker,eth picks docker0, a bridge, which"},
      {interfaces("=eth"), 2,
       "NCCL_SOCKET_IFNAME==eth picks no interface that is up; those that may "
       "are eth0, ib0"},
      {interfaces("^lo,docker"), 0, ""},
      {interfaces("^eth"), 0,
       "NCCL_SOCKET_IFNAME=^eth picks docker0, a bridge"},
      {[](H &h) {
         h.machine.variables["NCCL_SOCKET_IFNAME"] = "lo";
         h.run.severalHosts = false;
       },
       0, ""},
      {[](H &h) {
         h.machine.driverCuda = 12040;
         h.run.ranks = 1;
       },
       2,
       "the driver 580.65.06 is for CUDA up to 12.4, and this build is of CUDA "
       "13.0: expected a driver for 13.0 or later"},
      {[](H &h) {
         h.machine.driverCuda = 12040;
         h.build.toolkit = 12040;
       },
       0,
       "the driver 580.65.06 is for CUDA up to 12.4: in a graph, collectives "
       "of several communicators run one after the other; from 12.9 on they "
       "run beside each other"},
      // A later one of the same number translates nothing, but runs.
      {[](H &h) { h.build.toolkit = 13020; }, 0, ""},
      {[](H &h) { h.machine.cards[3].major = 7; }, 2,
       "GPU 3 (NVIDIA H100) has compute capability 7.0, and this build has "
       "kernels for 80-real, 90a-real, 90-virtual: build with "
       "CMAKE_CUDA_ARCHITECTURES=70"},
      {[](H &h) { h.machine.cards[2].major = 7; }, 0, ""},
      {[](H &h) { h.machine.cards[3].freeBytes = 20 * gib; }, 6,
       "GPU 3 (NVIDIA H100) has 20 GiB of 80 GiB free, and a rank needs 60 "
       "GiB"},
      {[](H &h) {
         h.machine.cards[3].freeBytes = 20 * gib;
         h.machine.cards[3].processes = {4711, 4712};
       },
       6,
       "GPU 3 (NVIDIA H100) has 20 GiB of 80 GiB free, and a rank needs 60 "
       "GiB; "
       "processes 4711, 4712 are on it"},
      {[](H &h) { h.machine.cards[3].processes = {4711}; }, 0,
       "GPU 3 (NVIDIA H100) is not this run's alone; process 4711 is on it"},
      {[](H &h) { h.machine.cards[3].computeMode = 2; }, 2,
       "GPU 3 (NVIDIA H100) lets no process compute (compute mode): nvidia-smi "
       "-i 3 -c 0 allows it"},
      {[](H &h) { h.machine.cards[3].computeMode = 3; }, 0, ""},
      {[](H &h) { h.machine.cards[3].divided = true; }, 0,
       "GPU 3 (NVIDIA H100) is divided (MIG), so that a process has one part"},
      {[](H &h) {
         h.machine.cards[3].divided = true;
         h.run.ranks = 1;
       },
       0, ""},
      {[](H &h) { h.machine.cards[3].fabric = CardFacts::Fabric::Waiting; }, 2,
       "GPU 3 (NVIDIA H100) waits to be joined to the machine's switches: is "
       "the fabric manager up (systemctl status nvidia-fabricmanager)?"},
      {[](H &h) { h.machine.cards[3].fabric = CardFacts::Fabric::Failed; }, 2,
       "GPU 3 (NVIDIA H100) could not be joined to the machine's switches"},
      {[](H &h) { h.machine.cards[3].memoryErrors = 2; }, 0,
       "GPU 3 (NVIDIA H100) had 2 errors of its memory that were not corrected "
       "since the driver was loaded: reset it (nvidia-smi -i 3 --gpu-reset)"},
      {[](H &h) { h.machine.cards[3].waitsForReset = true; }, 0,
       "GPU 3 (NVIDIA H100) waits for a reset to replace rows of its memory"},
      // Idle, and a cap of power, are how it is.
      {[](H &h) { h.machine.cards[3].slowdowns = 0x1 | 0x4; }, 0, ""},
      {[](H &h) { h.machine.cards[3].slowdowns = 0x8 | 0x40; }, 0,
       "GPU 3 (NVIDIA H100) is slow: it is too hot"},
      {[](H &h) { h.machine.cards[3].slowdowns = 0x8; }, 0,
       "GPU 3 (NVIDIA H100) is slow: its hardware slows it"},
      {[](H &h) { h.machine.cards[2].memoryErrors = 2; }, 0, ""},
      {[](H &h) { h.machine.cards.resize(2); }, 2,
       "there is no GPU 3: the machine has 2"},
      {[](H &h) {
         h.machine.cards[3].nearCores = parseCores("48-95");
         h.machine.allowed = parseCores("0-11");
         h.machine.allowedCores = 12;
       },
       0,
       "GPU 3 (NVIDIA H100) is near cores 48 to 95, and its process may run on "
       "0 to 11 alone: what it copies goes between sockets"},
      {[](H &h) {
         h.machine.cards[3].nearCores = parseCores("48-95");
         h.machine.allowed = parseCores("40-51");
         h.machine.allowedCores = 12;
       },
       0, ""},
      {[](H &h) { h.machine.cardProblem = "no NVML"; }, 0,
       "GPUs cannot be looked at: no NVML"},
      // A run on CPUs looks at nothing that is of cards.
      {[](H &h) {
         h.run.usesCards = false;
         h.machine.driverCuda = 12040;
         h.machine.allowedCores = 1;
         h.machine.variables["NCCL_SOCKET_IFNAME"] = "lo";
       },
       0, ""},
  };
  for (const Case &one : cases) {
    Healthy facts;
    one.change(facts);
    Findings found = judge(facts.machine, facts.build, facts.run);
    ASSERT_EQ(found.size(), one.text.empty() ? 0u : 1u)
        << one.text << " / " << (found.empty() ? "" : found[0].text);
    if (found.empty())
      continue;
    EXPECT_EQ(found[0].text.substr(0, one.text.size()), one.text);
    EXPECT_EQ(found[0].ends, one.ends) << one.text;
  }
}

TEST(Preflight, SaysWhatTheGpuIs) {
  Healthy facts;
  EXPECT_EQ(gpuText(facts.machine, facts.run),
            "NVIDIA H100, driver 580.65.06 for CUDA up to 13.0");
  facts.run.cards = {9};
  EXPECT_EQ(gpuText(facts.machine, facts.run), "");
}

TEST(Preflight, KnowsWhichCardsAnArchitectureIsFor) {
  EXPECT_TRUE(hasKernels("80-real", 8, 0));
  EXPECT_TRUE(hasKernels("80-real", 8, 6));
  EXPECT_FALSE(hasKernels("86-real", 8, 0));
  EXPECT_FALSE(hasKernels("80-real", 9, 0));
  EXPECT_TRUE(hasKernels("90a-real", 9, 0));
  EXPECT_FALSE(hasKernels("90a-real", 10, 0));
  EXPECT_FALSE(hasKernels("90a-real, 100a-real", 12, 0));
  EXPECT_TRUE(hasKernels("80-real, 90-virtual", 12, 0));
  EXPECT_FALSE(hasKernels("90-virtual", 8, 9));
  EXPECT_TRUE(hasKernels("80", 9, 0));
  EXPECT_FALSE(hasKernels("", 9, 0));
}

TEST(Preflight, KnowsWhichCardsAProcessMayUse) {
  const std::vector<CardFacts> cards = Healthy().machine.cards;
  EXPECT_EQ(visibleCards(nullptr, cards).size(), 8u);
  EXPECT_EQ(visibleCards("3,1", cards), (std::vector<int>{3, 1}));
  EXPECT_EQ(visibleCards("GPU-5", cards), (std::vector<int>{5}));
  EXPECT_EQ(visibleCards("2,-1,4", cards), (std::vector<int>{2}));
  EXPECT_EQ(visibleCards("", cards), std::vector<int>());
}

TEST(Preflight, AProcessRunsNearItsCard) {
  using Cores = std::vector<int>;
  EXPECT_EQ(parseCores("0-3,8,10-11\n"), (Cores{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parseCores("5"), Cores{5});
  for (const char *wrong : {"", "x", "3-1", "0-3x", "-1", "0-99999999"})
    EXPECT_EQ(parseCores(wrong), Cores()) << wrong;

  Healthy facts;
  facts.machine.machineCores = facts.machine.allowedCores = 8;
  facts.machine.allowed = parseCores("0-7");
  EXPECT_EQ(coresToTake(facts.machine, facts.run), Cores()); // unknown
  facts.machine.cards[3].nearCores = parseCores("4-7,12-15");
  EXPECT_EQ(coresToTake(facts.machine, facts.run), parseCores("4-7"));
  facts.machine.cards[3].nearCores = parseCores("0-7");
  EXPECT_EQ(coresToTake(facts.machine, facts.run), Cores());
  facts.machine.cards[3].nearCores = parseCores("4-7");
  facts.machine.allowedCores = 4; // bound by the launcher
  facts.machine.allowed = parseCores("2-5");
  EXPECT_EQ(coresToTake(facts.machine, facts.run), Cores());

  const std::string folder = testing::TempDir() + "near";
  const std::string device = folder + "/sys/bus/pci/devices/0000:1b:00.0";
  std::filesystem::create_directories(device);
  std::ofstream(device + "/local_cpulist") << "0\n";
  EXPECT_EQ(readNearCores(folder, "0000:1b:00.0"), Cores{0});
  EXPECT_EQ(readNearCores(folder, "0000:1c:00.0"), Cores());
  // The limit of a thread and those that it starts.
  std::thread([&] {
    const int first = readMachine().allowed.front();
    EXPECT_TRUE(runOn({first}));
    std::thread([&] { EXPECT_EQ(readMachine().allowed, Cores{first}); }).join();
    EXPECT_FALSE(runOn({}));
  }).join();
}

TEST(Preflight, ProcessesTellEachOther) {
  const Finding small{0, "/dev/shm is small"}, old{2, "the driver is old"};
  Told a{"alpha", {small}, {{"NCCL_ALGO", "Ring"}, {"NCCL_HOSTID", "1"}}};
  Told b{"beta", {small, old}, {{"NCCL_ALGO", "Ring"}, {"NCCL_HOSTID", "2"}}};
  for (const Told &one : {a, b}) {
    std::optional<Told> back = decodeTold(encode(one));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->host, one.host);
    EXPECT_EQ(back->findings, one.findings);
    EXPECT_EQ(back->variables, one.variables);
  }
  EXPECT_FALSE(decodeTold("nothing"));
  EXPECT_EQ(joinTold({a, a}), Findings{small});
  EXPECT_EQ(joinTold({a, a, b, b}),
            (Findings{{0, "on every host: /dev/shm is small"},
                      {2, "on 'beta': the driver is old"}}));
  b.variables["NCCL_ALGO"] = "Tree";
  b.variables["NCCL_IB_DISABLE"] = "1";
  Findings found = joinTold({a, a, b});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[2], (Finding{0, "NCCL_ALGO differs: processes 0, 1 have "
                                  "'Ring', process 2 has 'Tree'"}));
  EXPECT_EQ(found[3], (Finding{0, "NCCL_IB_DISABLE differs: process 2 has '1', "
                                  "processes 0, 1 have no value"}));
}

TEST(Preflight, ReadsAMachine) {
  const std::string root = testing::TempDir() + "machine";
  auto write = [&](const std::string &path, const std::string &text) {
    std::filesystem::create_directories(
        std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << "\n";
  };
  write("/sys/class/net/lo/flags", "0x9");
  write("/sys/class/net/eth0/flags", "0x1003");
  write("/sys/class/net/eth1/flags", "0x1002");
  write("/sys/class/net/docker0/flags", "0x1003");
  std::filesystem::create_directories(root + "/sys/class/net/docker0/bridge");
  write("/sys/fs/cgroup/cpu.max", "250000 100000");
  setenv("NCCL_ALGO", "Ring", 1);
  MachineFacts machine = readMachine(root);
  unsetenv("NCCL_ALGO");
  std::string interfaces;
  for (const InterfaceFacts &one : machine.interfaces)
    interfaces += one.name + (one.loopback ? "(loopback) " : "") +
                  (one.bridge ? "(bridge) " : " ");
  EXPECT_EQ(interfaces, "docker0(bridge) eth0 lo(loopback)  ");
  EXPECT_EQ(machine.coreQuota, 2.5);
  EXPECT_EQ(machine.variables.at("NCCL_ALGO"), "Ring");
  EXPECT_FALSE(machine.sharedMemoryBytes);
  EXPECT_FALSE(machine.hasInfiniBand);
  write("/sys/class/infiniband/mlx5_0/node_type", "1: CA");
  write("/sys/fs/cgroup/cpu.max", "max 100000");
  std::filesystem::create_directories(root + "/dev/shm");
  machine = readMachine(root);
  EXPECT_TRUE(machine.hasInfiniBand);
  EXPECT_TRUE(machine.sharedMemoryBytes);
  EXPECT_EQ(machine.coreQuota, 0);
  EXPECT_GE(machine.machineCores, machine.allowedCores);
  EXPECT_GT(machine.openFiles, 0u);
}

#ifdef GALVATRON_RUN

/// Runs galvatron-run with a program for two GPUs, on the tests' NVML.
class Checks : public Launched {
protected:
  std::string tool(const std::string &cards, const std::string &rest = "") {
    return "env LD_LIBRARY_PATH=" FAKE_NVML " GRT_TEST_NVML='" + cards + "' " +
           GALVATRON_RUN " " TEST_BACKENDS "/bigram2-cuda.gvx " + rest;
  }
  void expectSays(const std::string &text) {
    EXPECT_NE(output.find(text), std::string::npos) << output;
  }
};

TEST_F(Checks, SayWhatIsWrongAndRunNothing) {
  const std::string good = "99000 90 80 79 0 90 80 79 0 90 80 79 0";
  EXPECT_EQ(run(tool(good, "--check")), 0) << output;
  expectSays("GPU: Card, driver 550.54.14 for CUDA up to 99.0\n");
  expectSays("2 ranks, 1 process on 1 host: ");
  EXPECT_EQ(output.find("error: "), std::string::npos) << output;
  // The text is the command line that would follow; a missing property of a
  // card is named.
  EXPECT_EQ(run(tool("99000 90 80 79 4711 90 80 0 0",
                     "--data=text.txt --steps=3 --check")),
            2);
  expectSays("warning: GPU 0 (Card) is not this run's alone; process 4711 is "
             "on it\n");
  expectSays("error: GPU 1 (Card) has 0 bytes of 80 GiB free, and a rank needs "
             "1.02 MiB\n");
  expectSays(": 1 error, ");
  EXPECT_EQ(run("export GRT_TEST_HEALTH='3 1 1 0 5 64'; " +
                tool("99000 90 80 79 0 90 80 79 4711", "--check")),
            2);
  for (const char *text :
       {"error: GPU 1 (Card) takes one process (compute mode), and process "
        "4711 is on it: end that, or nvidia-smi -i 1 -c 0\n",
        "warning: GPU 0 (Card) is divided (MIG)",
        "error: GPU 0 (Card) waits to be joined",
        "warning: GPU 0 (Card) had 5 ",
        "warning: GPU 0 (Card) is slow: it is too hot\n"})
    expectSays(text);
  EXPECT_EQ(run("export GRT_TEST_HEALTH='0 0 3 7'; " + tool(good, "--check")),
            2);
  expectSays("error: GPU 0 (Card) could not be joined");
  EXPECT_EQ(run("export GRT_TEST_HEALTH='0 0 3 0'; " + tool(good, "--check")),
            0);
  EXPECT_EQ(run(tool("99000 90 80 79 0", "--check")), 2);
  expectSays("error: the program needs 2 ranks, with a GPU each, and this "
             "machine has 1\n");
  EXPECT_EQ(run(tool("99000 90 80 79 0", "--check --measure")), 2);
  expectSays("--check runs nothing: leave --measure out");
  EXPECT_EQ(run("unset GRT_TEST_NVML; LD_LIBRARY_PATH=" FAKE_NVML
                " " GALVATRON_RUN " " TEST_BACKENDS
                "/bigram2-cuda.gvx --check"),
            0);
  expectSays("warning: GPUs cannot be looked at: Driver Not Loaded\n");
}

TEST_F(Checks, OfSeveralProcessesAreSaidOnce) {
  const std::string cards = "99000 90 80 79 0 90 80 79 4711";
  auto two = [&](const std::string &rest) {
    return START_PROCESSES
           " 2 sh -c 'export NCCL_ALGO=a$RANK; exec \"$@\"' - " +
           tool(cards, rest);
  };
  EXPECT_EQ(run(two("--check")), 0) << output;
  expectSays("warning: GPU 1 (Card) is not this run's alone");
  expectSays("warning: NCCL_ALGO differs: process 0 has 'a0', process 1 has "
             "'a1'\n");
  expectSays("\n2 ranks, 2 processes on 1 host: 0 errors, ");
  EXPECT_EQ(output.find("2 ranks"), output.rfind("2 ranks")) << output;
  // A run looks, too, and ends by what ends it before the backend is loaded.
  EXPECT_EQ(run(START_PROCESSES " 2 " + tool("99000 90 80 79 0 90 80 0 4711",
                                             "--data=text.txt --steps=3")),
            6);
  expectSays("galvatron-run: error: GPU 1 (Card) has 0 bytes of 80 GiB free, "
             "and a rank needs 1.02 MiB; process 4711 is on it");
  EXPECT_EQ(output.find("error"), output.rfind("error")) << output;
}

#endif

} // namespace
