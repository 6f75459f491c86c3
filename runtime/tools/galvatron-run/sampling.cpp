//===- sampling.cpp - Which token comes next ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "sampling.h"

#include "grt/philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

int32_t sampleToken(std::span<const double> logits, const Sampling &sampling,
                    uint64_t place) {
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  // The first of equal logits comes first, as the greedy choice has it.
  auto isBefore = [&](int32_t a, int32_t b) {
    return logits[size_t(a)] != logits[size_t(b)]
               ? logits[size_t(a)] > logits[size_t(b)]
               : a < b;
  };
  size_t kept = tokens.size();
  if (sampling.topK)
    kept = std::min<size_t>(kept, sampling.topK);
  if (sampling.isGreedy())
    kept = 1;
  std::partial_sort(tokens.begin(), tokens.begin() + std::ptrdiff_t(kept),
                    tokens.end(), isBefore);
  if (kept == 1)
    return tokens.front();

  std::vector<double> weights(kept);
  double sum = 0;
  for (size_t i = 0; i < kept; ++i)
    sum += weights[i] =
        std::exp((logits[size_t(tokens[i])] - logits[size_t(tokens.front())]) /
                 sampling.temperature);
  double most = sum * sampling.topP, part = 0;
  for (size_t i = 0; i < kept && sampling.topP < 1; ++i) {
    part += weights[i];
    if (part < most)
      continue;
    kept = i + 1;
    sum = part;
  }

  // A stream of its own, apart from weights, dropout and samples; 53 bits.
  grt::PhiloxKey key = grt::philoxKey(sampling.seed, 0x67656e6572617465ull);
  grt::PhiloxBlock block =
      grt::philox(key, uint32_t(place), uint32_t(place >> 32), 0, 0);
  uint64_t bits = uint64_t(block.lane[0]) << 21 ^ block.lane[1] >> 11;
  double drawn = std::ldexp(double(bits), -53) * sum;
  for (size_t i = 0; i + 1 < kept; ++i)
    if ((drawn -= weights[i]) < 0)
      return tokens[i];
  return tokens[kept - 1];
}
