//===- RandomProfile.h - Random layers of a profile -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_RANDOMPROFILE_H
#define GALVATRON_UNITTESTS_RANDOMPROFILE_H

#include "RandomInstances.h"
#include "galvatron/Cost/ProfileLayerModel.h"

#include <memory>
#include <random>

namespace galvatron::test {

/// Layers that cost different things, with equal boundaries.
inline std::unique_ptr<ProfileLayerModel> randomProfile(std::mt19937_64 &random,
                                                        int64_t count) {
  std::vector<ProfileLayer> layers;
  int64_t boundary = pick(random, 1, 8) << 17;
  for (int64_t l = 0; l < count; ++l) {
    ProfileLayer layer;
    layer.name = "l" + std::to_string(l);
    layer.forwardFlops = static_cast<double>(pick(random, 20, 60)) * 1e9;
    layer.forwardMovedBytes = static_cast<double>(pick(random, 1, 5)) * 1e7;
    layer.parameterBytes = pick(random, 1, 50) << 20;
    layer.boundaryBytes = boundary;
    layer.intermediateBytes = pick(random, 1, 40) << 20;
    layer.tpAllReduceBytes = 2 * boundary;
    layers.push_back(layer);
  }
  return llvm::cantFail(
      ProfileLayerModel::get("random", "f32", std::move(layers)));
}

} // namespace galvatron::test

#endif // GALVATRON_UNITTESTS_RANDOMPROFILE_H
