//===- best_fit.cpp - Pieces in samples of one length ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "best_fit.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace grt::data {

std::vector<PackedSample> packByBestFit(const std::vector<uint64_t> &lengths,
                                        uint64_t sampleTokens,
                                        uint64_t mostPieces) {
  std::vector<uint64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), uint64_t(0));
  if (mostPieces != 1)
    std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
      return lengths[a] > lengths[b];
    });
  std::vector<PackedSample> samples;
  std::set<std::pair<uint64_t, uint64_t>> open; // room, sample
  for (uint64_t piece : order) {
    auto found = open.lower_bound({lengths[piece], 0});
    uint64_t room = sampleTokens, sample = samples.size();
    if (found == open.end()) {
      samples.emplace_back();
    } else {
      std::tie(room, sample) = *found;
      open.erase(found);
    }
    samples[sample].push_back(piece);
    room -= lengths[piece];
    if (room && samples[sample].size() != mostPieces)
      open.insert({room, sample});
  }
  for (PackedSample &sample : samples)
    std::sort(sample.begin(), sample.end());
  return samples;
}

} // namespace grt::data
