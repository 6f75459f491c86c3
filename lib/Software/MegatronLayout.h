//===- MegatronLayout.h - Layers of Megatron-LM's stages --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Megatron-LM's pipelines may be uneven: its first and last stage have other
// numbers of layers, or a layout says what every chunk has.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_MEGATRONLAYOUT_H
#define GALVATRON_LIB_SOFTWARE_MEGATRONLAYOUT_H

#include "Arguments.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace galvatron {

/// Blocks of every chunk of a `--pipeline-model-parallel-layout`, in the order
/// of the model: "Et*3|(t|)*2tL" has 3, 1, 1 and 1. Errors say what is no
/// layout, or is not priced: multi-token prediction, a chunk that has nothing.
llvm::Expected<std::vector<int64_t>> blocksOfLayout(llvm::StringRef layout);

/// The layout that has these blocks.
std::string layoutOf(llvm::ArrayRef<int64_t> blocks);

/// Blocks of every chunk where the first and the last of `stages` have `first`
/// and `last` of the `layers`, and the others equally many of the rest; 0: it
/// is one of the others. Chunks of a stage are alike. Errors name what does not
/// divide.
llvm::Expected<std::vector<int64_t>> blocksOfEnds(int64_t layers,
                                                  int64_t stages,
                                                  int64_t chunks, int64_t first,
                                                  int64_t last);

/// Flags of the numbers that blocksOfEnds() takes.
inline constexpr llvm::StringLiteral kEndFlags[] = {
    "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"};

/// Blocks of every chunk, by whichever flags say them: a layout, whose chunks
/// `chunks` does not count, the first and last stage's layers, or equally many,
/// where embedding and loss may count as a layer each. Errors name the flag.
llvm::Expected<std::vector<int64_t>>
blocksOfFlags(Arguments &flags, int64_t layers, int64_t stages, int64_t chunks);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_MEGATRONLAYOUT_H
