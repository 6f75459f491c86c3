//===- best_fit.h - Pieces in samples of one length -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DATA_BEST_FIT_H
#define GALVATRON_DATA_BEST_FIT_H

#include <cstdint>
#include <vector>

namespace grt::data {

/// A sample, as the numbers of the pieces in it, ascending.
using PackedSample = std::vector<uint64_t>;

/// Puts pieces of `lengths` tokens, each from 1 to `sampleTokens`, into samples
/// by best fit, the longest first and pieces of one length in their order: each
/// goes to the sample with the least room that holds it, among these to the
/// first (Johnson et al. 1974: at most 11/9 of the fewest samples, and 4). At
/// most `mostPieces` go to a sample; 0: as many as fit. With one piece a sample
/// the order of the pieces stays.
std::vector<PackedSample> packByBestFit(const std::vector<uint64_t> &lengths,
                                        uint64_t sampleTokens,
                                        uint64_t mostPieces);

} // namespace grt::data

#endif // GALVATRON_DATA_BEST_FIT_H
