//===- PlanTable.cpp - A plan as a person reads it ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Plan.h"
#include "galvatron/Support/TextTable.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

#include <algorithm>
#include <map>

using namespace llvm;

namespace galvatron {

std::string deviceRange(ArrayRef<int64_t> devices) {
  std::string text;
  for (size_t i = 0; i < devices.size();) {
    size_t end = i + 1;
    while (end < devices.size() && devices[end] == devices[end - 1] + 1)
      ++end;
    text += (text.empty() ? "" : ",") + std::to_string(devices[i]);
    if (end - i > 1)
      text += "-" + std::to_string(devices[end - 1]);
    i = end;
  }
  return text;
}

TimeSplit Plan::timeSplit(size_t s) const {
  const PlanStage &stage = stages[s];
  auto m = static_cast<double>(microBatches);
  auto count = static_cast<double>(stages.size());
  double busy =
      (m - 1) * stage.timeNosyncMs + stage.timeMs - stage.optimizerMs / count;
  TimeSplit split;
  // All stages update side by side, and Eq. 9 counts the mean: the stage's own
  // update may be longer than what the step has room for.
  for (const PlanStage &each : stages)
    split.optimizerMs += each.optimizerMs / count;
  // Sums of rounded times: what is nothing may come out a little below it.
  split.computeMs = std::min(m * stage.computeMs, busy);
  split.communicationMs = busy - split.computeMs;
  // A step that was simulated hides some of what the stage's sums count.
  double room =
      std::max(0.0, iterationMs - split.computeMs - split.optimizerMs);
  split.communicationMs = std::min(split.communicationMs, room);
  split.bubbleMs = room - split.communicationMs;
  // The rounding of a simulated time is no bubble.
  constexpr double noise = 1e-9; // of the step: picoseconds of milliseconds
  if (split.bubbleMs < noise * iterationMs) {
    split.communicationMs = room;
    split.bubbleMs = 0;
  }
  return split;
}

TimeSplit Plan::timeSplit() const {
  TimeSplit mean;
  double devices = 0;
  for (const PlanStage &stage : stages)
    devices += static_cast<double>(stage.devices.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    double share = static_cast<double>(stages[s].devices.size()) / devices;
    TimeSplit split = timeSplit(s);
    mean.computeMs += share * split.computeMs;
    mean.communicationMs += share * split.communicationMs;
    mean.optimizerMs += share * split.optimizerMs;
    mean.bubbleMs += share * split.bubbleMs;
  }
  return mean;
}

std::vector<LayerRun> Plan::runs() const {
  std::vector<LayerRun> list;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (l > 0 && layers[l].stage == layers[l - 1].stage &&
        layers[l].strategy == layers[l - 1].strategy)
      ++list.back().end;
    else
      list.push_back({l, l + 1});
  }
  return list;
}

std::string Plan::runName(LayerRun run) const {
  if (run.size() == 1)
    return layers[run.begin].name;
  return layers[run.begin].name + "-" + layers[run.end - 1].name + " x" +
         std::to_string(run.size());
}

std::string Plan::summary() const {
  std::vector<std::pair<Strategy, size_t>> counts;
  for (const PlanLayer &layer : layers) {
    auto it = find_if(counts, [&](const auto &entry) {
      return entry.first == layer.strategy;
    });
    if (it == counts.end())
      counts.push_back({layer.strategy, 1});
    else
      ++it->second;
  }
  stable_sort(counts,
              [](const auto &a, const auto &b) { return a.second > b.second; });
  std::string text = "pp" + std::to_string(pipelineDegree) + " m" +
                     std::to_string(microBatches) + " batch " +
                     std::to_string(batch) + ":";
  constexpr size_t most = 4;
  size_t rest = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i >= most) {
      rest += counts[i].second;
      continue;
    }
    text += (i ? ", " : " ") + counts[i].first.str();
    text += " x" + std::to_string(counts[i].second);
  }
  if (rest)
    text += ", others x" + std::to_string(rest);
  return text;
}

double Plan::memoryFill(size_t s) const {
  if (stages[s].availableBytes <= 0)
    return 0;
  return static_cast<double>(stages[s].peakBytes) /
         static_cast<double>(stages[s].availableBytes);
}

size_t Plan::fullestStage() const {
  size_t fullest = 0;
  for (size_t s = 1; s < stages.size(); ++s)
    if (memoryFill(s) > memoryFill(fullest))
      fullest = s;
  return fullest;
}

size_t Plan::slowestStage() const {
  size_t slowest = 0;
  for (size_t s = 1; s < stages.size(); ++s)
    if (stages[s].timeNosyncMs > stages[slowest].timeNosyncMs)
      slowest = s;
  return slowest;
}

std::string Plan::binding() const {
  size_t fullest = fullestStage(), slowest = slowestStage();
  const PlanStage &full = stages[fullest];
  int64_t left = full.availableBytes - full.peakBytes;
  std::string memory = "memory of stage " + std::to_string(fullest);
  std::string fill = printPercent(memoryFill(fullest)) + " of " +
                     printBytesRounded(full.availableBytes) + ", " +
                     printBytesRounded(std::abs(left)) +
                     (left < 0 ? " too much" : " free");
  std::string time = "time";
  if (stages.size() > 1) {
    double mean = 0;
    for (const PlanStage &stage : stages)
      mean += stage.timeNosyncMs / static_cast<double>(stages.size());
    time +=
        " of stage " + std::to_string(slowest) + ": " +
        printMilliseconds(stages[slowest].timeNosyncMs) + " a micro-batch, " +
        printPercent(mean > 0 ? stages[slowest].timeNosyncMs / mean - 1 : 0) +
        " above the mean stage";
  } else {
    TimeSplit split = timeSplit(0);
    bool computes = split.computeMs >= split.communicationMs;
    double part = computes ? split.computeMs : split.communicationMs;
    time += computes ? " of computation: " : " of exposed communication: ";
    time +=
        printPercent(iterationMs > 0 ? part / iterationMs : 0) + " of the step";
  }
  if (full.availableBytes <= 0)
    return "binding: " + time;
  if (memoryBinds())
    return "binding: " + memory + ": " + fill + " (next, " + time + ")";
  return "binding: " + time + " (next, " + memory + ": " + fill + ")";
}

std::string Plan::throughput() const {
  std::vector<std::string> figures;
  if (parameters > 0)
    figures.push_back(printCountRounded(static_cast<double>(parameters)) +
                      " parameters");
  if (tokensPerSecond() > 0)
    figures.push_back(printCountRounded(tokensPerSecond()) + " tokens/s");
  if (flopsPerDevice() > 0)
    figures.push_back(printFlopsRounded(flopsPerDevice()) + " a device");
  if (utilisation() > 0)
    figures.push_back("MFU " + printPercent(utilisation()) +
                      " of what large products reach");
  return join(figures, ", ");
}

void Plan::print(raw_ostream &os) const {
  os << "plan for '" << model << "' on '" << cluster << "' (space " << space
     << ", " << training.dtype << ", " << training.optimizer << ")\n";
  os << "  batch " << batch << " in " << microBatches << " micro-batch"
     << (microBatches == 1 ? "" : "es") << ", schedule " << schedule->name()
     << ", pipeline degree " << pipelineDegree;
  if (offload != Offload::Off)
    os << ", offload " << offloadName(offload);
  os << "\n";
  os << format(
            "  iteration %.3f ms, %.2f samples/s, search %.1f ms, peaks are ",
            iterationMs, samplesPerSecond, searchMs)
     << (exactPeak ? "exact" : "estimates") << "\n";
  // What one compares with papers and other systems.
  if (std::string figures = throughput(); !figures.empty())
    os << "  " << figures << "\n";
  if (stages.size() > 1)
    os << format("  balance of time %.3f, of memory %.3f\n", alphaTime(),
                 alphaMemory());
  if (!foundBy.empty()) {
    os << "  found by the "
       << (foundBy == "quick" ? "quick heuristic" : foundBy + " search");
    bool executed = objective == Objective::Executed;
    if (executed && provenGapPercent)
      os << ", by its formula";
    else if (provenGapPercent)
      os << ",";
    if (provenGapPercent && *provenGapPercent == 0)
      os << " proven optimal";
    else if (provenGapPercent)
      os << format(" proven within %.3g%% of the optimum", *provenGapPercent);
    else if (foundBy != "heuristic")
      os << ", stopped before anything was proven";
    if (heuristicMs > 0)
      os << format("; the heuristic's plan takes %.3f ms", heuristicMs);
    os << "\n";
  }
  if (gapPercent && *gapPercent == 0)
    os << "  executed as fast as any plan for this batch\n";
  else if (gapPercent)
    os << format("  executed within %.3g%% of what any plan for this batch "
                 "takes at least\n",
                 *gapPercent);
  os << "\n";

  auto reserved = [](const PlanStage &stage) {
    return printBytesRounded(stage.reservedBytes) +
           " reserved for contexts and communicators";
  };
  bool alike = llvm::all_of(stages, [&](const PlanStage &stage) {
    return stage.reservedBytes == stages[0].reservedBytes;
  });
  TextTable stageTable("lllrrrrrrl");
  stageTable.row({"stage", "devices", "layers", "time", "no-sync", "compute",
                  "exposed", "optimizer", "bubble", "memory"});
  for (size_t s = 0; s < stages.size(); ++s) {
    const PlanStage &stage = stages[s];
    TimeSplit split = timeSplit(s);
    auto share = [&](double part) {
      return printPercent(iterationMs > 0 ? part / iterationMs : 0, 0);
    };
    std::string memory = printBytesRounded(stage.peakBytes);
    if (stage.availableBytes > 0)
      memory = "[" + printBar(memoryFill(s)) + "] " + memory + " of " +
               printBytesRounded(stage.availableBytes);
    stageTable.row({std::to_string(s), deviceRange(stage.devices),
                    stage.layerText(), printMilliseconds(stage.timeMs),
                    printMilliseconds(stage.timeNosyncMs),
                    share(split.computeMs), share(split.communicationMs),
                    share(split.optimizerMs), share(split.bubbleMs), memory});
    stageTable.note("       " + stage.ledger.str());
    if (offload != Offload::Off)
      stageTable.note("       on the host " + stage.hostLedger.str());
    if (stage.reservedBytes > 0 && !alike)
      stageTable.note("       besides " + reserved(stage));
  }
  stageTable.print(os);
  if (stages[0].reservedBytes > 0 && alike)
    os << "  on every device besides " << reserved(stages[0]) << "\n";

  os << "\n";
  TextTable layerTable("lllrr");
  layerTable.row({"layers", "stage", "strategy", "time", "memory"});
  for (LayerRun run : runs()) {
    double time = 0;
    int64_t memory = 0;
    for (size_t l = run.begin; l < run.end; ++l) {
      time += layers[l].timeMs;
      memory += layers[l].memoryBytes;
    }
    layerTable.row({runName(run), std::to_string(layers[run.begin].stage),
                    layers[run.begin].strategy.str(), printMilliseconds(time),
                    printBytesRounded(memory)});
  }
  layerTable.print(os);
  os << "\n  " << binding() << "\n";
  if (nominal)
    os << "  '" << cluster
       << "' has nominal figures (data sheets, assumptions); galvatron-profile "
          "measures a machine\n";
}

} // namespace galvatron
