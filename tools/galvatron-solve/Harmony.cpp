//===- Harmony.cpp - Packs and micro-batch sizes from a profile -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Solve.h"

#include "galvatron/Baselines/HarmonySearch.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cmath>

using namespace llvm;

namespace galvatron::solve {

namespace {

/// An integer from 1 to `most`.
int64_t count(ObjectReader &reader, StringRef key, int64_t most) {
  int64_t value = reader.integer(key);
  if (!reader.failed() && (value < 1 || value > most))
    reader.fail("'" + key + "': expected 1 to " + Twine(most) + ", found " +
                Twine(value));
  return value;
}

double rate(ObjectReader &reader, StringRef key, double fallback) {
  double value = reader.numberOr(key, fallback);
  if (!reader.failed() && !(value >= 1 && value <= 1e18))
    reader.fail("'" + key +
                "': expected bytes per second from 1 to 1e18, "
                "found " +
                formatv("{0}", value).str());
  return value;
}

std::vector<PackingMethod> packings(ObjectReader &reader, StringRef key,
                                    std::vector<PackingMethod> fallback) {
  if (!reader.has(key))
    return fallback;
  std::vector<PackingMethod> methods;
  const json::Array *array = reader.array(key);
  for (size_t i = 0; array && i < array->size(); ++i) {
    std::optional<StringRef> name = (*array)[i].getAsString();
    std::optional<PackingMethod> method =
        name ? parsePacking(*name) : std::nullopt;
    if (!method) {
      reader.fail("'" + key + "[" + Twine(i) + "]': expected one of " +
                  join(packingNames(), ", ") + ", found " +
                  formatv("{0}", (*array)[i]).str());
      break;
    }
    methods.push_back(*method);
  }
  return methods;
}

void readRules(ObjectReader &reader, HarmonyProblem &problem) {
  std::string mode = reader.string("mode");
  if (!reader.failed() && mode != "pp" && mode != "dp")
    reader.fail("'mode': expected 'pp' or 'dp', found '" + mode + "'");
  problem.rules.mode =
      mode == "dp" ? HarmonyMode::DataParallel : HarmonyMode::Pipeline;
  problem.rules.prefetch = reader.booleanOr("prefetch", false);
  problem.rules.joinLastPack = reader.booleanOr("join-last-pack", true);
  problem.rules.grouping = reader.booleanOr("grouping", true);
  problem.rules.justInTime = reader.booleanOr("just-in-time", true);
  problem.rules.peerToPeer = reader.booleanOr("peer-to-peer", true);
  std::string update = reader.stringOr("update", "host");
  if (!reader.failed() && update != "host" && update != "device" &&
      update != "any")
    reader.fail("'update': expected 'host', 'device' or 'any', found '" +
                update + "'");
  problem.rules.updateOnDevice = update == "device";
  problem.chooseUpdate = update == "any";
  if (!reader.booleanOr("per-device-swap", false))
    return;
  for (StringRef key :
       {"prefetch", "join-last-pack", "grouping", "just-in-time",
        "peer-to-peer", "update", "packing-forward", "all-sizes"})
    if (!reader.failed() && reader.has(key))
      reader.fail("'" + key +
                  "': devices that swap by themselves have none of Harmony's "
                  "means, expected it without 'per-device-swap'");
  problem.rules = HarmonyRules::swappingByDevice(problem.rules.mode);
  problem.sizes = HarmonyProblem::Sizes::Equal;
  problem.forwardPackings = {PackingMethod::Reuse};
}

HarmonyProblem readProblem(ObjectReader &reader) {
  // Bounds that keep sums of times and bytes within 63 bits.
  constexpr int64_t mostDevices = 4096, mostSamples = 1'000'000;
  HarmonyProblem problem;
  HarmonyMachine &machine = problem.machine;
  machine.devices = count(reader, "devices", mostDevices);
  problem.minibatch = count(reader, "minibatch", mostSamples);
  readRules(reader, problem);
  machine.capacity = reader.integerOr("capacity-bytes", machine.capacity);
  if (!reader.failed() && machine.capacity < 1)
    reader.fail("'capacity-bytes': expected at least 1, found " +
                Twine(machine.capacity));
  machine.swapRate = rate(reader, "swap-bytes-per-second", machine.swapRate);
  machine.peerRate = rate(reader, "peer-bytes-per-second", machine.peerRate);
  machine.messageRate =
      rate(reader, "message-bytes-per-second", machine.messageRate);
  machine.memoryRate =
      rate(reader, "device-memory-bytes-per-second", machine.memoryRate);
  double overhead =
      reader.numberOr("task-overhead-ms", toMilliseconds(machine.taskOverhead));
  if (!reader.failed() && !(overhead >= 0 && overhead <= 1e6))
    reader.fail("'task-overhead-ms': expected milliseconds between 0 and 1e6, "
                "found " +
                formatv("{0}", overhead).str());
  else
    machine.taskOverhead = std::llround(overhead * 1e9);
  problem.fallback = !reader.has("packing-forward") &&
                     !reader.has("packing-backward") &&
                     !problem.rules.perDeviceSwap;
  problem.forwardPackings =
      packings(reader, "packing-forward", problem.forwardPackings);
  problem.backwardPackings =
      packings(reader, "packing-backward", problem.backwardPackings);
  problem.allSizes = reader.booleanOr("all-sizes", false);
  problem.exhaustive = reader.booleanOr("exhaustive", false);
  return problem;
}

Expected<HarmonyProfile> loadProfile(StringRef path, StringRef problemPath) {
  SmallString<128> beside = sys::path::parent_path(problemPath);
  sys::path::append(beside, path);
  std::string found = !sys::path::is_absolute(path) && problemPath != "-" &&
                              sys::fs::exists(beside)
                          ? beside.str().str()
                          : path.str();
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer =
      MemoryBuffer::getFile(found, /*IsText=*/true);
  if (!buffer)
    return createStringError("'profile': cannot read '" + found +
                             "': " + buffer.getError().message());
  Expected<json::Value> value = parseJson((*buffer)->getBuffer(), found);
  if (!value)
    return value.takeError();
  return HarmonyProfile::fromJson(*value, found);
}

json::Object volumes(const HarmonyVolumes &volumes) {
  json::Object object;
  for (size_t i = 0; i < kHarmonyTensorCount; ++i)
    object[harmonyTensorName(static_cast<HarmonyTensor>(i))] =
        json::Object{{"in", volumes[i].in},
                     {"out", volumes[i].out},
                     {"peer", volumes[i].peer}};
  return object;
}

} // namespace

Outcome solveHarmony(ObjectReader &reader, StringRef problemPath) {
  std::string profilePath = reader.string("profile");
  HarmonyProblem problem = readProblem(reader);
  if (Error error = reader.finish())
    return invalid(std::move(error));
  Expected<HarmonyProfile> profile = loadProfile(profilePath, problemPath);
  if (!profile)
    return invalid(profile.takeError());

  Stopwatch watch;
  Expected<HarmonyResult> result = searchHarmony(*profile, problem);
  double elapsed = watch.milliseconds();
  if (!result)
    return invalid(result.takeError());
  if (!result->plan) {
    Outcome outcome = infeasible(
        result->reason + ": needed are at least " + Twine(result->neededBytes) +
        " bytes, available are " + Twine(problem.machine.capacity));
    json::Object *details = outcome.answer.getObject("infeasible");
    (*details)["needed-bytes"] = result->neededBytes;
    (*details)["available-bytes"] = problem.machine.capacity;
    return outcome;
  }
  const HarmonyPlan &plan = *result->plan;
  return {
      exitDone,
      json::Object{{"u-f", plan.config.forwardSize},
                   {"packs-f", json::Array(plan.config.forwardPacks)},
                   {"packing-f", plan.forwardPacking},
                   {"u-b", plan.config.backwardSize},
                   {"packs-b", json::Array(plan.config.backwardPacks)},
                   {"packing-b", plan.backwardPacking},
                   {"update", plan.rules.updateOnDevice ? "device" : "host"},
                   {"iteration-ms", toMilliseconds(plan.timeline.end)},
                   {"busiest-device-ms", toMilliseconds(plan.timeline.busiest)},
                   {"swapped-bytes", volumes(plan.timeline.volumes)},
                   {"configurations", result->considered},
                   {"simulated", result->simulated},
                   {"search-ms", elapsed}},
      ""};
}

} // namespace galvatron::solve
