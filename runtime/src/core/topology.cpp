//===- topology.cpp - Ranks and links beside those of the plan ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/topology.h"
#include "base/error.h"
#include "core/layout.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

namespace grt {

std::string bandwidthText(double bytes) {
  const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g%s", bytes, units[unit]);
  return text;
}

namespace {

/// A level whose groups are of one node of the plan, and of several hosts.
struct Crossing {
  const Layer *layer = nullptr;
  const Level *level = nullptr;
};

std::string nameOf(const Layer &layer, const Level &level) {
  const char *kind = level.axis == GRT_AXIS_TP    ? "tp"
                     : level.axis != GRT_AXIS_SDP ? "dp"
                     : layer.cutsStateOnly        ? "zdp"
                                                  : "sdp";
  const char *ofPositions = level.axis != GRT_AXIS_SDP ? "cp"
                            : layer.cutsStateOnly      ? "zcp"
                                                       : "scp";
  return (level.cutsPositions ? ofPositions : kind) + str(level.degree);
}

/// How often a level sends in a step: those in the middle of a layer first.
int weightOf(const Level &level) {
  return level.axis == GRT_AXIS_TP || level.cutsPositions ? 2
         : level.axis == GRT_AXIS_SDP                     ? 1
                                                          : 0;
}

/// The one that sends most; no layer if it is messages between stages alone.
Crossing findCrossing(const Manifest &manifest, const std::vector<int> &nodes,
                      const RunHosts &hosts) {
  Crossing found;
  for (const Role &role : manifest.roles) {
    std::set<std::string> seen;
    for (const Layer &layer : role.layers) {
      if (!seen.insert(layer.strategy).second)
        continue;
      for (const Level &level : layer.levels) {
        if (level.axis == GRT_AXIS_TP && layer.replicated)
          continue;
        if (found.level && weightOf(level) <= weightOf(*found.level))
          continue;
        for (size_t local = 0; local < role.devices.size(); ++local) {
          // The next member of its group.
          const auto at = int64_t(local) / level.stride % level.degree;
          if (at + 1 == level.degree)
            continue;
          const auto one = size_t(role.devices[local]);
          const auto other = size_t(role.devices[local + size_t(level.stride)]);
          if (nodes[one] == nodes[other] &&
              hosts.ofRank[one] != hosts.ofRank[other]) {
            found = {&layer, &level};
            break;
          }
        }
      }
    }
  }
  return found;
}

/// The node of each rank; all on one if the program does not say.
std::vector<int> nodesOrOne(const Manifest &manifest) {
  std::vector<int> nodes = manifest.nodeOfRank();
  if (nodes.empty())
    nodes.resize(size_t(manifest.world), 0);
  return nodes;
}

/// Bytes per second of each node's devices to each other, and of its link to
/// other nodes.
std::vector<std::pair<double, double>> bandwidths(const Manifest &manifest) {
  std::vector<std::pair<double, double>> result;
  for (const PlannedNodes &group : manifest.nodes)
    result.insert(result.end(), size_t(group.count),
                  {group.bandwidth, group.networkBandwidth});
  return result;
}

/// Fills in where the groups are, and what the plan has for them: groups that
/// leave a node share its link to the others, and one with several members
/// there is no faster than they are.
void priceLink(const Manifest &manifest, PlannedLink &link) {
  const std::vector<int> nodes = nodesOrOne(manifest);
  const std::vector<std::pair<double, double>> known = bandwidths(manifest);
  std::map<int, int> leaving; ///< groups, by node
  double least = 0;
  auto bound = [&](double bandwidth) {
    if (bandwidth > 0)
      least = least > 0 ? std::min(least, bandwidth) : bandwidth;
  };
  for (const std::vector<int> &group : link.groups) {
    std::map<int, int> members;
    for (int rank : group)
      ++members[nodes[size_t(rank)]];
    link.inside &= members.size() == 1;
    for (auto [node, count] : members) {
      leaving[node] += members.size() > 1;
      if (count > 1 && !known.empty())
        bound(known[size_t(node)].first);
    }
  }
  for (auto [node, count] : leaving)
    if (count > 0 && !known.empty())
      bound(known[size_t(node)].second / count);
  link.bandwidth = least;
}

/// Neighbouring stages, each device beside that of the same place; those of
/// boundaries that share no stage together.
std::vector<std::vector<std::vector<int>>>
stagePairs(const Manifest &manifest) {
  std::vector<std::vector<std::vector<int>>> result(2);
  for (size_t stage = 0; stage + 1 < manifest.roles.size(); ++stage) {
    const std::vector<int> &from = manifest.roles[stage].devices;
    const std::vector<int> &to = manifest.roles[stage + 1].devices;
    for (size_t i = 0; i < std::min(from.size(), to.size()); ++i)
      if (from[i] != to[i])
        result[stage % 2].push_back({from[i], to[i]});
  }
  return result;
}

} // namespace

std::vector<PlannedLink> plannedLinks(const Manifest &manifest) {
  std::vector<PlannedLink> links;
  std::set<std::vector<std::vector<int>>> known;
  std::map<std::string, std::vector<std::vector<int>>> levels;
  std::vector<std::string> order;
  for (const Role &role : manifest.roles) {
    std::set<std::string> seen; ///< of this role: they share ranks otherwise
    for (const Layer &layer : role.layers)
      for (const Level &level : layer.levels) {
        const std::string name = nameOf(layer, level) + " " + str(level.stride);
        if (level.degree < 2 || !seen.insert(name).second)
          continue;
        if (!levels.count(name))
          order.push_back(name);
        for (size_t local = 0; local < role.devices.size(); ++local)
          if (int64_t(local) / level.stride % level.degree == 0)
            levels[name].push_back(
                axisRanks(role, layer, int(local), level.axis));
      }
  }
  auto add = [&](const std::string &name,
                 std::vector<std::vector<int>> groups) {
    if (groups.empty() || !known.insert(groups).second)
      return;
    links.push_back({name, std::move(groups)});
    priceLink(manifest, links.back());
  };
  for (const std::string &name : order)
    add(name.substr(0, name.find(' ')), levels[name]);
  for (auto &pairs : stagePairs(manifest))
    add("stages", std::move(pairs));
  return links;
}

std::string misplacedText(const Manifest &manifest, const RunHosts &hosts) {
  const std::vector<int> nodes = manifest.nodeOfRank();
  if (nodes.empty() || nodes.size() != hosts.ofRank.size() ||
      keepsNodes(hosts.ofRank, nodes))
    return "";
  // The first node that is on several hosts.
  std::vector<int> ranks, where;
  for (size_t first = 0; first < nodes.size() && where.size() < 2;) {
    ranks.clear();
    where.clear();
    const int node = nodes[first];
    for (; first < nodes.size() && nodes[first] == node; ++first) {
      ranks.push_back(int(first));
      if (std::find(where.begin(), where.end(), hosts.ofRank[first]) ==
          where.end())
        where.push_back(hosts.ofRank[first]);
    }
  }
  std::string names;
  for (size_t i = 0; i < where.size(); ++i) {
    if (i == 4) {
      names += " and " + str(where.size() - i) + " more";
      break;
    }
    names += std::string(i == 0                  ? ""
                         : i + 1 == where.size() ? " and "
                                                 : ", ") +
             "'" + hosts.names[size_t(where[i])] + "'";
  }
  std::string text = "ranks " + rankRanges(ranks) +
                     " are one node of the plan and on hosts " + names;
  if (hosts.sought)
    text += ", and no other numbering of the processes puts each node on one "
            "host";
  const Crossing crossing = findCrossing(manifest, nodes, hosts);
  text += crossing.layer
              ? ": " + nameOf(*crossing.layer, *crossing.level) +
                    " of layer '" + crossing.layer->name +
                    "' was priced inside a node and goes between hosts"
              : ": messages between stages were priced inside a node and go "
                "between hosts";
  double inside = 0, between = 0;
  int64_t rank = 0;
  for (const PlannedNodes &group : manifest.nodes) {
    if (rank <= ranks.front())
      // All devices of the node send to others at the same time.
      inside = group.bandwidth,
      between = group.networkBandwidth / double(group.devices);
    rank += group.count * group.devices;
  }
  if (inside > 0)
    text += ", at " + bandwidthText(inside) + " in the plan";
  if (between > 0 && inside > between) {
    char times[32];
    std::snprintf(times, sizeof(times), "%.2g", inside / between);
    text += ", which has " + bandwidthText(between) +
            " for each device between nodes (" + times + " times less)";
  }
  return text;
}

} // namespace grt
