//===- PlanTable.cpp - A plan as a person reads it ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Plan.h"
#include "galvatron/Support/Rate.h"
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
    if (l > 0 && !beginsChunk(l) &&
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

std::vector<std::string> Plan::keptTexts() const {
  std::vector<std::string> texts;
  std::vector<const PlanLayer *> told;
  for (const PlanLayer &layer : layers) {
    std::string what = layer.kept ? layer.kept->text() : "";
    if (what.empty() || any_of(told, [&](const PlanLayer *other) {
          return other->strategy == layer.strategy && other->kept == layer.kept;
        }))
      continue;
    told.push_back(&layer);
    texts.push_back(layer.strategy.str() + ", " + layer.name + ": " + what);
  }
  return texts;
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
                     std::to_string(batch);
  if (offload != Offload::Off)
    text += " offload " + offloadName(offload);
  text += ":";
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

namespace {

/// Fewer alike stages take no more lines one by one.
constexpr size_t kLeastFolded = 3;

/// Stages [begin, end) that the tables show as one.
struct StageFold {
  size_t begin, end;

  bool isFolded() const { return end - begin > 1; }
  std::string str() const {
    return std::to_string(begin) +
           (isFolded() ? "-" + std::to_string(end - 1) : "");
  }
};

/// The ways in which a plan's tables fit the columns of a terminal.
enum class Layout { Full, MemoryBelow, Narrow };

class PlanPrinter {
public:
  PlanPrinter(const Plan &plan, raw_ostream &os, TableStyle style)
      : plan(plan), os(os), style(style) {
    for (size_t s = 0; s < plan.stages.size();) {
      size_t end = s + 1;
      while (end < plan.stages.size() && areAlike(s, end))
        ++end;
      if (end - s < kLeastFolded)
        end = s + 1;
      folds.push_back({s, end});
      s = end;
    }
  }

  void head();
  void stages();
  void layers();
  void foot();

private:
  /// One line, folded.
  void line(const Twine &text) {
    os << foldedText(("  " + text).str(), style.columns, /*indent=*/2) << "\n";
  }
  std::vector<std::string> timeCells(size_t s) const;
  bool areAlike(size_t a, size_t b) const;
  std::string devicesOf(StageFold fold) const;
  std::string layersOf(StageFold fold) const;
  size_t fullestOf(StageFold fold) const;
  size_t slowestOf(StageFold fold) const;
  std::string memoryOf(StageFold fold) const;
  TextTable stageTable(Layout layout) const;

  const Plan &plan;
  raw_ostream &os;
  TableStyle style;
  std::vector<StageFold> folds;
};

/// A proven gap; what is below its digits is no news.
std::string gapText(double percent) {
  constexpr double leastShown = 1e-3;
  std::string text;
  raw_string_ostream(text) << format("%.3g%%", std::max(percent, leastShown));
  return text;
}

std::string reserveText(const PlanStage &stage) {
  return printBytesRounded(stage.reservedBytes) +
         " reserved for contexts and communicators";
}

bool hasEqualReserves(const Plan &plan) {
  return llvm::all_of(plan.stages, [&](const PlanStage &stage) {
    return stage.reservedBytes == plan.stages[0].reservedBytes;
  });
}

void PlanPrinter::head() {
  os << "plan for '" << plan.model << "' on '" << plan.cluster << "' (space "
     << plan.space << ", " << plan.training.dtype << ", "
     << plan.training.optimizer << ")\n";
  std::string offload;
  if (plan.offload != Offload::Off)
    offload = ", offload " + offloadName(plan.offload);
  line("batch " + Twine(plan.batch) + " in " + Twine(plan.microBatches) +
       " micro-batch" + (plan.microBatches == 1 ? "" : "es") + ", schedule " +
       plan.schedule->name() + ", pipeline degree " +
       Twine(plan.pipelineDegree) + offload);
  if (plan.schedule->runsPacks()) {
    std::string forward, backward;
    ScheduleShape shape = plan.shape();
    for (size_t p = 0; p < shape.forwardPacks.size(); ++p) {
      int64_t end = p + 1 < shape.forwardPacks.size()
                        ? shape.forwardPacks[p + 1]
                        : shape.backwardPacks.back();
      LayerRange range{shape.forwardPacks[p], end - shape.forwardPacks[p]};
      forward += " " + range.str();
    }
    for (const PlanChunk &pack : plan.chunks())
      backward += " " + pack.layers.str();
    if (shape.regroups())
      forward += " in " + std::to_string(plan.forwardMicroBatches) +
                 " micro-batch" + (plan.forwardMicroBatches == 1 ? "" : "es");
    line("forward packs" + (forward.empty() ? " none" : forward) +
         ", backward packs" + backward);
  }
  std::string iteration, search;
  const std::string rate = rateText(plan.samplesPerSecond) + " samples/s";
  raw_string_ostream(iteration) << format("%.3f ms", plan.iterationMs);
  raw_string_ostream(search) << format("%.1f ms", plan.searchMs);
  line("iteration " + emphasised(iteration, Emphasis::Bold, style) + ", " +
       emphasised(rate, Emphasis::Bold, style) + ", search " + search +
       ", peaks are " + (plan.exactPeak ? "exact" : "estimates"));
  // Figures that are compared with papers and other systems.
  if (std::string figures = plan.throughput(); !figures.empty())
    line(figures);
  if (plan.stages.size() > 1)
    os << format("  balance of time %.3f, of memory %.3f\n", plan.alphaTime(),
                 plan.alphaMemory());
  if (!plan.foundBy.empty()) {
    std::string text =
        "found by the " + (plan.foundBy == "quick" ? "quick heuristic"
                                                   : plan.foundBy + " search");
    bool executed = plan.objective == Objective::Executed;
    // The proof is of the best plan by the formula, which is another one then.
    if (plan.provenGapPercent)
      text += !executed                     ? ","
              : plan.foundBy == "heuristic" ? "; by the formula the best is"
                                            : ", by its formula";
    if (plan.provenGapPercent && *plan.provenGapPercent == 0)
      text += " proven optimal";
    else if (plan.provenGapPercent)
      text += " proven within " + gapText(*plan.provenGapPercent) +
              " of the optimum";
    else if (plan.foundBy != "heuristic")
      text += ", stopped before anything was proven";
    if (plan.heuristicMs > 0)
      raw_string_ostream(text)
          << format("; the heuristic's plan takes %.3f ms", plan.heuristicMs);
    line(text);
  }
  if (plan.provenGapPercent && !plan.provenAmong.empty())
    line("  of plans whose stages have " + plan.provenAmong);
  std::string under;
  if (!plan.provenGiven.empty())
    under = " with " + plan.provenGiven;
  if (!plan.provenSchedule.empty()) {
    bool several = StringRef(plan.provenSchedule).contains(", ");
    under += std::string(" under schedule") + (several ? "s '" : " '") +
             plan.provenSchedule + "'";
    if (plan.provenGapPercent)
      line("  of plans under schedule '" + plan.schedule->name().str() +
           "'; schedules were compared by their best plans' simulated time");
  }
  if (plan.provenGapPercent && plan.schedule->delay({}) > 0)
    line("  by the formula of batches that follow each other without a drain");
  else if (plan.provenGapPercent && plan.schedule->splitsBackward())
    line("  by the formula of steps whose weight parts fill what stages would "
         "wait");
  if (plan.gapPercent && *plan.gapPercent == 0)
    line("executed as fast as any plan for this batch" + under);
  else if (plan.gapPercent)
    line("executed within " + gapText(*plan.gapPercent) +
         " of what any plan for this batch" + under + " takes at least");
}

std::vector<std::string> PlanPrinter::timeCells(size_t s) const {
  const PlanStage &stage = plan.stages[s];
  TimeSplit split = plan.timeSplit(s);
  auto share = [&](double part) {
    return printPercent(plan.iterationMs > 0 ? part / plan.iterationMs : 0, 0);
  };
  return {
      printMilliseconds(stage.timeMs), printMilliseconds(stage.timeNosyncMs),
      share(split.computeMs),          share(split.communicationMs),
      share(split.optimizerMs),        share(split.bubbleMs)};
}

bool PlanPrinter::areAlike(size_t a, size_t b) const {
  const PlanStage &one = plan.stages[a], &other = plan.stages[b];
  // Transfers to the next node take a little longer than inside of one.
  constexpr double tolerance = 1e-3;
  auto near = [](double x, double y) {
    return std::abs(x - y) <= tolerance * std::max(x, y);
  };
  if (!near(one.timeMs, other.timeMs) ||
      !near(one.timeNosyncMs, other.timeNosyncMs) ||
      !near(one.computeMs, other.computeMs) ||
      !near(one.optimizerMs, other.optimizerMs))
    return false;
  if (one.devices.size() != other.devices.size() || one.chunks.size() > 1 ||
      other.chunks.size() > 1 || one.layerCount != other.layerCount ||
      one.availableBytes != other.availableBytes ||
      one.reservedBytes != other.reservedBytes)
    return false;
  for (int64_t l = 0; l < one.layerCount; ++l)
    if (plan.layers[one.firstLayer + l].strategy !=
        plan.layers[other.firstLayer + l].strategy)
      return false;
  return true;
}

std::string PlanPrinter::devicesOf(StageFold fold) const {
  std::vector<int64_t> devices;
  for (size_t s = fold.begin; s < fold.end; ++s)
    devices.insert(devices.end(), plan.stages[s].devices.begin(),
                   plan.stages[s].devices.end());
  std::string text = deviceRange(devices);
  size_t each = plan.stages[fold.begin].devices.size();
  return fold.isFolded() ? text + ", " + std::to_string(each) + " each" : text;
}

std::string PlanPrinter::layersOf(StageFold fold) const {
  const PlanStage &first = plan.stages[fold.begin];
  if (!fold.isFolded())
    return first.layerText();
  const PlanStage &last = plan.stages[fold.end - 1];
  return std::to_string(first.firstLayer) + "-" +
         std::to_string(last.firstLayer + last.layerCount - 1) + ", " +
         std::to_string(first.layerCount) + " each";
}

size_t PlanPrinter::fullestOf(StageFold fold) const {
  size_t fullest = fold.begin;
  for (size_t s = fold.begin; s < fold.end; ++s)
    if (plan.stages[s].peakBytes > plan.stages[fullest].peakBytes)
      fullest = s;
  return fullest;
}

size_t PlanPrinter::slowestOf(StageFold fold) const {
  size_t slowest = fold.begin;
  for (size_t s = fold.begin; s < fold.end; ++s)
    if (plan.stages[s].timeMs > plan.stages[slowest].timeMs)
      slowest = s;
  return slowest;
}

std::string PlanPrinter::memoryOf(StageFold fold) const {
  size_t fullest = fullestOf(fold);
  const PlanStage &stage = plan.stages[fullest];
  int64_t leastBytes = stage.peakBytes;
  for (size_t s = fold.begin; s < fold.end; ++s)
    leastBytes = std::min(leastBytes, plan.stages[s].peakBytes);
  std::string least = printBytesRounded(leastBytes);
  std::string most = printBytesRounded(stage.peakBytes);
  std::string memory = least == most ? most : least + " to " + most;
  if (stage.availableBytes <= 0)
    return memory;
  double fill = plan.memoryFill(fullest);
  // Full is what `memoryBinds` takes for it.
  Emphasis how = fill > 1       ? Emphasis::Bad
                 : fill >= 0.95 ? Emphasis::Tight
                                : Emphasis::Good;
  return emphasised("[" + printBar(fill) + "]", how, style) + " " + memory +
         " of " + printBytesRounded(stage.availableBytes);
}

TextTable PlanPrinter::stageTable(Layout layout) const {
  bool alike = hasEqualReserves(plan);
  bool isNarrow = layout == Layout::Narrow, isFull = layout == Layout::Full;
  TextTable table(isNarrow ? "lllrrrrr" : isFull ? "lllrrrrrrl" : "lllrrrrrr");
  auto row = [&](std::vector<std::string> cells,
                 const std::vector<std::string> &time, std::string memory) {
    for (size_t c = 0; c < time.size(); ++c)
      if (c != 1 || !isNarrow)
        cells.push_back(time[c]);
    if (isFull)
      cells.push_back(std::move(memory));
    table.row(std::move(cells));
  };
  row({"stage", "devices", "layers"},
      {"time", "no-sync", "compute", "exposed", "optimizer", "bubble"},
      "memory");
  for (StageFold fold : folds) {
    std::string memory = memoryOf(fold);
    row({fold.str(), devicesOf(fold), layersOf(fold)},
        timeCells(slowestOf(fold)), memory);
    size_t fullest = fullestOf(fold);
    const PlanStage &stage = plan.stages[fullest];
    // Below the first words of the row.
    const char *indent = "       ";
    if (!isFull)
      table.note(indent + memory);
    table.note(indent +
               (fold.isFolded() ? "stage " + std::to_string(fullest) + ": "
                                : std::string()) +
               stage.ledger.str());
    if (stage.hostLedger.total() > 0)
      table.note(indent + ("on the host " + stage.hostLedger.str()));
    if (stage.reservedBytes > 0 && !alike)
      table.note(indent + ("besides " + reserveText(stage)));
  }
  return table;
}

void PlanPrinter::stages() {
  constexpr size_t indent = 2;
  Layout layout = Layout::Full;
  for (Layout narrower : {Layout::MemoryBelow, Layout::Narrow})
    if (style.columns && stageTable(layout).width() + indent > style.columns)
      layout = narrower;
  stageTable(layout).print(os, indent, style.columns);
  if (plan.stages[0].reservedBytes > 0 && hasEqualReserves(plan))
    line("on every device besides " + reserveText(plan.stages[0]));
}

void PlanPrinter::layers() {
  TextTable table("lllrr");
  table.row({"layers", "stage", "strategy", "time", "memory"});
  for (LayerRun run : plan.runs()) {
    auto stage = static_cast<size_t>(plan.layers[run.begin].stage);
    const StageFold &fold = *find_if(
        folds, [&](const StageFold &each) { return stage < each.end; });
    // The layers of alike stages are told by those of the first.
    if (stage != fold.begin)
      continue;
    double time = 0;
    int64_t memory = 0;
    for (size_t l = run.begin; l < run.end; ++l) {
      time += plan.layers[l].timeMs;
      memory += plan.layers[l].memoryBytes;
    }
    table.row({plan.runName(run) + (fold.isFolded() ? " .." : ""), fold.str(),
               plan.layers[run.begin].strategy.str(), printMilliseconds(time),
               printBytesRounded(memory)});
  }
  table.print(os);
  for (const std::string &text : plan.keptTexts())
    line(text);
}

/// "gradients are summed at the end of the step on stages 2,3, beside backward
/// passes on stages 0,1"; empty where nothing was chosen.
static std::string sumsText(const Plan &plan) {
  auto on = [&](SumTiming timing) {
    std::vector<int64_t> numbers;
    for (auto [s, stage] : llvm::enumerate(plan.stages))
      if (stage.sums == timing)
        numbers.push_back(static_cast<int64_t>(s));
    return numbers.empty()
               ? std::string()
               : (numbers.size() > 1 ? " on stages " : " on stage ") +
                     deviceRange(numbers);
  };
  std::string atEnd = on(SumTiming::AtEnd), overlap = on(SumTiming::Overlap);
  std::string text;
  if (!atEnd.empty())
    text = " at the end of the step" + atEnd;
  if (!overlap.empty())
    text += (text.empty() ? "" : ",") + (" beside backward passes" + overlap);
  return text.empty() ? text : "gradients are summed" + text;
}

void PlanPrinter::foot() {
  if (std::string sums = sumsText(plan); !sums.empty())
    line(sums);
  line(plan.binding());
  if (std::string note = plan.nominalNote(); !note.empty())
    line(note);
}

} // namespace

std::string Plan::nominalNote() const {
  if (!nominal)
    return "";
  return "'" + cluster +
         "' has nominal figures (data sheets, assumptions); galvatron-profile "
         "measures a machine";
}

void Plan::print(raw_ostream &os, TableStyle style) const {
  PlanPrinter printer(*this, os, style);
  printer.head();
  os << "\n";
  printer.stages();
  os << "\n";
  printer.layers();
  os << "\n";
  printer.foot();
}

} // namespace galvatron
