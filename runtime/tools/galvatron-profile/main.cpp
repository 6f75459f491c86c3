//===- main.cpp - galvatron-profile: measures a machine
//--------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "core/error.h"
#include "measure.h"
#include "options.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

using namespace grt;
using namespace grt::profile;

namespace {

/// Three significant digits and a unit: 61.2GFLOPS.
std::string quantity(double value, const char *unit) {
  struct Prefix {
    double factor;
    const char *name;
  };
  static const Prefix prefixes[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  char text[64];
  for (const Prefix &prefix : prefixes)
    if (value >= prefix.factor) {
      std::snprintf(text, sizeof(text), "%.3g%s%s", value / prefix.factor,
                    prefix.name, unit);
      return text;
    }
  std::snprintf(text, sizeof(text), "%.3g%s", value, unit);
  return text;
}

std::string microseconds(double seconds) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3gus", seconds * 1e6);
  return text;
}

/// Exact where the size is a whole number of a unit.
std::string memorySize(uint64_t bytes) {
  if (bytes % (uint64_t(1) << 30) == 0)
    return std::to_string(bytes >> 30) + "GiB";
  if (bytes % (uint64_t(1) << 20) == 0)
    return std::to_string(bytes >> 20) + "MiB";
  return std::to_string(bytes) + "B";
}

uint64_t defaultMemory(int ranks) {
  uint64_t machine =
      uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  uint64_t share = machine / 4 * 3 / uint64_t(ranks);
  return std::max<uint64_t>(share >> 20, 1) << 20;
}

/// The cluster's description; every value as the file shows it. A rank waits in
/// its collectives, nothing runs beside them: an overlap slowdown of 2.
nlohmann::ordered_json describe(const Measurement &m, uint64_t memory) {
  nlohmann::ordered_json type = {
      {"name", "cpu-core"},
      {"backend", "cpu"},
      {"memory", memorySize(memory)},
      {"flops",
       {{"f32", quantity(m.f32Flops, "FLOPS")},
        {"f64", quantity(m.f64Flops, "FLOPS")}}},
      {"memory-bandwidth", quantity(m.memoryBandwidth, "B/s")},
      {"overlap-slowdown", 2},
      {"kernel-overhead", microseconds(m.kernelOverhead)}};
  nlohmann::ordered_json node = {
      {"count", 1}, {"device-type", "cpu-core"}, {"devices", m.ranks}};
  if (m.ranks > 1)
    node["link"] = {{"bandwidth", quantity(m.linkBandwidth, "B/s")},
                    {"latency", microseconds(m.linkLatency)}};
  return {{"name", "measured-" + std::to_string(m.ranks) + "xcpu"},
          {"device-types", nlohmann::ordered_json::array({type})},
          {"nodes", nlohmann::ordered_json::array({node})}};
}

/// One "{a: x, b: y}".
std::string inlineMap(const nlohmann::ordered_json &map) {
  std::string text = "{";
  for (const auto &[key, value] : map.items())
    text +=
        (text.size() > 1 ? ", " : "") + key + ": " + value.get<std::string>();
  return text + "}";
}

std::string toYaml(const nlohmann::ordered_json &cluster) {
  std::string text = "name: " + cluster["name"].get<std::string>() + "\n";
  for (const char *list : {"device-types", "nodes"}) {
    text += std::string(list) + ":\n";
    for (const auto &entry : cluster[list]) {
      const char *lead = "  - ";
      for (const auto &[key, value] : entry.items()) {
        std::string shown = value.is_object()   ? inlineMap(value)
                            : value.is_string() ? value.get<std::string>()
                                                : value.dump();
        text += lead + key + ": " + shown + "\n";
        lead = "    ";
      }
    }
  }
  return text;
}

void write(const std::string &path, const std::string &text) {
  std::FILE *file = path == "-" ? stdout : std::fopen(path.c_str(), "w");
  if (!file)
    fail("cannot write '" + path + "'");
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good = (path == "-" ? std::fflush(file) : std::fclose(file)) == 0 && good;
  if (!good)
    fail("cannot write '" + path + "'");
}

void run(const Options &options) {
  int ranks = options.ranks
                  ? options.ranks
                  : std::max(1, int(std::thread::hardware_concurrency()));
  double seconds =
      options.seconds > 0 ? options.seconds : (options.quick ? 2 : 10);
  Measurement measurement = measure(ranks, seconds);
  nlohmann::ordered_json cluster = describe(
      measurement, options.memory ? options.memory : defaultMemory(ranks));
  if (options.output != "-" || options.json != "-")
    write(options.output, toYaml(cluster));
  if (!options.json.empty())
    write(options.json, cluster.dump(2) + "\n");
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  Status status = parseOptions(argc - 1, argv + 1, options);
  if (status && options.help) {
    std::fputs(helpText(), stdout);
    return 0;
  }
  if (status && options.version) {
    std::printf("galvatron-profile %s\n", version());
    return 0;
  }
  if (status)
    status = guarded([&] { run(options); });
  if (!status)
    std::fprintf(stderr, "galvatron-profile: error: %s\n",
                 status.message().c_str());
  return status.exitCode();
}
