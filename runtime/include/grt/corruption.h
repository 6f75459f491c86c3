//===- corruption.h - Tokens that a model is to guess ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What models learn that do not write the next token: masked tokens (Devlin et
// al., arXiv 1810.04805, section 3.1) and corrupted spans (Raffel et al., arXiv
// 1910.10683, section 3.1.4). Samples are made from rows of tokens as they are
// read; docs/data.md has the rules to the last draw.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORRUPTION_H
#define GRT_CORRUPTION_H

#include <cstdint>
#include <vector>

namespace grt {

struct Corruption {
  enum class Kind {
    None,
    Tokens, ///< some are masked, and have themselves as labels
    Spans   ///< of some nothing is left but a sentinel; a decoder writes them
  };
  Kind kind = Kind::None;
  /// The part of a sample's tokens, above 0 and at most `largestRate`.
  double rate = 0.15;
  static constexpr double largestRate = 0.9;

  // These fields are of Tokens.
  int32_t mask = -1;
  /// Tokens that stand for no text: neither masked nor drawn. Ascending.
  std::vector<int32_t> special;
  /// Tokens below are drawn instead of the right ones.
  int64_t words = 0;
  /// Tokens in front of those of every sample and behind them.
  std::vector<int32_t> before, behind;

  // These fields are of Spans.
  double spanLength = 3; ///< the mean, at least 1
  /// Tokens that stand for the first span of a sample, for the second, ..
  std::vector<int32_t> sentinels;
  int32_t padding = -1, end = -1;
  int32_t start = -1; ///< the first token that the decoder reads
};

} // namespace grt

#endif // GRT_CORRUPTION_H
