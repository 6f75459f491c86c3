//===- doubts.cpp - What a measurement cannot be --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "doubts.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

namespace grt::profile {
namespace {

/// Less than a part of one core is what every system does beside.
constexpr double quietCores = 0.25;
/// Repeated measurements of a quiet machine differ by less.
constexpr double noise = 0.25;
/// Even a cache line takes this long from one core to another.
constexpr double leastSeconds = 1e-7;

std::string number(const char *pattern, double value) {
  char text[32];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

} // namespace

ProcessorTicks parseTicks(const std::string &stat) {
  std::istringstream line(stat.substr(0, stat.find('\n')));
  std::string name;
  ProcessorTicks ticks;
  if (!(line >> name) || name != "cpu")
    return ticks;
  // user nice system idle iowait irq softirq steal; what follows is in user.
  double value = 0;
  for (int i = 0; i < 8 && line >> value; ++i) {
    ticks.all += value;
    if (i != 3 && i != 4)
      ticks.busy += value;
  }
  return ticks;
}

double busyCores(const ProcessorTicks &before, const ProcessorTicks &after,
                 int cores) {
  double all = after.all - before.all;
  return all > 0 ? (after.busy - before.busy) / all * cores : 0;
}

double busyCoresNow() {
  auto look = [] {
    std::ifstream file("/proc/stat");
    std::string line;
    std::getline(file, line);
    return parseTicks(line);
  };
  ProcessorTicks before = look();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  return busyCores(before, look(),
                   std::max(1, int(std::thread::hardware_concurrency())));
}

/// Adds the doubt that other processes were at work beside the measurement;
/// `effect` says what that does to its numbers.
static void doubtOthers(double busyCores, const char *effect,
                        std::vector<std::string> &found) {
  if (busyCores > quietCores)
    found.push_back("other processes kept " + number("%.1f", busyCores) +
                    " of the machine's cores at work before the measurement: "
                    "its " +
                    effect + ", and differ from run to run");
}

std::vector<std::string> doubts(const LayerProfile &profile,
                                double othersBusy) {
  std::vector<std::string> found;
  doubtOthers(othersBusy, "times are too long", found);
  int64_t slower = 0;
  double most = 0;
  for (const auto &[size, measurement] : profile.measured) {
    double seconds = 0;
    for (const LayerSeconds &layer : measurement.seconds)
      seconds += layer.forward + layer.backward;
    if (seconds < most * (1 - noise))
      found.push_back("micro-batches of " + std::to_string(size) +
                      " are quicker than those of " + std::to_string(slower) +
                      ", which is noise");
    if (seconds > most) {
      most = seconds;
      slower = size;
    }
  }
  return found;
}

std::vector<std::string> doubts(const Measurement &m, double othersBusy) {
  std::vector<std::string> found;
  doubtOthers(othersBusy, "figures are too low", found);
  for (const CollectiveTimes &collective : m.collectives) {
    std::string name =
        collective.kind + " of " + std::to_string(collective.ranks) + " ranks";
    bool nothing = false;
    int64_t slower = 0, quicker = 0;
    double most = 0;
    int64_t mostBytes = 0;
    for (auto [bytes, seconds] : collective.times) {
      nothing |= seconds < leastSeconds;
      if (seconds < most * (1 - noise)) {
        slower = mostBytes;
        quicker = bytes;
      }
      if (seconds > most) {
        most = seconds;
        mostBytes = bytes;
      }
    }
    if (nothing)
      found.push_back(name + ": seems to take no time, which is noise; it is "
                             "written as 0.1us");
    if (quicker)
      found.push_back(name + ": " + std::to_string(quicker) +
                      " bytes are quicker than " + std::to_string(slower) +
                      ", which is noise; both are written with the longer "
                      "time");
  }
  auto curve = [&](const Measurement::Curve &points, const char *what) {
    Measurement::Curve sorted = points;
    std::sort(sorted.begin(), sorted.end());
    double best = 0, at = 0;
    for (auto [size, flops] : sorted) {
      if (flops < best * (1 - noise)) {
        found.push_back(std::string(what) + ": size " + number("%.3g", size) +
                        " is much slower than size " + number("%.3g", at));
        return;
      }
      if (flops > best) {
        best = flops;
        at = size;
      }
    }
  };
  curve(m.products, "products");
  curve(m.attention, "attention");
  if (m.f32Flops > 0 && m.f64Flops > m.f32Flops * (1 + noise))
    found.push_back("products in f64 are quicker than in f32, which no "
                    "processor is");
  return found;
}

} // namespace grt::profile
