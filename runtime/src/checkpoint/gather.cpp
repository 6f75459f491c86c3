//===- gather.cpp - Global views of what ranks hold -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/gather.h"
#include "core/error.h"
#include "core/init.h"

#include <algorithm>
#include <cstring>

namespace grt {
namespace {

/// Calls `visit(layer, rank, run)` for every run of the parameter that any rank
/// holds in the group.
template <typename Visit>
void forEachHolder(const Manifest &manifest,
                   std::span<const std::unique_ptr<Rank>> ranks, int parameter,
                   int group, Visit visit) {
  for (const std::unique_ptr<Rank> &rank : ranks)
    for (const Layer &layer : manifest.roles[rank->roleIndex()].layers)
      for (const LayerTensor &tensor : layer.tensors)
        if (tensor.parameter == parameter && tensor.group == group)
          forEachRun(layer, tensor, rank->localRank(),
                     [&](const TensorRun &run) { visit(layer, *rank, run); });
}

} // namespace

grt_dtype heldType(const Manifest &manifest, Held) {
  // Of parameters that are rounded copies the master weights are the value.
  return manifest.accumulatorType();
}

std::vector<Held> stateKinds(const Manifest &manifest) {
  if (manifest.optimizerStates() == 1)
    return {Held::FirstState};
  return {Held::FirstState, Held::SecondState};
}

const char *stateSuffix(const Manifest &manifest, Held kind) {
  if (kind == Held::SecondState)
    return ".v";
  return manifest.optimizerStates() == 1 ? ".momentum" : ".m";
}

char *heldBase(const Manifest &manifest, const Rank &rank, const Layer &layer,
               Held kind) {
  switch (kind) {
  case Held::Parameter:
    return rank.memory() + (manifest.hasMasterWeights()
                                ? manifest.masterOffset(layer)
                                : layer.parameter);
  case Held::Gradient:
    return rank.memory() + layer.gradient;
  case Held::FirstState:
    return rank.memory() + layer.optimizer;
  case Held::SecondState:
    break;
  }
  return rank.memory() + layer.optimizer +
         uint64_t(layer.groups[0].shardElements) *
             dtypeBytes(heldType(manifest, kind));
}

bool ownsTensor(const Layer &layer, const LayerTensor &tensor, int localRank) {
  return tensor.group == 0 && axisIndex(layer, localRank, GRT_AXIS_DP) == 0 &&
         (tensor.tpDim >= 0 || axisIndex(layer, localRank, GRT_AXIS_TP) == 0);
}

std::vector<int> storedParameters(const Manifest &manifest) {
  std::vector<int> stored;
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers)
      for (const LayerTensor &tensor : layer.tensors)
        if (tensor.group == 0)
          stored.push_back(tensor.parameter);
  std::sort(stored.begin(), stored.end(), [&](int a, int b) {
    return manifest.parameters[a].name < manifest.parameters[b].name;
  });
  return stored;
}

std::vector<char> gatherTensor(const Manifest &manifest,
                               std::span<const std::unique_ptr<Rank>> ranks,
                               int parameter, Held kind) {
  uint64_t width = dtypeBytes(heldType(manifest, kind));
  std::vector<char> whole(uint64_t(manifest.parameters[parameter].elements()) *
                          width);
  forEachHolder(
      manifest, ranks, parameter, /*group=*/0,
      [&](const Layer &layer, const Rank &rank, const TensorRun &run) {
        // Replicas are equal; the first speaks for all.
        if (axisIndex(layer, rank.localRank(), GRT_AXIS_DP) != 0)
          return;
        std::memcpy(whole.data() + uint64_t(run.global) * width,
                    heldBase(manifest, rank, layer, kind) +
                        uint64_t(run.held) * width,
                    uint64_t(run.count) * width);
      });
  return whole;
}

void scatterTensor(const Manifest &manifest,
                   std::span<const std::unique_ptr<Rank>> ranks, int parameter,
                   std::span<const double> values) {
  for (int group : {0, 1})
    forEachHolder(
        manifest, ranks, parameter, group,
        [&](const Layer &layer, const Rank &rank, const TensorRun &run) {
          storeValues(values.data() + run.global, run.count, manifest.dtype,
                      rank.memory() + layer.parameter +
                          uint64_t(run.held) * manifest.elementBytes());
          if (group == 0 && manifest.hasMasterWeights())
            storeValues(values.data() + run.global, run.count,
                        manifest.accumulatorType(),
                        rank.memory() + manifest.masterOffset(layer) +
                            uint64_t(run.held) * manifest.accumulatorBytes());
        });
}

} // namespace grt
