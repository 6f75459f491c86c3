//===- gather.cpp - Global views of what ranks hold -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/gather.h"
#include "base/error.h"
#include "core/init.h"

#include <algorithm>
#include <map>

namespace grt {

grt_dtype heldType(const Manifest &manifest, Held kind) {
  if (kind == Held::Older || kind == Held::Frozen)
    return manifest.dtype;
  // The master weights are the value of parameters that are rounded copies.
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
  // Runs count elements of the PARAMETER region.
  int64_t shift = stateShift(layer, rank.localRank()) *
                  int64_t(dtypeBytes(heldType(manifest, kind)));
  switch (kind) {
  case Held::Parameter:
    return rank.home(layer) +
           (manifest.hasMasterWeights()
                ? int64_t(manifest.masterOffset(layer)) + shift
                : int64_t(layer.parameter));
  case Held::Frozen:
    return rank.home(layer) + layer.parameter;
  case Held::Gradient:
    return rank.home(layer) + layer.gradient;
  case Held::FirstState:
    return rank.home(layer) + int64_t(layer.optimizer) + shift;
  case Held::Older:
    return rank.home(layer) + layer.parameter +
           manifest.versionStride(rank.role());
  case Held::SecondState:
    break;
  }
  return rank.home(layer) + int64_t(layer.optimizer) + shift +
         layer.ownedElements() * int64_t(dtypeBytes(heldType(manifest, kind)));
}

bool ownsTensor(const Layer &layer, const LayerTensor &tensor, int localRank) {
  return !tensor.isBorrowed() &&
         axisIndex(layer, localRank, GRT_AXIS_DP) == 0 &&
         (tensor.tpDim >= 0 || axisIndex(layer, localRank, GRT_AXIS_TP) == 0);
}

std::vector<StoredParameter> storedParameters(const Manifest &manifest,
                                              Held kind) {
  std::vector<StoredParameter> stored = storedParameters(manifest);
  if (kind != Held::Parameter)
    std::erase_if(stored,
                  [](const StoredParameter &one) { return one.isFrozen; });
  return stored;
}

GatherPart gatherPart(const Manifest &manifest, int rank, int parameter) {
  GatherPart part;
  std::map<int, ExchangePeer> receives;
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers)
      for (const LayerTensor &tensor : layer.tensors) {
        if (tensor.parameter != parameter || tensor.isBorrowed())
          continue;
        for (size_t local = 0; local < role.devices.size(); ++local) {
          int holder = role.devices[local];
          // Replicas are equal; the first speaks for all.
          if ((rank != 0 && rank != holder) ||
              axisIndex(layer, int(local), GRT_AXIS_DP) != 0)
            continue;
          ExchangePeer send{0, {}};
          forEachRun(layer, tensor, int(local), [&](const TensorRun &run) {
            if (run.owned)
              send.rows.push_back({run.held, run.global, run.count});
          });
          if (send.rows.empty())
            continue;
          if (rank == 0) {
            ExchangePeer &receive = receives[holder];
            receive.peer = holder;
            for (const ExchangeRow &row : send.rows)
              receive.rows.push_back({row.peerUnit, row.localUnit, row.units});
          }
          if (rank != holder)
            continue;
          part.table.sends.push_back(std::move(send));
          part.layer = &layer;
        }
      }
  for (auto &[holder, receive] : receives)
    part.table.receives.push_back(std::move(receive));
  return part;
}

void scatterTensor(const Manifest &manifest, const Rank &rank, int parameter,
                   std::span<const double> values) {
  for (const Layer &layer : manifest.roles[rank.roleIndex()].layers)
    for (const LayerTensor &tensor : layer.tensors) {
      if (tensor.parameter != parameter)
        continue;
      forEachStretch(
          layer, tensor, rank.localRank(), [&](const TensorStretch &stretch) {
            auto store = [&](grt_dtype dtype, uint64_t base, int64_t shift) {
              uint64_t width = dtypeBytes(dtype);
              rank.access(layer).write(
                  rank.home(layer) + base +
                      uint64_t(stretch.held() + shift) * width,
                  uint64_t(stretch.count()), width,
                  [&](char *to, uint64_t first, uint64_t count) {
                    stretch.forParts(int64_t(first), int64_t(count),
                                     [&](const TensorRun &part, uint64_t at) {
                                       storeValues(values.data() + part.global,
                                                   part.count, dtype,
                                                   to + at * width);
                                     });
                  });
            };
            store(manifest.dtype, layer.parameter, 0);
            if (tensor.isTrained() && stretch.owned() &&
                manifest.hasMasterWeights())
              store(manifest.accumulatorType(), manifest.masterOffset(layer),
                    stateShift(layer, rank.localRank()));
          });
    }
}

const char *heldOnHost(const Manifest &manifest, const Rank &rank,
                       const GatherPart &part, Held kind,
                       std::vector<char> &copy) {
  const char *held = heldBase(manifest, rank, *part.layer, kind);
  Device &access = rank.access(*part.layer);
  if (!access)
    return held;
  uint64_t width = dtypeBytes(heldType(manifest, kind)), end = 0;
  for (const ExchangePeer &send : part.table.sends)
    for (const ExchangeRow &row : send.rows)
      end = std::max(end, uint64_t(row.localUnit + row.units) * width);
  copy.resize(end);
  // Rows that lie behind each other together.
  int64_t first = 0, last = 0;
  auto fetch = [&] {
    access.download(copy.data() + uint64_t(first) * width,
                    held + uint64_t(first) * width,
                    uint64_t(last - first) * width);
  };
  for (const ExchangePeer &send : part.table.sends)
    for (const ExchangeRow &row : send.rows) {
      if (row.localUnit != last) {
        fetch();
        first = row.localUnit;
      }
      last = row.localUnit + row.units;
    }
  fetch();
  return copy.data();
}

} // namespace grt
