//===- placement_test.cpp - Which device a process takes ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/placement.h"
#include "launched.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace grt;
using namespace grt::test;

namespace {

Launch launched(int rank, int local) {
  Launch launch;
  launch.launcher = Launcher::Torchrun;
  launch.rank = {rank, "RANK"};
  launch.localRank = {local, "LOCAL_RANK"};
  return launch;
}

TEST(Placement, TakesTheOneOfItsNumber) {
  EXPECT_EQ(chooseDevice(Launch(), 8, false), 0);
  EXPECT_EQ(chooseDevice(launched(11, 3), 8, false), 3);
  EXPECT_EQ(chooseDevice(launched(15, 7), 8, false), 7);
  // Each process sees its own card under srun --gpus-per-task=1 and Kubernetes.
  EXPECT_EQ(chooseDevice(launched(15, 7), 1, false), 0);
  EXPECT_EQ(chooseDevice(launched(15, 7), 4, true), 3);
  Launch unknown = launched(2, 0);
  unknown.localRank.reset();
  EXPECT_EQ(chooseDevice(unknown, 8, false), 0);
}

TEST(Placement, RefusesANumberThatHasNoDevice) {
  try {
    chooseDevice(launched(24, 8), 8, false);
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(error.exitCode(), ExitInvalid);
    EXPECT_STREQ(error.what(),
                 "process 24 is number 8 on its machine (LOCAL_RANK), where it "
                 "may use 8 GPUs, 0 to 7: start at most 8 processes there, or "
                 "let them share GPUs with --share-gpus");
  }
}

/// The questions to a backend's devices.
struct AskedCards {
  static inline int count = 4, used = -1;
  grt_backend table{};
  AskedCards() {
    used = -1;
    table.count_devices = [](int32_t *answer, char *, size_t) {
      *answer = count;
      return 0;
    };
    table.use_device = [](int32_t number, char *, size_t) {
      used = number;
      return 0;
    };
  }
};

TEST(Placement, AsksTheLauncherOfThisProcess) {
  AskedCards cards;
  const std::pair<const char *, const char *> variables[] = {
      {"RANK", "9"},
      {"WORLD_SIZE", "16"},
      {"LOCAL_RANK", "3"},
      {"MASTER_ADDR", "alpha"}};
  for (auto [name, value] : variables)
    setenv(name, value, 1);
  placeProcess(cards.table, false);
  EXPECT_EQ(cards.used, 3);
  setenv("LOCAL_RANK", "5", 1);
  EXPECT_THROW(placeProcess(cards.table, false), Error);
  placeProcess(cards.table, true);
  EXPECT_EQ(cards.used, 1);
  // The user's choice is the backend's to read.
  setenv("GRT_CUDA_DEVICE", "2", 1);
  AskedCards others;
  placeProcess(others.table, false);
  EXPECT_EQ(others.used, -1);
  unsetenv("GRT_CUDA_DEVICE");
  for (auto [name, value] : variables)
    unsetenv(name);
}

RankPlace place(const char *device, const char *host) {
  RankPlace result;
  std::strncpy(result.device, device, sizeof(result.device) - 1);
  std::strncpy(result.host, host, sizeof(result.host) - 1);
  return result;
}

TEST(Placement, FindsRanksOnOneDevice) {
  // Equal numbers of devices on two machines, and two parts of one device.
  EXPECT_EQ(
      sharedDevice(std::vector{place("GPU-1", "alpha"), place("GPU-2", "alpha"),
                               place("GPU-3", "beta"), place("MIG-1", "beta")}),
      "");
  // One device in two containers with names of their own.
  std::string message = sharedDevice(
      std::vector{place("GPU-1", "alpha"), place("GPU-2", "alpha"),
                  place("GPU-2", "pod-7"), place("GPU-2", "pod-8")});
  EXPECT_EQ(message.substr(0, message.find(':')),
            "ranks 1, 2 and 3 are on one GPU, GPU-2 of 'alpha'");
  EXPECT_NE(message.find("--share-gpus"), std::string::npos);
}

#ifdef GALVATRON_RUN

/// Runs galvatron-run with a program for the backend `cards`.
class PlacedRuns : public Launched {
protected:
  std::string tool(const std::string &options = "") const {
    return "env LD_LIBRARY_PATH=" TEST_BACKENDS " " GALVATRON_RUN
           " " TEST_BACKENDS "/bigram2-cards.gvx --data=text.txt --steps=2 " +
           options;
  }
  std::string two(const std::string &command) const {
    return START_PROCESSES " 2 " + command;
  }
};

TEST_F(PlacedRuns, EachProcessHasItsOwn) {
  ASSERT_EQ(run("GRT_TEST_CARDS=u0,u1 GRT_TEST_CARDS_LOG=log " + two(tool()) +
                " >out; cut -d' ' -f2,3 log | sort -u"),
            0);
  EXPECT_EQ(output, "u0 0\nu1 1\n");
  // The tool has set what libraries read, before it loads any.
  ASSERT_EQ(run("rm log; env -u GOMP_SPINCOUNT GRT_TEST_CARDS=u0,u1 "
                "GRT_TEST_CARDS_LOG=log " +
                two(tool("--no-link-check")) + " >out; cut -d' ' -f4 log"),
            0);
  EXPECT_EQ(output, "1000\n1000\n");
  // One for each process, by number and by the variable.
  ASSERT_EQ(run("rm log; export GRT_TEST_CARDS_LOG=$PWD/log; " +
                two("sh -c 'GRT_TEST_CARDS=own$RANK exec " + tool() + "'") +
                " >out; cut -d' ' -f2,3 log | sort -u"),
            0);
  EXPECT_EQ(output, "own0 0\nown1 1\n");
}

TEST_F(PlacedRuns, SharingIsRefusedAndNamed) {
  // The same card for both, as in two containers.
  EXPECT_EQ(run("GRT_TEST_CARDS=u7 " + two(tool())), 2);
  EXPECT_NE(output.find("ranks 0 and 1 are on one GPU, u7 of '"),
            std::string::npos)
      << output;
  EXPECT_EQ(run("GRT_TEST_CARDS=u7 " + two(tool("--share-gpus"))), 0) << output;
  // Two ranks of one process.
  EXPECT_EQ(run("export RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 "
                "MASTER_PORT=29500; " +
                tool("--ranks=2")),
            2);
  EXPECT_NE(output.find("ranks 0 and 1 are on one GPU"), std::string::npos)
      << output;
}

/// Runs that have started a process for each card themselves.
class StartedRuns : public PlacedRuns {
protected:
  /// A script around a run of so many steps that it goes on: $run is the
  /// command, $first and $second what it started.
  std::string during(const std::string &options, const std::string &script) {
    return "export GRT_TEST_CARDS=u0,u1; " +
           tool("--steps=1000000000 "
                "--print-every=1000000 " +
                options) +
           " & run=$!; children() { cat /proc/$1/task/$1/children; }; "
           "until [ $(children $run | wc -w) = 2 ]; do kill -0 $run || exit; "
           "sleep 0.02; done; set -- $(children $run); first=$1; second=$2; " +
           script +
           "; wait $run; code=$?; "
           "kill -0 $first $second 2>/dev/null && echo SURVIVOR; "
           "exit $code";
  }
  const std::string stepped = "until ls c/step-* >/dev/null 2>&1; do kill -0 "
                              "$run || exit; sleep 0.05; done; ";
};

TEST_F(StartedRuns, OneProcessForEachCard) {
  const std::string saves = " --steps=20 --save=";
  ASSERT_EQ(run("GRT_TEST_CARDS=u0 " + tool("--share-gpus" + saves + "one")), 0)
      << output;
  ASSERT_EQ(run("GRT_LISTEN=nowhere GRT_TEST_CARDS_LOG=log "
                "GRT_TEST_CARDS=u0,u1,u2 " +
                tool("--ranks=2 --log=/dev/fd/3" + saves + "two") +
                " 3>steps; wc -l <steps"),
            0)
      << output;
  EXPECT_NE(output.find("note: 2 processes, one for each of the first 2 GPUs"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find("ranks: 2 x "), std::string::npos) << output;
  // Measured by communicators of their own, before those of the steps.
  EXPECT_NE(output.find("\nlink: dp2 "), std::string::npos) << output;
  EXPECT_NE(output.find(" in 2 processes over TCP"), std::string::npos)
      << output;
  EXPECT_TRUE(output.ends_with("\n20\n")) << output;
  // Two processes, and the same bits.
  EXPECT_EQ(run("cmp one/model.safetensors two/model.safetensors; cut -d' ' "
                "-f2,3 log | sort -u; cut -d' ' -f1 log | sort -u | wc -l"),
            0);
  EXPECT_EQ(output, "u0 0\nu1 1\n2\n");
}

TEST_F(StartedRuns, FewerCardsThanRanksAreRefused) {
  EXPECT_EQ(run("GRT_TEST_CARDS=u0 " + tool()), 2);
  EXPECT_EQ(output,
            "galvatron-run: error: the program needs 2 ranks, with a GPU each, "
            "and this machine has 1: start it on several machines (torchrun, "
            "mpirun, srun), or let ranks share a GPU with --share-gpus\n");
}

TEST_F(StartedRuns, OneThatIsKilledEndsAll) {
  EXPECT_EQ(run(during("", "sleep 0.5; kill -9 $second")), 4) << output;
  EXPECT_NE(output.find("note: process 1 (pid "), std::string::npos) << output;
  EXPECT_NE(output.find("was ended by signal 9 (Killed)"), std::string::npos);
  EXPECT_NE(output.find("error: process 1 (rank 1, "), std::string::npos)
      << output;
  EXPECT_EQ(output.find("SURVIVOR"), std::string::npos) << output;
}

TEST_F(StartedRuns, SignalsGoToAll) {
  EXPECT_EQ(run(during("--checkpoint=c", "kill -USR1 $run; kill -USR2 $run; " +
                                             stepped + "kill -TERM $run")),
            143)
      << output;
  EXPECT_NE(output.find("ended by SIGTERM after step "), std::string::npos)
      << output;
  EXPECT_EQ(output.find("SURVIVOR"), std::string::npos) << output;
}

/// --restarts stand around what starts the processes. A trace that is wished
/// for is no wish to end: what is lost behind it is started again.
TEST_F(StartedRuns, RestartsStandAround) {
  std::string script =
      "export GRT_TEST_CARDS=u0,u1; " +
      tool("--steps=1000000000 --print-every=1000000 --checkpoint=c "
           "--checkpoint-every=10 --restarts=1") +
      " & run=$!; children() { cat /proc/$1/task/$1/children; }; " + stepped +
      "set -- $(children $(children $run)); first=$1; kill -USR2 $run; "
      "sleep 0.2; kill -9 $first; "
      "until set -- $(children $(children $run) 2>/dev/null); "
      "[ $# = 2 ] && [ $1 != $first ]; do kill -0 $run || exit; sleep 0.05; "
      "done; newest() { ls -d c/step-* | tail -n 1; }; last=$(newest); "
      "until [ $(newest) != $last ]; do kill -0 $run || exit; sleep 0.05; "
      "done; kill -USR1 $run; sleep 0.5; kill -TERM $run; wait $run";
  EXPECT_EQ(run(script), 143) << output;
  EXPECT_NE(output.find("restart 1 of 1 after a lost process (exit code 4)"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find("SIGUSR2: no step is recorded without --trace=FILE"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find("ended by SIGTERM after step "), std::string::npos)
      << output;
}

#endif

} // namespace
