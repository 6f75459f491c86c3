//===- trace_test.cpp - Recorded and predicted steps ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/trace_report.h"
#include "program/reader.h"
#include "recording.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>
#include <string>

using namespace grt;
using namespace grt::test;
using Json = nlohmann::json;

namespace {

//===----------------------------------------------------------------------===//
// Whole sessions
//===----------------------------------------------------------------------===//

/// Two stages of two ranks, reshards, a tied head, recomputation.
ModelPlan twoStages() {
  ModelPlan plan;
  plan.tied = true;
  plan.microBatches = 4;
  plan.oneForwardOneBackward = true;
  plan.layers[0].levels = {{"dp", 2}};
  plan.layers[1].levels = {{"tp", 2}};
  plan.layers[2].levels = {{"sdp", 2}};
  plan.layers[2].ckpt = true;
  plan.stages = {{{0}, {0, 1}}, {{1, 2}, {2, 3}}};
  return plan;
}

/// Durations in microseconds for it: 10 forward and 20 backward a layer, and
/// some communication.
const char *const times = R"({"predicted-us": {
  "roles": [
    {"slowdown": 1.5, "layers": [
      {"count": 1, "forward": 10, "backward": 20, "sync": 30, "norm": 1, "update": 7}]},
    {"slowdown": 1.5, "layers": [
      {"count": 2, "forward": 10, "backward": 20, "tp-forward": 1}]}],
  "cuts": [{"activation": 2, "gradient": 3}],
  "ties": [{"reduce": 4, "broadcast": 5}]}})";

struct TracedRun {
  std::unique_ptr<TestProgram> code;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;
};

TracedRun makeRun(const ModelPlan &plan, bool trace,
                  const grt_backend *backend = referenceBackend()) {
  TracedRun run;
  run.code = std::make_unique<TestProgram>(plan);
  Status status = Program::loadMemory(run.code->file(), "test", run.program);
  EXPECT_TRUE(status) << status.message();
  SessionOptions options;
  options.backend = backend;
  options.poison = true;
  options.trace = trace;
  status = Session::create(run.program, options, run.session);
  EXPECT_TRUE(status) << status.message();
  return run;
}

std::vector<double> train(TracedRun &run, const ModelPlan &plan, int steps,
                          int recordFrom) {
  std::vector<double> losses;
  std::vector<int32_t> tokens, labels;
  for (int64_t i = 0; i < plan.batch * plan.seqLen; ++i) {
    tokens.push_back(int32_t(i % plan.vocab));
    labels.push_back(int32_t((i + 1) % plan.vocab));
  }
  EXPECT_TRUE(run.session->setBatch(tokens, labels));
  for (int step = 1; step <= steps; ++step) {
    if (recordFrom > 0) {
      EXPECT_TRUE(run.session->record(step >= recordFrom));
    }
    StepResult result;
    Status status = run.session->step(result);
    EXPECT_TRUE(status) << status.message();
    losses.push_back(result.loss);
  }
  return losses;
}

Json traceOf(TracedRun &run) {
  std::string path = testing::TempDir() + "grt-trace-test.json";
  Status status = run.session->writeTrace(path);
  EXPECT_TRUE(status) << status.message();
  std::ifstream in(path);
  return Json::parse(in);
}

struct Slice {
  double begin, end;
  std::string name, category;
};

/// Slices by process and thread, in order of their begin, outer ones first.
std::map<std::pair<int, int>, std::vector<Slice>> rowsOf(const Json &trace) {
  std::map<std::pair<int, int>, std::vector<Slice>> rows;
  for (const Json &event : trace.at("traceEvents"))
    if (event.at("ph") == "X")
      rows[{event.at("pid"), event.at("tid")}].push_back(
          {event.at("ts"),
           event.at("ts").get<double>() + event.at("dur").get<double>(),
           event.at("name"), event.at("cat")});
  for (auto &[row, slices] : rows)
    std::stable_sort(
        slices.begin(), slices.end(), [](const Slice &a, const Slice &b) {
          return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
        });
  return rows;
}

TEST(Trace, EveryRankHasRowsThatNest) {
  ModelPlan plan = twoStages();
  plan.planJson = times;
  TracedRun run = makeRun(plan, true);
  train(run, plan, 4, 2);
  Json trace = traceOf(run);
  EXPECT_EQ(trace.at("otherData").at("steps"), 3);
  EXPECT_EQ(trace.at("otherData").at("lost-events"), 0);
  std::set<int> processes;
  std::map<int, int> counters;
  for (const Json &event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "process_name")
      processes.insert(event.at("pid").get<int>());
    if (event.at("ph") == "C") {
      ++counters[event.at("pid").get<int>()];
      EXPECT_GT(event.at("args").at("live").get<double>(), 0);
    }
  }
  EXPECT_EQ(processes, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(counters.size(), 4u);
  for (const auto &[row, slices] : rowsOf(trace)) {
    std::vector<double> open;
    for (const Slice &slice : slices) {
      // Printed with three digits.
      while (!open.empty() && open.back() <= slice.begin + 2e-3)
        open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(slice.end, open.back() + 2e-3)
            << "rank " << row.first << ", row " << row.second << ": "
            << slice.name;
        // Only the row of tasks has slices inside slices.
        EXPECT_EQ(row.second, 0) << slice.name;
      }
      open.push_back(slice.end);
    }
  }
}

TEST(Trace, MeasuredAndPredictedTasksAreTheTable) {
  ModelPlan plan = twoStages();
  plan.planJson = times;
  TracedRun run = makeRun(plan, true);
  train(run, plan, 3, 2);
  auto rows = rowsOf(traceOf(run));
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<std::string> expected;
    std::set<std::string> known;
    const grt_schedule &schedule =
        run.program->file().schedules()[size_t(rank) / 2];
    for (int step = 0; step < 2; ++step)
      for (grt_part part : {GRT_PART_STEADY, GRT_PART_STEP_END})
        for (uint64_t i = 0; i < schedule.parts[part].count; ++i)
          expected.push_back(
              taskText(schedule.parts[part].tasks[i], schedule.transfers));
    std::vector<std::string> measured, predicted;
    for (const Slice &slice : rows[{rank, 0}])
      if (slice.category == "task")
        measured.push_back(slice.name);
    EXPECT_EQ(measured, expected) << "rank " << rank;
    for (const Slice &slice : rows[{rank, 3}])
      predicted.push_back(slice.name);
    // A task that takes no time in the cost model has no slice.
    for (const std::string &name : predicted)
      known.insert(name);
    std::erase_if(expected,
                  [&](const std::string &name) { return !known.count(name); });
    EXPECT_EQ(predicted, expected) << "rank " << rank;
  }
}

TEST(Trace, SharesAddUpToTheStep) {
  ModelPlan plan = twoStages();
  plan.planJson = times;
  TracedRun run = makeRun(plan, true);
  train(run, plan, 3, 1);
  TimeShares measured, predicted;
  Status status = run.session->timeShares(measured, predicted);
  ASSERT_TRUE(status) << status.message();
  for (const TimeShares &shares : {measured, predicted}) {
    EXPECT_NEAR(shares.compute + shares.exposedCommunication + shares.bubble +
                    shares.idle,
                1, 1e-9);
    EXPECT_GT(shares.compute, 0);
    EXPECT_GT(shares.exposedCommunication, 0);
    EXPECT_GT(shares.bubble, 0);
    EXPECT_GT(shares.milliseconds, 0);
  }
  EXPECT_EQ(measured.steps, 3u);
  // Kernels and communication are inside tasks, tasks inside steps: what is in
  // them is what the shares leave to idling.
  auto rows = rowsOf(traceOf(run));
  double tasks = 0, inside = 0;
  for (int rank = 0; rank < 4; ++rank) {
    for (const Slice &slice : rows[{rank, 0}]) {
      double length = slice.end - slice.begin;
      tasks += slice.category == "task" ? length : 0;
      inside += slice.category == "kernel" ? length : 0;
    }
    for (const Slice &slice : rows[{rank, 1}])
      inside += slice.end - slice.begin;
  }
  double all = measured.milliseconds * 1e3 * 3 * 4;
  EXPECT_LE(inside, tasks);
  EXPECT_LE(tasks, all * (1 + 1e-6));
  EXPECT_NEAR(inside / all, 1 - measured.idle, 1e-3);
}

TEST(Trace, StreamsOfADeviceHaveRowsOfTheirOwn) {
  ModelPlan plan = twoStages();
  plan.planJson = times;
  plan.streams = true;
  const grt_backend *model = recording::backendAround(referenceBackend());
  TracedRun run = makeRun(plan, true, model), plain = makeRun(plan, true);
  // Steps that are recorded are no graphs, the others are.
  EXPECT_EQ(train(run, plan, 4, 3), train(plain, plan, 4, 3));
  ASSERT_TRUE(run.session->finish());
  auto rows = rowsOf(traceOf(run));
  for (int rank = 0; rank < 4; ++rank) {
    // Every kernel and every transfer once on the host and once on a stream,
    // the gather of losses on the host alone.
    std::multiset<std::string> onHost, onDevice;
    for (int row : {0, 1})
      for (const Slice &slice : rows[{rank, row}])
        if ((slice.category == "kernel" || row == 1) &&
            slice.name.find("gather of losses") == std::string::npos)
          onHost.insert(slice.name);
    double begin = rows[{rank, 0}].front().begin;
    double end = 0;
    for (const Slice &slice : rows[{rank, 0}])
      end = std::max(end, slice.end);
    for (int stream = 0; stream < GRT_STREAM_COUNT; ++stream) {
      double last = 0;
      for (const Slice &slice : rows[{rank, 6 + stream}]) {
        onDevice.insert(slice.name);
        // One after the other, or inside (sums in an exchange).
        EXPECT_TRUE(slice.begin >= last - 1e-3 || slice.end <= last + 1e-3);
        EXPECT_GE(slice.begin, begin - 1e-3);
        EXPECT_LE(slice.end, end + 1e-3);
        last = std::max(last, slice.end);
      }
    }
    EXPECT_EQ(onHost, onDevice);
    EXPECT_FALSE((rows[{rank, 6 + GRT_STREAM_TRANSFER}].empty()));
    EXPECT_FALSE((rows[{rank, 5}].empty())) << "predicted rows are gone";
  }
  TimeShares measured, predicted;
  ASSERT_TRUE(run.session->timeShares(measured, predicted));
  EXPECT_GT(measured.compute, 0);
  EXPECT_NEAR(measured.compute + measured.exposedCommunication +
                  measured.bubble + measured.idle,
              1, 1e-9);
  // Calls take what their kernels take on the device, less than the steps.
  std::vector<LayerSeconds> layers;
  ASSERT_TRUE(run.session->layerSeconds(layers));
  ASSERT_EQ(layers.size(), 3u);
  for (const LayerSeconds &layer : layers) {
    EXPECT_GT(layer.forward, 0) << layer.name;
    EXPECT_GT(layer.backward, 0) << layer.name;
    for (double seconds : {layer.forward, layer.backward, layer.update})
      EXPECT_LT(seconds * 1e3, measured.milliseconds * measured.steps)
          << layer.name;
  }
  // A picture of the last step: a rank of each stage, with all that it does.
  StepPicture picture;
  ASSERT_TRUE(run.session->stepPicture(8, picture));
  EXPECT_EQ(picture.step, 4u);
  EXPECT_DOUBLE_EQ(picture.predictedMs, predicted.milliseconds);
  ASSERT_EQ(picture.ranks.size(), 2u);
  for (int stage : {0, 1}) {
    const StepPicture::Rank &rank = picture.ranks[size_t(stage)];
    EXPECT_EQ(rank.stage, stage);
    EXPECT_EQ(rank.rank, 2 * stage);
    EXPECT_FALSE(rank.memory.empty());
    for (const auto &[time, bytes] : rank.memory)
      EXPECT_LE(bytes, rank.plannedBytes);
    for (bool isPredicted : {false, true}) {
      double length = isPredicted ? picture.predictedMs : picture.measuredMs;
      std::set<StepPicture::Kind> kinds;
      for (const StepPicture::Span &span :
           isPredicted ? rank.predicted : rank.measured) {
        EXPECT_LT(span.begin, span.end);
        EXPECT_GE(span.begin, -1e-6);
        EXPECT_LE(span.end, length * (1 + 1e-6));
        kinds.insert(span.kind);
      }
      using Kind = StepPicture::Kind;
      std::set<Kind> expected = {Kind::Forward, Kind::Backward, Kind::Update,
                                 Kind::Communication};
      // The program's times have none for updates of the second stage.
      if (isPredicted && stage == 1)
        expected.erase(Kind::Update);
      kinds.erase(Kind::Wait);
      EXPECT_EQ(kinds, expected) << stage;
    }
  }
  ASSERT_TRUE(run.session->stepPicture(1, picture));
  EXPECT_EQ(picture.ranks.size(), 1u);
}

/// The trace's own slices of functions say what a call takes.
TEST(Trace, LayersTakeWhatTheirFunctionsTake) {
  ModelPlan plan = twoStages();
  TracedRun run = makeRun(plan, true);
  train(run, plan, 3, 3); // one step is recorded, so medians are its times
  struct Sum {
    double microseconds = 0;
    int calls = 0;
  };
  std::map<std::string, Sum> functions;
  for (const auto &[row, slices] : rowsOf(traceOf(run)))
    for (const Slice &slice : slices)
      if (slice.category == "function" && row.second == 0) {
        functions[slice.name].microseconds += slice.end - slice.begin;
        ++functions[slice.name].calls;
      }
  std::vector<LayerSeconds> layers;
  ASSERT_TRUE(run.session->layerSeconds(layers));
  ASSERT_EQ(layers.size(), 3u);
  auto perCall = [&](const std::string &name, const std::string &alsoOf = "") {
    const Sum &sum = functions[name];
    double more = alsoOf.empty() ? 0 : functions[alsoOf].microseconds;
    return sum.calls ? (sum.microseconds + more) / sum.calls / 1e6 : 0;
  };
  for (const LayerSeconds &layer : layers) {
    constexpr double rounding = 1e-8; // of the trace's microseconds
    EXPECT_GT(layer.forward, 0) << layer.name;
    EXPECT_NEAR(layer.forward, perCall("forward " + layer.name), rounding);
    EXPECT_NEAR(layer.recompute, perCall("recompute " + layer.name), rounding);
    EXPECT_NEAR(layer.backward, perCall("backward " + layer.name), rounding);
    EXPECT_GT(layer.update, 0) << layer.name;
    EXPECT_NEAR(layer.update,
                perCall("update " + layer.name, "norm " + layer.name),
                rounding);
  }
  EXPECT_EQ(layers[0].recompute, 0);
  EXPECT_GT(layers[2].recompute, 0);
  run.session->forgetRecorded();
  ASSERT_TRUE(run.session->layerSeconds(layers));
  EXPECT_EQ(layers[0].forward, 0);
  TracedRun without = makeRun(plan, false);
  EXPECT_EQ(without.session->layerSeconds(layers).exitCode(), 2);
}

TEST(Trace, RecordingChangesNothing) {
  ModelPlan plan = twoStages();
  TracedRun with = makeRun(plan, true), without = makeRun(plan, false);
  std::vector<double> losses = train(with, plan, 4, 2);
  EXPECT_EQ(losses, train(without, plan, 4, 0));
  std::vector<RankMemory> a = with.session->memory(),
                          b = without.session->memory();
  for (size_t rank = 0; rank < a.size(); ++rank) {
    EXPECT_EQ(a[rank].measuredPeakBytes, b[rank].measuredPeakBytes);
    EXPECT_LE(a[rank].measuredPeakBytes, a[rank].plannedPeakBytes);
  }
  EXPECT_EQ(without.session->record(true).exitCode(), 2);
  EXPECT_EQ(without.session->writeTrace("unused.json").exitCode(), 2);
  // No times in the program: nothing predicted, and the rest is there.
  Json trace = traceOf(with);
  EXPECT_FALSE(trace.at("otherData").contains("predicted-step-ms"));
  TimeShares measured, predicted;
  EXPECT_TRUE(with.session->timeShares(measured, predicted));
  EXPECT_EQ(measured.steps, 3u);
  EXPECT_EQ(predicted.steps, 0u);
}

TEST(Trace, AFileThatCannotBeWrittenIsAnError) {
  ModelPlan plan;
  TracedRun run = makeRun(plan, true);
  train(run, plan, 1, 1);
  Status status = run.session->writeTrace("/nowhere/trace.json");
  EXPECT_EQ(status.exitCode(), ExitStorage);
  EXPECT_NE(status.message().find("/nowhere"), std::string::npos);
}

TEST(Trace, TimesThatDoNotFitTheProgramAreRefused) {
  ModelPlan plan = twoStages();
  auto load = [&](const std::string &from, const std::string &to) {
    std::string text = times;
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    plan.planJson = text.replace(at, from.size(), to);
    TestProgram code(plan);
    std::shared_ptr<const Program> program;
    return Program::loadMemory(code.file(), "test", program).message();
  };
  EXPECT_NE(load("\"count\": 2", "\"count\": 1").find("expected 2 entries"),
            std::string::npos);
  EXPECT_NE(load("\"count\": 2", "\"count\": 3").find("from 1 to 2"),
            std::string::npos);
  EXPECT_NE(load("\"sync\": 30", "\"sync\": -1").find("microseconds"),
            std::string::npos);
  EXPECT_NE(load("\"slowdown\": 1.5", "\"slowdown\": 0").find("slowdown"),
            std::string::npos);
  EXPECT_NE(load("{\"activation\": 2, \"gradient\": 3}", "").find("cuts"),
            std::string::npos);
}

//===----------------------------------------------------------------------===//
// Waits, from recordings made by hand
//===----------------------------------------------------------------------===//

TEST(Trace, WaitingEndsWhenTheLastMemberComes) {
  ModelPlan plan;
  plan.batch = 8;
  plan.layers[0].levels = plan.layers[1].levels =
      plan.layers[2].levels = {{"dp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(code.file(), "test", program));
  Group both({0, 1});
  ExchangeTable sends, receives;
  sends.sends = {{1, {}}};
  receives.receives = {{0, {}}};
  LiveSet live;
  Recorder recorders[2] = {{0, *referenceBackend()}, {1, *referenceBackend()}};
  // Microseconds of: step; kernel; all-reduce; message. Rank 1 is 20 late for
  // the all-reduce, rank 0 is 10 late for the message.
  uint64_t begins[2][4] = {{0, 0, 30, 80}, {0, 0, 50, 70}};
  uint64_t ends[2][4] = {{100, 30, 60, 90}, {100, 50, 60, 90}};
  for (int rank = 0; rank < 2; ++rank) {
    Recorder &recorder = recorders[rank];
    recorder.attach(live, 0);
    recorder.setRecording(true);
    recorder.beginStep(1);
    TraceKind kinds[] = {TraceKind::Step, TraceKind::Kernel,
                         TraceKind::Communication, TraceKind::Communication};
    for (int e = 1; e < 4; ++e) {
      TraceEvent *event = recorder.open(kinds[e]);
      event->name = "event";
      if (e == 2)
        event->group = &both;
      if (e == 3) {
        event->tables[0] = rank ? &receives : &sends;
        event->tableCount = 1;
      }
    }
    recorder.endStep();
    for (int e = 0; e < 4; ++e) {
      TraceEvent &event =
          const_cast<TraceEvent &>(recorder.events()[size_t(e)]);
      event.begin = 1000 * begins[rank][e] + 7;
      event.end = 1000 * ends[rank][e] + 7;
    }
  }
  TraceReport report(*program, {{&recorders[0], 0, 0}, {&recorders[1], 0, 0}});
  ASSERT_EQ(report.stepCount(), 1u);
  TimeShares shares = report.measured();
  EXPECT_NEAR(shares.milliseconds, 0.1, 1e-12);
  EXPECT_NEAR(shares.compute, (30 + 50) / 200.0, 1e-12);
  EXPECT_NEAR(shares.bubble, (20 + 10) / 200.0, 1e-12);
  EXPECT_NEAR(shares.exposedCommunication, (10 + 10 + 10 + 10) / 200.0, 1e-12);
  EXPECT_NEAR(shares.idle, 50 / 200.0, 1e-12);
}

//===----------------------------------------------------------------------===//
// The layout of predicted times
//===----------------------------------------------------------------------===//

grt_task task(grt_task_kind kind, uint32_t microBatch = 0) {
  grt_task made{};
  made.kind = uint8_t(kind);
  made.micro_batch = microBatch;
  return made;
}

TEST(Prediction, OneStageIsTheSumOfItsLayers) {
  PredictedTimes times;
  times.roles.resize(1);
  times.roles[0].slowdown = 1.25;
  LayerTimes layer;
  layer.gather = 4;
  layer.forward = 10;
  layer.tpForward = 1;
  layer.recompute = 10;
  layer.backward = 20;
  layer.tpBackward = 3;
  layer.scatter = 4;
  layer.sync = 40;
  layer.reshardForward = 2;
  layer.norm = 5;
  layer.update = 6;
  times.roles[0].layers = {layer, LayerTimes()};
  times.roles[0].chunks = {{0, 0, 2}};
  std::vector<grt_task> steady = {
      task(GRT_TASK_FORWARD, 0), task(GRT_TASK_BACKWARD, 0),
      task(GRT_TASK_FORWARD, 1), task(GRT_TASK_BACKWARD, 1)};
  std::vector<grt_task> end = {task(GRT_TASK_SYNC_GRADIENTS),
                               task(GRT_TASK_NORM), task(GRT_TASK_UPDATE)};
  grt_schedule schedule{};
  schedule.parts[GRT_PART_STEADY] = {steady.data(), steady.size()};
  schedule.parts[GRT_PART_STEP_END] = {end.data(), end.size()};
  PredictedStep step = layOut(times, {&schedule, 1});
  // Forward 4 + 10 + 1 + 2; backward overlaps 30 with 8, then with 48:
  // 30 + 2 + 3 and 48 + 7.5 + 3. Then norm and update.
  EXPECT_DOUBLE_EQ(step.length, 2 * 17 + 35 + 58.5 + 11);
  double computing = 0;
  for (const PredictedSpan &span : step.roles[0])
    if (span.row == PredictedRow::Compute)
      computing += span.end - span.begin;
  // Slowed down beside 8 once, all of it the second time.
  EXPECT_DOUBLE_EQ(computing, 2 * 10 + (30 + 2) + 1.25 * 30 + 11);
}

/// A step ends with the role that takes longest, whichever that is.
TEST(Prediction, AStepEndsWithItsLastRole) {
  std::vector<grt_task> ends[2];
  grt_schedule both[2] = {};
  for (uint16_t r : {0, 1}) {
    ends[r] = {task(GRT_TASK_SYNC_GRADIENTS), task(GRT_TASK_NORM),
               task(GRT_TASK_UPDATE)};
    for (grt_task &task : ends[r])
      task.chunk = r;
    both[r].parts[GRT_PART_STEP_END] = {ends[r].data(), ends[r].size()};
  }
  for (size_t longest : {0, 1}) {
    PredictedTimes times;
    times.roles.resize(2);
    for (size_t r = 0; r < 2; ++r) {
      LayerTimes layer;
      layer.norm = 5;
      layer.update = r == longest ? 70 : 6;
      times.roles[r].layers = {layer};
      times.roles[r].chunks = {{int(r), 0, 1}};
    }
    times.cuts.resize(1);
    PredictedStep step = layOut(times, both);
    EXPECT_DOUBLE_EQ(step.length, 75);
  }
}

/// Sums of tied gradients and the values that go back take times of their own,
/// both ends wait for the later one, and a borrower without a gradient takes
/// part in no sum.
TEST(Prediction, TiedGradientsAndValuesTakeTheirOwnTimes) {
  for (bool forwardOnly : {false, true}) {
    PredictedTimes times;
    times.roles.resize(2);
    times.cuts.resize(1);
    times.ties = {{0, 1, /*reduce=*/30, /*broadcast=*/7, forwardOnly}};
    std::vector<grt_task> ends[2];
    grt_schedule both[2] = {};
    for (uint16_t r : {0, 1}) {
      LayerTimes layer;
      layer.norm = r == 0 ? 1 : 5;
      layer.update = r == 0 ? 100 : 2;
      times.roles[r].layers = {layer};
      times.roles[r].chunks = {{int(r), 0, 1}};
      ends[r] = {task(GRT_TASK_TIE_REDUCE), task(GRT_TASK_NORM),
                 task(GRT_TASK_UPDATE), task(GRT_TASK_TIE_BROADCAST)};
      for (grt_task &task : ends[r])
        task.chunk = r;
      both[r].parts[GRT_PART_STEP_END] = {ends[r].data(), ends[r].size()};
    }
    PredictedStep step = layOut(times, both);
    const double sum = forwardOnly ? 0 : 30;
    EXPECT_DOUBLE_EQ(step.length, sum + 5 + 100 + 7);
    ASSERT_EQ(step.roles.size(), 2u);
    for (const std::vector<PredictedSpan> &spans : step.roles) {
      std::map<std::string, std::pair<double, double>> ties;
      for (const PredictedSpan &span : spans)
        if (span.row == PredictedRow::Communication)
          ties[span.what] = {span.begin, span.end};
      std::map<std::string, std::pair<double, double>> expected = {
          {"tied values", {sum + 105, sum + 112}}};
      if (!forwardOnly)
        expected["tied gradients"] = {0, 30};
      EXPECT_EQ(ties, expected);
    }
  }
}

TEST(Prediction, ARoundTripOverTwoStages) {
  ModelPlan plan = twoStages();
  plan.planJson = times;
  plan.microBatches = 1;
  TestProgram code(plan);
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(code.file(), "test", program);
  ASSERT_TRUE(status) << status.message();
  PredictedStep step =
      layOut(*program->manifest().predicted, program->file().schedules());
  // There 10 + 2 + 2 * (10 + 1), back 2 * 20 + 3 and 20 beside 30, which is
  // 30 + 10; the tie 4 + 5. The norm meets, the update does not, and the value
  // of the tie waits for it.
  EXPECT_DOUBLE_EQ(step.length, 34 + 43 + 40 + 9 + 1 + 7);
}

} // namespace
