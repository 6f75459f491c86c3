//===- HarmonyInstances.h - Profiles for tests of Harmony -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_HARMONYINSTANCES_H
#define GALVATRON_UNITTESTS_HARMONYINSTANCES_H

#include "RandomInstances.h"

#include "galvatron/Cost/HarmonyProfile.h"

namespace galvatron {

/// A profile whose costs are straight lines through the origin, or through
/// `fixed` where there are weights; sizes 1 and `most` are measured.
struct LinearProfile {
  std::vector<double> seconds; ///< forward, per sample; backward takes thrice
  std::vector<double> inputBytes;
  std::vector<int64_t> weightBytes;
  double keptBytes = 0; ///< per sample and layer, besides the input
  int64_t most = 64;

  HarmonyProfile get() const {
    size_t layers = seconds.size();
    std::array<HarmonyMeasurements, 2> measurements;
    for (size_t d = 0; d < 2; ++d) {
      measurements[d].sizes = {1, most};
      for (int64_t size : measurements[d].sizes) {
        auto samples = static_cast<double>(size);
        measurements[d].seconds.emplace_back();
        measurements[d].bytes.emplace_back();
        for (size_t l = 0; l < layers; ++l) {
          measurements[d].seconds.back().push_back(seconds[l] * samples *
                                                   (d ? 3 : 1));
          measurements[d].bytes.back().push_back(
              static_cast<double>(weightBytes[l]) * (d ? 2 : 1) +
              (inputBytes[l] + keptBytes) * samples);
        }
      }
    }
    std::vector<int64_t> buffers(layers, 0), state;
    std::vector<double> intercept(layers, 0), update;
    for (int64_t bytes : weightBytes) {
      state.push_back(2 * bytes);
      update.push_back(static_cast<double>(bytes) * 1e-9);
    }
    return llvm::cantFail(HarmonyProfile::get(
        "linear", std::move(measurements), inputBytes, std::move(intercept),
        weightBytes, std::move(buffers), std::move(state), std::move(update)));
  }

  /// Layers all alike.
  static LinearProfile alike(size_t layers) {
    LinearProfile profile;
    profile.seconds.assign(layers, 0.01);
    profile.inputBytes.assign(layers, 1000);
    profile.weightBytes.assign(layers, 1'000'000);
    return profile;
  }

  /// Anything goes: no weights, no input, no time, sizes far apart.
  static LinearProfile random(std::mt19937_64 &random, size_t layers) {
    LinearProfile profile;
    for (size_t l = 0; l < layers; ++l) {
      profile.seconds.push_back(static_cast<double>(pick(random, 0, 5)) *
                                0.004);
      profile.inputBytes.push_back(static_cast<double>(pick(random, 0, 3)) *
                                   1e6);
      profile.weightBytes.push_back(pick(random, 0, 4) * 40'000'000);
    }
    profile.keptBytes = 2e6;
    return profile;
  }
};

} // namespace galvatron

#endif // GALVATRON_UNITTESTS_HARMONYINSTANCES_H
