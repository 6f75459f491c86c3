//===- Nodes.cpp - A plan's stages on the nodes of a cluster --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Charts.h"
#include "Svg.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

using namespace llvm;

namespace galvatron::report {

namespace {

/// The number that fits a page that is looked at; the rest is counted.
constexpr int64_t kMostNodes = 64;
constexpr double kWidth = 1080, kLabels = 250, kUplinks = 150;
constexpr double kRow = 30, kBox = 22, kWidestBox = 36;
/// Colours of the page; neighbouring stages differ.
constexpr size_t kColours = 8;

std::string rateText(double bytesPerSecond) {
  return formatv("{0:f2} GB/s", bytesPerSecond / 1e9).str();
}

} // namespace

std::string nodeChart(const Plan &plan, const Cluster &cluster) {
  std::vector<int64_t> stageOf(cluster.deviceCount(), -1);
  for (auto [s, stage] : enumerate(plan.stages))
    for (int64_t device : stage.devices)
      stageOf[device] = static_cast<int64_t>(s);
  int64_t shown = std::min(cluster.nodeCount(), kMostNodes);
  Svg svg(kWidth, kRow * static_cast<double>(shown) + 4,
          "stages on the devices of each node, with the speed of links");
  int64_t device = 0;
  for (int64_t node = 0; node < shown; ++node) {
    const NodeGroup &group = cluster.nodeGroups()[cluster.nodeGroupOf(device)];
    double top = kRow * static_cast<double>(node) + 4;
    double middle = top + kBox / 2 + 4;
    std::string label =
        formatv("node {0}: {1} x {2}", node, group.devices, group.deviceType);
    if (group.devices > 1)
      label +=
          ", " + rateText(cluster.linkBetween(device, device + 1).bandwidth);
    svg.text(0, middle, label);
    double width = std::min(kWidestBox, (kWidth - kLabels - kUplinks) /
                                            static_cast<double>(group.devices));
    for (int64_t i = 0; i < group.devices; ++i, ++device) {
      double x = kLabels + width * static_cast<double>(i);
      int64_t stage = stageOf[device];
      std::string name =
          stage < 0 ? "no stage" : "stage " + std::to_string(stage);
      svg.rect(x, top, width - 2, kBox,
               stage < 0 ? "idle" : "c" + std::to_string(stage % kColours),
               "device " + std::to_string(device) + ", " + name);
      std::string digits = std::to_string(stage);
      if (stage >= 0 && textWidth(digits) < width - 2)
        svg.text(x + (width - 2) / 2, middle, digits, "on", "middle");
    }
    if (cluster.nodeCount() > 1 && !cluster.hasBandwidthMatrix()) {
      const Link &uplink =
          group.network ? *group.network : *cluster.networkLink();
      svg.text(kWidth - kUplinks + 6, middle,
               rateText(uplink.bandwidth) + " to others", "muted");
    }
  }
  std::string html = "<div class=\"scroll\">" + svg.str() + "</div>\n";
  if (shown < cluster.nodeCount())
    html += formatv("<p class=\"note\">{0} more nodes are not drawn.</p>\n",
                    cluster.nodeCount() - shown);
  if (cluster.hasBandwidthMatrix())
    html += "<p class=\"note\">Links have the bandwidths of the cluster's "
            "matrix; beside a node stands that of its first two devices.</p>\n";
  return html;
}

} // namespace galvatron::report
