//===- files.h - Files that samples are read from ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_FILES_H
#define GRT_DATA_FILES_H

#include "data/documents.h"
#include "data/mapped.h"
#include "data/npy.h"
#include "grt/checkpoint.h"
#include "grt/data.h"
#include "grt/datum.h"

#include <string_view>

namespace grt {

/// A data file, mapped. Whatever is wrong with it throws an Error with exit
/// code 2 that names it.
class DataFile {
public:
  /// `format`: as in DataOptions; empty: by the suffix. `mostChecked`: how many
  /// integers checkFirst() looks at, unless an index says what they are.
  DataFile(const std::string &path, const std::string &format,
           const TextEncoder &encodeText, uint64_t mostChecked);
  ~DataFile();
  DataFile(const DataFile &) = delete;
  DataFile &operator=(const DataFile &) = delete;

  const std::string &name() const { return path; }
  const std::string &format() const { return formatName; }
  bool isArray() const { return formatName == "npy"; }
  /// Values of the file: tokens, or elements of an array.
  uint64_t values() const { return count; }
  /// The header of an array file.
  const NpyHeader &header() const { return array; }

  /// SHA-256 of the tokenizer that made the tokens, as hexadecimal digits;
  /// empty if nothing says it.
  const std::string &tokenizerHash() const { return tokenizer; }

  /// The ends of its documents; null if nothing says where they are.
  const DocumentEnds *documents() const { return ends.get(); }

  /// A byte for every token: 1 if the token counts as a label, else 0. Empty if
  /// nothing says it: all count.
  std::string_view labels() const {
    return labelFile ? labelFile->bytes() : std::string_view();
  }
  /// Tokens that count as labels, by the index; of files without labels() all.
  uint64_t countedLabels() const { return labelFacts.counted; }
  /// Tokens of a sample that the file was packed for; 0: of any length.
  uint64_t sampleTokens() const { return packedFor; }

  /// Integers that checkFirst() looks at: those from the first on.
  uint64_t checked() const { return checkedFirst; }
  /// checkIntegers() of these, before any is read.
  void checkFirst(const Datum &datum) const;

  /// True if some of its integers may be negative.
  bool hasSigns() const { return array.kind == 'i'; }
  /// Throws unless values [first, first + count) are integers that `datum` can
  /// have; names the position of the first that is not.
  void checkIntegers(const Datum &datum, uint64_t first, uint64_t count) const;
  /// Values [first, first + count) as `type` (grt_dtype). Unsigned bytes become
  /// fractions of 255 where floating values are wanted, as images have them.
  void read(uint64_t first, uint64_t count, uint32_t type, char *to) const;

  /// Throws if the file changed its size since: what is gone cannot be read.
  void checkSize() const;
  /// Identity of the file that a checkpoint remembers.
  DataIdentity identity() const;

private:
  /// True if integers [first, first + number) lie in [low, below).
  bool areWithin(uint64_t first, uint64_t number, int64_t low,
                 int64_t below) const;
  const unsigned char *elements() const {
    return reinterpret_cast<const unsigned char *>(data.data()) +
           array.dataOffset;
  }
  int64_t integerAt(uint64_t position) const;
  double realAt(uint64_t position) const;

  void openTokens(uint64_t width);
  void openArray();

  std::string path, formatName, tokenizer;
  std::unique_ptr<MappedFile> file; ///< null: text that was encoded
  EncodedText encoded;
  std::unique_ptr<DocumentEnds> ends;
  std::unique_ptr<MappedFile> labelFile; ///< null: all tokens count
  ShardIndex::Labels labelFacts;
  uint64_t packedFor = 0;
  /// The largest integer, where an index says it.
  std::optional<uint64_t> largest;
  uint64_t checkedFirst = 0;
  std::string_view data; ///< the whole file
  /// Header of an array file; for token files, plain unsigned integers from
  /// byte 0 on.
  NpyHeader array;
  uint64_t count = 0;
};

} // namespace grt

#endif // GRT_DATA_FILES_H
