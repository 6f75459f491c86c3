//===- TwoBuffers.cpp - PipeDream-2BW from a block's costs ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Solve.h"

#include "galvatron/Baselines/DelayedSearch.h"

using namespace llvm;

namespace galvatron::solve {

namespace {

constexpr int64_t mostBlocks = 100'000, mostBytes = int64_t(1) << 50,
                  mostDelayedDevices = 4096, mostBatch = 1'000'000;

int64_t within(ObjectReader &reader, StringRef key, int64_t least, int64_t most,
               std::optional<int64_t> fallback = {}) {
  int64_t value =
      fallback ? reader.integerOr(key, *fallback) : reader.integer(key);
  if (!reader.failed() && (value < least || value > most))
    reader.fail("'" + reader.pathOf(key) + "': expected " + Twine(least) +
                " to " + Twine(most) + ", found " + Twine(value));
  return value;
}

std::optional<int64_t> only(ObjectReader &reader, StringRef key, int64_t most) {
  if (!reader.has(key))
    return std::nullopt;
  return within(reader, key, 1, most);
}

double positiveRate(ObjectReader &reader, StringRef key) {
  double value = reader.number(key);
  if (!reader.failed() && !(value >= 1 && value <= 1e18))
    reader.fail("'" + reader.pathOf(key) +
                "': expected bytes per second from 1 to 1e18, found " +
                formatv("{0}", value).str());
  return value;
}

/// Milliseconds per sample, or pairs of a batch and its milliseconds.
BatchTimes times(ObjectReader &reader, StringRef key) {
  std::string at = reader.pathOf(key);
  const json::Value *value = reader.value(key);
  std::vector<std::pair<double, double>> points;
  auto add = [&](const json::Value *batch, const json::Value &ms) {
    std::optional<double> samples =
        batch ? batch->getAsNumber() : std::optional<double>(1);
    std::optional<double> time = ms.getAsNumber();
    if (!samples || !(*samples > 0) || *samples > 1e6 || !time ||
        !(*time >= 0) || *time > 1e9 ||
        (!points.empty() && *samples <= points.back().first)) {
      reader.fail("'" + at +
                  "': expected milliseconds, or ascending pairs of "
                  "a batch and its milliseconds, found " +
                  formatv("{0}", *value).str());
      return false;
    }
    points.push_back({*samples, *time});
    return true;
  };
  if (!value)
    return {};
  if (const json::Array *array = value->getAsArray()) {
    for (const json::Value &entry : *array) {
      const json::Array *pair = entry.getAsArray();
      static const json::Value none = nullptr;
      if (!add(pair && pair->size() == 2 ? &(*pair)[0] : &none,
               pair && pair->size() == 2 ? (*pair)[1] : none))
        break;
    }
    if (array->empty())
      reader.fail("'" + at + "': expected at least one pair, found none");
  } else {
    add(nullptr, *value);
  }
  return BatchTimes(std::move(points));
}

DelayedBlocks readBlocks(ObjectReader &reader, bool fullLedger) {
  DelayedBlocks blocks;
  const json::Value *value = reader.value("blocks");
  if (!value)
    return blocks;
  ObjectReader block(*value, "blocks");
  blocks.count = within(block, "count", 1, mostBlocks);
  blocks.forward = times(block, "forward-ms");
  blocks.backward = times(block, "backward-ms");
  blocks.parameterBytes = within(block, "parameter-bytes", 0, mostBytes);
  blocks.activationBytes = within(block, "activation-bytes", 0, mostBytes);
  blocks.boundaryBytes = within(block, "boundary-bytes", 0, mostBytes);
  blocks.gradientBytes =
      within(block, "gradient-bytes", 0, mostBytes, blocks.parameterBytes);
  blocks.optimizerBytes =
      within(block, "optimizer-bytes", 0, mostBytes,
             fullLedger ? std::optional<int64_t>() : std::optional<int64_t>(0));
  if (Error error = block.finish())
    reader.fail(toString(std::move(error)));
  return blocks;
}

DelayedLinks readLinks(ObjectReader &reader, int64_t devices) {
  DelayedLinks links;
  if (devices == 1 && !reader.has("links"))
    return links;
  const json::Value *value = reader.value("links");
  if (!value)
    return links;
  ObjectReader link(*value, "links");
  links.devicesPerNode =
      within(link, "devices-per-node", 1, mostDelayedDevices, devices);
  links.intraRate = positiveRate(link, "intra-bytes-per-second");
  if (links.devicesPerNode < devices || link.has("inter-bytes-per-second"))
    links.interRate = positiveRate(link, "inter-bytes-per-second");
  links.placed = link.booleanOr("placed", false);
  if (Error error = link.finish())
    reader.fail(toString(std::move(error)));
  return links;
}

json::Object describe(const DelayedProblem &problem, const DelayedPlan &plan) {
  return json::Object{
      {"width", plan.shape.width},
      {"depth", plan.shape.depth},
      {"micro-batch", plan.shape.microBatch},
      {"micro-batches", problem.setting.microBatches(plan.shape)},
      {"execution", delayedExecutionName(plan.shape.execution)},
      {"recompute", plan.shape.execution == DelayedExecution::Recomputed},
      {"samples-per-second", plan.samplesPerSecond},
      {"batch-ms", 1000 * static_cast<double>(problem.setting.batch) /
                       plan.samplesPerSecond},
      {"peak-bytes", plan.memory.total()},
      {"ledger", json::Object{{"parameters", plan.memory.weights},
                              {"gradients", plan.memory.gradients},
                              {"optimizer", plan.memory.optimizer},
                              {"activations", plan.memory.activations},
                              {"boundaries", plan.memory.boundaries}}}};
}

} // namespace

Outcome solveTwoBuffers(ObjectReader &reader) {
  DelayedProblem problem;
  DelayedSetting &setting = problem.setting;
  problem.devices = within(reader, "devices", 1, mostDelayedDevices);
  problem.memory = within(reader, "memory-bytes", 1, mostBytes);
  setting.batch = within(reader, "global-batch", 1, mostBatch);
  std::string ledger = reader.stringOr("ledger", "published");
  if (!reader.failed() && ledger != "published" && ledger != "full")
    reader.fail("'ledger': expected 'published' or 'full', found '" + ledger +
                "'");
  setting.fullLedger = ledger == "full";
  std::string schedule = reader.stringOr("schedule", "2bw");
  if (std::optional<DelayedSchedule> parsed = parseDelayedSchedule(schedule))
    setting.schedule = *parsed;
  else
    reader.fail("'schedule': expected '2bw', '1f1b', 'gpipe' or 'pipedream', "
                "found '" +
                schedule + "'");
  setting.recomputeFactor =
      reader.numberOr("recompute-factor", setting.recomputeFactor);
  if (!reader.failed() &&
      !(setting.recomputeFactor >= 1 && setting.recomputeFactor <= 10))
    reader.fail("'recompute-factor': expected 1 to 10, found " +
                formatv("{0}", setting.recomputeFactor).str());
  problem.width = only(reader, "width", mostDelayedDevices);
  problem.depth = only(reader, "depth", mostDelayedDevices);
  problem.microBatch = only(reader, "micro-batch", mostBatch);
  if (reader.has("recompute"))
    problem.recompute = reader.booleanOr("recompute", false);
  setting.blocks = readBlocks(reader, setting.fullLedger);
  setting.links = readLinks(reader, problem.devices);
  if (Error error = reader.finish())
    return invalid(std::move(error));

  Stopwatch watch;
  Expected<DelayedResult> result = searchDelayed(problem);
  double elapsed = watch.milliseconds();
  if (!result)
    return invalid(result.takeError());
  if (!result->plan) {
    Outcome outcome = infeasible(
        result->neededBytes == 0
            ? Twine("no width, depth and micro-batch cut the batch into whole "
                    "micro-batches, at least as many as stages")
            : "nothing fits: a device needs at least " +
                  Twine(result->neededBytes) + " bytes, available are " +
                  Twine(problem.memory));
    json::Object *details = outcome.answer.getObject("infeasible");
    (*details)["needed-bytes"] = result->neededBytes;
    (*details)["available-bytes"] = problem.memory;
    return outcome;
  }
  json::Object answer = describe(problem, *result->plan);
  json::Object best;
  for (const std::optional<DelayedPlan> &plan : result->executions)
    if (plan)
      best[delayedExecutionName(plan->shape.execution)] =
          describe(problem, *plan);
  answer["best-of-each"] = std::move(best);
  answer["search-ms"] = elapsed;
  return {exitDone, std::move(answer), ""};
}

} // namespace galvatron::solve
