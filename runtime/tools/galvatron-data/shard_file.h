//===- shard_file.h - A shard that is read whole ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DATA_SHARD_FILE_H
#define GALVATRON_DATA_SHARD_FILE_H

#include "data/shard_index.h"
#include "text/corpus.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt::data {

/// A shard, its index and its labels, which have the same number of tokens;
/// else an error with exit code 2 that names the file.
class ShardFile {
public:
  explicit ShardFile(const std::string &path);

  const std::string &name() const { return file.name(); }
  std::string_view bytes() const { return file.text(); }
  uint64_t documents() const { return ends.size(); }
  /// The first token of a document, and the one behind its last.
  uint64_t begin(uint64_t document) const {
    return document ? ends[document - 1] : 0;
  }
  uint64_t end(uint64_t document) const { return ends[document]; }
  uint32_t token(uint64_t position) const;
  /// Whether a token counts as a label, by the labels if there are some.
  bool counts(uint64_t position) const;
  /// Bytes of the file of labels; empty if there is none.
  std::string_view labels() const {
    return labelFile ? labelFile->text() : std::string_view();
  }

private:
  text::TextFile file;
  std::optional<text::TextFile> labelFile;
  std::vector<uint64_t> ends;

public:
  ShardIndex index;
};

} // namespace grt::data

#endif // GALVATRON_DATA_SHARD_FILE_H
