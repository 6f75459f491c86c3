//===- DataKinds.h - What arguments of a model can be -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kinds of data are known to dialects: any dialect of a context can bring some
// of its own, and no pass names one. What is done with an argument follows from
// the facts below.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_DATAKINDS_H
#define GALVATRON_DIALECT_GALVATRON_IR_DATAKINDS_H

#include "mlir/IR/DialectInterface.h"

#include <optional>

namespace mlir::galvatron {

/// The kind of data that says where the documents of a sample begin.
inline constexpr llvm::StringLiteral kDocumentStarts = "document_starts";

/// The kinds that say of a sample of one position to which of the texts that
/// are generated it belongs, and where it stands there.
inline constexpr llvm::StringLiteral kCacheRows = "cache_rows";
inline constexpr llvm::StringLiteral kPositions = "positions";
/// The kinds that say of a sample of which text it brings what the encoder
/// reads, or none, and how many tokens its own text's encoder has read.
inline constexpr llvm::StringLiteral kSourceRows = "source_rows";
inline constexpr llvm::StringLiteral kSourceLengths = "source_lengths";
/// True if the values of a kind are rows of a cache, or -1 for samples of none.
inline bool mayHaveNoRow(llvm::StringRef kind) {
  return kind == kCacheRows || kind == kSourceRows;
}

/// The `init` of parameters that are no part of a model but what its layers
/// keep while it generates.
inline constexpr llvm::StringLiteral kCacheInit = "cache";
/// The `init` of a table of positions that is not trained.
inline constexpr llvm::StringLiteral kSinusoidsInit = "sinusoids";

struct DataKind {
  llvm::StringLiteral name;
  /// Elements that it can have: i32; the floating types of models.
  bool integers, reals;
  /// The loss is a mean over the values that are not negative.
  bool counted;
  /// A sample is a sequence, whose length is counted in tokens.
  bool sequence;
};

/// Implemented by dialects that bring kinds of data.
class DataKindInterface : public DialectInterface::Base<DataKindInterface> {
public:
  explicit DataKindInterface(Dialect *dialect) : Base(dialect) {}
  virtual llvm::ArrayRef<DataKind> getDataKinds() const = 0;
};

/// The kind of a name, of whichever loaded dialect has it.
std::optional<DataKind> findDataKind(MLIRContext *context,
                                     llvm::StringRef name);

/// Returns all names, "a, b or c", for messages.
std::string listDataKinds(MLIRContext *context);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_DATAKINDS_H
