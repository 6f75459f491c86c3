//===- learning_rate.h - Learning rate of a step --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_LEARNING_RATE_H
#define GRT_LEARNING_RATE_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace grt {

/// Form of the decay of the learning rate after the warm-up.
enum class Decay : uint8_t {
  Constant, ///< it does not
  Linear,
  /// Half a cosine (Loshchilov and Hutter, "SGDR", eq. 5, one period).
  Cosine,
  /// Warm-up, stable, decay (Hu et al., "MiniCPM"): linear, at the end.
  WarmupStableDecay
};

struct DecayName {
  std::string_view name;
  Decay decay;
};
inline constexpr DecayName decayNames[] = {{"constant", Decay::Constant},
                                           {"linear", Decay::Linear},
                                           {"cosine", Decay::Cosine},
                                           {"wsd", Decay::WarmupStableDecay}};

inline std::optional<Decay> parseDecay(std::string_view name) {
  for (const DecayName &known : decayNames)
    if (known.name == name)
      return known.decay;
  return std::nullopt;
}

inline std::string_view nameOf(Decay decay) {
  return decayNames[size_t(decay)].name;
}

/// Linear warm-up to `peak`, then down to `least`, as `decay` says.
struct LearningRateSchedule {
  double peak = 1e-3;
  double least = 1e-3;
  uint64_t warmupSteps = 0;
  uint64_t steps = 1; ///< of the run
  Decay decay = Decay::Cosine;
  /// Steps of the decay; 0: all after the warm-up, or the last tenth of all
  /// steps (WarmupStableDecay). It begins after the warm-up, that of
  /// WarmupStableDecay ends with the last step.
  uint64_t decaySteps = 0;

  bool operator==(const LearningRateSchedule &) const = default;

  /// Steps at the end that a decay without a length of its own takes.
  static constexpr uint64_t stablePart = 10;

  /// The last step before the decay.
  uint64_t decayBegin() const {
    if (decay != Decay::WarmupStableDecay)
      return warmupSteps;
    uint64_t length =
        decaySteps ? decaySteps : (steps + stablePart - 1) / stablePart;
    return std::max(warmupSteps, steps - std::min(steps, length));
  }
  /// The first step with `least`.
  uint64_t decayEnd() const {
    if (decay == Decay::WarmupStableDecay || !decaySteps)
      return steps;
    return warmupSteps + decaySteps;
  }

  /// `step` counts from 1.
  double at(uint64_t step) const {
    if (step <= warmupSteps)
      return peak * double(step) / double(warmupSteps);
    uint64_t begin = decayBegin(), end = decayEnd();
    if (decay == Decay::Constant || step <= begin)
      return peak;
    if (step >= end)
      return least;
    double part = double(step - begin) / double(end - begin);
    if (decay == Decay::Cosine)
      return least + 0.5 * (peak - least) * (1 + std::cos(M_PI * part));
    return peak + (least - peak) * part;
  }
};

} // namespace grt

#endif // GRT_LEARNING_RATE_H
