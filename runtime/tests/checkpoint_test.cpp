//===- checkpoint_test.cpp - Writing, resuming, resharding ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "checkpoint/pieces.h"
#include "checkpoint/state.h"
#include "checkpoint_training.h"
#include "core/init.h"
#include "files.h"
#include "forgetful_disk.h"
#include "grt/checkpoint.h"
#include "reference_backend.h"
#include "tensors.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace grt;
using namespace grt::test;

namespace fs = std::filesystem;

namespace {

/// Removes what the tests leave.
class Cleaning : public testing::Environment {
public:
  void TearDown() override { fs::remove_all(freshFolder("")); }
};
[[maybe_unused]] testing::Environment *const cleaning =
    testing::AddGlobalTestEnvironment(new Cleaning);

/// Kernel choices are kept as they were given, whatever the lines are.
TEST(Checkpoint, KernelChoicesAreKept) {
  std::string path = freshFolder("choices");
  Training run(ModelPlan{});
  for (const char *choices : {"", "# products of\n1 2 = \"x\" \\ \t\n"}) {
    std::unique_ptr<CheckpointFolder> folder;
    ASSERT_TRUE(CheckpointFolder::open(path, {}, folder));
    TrainingState state;
    run.step();
    state.step = run.session->stepsDone();
    state.kernelChoices = choices;
    Status status = run.session->writeCheckpoint(*folder, state);
    ASSERT_TRUE(status) << status.message();
    TrainingState read;
    ASSERT_TRUE(readTrainingState(folder->stepFolder(state.step), read));
    EXPECT_EQ(read.kernelChoices, choices);
  }
}

/// Three steps, a checkpoint, three more under another plan: as six under the
/// first. The values that arrive are exactly those that were written.
void expectResumes(const ModelPlan &from, const ModelPlan &to, double bound) {
  std::string path = freshFolder("resume");
  Training first(from);
  for (int i = 0; i < 3; ++i)
    first.step();
  Status status = first.write(path);
  ASSERT_TRUE(status) << status.message();
  Training second(to, /*seed=*/17);
  status = second.session->resume(Training::newest(path));
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(second.session->stepsDone(), 3u);
  TensorMap a, b;
  ASSERT_TRUE(first.session->parameters(a));
  ASSERT_TRUE(second.session->parameters(b));
  expectSame(a, b, 0);
  ASSERT_TRUE(first.session->optimizerState(a));
  ASSERT_TRUE(second.session->optimizerState(b));
  expectSame(a, b, 0);
  for (int i = 0; i < 3; ++i) {
    double expected = first.step();
    EXPECT_NEAR(second.step(), expected, bound * expected);
  }
  ASSERT_TRUE(first.session->parameters(a));
  ASSERT_TRUE(second.session->parameters(b));
  expectSame(a, b, 10 * bound);
}

std::vector<ModelPlan> somePlans() {
  std::vector<ModelPlan> plans(5);
  for (LayerPlan &layer : plans[1].layers)
    layer.levels = {{"sdp", 4}};
  plans[1].stages = {{{0, 1, 2}, {3, 1, 0, 2}}};
  for (LayerPlan &layer : plans[2].layers) // last slice of the vocabulary short
    layer.levels = {{"tp", 4}};
  plans[2].stages = {{{0, 1, 2}, {0, 1, 2, 3}}};
  plans[3].layers[0].levels = {{"dp", 2}, {"tp", 2}};
  plans[3].layers[1].levels = {{"sdp", 2}, {"dp", 2}};
  plans[3].layers[2].levels = {{"tp", 2}, {"sdp", 2}};
  plans[3].stages = {{{0}, {0, 1, 2, 3}}, {{1, 2}, {4, 5, 6, 7}}};
  plans[3].oneForwardOneBackward = true;
  plans[4].layers[0].levels = plans[4].layers[1].levels = {{"tp", 2}};
  plans[4].layers[2].levels = {{"dp", 2}};
  plans[4].stages = {{{0, 1}, {2, 3}}, {{2}, {1, 0}}};
  return plans;
}

TEST(Checkpoint, ResumesBitwiseUnderTheSamePlan) {
  for (const char *optimizer : {"adamw", "sgd"})
    for (ModelPlan plan : somePlans()) {
      plan.optimizer = optimizer;
      plan.f64 = false;
      plan.tied = true;
      expectResumes(plan, plan, 0);
    }
}

TEST(Checkpoint, ResumesUnderEveryOtherPlan) {
  for (bool tied : {false, true})
    for (const ModelPlan &from : somePlans())
      for (ModelPlan to : somePlans()) {
        ModelPlan start = from;
        start.tied = to.tied = tied;
        expectResumes(start, to, 1e-11);
      }
}

TEST(Checkpoint, ResumesInSinglePrecision) {
  std::vector<ModelPlan> plans = somePlans();
  for (ModelPlan &plan : plans)
    plan.f64 = false;
  expectResumes(plans[1], plans[2], 1e-5);
  expectResumes(plans[3], plans[0], 1e-5);
}

TEST(Checkpoint, FilesDoNotDependOnThePlan) {
  // The states differ by rounding after a step, so the initial one is written.
  std::string expected;
  for (const ModelPlan &plan : somePlans()) {
    std::string path = freshFolder("files"), all;
    Training run(plan);
    ASSERT_TRUE(run.write(path, 2, 500));
    int shards = 0;
    std::vector<fs::path> names;
    for (const auto &entry : fs::directory_iterator(Training::newest(path)))
      names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    for (const fs::path &name : names) {
      shards += name.extension() == ".safetensors";
      all += name.filename().string() + "\n" + readAll(name);
    }
    EXPECT_EQ(shards, 4 + 7); // of one tensor each, but for two small ones
    if (expected.empty())
      expected = all;
    EXPECT_TRUE(all == expected);
  }
}

TEST(Checkpoint, SumsAddUpOverAnyRuns) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float(i) * 0.37f - 3;
  uint64_t whole = elementSum(values.data(), 0, 1000, 4);
  uint64_t parts = elementSum(values.data() + 700, 700, 300, 4) +
                   elementSum(values.data(), 0, 1, 4) +
                   elementSum(values.data() + 1, 1, 699, 4);
  EXPECT_EQ(whole, parts);
  // Older checkpoints have these sums, on every processor.
  EXPECT_EQ(whole, 3461401081185126076ull);
  EXPECT_EQ(elementSum(values.data(), 7, 2000, 2), 17221012104647370259ull);
  EXPECT_EQ(elementSum(values.data(), 7, 500, 8), 1041983659099613386ull);
  std::swap(values[3], values[700]);
  EXPECT_NE(elementSum(values.data(), 0, 1000, 4), whole);
  std::swap(values[3], values[700]);
  values[999] = std::nextafter(values[999], 1e9f);
  EXPECT_NE(elementSum(values.data(), 0, 1000, 4), whole);
}

/// Neither side holds more than the arena: no rank ever has a whole tensor.
TEST(Checkpoint, MemoryIsBounded) {
  for (ModelPlan plan : somePlans()) {
    plan.width = 64;
    plan.vocab = 301; // a table of 154 kB
    std::string path = freshFolder("memory");
    Training writer(plan);
    writer.step();
    ASSERT_TRUE(writer.write(path));
    ASSERT_TRUE(writer.writeBehind(freshFolder("memory-behind"), [] {}));
    Training reader(plan);
    ASSERT_TRUE(reader.session->resume(Training::newest(path)));
    for (Training *run : {&writer, &reader})
      for (const RankMemory &rank : run->session->memory())
        EXPECT_LE(rank.outsideArenaBytes, 4096u) << "rank " << rank.rank;
  }
}

TEST(Checkpoint, TheNewestStay) {
  std::string path = freshFolder("keep");
  Training run{ModelPlan()};
  for (int i = 0; i < 4; ++i) {
    run.step();
    ASSERT_TRUE(run.write(path, 3));
  }
  std::unique_ptr<CheckpointFolder> folder;
  ASSERT_TRUE(CheckpointFolder::open(path, {}, folder));
  EXPECT_EQ(folder->steps(), (std::vector<uint64_t>{2, 3, 4}));
  EXPECT_EQ(folder->newest(), path + "/step-00000004");
  std::unique_ptr<CheckpointFolder> second;
  Status status = CheckpointFolder::open(path, {}, second);
  EXPECT_EQ(status.exitCode(), 1);
  EXPECT_NE(status.message().find("another run writes its checkpoints to"),
            std::string::npos);
}

/// Runs `body` in a process of its own; returns its exit code.
template <typename Body> int inChild(Body body) {
  std::fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// A run of another machine that shows that it lives until it is ended.
class ElsewhereHeld {
public:
  ElsewhereHeld(std::string path, std::string state)
      : path(std::move(path)), state(std::move(state)) {
    write(0);
    thread = std::thread([this] {
      for (uint64_t beat = 1; !ended; ++beat) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        write(beat);
      }
    });
  }
  ~ElsewhereHeld() {
    ended = true;
    thread.join();
  }

private:
  void write(uint64_t beat) const {
    writeAll(path, "another kernel\nbeta\n0000000815 " +
                       std::to_string(1000000000 + beat) + " " + state + "\n");
  }
  const std::string path, state;
  std::atomic<bool> ended = false;
  std::thread thread;
};

TEST(Checkpoint, ARunOfAnotherMachineHoldsItsFolder) {
  std::string path = freshFolder("elsewhere");
  fs::create_directories(path);
  CheckpointOptions quick;
  quick.beatSeconds = 0.1;
  std::unique_ptr<CheckpointFolder> folder;
  {
    ElsewhereHeld held(path + "/.run-0000", "holds");
    Status status = CheckpointFolder::open(path, quick, folder);
    EXPECT_EQ(status.exitCode(), 1);
    EXPECT_EQ(status.message(), "another run writes its checkpoints to '" +
                                    path + "': process 815 on 'beta'");
    EXPECT_EQ(folder, nullptr);
  }
  // The other run has ended without a word.
  ASSERT_TRUE(fs::exists(path + "/.run-0000"));
  Status status = CheckpointFolder::open(path, quick, folder);
  ASSERT_TRUE(status) << status.message();
  EXPECT_FALSE(fs::exists(path + "/.run-0000"));
  EXPECT_TRUE(fs::exists(path + "/" + folder->mark()));
  std::string mark = path + "/" + folder->mark();
  folder.reset();
  EXPECT_FALSE(fs::exists(mark));
}

/// The kernel in a mark tells other runs whether its run can still live.
TEST(Checkpoint, AMarkNamesTheKernelThatItsRunIsUnder) {
  std::string path = freshFolder("mark");
  std::unique_ptr<CheckpointFolder> folder;
  ASSERT_TRUE(CheckpointFolder::open(path, {}, folder));
  std::string boot, found;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  ASSERT_FALSE(boot.empty());
  int marks = 0;
  for (const auto &entry : fs::directory_iterator(path))
    if (entry.path().filename().string().starts_with(".run-")) {
      ++marks;
      std::getline(std::ifstream(entry.path()), found);
      EXPECT_EQ(found, boot);
    }
  EXPECT_EQ(marks, 1);
}

/// Folders can be opened to be read, and devices read without end.
TEST(Checkpoint, OnlyRegularFilesAreRead) {
  std::string path = freshFolder("irregular");
  fs::create_directories(path);
  for (const std::string &each : {path, std::string("/dev/null")})
    try {
      File::openToRead(each);
      ADD_FAILURE() << each;
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), ExitInvalid);
      EXPECT_EQ(error.what(), "'" + each + "' is not a regular file");
    }
}

TEST(Checkpoint, OfTwoRunsThatBeginTogetherOneStays) {
  CheckpointOptions quick;
  quick.beatSeconds = 0.1;
  // Names of marks are hexadecimal.
  for (bool first : {true, false}) {
    std::string path = freshFolder("together");
    fs::create_directories(path);
    ElsewhereHeld other(path + (first ? "/.run-!" : "/.run-z"), "opens");
    std::unique_ptr<CheckpointFolder> folder;
    EXPECT_EQ(bool(CheckpointFolder::open(path, quick, folder)), !first);
  }
}

/// The lock of a run keeps others out before the run has left its mark.
TEST(Checkpoint, ALockedFolderIsOfAnotherRun) {
  std::string path = freshFolder("locked");
  fs::create_directories(path);
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(descriptor, LOCK_EX | LOCK_NB), 0);
  std::unique_ptr<CheckpointFolder> folder;
  EXPECT_EQ(CheckpointFolder::open(path, {}, folder).message(),
            "another run writes its checkpoints to '" + path + "'");
  EXPECT_TRUE(fs::is_empty(path));
  ::close(descriptor);
  EXPECT_TRUE(CheckpointFolder::open(path, {}, folder));
}

TEST(Checkpoint, AMarkOfThisMachineIsOfAProcessThatEnded) {
  std::string path = freshFolder("killed");
  int code = inChild([&] {
    std::unique_ptr<CheckpointFolder> folder;
    if (!CheckpointFolder::open(path, {}, folder))
      _exit(1);
    _exit(0); // without a word
  });
  ASSERT_EQ(code, 0);
  ASSERT_FALSE(fs::is_empty(path));
  std::unique_ptr<CheckpointFolder> folder;
  auto begin = std::chrono::steady_clock::now();
  Status status = CheckpointFolder::open(path, {}, folder);
  EXPECT_TRUE(status) << status.message();
  // The run does not wait for even one of the three beats.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Checkpoint, WhoLostItsFolderWritesNothing) {
  std::string path = freshFolder("lost");
  Training run{ModelPlan()};
  CheckpointOptions quick;
  quick.beatSeconds = 0.05;
  std::unique_ptr<CheckpointFolder> folder;
  ASSERT_TRUE(CheckpointFolder::open(path, quick, folder));
  fs::remove(path + "/" + folder->mark());
  TrainingState state;
  Status status;
  for (int i = 0; i < 200 && status; ++i) {
    run.step();
    state.step = run.session->stepsDone();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = run.session->writeCheckpoint(*folder, state);
  }
  EXPECT_EQ(status.message(), "another run has taken '" + path +
                                  "', as this one gave no sign of life there");
  EXPECT_TRUE(run.session->usable());
}

//===----------------------------------------------------------------------===//
// Crashes
//===----------------------------------------------------------------------===//

std::atomic<int> operationsLeft;

std::mutex diskMutex;
ForgetfulDisk disk;

using Hook = void (*)(const char *, const std::string &, const std::string &);

/// Ends a run in front of every file operation of a checkpoint in turn; `hook`
/// ends the process with code 42 when operationsLeft is 0.
void expectWholeCheckpoints(const std::string &name, Hook hook,
                            bool behind = false) {
  ShortBeats shortBeats;
  std::string path = freshFolder(name);
  ModelPlan plan = somePlans()[3];
  std::vector<double> losses;
  {
    Training run(plan);
    losses.push_back(run.step());
    ASSERT_TRUE(run.write(path, 1));
    for (int i = 0; i < 3; ++i)
      losses.push_back(run.step());
  }
  fs::copy(path, path + "-first", fs::copy_options::recursive);
  int crashes = 0, kept = 0;
  while (true) {
    int code = inChild([&] {
      Training run(plan);
      if (!run.session->resume(Training::newest(path)))
        _exit(1);
      run.step();
      operationsLeft = crashes;
      fileOperationHook = hook;
      Status status = behind ? run.writeBehind(
                                   path, [&] { run.step(); }, 1)
                             : run.write(path, 1);
      if (!status)
        _exit(2);
    });
    ASSERT_TRUE(code == 0 || code == 42) << code;
    Training run(plan);
    std::string newest = Training::newest(path);
    Status status = run.session->resume(newest);
    ASSERT_TRUE(status) << "crash " << crashes << ": " << status.message();
    kept += run.session->stepsDone() == 1;
    for (int i = 0; i < 2; ++i) {
      size_t index = run.session->stepsDone();
      EXPECT_EQ(run.step(), losses[index]) << "crash " << crashes;
    }
    std::unique_ptr<CheckpointFolder> folder;
    ASSERT_TRUE(CheckpointFolder::open(path, {}, folder));
    for (const auto &entry : fs::directory_iterator(path))
      EXPECT_FALSE(entry.path().string().ends_with(".partial"));
    folder.reset();
    if (code == 0)
      break;
    ++crashes;
    fs::remove_all(path);
    fs::copy(path + "-first", path, fs::copy_options::recursive);
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(crashes, kept); // those between the new name and the old one's end
}

TEST(Checkpoint, ACrashAtAnyMomentLeavesAWholeOne) {
  expectWholeCheckpoints(
      "crash", [](const char *, const std::string &, const std::string &) {
        if (operationsLeft-- == 0)
          _exit(42);
      });
}

TEST(Checkpoint, APowerLossAtAnyMomentLeavesAWholeOne) {
  expectWholeCheckpoints("power-loss",
                         [](const char *operation, const std::string &path,
                            const std::string &to) {
                           std::lock_guard<std::mutex> lock(diskMutex);
                           if (operationsLeft-- == 0) {
                             disk.losePower();
                             _exit(42);
                           }
                           disk.note(operation, path, to);
                         });
}

TEST(Checkpoint, ACrashWhileStepsGoOnLeavesAWholeOne) {
  expectWholeCheckpoints(
      "crash-behind",
      [](const char *, const std::string &, const std::string &) {
        if (operationsLeft-- == 0)
          _exit(42);
      },
      /*behind=*/true);
}

//===----------------------------------------------------------------------===//
// Behind the next steps
//===----------------------------------------------------------------------===//

/// All files of the newest checkpoint, with their names.
std::string contentOf(const std::string &path) {
  std::string all;
  std::vector<fs::path> names;
  for (const auto &entry : fs::directory_iterator(Training::newest(path)))
    names.push_back(entry.path());
  std::sort(names.begin(), names.end());
  for (const fs::path &name : names)
    all += name.filename().string() + "\n" + readAll(name);
  return all;
}

/// The files are those of the step at which it was begun, whatever the ranks
/// did since; a second one uses the memory of the first.
TEST(Checkpoint, WrittenBehindIsTheSame) {
  for (ModelPlan plan : somePlans()) {
    std::string path = freshFolder("behind"), at = freshFolder("at-once");
    Training run(plan);
    ASSERT_TRUE(run.session->writesBehind());
    for (int i = 0; i < 2; ++i) {
      run.step();
      Status status = run.write(at);
      ASSERT_TRUE(status) << status.message();
      std::string expected = contentOf(at);
      CheckpointEnd end;
      status = run.writeBehind(
          path,
          [&] {
            run.step();
            run.step();
          },
          2, &end);
      ASSERT_TRUE(status) << status.message();
      EXPECT_GT(end.seconds, 0);
      EXPECT_TRUE(contentOf(path) == expected);
    }
  }
}

std::mutex gate;

TEST(Checkpoint, StepsDoNotWaitForStorage) {
  std::string path = freshFolder("gate");
  Training run{somePlans()[1], /*seed=*/17, /*timeout=*/5};
  run.step();
  std::unique_lock<std::mutex> closed(gate);
  fileOperationHook = [](const char *operation, const std::string &,
                         const std::string &) {
    if (std::string(operation) == "flush")
      std::lock_guard<std::mutex> passed(gate);
  };
  Status status = run.writeBehind(path, [&] {
    run.step();
    run.step();
    EXPECT_TRUE(run.session->isWriting());
    EXPECT_TRUE(checkpointSteps(path).empty());
    closed.unlock();
  });
  fileOperationHook = nullptr;
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(Training::newest(path), path + "/step-00000001");
  EXPECT_FALSE(run.session->isWriting());
}

/// Failures on the way leave the session and the checkpoint before as they
/// were.
TEST(Checkpoint, AFailureBehindIsToldAtItsEnd) {
  std::string path = freshFolder("failure");
  Training run{somePlans()[3]};
  run.step();
  ASSERT_TRUE(run.write(path));
  run.step();
  fileOperationHook = [](const char *operation, const std::string &path,
                         const std::string &) {
    if (std::string(operation) == "flush")
      fail(ExitStorage, "cannot flush '" + path + "'");
  };
  Status status = run.writeBehind(path, [&] { run.step(); });
  fileOperationHook = nullptr;
  EXPECT_EQ(status.exitCode(), ExitStorage);
  EXPECT_NE(status.message().find("cannot flush"), std::string::npos);
  EXPECT_TRUE(run.session->usable());
  // The next try needs the space of this one.
  EXPECT_FALSE(fs::exists(path + "/step-00000002.partial"));
  EXPECT_EQ(Training::newest(path), path + "/step-00000001");
  status = run.writeBehind(path, [&] { run.step(); });
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(Training::newest(path), path + "/step-00000003");
}

TEST(Checkpoint, OnlyOneIsWrittenAtATime) {
  std::string path = freshFolder("one");
  Training run{ModelPlan()};
  CheckpointEnd end;
  Status status = run.session->endCheckpoint(end);
  EXPECT_EQ(status.message(), "checkpoint: none was begun");
  run.step();
  status = run.writeBehind(path, [&] {
    Status second = run.write(freshFolder("two"));
    EXPECT_EQ(second.message(),
              "checkpoint: another one is being written, expected its end");
  });
  EXPECT_TRUE(status) << status.message();
}

TEST(Checkpoint, WithoutRoomNothingIsCopied) {
  ModelPlan plan = somePlans()[3];
  uint64_t arenas = 0;
  Training ample(plan);
  EXPECT_TRUE(ample.session->writesBehind());
  for (const RankMemory &rank : ample.session->memory())
    arenas += rank.plannedPeakBytes;
  // Room for the arenas and no more.
  Training tight(plan, 17, 0, arenas);
  ASSERT_NE(tight.session, nullptr);
  EXPECT_FALSE(tight.session->writesBehind());
}

TEST(Checkpoint, APowerLossForgetsNoCheckpointThatWasReported) {
  std::string path = freshFolder("power-loss-later") + "/of/new/folders";
  ModelPlan plan = somePlans()[1];
  int code = inChild([&] {
    Training run(plan);
    run.step();
    fileOperationHook = [](const char *operation, const std::string &path,
                           const std::string &to) {
      std::lock_guard<std::mutex> lock(diskMutex);
      disk.note(operation, path, to);
    };
    if (!run.write(path))
      _exit(1);
    disk.losePower();
  });
  ASSERT_EQ(code, 0);
  Training run(plan);
  Status status = run.session->resume(Training::newest(path));
  EXPECT_TRUE(status) << status.message();
}

TEST(Checkpoint, AFullDiskLeavesTheOldOne) {
  std::string path = freshFolder("full");
  ModelPlan plan;
  plan.width = 64;
  Training run(plan);
  run.step();
  ASSERT_TRUE(run.write(path, 1));
  // The first limit is too little for the weights, the second for the state.
  for (rlim_t limit : {3000, 50000}) {
    std::string log = path + "-log";
    int code = inChild([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      Training other(plan);
      if (!other.session->resume(Training::newest(path)))
        _exit(3);
      other.step();
      struct rlimit limits{limit, limit};
      setrlimit(RLIMIT_FSIZE, &limits);
      Status status = other.write(path, 1);
      limits = {RLIM_INFINITY, RLIM_INFINITY};
      writeAll(log, status.message());
      _exit(status.exitCode());
    });
    EXPECT_EQ(code, ExitStorage);
    EXPECT_NE(readAll(log).find("cannot reserve space for '" + path +
                                "/step-00000002.partial/"),
              std::string::npos)
        << readAll(log);
    EXPECT_EQ(Training::newest(path), path + "/step-00000001");
    Training after(plan);
    EXPECT_TRUE(after.session->resume(Training::newest(path)));
  }
}

TEST(Checkpoint, SlowStorageIsNoStandstill) {
  // Every call takes longer than a rank may stand still.
  std::string path = freshFolder("slow");
  Training run{somePlans()[1], /*seed=*/17, /*timeout=*/0.2};
  run.step();
  fileOperationHook = [](const char *operation, const std::string &,
                         const std::string &) {
    if (std::string(operation) == "write" || std::string(operation) == "flush")
      std::this_thread::sleep_for(std::chrono::milliseconds(350));
  };
  Status status = run.write(path);
  fileOperationHook = nullptr;
  EXPECT_TRUE(status) << status.message();
}

//===----------------------------------------------------------------------===//
// Damage
//===----------------------------------------------------------------------===//

TEST(Checkpoint, DamageIsFoundAndNamed) {
  ModelPlan plan = somePlans()[1];
  std::string path = freshFolder("damage");
  Training run(plan);
  run.step();
  ASSERT_TRUE(run.write(path));
  std::string step = Training::newest(path);
  std::string weights = step + "/model-00001-of-00001.safetensors";
  std::string states = step + "/optimizer-00001-of-00001.safetensors";

  auto expectRefused = [&](const std::string &file, const std::string &bytes,
                           const std::string &message) {
    std::string before = readAll(file);
    if (bytes.empty())
      fs::remove(file);
    else
      writeAll(file, bytes);
    Training other(plan);
    Status status = other.session->resume(step);
    EXPECT_EQ(status.exitCode(), 2) << file;
    EXPECT_NE(status.message().find(message), std::string::npos)
        << file << ": " << status.message();
    writeAll(file, before);
  };
  auto flipped = [](std::string bytes, size_t at) {
    bytes[at] ^= 0x10;
    return bytes;
  };
  std::string bytes = readAll(weights), state = readAll(states);
  // The last tensor by name, and its state.
  expectRefused(weights, flipped(bytes, bytes.size() - 3),
                "the values of tensor 'wte.weight' do not add up");
  expectRefused(states, flipped(state, state.size() - 3),
                "the values of tensor 'wte.weight.v' do not add up");
  expectRefused(weights, flipped(bytes, 3), "expected a safetensors file");
  expectRefused(weights, flipped(bytes, 30), "damaged");
  expectRefused(weights, bytes.substr(0, bytes.size() - 8), "cut short");
  expectRefused(weights, bytes + "12345678", "tensors end at byte");
  expectRefused(weights, "", "cannot open");
  std::string json = readAll(step + "/checkpoint.json");
  // The reader itself refuses sums that are none, without SHA256SUMS.
  size_t sum = json.find(": \"", json.find("\"tensors\"")) + 3;
  EXPECT_NO_THROW(parseCheckpointManifest(json, "whole"));
  for (size_t digits : {0, 15, 17, 32}) {
    std::string wrong = json;
    wrong.replace(sum, 16, std::string(digits, 'a'));
    EXPECT_THROW(parseCheckpointManifest(wrong, "wrong"), Error) << digits;
  }
  expectRefused(step + "/checkpoint.json", flipped(json, json.size() / 2),
                "its SHA-256 differs from the one in SHA256SUMS");
  expectRefused(step + "/SHA256SUMS", "nonsense\n", "expected lines of");
  expectRefused(step + "/SHA256SUMS", "", "cannot open");
  Training whole(plan);
  EXPECT_TRUE(whole.session->resume(step));
}

TEST(Checkpoint, OtherProgramsAreRefused) {
  std::string path = freshFolder("other");
  Training run{ModelPlan()};
  ASSERT_TRUE(run.write(path));
  auto expectRefused = [&](const ModelPlan &plan, const std::string &message) {
    Training other(plan);
    Status status = other.session->resume(Training::newest(path));
    EXPECT_EQ(status.exitCode(), 2);
    EXPECT_NE(status.message().find(message), std::string::npos)
        << status.message();
  };
  ModelPlan plan;
  plan.optimizer = "sgd";
  expectRefused(plan, "has optimizer 'adamw', the program has 'sgd'");
  plan = ModelPlan();
  plan.f64 = false;
  expectRefused(plan, "has dtype 'f64', the program has 'f32'");
  plan = ModelPlan();
  plan.width = 16;
  expectRefused(plan, "has shape [11, 8], expected [11, 16]");
  plan = ModelPlan();
  plan.tied = true;
  expectRefused(plan, "which the program does not know");
}

//===----------------------------------------------------------------------===//
// Starting from weights
//===----------------------------------------------------------------------===//

TEST(Weights, StartFromAFileAndFromACheckpoint) {
  std::string path = freshFolder("weights");
  ModelPlan single;
  single.f64 = false;
  Training source(single, 3);
  source.step();
  ASSERT_TRUE(source.session->save(path + "/saved"));
  ASSERT_TRUE(source.write(path + "/checkpoints", 2, 300));
  TensorMap expected;
  ASSERT_TRUE(source.session->parameters(expected));
  for (const std::string &from :
       {path + "/saved", path + "/saved/model.safetensors",
        Training::newest(path + "/checkpoints")})
    for (ModelPlan plan : somePlans()) { // f64: widened
      Training run(plan);
      Status status = run.session->loadWeights(from);
      ASSERT_TRUE(status) << status.message();
      EXPECT_EQ(run.session->stepsDone(), 0u);
      TensorMap found;
      ASSERT_TRUE(run.session->parameters(found));
      expectSame(expected, found, 0);
    }
}

TEST(Weights, MismatchesNameTheTensor) {
  std::string path = freshFolder("mismatch");
  ModelPlan plan;
  plan.f64 = false;
  auto entriesOf = [](const ModelPlan &plan) {
    TensorMap tensors;
    Training run(plan);
    EXPECT_TRUE(run.session->parameters(tensors));
    std::vector<TensorEntry> entries;
    for (const auto &[name, tensor] : tensors)
      entries.push_back({name, GRT_F32, tensor.shape});
    return entries;
  };
  // Every byte is this one, those of the last tensor are `last`.
  constexpr char byte = 0x11;
  auto load = [&](std::vector<TensorEntry> entries, char last = byte) {
    makeDirectory(path);
    writeSafetensors(path + "/model.safetensors", entries, [&](size_t i) {
      return std::vector<char>(entries[i].bytes(),
                               i + 1 < entries.size() ? byte : last);
    });
    Training run(plan);
    return run.session->loadWeights(path);
  };
  std::vector<TensorEntry> good = entriesOf(plan);
  EXPECT_TRUE(load(good));

  auto expectRefused = [&](const std::vector<TensorEntry> &entries,
                           const std::string &message) {
    Status status = load(entries);
    EXPECT_EQ(status.exitCode(), 2);
    EXPECT_NE(status.message().find(message), std::string::npos)
        << status.message();
  };
  std::vector<TensorEntry> bad = good;
  std::string first = bad[0].name;
  bad[0].name = "another";
  expectRefused(bad, "has no tensor '" + first + "'");
  bad = good;
  bad[1].shape.push_back(2);
  expectRefused(bad, "tensor '" + bad[1].name + "' has shape [");
  bad = good;
  bad[2].dtype = GRT_F64;
  expectRefused(bad,
                "tensor '" + bad[2].name + "' has dtype F64, expected F32");
  bad = good;
  bad.push_back({"more", GRT_F32, {2}});
  expectRefused(bad, "has tensor 'more', which the program does not know");

  // Differences that Hugging Face's own files have are no mistake.
  bad = good;
  bad[2].dtype = GRT_BF16;
  for (const char *name :
       {"h.0.attn.bias", "bert.embeddings.position_ids",
        "bert.pooler.dense.weight", "cls.seq_relationship.bias",
        "vit.pooler.dense.bias", "albert.pooler.weight",
        "sop_classifier.classifier.bias", "roberta.pooler.dense.weight",
        "pooler.dense.bias", "base_model.model.lm_head.base_layer.weight",
        "swin.encoder.layers.0.blocks.0.attention.self.relative_position_"
        "index"})
    bad.push_back({name, GRT_F32, {2}});
  EXPECT_TRUE(load(bad));
  // Numbers that are added to logits are no mistake where they are zeros.
  bad = good;
  bad.push_back({"final_logits_bias", GRT_BF16, {1, 7}});
  expectRefused(bad, "has tensor 'final_logits_bias' with other values than 0, "
                     "and the program adds nothing to logits: expected zeros");
  EXPECT_TRUE(load(bad, /*last=*/0));
  Training run(plan);
  Status status = run.session->loadWeights(path + "/nowhere");
  EXPECT_EQ(status.exitCode(), 2);
  fs::create_directories(path + "/empty");
  status = run.session->loadWeights(path + "/empty");
  EXPECT_NE(status.message().find("expected model.safetensors or"),
            std::string::npos);
}

/// A file may hold a copy of a tied tensor, of any type of its values, or the
/// copy alone; with one other value it is refused.
TEST(Weights, CopiesOfTiedTensorsHaveTheirValues) {
  std::string path = freshFolder("copies");
  makeDirectory(path);
  ModelPlan plan;
  plan.tied = true;
  plan.f64 = false;
  Training source(plan, 5);
  TensorMap expected;
  ASSERT_TRUE(source.session->parameters(expected));
  // Values that BF16 has, so that a copy can be of either type.
  for (auto &[name, tensor] : expected)
    for (double &value : tensor.values)
      value = std::round(value * 64) / 64;
  const std::string table = "wte.weight", copy = "head.weight";
  // `change`: what is added to one value of the copy, the last or `at`.
  auto load = [&](bool hasTable, grt_dtype type, double change,
                  std::vector<int64_t> shape, size_t at = SIZE_MAX) {
    std::vector<TensorEntry> entries;
    for (const auto &[name, tensor] : expected)
      if (name != table || hasTable)
        entries.push_back({name, GRT_F32, tensor.shape});
    entries.push_back({copy, type, shape});
    writeSafetensors(path + "/model.safetensors", entries, [&](size_t i) {
      bool isCopy = i + 1 == entries.size();
      std::vector<double> values =
          expected.at(isCopy ? table : entries[i].name).values;
      if (isCopy)
        values[std::min(at, values.size() - 1)] += change;
      std::vector<char> bytes(entries[i].bytes());
      storeValues(values.data(), int64_t(values.size()), entries[i].dtype,
                  bytes.data());
      return bytes;
    });
    Training run(plan);
    Status status = run.session->loadWeights(path);
    TensorMap found;
    EXPECT_TRUE(run.session->parameters(found));
    if (status && change == 0)
      expectSame(expected, found, 0);
    return status;
  };
  std::vector<int64_t> shape = expected.at(table).shape;
  for (bool hasTable : {true, false})
    for (grt_dtype type : {GRT_F32, GRT_BF16}) {
      Status status = load(hasTable, type, 0, shape);
      EXPECT_TRUE(status) << status.message();
    }
  // The copies taken are those of 200 drawn ones that have all values.
  std::mt19937_64 random(7);
  for (int draw = 0; draw < 200; ++draw) {
    bool hasTable = random() % 4, same = random() % 3 == 0;
    grt_dtype type = random() % 2 ? GRT_F32 : GRT_BF16;
    size_t at = random() % expected.at(table).values.size();
    Status status = load(hasTable, type, same ? 0 : 4, shape, at);
    if (hasTable || same) {
      EXPECT_EQ(bool(status), same) << status.message();
    }
  }
  std::vector<int64_t> turned(shape.rbegin(), shape.rend());
  ASSERT_NE(shape, turned);
  for (const Status &status :
       {load(true, GRT_F32, 0.5, shape), load(true, GRT_BF16, 0.5, shape),
        load(true, GRT_F32, 0, turned)}) {
    EXPECT_EQ(status.exitCode(), 2);
    EXPECT_NE(status.message().find("has tensor 'head.weight' with other "
                                    "values than 'wte.weight'"),
              std::string::npos)
        << status.message();
  }
}

} // namespace
