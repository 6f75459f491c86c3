//===- Plan.cpp - A complete parallel plan --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Plan.h"
#include "galvatron/Strategy/Optimizer.h"

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Concurrency.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

#include <numeric>
#include <set>

using namespace llvm;

namespace galvatron {

/// Factors of the z-loss are about 1e-4; what is far above 1 is a slip.
constexpr double kLeastWrongZLoss = 1e6;

std::string TrainingOptions::wrongLoss() const {
  auto found = [](double value) {
    std::string text;
    raw_string_ostream(text) << format("%g", value);
    return ", found " + text;
  };
  if (!(labelSmoothing >= 0 && labelSmoothing < 1))
    return "expected a label smoothing from 0 to below 1" +
           found(labelSmoothing);
  if (!(zLoss >= 0 && zLoss < kLeastWrongZLoss))
    return "expected a factor of the z-loss from 0 to below 1000000" +
           found(zLoss);
  return "";
}

json::Value TrainingOptions::toJson() const {
  json::Object object{{"optimizer", optimizer},
                      {"dtype", dtype},
                      {"clip", clip},
                      {"dropout", dropout}};
  if (clipDelayed)
    object["clip-delayed"] = true;
  if (decayAll)
    object["decay-all"] = true;
  if (labelSmoothing != 0)
    object["label-smoothing"] = labelSmoothing;
  if (zLoss != 0)
    object["z-loss"] = zLoss;
  return object;
}

Expected<TrainingOptions> TrainingOptions::fromJson(const json::Value &value) {
  ObjectReader reader(value, "training");
  TrainingOptions options;
  options.optimizer = reader.stringOr("optimizer", options.optimizer);
  options.dtype = reader.stringOr("dtype", options.dtype);
  options.clip = reader.booleanOr("clip", options.clip);
  options.clipDelayed = reader.booleanOr("clip-delayed", false);
  if (options.clipDelayed && !options.clip)
    reader.fail("'training.clip-delayed': expected with 'clip'");
  options.dropout = reader.booleanOr("dropout", options.dropout);
  options.decayAll = reader.booleanOr("decay-all", options.decayAll);
  options.labelSmoothing = reader.numberOr("label-smoothing", 0);
  options.zLoss = reader.numberOr("z-loss", 0);
  if (std::string wrong = options.wrongLoss(); !wrong.empty())
    reader.fail("'training': " + wrong);
  if (!optimizerNamed(options.optimizer))
    reader.fail("'training.optimizer': expected " + optimizerList() +
                ", found '" + options.optimizer + "'");
  if (!isPlannedDtype(options.dtype))
    reader.fail("'training.dtype': expected " + plannedDtypeList() +
                ", found '" + options.dtype + "'");
  if (Error error = reader.finish(/*rejectUnknown=*/false))
    return error;
  return options;
}

/// Sizes of files are added up, so each is kept far below 2^63.
static int64_t bytesOr0(ObjectReader &reader, StringRef key) {
  constexpr int64_t most = int64_t(1) << 48;
  int64_t bytes = reader.naturalOr(key, 0);
  if (bytes <= most)
    return bytes;
  reader.fail("'" + reader.pathOf(key) +
              "': expected at most 2^48 bytes, found " + Twine(bytes));
  return 0;
}

namespace {
struct LedgerEntry {
  StringLiteral name;
  int64_t StageLedger::*field;
};
constexpr LedgerEntry ledgerEntries[] = {
    {"parameters", &StageLedger::parameters},
    {"gradients", &StageLedger::gradients},
    {"optimizer", &StageLedger::optimizer},
    {"activations", &StageLedger::activations},
    {"backward", &StageLedger::backward},
    {"communication", &StageLedger::communication},
    {"workspace", &StageLedger::workspace},
    {"runtime", &StageLedger::runtime}};
} // namespace

std::vector<std::pair<StringRef, int64_t>> StageLedger::entries() const {
  std::vector<std::pair<StringRef, int64_t>> list;
  for (const LedgerEntry &entry : ledgerEntries)
    list.push_back({entry.name, this->*entry.field});
  return list;
}

json::Value StageLedger::toJson() const {
  json::Object object;
  for (const LedgerEntry &entry : ledgerEntries)
    object[entry.name] = this->*entry.field;
  return object;
}

Expected<StageLedger> StageLedger::fromJson(const json::Value &value,
                                            const std::string &path) {
  ObjectReader reader(value, path);
  StageLedger ledger;
  for (const LedgerEntry &entry : ledgerEntries)
    ledger.*entry.field = bytesOr0(reader, entry.name);
  if (Error error = reader.finish(/*rejectUnknown=*/false))
    return error;
  return ledger;
}

std::string StageLedger::str() const {
  std::string text;
  for (const LedgerEntry &entry : ledgerEntries) {
    if (this->*entry.field == 0)
      continue;
    if (!text.empty())
      text += ", ";
    text += entry.name.str() + " " + printBytesRounded(this->*entry.field);
  }
  return text.empty() ? "nothing" : text;
}

std::string LayerRange::str() const {
  std::string text = std::to_string(first);
  return count > 1 ? text + "-" + std::to_string(end() - 1) : text;
}

std::vector<LayerRange> PlanStage::ranges() const {
  return chunks.empty() ? std::vector<LayerRange>{{firstLayer, layerCount}}
                        : chunks;
}

std::vector<size_t> PlanStage::layers() const {
  std::vector<size_t> numbers;
  for (const LayerRange &range : ranges())
    for (int64_t l = range.first; l < range.end(); ++l)
      numbers.push_back(static_cast<size_t>(l));
  return numbers;
}

std::string PlanStage::layerText() const {
  std::vector<std::string> parts;
  for (const LayerRange &range : ranges())
    parts.push_back(range.str());
  return join(parts, ", ");
}

void PlanStage::setRanges(ArrayRef<LayerRange> ranges) {
  firstLayer = ranges.front().first;
  layerCount = ranges.front().count;
  chunks.clear();
  if (ranges.size() > 1)
    chunks = ranges.vec();
}

int64_t Plan::chunksPerStage() const {
  return stages.empty() ? 1
                        : static_cast<int64_t>(stages.front().ranges().size());
}

ScheduleShape Plan::shape() const {
  if (schedule->runsPacks()) {
    std::vector<int64_t> backward;
    for (const PlanChunk &chunk : chunks())
      backward.push_back(chunk.layers.first);
    return ScheduleShape::ofPacks(pipelineDegree, microBatches, offload,
                                  forwardPacks, std::move(backward),
                                  forwardMicroBatches);
  }
  auto shape = ScheduleShape::of(pipelineDegree, microBatches, chunksPerStage(),
                                 offload);
  shape.delayedNorm = schedule->delay({}) > 0 && training.clipDelayed;
  shape.passTimes = passTimes;
  return shape;
}

std::vector<Strategy> Plan::strategiesOf(const LayerRange &range) const {
  std::vector<Strategy> strategies;
  for (int64_t l = range.first; l < range.end(); ++l)
    strategies.push_back(layers[l].strategy);
  return strategies;
}

std::vector<Strategy> Plan::strategiesOf(const PlanStage &stage) const {
  std::vector<Strategy> strategies;
  for (const LayerRange &range : stage.ranges())
    append_range(strategies, strategiesOf(range));
  return strategies;
}

bool Plan::beginsChunk(size_t layer) const {
  return any_of(stages[layers[layer].stage].ranges(),
                [layer](const LayerRange &range) {
                  return range.first == static_cast<int64_t>(layer);
                });
}

std::vector<PlanChunk> Plan::chunks() const {
  std::vector<PlanChunk> list;
  for (size_t s = 0; s < stages.size(); ++s)
    for (const LayerRange &range : stages[s].ranges())
      list.push_back({static_cast<int64_t>(s), range});
  llvm::sort(list, [](const PlanChunk &a, const PlanChunk &b) {
    return a.layers.first < b.layers.first;
  });
  return list;
}

Offload Plan::homesOfLayers() const {
  Offload homes = Offload::Off;
  for (const PlanLayer &layer : layers)
    if (LayerHome home = layer.strategy.home()) {
      homes.states = Offload::States::Layers;
      homes.activations |= home.activations;
    }
  return homes;
}

Error Plan::checkLayer(size_t index) const {
  const PlanLayer &layer = layers[index];
  size_t devices = stages[layer.stage].devices.size();
  std::string which = "plan: layer '" + layer.name + "': strategy '" +
                      layer.strategy.str() + "' ";
  if (layer.strategy.devices() != static_cast<int64_t>(devices))
    return makeError(which + "is for " + Twine(layer.strategy.devices()) +
                     " devices, but stage " + Twine(layer.stage) + " has " +
                     Twine(devices));
  LayerHome home = layer.strategy.home();
  if ((home && !offload.byLayer()) ||
      (home.activations && !offload.activations))
    return makeError(which +
                     "has its home on the host, which is for offload '" +
                     (home.activations ? "layers,activations" : "layers") +
                     "', found offload '" + offloadName(offload) + "'");
  for (int64_t samples : {microBatchSamples(), forwardSamples()})
    if (Expected<int64_t> local = layer.strategy.localSamples(samples); !local)
      return makeError("plan: layer '" + layer.name +
                       "': " + toString(local.takeError()));
  return Error::success();
}

Error Plan::check() const {
  auto number = [](int64_t value) { return std::to_string(value); };
  if (batch < 1 || batch > kMostBatch)
    return makeError("plan: expected a batch from 1 to 2^30, found " +
                     number(batch));
  if (microBatches < 1 || batch % microBatches != 0)
    return makeError("plan: " + number(microBatches) +
                     " micro-batches do not divide the batch of " +
                     number(batch));
  if (forwardMicroBatches > 0 && !schedule->runsPacks())
    return makeError("plan: schedule '" + schedule->name() +
                     "' has no packs that run forward only, found " +
                     number(forwardMicroBatches) + " micro-batches of them");
  if (forwardMicroBatches < 0 ||
      (forwardMicroBatches > 0 && batch % forwardMicroBatches != 0))
    return makeError("plan: " + number(forwardMicroBatches) +
                     " micro-batches of forward packs do not divide the batch "
                     "of " +
                     number(batch));
  if (static_cast<int64_t>(stages.size()) != pipelineDegree)
    return makeError("plan: pipeline degree " + number(pipelineDegree) +
                     ", but " + number(stages.size()) + " stages");
  if (stages.empty())
    return makeError("plan: expected at least one stage");
  for (size_t i = 0; i < stages.size(); ++i)
    if (int64_t found = stages[i].ranges().size();
        found != chunksPerStage() && !schedule->runsPacks())
      return makeError("plan: stage " + number(i) + ": expected " +
                       number(chunksPerStage()) +
                       " chunks as stage 0 has, "
                       "found " +
                       number(found));
  if (Error error = schedule->check(shape()))
    return makeError("plan: " + toString(std::move(error)));
  std::set<int64_t> seen;
  int64_t next = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const PlanStage &stage = stages[i];
    std::string where = "plan: stage " + number(i) + ": ";
    if (stage.devices.empty())
      return makeError(where + "expected at least one device");
    for (int64_t device : stage.devices)
      if (device < 0 || !seen.insert(device).second)
        return makeError(where + "device " + number(device) +
                         (device < 0 ? " does not exist" : " is used twice"));
  }
  // Chunk by chunk, in the order of the model.
  std::vector<size_t> seenOf(stages.size(), 0);
  ScheduleShape made = shape();
  for (int64_t c = 0, all = made.runCount(); c < all; ++c) {
    int64_t i = schedule->home(made, made.chunkOfRun(c));
    const PlanStage &stage = stages[i];
    std::vector<LayerRange> ranges = stage.ranges();
    if (seenOf[i] == ranges.size())
      return makeError("plan: stage " + number(i) +
                       ": expected more packs, "
                       "found " +
                       number(ranges.size()));
    LayerRange range = ranges[seenOf[i]++];
    std::string where = "plan: stage " + number(i) + ": ";
    if (chunksPerStage() > 1)
      where = "plan: chunk " + number(c) + " (stage " + number(i) + "): ";
    if (range.count < 1)
      return makeError(where + "expected at least one layer, found " +
                       number(range.count));
    if (range.count > static_cast<int64_t>(layers.size()))
      return makeError(where + "has " + number(range.count) +
                       " layers, but only " + number(layers.size()) +
                       " are listed");
    if (range.first != next)
      return makeError(where + "expected its first layer to be " +
                       number(next) + ", found " + number(range.first));
    next += range.count;
    for (int64_t l = range.first;
         l < next && l < static_cast<int64_t>(layers.size()); ++l) {
      const PlanLayer &layer = layers[l];
      std::string which = "plan: layer '" + layer.name + "': ";
      if (layer.stage != i)
        return makeError(which + "expected stage " + number(i) + ", found " +
                         number(layer.stage));
      if (Error error = checkLayer(l))
        return error;
    }
  }
  if (next != static_cast<int64_t>(layers.size()))
    return makeError("plan: the stages hold " + number(next) + " layers, but " +
                     number(layers.size()) + " are listed");
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].sums != SumTiming::Overlap || chunksPerStage() == 1)
      continue;
    SumsPlace place{/*isFirst=*/i == 0, /*hasSeveralChunks=*/true};
    if (std::string reason = whyNotOverlapSums(strategiesOf(stages[i]), place);
        !reason.empty())
      return makeError("plan: stage " + number(i) +
                       ": expected 'gradient-sums' to be 'at-end', found "
                       "'overlap': " +
                       reason);
  }
  return Error::success();
}

Error Plan::checkDevices() const {
  size_t count = 0;
  for (const PlanStage &stage : stages)
    count += stage.devices.size();
  for (size_t i = 0; i < stages.size(); ++i)
    for (int64_t device : stages[i].devices)
      if (device >= static_cast<int64_t>(count))
        return makeError("plan: stage " + Twine(i) + ": the stages have " +
                         Twine(count) + " devices, expected 0 to " +
                         Twine(count - 1) + ", found " + Twine(device));
  return Error::success();
}

bool Plan::hasConsecutiveDevices() const {
  int64_t next = 0;
  for (const PlanStage &stage : stages) {
    if (stage.devices.size() != stages.front().devices.size())
      return false;
    for (int64_t device : stage.devices)
      if (device != next++)
        return false;
  }
  return true;
}

StringRef objectiveName(Objective objective) {
  return objective == Objective::Executed ? "executed" : "paper";
}

Expected<Objective> parseObjective(StringRef text) {
  for (Objective objective : {Objective::Executed, Objective::Paper})
    if (text == objectiveName(objective))
      return objective;
  return makeError("expected 'executed' or 'paper', found '" + text + "'");
}

json::Value Plan::toJson() const {
  json::Array stageArray;
  for (const PlanStage &stage : stages) {
    stageArray.push_back(json::Object{{"devices", json::Array(stage.devices)},
                                      {"first-layer", stage.firstLayer},
                                      {"layer-count", stage.layerCount},
                                      {"time-ms", stage.timeMs},
                                      {"time-nosync-ms", stage.timeNosyncMs},
                                      {"forward-ms", stage.forwardMs},
                                      {"compute-ms", stage.computeMs},
                                      {"optimizer-ms", stage.optimizerMs},
                                      {"peak-bytes", stage.peakBytes},
                                      {"available-bytes", stage.availableBytes},
                                      {"ledger", stage.ledger.toJson()}});
    if (stage.reservedBytes > 0)
      (*stageArray.back().getAsObject())["reserved-bytes"] =
          stage.reservedBytes;
    if (offload != Offload::Off)
      (*stageArray.back().getAsObject())["host-ledger"] =
          stage.hostLedger.toJson();
    if (stage.gathersAhead)
      (*stageArray.back().getAsObject())["gathers-ahead"] = true;
    if (stage.sums != SumTiming::ByRule)
      (*stageArray.back().getAsObject())["gradient-sums"] =
          sumTimingName(stage.sums);
    if (stage.chunks.empty())
      continue;
    json::Array chunkArray;
    for (const LayerRange &range : stage.chunks)
      chunkArray.push_back(json::Object{{"first-layer", range.first},
                                        {"layer-count", range.count}});
    (*stageArray.back().getAsObject())["chunks"] = std::move(chunkArray);
  }
  json::Array layerArray;
  for (const PlanLayer &layer : layers) {
    layerArray.push_back(json::Object{{"name", layer.name},
                                      {"stage", layer.stage},
                                      {"strategy", layer.strategy.str()},
                                      {"time-ms", layer.timeMs},
                                      {"time-nosync-ms", layer.timeNosyncMs},
                                      {"memory-bytes", layer.memoryBytes}});
    if (layer.kept)
      (*layerArray.back().getAsObject())["kept"] = layer.kept->toJson();
  }
  json::Object object{{"version", 1},
                      {"tool-version", toolVersion},
                      {"model", model},
                      {"model-hash", modelHash},
                      {"cluster", cluster},
                      {"cluster-hash", clusterHash},
                      {"profile-hash", profileHash},
                      {"space", space},
                      {"training", training.toJson()},
                      {"seq-len", seqLen},
                      {"batch", batch},
                      {"micro-batches", microBatches},
                      {"schedule", schedule->name()},
                      {"pipeline-degree", pipelineDegree},
                      {"objective", objectiveName(objective)},
                      {"iteration-ms", iterationMs},
                      {"samples-per-second", samplesPerSecond},
                      {"tokens-per-second", tokensPerSecond()},
                      {"parameters", parameters},
                      {"flops-per-sample", flopsPerSample},
                      {"peak-flops-per-second", peakFlops},
                      {"device-flops-per-second", flopsPerDevice()},
                      {"mfu", utilisation()},
                      {"nominal-cluster", nominal},
                      {"search-ms", searchMs},
                      {"peak-is", exactPeak ? "exact" : "estimate"},
                      {"alpha-t", alphaTime()},
                      {"alpha-m", alphaMemory()},
                      {"stages", std::move(stageArray)},
                      {"layers", std::move(layerArray)}};
  if (offload != Offload::Off)
    object["offload"] = offloadName(offload);
  if (schedule->runsPacks()) {
    if (forwardMicroBatches > 0)
      object["micro-batches-f"] = forwardMicroBatches;
    object["packs-f"] = json::Array(forwardPacks);
    object["packs-b"] = json::Array(shape().backwardPacks);
  }
  if (!foundBy.empty()) {
    object["found-by"] = foundBy;
    if (provenGapPercent)
      object["proven-gap"] = *provenGapPercent;
    if (!provenAmong.empty())
      object["proven-among"] = provenAmong;
    if (!provenSchedule.empty())
      object["proven-schedule"] = provenSchedule;
    if (!provenGiven.empty())
      object["proven-given"] = provenGiven;
  }
  if (!passTimes.empty()) {
    json::Array rows;
    for (const PassTimes &times : passTimes)
      rows.push_back(
          json::Array{times.forward, times.input, times.weight, times.message});
    object["pass-times"] = std::move(rows);
  }
  if (boundMs)
    object["bound-ms"] = *boundMs;
  if (gapPercent)
    object["gap-percent"] = *gapPercent;
  if (heuristicMs > 0)
    object["heuristic-ms"] = heuristicMs;
  if (simulatedIterationMs)
    object["simulated-iteration-ms"] = *simulatedIterationMs;
  return object;
}

double Plan::flopsPerDevice() const {
  size_t devices = 0;
  for (const PlanStage &stage : stages)
    devices += stage.devices.size();
  return devices
             ? flopsPerSample * samplesPerSecond / static_cast<double>(devices)
             : 0;
}

double Plan::utilisation() const {
  return peakFlops > 0 ? flopsPerSample * samplesPerSecond / peakFlops : 0;
}

/// 1 - largest / sum, 0 if there is nothing.
static double balance(ArrayRef<PlanStage> stages,
                      llvm::function_ref<double(const PlanStage &)> valueOf) {
  double sum = 0, largest = 0;
  for (const PlanStage &stage : stages) {
    sum += valueOf(stage);
    largest = std::max(largest, valueOf(stage));
  }
  return sum > 0 ? 1 - largest / sum : 0;
}

double Plan::alphaTime() const {
  return balance(stages, [](const PlanStage &stage) { return stage.timeMs; });
}

double Plan::alphaMemory() const {
  return balance(stages, [](const PlanStage &stage) {
    return static_cast<double>(stage.peakBytes);
  });
}

/// Its chunks, of which the first one is given by itself as well.
static void readChunks(ObjectReader &reader, const std::string &path,
                       PlanStage &stage) {
  const json::Array *array = reader.array("chunks");
  for (size_t i = 0; array && i < array->size(); ++i) {
    ObjectReader item((*array)[i], path + ".chunks[" + std::to_string(i) + "]");
    stage.chunks.push_back(
        {item.natural("first-layer"), item.natural("layer-count")});
    if (Error error = item.finish(/*rejectUnknown=*/false))
      reader.fail(toString(std::move(error)));
  }
  if (reader.failed() || stage.chunks.empty())
    return;
  const LayerRange &first = stage.chunks.front();
  if (first.first != stage.firstLayer || first.count != stage.layerCount)
    reader.fail("'" + path +
                ".chunks': expected the first one to have layers " +
                LayerRange{stage.firstLayer, stage.layerCount}.str() +
                ", found " + first.str());
  if (stage.chunks.size() == 1)
    stage.chunks.clear();
}

static void readPassTimes(ObjectReader &reader,
                          std::vector<PassTimes> &passTimes) {
  const json::Array *rows = reader.array("pass-times");
  for (size_t i = 0; rows && i < rows->size(); ++i) {
    const json::Array *row = (*rows)[i].getAsArray();
    PassTimes times;
    int64_t *const fields[] = {&times.forward, &times.input, &times.weight,
                               &times.message};
    bool good = row && row->size() == std::size(fields);
    for (size_t f = 0; good && f < std::size(fields); ++f) {
      std::optional<int64_t> number = (*row)[f].getAsInteger();
      good = number.has_value();
      *fields[f] = number.value_or(0);
    }
    if (!good)
      reader.fail("'pass-times[" + Twine(i) +
                  "]': expected four integers: forward pass, input part, "
                  "weight part, message");
    passTimes.push_back(times);
  }
}

Expected<Plan> Plan::fromJson(const json::Value &value) {
  ObjectReader reader(value, "");
  Plan plan;
  if (int64_t version = reader.integer("version");
      !reader.failed() && version != 1)
    reader.fail("'version': expected 1, found " + Twine(version));
  plan.toolVersion = reader.stringOr("tool-version", "");
  plan.model = reader.stringOr("model", "");
  plan.modelHash = reader.stringOr("model-hash", "");
  plan.cluster = reader.stringOr("cluster", "");
  plan.clusterHash = reader.stringOr("cluster-hash", "");
  plan.profileHash = reader.stringOr("profile-hash", "");
  plan.space = reader.stringOr("space", "given");
  plan.seqLen = reader.naturalOr("seq-len", 0);
  plan.batch = reader.natural("batch");
  plan.microBatches = reader.natural("micro-batches");
  plan.pipelineDegree = reader.natural("pipeline-degree");
  // The file has no such key if it is older than the choice.
  Expected<Objective> objective =
      parseObjective(reader.stringOr("objective", "paper"));
  if (objective)
    plan.objective = *objective;
  else
    reader.fail("'objective': " + toString(objective.takeError()));
  plan.iterationMs = reader.numberOr("iteration-ms", 0);
  if (reader.has("bound-ms"))
    plan.boundMs = reader.number("bound-ms");
  if (reader.has("gap-percent"))
    plan.gapPercent = reader.number("gap-percent");
  if (reader.has("simulated-iteration-ms"))
    plan.simulatedIterationMs = reader.number("simulated-iteration-ms");
  plan.samplesPerSecond = reader.numberOr("samples-per-second", 0);
  plan.parameters = reader.naturalOr("parameters", 0);
  plan.flopsPerSample = reader.numberOr("flops-per-sample", 0);
  plan.peakFlops = reader.numberOr("peak-flops-per-second", 0);
  plan.nominal = reader.booleanOr("nominal-cluster", false);
  plan.searchMs = reader.numberOr("search-ms", 0);
  plan.foundBy = reader.stringOr("found-by", "");
  if (reader.has("proven-gap"))
    plan.provenGapPercent = reader.number("proven-gap");
  plan.provenAmong = reader.stringOr("proven-among", "");
  plan.provenSchedule = reader.stringOr("proven-schedule", "");
  plan.provenGiven = reader.stringOr("proven-given", "");
  plan.heuristicMs = reader.numberOr("heuristic-ms", 0);
  plan.exactPeak = reader.stringOr("peak-is", "estimate") == "exact";
  if (reader.has("u-f"))
    reader.fail("'u-f': packs of a layer profile are no program's, expected a "
                "plan that is made of the model");
  if (reader.has("micro-batches-f"))
    plan.forwardMicroBatches = reader.natural("micro-batches-f");
  if (reader.has("packs-f"))
    if (const json::Array *array = reader.array("packs-f"))
      for (const json::Value &first : *array) {
        if (std::optional<int64_t> number = first.getAsInteger())
          plan.forwardPacks.push_back(*number);
        else
          reader.fail("'packs-f': expected integers");
      }
  if (std::string name = reader.string("schedule"); !reader.failed()) {
    Expected<const Schedule *> schedule = parseSchedule(name);
    if (schedule)
      plan.schedule = *schedule;
    else
      reader.fail("'schedule': " + toString(schedule.takeError()));
  }
  if (Expected<Offload> offload =
          parseOffload(reader.stringOr("offload", "off")))
    plan.offload = *offload;
  else
    reader.fail("'offload': " + toString(offload.takeError()));
  if (reader.has("pass-times"))
    readPassTimes(reader, plan.passTimes);
  if (reader.has("training")) {
    Expected<TrainingOptions> training =
        TrainingOptions::fromJson(*reader.value("training"));
    if (training)
      plan.training = *training;
    else
      reader.fail(toString(training.takeError()));
  }
  if (const json::Array *array = reader.array("stages"))
    for (size_t i = 0; i < array->size(); ++i) {
      std::string path = "stages[" + std::to_string(i) + "]";
      ObjectReader item((*array)[i], path);
      PlanStage stage;
      if (const json::Array *devices = item.array("devices"))
        for (const json::Value &device : *devices) {
          if (std::optional<int64_t> number = device.getAsInteger())
            stage.devices.push_back(*number);
          else
            item.fail("'" + path + ".devices': expected integers");
        }
      stage.firstLayer = item.natural("first-layer");
      stage.layerCount = item.natural("layer-count");
      if (item.has("chunks"))
        readChunks(item, path, stage);
      stage.timeMs = item.numberOr("time-ms", 0);
      stage.timeNosyncMs = item.numberOr("time-nosync-ms", 0);
      stage.forwardMs = item.numberOr("forward-ms", 0);
      stage.computeMs = item.numberOr("compute-ms", 0);
      stage.optimizerMs = item.numberOr("optimizer-ms", 0);
      stage.peakBytes = bytesOr0(item, "peak-bytes");
      stage.availableBytes = bytesOr0(item, "available-bytes");
      stage.reservedBytes = bytesOr0(item, "reserved-bytes");
      stage.gathersAhead = item.booleanOr("gathers-ahead", false);
      if (Expected<SumTiming> sums = parseSumTiming(item.stringOr(
              "gradient-sums", sumTimingName(SumTiming::ByRule).str())))
        stage.sums = *sums;
      else
        item.fail("'" + path +
                  ".gradient-sums': " + toString(sums.takeError()));
      if (item.has("ledger")) {
        Expected<StageLedger> ledger =
            StageLedger::fromJson(*item.value("ledger"), path + ".ledger");
        if (ledger)
          stage.ledger = *ledger;
        else
          item.fail(toString(ledger.takeError()));
      }
      if (item.has("host-ledger")) {
        Expected<StageLedger> ledger = StageLedger::fromJson(
            *item.value("host-ledger"), path + ".host-ledger");
        if (ledger)
          stage.hostLedger = *ledger;
        else
          item.fail(toString(ledger.takeError()));
      }
      if (Error error = item.finish(/*rejectUnknown=*/false))
        reader.fail(toString(std::move(error)));
      plan.stages.push_back(std::move(stage));
    }
  if (const json::Array *array = reader.array("layers"))
    for (size_t i = 0; i < array->size(); ++i) {
      std::string path = "layers[" + std::to_string(i) + "]";
      ObjectReader item((*array)[i], path);
      PlanLayer layer;
      layer.name = item.string("name");
      layer.stage = item.natural("stage");
      layer.timeMs = item.numberOr("time-ms", 0);
      layer.timeNosyncMs = item.numberOr("time-nosync-ms", 0);
      layer.memoryBytes = bytesOr0(item, "memory-bytes");
      std::string text = item.string("strategy");
      if (!item.failed()) {
        Expected<Strategy> strategy = Strategy::parse(text);
        if (strategy)
          layer.strategy = *strategy;
        else
          item.fail("'" + path +
                    ".strategy': " + toString(strategy.takeError()));
      }
      if (item.has("kept")) {
        Expected<KeptValues> kept =
            KeptValues::fromJson(*item.value("kept"), path + ".kept");
        if (kept)
          layer.kept = std::move(*kept);
        else
          item.fail(toString(kept.takeError()));
        if (layer.strategy.point() == 0)
          item.fail("'" + path +
                    ".kept': expected a strategy with a point, found '" +
                    layer.strategy.str() + "'");
      }
      if (Error error = item.finish(/*rejectUnknown=*/false))
        reader.fail(toString(std::move(error)));
      plan.layers.push_back(std::move(layer));
    }
  if (Error error = reader.finish(/*rejectUnknown=*/false))
    return error;
  if (Error error = plan.check())
    return error;
  if (Error error = plan.checkDevices())
    return error;
  return plan;
}

json::Value Infeasible::toJson() const {
  json::Object fits;
  if (fittingMemory > 0)
    fits["memory-bytes"] = fittingMemory;
  if (fittingBatch > 0)
    fits["batch"] = fittingBatch;
  if (fittingDevices > 0)
    fits["devices"] = fittingDevices;
  return json::Object{
      {"infeasible", json::Object{{"reason", reason},
                                  {"stage", stage},
                                  {"needed-bytes", neededBytes},
                                  {"available-bytes", availableBytes},
                                  {"ledger", ledger.toJson()},
                                  {"relaxations", json::Array(relaxations)},
                                  {"would-fit", std::move(fits)}}}};
}

std::string Infeasible::str() const {
  std::string text = reason;
  if (stage >= 0 && neededBytes > 0) {
    // Most reasons say already what the stage needs.
    std::string needs = "stage " + std::to_string(stage) + " needs " +
                        std::to_string(neededBytes) + " bytes";
    text += "\n  ";
    if (StringRef(reason).contains(needs))
      text += "stage " + std::to_string(stage);
    else
      text += needs + " (" + printBytesRounded(neededBytes) +
              "), available are " + std::to_string(availableBytes) + " (" +
              printBytesRounded(availableBytes) + ")";
    text += ": " + ledger.str();
  }
  for (const std::string &relaxation : relaxations)
    text += "\n  it would help to " + relaxation;
  return text;
}

Error checkClipping(const Schedule &schedule, Offload offload,
                    const TrainingOptions &training) {
  bool isLate = schedule.delay({}) > 0;
  if (training.clipDelayed && !isLate)
    return makeError("schedule '" + schedule.name() +
                     "' clips by the norm of its own batch, found "
                     "--clip=delayed: expected --clip=on, or --schedule=2bw, "
                     "which is a batch late in any case");
  if (isLate && training.clip && !training.clipDelayed)
    return makeError("schedule '" + schedule.name() +
                     "' updates a stage without a look at the others, so "
                     "gradients cannot be clipped by their global norm: "
                     "expected --clip=off or --clip=delayed");
  if (offload.justInTime && training.clip)
    return makeError("offload '" + offloadName(offload) +
                     "' updates chunks before all gradients are known, so they "
                     "cannot be clipped by their global norm: expected "
                     "--clip=off");
  return Error::success();
}

} // namespace galvatron
