//===- like_layers.h - Layers that differ in names alone --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_LIKE_LAYERS_H
#define GRT_CORE_LIKE_LAYERS_H

#include "core/manifest.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

namespace grt {

/// The layers of a role by what checks of their functions depend on. A model
/// has one block many times over, and one of each is checked.
class LikeLayers {
public:
  explicit LikeLayers(const Manifest &manifest) : manifest(manifest) {}

  /// Adds a layer. False if one like it was added before: with the same
  /// functions, samples, ranks and data, and tensors in the same places that
  /// decay as its do.
  bool add(const Layer &layer) {
    std::vector<const Layer *> &others =
        byFunctions[{layer.forward, layer.recompute, layer.backward,
                     layer.weight, layer.norm, layer.update}];
    for (const Layer *other : others)
      if (areLike(layer, *other))
        return false;
    others.push_back(&layer);
    return true;
  }

private:
  bool areLike(const Layer &one, const Layer &other) const {
    return one.samples == other.samples &&
           one.forwardOnly == other.forwardOnly &&
           one.replicated == other.replicated &&
           one.cutsStateOnly == other.cutsStateOnly && one.data == other.data &&
           std::ranges::equal(one.levels, other.levels,
                              [](const Level &a, const Level &b) {
                                return a.axis == b.axis &&
                                       a.degree == b.degree &&
                                       a.stride == b.stride &&
                                       a.cutsPositions == b.cutsPositions;
                              }) &&
           std::ranges::equal(one.groups, other.groups,
                              [](const FlatGroup &a, const FlatGroup &b) {
                                return a.elements == b.elements &&
                                       a.shardElements == b.shardElements;
                              }) &&
           std::ranges::equal(one.tensors, other.tensors,
                              [&](const LayerTensor &a, const LayerTensor &b) {
                                return a.group == b.group &&
                                       a.offset == b.offset &&
                                       a.tpDim == b.tpDim &&
                                       a.localShape == b.localShape &&
                                       decays(a) == decays(b);
                              });
  }

  bool decays(const LayerTensor &tensor) const {
    return manifest.parameters[size_t(tensor.parameter)].decay;
  }

  const Manifest &manifest;
  std::map<std::array<int, 6>, std::vector<const Layer *>> byFunctions;
};

} // namespace grt

#endif // GRT_CORE_LIKE_LAYERS_H
