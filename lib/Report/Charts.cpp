//===- Charts.cpp - The pictures of the report ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Charts.h"
#include "Svg.h"

#include "galvatron/Support/TextTable.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace llvm;

namespace galvatron::report {

namespace {

constexpr double pageWidth = 1080;
constexpr double labelWidth = 150;

std::string item(const std::string &chip, StringRef text) {
  return "<span class=\"key\"><span class=\"chip " + chip + "\"></span>" +
         escape(text) + "</span>\n";
}

std::string legend(const std::string &items) {
  return "<div class=\"legend\">" + items + "</div>\n";
}

/// Rows of a chart with one row per stage.
struct Rows {
  size_t count;
  double height, gap;
  size_t labelEvery;

  explicit Rows(size_t count) : count(count) {
    height = count <= 16 ? 24 : count <= 40 ? 16 : 11;
    gap = count <= 16 ? 6 : 2;
    labelEvery = count <= 40 ? 1 : 2;
  }
  double top(size_t row) const {
    return 6 + static_cast<double>(row) * (height + gap);
  }
  double middle(size_t row) const { return top(row) + height / 2 + 4; }
  double bottom() const { return top(count); }
};

void stageLabels(Svg &svg, const Plan &plan, const Rows &rows) {
  for (size_t s = 0; s < rows.count; s += rows.labelEvery) {
    std::string text = "stage " + std::to_string(s);
    std::string devices = deviceRange(plan.stages[s].devices);
    svg.text(0, rows.middle(s), text);
    if (devices.size() <= 11)
      svg.text(labelWidth - 12, rows.middle(s), devices, "muted", "end");
  }
}

/// Grid lines below a chart with labels.
template <typename Label>
void axis(Svg &svg, double left, double width, double bottom, double end,
          int count, Label label) {
  for (double tick : niceTicks(end, count)) {
    double x = left + width * tick / end;
    svg.line(x, 2, x, bottom, "grid");
    svg.text(x, bottom + 14, label(tick), "muted", "middle");
  }
}

} // namespace

std::string colourOf(size_t index) {
  // Dark enough for white text, light enough for a dark page.
  static const char *const colours[] = {
      "#2f6fb0", "#c05a1c", "#2d8a57", "#a2478c", "#6a55b8",
      "#94741a", "#28808f", "#b43f4b", "#5c6b7a", "#7a5238"};
  if (index < std::size(colours))
    return colours[index];
  // Steps of the golden angle never come close to an earlier hue.
  auto hue =
      static_cast<int>(std::fmod(137.508 * static_cast<double>(index), 360.0));
  return "hsl(" + std::to_string(hue) + ",45%,42%)";
}

StrategyColours::StrategyColours(const Plan &plan) {
  for (const PlanLayer &layer : plan.layers) {
    Strategy plain = layer.strategy.withCheckpoint(false);
    if (!is_contained(strategies, plain))
      strategies.push_back(plain);
  }
}

size_t StrategyColours::colourOf(const Strategy &strategy) const {
  return llvm::find(strategies, strategy.withCheckpoint(false)) -
         strategies.begin();
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

std::string layerChart(const Plan &plan, const StrategyColours &colours) {
  int64_t most = 0;
  // The place of every layer in its stage.
  std::vector<int64_t> position(plan.layers.size());
  std::vector<int64_t> held(plan.stages.size());
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    position[l] = held[plan.layers[l].stage]++;
    most = std::max(most, position[l] + 1);
  }
  Rows rows(plan.stages.size());
  double room = pageWidth - labelWidth - 80;
  double cell = std::min(90.0, room / static_cast<double>(most));
  Svg svg(pageWidth, rows.bottom() + 4, "strategies of the layers by stage");
  stageLabels(svg, plan, rows);
  bool recomputes = false;
  for (LayerRun run : plan.runs()) {
    const PlanLayer &first = plan.layers[run.begin];
    auto offset = static_cast<double>(position[run.begin]);
    double x = labelWidth + offset * cell;
    double y = rows.top(first.stage);
    double width = static_cast<double>(run.size()) * cell;
    std::string tip = plan.runName(run) + ": " + first.strategy.str();
    if (std::string what = first.kept ? first.kept->text() : ""; !what.empty())
      tip += " " + what;
    std::string colour = "c" + std::to_string(colours.colourOf(first.strategy));
    svg.rect(x, y, width, rows.height, colour, tip);
    if (first.strategy.checkpoint()) {
      svg.rect(x, y, width, rows.height, "hatch", tip);
      recomputes = true;
    }
    if (cell >= 5)
      for (size_t l = 1; l < run.size(); ++l) {
        double at = x + static_cast<double>(l) * cell;
        svg.line(at, y, at, y + rows.height, "cut");
      }
    svg.line(x, y - 1, x, y + rows.height + 1, "edge");
    std::string label = first.strategy.str();
    if (run.size() > 1)
      label += " x" + std::to_string(run.size());
    if (rows.height >= 14 && textWidth(label) + 12 < width) {
      double wide = textWidth(label) + 8;
      if (first.strategy.checkpoint() || cell >= 5)
        svg.rect(x + width / 2 - wide / 2, y + 3, wide, rows.height - 6,
                 colour);
      svg.text(x + width / 2, rows.middle(first.stage), label, "on", "middle");
    }
  }
  for (size_t s = 0; s < plan.stages.size(); s += rows.labelEvery) {
    double end = labelWidth + static_cast<double>(held[s]) * cell;
    svg.line(end, rows.top(s) - 1, end, rows.top(s) + rows.height + 1, "edge");
    svg.text(end + 8, rows.middle(s), plan.stages[s].layerText(), "muted");
  }
  std::string items;
  for (size_t c = 0; c < colours.size(); ++c)
    items += item("b" + std::to_string(c), colours.strategy(c).str());
  if (recomputes)
    items += item("hatched", "recomputed in backward (ckpt)");
  return svg.str() + legend(items);
}

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

namespace {

/// The form in which a task is drawn.
enum class Block : uint8_t { Forward, Backward, Communication, Update };

struct DrawnTask {
  Block block;
  std::string name;        ///< with its micro-batch
  int64_t microBatch = -1; ///< -1: of the whole step
  double beginMs, endMs;
};

/// Tasks by stage in order of time, without those that take no time.
using DrawnStages = std::vector<std::vector<DrawnTask>>;

DrawnStages drawnStages(const SimulationInput &input,
                        const Simulation &simulation) {
  DrawnStages stages(input.roles.size());
  for (const SimulatedActor &actor : simulation.actors)
    for (const SimulatedTask &task :
         simulatedTasks(input, actor, /*withCollectives=*/true)) {
      if (!(task.finish > task.start))
        continue;
      DrawnTask drawn;
      drawn.beginMs = task.start * 1e3;
      drawn.endMs = task.finish * 1e3;
      switch (task.task.kind) {
      case TaskKind::Forward:
      case TaskKind::Backward:
      case TaskKind::BackwardInput:
      case TaskKind::BackwardWeight:
        drawn.block = task.task.kind == TaskKind::Forward ? Block::Forward
                                                          : Block::Backward;
        drawn.microBatch = task.task.microBatch;
        drawn.name = (drawn.block == Block::Forward ? "forward" : "backward");
        if (drawn.block == Block::Forward &&
            input.program.recomputes(task.task.chunk))
          drawn.name = "recomputation";
        if (task.task.kind == TaskKind::BackwardInput)
          drawn.name = "input part of backward";
        if (task.task.kind == TaskKind::BackwardWeight)
          drawn.name = "weight part of backward";
        drawn.name += " of micro-batch " + std::to_string(drawn.microBatch);
        break;
      case TaskKind::Transfer:
        drawn.block = Block::Communication;
        drawn.name = task.task.str();
        break;
      case TaskKind::SyncGradients:
        drawn.block = Block::Communication;
        drawn.name = "gradient synchronisation";
        break;
      case TaskKind::TieReduce:
      case TaskKind::TieBroadcast:
        drawn.block = Block::Communication;
        drawn.name = "tied parameters";
        break;
      case TaskKind::Norm:
        drawn.block = Block::Update;
        drawn.name = "gradient norm";
        break;
      case TaskKind::Update:
        drawn.block = Block::Update;
        drawn.name = "update";
        break;
      case TaskKind::Swap:
        drawn.block = Block::Communication;
        drawn.name = task.task.str();
        break;
      }
      stages[actor.role].push_back(std::move(drawn));
    }
  return stages;
}

/// One part of the step, from 0 to `until`, over the whole width.
class SchedulePicture {
public:
  SchedulePicture(const Plan &plan, const DrawnStages &timeline, double until)
      : plan(plan), timeline(timeline), rows(plan.stages.size()), until(until),
        scale((pageWidth - labelWidth - 30) / until) {
    size_t shown = 0;
    for (const std::vector<DrawnTask> &tasks : timeline)
      for (const DrawnTask &task : tasks)
        shown += task.beginMs < until;
    // Shapes of their own have a tip, but cost 100 bytes each.
    detailed = shown <= 3000;
  }

  std::string draw(double predicted, bool &merged) {
    Svg svg(pageWidth, rows.bottom() + 22, "schedule of one step by stage");
    stageLabels(svg, plan, rows);
    axis(svg, labelWidth, until * scale, rows.bottom(), until, 8, timeText);
    for (size_t s = 0; s < rows.count; ++s) {
      // The stage waits, from its first task to the end of the step, where
      // nothing is drawn.
      svg.rect(labelWidth, rows.top(s), until * scale, rows.height, "idle");
      drawStage(svg, s);
    }
    for (int kind = 0; kind <= mixed; ++kind)
      if (!paths[kind].empty())
        svg.path(paths[kind], styles[kind]);
    for (const Label &label : labels)
      svg.text(label.x, label.y, label.text, "on small", "middle");
    merged |= !paths[mixed].empty();
    if (predicted > 0 && predicted <= until * (1 + 1e-9)) {
      double x = labelWidth + predicted * scale;
      svg.line(x, 0, x, rows.bottom() + 2, "limit");
    }
    return svg.str();
  }

private:
  /// The letters by Block, and the one of several of them.
  static constexpr const char *styles[] = {"forward", "backward", "sync",
                                           "update", "mix"};
  static constexpr int mixed = 4;
  struct Label {
    double x, y;
    std::string text;
  };

  void block(int style, size_t row, double x, double width) {
    std::string height = number(rows.height);
    paths[style] += "M" + number(x) + " " + number(rows.top(row)) + "h" +
                    number(width) + "v" + height + "h-" + number(width) + "z";
  }

  void drawStage(Svg &svg, size_t row) {
    // Neighbours too short to be seen apart become one block.
    double begin = -1, end = -1;
    int style = -1; // the blocks' own if they are of one kind
    auto flush = [&] {
      if (end > begin)
        block(style, row, begin, end - begin);
      begin = end = -1;
      style = -1;
    };
    for (const DrawnTask &span : timeline[row]) {
      if (span.beginMs >= until)
        break;
      double x = labelWidth + span.beginMs * scale;
      double width = (std::min(span.endMs, until) - span.beginMs) * scale;
      if (width < 2) {
        if (begin >= 0 && x - end > 1)
          flush();
        begin = begin < 0 ? x : begin;
        end = x + width;
        auto kind = static_cast<int>(span.block);
        style = style < 0 || style == kind ? kind : mixed;
        continue;
      }
      flush();
      auto kind = static_cast<int>(span.block);
      double gap = width > 5 ? 1 : 0; // neighbours stay apart
      if (!detailed) {
        block(kind, row, x, width - gap);
        continue;
      }
      svg.rect(x, rows.top(row), width - gap, rows.height, styles[kind],
               "stage " + std::to_string(row) + ": " + span.name + ", " +
                   timeText(span.beginMs) + " to " + timeText(span.endMs));
      std::string text = std::to_string(span.microBatch);
      if (span.microBatch >= 0 && rows.height >= 11 &&
          width > 0.85 * textWidth(text) + 2)
        labels.push_back({x + (width - gap) / 2, rows.middle(row) - 0.5, text});
    }
    flush();
  }

  const Plan &plan;
  const DrawnStages &timeline;
  Rows rows;
  double until, scale;
  bool detailed;
  std::string paths[mixed + 1];
  std::vector<Label> labels;
};

} // namespace

std::string scheduleChart(const Plan &plan, const SimulationInput &tasks,
                          const Simulation &simulation) {
  DrawnStages timeline = drawnStages(tasks, simulation);
  double end = simulation.seconds * 1e3;
  // The plan may have been chosen by the simulated time itself.
  double formula = simulation.predictedSeconds * 1e3;
  bool merged = false;
  std::string html = SchedulePicture(plan, timeline, std::max(end, formula))
                         .draw(formula, merged);

  double forward = 0, busiest = 0;
  for (const PlanStage &stage : plan.stages) {
    forward = std::max(forward, stage.forwardMs);
    busiest = std::max(busiest, stage.timeNosyncMs);
  }
  // The beginning again where blocks of the whole step are hard to tell apart.
  double readable = forward * (pageWidth - labelWidth - 30) / 16;
  if (readable < 0.7 * end && readable > busiest) {
    bool ignored = false;
    html += "<p class=\"note\">The first " + escape(timeText(readable)) +
            " of it, with micro-batches by number:</p>\n" +
            SchedulePicture(plan, timeline, readable).draw(formula, ignored);
  }
  std::string items = item("forward", "forward") + item("backward", "backward");
  auto shows = [&](Block block) {
    return any_of(timeline, [&](const std::vector<DrawnTask> &drawn) {
      return any_of(drawn,
                    [&](const DrawnTask &task) { return task.block == block; });
    });
  };
  if (shows(Block::Communication))
    items += item("sync", "between stages, and synchronisation");
  if (shows(Block::Update))
    items += item("update", "gradient norm and update");
  if (merged)
    items += item("mix", "several, too short to draw apart");
  items += item("idle", "bubble");
  std::string note =
      "Simulated task by task the step ends after " + timeText(end);
  if (formula > 0)
    note += "; the cost model (Eq. 9, dashed) says " + timeText(formula);
  note += ".";
  return html + legend(items) + "<p class=\"note\">" + escape(note) + "</p>\n";
}

//===----------------------------------------------------------------------===//
// Memory and time by stage
//===----------------------------------------------------------------------===//

std::string memoryChart(const Plan &plan) {
  Rows rows(plan.stages.size());
  int64_t largest = 1;
  for (const PlanStage &stage : plan.stages)
    largest = std::max({largest, stage.peakBytes, stage.availableBytes});
  double width = pageWidth - labelWidth - 190;
  double scale = width / static_cast<double>(largest);
  Svg svg(pageWidth, rows.bottom() + 6, "memory of each stage by purpose");
  stageLabels(svg, plan, rows);
  std::vector<bool> used(8, false);
  for (size_t s = 0; s < rows.count; ++s) {
    const PlanStage &stage = plan.stages[s];
    double x = labelWidth;
    svg.rect(x, rows.top(s), static_cast<double>(stage.availableBytes) * scale,
             rows.height, "idle");
    size_t part = 0;
    for (auto [name, bytes] : stage.ledger.entries()) {
      double length = static_cast<double>(bytes) * scale;
      if (bytes > 0) {
        used[part] = true;
        svg.rect(x, rows.top(s), length, rows.height,
                 "c" + std::to_string(part),
                 name.str() + " " + printBytesRounded(bytes));
      }
      x += length;
      ++part;
    }
    if (stage.availableBytes > 0) {
      double limit =
          labelWidth + static_cast<double>(stage.availableBytes) * scale;
      svg.line(limit, rows.top(s) - 2, limit, rows.top(s) + rows.height + 2,
               "limit");
    }
    if (s % rows.labelEvery == 0) {
      std::string text = printBytesRounded(stage.peakBytes);
      if (stage.availableBytes > 0)
        text += " of " + printBytesRounded(stage.availableBytes) + ", " +
                printPercent(plan.memoryFill(s));
      svg.text(labelWidth + width + 10, rows.middle(s), text);
    }
  }
  std::string items;
  size_t part = 0;
  for (auto [name, bytes] : plan.stages[0].ledger.entries()) {
    if (used[part])
      items += item("b" + std::to_string(part), name);
    ++part;
  }
  items += item("idle", "free") + item("limitkey", "budget");
  return svg.str() + legend(items);
}

std::string timeChart(const Plan &plan) {
  Rows rows(plan.stages.size());
  double width = pageWidth - labelWidth - 190;
  double scale = width / std::max(plan.iterationMs, 1e-12);
  Svg svg(pageWidth, rows.bottom() + 22, "time of each stage by purpose");
  stageLabels(svg, plan, rows);
  axis(svg, labelWidth, width, rows.bottom(), plan.iterationMs, 6, timeText);
  for (size_t s = 0; s < rows.count; ++s) {
    TimeSplit split = plan.timeSplit(s);
    double x = labelWidth;
    struct Part {
      const char *style, *name;
      double ms;
    };
    for (const Part &part :
         {Part{"forward", "computation", split.computeMs},
          Part{"sync", "exposed communication", split.communicationMs},
          Part{"update", "gradient norm and update", split.optimizerMs},
          Part{"idle", "bubble", split.bubbleMs}}) {
      double length = std::max(0.0, part.ms) * scale;
      std::string share = printPercent(part.ms / plan.iterationMs, 0);
      svg.rect(x, rows.top(s), length, rows.height, part.style,
               std::string(part.name) + " " + timeText(part.ms) + ", " + share);
      if (length > 36 && rows.height >= 14)
        svg.text(x + length / 2, rows.middle(s), share,
                 StringRef(part.style) == "idle" ? "muted" : "on", "middle");
      x += length;
    }
    if (s % rows.labelEvery == 0)
      svg.text(labelWidth + width + 10, rows.middle(s),
               timeText(plan.stages[s].timeNosyncMs) + " a micro-batch");
  }
  return svg.str() + legend(item("forward", "computation") +
                            item("sync", "exposed communication") +
                            item("update", "gradient norm and update") +
                            item("idle", "bubble"));
}

//===----------------------------------------------------------------------===//
// Memory against throughput
//===----------------------------------------------------------------------===//

std::string paretoChart(const Plan &plan, ArrayRef<ParetoPoint> front) {
  constexpr double width = 720, height = 330;
  constexpr double left = 70, right = 40, top = 20, bottom = 46;
  int64_t mine = plan.stages[plan.fullestStage()].peakBytes;
  int64_t budget = plan.stages[plan.fullestStage()].availableBytes;
  for (const PlanStage &stage : plan.stages)
    mine = std::max(mine, stage.peakBytes);
  int64_t most = std::max(mine, front.back().peakBytes);
  double fastest =
      std::max(plan.samplesPerSecond, front.back().plan.samplesPerSecond);
  // A budget far to the right would press the points together.
  if (budget < 2 * most)
    most = std::max(most, budget);
  double endX = 1.04 * static_cast<double>(most), endY = 1.08 * fastest;
  auto xOf = [&](int64_t bytes) {
    return left + (width - left - right) * static_cast<double>(bytes) / endX;
  };
  auto yOf = [&](double rate) {
    return height - bottom - (height - top - bottom) * rate / endY;
  };

  Svg svg(width, height, "largest peak memory against samples per second");
  // Memory has binary units: ticks are round in the unit that fits.
  double unit = std::pow(1024.0, std::floor(std::log2(endX) / 10));
  for (double tick : niceTicks(endX / unit, 7)) {
    double x = xOf(static_cast<int64_t>(tick * unit));
    svg.line(x, top, x, height - bottom, "grid");
    svg.text(x, height - bottom + 16,
             tick == 0 ? "0"
                       : printBytesRounded(static_cast<int64_t>(tick * unit)),
             "muted", "middle");
  }
  for (double tick : niceTicks(endY, 5)) {
    svg.line(left, yOf(tick), width - right, yOf(tick), "grid");
    svg.text(left - 8, yOf(tick) + 4, number(tick), "muted", "end");
  }
  svg.text((left + width - right) / 2, height - 8, "largest peak of any device",
           "muted", "middle");
  svg.text(left, 12, "samples/s", "muted", "end");
  if (budget > 0 && budget <= most)
    svg.line(xOf(budget), top, xOf(budget), height - bottom, "limit");

  // The plan with less memory is the best that fits between two points.
  std::string steps;
  for (const ParetoPoint &point : front) {
    std::string x = number(xOf(point.peakBytes));
    steps += steps.empty() ? "M" + x + " " : "H" + x + "V";
    steps += number(yOf(point.plan.samplesPerSecond));
  }
  steps += "H" + number(width - right);
  svg.path(steps, "front");
  for (const ParetoPoint &point : front)
    svg.circle(xOf(point.peakBytes), yOf(point.plan.samplesPerSecond), 4,
               "point",
               printBytesRounded(point.peakBytes) + ", " +
                   number(point.plan.samplesPerSecond) + " samples/s, " +
                   point.plan.summary());
  svg.circle(xOf(mine), yOf(plan.samplesPerSecond), 7, "chosen",
             "this plan: " + plan.summary());
  std::string items = item("pointkey", "best plan of that memory") +
                      item("chosenkey", "this plan");
  if (budget > 0 && budget <= most)
    items += item("limitkey", "budget");
  return svg.str() + legend(items);
}

} // namespace galvatron::report
