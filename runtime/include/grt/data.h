//===- data.h - Token files and samples -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file is a row of tokens. Sample i is tokens [i*T, i*T + T), its labels are
// the same shifted by one; what is left at the end is dropped. The last samples
// may be set aside for validation. Training samples come in a permutation per
// epoch, keyed by the seed: step s, position j is number (s-1)*B + j in the row
// of epochs, whatever the plan.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_H
#define GRT_DATA_H

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
  std::string path;
  /// "text" (bytes), "u16" or "u32" (little endian); empty: by the suffix .txt,
  /// .u16 or .u32.
  std::string format;
  /// Part of the samples, at the end of the file, that is never trained on.
  double validationFraction = 0;
  uint64_t seed = 0;
};

/// Samples of a token file. Batches are row-major [batch][seq-len].
class TokenFile {
public:
  ~TokenFile();
  TokenFile(const TokenFile &) = delete;
  TokenFile &operator=(const TokenFile &) = delete;

  /// Opens a file and checks every token against the vocabulary; errors have
  /// exit code 2 and name the position.
  static Status open(const DataOptions &options, int64_t vocabulary,
                     int64_t seqLen, std::unique_ptr<TokenFile> &result);

  uint64_t tokenCount() const { return tokens; }
  uint64_t trainingSamples() const { return training; }
  uint64_t validationSamples() const { return validation; }

  /// The batch of training step `step`, from 1.
  Status trainingBatch(uint64_t step, int64_t batch,
                       std::vector<int32_t> &inputs,
                       std::vector<int32_t> &labels);
  /// Validation batches, in the order of the file; the last may be short and
  /// then has labels -1 in the rows that are missing.
  uint64_t validationBatches(int64_t batch) const;
  Status validationBatch(uint64_t index, int64_t batch,
                         std::vector<int32_t> &inputs,
                         std::vector<int32_t> &labels);

private:
  TokenFile() = default;
  void read(uint64_t first, uint64_t count, int32_t *out) const;
  void readSample(uint64_t sample, int32_t *inputs, int32_t *labels) const;

  std::string path;
  int descriptor = -1;
  uint64_t width = 1, tokens = 0, training = 0, validation = 0;
  uint64_t seed = 0;
  int64_t seqLen = 0;
};

} // namespace grt

#endif // GRT_DATA_H
