//===- processes_test.cpp - galvatron-run under mpirun --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every run has a limit of its own, so that a rank that hangs fails the test:
// `timeout` then ends mpirun with code 124.
//
//===----------------------------------------------------------------------===//

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

struct Result {
  int exitCode;
  std::string output;
};

Result finish(FILE *pipe) {
  Result result;
  char buffer[4096];
  while (size_t got = fread(buffer, 1, sizeof(buffer), pipe))
    result.output.append(buffer, got);
  int status = pclose(pipe);
  result.exitCode = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

Result runCommand(const std::string &command) {
  return finish(popen((command + " 2>&1").c_str(), "r"));
}

class ProcessesTest : public ::testing::Test {
protected:
  void SetUp() override {
    folder = testing::TempDir() + "galvatron-processes-test-" +
             std::to_string(getpid());
    fs::create_directories(folder);
    std::ofstream text(folder + "/text.txt");
    for (int i = 0; i < 400; ++i)
      text << "abcdefgh";
    // A folder of the test's own: other runs on the machine use shared memory,
    // too.
    fs::create_directories(sharedMemory);
    setenv("OMPI_MCA_btl_vader_backing_directory", sharedMemory.c_str(), 1);
  }
  void TearDown() override {
    fs::remove_all(folder);
    // The launcher mpirun removes them when it has seen all processes end.
    for (int i = 0; i < 500 && !segments().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(segments(), std::set<std::string>())
        << "shared memory was left behind";
    fs::remove_all(sharedMemory);
  }

  /// Segments that Open MPI keeps in shared memory; the runtime keeps nothing
  /// there.
  std::set<std::string> segments() const {
    std::set<std::string> names;
    for (const auto &entry : fs::directory_iterator(sharedMemory))
      names.insert(entry.path().filename());
    return names;
  }

  static std::string mpirun(const std::string &rest) {
    return "timeout -k 5 60 " MPIRUN " --oversubscribe " + rest;
  }
  std::string tool(int steps, const std::string &more = "",
                   const std::string &data = "text.txt") const {
    return GALVATRON_RUN " " TEST_PROGRAMS "/bigram2.gvx --data=" + folder +
           "/" + data + " --steps=" + std::to_string(steps) + " --lr=0.3 " +
           more;
  }
  std::string read(const std::string &name) const {
    std::ifstream in(folder + "/" + name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  }
  /// Step and loss of every line of a log, as written.
  std::string losses(const std::string &name) const {
    std::istringstream in(read(name));
    std::string line, all;
    while (std::getline(in, line))
      all += line.substr(0, line.find("\"lr\"")) + "\n";
    return all;
  }

  /// True if a process runs; false for one that has ended and not been waited
  /// for.
  static bool lives(pid_t pid) {
    std::error_code error;
    return !fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error)
                .empty();
  }

  /// Starts a long run of two processes, sends a signal to the one with `rank`
  /// once it trains, and waits for the end.
  Result disturb(int rank, int signal, const std::string &more = "") {
    std::string log = folder + "/log.jsonl";
    for (const char *old : {"/log.jsonl", "/pid.0", "/pid.1"})
      fs::remove(folder + old);
    // The shell's number stays that of the tool.
    std::string command =
        mpirun("-n 2 sh -c 'echo $$ > " + folder +
               "/pid.$OMPI_COMM_WORLD_RANK; exec " +
               tool(100000000, "--log=" + log + " " + more) + "'");
    FILE *pipe = popen((command + " 2>&1 >/dev/null").c_str(), "r");
    auto trains = [&] {
      std::error_code error;
      return fs::file_size(log, error) > 2000 && !error;
    };
    for (int i = 0; i < 3000 && !trains(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    pid_t pids[2] = {};
    for (int i : {0, 1})
      std::istringstream(read("pid." + std::to_string(i))) >> pids[i];
    EXPECT_GT(pids[0], 1);
    EXPECT_GT(pids[1], 1);
    if (pids[rank] > 1)
      kill(pids[rank], signal);
    Result result = finish(pipe);
    // Processes that mpirun ends with SIGKILL may take a moment to go.
    for (int i = 0; i < 500 && (lives(pids[0]) || lives(pids[1])); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (pid_t pid : pids)
      EXPECT_FALSE(lives(pid)) << "process " << pid << " was left behind";
    return result;
  }

  std::string folder;
  std::string sharedMemory =
      "/dev/shm/galvatron-processes-test-" + std::to_string(getpid());
};

TEST_F(ProcessesTest, SameBitsAsThreads) {
  std::string options = "--generate=abc --tokens=5 --validation-fraction=0.1 "
                        "--validate-every=10 ";
  auto outputs = [&](const std::string &name) {
    return options + "--log=" + folder + "/" + name +
           ".jsonl --summary=" + folder + "/" + name +
           ".json --save=" + folder + "/" + name;
  };
  Result threads = runCommand(tool(20, outputs("threads")));
  ASSERT_EQ(threads.exitCode, 0) << threads.output;
  Result processes =
      runCommand(mpirun("-n 2 " + tool(20, outputs("processes"))));
  ASSERT_EQ(processes.exitCode, 0) << processes.output;
  EXPECT_NE(losses("threads.jsonl"), "");
  EXPECT_EQ(losses("threads.jsonl"), losses("processes.jsonl"));
  std::string weights = read("threads/model.safetensors");
  EXPECT_GT(weights.size(), 256u * 256 * 4);
  EXPECT_TRUE(weights == read("processes/model.safetensors"));
  EXPECT_NE(processes.output.find("generated: abcdefgh\n"), std::string::npos)
      << processes.output;
  // One process speaks.
  EXPECT_EQ(processes.output.find("step 20 "),
            processes.output.rfind("step 20 "));
  EXPECT_NE(read("processes.json").find("\"transport\": \"Open MPI"),
            std::string::npos);
  EXPECT_NE(read("processes.json").find("\"most-held-bytes\": null"),
            std::string::npos);

  // The first of the processes that mpirun may start has both ranks.
  Result hybrid =
      runCommand(mpirun("-n 1 " + tool(20, "--ranks=2 " + outputs("hybrid"))));
  ASSERT_EQ(hybrid.exitCode, 0) << hybrid.output;
  EXPECT_EQ(losses("threads.jsonl"), losses("hybrid.jsonl"));
}

TEST_F(ProcessesTest, DrawnTokensAreThoseOfThreads) {
  // Hot enough that the likeliest tokens are rare.
  std::string options =
      "--generate=abc --tokens=12 --temperature=20 --top-p=0.9 ";
  auto generated = [](const Result &result) {
    EXPECT_EQ(result.exitCode, 0) << result.output;
    size_t at = result.output.find("generated: ");
    return result.output.substr(std::min(at, result.output.size()), 26);
  };
  std::string threads = generated(runCommand(tool(5, options)));
  EXPECT_EQ(threads.find("generated: abc"), 0u) << threads;
  EXPECT_EQ(generated(runCommand(mpirun("-n 2 " + tool(5, options)))), threads);
}

TEST_F(ProcessesTest, WrongNumberOfRanks) {
  Result result = runCommand(mpirun("-n 3 " + tool(1)));
  EXPECT_EQ(result.exitCode, 2) << result.output;
  std::string message = "galvatron-run: error: the program needs 2 ranks, 3 "
                        "processes have 3; --ranks=N gives each N\n";
  EXPECT_NE(result.output.find(message), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find(message), result.output.rfind(message));
}

TEST_F(ProcessesTest, WrongUsageIsSaidOnce) {
  Result result = runCommand(mpirun("-n 2 " + tool(1, "--bogus")));
  EXPECT_EQ(result.exitCode, 2) << result.output;
  EXPECT_NE(result.output.find("unknown option"), std::string::npos);
  EXPECT_EQ(result.output.find("unknown option"),
            result.output.rfind("unknown option"));
}

TEST_F(ProcessesTest, SlurmWithoutPmix) {
  Result srun = runCommand("SLURM_STEP_NUM_TASKS=2 " + tool(1));
  EXPECT_EQ(srun.exitCode, 2);
  EXPECT_NE(srun.output.find("srun --mpi=pmix"), std::string::npos)
      << srun.output;
}

/// One process alone finds its data missing.
TEST_F(ProcessesTest, AnErrorOfOneProcessEndsAll) {
  Result result = runCommand(mpirun("-n 1 " + tool(100000000) + " : -n 1 " +
                                    tool(100000000, "", "missing.txt")));
  EXPECT_EQ(result.exitCode, 2) << result.output;
  std::string message = "galvatron-run: error: cannot open data file";
  EXPECT_NE(result.output.find(message), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find(message), result.output.rfind(message));
}

/// The processes end before the first step, and one says why.
TEST_F(ProcessesTest, ProcessesThatDoNotAgree) {
  for (auto [one, other, message] :
       {std::tuple("--seed=3", "--seed=4",
                   "processes 0, 1: --seed=3, process 2: --seed=4"),
        {"", "--momentum=0.5",
         "processes 0, 1: no --momentum, process 2: "
         "--momentum=0.5"}}) {
    // A process too many shows that the difference is found before that.
    Result result = runCommand(
        mpirun("-n 2 " + tool(1000, one) + " : -n 1 " + tool(1000, other)));
    EXPECT_EQ(result.exitCode, 2) << result.output;
    std::string whole = std::string("galvatron-run: error: the processes do "
                                    "not agree: ") +
                        message + "\n";
    EXPECT_NE(result.output.find(whole), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("do not agree"),
              result.output.rfind("do not agree"));
    EXPECT_EQ(result.output.find("step 1 "), std::string::npos);
  }
}

TEST_F(ProcessesTest, DifferentPrograms) {
  std::string other = tool(1000);
  other.replace(other.find("bigram2"), 7, "bigram2-other");
  Result result = runCommand(mpirun("-n 1 " + tool(1000) + " : -n 1 " + other));
  EXPECT_EQ(result.exitCode, 2) << result.output;
  EXPECT_NE(result.output.find("do not agree: process 0: program with SHA-256"),
            std::string::npos)
      << result.output;
}

TEST_F(ProcessesTest, AKilledProcessEndsTheOthers) {
  for (int rank : {1, 0}) {
    Result result = disturb(rank, SIGKILL);
    std::string lost = "process " + std::to_string(rank) + " (rank " +
                       std::to_string(rank) + ", pid ";
    // The exit code of mpirun is that of the process of which it hears first.
    EXPECT_TRUE(result.exitCode == 4 || result.exitCode == 128 + SIGKILL)
        << result.exitCode << result.output;
    size_t at = result.output.find(lost);
    ASSERT_NE(at, std::string::npos) << result.output;
    std::string message = result.output.substr(at);
    message = message.substr(0, message.find('\n'));
    EXPECT_NE(message.find("ended without a word"), std::string::npos);
    EXPECT_NE(message.find("was last seen in "), std::string::npos) << message;
    EXPECT_NE(message.find("rank " + std::to_string(1 - rank) +
                           " waits for it: step "),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("waiting for rank " + std::to_string(rank)),
              std::string::npos)
        << message;
  }
}

TEST_F(ProcessesTest, AStoppedProcessEndsTheOthers) {
  Result result = disturb(1, SIGSTOP, "--timeout=2");
  EXPECT_EQ(result.exitCode, 4) << result.output;
  EXPECT_NE(result.output.find(" progress for 2 s"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("waiting for rank 1"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("process 1 (rank 1, pid "), std::string::npos)
      << result.output;
}

/// Process 0 waits for the reader of its log, the other for process 0; the
/// time-out is for steps.
TEST_F(ProcessesTest, WaitingForStorageIsNoStandstill) {
  std::string log = folder + "/log.fifo";
  ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
  Result result = runCommand(
      "(sleep 3; timeout 20 cat " + log + " > " + folder + "/log.jsonl) & " +
      mpirun("-n 2 " + tool(3, "--timeout=0.5 --log=" + log)) +
      "; code=$?; wait; exit $code");
  EXPECT_EQ(result.exitCode, 0) << result.output;
  std::string lines = read("log.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
}

/// Process 0 alone writes and finds that it cannot: the others gather on, what
/// else is to be written is, and the cause is told once.
TEST_F(ProcessesTest, AnOutputThatFailsIsToldOnceAndTheOthersAreWritten) {
  Result result = runCommand(mpirun(
      "-n 2 " + tool(3, "--dump-gradients=/dev/full --save=" + folder +
                            "/model --summary=" + folder + "/full.json")));
  EXPECT_EQ(result.exitCode, 5) << result.output;
  std::string message =
      "galvatron-run: error: cannot write '/dev/full': No space left";
  EXPECT_NE(result.output.find(message), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find(message), result.output.rfind(message));
  EXPECT_NE(result.output.find("step 3 loss "), std::string::npos);
  EXPECT_GT(read("model/model.safetensors").size(), 256u * 256 * 4);
  EXPECT_NE(read("full.json").find("\"ended-by\": \"storage\""),
            std::string::npos);
}

/// Signals to one process make all end after the same step.
TEST_F(ProcessesTest, SigtermToOneProcessEndsAllInOrder) {
  Result result = disturb(1, SIGTERM,
                          "--checkpoint=" + folder + "/saved --save=" + folder +
                              "/model --summary=" + folder + "/ended.json");
  // All processes know of the signal that one of them got.
  EXPECT_EQ(result.exitCode, 143) << result.output;
  EXPECT_NE(read("ended.json").find("\"ended-by\": \"SIGTERM\""),
            std::string::npos);
  EXPECT_NE(read("model/model.safetensors"), "");
  int found = 0;
  for (const auto &entry : fs::directory_iterator(folder + "/saved"))
    found += entry.path().filename().string().find("step-") == 0;
  EXPECT_EQ(found, 1);
  Result resumed =
      runCommand(tool(100000000, "--resume --timeout=0 --checkpoint=" + folder +
                                     "/saved") +
                 " & pid=$!; sleep 1; kill -TERM $pid; wait $pid");
  EXPECT_EQ(resumed.exitCode, 143) << resumed.output;
  EXPECT_NE(resumed.output.find("resumed from '"), std::string::npos)
      << resumed.output;
}

} // namespace
