//===- replicas.cpp - Whether replicas hold the same values ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "session/replicas.h"
#include "checkpoint/pieces.h"
#include "core/layout.h"

#include <algorithm>
#include <map>

namespace grt {

size_t replicaNumbers(const Manifest &manifest) {
  size_t most = 0;
  for (const Role &role : manifest.roles)
    most = std::max(most, role.layers.size());
  return most;
}

void sumReplicas(const Manifest &manifest, Rank &rank,
                 std::span<uint64_t> sums) {
  const Role &role = manifest.roles[size_t(rank.roleIndex())];
  uint64_t width = manifest.elementBytes();
  for (size_t i = 0; i < role.layers.size(); ++i) {
    const Layer &layer = role.layers[i];
    for (const LayerTensor &tensor : layer.tensors) {
      if (tensor.isBorrowed())
        continue;
      forEachStretch(
          layer, tensor, rank.localRank(), [&](const TensorStretch &stretch) {
            const char *from = rank.home(layer) + layer.parameter +
                               uint64_t(stretch.held()) * width;
            rank.access(layer).read(
                from, uint64_t(stretch.count()), width,
                [&](const char *piece, uint64_t first, uint64_t count) {
                  sums[i] += elementSum(piece, stretch.held() + int64_t(first),
                                        int64_t(count), width);
                });
          });
    }
  }
}

std::string compareReplicas(const Manifest &manifest,
                            std::span<const uint64_t> sums) {
  const size_t each = replicaNumbers(manifest);
  std::string text;
  for (const Role &role : manifest.roles)
    for (size_t l = 0; l < role.layers.size(); ++l) {
      const Layer &layer = role.layers[l];
      // By what is held: values and who has them. Most are right if any are.
      std::map<std::pair<int64_t, int64_t>,
               std::map<uint64_t, std::vector<int>>>
          holders;
      for (size_t local = 0; local < role.devices.size(); ++local) {
        int rank = role.devices[local];
        holders[{
            layer.replicated ? 0 : axisIndex(layer, int(local), GRT_AXIS_TP),
            layer.cutsStateOnly ? 0
                                : axisIndex(layer, int(local), GRT_AXIS_SDP)}]
               [sums[size_t(rank) * each + l]]
                   .push_back(rank);
      }
      for (const auto &[part, values] : holders) {
        if (values.size() < 2)
          continue;
        auto most = std::max_element(values.begin(), values.end(),
                                     [](const auto &a, const auto &b) {
                                       return a.second.size() < b.second.size();
                                     });
        text += (text.empty() ? "" : "; ") + ("layer '" + layer.name + "': ");
        bool first = true;
        for (const auto &[value, ranks] : values) {
          if (value == most->first)
            continue;
          for (int rank : ranks) {
            text += (first ? "rank " : ", rank ") + std::to_string(rank);
            first = false;
          }
        }
        text +=
            " differs from rank " + std::to_string(most->second.front()) +
            (most->second.size() > 1
                 ? " and " + std::to_string(most->second.size() - 1) + " others"
                 : "");
      }
    }
  return text;
}

} // namespace grt
