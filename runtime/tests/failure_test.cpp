//===- failure_test.cpp - Ranks that are stuck, throw or compute NaN ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/threads.h"
#include "core/backend_table.h"
#include "core/flight.h"
#include "core/watchdog.h"
#include "grt/checkpoint.h"
#include "grt/session.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <random>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace grt;
using namespace grt::test;

namespace {

/// The action of a kernel besides its work, on every call of one kind. It is
/// atomic, because a rank that hangs for ever outlives its test.
struct Fault {
  using Act = void (*)(const grt_call *call);
  std::atomic<grt_kernel> kernel = GRT_KERNEL_COUNT;
  std::atomic<Act> act = nullptr;

  void set(grt_kernel on, Act what) {
    kernel = on;
    act = what;
  }
};
Fault fault;

BackendTable faultyBackend() {
  BackendTable backend(*referenceBackend());
  auto kernel = [](const grt_call *call, char *message, size_t bytes) {
    int32_t status =
        referenceBackend()->kernels[fault.kernel](call, message, bytes);
    fault.act.load()(call);
    return status;
  };
  backend.kernels[fault.kernel] = kernel;
  return backend;
}

ModelPlan dataParallel(int64_t degree) {
  ModelPlan plan;
  for (LayerPlan &layer : plan.layers)
    layer.levels = {{"dp", degree}};
  plan.stages = {{{0, 1, 2}, {}}};
  for (int rank = 0; rank < degree; ++rank)
    plan.stages[0].devices.push_back(rank);
  return plan;
}

/// Three pipeline stages of different strategies.
ModelPlan pipeline() {
  ModelPlan plan;
  plan.layers[1].levels = {{"tp", 2}};
  plan.layers[2].levels = {{"sdp", 2}};
  plan.stages = {{{0}, {4}}, {{1}, {1, 0}}, {{2}, {2, 3}}};
  return plan;
}

struct Training {
  explicit Training(const ModelPlan &plan, SessionOptions options = {})
      : plan(plan), code(plan), backend(*referenceBackend()) {
    if (fault.kernel != GRT_KERNEL_COUNT)
      backend = faultyBackend();
    options.seed = 17;
    options.backend = &*backend;
    options.poison = true;
    std::shared_ptr<const Program> program;
    Status status = Program::loadMemory(code.file(), "test", program);
    EXPECT_TRUE(status) << status.message();
    status = Session::create(program, options, session);
    EXPECT_TRUE(status) << status.message();
    session->hyperparameters().learningRate = 0.05;
  }

  Status step(StepResult &result) {
    std::mt19937 random{unsigned(session->stepsDone()) * 31 + 5};
    std::vector<int32_t> tokens, labels;
    for (int64_t i = 0; i < plan.batch * plan.seqLen; ++i) {
      tokens.push_back(int32_t(random() % uint64_t(plan.vocab)));
      labels.push_back(int32_t(random() % uint64_t(plan.vocab)));
    }
    EXPECT_TRUE(session->setBatch(tokens, labels));
    return session->step(result);
  }
  Status step() {
    StepResult result;
    return step(result);
  }

  ModelPlan plan;
  TestProgram code;
  BackendTable backend;
  std::unique_ptr<Session> session;
};

class Failure : public testing::Test {
protected:
  ~Failure() override { fault.set(GRT_KERNEL_COUNT, nullptr); }

  void expectMessage(const Status &status, int exitCode,
                     std::initializer_list<const char *> parts) {
    EXPECT_EQ(status.exitCode(), exitCode);
    for (const char *part : parts)
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "expected: " << part << "\nfound: " << status.message();
  }
};

//===----------------------------------------------------------------------===//
// Ranks that stop
//===----------------------------------------------------------------------===//

std::atomic<bool> released;

bool isVictim(const grt_call *call) {
  return call->coordinates->dp_index == 1 && call->step->step == 2;
}

/// The kernel returns only after `released`, on one rank in step 2.
void hang(const grt_call *call) {
  while (isVictim(call) && !released)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void hangForEver(const grt_call *call) {
  while (isVictim(call))
    std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST_F(Failure, AStuckRankIsNamedWithItsOperationAndWhoWaits) {
  fault.set(GRT_KERNEL_GEMM, hangForEver);
  SessionOptions options;
  options.timeoutSeconds = 0.25;
  options.flightFile = testing::TempDir() + "grt-failure-flight.json";
  // Left behind, as the stuck thread uses it.
  Training &run = *new Training(dataParallel(4), options);
  ASSERT_TRUE(run.step());
  expectMessage(
      run.step(), ExitPeerLost,
      {"rank 1 makes no progress for 0.25 s: step 2, layer "
       "'layer1', gemm '",
       "rank 0 waits for it: step 2, ", "rank 2 waits for it: step 2, ",
       "waiting for ranks ",
       "; rank 1 never enqueued all-reduce 4 of 'dp' (ranks 0 to 3)"});
  // The last actions of the ranks were recorded.
  EXPECT_EQ(run.session->flightNote(),
            "the last operations of the ranks are in '" + options.flightFile +
                "'");
  EXPECT_FALSE(run.session->usable());
  std::ifstream in(options.flightFile);
  ASSERT_TRUE(in);
  nlohmann::json flight = nlohmann::json::parse(in);
  EXPECT_EQ(flight.at("reason").get<std::string>().rfind(
                "rank 1 makes no progress for 0.25 s", 0),
            0u);
  ASSERT_EQ(flight.at("ranks").size(), 4u);
  EXPECT_EQ(flight.at("collectives"),
            nlohmann::json({"rank 1 never enqueued all-reduce 4 of 'dp' (ranks "
                            "0 to 3)"}));
  for (const nlohmann::json &rank : flight.at("ranks")) {
    const nlohmann::json &operations = rank.at("operations");
    ASSERT_GT(operations.size(), 20u);
    const nlohmann::json &last = operations.back();
    EXPECT_EQ(last.at("step"), 2);
    EXPECT_EQ(last.at("state"), "running");
    EXPECT_EQ(operations.front().at("state"), "done");
    if (rank.at("rank") != 1)
      continue;
    EXPECT_EQ(last.at("operation"), "gemm");
    EXPECT_EQ(last.at("layer"), "layer1");
    EXPECT_EQ(last.at("stream"), "compute");
    EXPECT_EQ(
        last.at("task").get<std::string>().rfind("forward chunk 0 mb 0", 0), 0u)
        << last;
  }
  std::remove(options.flightFile.c_str());
  // The session says so ever after.
  std::vector<int32_t> batch(size_t(run.plan.batch * run.plan.seqLen), 0);
  EXPECT_NE(run.session->setBatch(batch, batch)
                .message()
                .find("has failed before: rank 1 makes no progress"),
            std::string::npos);
  run.session.reset();
}

TEST_F(Failure, AFlightRecordThatCannotBeWrittenIsTold) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->step->step == 2)
      throw std::runtime_error("something broke");
  });
  SessionOptions options;
  options.flightFile = "/nowhere/flight.json";
  Training run(dataParallel(2), options);
  ASSERT_TRUE(run.step());
  EXPECT_EQ(run.session->flightNote(), "");
  expectMessage(run.step(), ExitFailed, {"something broke"});
  EXPECT_EQ(run.session->flightNote().find(
                "the last operations of the ranks are lost: cannot create "
                "'/nowhere/flight.json"),
            0u)
      << run.session->flightNote();
}

/// Storage that hangs does not hold up the end of a run.
TEST_F(Failure, AFlightRecordIsNotWaitedForLong) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->step->step == 2)
      throw std::runtime_error("something broke");
  });
  SessionOptions options;
  options.flightFile =
      testing::TempDir() + "grt-failure-pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(options.flightFile.c_str(), 0600), 0);
  Training run(dataParallel(2), options);
  ASSERT_TRUE(run.step());
  const auto begin = std::chrono::steady_clock::now();
  expectMessage(run.step(), ExitFailed, {"something broke"});
  EXPECT_EQ(run.session->flightNote(),
            "the last operations of the ranks are still being written to '" +
                options.flightFile + "'");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  // Somebody reads at last.
  std::ifstream in(options.flightFile);
  std::string text;
  EXPECT_TRUE(std::getline(in, text));
  std::remove(options.flightFile.c_str());
}

/// Ranks of this process, whose run another process ends.
class EndedElsewhere : public ThreadsWorld {
public:
  using ThreadsWorld::ThreadsWorld;

  void end(const grt::Failure &why) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      known = why;
    }
    abort(why);
  }
  std::optional<grt::Failure> failure() const override {
    std::lock_guard<std::mutex> lock(mutex);
    return known;
  }

private:
  mutable std::mutex mutex;
  std::optional<grt::Failure> known;
};
std::shared_ptr<EndedElsewhere> endedElsewhere;

TEST_F(Failure, AFailureElsewhereIsToldAndWhatRanksDidLastIsKept) {
  endedElsewhere = std::make_shared<EndedElsewhere>(2);
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->step->step == 2)
      endedElsewhere->end({ExitPeerLost, "process 7 was lost"});
  });
  SessionOptions options;
  options.world = endedElsewhere;
  options.flightFile = testing::TempDir() + "grt-failure-elsewhere.json";
  {
    Training run(dataParallel(2), options);
    ASSERT_TRUE(run.step());
    expectMessage(run.step(), ExitPeerLost, {"process 7 was lost"});
    EXPECT_EQ(run.session->flightNote(),
              "the last operations of the ranks are in '" + options.flightFile +
                  "'");
    std::ifstream in(options.flightFile);
    ASSERT_TRUE(in);
    nlohmann::json flight = nlohmann::json::parse(in);
    EXPECT_EQ(flight.at("reason"), "process 7 was lost");
    EXPECT_EQ(flight.at("ranks").size(), 2u);
    // The session says so ever after, and looks at nothing a second time.
    std::remove(options.flightFile.c_str());
    expectMessage(run.session->finish(), ExitPeerLost,
                  {"has failed before: process 7 was lost"});
    EXPECT_FALSE(std::ifstream(options.flightFile));
  }
  endedElsewhere.reset();
}

/// The tensors of a checkpoint are the program's, which is there when the
/// checkpoint's own list of them is not.
TEST_F(Failure, AFlightRecordNamesWhatACheckpointWrote) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->step->step == 2)
      throw std::runtime_error("something broke");
  });
  std::string path = testing::TempDir() + "grt-failure-checkpoint";
  SessionOptions options;
  options.flightFile = path + ".json";
  Training run(dataParallel(2), options);
  ASSERT_TRUE(run.step());
  {
    std::unique_ptr<CheckpointFolder> folder;
    ASSERT_TRUE(CheckpointFolder::open(path, {}, folder));
    TrainingState state;
    state.step = 1;
    Status status = run.session->writeCheckpoint(*folder, state);
    ASSERT_TRUE(status) << status.message();
  }
  std::filesystem::remove_all(path);
  expectMessage(run.step(), ExitFailed, {"something broke"});
  std::ifstream in(options.flightFile);
  ASSERT_TRUE(in);
  nlohmann::json flight = nlohmann::json::parse(in);
  std::set<std::string> written;
  for (const nlohmann::json &rank : flight.at("ranks"))
    for (const nlohmann::json &operation : rank.at("operations"))
      if (operation.at("operation") == "writing of tensor")
        written.insert(operation.at("name"));
  std::remove(options.flightFile.c_str());
  EXPECT_EQ(written, std::set<std::string>({"head.weight", "mix.bias",
                                            "mix.weight", "wte.weight"}));
}

TEST_F(Failure, AFlightRecordOfManyRanksKeepsItsSize) {
  std::vector<std::unique_ptr<Activity>> activities;
  std::vector<RankFlight> flights;
  for (int rank = 0; rank < 1024; ++rank) {
    activities.push_back(std::make_unique<Activity>(rank));
    for (int i = 0; i < 300; ++i) {
      activities.back()->begin("gemm", "a name of usual length");
      activities.back()->end();
    }
    flights.push_back({activities.back().get(), {}});
  }
  std::string all = flightText("why", flights);
  EXPECT_LT(all.size(), size_t(20) << 20);
  EXPECT_EQ(nlohmann::json::parse(all).at("ranks").size(), 1024u);
  flights.resize(4);
  nlohmann::json few = nlohmann::json::parse(flightText("why", flights));
  EXPECT_EQ(few.at("ranks")[3].at("operations").size(), 256u);
}

TEST_F(Failure, ARankThatComesBackLateEndsToo) {
  released = false;
  fault.set(GRT_KERNEL_GEMM, hang);
  SessionOptions options;
  options.timeoutSeconds = 0.25;
  Training run(dataParallel(2), options);
  ASSERT_TRUE(run.step());
  std::thread helper([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    released = true;
  });
  expectMessage(run.step(), ExitPeerLost, {"rank 1 makes no progress"});
  helper.join();
}

TEST_F(Failure, SlowRanksAreNotStuck) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->coordinates->dp_index == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  SessionOptions options;
  options.timeoutSeconds = 0.4; // a step takes longer
  Training run(dataParallel(2), options);
  for (int i = 0; i < 4; ++i) {
    Status status = run.step();
    EXPECT_TRUE(status) << status.message();
  }
}

TEST_F(Failure, AnExceptionNamesRankStepAndOperation) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->coordinates->dp_index == 2 && call->step->step == 2)
      throw std::runtime_error("something broke");
  });
  Training run(dataParallel(4));
  ASSERT_TRUE(run.step());
  expectMessage(
      run.step(), ExitFailed,
      {"rank 2, step 2, layer 'layer1', gemm '", ": something broke"});
}

TEST_F(Failure, MemoryThatIsNotThereHasItsOwnCode) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->coordinates->dp_index == 1 && call->step->step == 2)
      throw std::bad_alloc();
  });
  Training run(dataParallel(2));
  ASSERT_TRUE(run.step());
  expectMessage(
      run.step(), ExitMemory,
      {"rank 1, step 2, layer 'layer1', gemm '", ": out of host memory"});

  fault.set(GRT_KERNEL_COUNT, nullptr);
  ModelPlan plan = dataParallel(2);
  TestProgram code(plan);
  grt_backend backend = *referenceBackend();
  backend.allocate = [](uint64_t) -> void * { return nullptr; };
  SessionOptions options;
  options.backend = &backend;
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  std::unique_ptr<Session> session;
  expectMessage(Session::create(program, options, session), ExitMemory,
                {"cannot allocate an arena of "});
}

TEST_F(Failure, RanksWithoutACommandAreNotStuck) {
  std::vector<std::unique_ptr<Activity>> ranks;
  for (int rank : {0, 1, 2})
    ranks.push_back(std::make_unique<Activity>(rank));
  Watchdog watchdog(ranks, 2);
  const auto begin = Watchdog::Clock::now();
  watchdog.restart(begin);
  auto after = [&](double seconds) {
    return watchdog
        .look(begin + std::chrono::milliseconds(int64_t(seconds * 1e3)))
        .value_or("");
  };
  EXPECT_EQ(after(10), "");
  // Rank 1 waits for another process's rank, rank 2 works.
  for (int rank : {1, 2})
    ranks[size_t(rank)]->busy = true;
  ranks[1]->beginWait("all-reduce");
  ranks[1]->addPeer(7);
  watchdog.restart(begin);
  EXPECT_EQ(after(1.9), "");
  ranks[2]->advance();
  EXPECT_EQ(after(2.1), "");
  ranks[2]->busy = false;
  EXPECT_EQ(after(2.2), "no rank makes progress for 2 s; rank 1: step 0, "
                        "all-reduce, waiting for rank 7");
  ranks[2]->busy = true;
  EXPECT_EQ(after(4.05), "");
  EXPECT_EQ(after(4.15), "rank 2 makes no progress for 2 s: step 0");
}

TEST_F(Failure, RanksThatWaitForEachOtherAreNamed) {
  // Two ranks are in different collectives, which the proof excludes.
  ThreadsWorld world(2);
  std::vector<std::unique_ptr<Activity>> activities;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::thread> threads;
  for (int rank : {0, 1}) {
    activities.push_back(std::make_unique<Activity>(rank));
    communicators.push_back(
        watchedCommunicator(world.join(rank), *activities.back()));
    activities[size_t(rank)]->busy = true;
    activities[size_t(rank)]->setStep(7);
  }
  ExchangePeer fromOne{1, {{0, 0, 1}}};
  ExchangeTable table;
  table.receives.push_back(fromOne);
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] {
      Communicator &communicator = *communicators[size_t(rank)];
      try {
        double value = 1;
        if (rank == 0) {
          ExchangeCall call{&table, nullptr, &value, 8, false, GRT_U8};
          communicator.exchange({&call, 1});
        } else {
          communicator.allReduce(communicator.group({0, 1}), &value, 1,
                                 GRT_F64);
        }
      } catch (const std::exception &) {
      }
    });
  Watchdog watchdog(activities, 0.1);
  std::optional<std::string> problem;
  while (!(problem = watchdog.look(Watchdog::Clock::now())))
    std::this_thread::sleep_for(watchdog.interval());
  EXPECT_EQ(*problem, "no rank makes progress for 0.1 s; rank 0: step 7, "
                      "exchange, waiting for rank 1; rank 1: step 7, "
                      "all-reduce, waiting for rank 0");
  world.abort({});
  for (std::thread &thread : threads)
    thread.join();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// The output of a process that reports fatal signals and makes two steps; it
/// is to end by itself with exit code 1.
std::string lastWordsOfASession() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    reportFatalSignals("test: error: ");
    Training run(dataParallel(2));
    (void)run.step();
    (void)run.step();
    _exit(77);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  while (ssize_t got = read(ends[0], buffer, sizeof(buffer))) {
    if (got < 0)
      break;
    text.append(buffer, size_t(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  return text;
}

TEST_F(Failure, ASignalNamesRankStepAndOperation) {
  for (int number : {SIGABRT, SIGSEGV}) {
    static int wanted;
    wanted = number;
    fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
      if (call->coordinates->dp_index == 1 && call->step->step == 2)
        raise(wanted);
    });
    std::string text = lastWordsOfASession();
    EXPECT_EQ(text.find("test: error: rank 1, step 2, layer 'layer1', gemm '"),
              0u)
        << text;
    EXPECT_NE(text.find(number == SIGABRT ? "': ended by SIGABRT (aborted)\n"
                                          : "': ended by SIGSEGV (invalid"),
              std::string::npos)
        << text;
  }
}

/// Uses up the thread's stack, as `above` has a zero.
int deepen(volatile char *above) {
  volatile char frame[4096];
  frame[0] = *above;
  return *above ? 1 : deepen(frame) + frame[0];
}

TEST_F(Failure, AStackThatOverflowsNamesRankStepAndOperation) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    volatile char top = 0;
    if (call->coordinates->dp_index == 1 && call->step->step == 2)
      deepen(&top);
  });
  std::string text = lastWordsOfASession();
  EXPECT_EQ(text.find("test: error: rank 1, step 2, layer 'layer1', gemm '"),
            0u)
      << text;
  EXPECT_NE(text.find("': ended by SIGSEGV (invalid"), std::string::npos)
      << text;
}

TEST_F(Failure, ASignalEndsTheProcessAsUsualWhereACoreIsWanted) {
  fault.set(GRT_KERNEL_GEMM, [](const grt_call *call) {
    if (call->step->step == 2)
      raise(SIGSEGV);
  });
  pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), 2);
    reportFatalSignals("test: error: ", /*coreDumps=*/true);
    // No core of this test, whatever the limits allow.
    struct rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    Training run(dataParallel(2));
    (void)run.step();
    (void)run.step();
    _exit(77);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
}
#endif

//===----------------------------------------------------------------------===//
// Values that are not finite
//===----------------------------------------------------------------------===//

void setFirst(Session &session, const std::string &name, double value) {
  TensorMap values;
  ASSERT_TRUE(session.parameters(values));
  values[name].values[0] = value;
  ASSERT_TRUE(session.setParameter(name, values[name].values));
}

TEST_F(Failure, ANaNStopsAndNamesTheFirstLayer) {
  for (const ModelPlan &plan : {ModelPlan(), dataParallel(4), pipeline()}) {
    Training run(plan);
    ASSERT_TRUE(run.step());
    setFirst(*run.session, "mix.weight", std::nan(""));
    expectMessage(run.step(), ExitNumerics,
                  {"step 2: the loss is nan; the first layer with "
                   "a value that is not finite is 'layer1', in "
                   "its parameters"});
  }
}

TEST_F(Failure, AnOverflowIsFoundInTheLayersOutput) {
  for (const ModelPlan &plan : {ModelPlan(), dataParallel(2), pipeline()}) {
    Training run(plan);
    TensorMap values;
    ASSERT_TRUE(run.session->parameters(values));
    for (const char *name : {"wte.weight", "mix.weight"}) {
      for (double &value : values[name].values)
        value = 1e200; // finite itself; the product is not
      ASSERT_TRUE(run.session->setParameter(name, values[name].values));
    }
    expectMessage(run.step(), ExitNumerics,
                  {"step 1: the loss is nan; the first layer with a value "
                   "that is not finite is 'layer1', in its output"});
  }
}

/// A gradient that is not finite though the loss is; on the given step.
uint64_t brokenStep;
void breakGradient(const grt_call *call) {
  if (call->step->step == brokenStep)
    *static_cast<double *>(call->buffers[2]) =
        std::numeric_limits<double>::infinity();
}

TEST_F(Failure, AGradientIsNamedWhenTheForwardPassIsFinite) {
  brokenStep = 2;
  fault.set(GRT_KERNEL_EMBEDDING_GRAD, breakGradient);
  for (const ModelPlan &plan : {ModelPlan(), dataParallel(2), pipeline()}) {
    Training run(plan);
    ASSERT_TRUE(run.step());
    expectMessage(run.step(), ExitNumerics,
                  {"step 2: the gradient norm is infinite; the first layer "
                   "with a value that is not finite is 'layer0', in its "
                   "gradient; the forward pass is finite"});
  }
}

TEST_F(Failure, SkippingLeavesTheUpdateOutOnAllRanks) {
  brokenStep = 2;
  fault.set(GRT_KERNEL_EMBEDDING_GRAD, breakGradient);
  SessionOptions options;
  options.onNan = OnNan::Skip;
  for (const char *optimizer : {"adamw", "sgd"})
    for (ModelPlan plan : {ModelPlan(), dataParallel(4), pipeline()}) {
      plan.optimizer = optimizer;
      Training run(plan, options);
      StepResult result;
      ASSERT_TRUE(run.step(result));
      EXPECT_FALSE(result.skipped);
      TensorMap before, after, states, statesAfter;
      ASSERT_TRUE(run.session->parameters(before));
      ASSERT_TRUE(run.session->optimizerState(states));
      Status status = run.step(result);
      ASSERT_TRUE(status) << status.message();
      EXPECT_TRUE(result.skipped);
      EXPECT_TRUE(std::isinf(result.gradientNorm));
      ASSERT_TRUE(run.session->parameters(after));
      ASSERT_TRUE(run.session->optimizerState(statesAfter));
      for (const auto &[name, tensor] : before)
        EXPECT_EQ(tensor.values, after[name].values) << name;
      for (const auto &[name, tensor] : states)
        EXPECT_EQ(tensor.values, statesAfter[name].values) << name;
      ASSERT_TRUE(run.step(result));
      EXPECT_FALSE(result.skipped);
      ASSERT_TRUE(run.session->parameters(after));
      EXPECT_NE(before["mix.weight"].values, after["mix.weight"].values);
      for (const RankMemory &rank : run.session->memory())
        EXPECT_LE(rank.measuredPeakBytes,
                  rank.plannedPeakBytes + rank.outsideArenaBytes);
    }
}

} // namespace
