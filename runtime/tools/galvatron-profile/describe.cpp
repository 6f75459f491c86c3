//===- describe.cpp - A measurement as a cluster file ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "describe.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace grt::profile {
namespace {

using Json = nlohmann::ordered_json;

std::string format(const char *pattern, double value, const char *unit = "") {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, value);
  return std::string(text) + unit;
}

/// Three significant digits and a unit: 61.2GFLOPS.
std::string quantity(double value, const char *unit) {
  struct Prefix {
    double factor;
    const char *name;
  };
  static const Prefix prefixes[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  for (const Prefix &prefix : prefixes)
    // A value that three digits round up to the next unit is written in that
    // unit.
    if (value >= 0.9995 * prefix.factor)
      return format("%.3g", value / prefix.factor) + prefix.name + unit;
  return format("%.3g", value, unit);
}

std::string duration(double seconds) {
  return seconds < 1e-3  ? format("%.3g", seconds * 1e6, "us")
         : seconds < 1.0 ? format("%.3g", seconds * 1e3, "ms")
                         : format("%.3g", seconds, "s");
}

/// Exact: in the largest unit of which it is a whole number.
std::string memorySize(int64_t bytes) {
  static const std::pair<int, const char *> units[] = {
      {30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (auto [shift, name] : units)
    if (bytes % (int64_t(1) << shift) == 0)
      return std::to_string(bytes >> shift) + name;
  return std::to_string(bytes) + "B";
}

double rounded(double value) { return std::stod(format("%.3g", value)); }

/// [[size, part of `full`], ..], sizes ascending.
Json efficiency(Measurement::Curve curve, double full) {
  std::sort(curve.begin(), curve.end());
  Json points = Json::array();
  for (auto [size, flops] : curve)
    points.push_back({rounded(size), rounded(std::min(1.0, flops / full))});
  return points;
}

/// No transfer between two ranks takes less.
constexpr double kLeastSeconds = 1e-7;

/// The times as a cluster file wants them. More bytes never take less time, and
/// none takes nothing; where they seem to, it is noise.
std::vector<std::pair<int64_t, double>> ascending(const CollectiveTimes &m) {
  std::vector<std::pair<int64_t, double>> times = m.times;
  double last = kLeastSeconds;
  for (auto &[bytes, seconds] : times)
    last = seconds = std::max(last, seconds);
  return times;
}

/// Latency and bandwidth through the first and the last point. An all-gather
/// counts as a ring: each of its steps sends one part of the result.
Json link(const CollectiveTimes &measured) {
  auto times = ascending(measured);
  auto [bytes0, seconds0] = times.front();
  auto [bytes1, seconds1] = times.back();
  bool ring = measured.kind != "send";
  double steps = ring ? measured.ranks - 1 : 1;
  double sent = ring ? steps / measured.ranks : 1;
  double perByte =
      std::max(1e-12, (seconds1 - seconds0) / double(bytes1 - bytes0));
  double latency =
      std::max(kLeastSeconds, (seconds0 - perByte * double(bytes0)) / steps);
  return {{"bandwidth", quantity(sent / perByte, "B/s")},
          {"latency", duration(latency)}};
}

/// A value inside a line of YAML.
std::string inlineText(const Json &value) {
  if (value.is_string())
    return value.get<std::string>();
  std::string text;
  if (value.is_object()) {
    for (const auto &[key, entry] : value.items())
      text += (text.empty() ? "" : ", ") + key + ": " + inlineText(entry);
    return "{" + text + "}";
  }
  if (!value.is_array())
    return value.dump();
  for (const Json &entry : value)
    text += (text.empty() ? "" : ", ") + inlineText(entry);
  return "[" + text + "]";
}

/// Returns how many ranks share a core on each of `hosts` (empty: all); 1 if
/// each has its own, or if hosts differ.
double ranksPerCore(const Measurement &m, const std::vector<int> &hosts) {
  std::map<int, int> ranks;
  for (int host : m.hosts)
    if (hosts.empty() ||
        std::find(hosts.begin(), hosts.end(), host) != hosts.end())
      ++ranks[host];
  auto coresOf = [&](int host) {
    return size_t(host) < m.ofHosts.size() ? m.ofHosts[size_t(host)].cores
                                           : m.cores;
  };
  double shared = double(ranks.begin()->second) / coresOf(ranks.begin()->first);
  for (auto [host, count] : ranks)
    if (count != ranks.begin()->second ||
        coresOf(host) != coresOf(ranks.begin()->first))
      return 1;
  return std::max(1.0, shared);
}

std::vector<int> hostsOf(const std::vector<int> &typeOf, int type) {
  std::vector<int> hosts;
  for (size_t host = 0; host < typeOf.size(); ++host)
    if (typeOf[host] == type)
      hosts.push_back(int(host));
  return hosts;
}

/// The mean figures of a type's hosts.
Measurement meanOfType(const Measurement &m, const std::vector<int> &typeOf,
                       int type) {
  std::vector<int> hosts = hostsOf(typeOf, type);
  Measurement mean = m.ofHosts[size_t(hosts.front())];
  std::vector<double> sum(figuresOf(mean).size());
  for (int host : hosts) {
    std::vector<double> figures = figuresOf(m.ofHosts[size_t(host)]);
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += figures[i] / double(hosts.size());
  }
  setFigures(mean, sum);
  return mean;
}

/// The most communicators that a rank usually has: of everybody for results,
/// messages inside stages and between them; of its groups for products, gathers
/// and two sums.
constexpr uint64_t communicatorsOfRank = 7;

/// A device type. All ranks ran at once; `shared` of them share a core. The
/// file says what one alone on its cores reaches, and how many cores there are:
/// fewer ranks than cores at work, as at the ends of a pipeline, are faster,
/// and more cores than ranks are a rank's threads.
Json describeType(const Measurement &m, double shared, const std::string &name,
                  uint64_t memory) {
  const uint64_t reserved = std::min(
      m.outsideBytes + communicatorsOfRank * m.communicatorBytes, memory - 1);
  Json flops = {{"f32", quantity(shared * m.f32Flops, "FLOPS")},
                {"f64", quantity(shared * m.f64Flops, "FLOPS")}};
  if (m.bf16Flops > 0)
    flops["bf16"] = quantity(shared * m.bf16Flops, "FLOPS");
  bool onCpu = m.backend == "cpu";
  // Devices were measured in bf16.
  double full = onCpu ? m.f32Flops : m.bf16Flops;
  Json type = {
      {"name", name},
      {"backend", onCpu ? "cpu" : "cuda"},
      {"memory", memorySize(int64_t(memory))},
      {"flops", flops},
      {"memory-bandwidth", quantity(shared * m.memoryBandwidth, "B/s")}};
  if (reserved > 0)
    type["reserved-memory"] = memorySize(int64_t(reserved));
  // A rank waits in its collectives, nothing runs beside them: an overlap
  // slowdown of 2.
  if (onCpu)
    type["overlap-slowdown"] = 2;
  type["kernel-overhead"] = duration(m.kernelOverhead / shared);
  if (m.optimizerBandwidth > 0)
    type["optimizer-bandwidth"] =
        quantity(shared * m.optimizerBandwidth, "B/s");
  type["efficiency"] = efficiency(m.products, full);
  if (!m.attention.empty())
    type["attention-efficiency"] = efficiency(m.attention, full);
  return type;
}

/// Adds the fastest link as the network, and all links as a matrix, where those
/// of pairs of hosts differ by more than a quarter. Returns whether they do.
bool addPairs(const Measurement &m, const CollectiveTimes *inside,
              Json &cluster) {
  constexpr double different = 1.25;
  auto large = [](const CollectiveTimes &times) {
    return ascending(times).back().second;
  };
  const PairTimes *fastest = nullptr, *slowest = nullptr;
  for (const PairTimes &pair : m.pairs) {
    if (!fastest || large(pair.times) < large(fastest->times))
      fastest = &pair;
    if (!slowest || large(pair.times) > large(slowest->times))
      slowest = &pair;
  }
  if (!fastest || large(slowest->times) <= different * large(fastest->times))
    return false;
  cluster["network"] = link(fastest->times);
  // Matrices have no latencies: none is promised that a pair does not keep.
  cluster["network"]["latency"] = link(slowest->times)["latency"];
  Json matrix = Json::array();
  for (int a : m.hosts) {
    Json row = Json::array();
    for (int b : m.hosts) {
      const CollectiveTimes *times = inside;
      for (const PairTimes &pair : m.pairs)
        if (std::minmax(a, b) == std::minmax(pair.first, pair.second))
          times = &pair.times;
      row.push_back(times ? link(*times)["bandwidth"] : "1GB/s");
    }
    matrix.push_back(row);
  }
  cluster["bandwidth-matrix"] = matrix;
  return true;
}

} // namespace

Json describe(const Measurement &m, uint64_t memory) {
  bool onCpu = m.backend == "cpu";
  const std::string typeName = onCpu ? "cpu-core" : "gpu";
  std::vector<int> typeOf = typesOfHosts(m);
  int count = 1;
  for (int type : typeOf)
    count = std::max(count, type + 1);
  auto nameOf = [&](int type) {
    return count > 1 ? typeName + "-" + std::to_string(type + 1) : typeName;
  };
  Json types = Json::array();
  if (count == 1)
    types.push_back(describeType(m, ranksPerCore(m, {}), typeName, memory));
  for (int type = 0; count > 1 && type < count; ++type)
    types.push_back(describeType(meanOfType(m, typeOf, type),
                                 ranksPerCore(m, hostsOf(typeOf, type)),
                                 nameOf(type), memory));

  // Ranks that cannot be paired, such as three, have no transfers of their own.
  auto find = [&](bool network) -> const CollectiveTimes * {
    for (const char *kind : {"send", "all-gather"})
      for (const CollectiveTimes &times : m.collectives)
        if (times.kind == kind && times.network == network)
          return &times;
    return nullptr;
  };
  const CollectiveTimes *across = find(true);
  // Hosts of unequal size have no groups of their own either.
  const CollectiveTimes *inside = find(false) ? find(false) : across;
  // Hosts with equally many ranks in a row are one entry.
  Json nodes = Json::array();
  for (size_t rank = 0; rank < m.hosts.size();) {
    size_t end = rank;
    while (end < m.hosts.size() && m.hosts[end] == m.hosts[rank])
      ++end;
    auto devices = int64_t(end - rank);
    auto host = size_t(m.hosts[rank]);
    int type = host < typeOf.size() ? typeOf[host] : 0;
    int cores = host < m.ofHosts.size() ? m.ofHosts[host].cores : m.cores;
    Json node = {
        {"count", 1}, {"device-type", nameOf(type)}, {"devices", devices}};
    if (inside && devices > 1)
      node["link"] = link(*inside);
    // The rates above hold where ranks share cores evenly, or not at all.
    std::vector<int> alike =
        count > 1 ? hostsOf(typeOf, type) : std::vector<int>();
    if (onCpu && (ranksPerCore(m, alike) > 1 || devices <= cores))
      node["cores"] = cores;
    Json last = nodes.empty() ? Json() : nodes.back();
    if (!last.is_null())
      last["count"] = 1;
    if (last == node)
      nodes.back()["count"] = nodes.back()["count"].get<int64_t>() + 1;
    else
      nodes.push_back(node);
    rank = end;
  }
  std::string name =
      "measured-" + std::to_string(m.hosts.size()) + (onCpu ? "xcpu" : "xgpu");
  Json cluster = {{"name", name}, {"device-types", types}, {"nodes", nodes}};
  bool unlike = addPairs(m, inside, cluster);
  if (across && !unlike)
    cluster["network"] = link(*across);
  Json tables = Json::array();
  for (const CollectiveTimes &times : m.collectives) {
    // A table is of all groups at once; groups over unlike links differ.
    if (times.network && unlike)
      continue;
    Json entry = {{"kind", times.kind}, {"ranks", times.ranks}};
    if (times.network) {
      entry["span"] = "network";
      entry["stride"] = times.stride;
    }
    entry["concurrent"] = times.concurrent;
    entry["times"] = Json::array();
    for (auto [bytes, seconds] : ascending(times))
      entry["times"].push_back({memorySize(bytes), duration(seconds)});
    tables.push_back(entry);
  }
  if (!tables.empty())
    cluster["collectives"] = tables;
  return cluster;
}

std::string toYaml(const Json &cluster, const Measurement &m) {
  std::string text;
  for (const auto &[key, value] : cluster.items()) {
    if (!value.is_array()) {
      text += key + ": " + inlineText(value) + "\n";
      continue;
    }
    text += key + ":\n";
    for (const Json &entry : value) {
      if (key == "collectives" || key == "bandwidth-matrix") {
        text += "  - " + inlineText(entry) + "\n";
        continue;
      }
      const char *lead = "  - ";
      for (const auto &[name, shown] : entry.items()) {
        text += lead + name + ": " + inlineText(shown) + "\n";
        lead = "    ";
      }
    }
  }
  if (m.backend == "cpu")
    text += "# " + std::to_string(m.threadsPerRank) + " thread" +
            (m.threadsPerRank == 1 ? "" : "s") +
            " a rank; copies beyond every cache: " +
            quantity(m.copyBandwidth, "B/s") +
            "\n# kernels at 256 x 512, all ranks at once:\n";
  else
    text +=
        (m.outsideBytes
             ? "# reserved: " + memorySize(int64_t(m.outsideBytes)) +
                   " that the context, kernels, a graph and libraries take, " +
                   (m.communicatorBytes
                        ? std::to_string(communicatorsOfRank) +
                              " communicators of " +
                              memorySize(int64_t(m.communicatorBytes)) + "\n"
                        : "and no communicators\n")
             : "") +
        "# copies: " + quantity(m.copyBandwidth, "B/s") + "\n# kernels:\n";
  for (const KernelTime &kernel : m.kernels)
    text += "#   " + kernel.name + ": " + duration(kernel.seconds) + ", " +
            quantity(kernel.bytes / kernel.seconds, "B/s") + "\n";
  return text;
}

} // namespace grt::profile
