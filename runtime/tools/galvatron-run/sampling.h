//===- sampling.h - Which token comes next --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_SAMPLING_H
#define GALVATRON_RUN_SAMPLING_H

#include <cstdint>
#include <span>

/// The rule by which a token is drawn from its logits: these are divided by the
/// temperature, then the largest ones are kept, then the likeliest that have so
/// much of the probability together; one of those is drawn.
struct Sampling {
  double temperature = 0; ///< 0: always the likeliest
  uint64_t topK = 0;      ///< 0: all
  double topP = 1;
  uint64_t seed = 0;

  bool isGreedy() const { return temperature == 0 || topK == 1; }
};

/// The token at a place of a text. The random number is a function of seed and
/// place, so that the same options give the same text.
int32_t sampleToken(std::span<const double> logits, const Sampling &sampling,
                    uint64_t place);

#endif // GALVATRON_RUN_SAMPLING_H
