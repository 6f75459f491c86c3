//===- state.h - What a checkpoint says of itself -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `checkpoint.json` holds the training state, the files of tensors with the
// SHA-256 of their headers, and the sum of every tensor's elements. SHA256SUMS
// (as `sha256sum` writes it) covers it and the other small files.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CHECKPOINT_STATE_H
#define GRT_CHECKPOINT_STATE_H

#include "base/sha256.h"
#include "grt/checkpoint.h"

#include <map>

namespace grt {

inline constexpr const char *stateFileName = "checkpoint.json";
inline constexpr const char *sumsFileName = "SHA256SUMS";

struct TensorFile {
  std::string name; ///< in the checkpoint's folder
  uint64_t bytes = 0;
  std::string headerHash; ///< SHA-256, hexadecimal
};

struct CheckpointManifest {
  TrainingState training;
  std::string dtype, optimizer;
  std::string adapters; ///< their adapter_config.json; empty: nothing says it
  std::vector<TensorFile> files;
  std::map<std::string, uint64_t> sums; ///< by tensor, see elementSum
};

/// The text of `checkpoint.json`.
std::string writeCheckpointManifest(const CheckpointManifest &manifest);
/// Parses it. Throws Error with exit code 2; `name` is used in messages.
CheckpointManifest parseCheckpointManifest(std::string_view text,
                                           const std::string &name);

/// The text of SHA256SUMS for files and their contents.
std::string writeSums(const std::map<std::string, std::string> &contents);

/// Reads `checkpoint.json` of a checkpoint after checking SHA256SUMS.
CheckpointManifest readCheckpointManifest(const std::string &checkpoint);

} // namespace grt

#endif // GRT_CHECKPOINT_STATE_H
