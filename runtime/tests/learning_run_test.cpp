//===- learning_run_test.cpp - What galvatron-run does with rates ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "files.h"
#include "tool.h"

#include <cmath>
#include <regex>

using namespace grt::test;

namespace {

/// A field of every step of a log.
std::vector<Json> logged(const std::string &path, const char *key) {
  std::ifstream log(path);
  std::string line;
  std::vector<Json> values;
  while (std::getline(log, line))
    values.push_back(Json::parse(line)[key]);
  return values;
}

TEST(LearningRun, Schedules) {
  std::string log = folder() + "/rates.jsonl";
  std::string common = program(1) + " --data=" + alphabet() +
                       " --steps=20 --lr=0.2 --log=" + log;
  auto rates = [&](const std::string &options) {
    Result result = runTool(common + options);
    EXPECT_EQ(result.exitCode, 0) << result.output;
    std::vector<double> values;
    for (const Json &value : logged(log, "lr"))
      values.push_back(value.get<double>());
    values.resize(20);
    return values;
  };
  std::vector<double> wsd =
      rates(" --lr-schedule=wsd --warmup-steps=2 --decay-steps=5");
  EXPECT_DOUBLE_EQ(wsd[0], 0.1);
  EXPECT_DOUBLE_EQ(wsd[14], 0.2);
  EXPECT_NEAR(wsd[15], 0.16, 1e-12);
  EXPECT_NEAR(wsd[19], 0, 1e-12);
  std::vector<double> linear = rates(" --lr-schedule=linear --min-lr=0.1");
  EXPECT_NEAR(linear[9], 0.15, 1e-12);
  EXPECT_DOUBLE_EQ(linear[19], 0.1);
  EXPECT_DOUBLE_EQ(rates(" --lr-schedule=constant")[19], 0.2);
  EXPECT_NEAR(rates(" --lr-schedule=cosine --decay-steps=10")[9], 0, 1e-12);
  EXPECT_DOUBLE_EQ(rates("")[19], 0.2);
}

TEST(LearningRun, TwoBatchesAStepAreTheBatchesOfTwo) {
  std::string log = folder() + "/parts.jsonl";
  std::string sum = folder() + "/parts.json";
  std::string common = " --data=" + alphabet() + " --lr=0.3 --log=" + log +
                       " --summary=" + sum + " --ranks=";
  Result result = runTool(program(1) + common +
                          "1 --steps=6 --accumulate=3 --trace-steps=2");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  std::vector<Json> alone = logged(log, "loss");
  Json summary = Json::parse(readAll(sum));
  EXPECT_EQ(summary["accumulate"], 3);
  EXPECT_TRUE(summary["time-shares"]["measured"].is_null());
  result = runTool(program(2) + common + "2 --steps=6 --accumulate=3");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, " in 3 parts, ")) << result.output;
  std::vector<Json> both = logged(log, "loss");
  ASSERT_EQ(alone.size(), 6u);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(both[i].get<double>(), alone[i].get<double>(), 1e-5);
  // The first step's loss is the mean of three batches that nothing changed.
  result = runTool(program(1) + common +
                   "1 --steps=3 --accumulate=1 --lr=0 "
                   "--weight-decay=0");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  double mean = 0;
  for (const Json &loss : logged(log, "loss"))
    mean += loss.get<double>() / 3;
  EXPECT_NEAR(mean, alone[0].get<double>(), 1e-6);
}

TEST(LearningRun, ResumesWithWhatTheCheckpointHas) {
  std::string kept = checkpoints("learning"), out = folder();
  std::string options =
      " --lr=0.3 --lr-schedule=wsd --decay-steps=6 --warmup-steps=2 "
      "--accumulate=2 --parameter-groups='*:decay=0.1' --skip-norm=50";
  std::string data = program(2) + " --data=" + alphabet();
  std::string summary = " --summary=" + out + "/learning.json";
  ASSERT_EQ(runTool(data + options + " --steps=12" + summary).exitCode, 0);
  double whole = finalLoss(out + "/learning.json");
  std::string common = data + " --checkpoint=" + kept;
  Result result = runTool(common + options +
                          " --steps=12 --checkpoint-every=5 "
                          "--keep-checkpoints=9");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  for (const char *step : {"/step-00000012", "/step-00000010"})
    std::filesystem::remove_all(kept + step);
  result = runTool(common + " --resume --steps=12" + summary);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_FALSE(has(result, "the checkpoint's were")) << result.output;
  EXPECT_EQ(finalLoss(out + "/learning.json"), whole);
  // Differences from the first run are said.
  std::filesystem::remove_all(kept + "/step-00000012");
  result = runTool(common + " --resume --steps=12 --accumulate=1 "
                            "--parameter-groups=none");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, "parameter groups are none, the checkpoint's were "
                          "'*:decay=0.1'"))
      << result.output;
  EXPECT_TRUE(has(result, "batches of a step are 1, the checkpoint's were 2"))
      << result.output;
}

/// The alphabet stands in two lines of three: the more of it is learned, the
/// worse are the others.
std::string notQuiteTheAlphabet() {
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += i % 3 ? "abcdefgh" : "hgfedcba";
  return writeText("validation.txt", text);
}

TEST(LearningRun, EndsWhenValidationLearnsNothingAndKeepsTheBest) {
  std::string kept = checkpoints("stalled"), best = checkpoints("best");
  std::string summary = folder() + "/stalled.json",
              held = notQuiteTheAlphabet();
  std::string common =
      program(2) + " --data=" + alphabet() + " --validation-data=" + held +
      " --lr=0.3 --validate-every=2 --patience=3 --summary=" + summary;
  auto end = [&](const char *key) {
    return Json::parse(readAll(summary))[key];
  };
  for (const std::string &same : {best, best + "/", best + "/../best"}) {
    Result refused =
        runTool(common + " --steps=1 --save-best=" + best + " --save=" + same);
    EXPECT_EQ(refused.exitCode, 2);
    EXPECT_TRUE(has(refused, "--save-best='" + best +
                                 "': expected a folder of its own, found that "
                                 "of --save"))
        << refused.output;
  }
  Result result = runTool(common + " --steps=60 --save-best=" + best);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  const uint64_t bestStep = end("best-validation-step");
  const uint64_t lastStep = end("steps");
  const double loss = end("best-validation-loss");
  EXPECT_GT(bestStep, 2u) << "it learns at first";
  EXPECT_EQ(lastStep, bestStep + 6);
  EXPECT_LT(loss, end("validation-loss").get<double>());
  EXPECT_TRUE(has(result, "by --patience: none of the last 3 validations was "
                          "less than that of step " +
                              std::to_string(bestStep)))
      << result.output;

  // The model that was written is that of the best step.
  Result judged = runTool(program(1) + " --evaluate=" + held +
                          " --init=" + best + " --summary=" + summary);
  ASSERT_EQ(judged.exitCode, 0) << judged.output;
  EXPECT_NEAR(end("evaluation")["loss"].get<double>(), loss, 1e-6);

  // A run that is cut between the best step and the last one knows both.
  std::string part = common + " --checkpoint=" + kept;
  ASSERT_EQ(runTool(part + " --steps=" + std::to_string(bestStep + 2)).exitCode,
            0);
  std::filesystem::remove_all(best);
  result = runTool(part + " --resume --steps=60 --save-best=" + best);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_EQ(end("best-validation-step"), bestStep);
  EXPECT_EQ(end("best-validation-loss"), loss);
  EXPECT_EQ(bestStep + 2 + end("steps").get<uint64_t>(), lastStep);
  EXPECT_FALSE(std::filesystem::exists(best)) << "nothing was better";
  // It has ended; with more patience it goes on.
  result = runTool(part + " --resume --steps=60");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_EQ(end("steps"), 0);
  result = runTool(part + " --resume --steps=60 --patience=4");
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_EQ(end("steps"), 2);
  // Steps that nothing is validated behind leave what is known.
  result =
      runTool(program(1) + " --data=" + alphabet() +
              " --lr=0.3 --resume --steps=" + std::to_string(lastStep + 3) +
              " --checkpoint=" + kept);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_FALSE(has(result, "forgotten")) << result.output;
  // The best loss on other data is not known.
  result = runTool(program(2) + " --data=" + alphabet() +
                   " --validation-data=" + alphabet() +
                   " --lr=0.3 --validate-every=2 --resume --steps=" +
                   std::to_string(lastStep + 5) + " --checkpoint=" + kept +
                   " --summary=" + summary);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, "the checkpoint was validated on other data: its "
                          "least validation loss is forgotten"))
      << result.output;
  EXPECT_LT(end("best-validation-loss").get<double>(), loss);
}

TEST(LearningRun, StepsWithALargeNormAreLeftOutUpToALimit) {
  std::string common = program(1) + " --data=" + alphabet() + " --lr=0.1";
  std::string summary = folder() + "/norms.json";
  Result result =
      runTool(common + " --steps=20 --skip-norm=1e-9 --summary=" + summary);
  EXPECT_EQ(result.exitCode, 3) << result.output;
  EXPECT_TRUE(has(result, "step 10: the updates of 10 steps in a row were left "
                          "out, the last for a gradient norm of "))
      << result.output;
  EXPECT_EQ(Json::parse(readAll(summary))["skipped-steps"], 10);
  result = runTool(common + " --steps=4 --skip-norm=1e-9 --skip-limit=5");
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_TRUE(has(result, " update left out"));
}

TEST(LearningRun, LinesWithTheTime) {
  std::string log = folder() + "/times.jsonl";
  Result result = runTool(program(1) + " --data=" + alphabet() +
                          " --steps=2 --timestamps --log=" + log);
  ASSERT_EQ(result.exitCode, 0) << result.output;
  std::regex stamp("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ");
  EXPECT_TRUE(std::regex_search(
      result.output,
      std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ step 2 loss ")))
      << result.output;
  for (const Json &time : logged(log, "time"))
    EXPECT_TRUE(std::regex_match(time.get<std::string>(), stamp));
}

TEST(LearningRun, Refusals) {
  std::string common =
      program(1) + " --data=" + alphabet() + " --steps=10 --lr=0.1";
  const std::pair<const char *, const char *> refusals[] = {
      {" --lr-schedule=step", "expected constant, linear, cosine or wsd, found "
                              "'step'"},
      {" --lr-schedule=constant --min-lr=0.01",
       "--min-lr: a constant rate has no decay"},
      {" --lr-schedule=constant --decay-steps=2",
       "--decay-steps: a constant rate has no decay"},
      {" --decay-steps=2", "--decay-steps: the rate does not fall without "
                           "--lr-schedule or --min-lr"},
      {" --lr-schedule=wsd --decay-steps=9 --warmup-steps=2",
       "--decay-steps: expected at most the 8 steps after the warm-up, found "
       "9"},
      {" --accumulate=0", "expected an integer of at least 1"},
      {" --accumulate=2 --trace=t.json",
       "--trace shows a step of one batch: expected no --accumulate above 1"},
      {" --parameter-groups=wte", "expected PATTERN:SETTINGS"},
      {" --parameter-groups='transformer.h.*:lr=2'",
       "parameter group 'transformer.h.*': the program has no such parameter"},
      {" --parameter-groups='*:frozen'",
       "the parameter groups freeze all parameters"},
      {" --skip-limit=0", "expected an integer of at least 1"}};
  for (auto [options, message] : refusals) {
    Result result = runTool(common + options);
    EXPECT_EQ(result.exitCode, 2) << options;
    EXPECT_TRUE(has(result, message)) << options << "\n" << result.output;
  }
  // Samples of a step are read together.
  Result result = runTool(common + " --accumulate=1000000000000");
  EXPECT_EQ(result.exitCode, 6) << result.output;
  EXPECT_TRUE(has(result, "--accumulate=1000000000000: the samples of two "
                          "steps take"))
      << result.output;
}

} // namespace
