//===- corruption.h - Samples made from rows of tokens ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_CORRUPTION_H
#define GRT_DATA_CORRUPTION_H

#include "grt/corruption.h"
#include "grt/datum.h"
#include "grt/philox.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace grt {

/// Random numbers of one sample: a function of the seed, the epoch and the
/// sample's number among those of the files. Who asks, and in which order, does
/// not matter.
class SampleDraws {
public:
  SampleDraws(uint64_t seed, uint64_t epoch, uint64_t sample)
      : key(philoxKey(mix64(seed) ^ 0x636f7272757074ull, epoch)),
        sample(sample) {}

  /// A number below `bound`, which has 32 bits. Streams are apart.
  uint64_t below(uint64_t bound, uint32_t stream, uint64_t index) const {
    if (stream != heldStream || index / 4 != heldBlock) {
      held = philox(key, uint32_t(sample), uint32_t(sample >> 32),
                    uint32_t(index / 4), stream);
      heldStream = stream;
      heldBlock = index / 4;
    }
    return (held.lane[index % 4] * bound) >> 32;
  }

private:
  PhiloxKey key;
  uint64_t sample;
  /// The last block, as it serves four numbers.
  mutable PhiloxBlock held = {};
  mutable uint32_t heldStream = ~0u;
  mutable uint64_t heldBlock = ~uint64_t(0);
};

/// Makes some of a program's data from a row of tokens.
class SampleMaker {
public:
  virtual ~SampleMaker();

  /// Tokens of the row for a sample.
  uint64_t rowLength() const { return length; }
  /// True if a datum is made, so that it has no files.
  bool makes(size_t datum) const { return made[datum]; }
  /// The number of values that count in every sample, if it is always the same;
  /// else the number of those of the sample made from a row.
  virtual std::optional<uint64_t> counted() const = 0;
  virtual uint64_t counted(std::span<const int32_t> row) const = 0;
  /// The values of a sample: `to` has for each datum where they go, null where
  /// nobody reads them.
  virtual void make(const SampleDraws &draws, std::span<const int32_t> row,
                    std::span<char *const> to) const = 0;
  /// Text of all that decides what is made, and a word for it.
  std::string facts() const;
  virtual const char *name() const = 0;

protected:
  SampleMaker(const Corruption &corruption, const std::vector<Datum> &data,
              size_t main);

  Corruption corruption;
  std::vector<Datum> data;
  std::vector<bool> made; ///< by datum
  size_t tokens, labels;  ///< data
  uint64_t length = 0;
};

/// The maker that a corruption asks for, null for none. `main`: which of the
/// data are the tokens; `hasFiles`: which have files of their own. Throws what
/// the program's data or the corruption cannot be.
std::unique_ptr<SampleMaker> makeSampleMaker(const Corruption &corruption,
                                             const std::vector<Datum> &data,
                                             size_t main,
                                             const std::vector<bool> &hasFiles);

} // namespace grt

#endif // GRT_DATA_CORRUPTION_H
