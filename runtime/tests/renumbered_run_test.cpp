//===- renumbered_run_test.cpp - Runs whose ranks are dealt round hosts ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Processes of this machine that take themselves for those of several hosts, as
// a launcher may have dealt them. They train with the runtime's own transport,
// monitor and world, and what comes of it is beside a run of one process.
//
//===----------------------------------------------------------------------===//

#include "grt/processes.h"
#include "grt/session.h"
#include "launched.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace grt;
using namespace grt::test;

namespace {

/// The host of each process that the launcher started, and the plan's nodes.
struct Placed {
  std::vector<std::string> hosts;
  std::string nodes;
  bool devices = false;      ///< the backend has a device for each process
  bool anyPlacement = false; ///< of SessionOptions
};

/// The plan is tp2 inside sdp2 on four ranks.
ModelPlan planOf(const std::string &nodes) {
  ModelPlan plan;
  plan.layers[0].levels = {{"sdp", 2}, {"tp", 2}};
  plan.layers[1].levels = {{"dp", 2}, {"tp", 2}};
  plan.layers[2].levels = {{"tp", 4}};
  plan.stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  plan.nodesJson = nodes;
  return plan;
}

/// The reference backend, with a device for each process.
const grt_backend *backendWithDevices() {
  static const grt_backend table = [] {
    grt_backend made = *referenceBackend();
    made.count_devices = [](int32_t *count, char *, size_t) {
      *count = 1;
      return 0;
    };
    made.use_device = [](int32_t, char *, size_t) { return 0; };
    made.device_identity = [](char *text, size_t bytes, char *, size_t) {
      std::snprintf(text, bytes, "card-%d", int(getpid()));
      return 0;
    };
    return made;
  }();
  return &table;
}

/// Trains three steps, saves the model at `folder`/model and says what came of
/// it, a line each; without hosts as one process.
void train(const Placed &placed, int started, const std::string &folder,
           std::ostream &said) {
  TestProgram code(planOf(placed.nodes));
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(code.file(), "test", program);
  SessionOptions options;
  options.seed = 17;
  options.backend = placed.devices ? backendWithDevices() : referenceBackend();
  options.anyPlacement = placed.anyPlacement;
  std::shared_ptr<Processes> processes;
  if (status && !placed.hosts.empty()) {
    ProcessOptions join;
    join.host = placed.hosts[size_t(started)];
    join.nodes = [&](int) { return program->nodes(); };
    status = Processes::join(join, processes);
    if (status) {
      options.world = processes->world();
      said << "number: " << processes->number() << "\n"
           << "renumbering: " << processes->renumbering() << "\n";
    }
  }
  std::unique_ptr<Session> session;
  if (status)
    status = Session::create(program, options, session);
  if (status)
    for (const std::string &note : session->notes())
      said << "note: " << note << "\n";
  for (int step = 0; status && step < 3; ++step) {
    std::vector<int32_t> tokens(8 * 4), labels(8 * 4);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = int32_t(i * 7 + size_t(step) * 3) % 11;
      labels[i] = int32_t(i * 5 + size_t(step)) % 11;
    }
    StepResult result;
    status = session->setBatch(tokens, labels);
    if (status)
      status = session->step(result);
    said << "loss: " << std::hexfloat << result.loss << " "
         << result.gradientNorm << "\n";
  }
  if (status)
    status = session->save(folder + "/model");
  session.reset();
  said << "ended: " << status.exitCode() << " " << status.message() << "\n";
  said.flush();
  if (processes)
    _exit(processes->finish(status));
}

std::string contents(const std::string &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RenumberedRun : public testing::Test {
protected:
  /// The output of each process, in the launcher's order; the model of the run
  /// is in `model`.
  std::vector<std::string> run(const Placed &placed) {
    const std::string folder = testing::TempDir() + "renumbered";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    const uint16_t port = freePort();
    const size_t count = placed.hosts.empty() ? 1 : placed.hosts.size();
    std::vector<pid_t> children;
    for (size_t i = 0; i < count; ++i) {
      pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const std::pair<const char *, std::string> variables[] = {
            {"RANK", std::to_string(i)},
            {"WORLD_SIZE", std::to_string(count)},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(port)}};
        for (const auto &[name, value] : variables)
          setenv(name, value.c_str(), 1);
        std::ofstream said(folder + "/" + std::to_string(i));
        // Failures are in what is said.
        if (!freopen("/dev/null", "w", stderr))
          _exit(98);
        train(placed, int(i), folder, said);
        _exit(0);
      }
      children.push_back(child);
    }
    codes.clear();
    for (pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    std::vector<std::string> said;
    for (size_t i = 0; i < count; ++i)
      said.push_back(contents(folder + "/" + std::to_string(i)));
    model = contents(folder + "/model/model.safetensors");
    return said;
  }

  /// The texts behind `key` in the lines that begin with it.
  static std::string lines(const std::string &said, const std::string &key) {
    std::istringstream all(said);
    std::string result;
    for (std::string line; std::getline(all, line);)
      if (line.starts_with(key + ": "))
        result += (result.empty() ? "" : "; ") + line.substr(key.size() + 2);
    return result;
  }

  /// Results are those of one process, and numbers these.
  void expectNumbers(const Placed &placed, const std::vector<int> &numbers) {
    const std::string alone = lines(run({{}, placed.nodes}).at(0), "loss");
    const std::string modelAlone = model;
    ASSERT_FALSE(alone.empty());
    ASSERT_FALSE(modelAlone.empty());
    std::vector<std::string> said = run(placed);
    for (size_t i = 0; i < said.size(); ++i) {
      EXPECT_EQ(lines(said[i], "number"), std::to_string(numbers[i]));
      EXPECT_EQ(lines(said[i], "loss"), alone) << said[i];
      EXPECT_EQ(lines(said[i], "note"), "");
      EXPECT_EQ(codes[i], 0) << said[i];
      EXPECT_EQ(lines(said[i], "renumbering"), lines(said[0], "renumbering"));
    }
    EXPECT_EQ(model, modelAlone);
    renumbering = lines(said[0], "renumbering");
  }

  std::vector<int> codes;
  std::string model, renumbering;
};

const char *const twoPairs = R"([{"count": 2, "devices": 2}])";

TEST_F(RenumberedRun, RanksThatWereDealtRoundTheHostsGiveTheSameResults) {
  expectNumbers({{"a", "b", "a", "b"}, twoPairs}, {0, 2, 1, 3});
  EXPECT_NE(renumbering.find("'a' has 0, 1, 'b' has 2, 3"), std::string::npos)
      << renumbering;
  // A right order stays, on hosts that have room for several nodes as well.
  expectNumbers({{"a", "a", "b", "b"}, twoPairs}, {0, 1, 2, 3});
  EXPECT_EQ(renumbering, "");
}

TEST_F(RenumberedRun, ProcessZeroMovesWhereNothingElseDoes) {
  expectNumbers({{"a", "b", "b", "b"},
                 R"([{"count": 1, "devices": 3}, {"count": 1, "devices": 1}])"},
                {3, 0, 1, 2});
}

TEST_F(RenumberedRun, WhereNoneDoesItIsToldOrRefused) {
  Placed placed{{"a", "b", "a", "b"}, R"([{"count": 1, "devices": 4}])"};
  std::vector<std::string> said = run(placed);
  EXPECT_EQ(codes, std::vector<int>(4, 0));
  EXPECT_NE(lines(said[3], "note")
                .find("tp2 of layer 'layer0' was priced inside "
                      "a node"),
            std::string::npos)
      << said[3];
  const std::string trained = lines(said[0], "loss");

  placed.devices = true;
  said = run(placed);
  EXPECT_EQ(codes, std::vector<int>(4, 2));
  EXPECT_EQ(lines(said[0], "loss"), "");
  EXPECT_NE(lines(said[2], "ended").find("or run it so with --any-placement"),
            std::string::npos)
      << said[2];

  placed.anyPlacement = true;
  said = run(placed);
  EXPECT_EQ(codes, std::vector<int>(4, 0));
  EXPECT_EQ(lines(said[0], "loss"), trained);
  EXPECT_NE(lines(said[0], "note").find("ranks 0 to 3 are one node"),
            std::string::npos);
}

} // namespace
