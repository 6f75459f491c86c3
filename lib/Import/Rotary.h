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

/// How queries and keys are rotated.
struct Rotary {
  /// Frequencies, in radians a position, of the pairs of a head, and what
  /// cosine and sine are multiplied by.
  struct Table {
    std::vector<double> frequencies;
    double factor = 1;
  };
  Table usual;
  /// The table of sequences of more than `usualPositions`, where it is another.
  std::optional<Table> longer = std::nullopt;
  int64_t usualPositions = 0;

  /// The table of a sequence of so many positions.
  const Table &of(int64_t positions) const {
    return longer && positions > usualPositions ? *longer : usual;
  }
};

/// Reads `default`, `linear`, `dynamic`, `llama3`, `yarn` and `longrope`
/// scaling; `dynamic` is the same as `default` up to `positions`, and no longer
/// sequence is ever run. Others are refused by name. `headSize` is even. With
/// `usualPart` the family reads `partial_rotary_factor`, the part of a head
/// that is rotated, and that is its default; without it all of a head is, and
/// another part is refused.
///
/// Sources: Su et al., arXiv 2104.09864 (frequencies); Chen et al., arXiv
/// 2306.15595 (linear); Peng et al., arXiv 2309.00071 (yarn); Ding et al.,
/// arXiv 2402.13753 (longrope); the definitions of the `transformers` library
/// for what those leave open, and for llama3. `alsoLong`: other names that a
/// family gave to `longrope`.
Rotary readRotary(ConfigReader &reader, int64_t headSize, int64_t positions,
                  double theta, std::optional<double> usualPart = std::nullopt,
                  llvm::ArrayRef<llvm::StringRef> alsoLong = {});

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
