//===- shards.h - Writes files of tokens ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DATA_SHARDS_H
#define GALVATRON_DATA_SHARDS_H

#include "base/files.h"
#include "data/shard_index.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace grt::data {

/// Writes documents to shards `00000.u16`, `00001.u16`, ... of a folder. A
/// shard has its name when its index is written, and not before; when all are
/// there, `shards.json` says so.
class ShardWriter {
public:
  struct Plan {
    std::string folder;
    uint32_t width = 2;
    uint64_t shardTokens = 0;
    /// The tokenizer's name and hash, from shards.json.
    std::string tokenizer, tokenizerHash;
    uint32_t vocabularySize = 0;
    /// Whether shards have files of labels.
    bool hasLabels = false;
    /// Tokens of a sample that documents are packed for; 0: of any length.
    uint64_t sampleTokens = 0;
  };
  /// Makes the folder, which must be empty if it is there.
  explicit ShardWriter(Plan plan);
  /// Without finish() the shard that is being written is removed, and the
  /// folders that were made if no shard is in them.
  ~ShardWriter();
  ShardWriter(const ShardWriter &) = delete;
  ShardWriter &operator=(const ShardWriter &) = delete;

  /// Appends tokens to the current document; with `hasLabels` also what counts
  /// of them, 1 or 0.
  void add(std::span<const uint32_t> ids, std::span<const uint8_t> labels);
  void endDocument();
  /// Ends the current shard, if it has begun.
  void endShard();
  /// Writes `shards.json`, with `facts` in it.
  void finish(const nlohmann::ordered_json &facts = {});

  uint64_t tokens() const { return allTokens + index.tokens; }
  uint64_t documents() const { return allDocuments + ends.size(); }
  size_t shards() const { return shardList.size(); }
  /// Tokens that count as labels, of shards that have files of labels.
  uint64_t labels() const {
    return allLabels + (index.labels ? index.labels->counted : 0);
  }

private:
  std::string pathOf(size_t shard) const;
  void open();
  void flush();

  Plan plan;
  std::vector<std::string> made; ///< folders, each in the one in front of it
  bool isFinished = false;
  std::optional<File> file, labelFile;
  std::string buffer, labelBuffer;
  ShardIndex index;
  std::vector<uint64_t> ends;
  uint64_t allTokens = 0, allDocuments = 0, allLabels = 0;
  nlohmann::ordered_json shardList = nlohmann::ordered_json::array();
};

} // namespace grt::data

#endif // GALVATRON_DATA_SHARDS_H
