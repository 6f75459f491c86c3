//===- page.cpp - A run as one page of HTML -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace grt;

namespace {

using Points = std::vector<std::pair<double, double>>;

/// Of a picture, and the room for its axes.
constexpr double pageWidth = 760, height = 220, left = 64, bottom = 28,
                 top = 10;

constexpr const char *style =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;"
    "padding:0 1em;color:#222;background:#fff}h1{font-size:1.3em}"
    "h2{font-size:1.05em;margin:1.6em 0 .3em}svg{width:100%;height:auto}"
    "text{font:12px system-ui,sans-serif;fill:currentColor}"
    ".axis{stroke:currentColor;opacity:.25}.line{fill:none;stroke:#2563a8;"
    "stroke-width:1.6}.other{fill:none;stroke:#c2571a;stroke-width:1.6;"
    "stroke-dasharray:5 4}.dot{fill:#c2571a}.compute{fill:#2563a8}"
    ".communication{fill:#c2571a}.bubble{fill:#999}.idle{fill:#ccc}"
    ".planned{fill:none;stroke:currentColor}p{margin:.2em 0}"
    ".forward{fill:#2563a8;background:#2563a8}.backward{fill:#3f8f5f;"
    "background:#3f8f5f}.update{fill:#8a5fb0;background:#8a5fb0}"
    ".live{fill:#2563a8;fill-opacity:.35;background:#2563a859}"
    ".key{display:inline-block;width:.8em;height:.8em;margin-left:.8em}"
    ".key.communication{background:#c2571a}.key.bubble{background:#999}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    ".line{stroke:#7ab3e8}.other{stroke:#f0a070}.dot{fill:#f0a070}"
    ".compute{fill:#7ab3e8}.communication{fill:#f0a070}.idle{fill:#555}"
    ".key.communication{background:#f0a070}}";

std::string brief(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string escaped(const std::string &text) {
  std::string result;
  for (char c : text)
    switch (c) {
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '&':
      result += "&amp;";
      break;
    default:
      result += c;
    }
  return result;
}

/// The range of an axis; never empty.
struct Range {
  double low = INFINITY, high = -INFINITY;

  void take(double value) {
    if (!std::isfinite(value))
      return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen() {
    if (!(low <= high))
      low = high = 0;
    if (low == high) {
      low -= std::max(1e-9, std::abs(low) * 0.05);
      high += std::max(1e-9, std::abs(high) * 0.05);
    }
  }
};

/// A curve over steps with values marked beside it, or a level across it.
std::string chart(const Points &curve, const Points &marks, double level) {
  Range x, y;
  for (const Points *points : {&curve, &marks})
    for (auto [step, value] : *points) {
      x.take(step);
      y.take(value);
    }
  if (level > 0)
    y.take(level);
  x.widen();
  y.widen();
  auto across = [&](double step) {
    return left + (step - x.low) / (x.high - x.low) * (pageWidth - left - 10);
  };
  auto down = [&](double value) {
    return top + (y.high - value) / (y.high - y.low) * (height - top - bottom);
  };
  std::string text =
      "<svg viewBox='0 0 " + brief(pageWidth) + " " + brief(height) + "'>";
  for (int i = 0; i <= 4; ++i) {
    double value = y.low + (y.high - y.low) * i / 4;
    std::string at = brief(down(value));
    text += "<line class='axis' x1='" + brief(left) + "' x2='" +
            brief(pageWidth - 10) + "' y1='" + at + "' y2='" + at +
            "'/><text text-anchor='end' x='" + brief(left - 6) + "' y='" +
            brief(down(value) + 4) + "'>" + brief(value) + "</text>";
    double step = x.low + (x.high - x.low) * i / 4;
    text += "<text text-anchor='middle' x='" + brief(across(step)) + "' y='" +
            brief(height - 8) + "'>" + brief(std::round(step)) + "</text>";
  }
  std::string path;
  for (auto [step, value] : curve)
    if (std::isfinite(value))
      path += brief(across(step)) + "," + brief(down(value)) + " ";
  text += "<polyline class='line' points='" + path + "'/>";
  if (level > 0)
    text += "<line class='other' x1='" + brief(left) + "' x2='" +
            brief(pageWidth - 10) + "' y1='" + brief(down(level)) + "' y2='" +
            brief(down(level)) + "'/>";
  for (auto [step, value] : marks)
    if (std::isfinite(value))
      text += "<circle class='dot' r='3' cx='" + brief(across(step)) +
              "' cy='" + brief(down(value)) + "'><title>step " + brief(step) +
              ": " + brief(value) + "</title></circle>";
  return text + "</svg>";
}

std::string section(const std::string &title, const std::string &body) {
  return "<h2>" + title + "</h2>" + body + "\n";
}

/// A bar as long as the step, on the scale of the longer one.
std::string sharesBar(const char *label, const TimeShares &shares,
                      double longest, double at) {
  struct Part {
    const char *kind, *name;
    double share;
  };
  const Part parts[] = {
      {"compute", "compute", shares.compute},
      {"communication", "exposed communication", shares.exposedCommunication},
      {"bubble", "bubble", shares.bubble},
      {"idle", "idle", shares.idle}};
  double scale = (pageWidth - 180) / longest, x = 90;
  std::string text =
      "<text x='0' y='" + brief(at + 15) + "'>" + label + "</text>";
  for (const Part &part : parts) {
    double length = part.share * shares.milliseconds * scale;
    text += std::string("<rect class='") + part.kind + "' x='" + brief(x) +
            "' y='" + brief(at) + "' width='" + brief(std::max(0.0, length)) +
            "' height='20'><title>" + part.name + ": " +
            brief(100 * part.share) + "%</title></rect>";
    x += length;
  }
  return text + "<text x='" + brief(x + 6) + "' y='" + brief(at + 15) + "'>" +
         brief(shares.milliseconds) + " ms</text>";
}

std::string sharesPicture(const PageContent &content) {
  double longest = content.measured.milliseconds;
  if (content.predicted.steps)
    longest = std::max(longest, content.predicted.milliseconds);
  if (longest <= 0)
    return "";
  std::string text = "<svg viewBox='0 0 " + brief(pageWidth) + " 60'>" +
                     sharesBar("measured", content.measured, longest, 2);
  if (content.predicted.steps)
    text += sharesBar("predicted", content.predicted, longest, 30);
  return section("A step: compute, exposed communication, bubble, idle",
                 text + "</svg>");
}

/// Spans of one row; communication is drawn over the lower half, as it may run
/// beside computation.
std::string spansRow(const std::vector<StepPicture::Span> &spans, double scale,
                     double at, double tall) {
  static const char *const kinds[] = {"forward", "backward", "update",
                                      "communication", "bubble"};
  static const char *const names[] = {"forward", "backward", "norm and update",
                                      "communication", "waiting for others"};
  std::string text;
  for (const StepPicture::Span &span : spans) {
    bool moves = span.kind >= StepPicture::Kind::Communication;
    auto kind = size_t(span.kind);
    text += std::string("<rect class='") + kinds[kind] + "' x='" +
            brief(left + span.begin * scale) + "' y='" +
            brief(at + (moves ? tall / 2 : 0)) + "' width='" +
            brief(std::max(0.3, (span.end - span.begin) * scale)) +
            "' height='" + brief(moves ? tall / 2 : tall) + "'><title>" +
            names[kind] + ", " + brief(span.begin) + " to " + brief(span.end) +
            " ms</title></rect>";
  }
  return text;
}

/// Live bytes over the step, below a line at what is planned.
std::string memoryRow(const StepPicture::Rank &rank, double scale, double at,
                      double tall) {
  if (rank.memory.empty() || !rank.plannedBytes)
    return "";
  auto down = [&](uint64_t bytes) {
    return at + tall * (1 - double(bytes) / double(rank.plannedBytes));
  };
  std::string path = brief(left + rank.memory.front().first * scale) + "," +
                     brief(at + tall) + " ";
  uint64_t most = 0;
  for (auto [time, bytes] : rank.memory) {
    path += brief(left + time * scale) + "," + brief(down(bytes)) + " ";
    most = std::max(most, bytes);
  }
  path +=
      brief(left + rank.memory.back().first * scale) + "," + brief(at + tall);
  return "<polygon class='live' points='" + path +
         "'/><line class='other' x1='" + brief(left) + "' x2='" +
         brief(pageWidth - 10) + "' y1='" + brief(at) + "' y2='" + brief(at) +
         "'/><text x='0' y='" + brief(at + tall - 4) + "'>" +
         brief(double(most) / (1 << 20)) + " MiB</text>";
}

std::string stepPicture(const StepPicture &step) {
  double longest = std::max(step.measuredMs, step.predictedMs);
  if (step.ranks.empty() || longest <= 0)
    return "";
  constexpr double tall = 16, memoryTall = 26, gap = 4;
  bool predicts = step.predictedMs > 0;
  double scale = (pageWidth - left - 10) / longest, at = 2;
  std::string rows;
  for (const StepPicture::Rank &rank : step.ranks) {
    rows += "<text x='0' y='" + brief(at + 12) + "'>rank " +
            std::to_string(rank.rank) + "</text>" +
            spansRow(rank.measured, scale, at, tall);
    at += tall + gap;
    if (predicts) {
      rows += "<text x='0' y='" + brief(at + 12) + "'>predicted</text>" +
              spansRow(rank.predicted, scale, at, tall);
      at += tall + gap;
    }
    rows += memoryRow(rank, scale, at, memoryTall);
    at += memoryTall + 3 * gap;
  }
  std::string title =
      "Step " + std::to_string(step.step) + ", a rank of each stage: " +
      (predicts ? "measured, predicted, memory (planned: dashed); "
                : "measured, memory (planned: dashed); ") +
      brief(step.measuredMs) + " ms" +
      (predicts ? ", predicted " + brief(step.predictedMs) + " ms" : "");
  return section(title, "<svg viewBox='0 0 " + brief(pageWidth) + " " +
                            brief(at) + "'>" + rows +
                            "</svg><p><span class='key forward'></span> "
                            "forward <span class='key backward'></span> "
                            "backward <span class='key update'></span> norm "
                            "and update <span class='key "
                            "communication'></span> communication <span "
                            "class='key bubble'></span> waiting for others "
                            "<span class='key live'></span> live memory</p>");
}

std::string memoryPicture(const std::vector<RankMemory> &memory) {
  uint64_t most = 1;
  for (const RankMemory &rank : memory)
    most = std::max({most, rank.plannedPeakBytes, rank.measuredPeakBytes});
  // More bars than a page has room for say no more.
  size_t shown = std::min<size_t>(memory.size(), 64);
  double row = 18;
  std::string text = "<svg viewBox='0 0 " + brief(pageWidth) + " " +
                     brief(double(shown) * row + 4) + "'>";
  for (size_t i = 0; i < shown; ++i) {
    const RankMemory &rank = memory[i];
    double scale = (pageWidth - 240) / double(most), y = double(i) * row + 2;
    text +=
        "<text x='0' y='" + brief(y + 12) + "'>rank " +
        std::to_string(rank.rank) +
        "</text><rect class='compute' x='70' "
        "y='" +
        brief(y) + "' width='" + brief(double(rank.measuredPeakBytes) * scale) +
        "' height='14'/><rect class='planned' x='70' y='" + brief(y) +
        "' width='" + brief(double(rank.plannedPeakBytes) * scale) +
        "' height='14'/><text x='" +
        brief(80 +
              double(std::max(rank.plannedPeakBytes, rank.measuredPeakBytes)) *
                  scale) +
        "' y='" + brief(y + 12) + "'>" +
        brief(double(rank.measuredPeakBytes) / (1 << 20)) + " of " +
        brief(double(rank.plannedPeakBytes) / (1 << 20)) + " MiB</text>";
  }
  text += "</svg>";
  if (shown < memory.size())
    text += "<p>and " + std::to_string(memory.size() - shown) + " more</p>";
  return section("Memory of the ranks: measured (filled), planned (frame)",
                 text);
}

} // namespace

void Series::add(uint64_t step, double value) {
  if (sums.empty() || sums.back().count >= each) {
    if (sums.size() == most) {
      for (size_t i = 0; i < most / 2; ++i) {
        const Sum &a = sums[2 * i], &b = sums[2 * i + 1];
        sums[i] = {a.steps + b.steps, a.values + b.values, a.count + b.count};
      }
      sums.resize(most / 2);
      each *= 2;
    }
    sums.emplace_back();
  }
  Sum &last = sums.back();
  last.steps += double(step);
  last.values += value;
  ++last.count;
}

Points Series::points() const {
  Points result;
  for (const Sum &sum : sums)
    result.emplace_back(sum.steps / double(sum.count),
                        sum.values / double(sum.count));
  return result;
}

std::string pageText(const PageContent &content) {
  std::string text =
      "<!doctype html><html lang='en'><meta charset='utf-8'><meta "
      "name='viewport' content='width=device-width'><title>" +
      escaped(content.title) + "</title><style>" + style + "</style><h1>" +
      escaped(content.title) + "</h1>\n";
  for (const std::string &fact : content.facts)
    text += "<p>" + escaped(fact) + "</p>\n";
  Points losses = content.losses.points();
  if (!losses.empty()) {
    text += section(content.validations.empty()
                        ? "Loss"
                        : "Loss (line) and validation loss (dots)",
                    chart(losses, content.validations, 0));
    std::string times = "Milliseconds of a step";
    if (content.predictedMs > 0)
      times += std::string(", and as predicted") +
               (content.nominal ? " from nominal figures" : "") + " (dashed)";
    text += section(
        times, chart(content.milliseconds.points(), {}, content.predictedMs));
    text += section("Gradient norm", chart(content.norms.points(), {}, 0));
    text += section("Learning rate", chart(content.rates.points(), {}, 0));
  }
  if (content.measured.steps)
    text += sharesPicture(content);
  text += stepPicture(content.step);
  if (!content.memory.empty())
    text += memoryPicture(content.memory);
  return text + "</html>\n";
}
