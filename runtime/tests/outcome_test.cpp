//===- outcome_test.cpp - How runs of galvatron-run end -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nothing is lost, nothing is silent: outputs that cannot be written, signals,
// limits, and what is said of them.
//
//===----------------------------------------------------------------------===//

#include "tool.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <sys/stat.h>

using namespace grt::test;

namespace {

std::string common(int ranks = 2) {
  return program(ranks) + " --data=" + alphabet();
}

/// Names of everything in a folder.
std::set<std::string> contents(const std::string &path) {
  std::set<std::string> names;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(path))
    names.insert(entry.path().string());
  return names;
}

Json summaryOf(const std::string &path) { return Json::parse(readAll(path)); }

/// Starts the tool with `arguments`, waits for its first step, and runs
/// `then` in a shell that knows it as $pid. Its output goes to `output`.
Result disturbed(const std::string &arguments, const std::string &then) {
  std::string out = folder() + "/disturbed.log";
  std::string script = writeText(
      "disturbed.sh",
      // Jobs of a shell without job control would ignore SIGINT.
      "set -m\nrm -f " + out + "\n" + GALVATRON_RUN + " " + arguments + " >" +
          out + " 2>&1 &\npid=$!\nfor i in $(seq 1000); do grep -q '^step ' " +
          out + " 2>/dev/null && break; sleep 0.02; done\n" + then +
          "\nwait $pid\n");
  int status = std::system(("timeout -k 1 100 bash " + script).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, readAll(out)};
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

TEST(Outcome, TryingOutputsLeavesNothingBehind) {
  std::string out = checkpoints("trial");
  std::filesystem::create_directories(out);
  std::ofstream(out + "/summary.json") << "old";
  std::set<std::string> before = contents(out);
  // The last one is refused, after all others were tried.
  Result result = runTool(
      common() + " --steps=1 --save=" + out + "/a/b/model --checkpoint=" + out +
      "/c/kept --log=" + out + "/log --summary=" + out +
      "/summary.json --dump-gradients=" + out + "/gradients --trace=" + out +
      "/trace --flight-recorder=" + out + "/none/flight");
  EXPECT_EQ(result.exitCode, 2) << result.output;
  EXPECT_TRUE(has(result, "cannot create '" + out + "/none/flight'"))
      << result.output;
  EXPECT_EQ(contents(out), before);
  EXPECT_EQ(readAll(out + "/summary.json"), "old");
}

TEST(Outcome, ARefusedRunLeavesNoCheckpointFolder) {
  std::string out = checkpoints("refused"), kept = out + "/a/b";
  std::string run = common() + " --checkpoint=" + kept;
  for (const char *refused :
       {" --resume --steps=2 --min-lr=9", " --steps=2 --init=/nowhere",
        " --resume --steps=2 --parameter-groups='nothing.*:frozen'",
        " --resume --steps=0 --save=model"}) {
    Result result = runTool(run + refused);
    EXPECT_EQ(result.exitCode, 2) << result.output;
    EXPECT_FALSE(std::filesystem::exists(out)) << refused;
  }
  // Files that were there stay, and so do those with a checkpoint.
  std::filesystem::create_directories(kept);
  EXPECT_EQ(runTool(run + " --resume --steps=2 --min-lr=9").exitCode, 2);
  EXPECT_EQ(contents(out), std::set<std::string>({out + "/a", kept}));
  std::filesystem::remove_all(out);
  EXPECT_EQ(runTool(run + " --resume --steps=1").exitCode, 0);
  EXPECT_TRUE(std::filesystem::exists(kept + "/step-00000001"));
}

TEST(Outcome, WeightsThatNobodyTrainedAreSaid) {
  std::string out = checkpoints("untrained"), kept = checkpoints("empty");
  std::string said =
      "without steps, --init or --resume: the weights are random";
  Result result = runTool(common() + " --steps=0 --save=" + out);
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, "warning: --save " + said)) << result.output;
  result = runTool(common() + " --steps=0 --generate=a --tokens=1");
  EXPECT_TRUE(has(result, "warning: --generate " + said)) << result.output;
  result = runTool(common() + " --evaluate");
  EXPECT_TRUE(has(result, "warning: --evaluate " + said)) << result.output;
  result =
      runTool(common() + " --steps=0 --generate=a --tokens=1 --init=" + out);
  EXPECT_FALSE(has(result, said)) << result.output;
  result = runTool(common() + " --steps=1 --save=" + out);
  EXPECT_FALSE(has(result, said)) << result.output;
  // A name that is mistyped is not a model that is exported.
  std::string again = checkpoints("exported");
  result = runTool(common() + " --steps=0 --resume --checkpoint=" + kept +
                   " --save=" + again);
  EXPECT_EQ(result.exitCode, 2) << result.output;
  EXPECT_TRUE(has(result, "--resume: '" + kept + "' has no checkpoint"))
      << result.output;
  EXPECT_FALSE(std::filesystem::exists(again));
}

TEST(Outcome, AFolderOfCheckpointsNamesItsNewest) {
  std::string kept = checkpoints("several");
  ASSERT_EQ(
      runTool(common() + " --steps=2 --checkpoint-every=1 --checkpoint=" + kept)
          .exitCode,
      0);
  Result result = runTool(common() + " --steps=1 --init=" + kept);
  EXPECT_EQ(result.exitCode, 2) << result.output;
  EXPECT_TRUE(has(result, "'" + kept +
                              "' is a folder of checkpoints: expected "
                              "one of them, the newest is '" +
                              kept + "/step-00000002'"))
      << result.output;
  EXPECT_EQ(runTool(common() + " --steps=1 --init=" + kept + "/step-00000002")
                .exitCode,
            0);
}

TEST(Outcome, SpaceForTheModelIsTriedFirst) {
  std::string out = checkpoints("space");
  std::string text = folder() + "/space.log";
  int status = std::system(("bash -c 'ulimit -f 200; " +
                            std::string(GALVATRON_RUN) + " " + common() +
                            " --steps=1 --save=" + out + "' >" + text + " 2>&1")
                               .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_NE(readAll(text).find("--save='" + out +
                               "': needs a file of 256 KiB, the process may "
                               "write files of 200 KiB (ulimit -f)"),
            std::string::npos)
      << readAll(text);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(Outcome, AFailedOutputDoesNotLoseTheOthers) {
  std::string out = checkpoints("others");
  Result result =
      runTool(common() + " --steps=3 --summary=/dev/full --save=" + out +
              "/model --trace=" + out + "-trace.json");
  EXPECT_EQ(result.exitCode, 5) << result.output;
  EXPECT_TRUE(has(result, "error: cannot write '/dev/full': No space left"))
      << result.output;
  EXPECT_TRUE(has(result, "written: model '" + out + "/model', trace '"))
      << result.output;
  EXPECT_TRUE(std::filesystem::exists(out + "/model/model.safetensors"));
  EXPECT_TRUE(Json::accept(readAll(out + "-trace.json")));

  // Several failures are told, the first is the cause; a device stays one.
  result = runTool(common() +
                   " --steps=3 --trace=/dev/full --summary=/dev/full"
                   " --log=/dev/full --save=" +
                   out + "/again");
  EXPECT_EQ(result.exitCode, 5) << result.output;
  size_t count = 0;
  for (size_t at = 0; (at = result.output.find("'/dev/full': No space", at)) !=
                      std::string::npos;
       ++at)
    ++count;
  EXPECT_GE(count, 3u) << result.output;
  EXPECT_TRUE(std::filesystem::exists(out + "/again/model.safetensors"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(Outcome, AFullLogDoesNotEndTheRun) {
  std::string summary = folder() + "/full-log.json";
  Result result =
      runTool(common() + " --steps=4 --log=/dev/full --summary=" + summary);
  EXPECT_EQ(result.exitCode, 5) << result.output;
  EXPECT_TRUE(has(result, "\nstep 4 loss ")) << result.output;
  // Said once, when it happens.
  size_t warning = result.output.find("warning: cannot write '/dev/full'");
  EXPECT_LT(warning, result.output.find("step 2 loss ")) << result.output;
  EXPECT_EQ(warning, result.output.rfind("warning: cannot write '/dev/full'"));
  Json values = summaryOf(summary);
  EXPECT_EQ(values["lost-log-lines"], 4);
  EXPECT_EQ(values["steps"], 4);
  EXPECT_EQ(values["ended-by"], "storage");
}

TEST(Outcome, AFullStandardOutputIsAnError) {
  for (bool trains : {true, false}) {
    Result result =
        runTool(trains ? common() + " --steps=2" : "--help", "2>&1 >/dev/full");
    EXPECT_EQ(result.exitCode, 5) << result.output;
    EXPECT_TRUE(has(result, "error: cannot write standard output: No space "
                            "left on device"))
        << result.output;
  }
}

TEST(Outcome, ClosedDescriptorsAreNoFiles) {
  std::string log = folder() + "/closed.jsonl";
  // The log would become standard output, or error.
  Result result = runTool(common() + " --steps=2 --log=" + log, "<&- >&- 2>&-");
  EXPECT_EQ(result.exitCode, 0);
  std::istringstream lines(readAll(log));
  std::string line;
  uint64_t steps = 0;
  while (std::getline(lines, line))
    EXPECT_EQ(Json::parse(line)["step"], ++steps);
  EXPECT_EQ(steps, 2u);
}

TEST(Outcome, ACheckpointOnTheWayThatFailsIsTriedAgain) {
  std::string kept = checkpoints("retried");
  Result result =
      disturbed(common() + " --steps=1000000000 --checkpoint=" + kept +
                    " --checkpoint-every=100 --print-every=1000000",
                "prlimit --pid $pid --fsize=300000:unlimited\n"
                "for i in $(seq 500); do grep -q 'warning: cannot reserve' " +
                    folder() +
                    "/disturbed.log && break; sleep 0.02; done\n"
                    "prlimit --pid $pid --fsize=unlimited:unlimited\n"
                    "rm -rf " +
                    kept +
                    "/step-*\n"
                    "for i in $(seq 500); do ls -d " +
                    kept +
                    "/step-* >/dev/null 2>&1 && break; sleep 0.02; done\n"
                    "kill -INT $pid");
  EXPECT_EQ(result.exitCode, 130) << result.output.substr(0, 4000);
  EXPECT_TRUE(has(result, "warning: cannot reserve space for '" + kept));
  EXPECT_TRUE(has(result, "; the run goes on, "));
  EXPECT_TRUE(has(result, "checkpoint: '" + kept + "/step-"));
}

TEST(Outcome, AnOldCheckpointThatStaysIsAWarning) {
  std::string kept = checkpoints("stays");
  std::string run = common() + " --checkpoint=" + kept +
                    " --checkpoint-every=2 --keep-checkpoints=1 --steps=";
  ASSERT_EQ(runTool(run + "2").exitCode, 0);
  // Renaming onto a folder with something in it fails, for root too.
  std::filesystem::create_directories(kept + "/step-00000002.partial/x");
  std::filesystem::create_directories(kept + "/step-00000003.partial/x");
  Result result = disturbed(
      program(2) + " --data=" + alphabet() + " --checkpoint=" + kept +
          " --keep-checkpoints=1 --resume --steps=1000000000",
      "mkdir -p " + kept + "/step-00000002.partial/x; kill -INT $pid");
  EXPECT_EQ(result.exitCode, 130) << result.output.substr(0, 4000);
  EXPECT_TRUE(has(result, "warning: an old checkpoint stays: cannot rename"))
      << result.output.substr(std::max<size_t>(result.output.size(), 2000) -
                              2000);
  EXPECT_TRUE(std::filesystem::exists(kept + "/step-00000002"));
}

//===----------------------------------------------------------------------===//
// Signals and limits
//===----------------------------------------------------------------------===//

TEST(Outcome, ASignalSavesTheModel) {
  const struct {
    const char *name;
    int exitCode;
  } signals[] = {{"INT", 130}, {"TERM", 143}, {"HUP", 129}};
  for (auto [name, exitCode] : signals) {
    std::string out = checkpoints("saved-by-signal");
    std::string summary = folder() + "/signal.json";
    Result result = disturbed(common() + " --steps=1000000000 --save=" + out +
                                  " --generate=a --summary=" + summary,
                              std::string("kill -") + name + " $pid");
    EXPECT_EQ(result.exitCode, exitCode) << result.output.substr(0, 4000);
    std::string word = std::string("SIG") + name;
    EXPECT_TRUE(has(result, "ended by " + word + " after step "));
    EXPECT_TRUE(has(result, "written: model '" + out + "'"));
    EXPECT_FALSE(has(result, "generated:"));
    Json values = summaryOf(summary);
    EXPECT_EQ(values["ended-by"], word);
    // The saved weights are those of that step.
    std::string again = checkpoints("saved-whole");
    Result whole = runTool(
        common() + " --steps=" + std::to_string(values["steps"].get<int>()) +
        " --print-every=1000000 --save=" + again);
    ASSERT_EQ(whole.exitCode, 0);
    EXPECT_TRUE(readAll(out + "/model.safetensors") ==
                readAll(again + "/model.safetensors"));
  }
}

/// A trace into a pipe that nobody reads keeps the end waiting.
TEST(Outcome, ASecondSignalEndsAtOnce) {
  std::string pipe = checkpoints("unread"), out = checkpoints("saved-first");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0666), 0);
  Result result = disturbed(
      common() + " --steps=1000000000 --save=" + out + " --trace=" + pipe,
      "kill -INT $pid\nfor i in $(seq 1000); do [ -e " + out +
          "/config.json ] && break; sleep 0.02; done\n"
          "sleep 2.2\nkill -INT $pid");
  EXPECT_EQ(result.exitCode, 130) << result.output.substr(0, 4000);
  EXPECT_TRUE(has(result, "ended by SIGINT after step "));
  EXPECT_FALSE(has(result, "written: ")) << "nothing stood in its way";
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors"));
  std::filesystem::remove(pipe);
}

TEST(Outcome, ASignalWithoutSaveSaysWhatIsLost) {
  // Sent several times at once, as timeout(1) does, it is one request.
  Result result =
      disturbed(common() + " --steps=1000000000",
                "for i in $(seq 20); do kill -INT $pid 2>/dev/null; done");
  EXPECT_EQ(result.exitCode, 130);
  EXPECT_TRUE(has(result, "the weights are lost, as neither --save=DIR nor "
                          "--checkpoint=DIR was given"));
}

TEST(Outcome, Sigusr1WritesACheckpointAndTheRunGoesOn) {
  std::string kept = checkpoints("now");
  Result result =
      disturbed(common() + " --steps=1000000000 --checkpoint=" + kept,
                "kill -USR1 $pid\nfor i in $(seq 500); do ls -d " + kept +
                    "/step-* >/dev/null 2>&1 && break; sleep 0.02; done\n"
                    "sleep 0.2; kill -TERM $pid");
  EXPECT_EQ(result.exitCode, 143) << result.output.substr(0, 4000);
  size_t first = result.output.find("\ncheckpoint: '" + kept);
  size_t last = result.output.rfind("\ncheckpoint: '" + kept);
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(first, last);
  EXPECT_NE(result.output.substr(first, last - first).find("\nstep "),
            std::string::npos);
}

TEST(Outcome, Sigusr2WritesATraceAndTheRunGoesOn) {
  std::string trace = folder() + "/on-demand";
  std::filesystem::remove_all(trace);
  std::filesystem::create_directory(trace);
  // Twice, so that the second has its own steps alone.
  std::string wait = "for i in $(seq 500); do [ $(ls " + trace +
                     "/t.step-*.json 2>/dev/null | wc -l) -ge ";
  std::string then = " ] && break; sleep 0.02; done\n";
  Result result = disturbed(
      common() + " --steps=1000000000 --trace-steps=2 --trace=" + trace +
          "/t.json",
      "kill -USR2 $pid\n" + wait + "1" + then + "kill -USR2 $pid\n" + wait +
          "2" + then + "sleep 0.1; kill -TERM $pid");
  EXPECT_EQ(result.exitCode, 143) << result.output.substr(0, 4000);
  EXPECT_NE(result.output.find("\ntrace: '" + trace + "/t.step-"),
            std::string::npos);
  int windows = 0;
  for (const auto &entry : std::filesystem::directory_iterator(trace)) {
    std::string name = entry.path().filename().string();
    if (name == "t.json")
      continue;
    ++windows;
    uint64_t first = std::stoull(name.substr(name.find('-') + 1));
    nlohmann::json events =
        nlohmann::json::parse(readAll(entry.path().string()))["traceEvents"];
    std::set<std::string> steps;
    for (const nlohmann::json &event : events)
      if (event.value("cat", "") == "step")
        steps.insert(event["name"]);
    EXPECT_EQ(steps,
              (std::set<std::string>{"step " + std::to_string(first),
                                     "step " + std::to_string(first + 1)}))
        << name;
  }
  EXPECT_EQ(windows, 2);
}

TEST(Outcome, SignalsThatHaveNoFileToWriteAreWarnings) {
  Result result =
      disturbed(common() + " --steps=1000000000",
                "kill -USR2 $pid; kill -USR1 $pid; sleep 0.3; kill -TERM $pid");
  EXPECT_EQ(result.exitCode, 143) << result.output.substr(0, 4000);
  for (const char *said :
       {"warning: SIGUSR2: no step is recorded without --trace=FILE",
        "warning: SIGUSR1: nothing is written without --checkpoint=DIR"})
    EXPECT_NE(result.output.find(said), std::string::npos) << said;
}

TEST(Outcome, AReaderThatLeavesEndsOnlyARunThatLeavesNothing) {
  std::string out = checkpoints("unread"), summary = folder() + "/unread.json";
  auto piped = [](const std::string &arguments) {
    return std::system(("timeout -k 1 60 bash -c 'set -o pipefail; " +
                        std::string(GALVATRON_RUN) + " " + arguments +
                        " | head -2 >/dev/null' 2>/dev/null")
                           .c_str());
  };
  EXPECT_EQ(
      WEXITSTATUS(piped(common() + " --steps=1000000000 --summary=" + summary)),
      141);
  EXPECT_EQ(summaryOf(summary)["ended-by"], "SIGPIPE");
  EXPECT_EQ(WEXITSTATUS(piped(common() + " --steps=2000 --save=" + out +
                              " --summary=" + summary)),
            0);
  EXPECT_EQ(summaryOf(summary)["steps"], 2000);
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors"));
}

TEST(Outcome, ARunEndsInTime) {
  std::string out = checkpoints("in-time"), summary = folder() + "/time.json";
  Result result =
      runTool(common() + " --steps=1000000000 --max-seconds=1" +
              " --print-every=1000000 --save=" + out + " --summary=" + summary);
  EXPECT_EQ(result.exitCode, 124) << result.output;
  EXPECT_TRUE(has(result, "ended by max-seconds after step "));
  EXPECT_EQ(summaryOf(summary)["ended-by"], "max-seconds");
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors"));
}

TEST(Outcome, ANaNKeepsTheWeightsBeforeIt) {
  std::string out = checkpoints("before-nan"), kept = checkpoints("nan-kept");
  std::string summary = folder() + "/nan.json";
  std::string run = common() + " --lr=1e38 --weight-decay=0";
  Result result = runTool(run + " --steps=6 --save=" + out +
                          " --checkpoint=" + kept + " --summary=" + summary);
  EXPECT_EQ(result.exitCode, 3) << result.output;
  Json values = summaryOf(summary);
  EXPECT_EQ(values["ended-by"], "numerics");
  int done = values["steps"];
  ASSERT_LT(done, 6);
  std::string again = checkpoints("before-nan-whole");
  ASSERT_EQ(
      runTool(run + " --steps=" + std::to_string(done) + " --save=" + again)
          .exitCode,
      0);
  EXPECT_TRUE(readAll(out + "/model.safetensors") ==
              readAll(again + "/model.safetensors"));
  EXPECT_TRUE(has(result, "checkpoint: '" + kept + "/step-0000000" +
                              std::to_string(done) + "'"))
      << result.output;
}

//===----------------------------------------------------------------------===//
// What is said
//===----------------------------------------------------------------------===//

TEST(Outcome, AHeaderSaysWhatRuns) {
  Result result = runTool(common() + " --steps=1 --validation-fraction=0.1 "
                                     "--threads-per-rank=2");
  EXPECT_EQ(result.output.find(
                "model: bigram, 65.5k parameters, f32, adamw\n"
                "plan: 1 stage (gpipe, 2 micro-batches): by hand x2\n"
                "ranks: 2 x 2 threads in this process\n"
                "data: 360 samples of 8 tokens, batches of 4, 90 steps an "
                "epoch; 39 for validation; 3,193 of 3,200 tokens\n"
                "step 1 loss "),
            0u)
      << result.output;
  EXPECT_TRUE(has(result, "\nseen: 32 tokens in 1 step, 0.01 epochs since"))
      << result.output;
}

TEST(Outcome, LinesEveryNStepsSayEpochAndTimeLeft) {
  Result result = runTool(common() + " --steps=25 --print-every=10 "
                                     "--validation-fraction=0.1 "
                                     "--validate-every=13");
  std::istringstream lines(result.output);
  std::vector<int> steps;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("step ", 0) == 0 && line[5] <= '9') {
      steps.push_back(std::atoi(line.c_str() + 5));
      EXPECT_NE(line.find(" epoch 0."), std::string::npos) << line;
      EXPECT_EQ(line.find(" left ") != std::string::npos, steps.back() != 25)
          << line;
    }
  // The first, the last, every tenth, and those that validate.
  EXPECT_EQ(steps, (std::vector<int>{1, 10, 13, 20, 25})) << result.output;
  EXPECT_TRUE(has(result, "best validation loss 5."));
  // Every line is there without the option, as scripts know it.
  result = runTool(common() + " --steps=4");
  EXPECT_TRUE(has(result, "\nstep 3 loss "));
  EXPECT_FALSE(has(result, " left "));
}

TEST(Outcome, ATerminalGetsALineNowAndThen) {
  // The command runs in a terminal, by script(1). Steps of a fraction of a
  // millisecond have a line a second, and all are in the log.
  std::string log = folder() + "/terminal.jsonl";
  std::string command = std::string(GALVATRON_RUN) + " " + common() +
                        " --steps=3000 --log=" + log;
  std::string out = folder() + "/terminal.txt";
  int status = std::system(
      ("script -qec '" + command + "' /dev/null >" + out + " 2>&1 </dev/null")
          .c_str());
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << readAll(out);
  std::istringstream lines(readAll(out));
  int steps = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("step ", 0) == 0 && line[5] <= '9') {
      ++steps;
      EXPECT_NE(line.find(" epoch "), std::string::npos) << line;
    }
  EXPECT_GE(steps, 2);
  EXPECT_LT(steps, 1500);
  std::string logged = readAll(log);
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 3000);
}

TEST(Outcome, ANewEpochAndShortDataAreSaidOnce) {
  std::string data = writeText("ten.txt", std::string(8 * 10 + 1, 'a'));
  Result result = runTool(program(1) + " --steps=9 --data=" + data);
  std::string line = "epoch 2 begins in step 3: all 10 samples were seen once";
  EXPECT_TRUE(has(result, line)) << result.output;
  EXPECT_EQ(result.output.find("epoch 2 begins"),
            result.output.rfind("epoch 2 begins"));
  EXPECT_EQ(result.output.find("epoch 3 begins"), std::string::npos);
  EXPECT_FALSE(has(result, "warning:")) << result.output;

  data = writeText("three.txt", std::string(8 * 3 + 1, 'a'));
  result = runTool(program(1) + " --steps=2 --data=" + data);
  EXPECT_TRUE(has(result, "warning: the data has 3 samples for training and a "
                          "batch 4: every step sees some of them more than "
                          "once\n"))
      << result.output;
}

TEST(Outcome, PassesOverAMixtureAreThoseOfItsSources) {
  std::string small = writeText("small.txt", std::string(8 * 5 + 1, 'a'));
  std::string large = writeText("large.txt", std::string(8 * 40 + 4, 'b'));
  std::string mixture =
      " --data=0.5:" + small + " --data=0.5:" + large + " --log=-";
  std::string summary = folder() + "/mixture.json";
  Result result =
      runTool(program(1) + " --steps=5 --summary=" + summary + mixture);
  EXPECT_TRUE(has(result, "data: 45 samples of 8 tokens, batches of 4, a "
                          "mixture of 2 sources; 362 of 365 tokens\n"))
      << result.output;
  EXPECT_TRUE(has(result, "epoch 2 of source 0 ('" + small +
                              "', 5 samples) begins in step 3\n"))
      << result.output;
  EXPECT_EQ(result.output.find("epoch 2 of source 1"), std::string::npos);
  EXPECT_EQ(result.output.find("epoch 2 begins"), std::string::npos);
  EXPECT_TRUE(has(result, ", 0.25 to 2.00 epochs of its 2 sources since the "
                          "beginning of the run"))
      << result.output;
  nlohmann::json passes =
      nlohmann::json::parse(readAll(summary)).at("source-epochs");
  EXPECT_EQ(passes, nlohmann::json::array({2.0, 0.25}));

  std::string files;
  for (int i = 0; i < 4; ++i)
    files += (i ? "," : "") + writeText("short" + std::to_string(i) + ".txt",
                                        std::string(15, 'a'));
  result = runTool(program(1) + " --steps=1 --data=" + files);
  EXPECT_TRUE(has(result, "warning: 40% of the data's 60 tokens stand at ends "
                          "of files"))
      << result.output;
}

TEST(Outcome, AMixtureOfAnOlderVersionGoesOnIfToldTo) {
  std::string kept = checkpoints("older-mixture");
  std::string one = writeText("one.txt", std::string(8 * 5 + 1, 'a'));
  std::string run = program(1) + " --checkpoint=" + kept +
                    " --data=0.5:" + one + " --data=0.5:" + one;
  ASSERT_EQ(runTool(run + " --steps=2").exitCode, 0);
  // The checkpoint of an older version, with the sums of its files.
  ASSERT_EQ(std::system(("cd '" + kept +
                         "/step-00000002' && grep -q 'mixture in passes' "
                         "checkpoint.json && sed -i 's/mixture in "
                         "passes/mixture/' checkpoint.json && sha256sum $(cut "
                         "-c67- SHA256SUMS) > ../sums && mv ../sums "
                         "SHA256SUMS")
                            .c_str()),
            0);
  Result result = runTool(run + " --resume --steps=4");
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_TRUE(has(result, "--accept-new-order goes on")) << result.output;
  result = runTool(run + " --resume --steps=4 --accept-new-order");
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, "the mixture goes on in another order"))
      << result.output;
  result = runTool(run + " --resume --steps=6");
  EXPECT_EQ(result.exitCode, 0) << result.output;
  result = runTool(program(1) + " --steps=1 --accept-new-order --data=" + one);
  EXPECT_EQ(result.exitCode, 2);
}

TEST(Outcome, AResumeSaysWhatChanges) {
  std::string kept = checkpoints("changes");
  std::string run = common() + " --checkpoint=" + kept;
  ASSERT_EQ(runTool(run + " --lr=0.1 --min-lr=0.01 --steps=4").exitCode, 0);
  Result result = runTool(run + " --resume --steps=4");
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_TRUE(has(result, "already at step 4: --steps=4 leaves nothing"))
      << result.output;
  EXPECT_FALSE(has(result, "\ncheckpoint: '")) << result.output;
  EXPECT_FALSE(has(result, "the cosine")) << result.output;
  result = runTool(run + " --resume --steps=8");
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_TRUE(has(result, "the cosine ends at step 8, that of the checkpoint "
                          "at step 4: the rate of step 5 is "))
      << result.output;
  // A constant rate has no length.
  kept = checkpoints("constant");
  run = common() + " --checkpoint=" + kept;
  ASSERT_EQ(runTool(run + " --steps=2").exitCode, 0);
  EXPECT_FALSE(has(runTool(run + " --resume --steps=3"), "the cosine"));
}

TEST(Outcome, EvaluatesWithoutTraining) {
  std::string out = checkpoints("evaluated"), summary = folder() + "/e.json";
  std::string held = " --validation-fraction=0.25";
  Result trained =
      runTool(common() + held + " --steps=30 --lr=0.3 --validate-every=30" +
              " --save=" + out + " --summary=" + summary);
  ASSERT_EQ(trained.exitCode, 0) << trained.output;
  double loss = summaryOf(summary)["validation-loss"];

  // The same samples, by either way.
  Result result = runTool(common() + held + " --steps=0 --validate-every=1" +
                          " --init=" + out + " --summary=" + summary);
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_TRUE(has(result, "\nvalidation ")) << result.output;
  EXPECT_EQ(summaryOf(summary)["validation-loss"], loss);
  result = runTool(program(1) + " --data=" + alphabet() + held +
                   " --evaluate --init=" + out + " --summary=" + summary);
  EXPECT_EQ(result.exitCode, 0) << result.output;
  Json values = summaryOf(summary);
  EXPECT_NEAR(values["evaluation"]["loss"].get<double>(), loss, 1e-6);
  EXPECT_NEAR(values["evaluation"]["perplexity"].get<double>(), std::exp(loss),
              1e-5);
  EXPECT_EQ(values["evaluation"]["tokens"], 99 * 8);
  // It has learned which letter follows which.
  EXPECT_EQ(values["evaluation"]["accuracy"], 1.0);
  EXPECT_TRUE(has(result, " accuracy 1.0000 over 792 tokens")) << result.output;
  EXPECT_TRUE(has(result, "evaluation loss ")) << result.output;
  EXPECT_EQ(values["steps"], 0);

  // All samples count without the fraction.
  result = runTool(common() + " --evaluate --summary=" + summary);
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_TRUE(has(result, "the weights are random ones")) << result.output;
  EXPECT_LT(summaryOf(summary)["evaluation"]["accuracy"].get<double>(), 0.5);
  EXPECT_EQ(summaryOf(summary)["evaluation"]["tokens"], 399 * 8);

  // The files may stand behind the option, and a pattern is several.
  result = runTool(program(1) + " --evaluate=" + alphabet() +
                   " --summary=" + summary);
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_EQ(summaryOf(summary)["evaluation"]["tokens"], 399 * 8);
  std::string shards = folder() + "/shards-";
  for (const char *number : {"1", "2"})
    std::filesystem::copy_file(
        alphabet(), shards + number + ".txt",
        std::filesystem::copy_options::overwrite_existing);
  result = runTool(program(1) + " '--evaluate=tokens=" + shards +
                   "*.txt' --summary=" + summary);
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_EQ(summaryOf(summary)["evaluation"]["tokens"], 2 * 399 * 8);
}

TEST(Outcome, PathsWithCommasAndValuesApart) {
  std::string path = writeText("a,b.txt", std::string(8 * 10 + 1, 'a'));
  Result result =
      runTool(program(1) + " --data " + path + " --lr 1e-2 --steps 1 --json",
              "2>/dev/null");
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_EQ(Json::parse(result.output)["steps"], 1);
  result = runTool(program(1) + " --steps=1 --data=" + path + "," + alphabet());
  EXPECT_EQ(result.exitCode, 2);
  result = runTool(program(1) + " --steps=1 --data=" + path +
                   " --data=" + alphabet() + "," + alphabet());
  EXPECT_TRUE(has(result, "data: 808 samples of 8 tokens")) << result.output;
}

TEST(Outcome, AResumeWithAnotherTailIsRefused) {
  std::string text(100000, 'a');
  std::string kept = checkpoints("tail"), path = writeText("long.txt", text);
  std::string run = program(2) + " --data=" + path + " --checkpoint=" + kept;
  ASSERT_EQ(runTool(run + " --steps=1").exitCode, 0);
  text.back() = 'b';
  writeText("long.txt", text);
  Result result = runTool(run + " --steps=2 --resume");
  EXPECT_EQ(result.exitCode, 2) << result.output;
  EXPECT_TRUE(has(result, "100000 text values and differs from it"))
      << result.output;
}

TEST(Outcome, AFailureSaysWhereTheFlightRecordIs) {
  std::string file = folder() + "/flight.json";
  // A loss that is not finite is no failure of a rank; a time-out is.
  Result result = runTool(common() +
                          " --steps=1000000000 --timeout=1e-9 "
                          "--flight-recorder=" +
                          file);
  EXPECT_EQ(result.exitCode, 4) << result.output.substr(0, 2000);
  EXPECT_TRUE(has(result, "(the last operations of the ranks are in '" + file +
                              "')\n"));
  EXPECT_TRUE(Json::accept(readAll(file)));
}

TEST(Outcome, AResumeKeepsTheSeed) {
  // The order of samples, and weights, are those of the checkpoint's seed.
  std::string text;
  for (int i = 0; i < 4000; ++i)
    text.push_back(char('a' + (i * i / 7) % 26));
  std::string data = " --data=" + writeText("ordered.txt", text);
  std::string kept = checkpoints("seeded"), summary = folder() + "/seed.json";
  std::string run = program(2) + data + " --lr=0.1 --summary=" + summary;
  ASSERT_EQ(runTool(run + " --seed=3 --steps=8").exitCode, 0);
  double whole = finalLoss(summary);
  ASSERT_EQ(runTool(run + " --seed=4 --steps=8").exitCode, 0);
  EXPECT_NE(finalLoss(summary), whole);
  ASSERT_EQ(runTool(run + " --seed=3 --steps=4 --checkpoint=" + kept).exitCode,
            0);
  ASSERT_EQ(runTool(run + " --steps=8 --resume --checkpoint=" + kept).exitCode,
            0);
  EXPECT_EQ(finalLoss(summary), whole);
}

} // namespace
