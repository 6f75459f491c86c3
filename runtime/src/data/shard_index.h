//===- shard_index.h - What is known of a file of tokens --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file of tokens may have an index beside it, `train.u16.index`: how many
// tokens and documents there are, where documents end, the largest token and
// hashes. Who has it need not read every token before the first step, and
// notices that the tokens are others (docs/data.md). An index of version 2 also
// names a file of labels beside the tokens, `train.u16.labels`, with a byte for
// every token: 1 if the token counts as a label, else 0.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_SHARD_INDEX_H
#define GRT_DATA_SHARD_INDEX_H

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// Header in front of the ends of documents; all numbers are little endian.
struct ShardIndex {
  static constexpr std::string_view magic = "GRTSHARD";
  static constexpr uint64_t plainHeaderBytes = 136; ///< of version 1
  static constexpr uint64_t labelHeaderBytes = 168; ///< of version 2
  static constexpr std::string_view suffix = ".index";
  /// The suffix of the file of labels, behind the name of the shard.
  static constexpr std::string_view labelSuffix = ".labels";

  /// The file of labels of a shard: which tokens count in the loss.
  struct Labels {
    uint64_t counted = 0;  ///< tokens that count as labels
    uint64_t edgeHash = 0; ///< of the first and the last 64 KiB of the labels
    std::array<uint8_t, 32> hash{}; ///< SHA-256 of the labels
  };

  uint32_t width = 2; ///< bytes of a token
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint64_t largest = 0;  ///< token
  uint64_t edgeHash = 0; ///< of the first and the last 64 KiB of the tokens
  std::array<uint8_t, 32> hash{};      ///< SHA-256 of the tokens
  std::array<uint8_t, 32> tokenizer{}; ///< SHA-256 of the tokenizer's file
  /// Null: every token that follows another is a label (version 1).
  std::optional<Labels> labels;
  /// Tokens of a sample that the shard was packed for; 0: of any length. Part
  /// of version 2.
  uint64_t sampleTokens = 0;

  uint32_t version() const { return labels ? 2 : 1; }
  uint64_t headerBytes() const {
    return labels ? labelHeaderBytes : plainHeaderBytes;
  }
  /// The bytes of the header.
  std::string header() const;
  /// Bytes of an index of so many documents: an end each, and a hash.
  uint64_t bytes() const { return headerBytes() + documents * 8 + 32; }
};

/// Reads the header of an index and checks it against the length of the file.
/// Throws what is wrong behind `name`.
ShardIndex parseShardIndex(std::string_view bytes, uint64_t fileBytes,
                           const std::string &name);

/// Writes the index of a shard, whole or not at all. `ends`: how many tokens
/// there are up to the end of each document.
void writeShardIndex(const std::string &path, const ShardIndex &index,
                     const std::vector<uint64_t> &ends);

/// The whole of an index; also its hash and the order of the ends are checked.
ShardIndex readShardIndex(const std::string &path, std::vector<uint64_t> &ends);

/// FNV-1a of the first and the last 64 KiB.
uint64_t edgeHashOf(std::string_view bytes);

} // namespace grt

#endif // GRT_DATA_SHARD_INDEX_H
