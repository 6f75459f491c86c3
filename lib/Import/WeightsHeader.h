//===- WeightsHeader.h - Shapes of a model's weights ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_WEIGHTSHEADER_H
#define GALVATRON_LIB_IMPORT_WEIGHTSHEADER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>

namespace galvatron {

/// The sizes of a stack of equal blocks by the header of a `model.safetensors`.
struct WeightShapes {
  std::string fileName;
  double blockElements = 0; ///< of a block
  double blockProducts = 0; ///< of these, of matrices
  double outside = 0;       ///< of everything that is in no block
  int64_t tables = 0;       ///< matrices outside with a row a word
  double tableElements = 0; ///< of the largest of them
};

/// Whether there is a `model.safetensors` in the folder of `configFile`.
bool hasWeightsBeside(llvm::StringRef configFile);

/// Reads its header. `layers` and `vocabulary` are those of the
/// configuration. Errors name the file: it cannot be read, its tensors are
/// packed numbers, or its blocks are not `layers` equal ones.
llvm::Expected<WeightShapes> readWeightShapes(llvm::StringRef configFile,
                                              int64_t layers,
                                              int64_t vocabulary);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_WEIGHTSHEADER_H
