//===- Svg.cpp - Inline pictures ------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Svg.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace llvm;

namespace galvatron::report {

std::string escape(StringRef text) {
  std::string safe;
  for (char c : text) {
    switch (c) {
    case '&':
      safe += "&amp;";
      break;
    case '<':
      safe += "&lt;";
      break;
    case '>':
      safe += "&gt;";
      break;
    case '"':
      safe += "&quot;";
      break;
    default:
      // Control characters are not allowed in a page.
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

std::string number(double value) {
  std::string text = formatv("{0:F2}", value).str();
  StringRef trimmed = StringRef(text).rtrim('0');
  trimmed.consume_back(".");
  return trimmed == "-0" ? "0" : trimmed.str();
}

std::string timeText(double ms) {
  auto three = [](double value) {
    int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
    std::string text = decimals == 0   ? formatv("{0:F0}", value).str()
                       : decimals == 1 ? formatv("{0:F1}", value).str()
                                       : formatv("{0:F2}", value).str();
    return text;
  };
  if (ms == 0)
    return "0";
  if (ms >= 1000)
    return three(ms / 1000) + " s";
  if (ms >= 0.1)
    return three(ms) + " ms";
  return three(ms * 1000) + " us";
}

std::vector<double> niceTicks(double end, int count) {
  if (end <= 0)
    return {0};
  double raw = end / count;
  double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0})
    if (step = factor * power; step >= raw)
      break;
  std::vector<double> ticks;
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i)
    ticks.push_back(i * step);
  return ticks;
}

Svg::Svg(double width, double height, StringRef description) {
  std::string size = number(width), tall = number(height);
  head = "<div class=\"scroll\"><svg width=\"" + size + "\" height=\"" + tall +
         "\" viewBox=\"0 0 " + size + " " + tall +
         "\" role=\"img\" aria-label=\"" + escape(description) + "\">\n";
}

static std::string element(StringRef name, const std::string &attributes,
                           StringRef style, StringRef tip) {
  std::string text = "<" + name.str() + attributes;
  if (!style.empty())
    text += " class=\"" + style.str() + "\"";
  if (tip.empty())
    return text + "/>\n";
  return text + "><title>" + escape(tip) + "</title></" + name.str() + ">\n";
}

static std::string attribute(StringRef name, double value) {
  return " " + name.str() + "=\"" + number(value) + "\"";
}

void Svg::rect(double x, double y, double width, double height, StringRef style,
               StringRef tip) {
  body += element("rect",
                  attribute("x", x) + attribute("y", y) +
                      attribute("width", width) + attribute("height", height),
                  style, tip);
}

void Svg::line(double x1, double y1, double x2, double y2, StringRef style) {
  body += element("line",
                  attribute("x1", x1) + attribute("y1", y1) +
                      attribute("x2", x2) + attribute("y2", y2),
                  style, "");
}

void Svg::circle(double x, double y, double radius, StringRef style,
                 StringRef tip) {
  body +=
      element("circle",
              attribute("cx", x) + attribute("cy", y) + attribute("r", radius),
              style, tip);
}

void Svg::text(double x, double y, StringRef content, StringRef style,
               StringRef anchor) {
  body += "<text" + attribute("x", x) + attribute("y", y);
  if (anchor != "start")
    body += " text-anchor=\"" + anchor.str() + "\"";
  if (!style.empty())
    body += " class=\"" + style.str() + "\"";
  body += ">" + escape(content) + "</text>\n";
}

void Svg::path(StringRef data, StringRef style) {
  body += element("path", " d=\"" + data.str() + "\"", style, "");
}

std::string Svg::str() const { return head + body + "</svg></div>\n"; }

} // namespace galvatron::report
