//===- EstimatedFamilies.h - Families that are only planned -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Facts of a family that are needed to count its parameters and FLOPs, beside
// the sizes that its configurations give. A family is a row of a table.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_ESTIMATEDFAMILIES_H
#define GALVATRON_LIB_IMPORT_ESTIMATEDFAMILIES_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>

namespace galvatron {

/// Something that a family has always, never, or as a field says.
struct FamilyChoice {
  llvm::StringRef field; ///< "": `usual` always
  bool usual = false;    ///< where the field is absent
};

struct EstimatedFamily {
  llvm::StringRef modelType;
  bool gated = false; ///< the feed-forward has a second product into it
  bool causal = true;
  bool tied = false;          ///< where `tie_word_embeddings` is absent
  int64_t normVectors = 2;    ///< of a norm: 2 with a bias, 1, or 0
  int64_t blockNorms = 2;     ///< norms of the model's width in a block
  bool finalNorm = true;      ///< behind the last block
  bool embeddingNorm = false; ///< behind the embedding
  FamilyChoice queryBias, outputBias, innerBias;
  /// Norms of queries and keys: of heads, or of the whole width.
  FamilyChoice queryNorm;
  bool wholeWidthNorm = false;
  bool headBias = false;
  /// The head of masked words: a product of the model's width, with bias and
  /// norm, in front of the table.
  bool maskedHead = false;
  int64_t positionRows = -1;  ///< learned positions: so many more than there
                              ///< are; -1: none
  int64_t tokenTypes = 0;     ///< rows of a table where its field is absent
  int64_t keyHeads = 0;       ///< where absent; 0: as many as heads
  int64_t headSize = 0;       ///< where absent; 0: width / heads
  int64_t innerMultiple = 0;  ///< of the width where absent; 0: must be given
  llvm::StringRef multiplier; ///< the field that gives this multiple
  /// The field by which all queries share a key head; `num_kv_heads` counts
  /// only where it is off, or in the new architecture of Falcon.
  FamilyChoice sharedKeys;
  bool projectsIn = false, projectsOut = false; ///< a narrower table
  /// Layers of a pattern of windows where no list says which have them: the
  /// last of so many sees all; 1: none does.
  int64_t windowPattern = 1;
  llvm::SmallVector<llvm::StringRef, 8> others; ///< fields that change nothing
  /// Fields that the family acts on as if they had one value, and that value
  /// as JSON.
  llvm::SmallVector<std::pair<llvm::StringRef, llvm::StringRef>, 2> fixed;
  /// An object of settings of attention that change nothing.
  llvm::StringRef nested;
};

/// Refuses a type that is no stack of equal blocks of attention over one
/// sequence, or has operations that are not there, whatever its fields say: by
/// `model_type`, with what is missing. Success where nothing is known of it.
llvm::Error refuseForeign(llvm::StringRef modelType, llvm::StringRef fileName);

/// The row of a family; none if there is none.
std::optional<EstimatedFamily> estimatedFamily(llvm::StringRef modelType);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_ESTIMATEDFAMILIES_H
