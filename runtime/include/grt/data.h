//===- data.h - Token files and samples -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Data is one or more files, each a row of tokens. In a file, sample i is
// tokens [i*T, i*T + T), its labels are the same shifted by one; what is left
// at the end is dropped. Samples are numbered through the files in their order.
// The last ones may be set aside for validation. Training samples come in a
// permutation per epoch, keyed by the seed: the row of epochs is the same
// whatever the plan, and a position in it is all that a run must remember.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_H
#define GRT_DATA_H

#include "grt/checkpoint.h"
#include "grt/session.h"

namespace grt {

/// A keyed bijection of [0, size): a Feistel network over the next power of
/// four, walked until it lands inside (Black and Rogaway 2002).
class Permutation {
public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t index) const;

private:
  uint64_t size;
  uint64_t seed, epoch;
  unsigned halfBits;
};

struct DataOptions {
  /// In the order in which samples are numbered.
  std::vector<std::string> paths;
  /// "text" (bytes), "u16" or "u32" (little endian); empty: of each file by its
  /// suffix .txt, .u16 or .u32.
  std::string format;
  /// Part of the samples, at the end, that is never trained on.
  double validationFraction = 0;
  uint64_t seed = 0;
};

/// Samples of token files. Batches are row-major [batch][seq-len].
class Dataset {
public:
  ~Dataset();
  Dataset(const Dataset &) = delete;
  Dataset &operator=(const Dataset &) = delete;

  /// Maps the files and checks every token against the vocabulary; errors have
  /// exit code 2 and name the file and the position.
  static Status open(const DataOptions &options, int64_t vocabulary,
                     int64_t seqLen, std::unique_ptr<Dataset> &result);

  uint64_t tokenCount() const;
  uint64_t trainingSamples() const { return training; }
  uint64_t validationSamples() const { return validation; }
  /// What a checkpoint remembers of the files.
  std::vector<DataIdentity> identity() const;

  /// Training samples [first, first + batch) of the row of epochs.
  Status trainingBatch(uint64_t first, int64_t batch,
                       std::vector<int32_t> &inputs,
                       std::vector<int32_t> &labels) const;
  /// Validation batches, in the order of the files; the last may be short and
  /// then has labels -1 in the rows that are missing.
  uint64_t validationBatches(int64_t batch) const;
  Status validationBatch(uint64_t index, int64_t batch,
                         std::vector<int32_t> &inputs,
                         std::vector<int32_t> &labels) const;

private:
  class Source;

  Dataset();
  /// Throws if a file changed its size since: what is gone cannot be read.
  void checkSizes() const;
  void readSample(uint64_t sample, int32_t *inputs, int32_t *labels) const;

  std::vector<std::unique_ptr<Source>> sources;
  uint64_t training = 0, validation = 0;
  uint64_t seed = 0;
  int64_t seqLen = 0;
};

} // namespace grt

#endif // GRT_DATA_H
