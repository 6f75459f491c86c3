//===- stopping_test.cpp - Runs that one process is asked to end ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What one process is asked for rides in the numbers that all exchange at the
// end of a step. A signal may come at any point of one, in any mode: all
// processes end behind the same step, with everything written.
//
//===----------------------------------------------------------------------===//

#include "files.h"
#include "grt/checkpoint.h"
#include "launched.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <thread>

using namespace grt::test;

namespace {

class Stopping : public Launched {
protected:
  void SetUp() override {
    Launched::SetUp();
    random.seed(7);
  }

  std::string pathOf(const std::string &name) { return folder + "/" + name; }

  /// Starts process `number` of two.
  pid_t start(int number, uint16_t port, const std::string &options) {
    const std::string own = std::to_string(number);
    const std::string command =
        "cd " + folder + " && RANK=" + own + " LOCAL_RANK=" + own +
        " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
        std::to_string(port) +
        " exec " GALVATRON_RUN " " TEST_PROGRAMS "/bigram2" +
        (options.find("late") == std::string::npos ? "" : "-unclipped") +
        ".gvx --data=text.txt --steps=100000000 --timeout=30 "
        "--print-every=1000000 --log=log.jsonl --summary=summary.json "
        "--save=model " +
        options + " > said." + own + " 2>&1";
    pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }

  size_t steps() {
    const std::string log = readAll(pathOf("log.jsonl"));
    return size_t(std::count(log.begin(), log.end(), '\n'));
  }

  /// A run whose process `asked` gets the signal somewhere in a step.
  void expectOrderlyEnd(const std::string &options, int asked, int signal) {
    SCOPED_TRACE(options + ", signal " + std::to_string(signal) +
                 " to process " + std::to_string(asked));
    for (const char *old : {"log.jsonl", "summary.json", "model", "saved"})
      std::filesystem::remove_all(pathOf(old));
    const uint16_t port = freePort();
    const pid_t processes[] = {start(0, port, options),
                               start(1, port, options)};
    for (int i = 0; i < 3000 && steps() < 5; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    kill(processes[asked], signal);
    for (pid_t process : processes) {
      int status = 0;
      waitpid(process, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal)
          << status << readAll(pathOf("said.0")) << readAll(pathOf("said.1"));
    }
    auto summary = nlohmann::json::parse(readAll(pathOf("summary.json")),
                                         nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(summary.is_object());
    EXPECT_EQ(summary["ended-by"], signal == SIGTERM ? "SIGTERM" : "SIGINT");
    const std::string note = " after step " + std::to_string(steps()) + "\n";
    EXPECT_NE(readAll(pathOf("said.0")).find(note), std::string::npos)
        << note << readAll(pathOf("said.0"));
    EXPECT_GT(readAll(pathOf("model/model.safetensors")).size(), 1u << 18);
    if (options.find("--checkpoint=") != std::string::npos) {
      auto saved = grt::checkpointSteps(pathOf("saved"));
      ASSERT_FALSE(saved.empty());
      EXPECT_EQ(saved.back(), steps());
    }
  }

  std::mt19937 random;
};

TEST_F(Stopping, AnyProcessEndsAllBehindOneStep) {
  int number = 0;
  for (const char *options :
       {"", "--on-nan=late", "--on-nan=skip --accumulate=2",
        "--checkpoint=saved --checkpoint-every=2",
        "--checkpoint=saved --checkpoint-every=3 --no-write-behind",
        "--on-nan=late --checkpoint=saved --checkpoint-every=2",
        "--validate-every=2 --validation-fraction=0.2", "--check-replicas=1"}) {
    const int asked = number++ % 2;
    expectOrderlyEnd(options, asked, number % 3 ? SIGTERM : SIGINT);
  }
}

/// Each process has a time of its own.
TEST_F(Stopping, TheTimeOfOneProcessEndsAll) {
  const uint16_t port = freePort();
  const pid_t processes[] = {
      start(0, port, "--checkpoint=saved --max-seconds=1.5"),
      start(1, port, "--checkpoint=saved --max-seconds=1.5")};
  for (pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 124)
        << status << readAll(pathOf("said.0")) << readAll(pathOf("said.1"));
  }
  auto saved = grt::checkpointSteps(pathOf("saved"));
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(saved.back(), steps());
}

} // namespace
