//===- Pins.h - Layers whose strategy is given ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `h.1:tp2.ckpt;h.5-h.9:sdp2`: strategies that some layers must have, while the
// search chooses those of all others, the partition and the micro-batches.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PLANNER_PINS_H
#define GALVATRON_PLANNER_PINS_H

#include "galvatron/Strategy/Strategy.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace galvatron {

class LayerModel;

/// One entry: `h.5-h.9:sdp2`.
struct LayerPin {
  std::string layers; ///< a name, a range of names, or "*"
  Strategy strategy;
};

/// Reads entries separated by semicolons; their layers are names still.
llvm::Expected<std::vector<LayerPin>> parsePins(llvm::StringRef text);

/// The first and the last of the layers that `selector` means. A layer's name
/// may hold a dash itself, so that a whole name is tried first and then every
/// dash as the separator of a range.
llvm::Expected<std::pair<size_t, size_t>>
selectLayers(llvm::ArrayRef<std::string> names, llvm::StringRef selector);

/// The strategy that each layer must have, by layer. "*" means those that no
/// other entry names; layers that are given two strategies are refused.
llvm::Expected<std::vector<std::optional<Strategy>>>
resolvePins(const LayerModel &model, llvm::ArrayRef<LayerPin> pins);

} // namespace galvatron

#endif // GALVATRON_PLANNER_PINS_H
