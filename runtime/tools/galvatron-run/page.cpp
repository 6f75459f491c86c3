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

/// The size of a picture, and the room for its axes.
constexpr double pageWidth = 760, height = 220, left = 64, right = 24,
                 bottom = 28, top = 10;

/// Pictures keep a size at which their text can be read, and scroll in a frame
/// where a screen is narrower.
constexpr const char *style =
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;"
    "padding:0 1em;color:#222;background:#fff;overflow-wrap:anywhere}"
    "h1{font-size:1.3em}h2{font-size:1.05em;margin:1.6em 0 .3em}"
    ".frame{overflow-x:auto}svg{display:block;width:100%;min-width:640px;"
    "height:auto}"
    "text{font:12px system-ui,sans-serif;fill:currentColor}"
    ".axis{stroke:currentColor;opacity:.25}.line{fill:none;stroke:#2563a8;"
    "stroke-width:1.6}.other{fill:none;stroke:#c2571a;stroke-width:1.6;"
    "stroke-dasharray:5 4}.dot{fill:#c2571a}.compute{fill:#2563a8}"
    ".communication{fill:#c2571a}.bubble{fill:#999}.idle{fill:#ccc}"
    ".planned{fill:none;stroke:currentColor}p{margin:.2em 0}"
    ".forward{fill:#2563a8;background:#2563a8}.backward{fill:#3f8f5f;"
    "background:#3f8f5f}.update{fill:#8a5fb0;background:#8a5fb0}"
    ".live{fill:#2563a8;fill-opacity:.35;background:#2563a859}"
    ".entry{white-space:nowrap;margin-right:.8em}"
    ".key{display:inline-block;width:.8em;height:.8em}"
    ".key.compute{background:#2563a8}.key.communication{background:#c2571a}"
    ".key.bubble{background:#999}.key.idle{background:#ccc}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    ".line{stroke:#7ab3e8}.other{stroke:#f0a070}.dot{fill:#f0a070}"
    ".compute{fill:#7ab3e8}.communication{fill:#f0a070}.idle{fill:#555}"
    ".live{fill:#7ab3e8;background:#7ab3e859}.key.compute{background:#7ab3e8}"
    ".key.communication{background:#f0a070}.key.idle{background:#555}}";

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

/// Round values of an axis: `step` apart, which is 1, 2 or 5 times a power of
/// ten.
struct Ticks {
  double step;

  /// Chooses at most `most` ticks in the range; `whole`: no fractions.
  Ticks(const Range &range, int most, bool whole) {
    double least = (range.high - range.low) / most;
    step = std::pow(10, std::floor(std::log10(least)));
    for (double factor : {2.0, 2.5, 2.0}) {
      if (step >= least)
        break;
      step *= factor;
    }
    if (whole)
      step = std::max(step, 1.0);
  }
  /// Return the ticks around a value: the last one up to it, the first one from
  /// it on.
  double below(double value) const {
    return std::floor(value / step + 1e-9) * step;
  }
  double above(double value) const {
    return std::ceil(value / step - 1e-9) * step;
  }
  std::string label(double value) const {
    char text[32];
    if (std::abs(value) < step / 2)
      return "0";
    if (step < 1e-4 || std::abs(value) >= 1e7)
      std::snprintf(text, sizeof(text), "%.3g", value);
    else
      std::snprintf(text, sizeof(text), "%.*f",
                    int(std::max(0.0, -std::floor(std::log10(step) + 1e-9))),
                    value);
    return text;
  }
};

/// A picture as wide as the page; `what` is for those who do not see it.
std::string picture(const std::string &what, double tall,
                    const std::string &content) {
  return "<div class='frame'><svg role='img' aria-label='" + what +
         "' viewBox='0 0 " + brief(pageWidth) + " " + brief(tall) + "'>" +
         content + "</svg></div>";
}

/// Returns an entry of the legend: a colour and its meaning.
std::string key(const char *kind, const char *meaning) {
  return std::string("<span class='entry'><span class='key ") + kind +
         "'></span> " + meaning + "</span> ";
}

/// A curve over steps with values marked beside it, or a level across it.
std::string chart(const char *what, const Points &curve, const Points &marks,
                  double level) {
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
  const Ticks steps(x, 10, /*whole=*/true), values(y, 5, /*whole=*/false);
  y.low = values.below(y.low);
  y.high = values.above(y.high);
  auto across = [&](double step) {
    return left +
           (step - x.low) / (x.high - x.low) * (pageWidth - left - right);
  };
  auto down = [&](double value) {
    return top + (y.high - value) / (y.high - y.low) * (height - top - bottom);
  };
  std::string text;
  for (double value = y.low; value < y.high + values.step / 2;
       value += values.step) {
    std::string at = brief(down(value));
    text += "<line class='axis' x1='" + brief(left) + "' x2='" +
            brief(pageWidth - right) + "' y1='" + at + "' y2='" + at +
            "'/><text text-anchor='end' x='" + brief(left - 6) + "' y='" +
            brief(down(value) + 4) + "'>" + values.label(value) + "</text>";
  }
  for (double step = steps.above(x.low); step <= x.high + 1e-9;
       step += steps.step)
    text += "<text text-anchor='middle' x='" + brief(across(step)) + "' y='" +
            brief(height - 8) + "'>" + steps.label(step) + "</text>";
  std::string path;
  for (auto [step, value] : curve)
    if (std::isfinite(value))
      path += brief(across(step)) + "," + brief(down(value)) + " ";
  text += "<polyline class='line' points='" + path + "'/>";
  if (level > 0)
    text += "<line class='other' x1='" + brief(left) + "' x2='" +
            brief(pageWidth - right) + "' y1='" + brief(down(level)) +
            "' y2='" + brief(down(level)) + "'/>";
  for (auto [step, value] : marks)
    if (std::isfinite(value))
      text += "<circle class='dot' r='3' cx='" + brief(across(step)) +
              "' cy='" + brief(down(value)) + "'><title>step " + brief(step) +
              ": " + brief(value) + "</title></circle>";
  return picture(what, height, text);
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
  std::string text = sharesBar("measured", content.measured, longest, 2);
  if (content.predicted.steps)
    text += sharesBar("predicted", content.predicted, longest, 30);
  return section("Where the time of a step goes",
                 picture("shares of a step", 60, text) + "<p>" +
                     key("compute", "compute") +
                     key("communication", "exposed communication") +
                     key("bubble", "bubble") + key("idle", "idle") + "</p>");
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
         brief(pageWidth - right) + "' y1='" + brief(at) + "' y2='" +
         brief(at) + "'/><text x='0' y='" + brief(at + tall - 4) + "'>" +
         brief(double(most) / (1 << 20)) + " MiB</text>";
}

std::string stepPicture(const StepPicture &step) {
  double longest = std::max(step.measuredMs, step.predictedMs);
  if (step.ranks.empty() || longest <= 0)
    return "";
  constexpr double tall = 16, memoryTall = 26, gap = 4;
  bool predicts = step.predictedMs > 0;
  double scale = (pageWidth - left - right) / longest, at = 2;
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
  return section(title, picture("a recorded step", at, rows) + "<p>" +
                            key("forward", "forward") +
                            key("backward", "backward") +
                            key("update", "norm and update") +
                            key("communication", "communication") +
                            key("bubble", "waiting for others") +
                            key("live", "live memory") + "</p>");
}

std::string memoryPicture(const std::vector<RankMemory> &memory) {
  uint64_t most = 1;
  for (const RankMemory &rank : memory)
    most = std::max({most, rank.plannedPeakBytes, rank.measuredPeakBytes});
  // More bars than a page has room for say no more.
  size_t shown = std::min<size_t>(memory.size(), 64);
  double row = 18;
  std::string text;
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
  text = picture("memory of the ranks", double(shown) * row + 4, text);
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
                    chart("loss", losses, content.validations, 0));
    std::string times = "Milliseconds of a step";
    if (content.predictedMs > 0)
      times += std::string(", and as predicted") +
               (content.nominal ? " from nominal figures" : "") + " (dashed)";
    text += section(times, chart("milliseconds of a step",
                                 content.milliseconds.points(), {},
                                 content.predictedMs));
    // Runs that go on without all ranks have none.
    if (Points norms = content.norms.points(); !norms.empty())
      text += section("Gradient norm", chart("gradient norm", norms, {}, 0));
    text += section("Learning rate",
                    chart("learning rate", content.rates.points(), {}, 0));
  }
  if (content.measured.steps)
    text += sharesPicture(content);
  text += stepPicture(content.step);
  if (!content.memory.empty())
    text += memoryPicture(content.memory);
  return text + "</html>\n";
}
