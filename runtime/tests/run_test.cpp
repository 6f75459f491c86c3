//===- run_test.cpp - galvatron-run from outside --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tool.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

using namespace grt::test;

namespace {

/// The header and the data of a safetensors file.
std::pair<Json, std::string> readSafetensors(const std::string &path) {
  std::string bytes = readAll(path);
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i)
    length |= uint64_t(uint8_t(bytes.at(i))) << (8 * i);
  return {Json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}

TEST(Run, TrainsLogsSavesAndGenerates) {
  std::string out = folder();
  Result result =
      runTool(program(2) + " --data=" + alphabet() +
              " --steps=40 --lr=0.3 --min-lr=0.05 --warmup-steps=4 --ranks=2" +
              " --validation-fraction=0.1 --validate-every=20 --log=" + out +
              "/log.jsonl --summary=" + out + "/summary.json --save=" + out +
              "/model --dump-gradients=" + out +
              "/gradients.safetensors --generate=abc --tokens=5");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_NE(result.output.find("\nstep 40 loss "), std::string::npos);
  EXPECT_NE(result.output.find(" tok/s mfu "), std::string::npos);
  EXPECT_NE(result.output.find("generated: abcdefgh\n"), std::string::npos)
      << result.output;

  std::ifstream log(out + "/log.jsonl");
  std::string line;
  std::vector<Json> steps;
  while (std::getline(log, line))
    steps.push_back(Json::parse(line));
  ASSERT_EQ(steps.size(), 40u);
  for (const char *key :
       {"step", "loss", "grad-norm", "lr", "ms", "tokens-per-second",
        "samples-per-second", "mfu", "peak-bytes", "planned-bytes"})
    EXPECT_TRUE(steps[7].contains(key)) << key;
  EXPECT_DOUBLE_EQ(steps[0]["lr"], 0.075);
  EXPECT_DOUBLE_EQ(steps[3]["lr"], 0.3);
  EXPECT_DOUBLE_EQ(steps[39]["lr"], 0.05);
  EXPECT_TRUE(steps[19].contains("validation-loss"));
  EXPECT_LT(steps[39]["loss"].get<double>(),
            steps[0]["loss"].get<double>() / 4);
  EXPECT_LT(steps[39]["validation-loss"].get<double>(), 1.0);

  Json summary = Json::parse(readAll(out + "/summary.json"));
  for (const char *key :
       {"ranks", "process-peak-bytes", "steps", "final-loss",
        "predicted-step-ms", "median-step-ms", "tokens-per-second",
        "samples-per-second", "nominal-cluster"})
    EXPECT_TRUE(summary.contains(key)) << key;
  EXPECT_EQ(summary["ended-by"], "completed");
  EXPECT_NEAR(summary["samples-per-second"].get<double>() * 8,
              summary["tokens-per-second"].get<double>(), 1e-3);
  EXPECT_EQ(summary["ranks"].size(), 2u);
  EXPECT_EQ(summary["ranks"][1]["rank"], 1);
  EXPECT_EQ(summary["final-loss"], steps[39]["loss"]);
  // The last three were recorded, and their times are another thing.
  EXPECT_EQ(summary["median-of"], Json({{"kind", "calls"}, {"steps", 37}}));
  EXPECT_EQ(summary["time-shares"]["steps"], 3);
  EXPECT_EQ(summary["generated"], "defgh");

  auto [header, data] = readSafetensors(out + "/model/model.safetensors");
  EXPECT_EQ(header["table.weight"]["shape"], Json({256, 256}));
  EXPECT_EQ(header["table.weight"]["dtype"], "F32");
  EXPECT_EQ(data.size(), 256u * 256 * 4);
  EXPECT_EQ(Json::parse(readAll(out + "/model/config.json"))["model_type"],
            "bigram");
  EXPECT_FALSE(std::filesystem::exists(out + "/model/model.safetensors.tmp"));
  auto [gradientHeader, gradients] =
      readSafetensors(out + "/gradients.safetensors");
  EXPECT_EQ(gradientHeader["table.weight"]["data_offsets"],
            Json({0, 256 * 256 * 4}));
}

TEST(Run, SavedFilesDoNotDependOnThePlan) {
  std::string files[2];
  for (int ranks : {1, 2}) {
    std::string out = folder() + "/initial" + std::to_string(ranks);
    Result result =
        runTool(program(ranks) + " --steps=0 --seed=5 --save=" + out);
    ASSERT_EQ(result.exitCode, 0) << result.output;
    files[ranks - 1] = readAll(out + "/model.safetensors");
  }
  EXPECT_GT(files[0].size(), 256u * 256 * 4);
  EXPECT_TRUE(files[0] == files[1]);
}

TEST(Run, JsonOnStandardOutputIsTheOnlyThingThere) {
  Result result =
      runTool(program(1) + " --data=" + alphabet() + " --steps=2 --json",
              "2>/dev/null");
  ASSERT_EQ(result.exitCode, 0);
  EXPECT_EQ(Json::parse(result.output)["steps"], 2);
}

TEST(Run, NothingIsRecordedWithoutTraceSteps) {
  std::string run = program(1) + " --data=" + alphabet() + " --steps=2";
  Json every = Json::parse(runTool(run + " --json", "2>/dev/null").output);
  EXPECT_EQ(every["median-of"], Json({{"kind", "recorded"}, {"steps", 2}}));
  Json none = Json::parse(
      runTool(run + " --json --trace-steps=0", "2>/dev/null").output);
  EXPECT_EQ(none["median-of"], Json({{"kind", "calls"}, {"steps", 2}}));
  EXPECT_TRUE(none["time-shares"]["measured"].is_null());
  Result refused = runTool(run + " --trace-steps=0 --trace=trace.json");
  EXPECT_EQ(refused.exitCode, 2);
  EXPECT_NE(refused.output.find("--trace needs at least one step"),
            std::string::npos);
}

/// Returns how often a text stands in another.
size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++found;
  return found;
}

/// Every element is closed where it was opened; `void` ones have no end.
void expectWellFormed(const std::string &page) {
  const std::set<std::string> isVoid = {"!doctype", "meta"};
  std::vector<std::string> open;
  for (size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
    size_t end = page.find('>', at);
    ASSERT_NE(end, std::string::npos) << page.substr(at, 80);
    std::string tag = page.substr(at + 1, end - at - 1);
    std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ("/" + open.back(), tag) << "at byte " << at;
      open.pop_back();
    } else if (tag.back() != '/' && !isVoid.count(name)) {
      open.push_back(name);
    }
    at = end;
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

TEST(Run, ReportsARunAsAPage) {
  std::string page = folder() + "/run.html";
  Result result = runTool(program(2) + " --data=" + alphabet() +
                          " --steps=30 --lr=0.1 --validation-fraction=0.1 "
                          "--validate-every=10 --report=" +
                          page);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_NE(result.output.find("report '" + page + "'"), std::string::npos);
  std::string text = readAll(page);
  EXPECT_EQ(text.find("<!doctype html>"), 0u);
  expectWellFormed(text);
  EXPECT_EQ(count(text, "<polyline"), 4u);
  EXPECT_EQ(count(text, "<circle"), 3u) << "a dot for each validation";
  EXPECT_EQ(count(text, "class='planned'"), 2u) << "a frame for each rank";
  EXPECT_NE(text.find(">measured</text>"), std::string::npos);
  // The last step: both ranks are of one stage.
  EXPECT_NE(text.find("Step 30, a rank of each stage"), std::string::npos);
  EXPECT_NE(text.find(">rank 0</text><rect class='forward'"),
            std::string::npos);
  EXPECT_NE(text.find("<rect class='backward'"), std::string::npos);
  const std::string live = "<polygon class='live' points='";
  EXPECT_EQ(count(text, live), 1u);
  std::string points = text.substr(text.find(live) + live.size());
  points.resize(points.find('\''));
  EXPECT_GT(count(points, ","), 6u) << "over the whole step: " << points;
  EXPECT_LT(std::stod(points), 400) << "from its first half on: " << points;
  EXPECT_NE(text.find("30 steps of "), std::string::npos);
  EXPECT_EQ(text.find("http"), std::string::npos) << "it needs nothing else";
  EXPECT_EQ(count(text, "<svg"), count(text, "</svg>"));
  result = runTool(program(2) + " --data=" + alphabet() +
                   " --steps=3 --report=/nowhere/run.html");
  EXPECT_EQ(result.exitCode, 2) << result.output;
}

TEST(Run, DescribesAProgramWithoutRunningIt) {
  Result result = runTool("--describe " + program(2));
  ASSERT_EQ(result.exitCode, 0) << result.output;
  for (const char *part : {"\nmodel: ", "\nranks: 2 in ", "\nstage 0: ranks 0",
                           "\non disk: model "})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << "\n"
                                                           << result.output;
  result = runTool("--describe --json " + program(2));
  ASSERT_EQ(result.exitCode, 0) << result.output;
  Json json = Json::parse(result.output);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["tool-version"], "by hand");
  std::string summary = folder() + "/described.json";
  ASSERT_EQ(runTool(program(2) + " --steps=1 --data=" + alphabet() +
                    " --summary=" + summary)
                .exitCode,
            0);
  // The same bytes that a run plans for.
  Json summarized = Json::parse(readAll(summary));
  int compared = 0;
  for (const Json &rank : summarized["ranks"])
    for (const Json &stage : json["stages"])
      for (const Json &number : stage["ranks"])
        if (number == rank["rank"]) {
          EXPECT_EQ(stage["arena-bytes"], rank["planned-peak-bytes"]);
          ++compared;
        }
  EXPECT_EQ(compared, 2);
  result = runTool("--describe --steps=3 " + program(2));
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_NE(result.output.find("--describe runs nothing: leave --steps out"),
            std::string::npos);
  EXPECT_EQ(runTool("--describe nowhere.gvx").exitCode, 2);
  EXPECT_EQ(runTool("--describe --json=/nowhere/x.json " + program(1)).exitCode,
            2);
  EXPECT_EQ(runTool("--describe --json=/dev/full " + program(1)).exitCode, 5);
  EXPECT_TRUE(has(runTool("--describe --json=" + program(1) + " " + program(1)),
                  "expected a file of its own, found that of the program"));
}

TEST(Run, HelpAndVersion) {
  EXPECT_EQ(runTool("--help").exitCode, 0);
  EXPECT_EQ(runTool("--version").output.find("galvatron-run "), 0u);
}

TEST(Run, ResumesBitwiseAndUnderAnotherPlan) {
  std::string out = folder(), kept = checkpoints("resumed");
  std::string copy = checkpoints("resumed-elsewhere");
  std::string schedule = " --lr=0.3 --min-lr=0.05 --warmup-steps=4 --seed=3 "
                         "--validation-fraction=0.1";
  std::string data = " --data=" + alphabet() + "," + alphabet();
  std::string summary = " --steps=30 --summary=" + out + "/summary.json";
  ASSERT_EQ(runTool(program(2) + data + schedule + summary).exitCode, 0);
  double whole = finalLoss(out + "/summary.json");

  // Options that are not given again are taken from the checkpoint.
  std::string common =
      program(2) + data + " --checkpoint=" + kept + " --checkpoint-every=10";
  Result result =
      runTool(common + schedule +
              " --steps=30 --keep-checkpoints=9 --log=" + out + "/log.jsonl");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_NE(result.output.find("checkpoint: '" + kept + "/step-00000030'"),
            std::string::npos);
  std::filesystem::remove_all(kept + "/step-00000030");
  std::filesystem::copy(kept, copy, std::filesystem::copy_options::recursive);
  result = runTool(common + summary +
                   " --resume --validate-every=10 --log=" + out + "/log.jsonl");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_NE(result.output.find("resumed from '" + kept + "/step-00000020'"),
            std::string::npos)
      << result.output;
  EXPECT_EQ(finalLoss(out + "/summary.json"), whole);
  std::string log = readAll(out + "/log.jsonl");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 40); // ten of them again

  result = runTool(program(1) + data + " --checkpoint=" + copy + summary +
                   " --resume");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_NEAR(finalLoss(out + "/summary.json"), whole, 1e-5 * whole);

  struct Refusal {
    std::string arguments, message;
    int exitCode;
  };
  const Refusal refusals[] = {
      {common + " --steps=40", "holds checkpoints of another run", 2},
      {common + " --steps=40 --resume --seed=4",
       "was made with seed 3, --seed gives 4", 2},
      {program(2) + " --steps=40 --resume --checkpoint=" + kept +
           " --data=" + alphabet(),
       "was made with 2 data files, found 1", 2},
      {program(2) + " --steps=40 --resume --checkpoint=" + kept + " --data=" +
           alphabet() + "," + writeText("other.txt", std::string(3200, 'x')),
       "'" + folder() + "/other.txt' has 3200 text values and differs", 2},
      {common + " --steps=40 --resume --validation-fraction=0.5",
       "was made with --validation-fraction=0.1, found 0.5", 2}};
  for (const Refusal &refusal : refusals) {
    result = runTool(refusal.arguments);
    EXPECT_EQ(result.exitCode, refusal.exitCode) << refusal.arguments;
    EXPECT_NE(result.output.find(refusal.message), std::string::npos)
        << result.output;
  }

  // A run with no step left is a way to get the model out.
  result = runTool(common + " --steps=0 --resume --save=" + out + "/exported");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  auto [header, values] = readSafetensors(out + "/exported/model.safetensors");
  auto [stored, storedValues] =
      readSafetensors(kept + "/step-00000030/model-00001-of-00001.safetensors");
  EXPECT_EQ(header, stored);
  EXPECT_TRUE(values == storedValues);
  result = runTool(program(1) + " --steps=0 --init=" + kept +
                   "/step-00000030 --save=" + out + "/again");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(readAll(out + "/again/model.safetensors") ==
              readAll(out + "/exported/model.safetensors"));
}

TEST(Run, ASignalFinishesTheStepAndWritesACheckpoint) {
  std::string out = folder() + "/signal.log";
  for (const char *signal : {"TERM", "INT"}) {
    std::string kept = checkpoints("signalled");
    std::string command = std::string(GALVATRON_RUN) + " " + program(2) +
                          " --data=" + alphabet() +
                          " --steps=1000000000 --checkpoint=" + kept;
    // The first `step 3` shows that training has begun. Jobs of a shell
    // without job control would ignore SIGINT.
    std::string script = writeText(
        "signal.sh", "set -m\nrm -f " + out + "\n" + command + " >" + out +
                         " 2>&1 &\npid=$!\nfor i in $(seq 500); do grep -q "
                         "'^step 3 ' " +
                         out + " 2>/dev/null && break; sleep 0.02; done\n" +
                         "kill -" + signal + " $pid\nwait $pid\n");
    int status = std::system(("timeout -k 1 60 bash " + script).c_str());
    EXPECT_TRUE(WIFEXITED(status) &&
                WEXITSTATUS(status) ==
                    (signal == std::string("INT") ? 130 : 143))
        << status;
    std::string text = readAll(out);
    size_t at =
        text.find(std::string("ended by SIG") + signal + " after step ");
    ASSERT_NE(at, std::string::npos) << text;
    int step = std::atoi(text.c_str() + text.find("step ", at) + 5);
    char name[32];
    std::snprintf(name, sizeof(name), "/step-%08d", step);
    EXPECT_NE(text.find("checkpoint: '" + kept + name + "'"), std::string::npos)
        << text;
    Result resumed = runTool(program(2) + " --data=" + alphabet() +
                             " --resume --checkpoint=" + kept +
                             " --steps=" + std::to_string(step + 2));
    EXPECT_EQ(resumed.exitCode, 0) << resumed.output;
    EXPECT_NE(
        resumed.output.find("\nstep " + std::to_string(step + 2) + " loss"),
        std::string::npos)
        << resumed.output;
  }
}

TEST(Run, AFullDiskIsAnErrorAndTheOldCheckpointStays) {
  std::string kept = checkpoints("full");
  std::string common =
      program(2) + " --data=" + alphabet() + " --lr=0.1 --checkpoint=" + kept;
  ASSERT_EQ(runTool(common + " --steps=4").exitCode, 0);
  std::string command = "(ulimit -f 300; " + std::string(GALVATRON_RUN) + " " +
                        common + " --resume --steps=8)";
  std::string text = folder() + "/full.log";
  int status =
      std::system(("bash -c '" + command + "' >" + text + " 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_NE(readAll(text).find("error: --checkpoint='" + kept +
                               "': needs a file of "),
            std::string::npos)
      << readAll(text);
  EXPECT_EQ(readAll(text).find("step 5 "), std::string::npos);
  Result result = runTool(common + " --resume --steps=8");
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_NE(result.output.find("resumed from '" + kept + "/step-00000004'"),
            std::string::npos)
      << result.output;
}

TEST(Run, ChecksStreamsWithTheSameLosses) {
  std::string common = program(2) + " --data=" + alphabet() + " --steps=5";
  auto losses = [](const std::string &output) {
    std::string found;
    for (size_t at = 0; (at = output.find(" loss ", at)) != std::string::npos;)
      found += output.substr(at++, 13);
    return found;
  };
  Result plain = runTool(common),
         checked = runTool(common + " --check-streams");
  EXPECT_EQ(checked.exitCode, 0) << checked.output;
  EXPECT_FALSE(losses(plain.output).empty());
  EXPECT_EQ(losses(plain.output), losses(checked.output));
}

TEST(Run, ALossThatIsNotFinite) {
  std::string common = program(2) + " --data=" + alphabet() +
                       " --lr=1e38 --weight-decay=0 --steps=6";
  Result result = runTool(common);
  EXPECT_EQ(result.exitCode, 3);
  EXPECT_NE(result.output.find("; the first layer with a value that is not "
                               "finite is '"),
            std::string::npos)
      << result.output;
  std::string summary = folder() + "/skipped.json";
  std::string log = folder() + "/skipped.jsonl";
  result =
      runTool(common + " --on-nan=skip --summary=" + summary + " --log=" + log);
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_NE(result.output.find(" update left out"), std::string::npos)
      << result.output;
  EXPECT_GT(Json::parse(readAll(summary))["skipped-steps"], 0);
  std::istringstream lines(readAll(log));
  int skipped = 0, steps = 0;
  for (std::string line; std::getline(lines, line); ++steps) {
    Json entry = Json::parse(line);
    EXPECT_TRUE(!entry.contains("skipped") || entry["skipped"] == true);
    skipped += entry.contains("skipped");
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(skipped, Json::parse(readAll(summary))["skipped-steps"]);
}

struct WrongInput {
  std::string arguments, message;
  int exitCode = 2;
};

TEST(Run, WrongInputs) {
  std::string p = program(1), data = " --data=" + alphabet();
  std::string some = p + data + " --steps=1";
  std::string binary = writeText("odd.u16", "abc");
  std::string large = writeText(
      "large.u32", std::string("\1\0\0\0\0\1\0\0", 8) + std::string(40, '\0'));
  std::string tiny = writeText("tiny.txt", "12345678");
  std::string other = writeText("data.doc", "some bytes that are long enough");
  std::string weights = folder() + "/weights";
  std::filesystem::create_directories(weights);
  writeText("weights/part.safetensors", "kept");
  const WrongInput inputs[] = {
      {"", "expected a program (.gvx); see --help"},
      {p, "expected --steps=N or --evaluate, or "
          "--generate=TEXT or --prompts=FILE of a program that generates"},
      {p + " --steps=1", "expected --data=FILE"},
      {p + " " + p + " --steps=0", "expected one program, found"},
      {p + " --steps=x", "option '--steps': expected an integer of at least 0, "
                         "found 'x'"},
      {p + " --steps", "option '--steps' needs a value"},
      {p + " --steps=-1", "found '-1'"},
      {some + " --decay-all=yes", "option '--decay-all' takes no value"},
      {some + " --what=1", "unknown option '--what'; see --help"},
      {some + " --stesp=1",
       "unknown option '--stesp'; did you mean '--steps'?"},
      {some + " --learning-rate=1", "did you mean '--lr'?"},
      {some + " --optimizer=sgd", "unknown option '--optimizer'; it is "
                                  "galvatron-compile's"},
      {some + " --lr 1e-3x", "option '--lr': expected"},
      {some + " --lr --decay-all", "option '--lr' needs a value: --lr=..."},
      {some + " --lr=1e-3 --min-lr=1",
       "--min-lr ends the decay of --lr: expected at most 0.001, found 1"},
      {some + " --momentum=0.5",
       "--momentum: the program's optimizer, adamw, has none"},
      {some + " --evaluate", "--evaluate trains nothing: leave --steps out"},
      {p + " --evaluate", "expected --data=FILE"},
      {p + " --evaluate --max-seconds=5",
       "--evaluate trains nothing: leave --max-seconds out"},
      {some + " --log=" + alphabet(),
       ".txt': expected a file of its own, found that of the data"},
      {some + " --summary=" + p, "expected a file of its own, found that of "
                                 "the program"},
      {some + " --json=" + folder() + "/./one --trace=" + folder() + "/one",
       "--trace='" + folder() +
           "/one': expected a file of its own, found that of --json"},
      {p + " --steps=1 --data=" + writeText("w.bin", "xx") +
           " --log=" + writeText("w.idx", "kept"),
       "found that of an index of the data"},
      {p + " --steps=1 --data=" + writeText("v.u16", "xx") +
           " --report=" + writeText("v.u16.index", "kept"),
       "found that of an index of the data"},
      {some + " --init=" + weights + " --json=" + weights + "/part.safetensors",
       "expected a file of its own, found that of --init"},
      {some + " --print-every=0", "expected an integer of at least 1"},
      {some + " --max-seconds=0", "expected a number above 0"},
      {some + " --host-memory=4", "expected a size above 0 in KiB, MiB"},
      {some + " --host-memory=0GiB", "expected a size above 0 in KiB, MiB"},
      {some + " --host-memory=1MiB",
       "the arenas of the 1 rank on this machine need 1.05 MiB, 1 MiB are "
       "available (as given)",
       6},
      {some + " --lr=-1", "option '--lr': expected a number of at least 0"},
      {some + " --lr=1e-3x", "option '--lr': expected"},
      {some + " --lr=nan", "option '--lr': expected"},
      {some + " --clip-norm=0",
       "option '--clip-norm': expected a number above"},
      {some + " --betas=0.9", "option '--betas': expected two numbers"},
      {some + " --betas=0.9,1", "option '--betas': expected two numbers"},
      {some + " --ranks=4", "the program needs 1 ranks, --ranks gives 4"},
      {some + " --ranks=0", "expected an integer from 1 to 1048576, found '0'"},
      {some + " --data-format=u8",
       "expected text, jsonl, u16, u32, bin or npy, found 'u8'"},
      {some + " --validation-fraction=1.5", "expected a number from 0 to 1"},
      {some + " --validation-fraction=1",
       "the validation fraction leaves no samples"},
      {some + " --validate-every=5", "--validate-every needs"},
      {p + " --steps=0 --validate-every=5",
       "--validate-every needs --data=FILE"},
      {some + " --validate-every=1 --validation-fraction=0.0001",
       "the validation fraction gives no samples"},
      {some + " --warmup-steps=2", "expected at most 1 warm-up steps, found 2"},
      {p + " --steps=0 --dump-gradients=x", "--dump-gradients needs"},
      {"/nowhere.gvx --steps=0", "cannot open program '/nowhere.gvx'"},
      {alphabet() + " --steps=0", "is not a program: expected a file that "
                                  "galvatron-compile makes"},
      {p + " --steps=1 --data=/nowhere.txt",
       "cannot open data file '/nowhere.txt'"},
      {p + " --steps=1 --data=/nowhere", "cannot open data file '/nowhere'"},
      {p + " --steps=1 --data=" + folder(), "is a folder; the pattern"},
      {p + " --steps=1 --data=" + other, "expected a suffix .txt"},
      {p + " --steps=1 --data=" + binary,
       "3 bytes are not a whole number of u16 tokens"},
      {p + " --steps=1 --data=" + large,
       "token 256 at position 1, expected less than the vocabulary of 256"},
      {p + " --steps=1 --data=" + tiny,
       "is too short: expected at least 9 tokens, found 8"},
      {some + " --data=" + writeText("nothing.txt", ""), "is empty"},
      {some + " --data=a.txt,,b.txt", "expected files separated by commas"},
      {p + " --steps=1 '--data=/nowhere/*.txt'",
       "expected a pattern that matches files, found '/nowhere/*.txt'"},
      {p + " --data=" + tiny + " --evaluate=" + tiny,
       "--evaluate=FILE names the data: leave --data out"},
      {some + " --resume", "--resume needs --checkpoint=DIR"},
      {some + " --checkpoint-every=2", "--checkpoint-every needs --checkpoint"},
      {some + " --keep-checkpoints=0", "expected an integer of at least 1"},
      {some + " --on-nan=ignore",
       "expected stop, skip or late, found 'ignore'"},
      {some + " --timeout=-1", "expected a number of at least 0"},
      {some + " --init=/nowhere", "cannot open '/nowhere'"},
      {some + " --init=" + folder(), "expected model.safetensors or"},
      {some + " --init=" + tiny, "expected a safetensors file"},
      {some + " --checkpoint=/proc/nowhere", "cannot make directory"},
      {some + " --save=/proc/nowhere", "cannot make directory"},
      {some + " --save=" + tiny, "cannot make directory"},
      {some + " --log=/nowhere/log", "cannot create '/nowhere/log'"},
      {some + " --summary=/nowhere/s", "cannot create '/nowhere/s'"},
      {some + " --json=/nowhere/s", "cannot create '/nowhere/s'"},
      {some + " --json=/tmp", "cannot write '/tmp': Is a directory"},
      {some + " --trace=/nowhere/t", "cannot create '/nowhere/t'"},
      {some + " --dump-gradients=/nowhere/g", "cannot create '/nowhere/g'"},
      {some + " --flight-recorder=/nowhere/f", "cannot create '/nowhere/f'"},
  };
  for (const WrongInput &input : inputs) {
    Result result = runTool(input.arguments);
    EXPECT_EQ(result.exitCode, input.exitCode) << input.arguments;
    EXPECT_EQ(result.output.find("step 1 "), std::string::npos)
        << input.arguments;
    EXPECT_NE(result.output.find("galvatron-run: error: "), std::string::npos)
        << input.arguments << "\n"
        << result.output;
    EXPECT_NE(result.output.find(input.message), std::string::npos)
        << input.arguments << "\n"
        << result.output;
  }
}

} // namespace
