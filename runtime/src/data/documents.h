//===- documents.h - Where documents of tokens end --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_DOCUMENTS_H
#define GRT_DATA_DOCUMENTS_H

#include "data/mapped.h"
#include "data/shard_index.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace grt {

/// Ends of the documents in a row of tokens, counted in tokens; ascending. An
/// end is read only when it is asked for.
class DocumentEnds {
public:
  virtual ~DocumentEnds();
  virtual uint64_t documents() const = 0;
  virtual uint64_t end(uint64_t document) const = 0;
  /// The first document whose end is at `position` or behind.
  uint64_t firstAt(uint64_t position) const;
};

/// Returns the ends of a text that was encoded in memory.
std::unique_ptr<DocumentEnds> documentEndsOf(std::vector<uint64_t> ends);

/// The index beside a shard of `tokens` tokens of `width` bytes, if there is
/// one; throws if it is another shard's.
struct IndexedShard {
  ShardIndex facts;
  std::unique_ptr<DocumentEnds> ends;
  /// A byte for every token: 1 if it counts as a label, else 0. Null: all do.
  std::unique_ptr<MappedFile> labels;
};
std::optional<IndexedShard> openShardIndex(const std::string &shard,
                                           std::string_view tokens,
                                           uint64_t width);

/// Megatron-LM's index `NAME.idx` of a file `NAME.bin`: the type of tokens, and
/// where sequences and documents are.
struct MegatronIndex {
  uint64_t width = 0; ///< bytes of a token
  uint64_t sequences = 0, documents = 0;
  static constexpr uint64_t headerBytes = 34;
  uint64_t bytes() const {
    return headerBytes + sequences * 12 + documents * 8;
  }
};
/// Reads the header and checks it against the length of the index. Throws what
/// is wrong behind `name`.
MegatronIndex parseMegatronIndex(std::string_view bytes, uint64_t fileBytes,
                                 const std::string &name);
/// Opens the index of `NAME.bin`, which has `binBytes` bytes.
std::unique_ptr<DocumentEnds> openMegatronIndex(const std::string &bin,
                                                uint64_t binBytes,
                                                MegatronIndex &index);

} // namespace grt

#endif // GRT_DATA_DOCUMENTS_H
