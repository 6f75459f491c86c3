//===- restarts_test.cpp - Runs that are started again --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "children.h"
#include "files.h"
#include "restarts.h"
#include "tool.h"

#include "grt/checkpoint.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <unistd.h>

using namespace grt;
using namespace grt::test;

namespace {

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

TEST(Restarts, DependOnTheClassOfTheFailure) {
  for (int code : {0, 2, 124, 129, 130, 141, 143})
    EXPECT_FALSE(RestartPolicy(9).ended({code, 0}, 0).again) << code;
  for (int code : {1, 3, 4, 5, 6})
    EXPECT_TRUE(RestartPolicy(9).ended({code, 0}, 0).again) << code;
  EXPECT_TRUE(RestartPolicy(9).ended({1, SIGKILL}, 0).again);
  // Storage and memory take longer to come back than a process.
  EXPECT_GT(RestartPolicy(9).ended({5, 0}, 0).waitSeconds,
            RestartPolicy(9).ended({4, 0}, 0).waitSeconds);
  EXPECT_EQ(RestartPolicy(9).ended({3, 0}, 0).waitSeconds, 0);
}

TEST(Restarts, AreCountedAndWaitLongerWithoutProgress) {
  RestartPolicy policy(5);
  double before = 0;
  for (int i = 0; i < 3; ++i) {
    RestartDecision next = policy.ended({4, 0}, 10);
    EXPECT_TRUE(next.again);
    EXPECT_GT(next.waitSeconds, before);
    before = next.waitSeconds;
  }
  // A newer checkpoint: the run got on.
  RestartDecision next = policy.ended({4, 0}, 20);
  EXPECT_LT(next.waitSeconds, before);
  EXPECT_TRUE(policy.ended({4, 0}, 30).again);
  next = policy.ended({4, 0}, 40);
  EXPECT_FALSE(next.again) << "more than asked for";
  EXPECT_STREQ(next.why, "a lost process");
}

TEST(Restarts, TheWindowOfDataDoublesAtOnePlace) {
  RestartPolicy policy(9);
  EXPECT_EQ(policy.ended({3, 0}, 10).skipBatches, 1u);
  EXPECT_EQ(policy.ended({3, 0}, 10).skipBatches, 2u);
  EXPECT_EQ(policy.ended({4, 0}, 10).skipBatches, 0u);
  EXPECT_EQ(policy.ended({3, 0}, 10).skipBatches, 4u);
  EXPECT_EQ(policy.ended({3, 0}, 11).skipBatches, 1u);
}

/// A child of the test below, which starts this program again for it.
TEST(Children, DISABLED_Child) {
  const std::string ready = std::getenv("GRT_TEST_READY");
  const std::string role = std::getenv("GRT_TEST_ROLE");
  if (role == "ends") {
    while (access(ready.c_str(), F_OK) != 0)
      usleep(5000);
    _exit(4);
  }
  if (role == "deaf") {
    std::signal(SIGTERM, SIG_IGN);
    std::ofstream(ready + ".part") << "ready";
    rename((ready + ".part").c_str(), ready.c_str());
  }
  for (;;)
    pause();
}

/// One that has ended ends those that hang, also one that does not hear.
TEST(Children, ThatHangAreEnded) {
  const std::string ready = testing::TempDir() + "children-ready";
  std::map<pid_t, std::string> roles;
  std::map<std::string, ChildEnd> ends;
  std::string program = "child",
              filter = "--gtest_filter=Children.DISABLED_Child",
              disabled = "--gtest_also_run_disabled_tests";
  for (const char *role : {"deaf", "hangs", "ends"})
    roles[startChild({program.data(), filter.data(), disabled.data(), nullptr},
                     {{"GRT_TEST_READY", ready}, {"GRT_TEST_ROLE", role}})] =
        role;
  waitForChildren(
      3, /*failed=*/false, {.toEnd = 0.05, .toSave = 0.05},
      [](const ChildEnd &end) { return end.exitCode == 4; },
      [&](pid_t child, const ChildEnd &end) { ends[roles[child]] = end; });
  EXPECT_EQ(ends["ends"].exitCode, 4);
  EXPECT_EQ(ends["hangs"].signal, SIGTERM);
  EXPECT_EQ(ends["deaf"].signal, SIGKILL);
}

std::string common(const std::string &kept) {
  return program(2) + " --data=" + alphabet() +
         " --lr=0.1 --checkpoint=" + kept + " --keep-checkpoints=9";
}

TEST(Restarts, DataThatGivesNoNumberIsLeftOut) {
  std::string kept = checkpoints("restart-nan");
  Result result = runTool(common(kept) + " --lr=1e38 --weight-decay=0 "
                                         "--steps=8 --restarts=2");
  EXPECT_EQ(result.exitCode, 3) << result.output;
  EXPECT_TRUE(has(result.output, "restart 1 of 2 after values that are not "
                                 "finite (exit code 3), from step "))
      << result.output;
  EXPECT_TRUE(has(result.output, " are left out: a value was not finite there"))
      << result.output;
  EXPECT_TRUE(has(result.output, "the run ended after 2 restarts, the last "
                                 "time by values that are not finite"))
      << result.output;
  EXPECT_FALSE(has(result.output, "restart 3"));
}

/// Launchers under which no process can be joined twice, or that start
/// processes again themselves.
TEST(Restarts, LaunchersThatCannotAreNamed) {
  std::string arguments =
      common(checkpoints("restart-launcher")) + " --steps=1 --restarts=1";
  const std::string unknown = "this launcher does not say which of how many "
                              "processes this is: expected the variables of "
                              "mpirun, srun or torchrun";
  const std::pair<const char *, std::string> rows[] = {
      {"TORCHELASTIC_USE_AGENT_STORE=True",
       "torchrun starts processes again itself: torchrun --max-restarts, and "
       "--resume"},
      {"PMIX_RANK=0", unknown},
      {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0", unknown},
      {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "
       "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1",
       "mpirun on several machines joins no process twice: expected the "
       "machine of process 0 in MASTER_ADDR (mpirun -x MASTER_ADDR=HOST)"}};
  for (const auto &[variables, message] : rows) {
    std::string tool = std::string(variables) + " " GALVATRON_RUN;
    Result result = runTool(arguments, "2>&1", tool.c_str());
    EXPECT_EQ(result.exitCode, 2) << variables;
    EXPECT_EQ(result.output,
              "galvatron-run: error: --restarts: " + message + "\n")
        << variables;
  }
  Options options;
  options.elastic = "programs";
  ElasticPrograms programs;
  EXPECT_EQ(findElasticPrograms(options, programs).message(),
            "--elastic: this process has all ranks, which live and die "
            "together");
}

TEST(Restarts, ADamagedCheckpointIsSetAsideForTheOneBefore) {
  std::string kept = checkpoints("restart-damaged");
  Result result = runTool(common(kept) + " --steps=6 --checkpoint-every=2");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  std::string newest = kept + "/step-00000006";
  ASSERT_TRUE(verifyCheckpoint(newest));
  // One bit of the last tensor.
  std::string file = newest + "/model-00001-of-00001.safetensors";
  std::string bytes = readAll(file);
  bytes.back() = char(bytes.back() ^ 4);
  std::ofstream(file, std::ios::binary) << bytes;
  Status damaged = verifyCheckpoint(newest);
  EXPECT_EQ(damaged.exitCode(), 2);
  EXPECT_TRUE(has(damaged.message(), "do not add up to their checksum"));
  // A run without restarts leaves the decision to its user.
  result = runTool(common(kept) + " --resume --steps=8");
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result.output, "; '" + kept +
                                     "/step-00000004' is whole: "
                                     "rename '" +
                                     newest + "' to go on from there"))
      << result.output;
  result = runTool(common(kept) + " --resume --steps=8 --restarts=1");
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result.output, "'" + newest + "' is set aside"))
      << result.output;
  EXPECT_TRUE(has(result.output, "resumed from '" + kept + "/step-00000004'"))
      << result.output;
  EXPECT_TRUE(std::filesystem::exists(newest + ".damaged"));
  EXPECT_TRUE(verifyCheckpoint(kept + "/step-00000008"));
  // The newest of those set aside stays.
  EXPECT_TRUE(setCheckpointAside(kept + "/step-00000008"));
  EXPECT_FALSE(std::filesystem::exists(newest + ".damaged"));
  EXPECT_TRUE(std::filesystem::exists(kept + "/step-00000008.damaged"));
}

/// Runs a script of a shell that has the tool's pid as $run and waits for it;
/// `during` has `newest` and `attempt`, its process, to work with.
Result during(const std::string &arguments, const std::string &kept,
              const std::string &during) {
  std::string script = std::string(GALVATRON_RUN) + " " + arguments +
                       " &\nrun=$!\nfor i in $(seq 600); do ls -d " + kept +
                       "/step-* >/dev/null 2>&1 && break; sleep 0.1; done\n"
                       "attempt=$(cat /proc/$run/task/$run/children)\n" +
                       during + "\nwait $run\nexit $?\n";
  std::string path = writeText("during.sh", script);
  Result result;
  FILE *pipe = popen(("bash " + path + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (size_t got = fread(buffer, 1, sizeof(buffer), pipe))
    result.output.append(buffer, got);
  int status = pclose(pipe);
  result.exitCode = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(Restarts, AKilledRunEndsWithTheSameLoss) {
  std::string summary = folder() + "/restarted.json";
  std::string arguments =
      " --steps=1000 --print-every=500 --summary=" + summary;
  ASSERT_EQ(runTool(common(checkpoints("restart-none")) + arguments).exitCode,
            0);
  double undisturbed = finalLoss(summary);
  std::string kept = checkpoints("restart-killed");
  Result result =
      during(common(kept) + arguments + " --checkpoint-every=10 --restarts=3",
             kept, "kill -9 $attempt");
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result.output, "restart 1 of 3 after a signal (signal 9)"))
      << result.output;
  EXPECT_EQ(finalLoss(summary), undisturbed);
}

TEST(Restarts, ASignalEndsTheRunAndIsNoFailure) {
  std::string kept = checkpoints("restart-signal");
  Result result = during(common(kept) + " --steps=1000000000 --print-every="
                                        "100000 --checkpoint-every=10 "
                                        "--restarts=3",
                         kept, "kill -TERM $run");
  EXPECT_EQ(result.exitCode, 143) << result.output;
  EXPECT_TRUE(has(result.output, "ended by SIGTERM after step "));
  EXPECT_FALSE(has(result.output, "restart 1")) << result.output;
}

/// A request to a run does not end it, neither the command that waits nor an
/// attempt that has just been started.
TEST(Restarts, AWishReachesTheRunAndDoesNotEndIt) {
  std::string kept = checkpoints("restart-wish");
  std::string traces = folder() + "/wish";
  std::filesystem::create_directories(traces);
  std::string script =
      std::string(GALVATRON_RUN) + " " + common(kept) +
      " --steps=1000000000 --print-every=100000 --restarts=3 --trace=" +
      traces +
      "/t.json &\nrun=$!\n"
      "until [ -n \"$(cat /proc/$run/task/$run/children)\" ]; do :; done\n"
      "kill -USR2 $run\n"
      "for i in $(seq 600); do ls " +
      traces +
      "/t.* >/dev/null 2>&1 && break; "
      "kill -0 $run || break; sleep 0.1; done\n"
      "kill -USR1 $run\n"
      "for i in $(seq 600); do ls -d " +
      kept +
      "/step-* >/dev/null 2>&1 && break; "
      "kill -0 $run || break; sleep 0.1; done\n"
      "kill -TERM $run; wait $run; exit $?\n";
  Result result = runTool(writeText("wish.sh", script), "2>&1", "bash");
  EXPECT_EQ(result.exitCode, 143) << result.output;
  EXPECT_TRUE(has(result.output, "ended by SIGTERM after step "))
      << result.output;
  EXPECT_FALSE(has(result.output, "restart 1")) << result.output;
  size_t windows = 0;
  for (const auto &entry : std::filesystem::directory_iterator(traces))
    windows += entry.path().filename() != "t.json";
  EXPECT_EQ(windows, 1u) << result.output;
}

TEST(Restarts, Refusals) {
  std::string some = program(1) + " --data=" + alphabet() + " --steps=2";
  Result result = runTool(some + " --restarts=2");
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result.output, "--restarts needs --checkpoint=DIR"));
  result = runTool(common(checkpoints("none")) + " --steps=2 --restarts=0");
  EXPECT_EQ(result.exitCode, 2);
  // A launcher that says no more than that it is one.
  setenv("PMIX_RANK", "0", 1);
  result = runTool(common(checkpoints("none")) + " --steps=2 --restarts=1");
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result.output, "--restarts: this launcher does not say which "
                                 "of how many processes this is"))
      << result.output;
  // The launcher is mpirun on two machines.
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
  result = runTool(common(checkpoints("none")) + " --steps=2 --restarts=1");
  for (const char *name :
       {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"})
    unsetenv(name);
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result.output, "in MASTER_ADDR (mpirun -x MASTER_ADDR=HOST)"))
      << result.output;
  result = runTool(some + " --elastic=" + folder());
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result.output, "--elastic goes on with fewer ranks after a "
                                 "failure: it needs --restarts=N"));
  result = runTool(common(checkpoints("none")) +
                   " --steps=2 --restarts=1 --elastic=" + folder());
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result.output, "--elastic: this process has all ranks"));
}

/// The rendezvous of srun's processes is on the first of its machines.
TEST(Restarts, SlurmSaysWhereProcess0Is) {
  const std::pair<const char *, const char *> variables[] = {
      {"PMIX_RANK", "0"},     {"SLURM_PROCID", "0"},
      {"SLURM_NTASKS", "1"},  {"SLURM_LOCALID", "0"},
      {"SLURM_JOB_ID", "77"}, {"SLURM_JOB_NUM_NODES", "2"}};
  for (const auto &[name, value] : variables)
    setenv(name, value, 1);
  std::string run =
      common(checkpoints("slurm")) + " --steps=2 --ranks=2 --restarts=1";
  Result without = runTool(run);
  setenv("SLURM_STEP_NODELIST", "node[3-4],other", 1);
  Result result = runTool(run);
  unsetenv("SLURM_STEP_NODELIST");
  for (const auto &[name, value] : variables)
    unsetenv(name);
  EXPECT_EQ(without.exitCode, 2) << without.output;
  EXPECT_TRUE(has(without.output, "expected the machine of process 0"));
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result.output, " in 1 process over TCP")) << result.output;
}

TEST(Restarts, AJobHasEightPorts) {
  auto portsOf = [](const std::string &job) {
    std::vector<int> ports;
    std::istringstream list(portsOfJob(job));
    for (std::string port; std::getline(list, port, ',');)
      ports.push_back(std::stoi(port));
    return ports;
  };
  std::set<int> firsts;
  for (int job = 0; job < 20; ++job) {
    const std::vector<int> ports = portsOf("job." + std::to_string(job));
    EXPECT_EQ(ports.size(), 8u);
    EXPECT_EQ(std::set<int>(ports.begin(), ports.end()).size(), 8u);
    for (int port : ports)
      EXPECT_TRUE(port >= 20000 && port < 32000) << port;
    EXPECT_EQ(portsOf("job." + std::to_string(job)), ports);
    firsts.insert(ports.front());
  }
  EXPECT_GT(firsts.size(), 15u);
}

TEST(Restarts, TheFirstHostOfAList) {
  EXPECT_EQ(firstHost("alpha"), "alpha");
  EXPECT_EQ(firstHost("alpha,beta[1-2]"), "alpha");
  EXPECT_EQ(firstHost("node[03-07,9],b1"), "node03");
  EXPECT_EQ(firstHost("node[7,9]"), "node7");
  EXPECT_EQ(firstHost("rack[2-3]-node,x"), "rack2-node");
}

} // namespace
