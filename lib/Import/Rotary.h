//===- Rotary.h - Frequencies of rotary embeddings --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From the fields that describe a rotary embedding (`rope_parameters`, or
// `rope_theta` and `rope_scaling` in older files) to the numbers that
// `nn.rotary` takes.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_ROTARY_H
#define GALVATRON_LIB_IMPORT_ROTARY_H

#include "ConfigReader.h"

#include <optional>
#include <vector>

namespace galvatron {

/// Frequencies, in radians a position, of the pairs of a head, and what cosine
/// and sine are multiplied by.
struct Rotary {
  std::vector<double> frequencies;
  double factor = 1;
};

/// Reads `default`, `linear`, `dynamic`, `llama3` and `yarn` scaling; `dynamic`
/// is the same as `default` up to `positions`, and no longer sequence is ever
/// run. Others are refused by name. `headSize` is even. With `usualPart` the
/// family reads `partial_rotary_factor`, the part of a head that is rotated,
/// and that is its default; without it all of a head is, and another part is
/// refused.
///
/// Sources: Su et al., arXiv 2104.09864 (frequencies); Chen et al., arXiv
/// 2306.15595 (linear); Peng et al., arXiv 2309.00071 (yarn); the definitions
/// of the `transformers` library for what those leave open, and for llama3.
Rotary readRotary(ConfigReader &reader, int64_t headSize, int64_t positions,
                  double theta, std::optional<double> usualPart = std::nullopt);

/// How layers with and without windows are rotated.
struct RotaryByKind {
  Rotary full, sliding;
};

/// Reads `rope_parameters` with an entry for each kind of layers, or
/// `rope_scaling` of those without windows. The bases are those of kinds that
/// name none.
RotaryByKind readRotaryByKind(ConfigReader &reader, int64_t headSize,
                              int64_t positions, double theta,
                              double slidingTheta);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_ROTARY_H
