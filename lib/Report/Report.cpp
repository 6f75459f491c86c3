//===- Report.cpp - A plan as one page of HTML ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Charts.h"
#include "Svg.h"

#include "galvatron/Report/Report.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Rate.h"
#include "galvatron/Support/TextTable.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace galvatron {

using namespace report;

namespace {

constexpr StringLiteral styleSheet = R"css(
:root { color-scheme: light dark; --bg: #ffffff; --fg: #1c2024; --muted: #667080;
  --line: #d9dee4; --idle: #e9ecf0; --panel: #f6f7f9; --accent: #2f6fb0; }
@media (prefers-color-scheme: dark) { :root { --bg: #15181c; --fg: #e6e9ec; --muted: #97a1ad;
  --line: #333a42; --idle: #262c33; --panel: #1d2126; --accent: #6da6dd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 20px 60px; max-width: 1140px; background: var(--bg);
  color: var(--fg); font: 14px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 34px 0 8px; }
.sub, .note { color: var(--muted); margin: 0 0 8px; }
.facts { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0 0; padding: 0; }
.facts div { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: 8px 14px; }
.facts dt { color: var(--muted); font-size: 12px; }
.facts dd { margin: 0; font-size: 17px; font-variant-numeric: tabular-nums; }
.binding { border-left: 3px solid var(--accent); padding: 4px 12px; margin: 16px 0 0; }
.scroll { overflow: auto; max-height: 85vh; }
@media print { .scroll { max-height: none; } }
svg { display: block; }
svg text { font: 11.5px system-ui, "DejaVu Sans", sans-serif; fill: var(--fg);
  font-variant-numeric: tabular-nums; }
svg text.muted { fill: var(--muted); }
svg text.on { fill: #ffffff; pointer-events: none; }
svg text.small { font-size: 9.5px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0; }
.key { display: inline-flex; align-items: center; gap: 6px; font-size: 12.5px; }
.chip { width: 14px; height: 14px; border-radius: 3px; display: inline-block; }
.grid { stroke: var(--line); stroke-width: 1; }
.cut { stroke: #ffffff; stroke-opacity: .3; stroke-width: 1; }
.edge { stroke: var(--bg); stroke-width: 2; }
.limit { stroke: #d03a3a; stroke-width: 2; stroke-dasharray: 5 3; }
.limitkey { width: 0; border-left: 2px dashed #d03a3a; border-radius: 0; }
.hatch { fill: url(#hatch); pointer-events: none; }
.hatched { background: repeating-linear-gradient(45deg, var(--muted) 0 2px,
  var(--idle) 2px 6px); }
.idle { fill: var(--idle); background: var(--idle); }
.forward { fill: #2f6fb0; background: #2f6fb0; }
.backward { fill: #b3741b; background: #b3741b; }
.sync { fill: #a2478c; background: #a2478c; }
.update { fill: #2d8a57; background: #2d8a57; }
.mix { fill: #77736a; background: #77736a; }
.front { fill: none; stroke: var(--accent); stroke-width: 2; }
.point { fill: var(--accent); }
.pointkey { background: var(--accent); border-radius: 50%; width: 9px; height: 9px; }
.chosen { fill: none; stroke: #d0742a; stroke-width: 3; }
.chosenkey { border: 3px solid #d0742a; border-radius: 50%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 16px 3px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 500; font-size: 12.5px; }
td.n, th.n { text-align: right; white-space: nowrap; }
code { font: 12.5px ui-monospace, "DejaVu Sans Mono", monospace; }
footer { margin-top: 40px; color: var(--muted); font-size: 12.5px; overflow-wrap: anywhere; }
)css";

/// A table; headings that begin with '>' are of columns of numbers.
class HtmlTable {
public:
  explicit HtmlTable(std::vector<std::string> headings) {
    html = "<div class=\"scroll\"><table><tr>";
    for (const std::string &heading : headings) {
      numeric.push_back(StringRef(heading).starts_with(">"));
      html += cell("th", numeric.back(), StringRef(heading).ltrim('>'));
    }
    html += "</tr>\n";
  }

  void row(const std::vector<std::string> &cells) {
    html += "<tr>";
    for (size_t c = 0; c < cells.size(); ++c)
      html += cell("td", numeric[c], cells[c]);
    html += "</tr>\n";
  }

  std::string str() const { return html + "</table></div>\n"; }

private:
  static std::string cell(StringRef tag, bool number, StringRef content) {
    return "<" + tag.str() + (number ? " class=\"n\">" : ">") +
           escape(content) + "</" + tag.str() + ">";
  }

  std::string html;
  std::vector<bool> numeric;
};

std::string rateText(const Plan &plan) {
  return ::galvatron::rateText(plan.samplesPerSecond);
}

std::string fact(StringRef name, StringRef value) {
  return "<div><dt>" + escape(name) + "</dt><dd>" + escape(value) +
         "</dd></div>\n";
}

std::string heading(StringRef text) {
  return "<h2>" + escape(text) + "</h2>\n";
}

std::string header(const Plan &plan) {
  std::string html =
      "<h1>" + escape("Plan for " + plan.model) + "</h1>\n<p class=\"sub\">" +
      escape("on " + plan.cluster + ", space " + plan.space + ", " +
             plan.training.dtype + ", " + plan.training.optimizer + "; " +
             std::to_string(plan.layers.size()) + " layers") +
      "</p>\n<dl class=\"facts\">\n";
  int64_t devices = 0;
  for (const PlanStage &stage : plan.stages)
    devices += static_cast<int64_t>(stage.devices.size());
  const PlanStage &full = plan.stages[plan.fullestStage()];
  html += fact("throughput", rateText(plan) + " samples/s");
  if (plan.tokensPerSecond() > 0)
    html += fact("tokens", printCountRounded(plan.tokensPerSecond()) + "/s");
  if (plan.flopsPerDevice() > 0)
    html += fact("a device", printFlopsRounded(plan.flopsPerDevice()));
  if (plan.utilisation() > 0)
    html += fact("MFU", printPercent(plan.utilisation()));
  if (plan.parameters > 0)
    html += fact("parameters",
                 printCountRounded(static_cast<double>(plan.parameters)));
  html += fact("iteration", timeText(plan.iterationMs));
  std::string cut = std::to_string(plan.microBatches);
  if (plan.shape().regroups())
    cut += ", forward in " + std::to_string(plan.forwardMicroBatches);
  html += fact("batch", std::to_string(plan.batch) + " in " + cut);
  html += fact("stages", std::to_string(plan.pipelineDegree) + ", " +
                             plan.schedule->name().str());
  html += fact("devices", std::to_string(devices));
  html +=
      fact(plan.exactPeak ? "largest peak (exact)" : "largest peak (estimate)",
           printBytesRounded(full.peakBytes) + " of " +
               printBytesRounded(full.availableBytes));
  html += "</dl>\n<p class=\"binding\">" + escape(plan.binding()) + "</p>\n";
  if (std::string note = plan.nominalNote(); !note.empty())
    html += "<p class=\"sub\">" + escape(note) + "</p>\n";
  return html;
}

std::string layerTable(const Plan &plan) {
  HtmlTable table(
      {"layers", ">stage", "strategy", ">time of a micro-batch", ">memory"});
  for (LayerRun run : plan.runs()) {
    double time = 0;
    int64_t memory = 0;
    for (size_t l = run.begin; l < run.end; ++l) {
      time += plan.layers[l].timeMs;
      memory += plan.layers[l].memoryBytes;
    }
    const PlanLayer &first = plan.layers[run.begin];
    table.row({plan.runName(run), std::to_string(first.stage),
               first.strategy.str(), timeText(time),
               printBytesRounded(memory)});
  }
  return table.str();
}

/// The values kept by layers that keep a part of them.
std::string keptNotes(const Plan &plan) {
  std::string html;
  for (const std::string &text : plan.keptTexts())
    html += "<p class=\"sub\">" + escape(text) + "</p>\n";
  return html;
}

std::string frontTable(ArrayRef<ParetoPoint> front) {
  HtmlTable table({">largest peak", ">samples/s", "plan"});
  for (const ParetoPoint &point : front)
    table.row({printBytesRounded(point.peakBytes), rateText(point.plan),
               point.plan.summary()});
  return table.str();
}

std::string explanationTables(const Explanation &explanation,
                              const Plan &plan) {
  std::string html =
      heading("Runners-up at batch " + std::to_string(plan.batch));
  auto add = [](HtmlTable &table, const Alternative &alternative,
                const Plan &reference) {
    if (alternative.plan)
      table.row({alternative.what, rateText(*alternative.plan),
                 printChange(throughputChange(reference, *alternative.plan)),
                 alternative.plan->summary()});
    else
      table.row({alternative.what, "-", "-", alternative.reason});
  };
  HtmlTable runners({"best with", ">samples/s", ">change", "plan"});
  runners.row({"(this plan)", rateText(plan), "", plan.summary()});
  for (const Alternative &alternative : explanation.runnersUp)
    add(runners, alternative, plan);
  html += runners.str();
  if (!explanation.samePlan.empty())
    html += "<p class=\"note\">" +
            escape("The same plan: " + join(explanation.samePlan, ", ")) +
            "</p>\n";
  html += heading("What would change it");
  HtmlTable changes({"with", ">samples/s", ">change", "plan"});
  for (const Alternative &alternative : explanation.changes)
    add(changes, alternative, explanation.base);
  return html + changes.str();
}

} // namespace

std::string htmlReport(const ReportInput &input) {
  const Plan &plan = input.plan;
  StrategyColours colours(plan);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>" +
      escape("plan for " + plan.model) + "</title>\n<style>" + styleSheet.str();
  // Pictures colour shapes by fill, legends by background.
  for (size_t c = 0; c < std::max<size_t>(colours.size(), 8); ++c)
    html += ".c" + std::to_string(c) + " { fill: " + colourOf(c) + "; } .b" +
            std::to_string(c) + " { background: " + colourOf(c) + "; }\n";
  html += "</style>\n</head>\n<body>\n"
          "<svg width=\"0\" height=\"0\" style=\"position:absolute\" "
          "aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"6\" "
          "height=\"6\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><line x1=\"1\" y1=\"0\" x2=\"1\" "
          "y2=\"6\" stroke=\"#ffffff\" stroke-opacity=\"0.45\" "
          "stroke-width=\"2\"/></pattern></defs></svg>\n";
  html += header(plan);
  html += heading("The plan over the layers") + layerChart(plan, colours);
  html += "<details><summary>As a table</summary>\n" + layerTable(plan) +
          "</details>\n" + keptNotes(plan);
  if (input.cluster)
    html +=
        heading("The stages on the nodes") + nodeChart(plan, *input.cluster);
  html += heading("The schedule of one step") +
          scheduleChart(plan, input.tasks, input.simulation);
  html += heading("Where the time goes") + timeChart(plan);
  html += heading("Where the memory goes") + memoryChart(plan);
  if (!input.front.empty()) {
    html += heading("Memory against throughput") +
            paretoChart(plan, input.front) + frontTable(input.front);
  }
  if (input.explanation)
    html += explanationTables(*input.explanation, plan);
  html += "<footer>" +
          escape("galvatron " + plan.toolVersion + ", model " + plan.modelHash +
                 ", cluster " + plan.clusterHash +
                 (plan.profileHash.empty() ? ""
                                           : ", profile " + plan.profileHash)) +
          "</footer>\n</body>\n</html>\n";
  return html;
}

} // namespace galvatron
