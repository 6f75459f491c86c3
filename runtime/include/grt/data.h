//===- data.h - Files and samples -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each of a program's data comes from files of its own: rows of tokens, or
// NumPy arrays whose first dimension counts samples. In a row of tokens sample
// i is tokens [i*T, i*T + T); what is left at the end of a file is dropped.
// Labels without files are the tokens shifted by one: the next token. Samples
// are numbered through the files in their order, alike for all data.
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

class DataFile;

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

/// The files of one of a program's data.
struct DataFiles {
  /// Which; empty: the tokens, or the first of a program without tokens.
  std::string name;
  /// In the order in which samples are numbered.
  std::vector<std::string> paths;
};

struct DataOptions {
  std::vector<DataFiles> files;
  /// "text" (bytes), "u16", "u32" (little endian) or "npy"; empty: of each file
  /// by its suffix .txt, .u16, .u32 or .npy.
  std::string format;
  /// Part of the samples, at the end, that is never trained on.
  double validationFraction = 0;
  uint64_t seed = 0;
};

/// Samples of all of a program's data.
class Dataset {
public:
  ~Dataset();
  Dataset(const Dataset &) = delete;
  Dataset &operator=(const Dataset &) = delete;

  /// Maps the files and checks the integers of short ones, and the first of
  /// long ones, against the bound of their datum; the others are checked as
  /// they are read. Errors have exit code 2 and name the file and the position.
  /// `data` are the program's.
  static Status open(const DataOptions &options, std::vector<Datum> data,
                     std::unique_ptr<Dataset> &result);

  uint64_t trainingSamples() const { return training; }
  uint64_t validationSamples() const { return validation; }
  /// What a checkpoint remembers of the files, in the order of the data and
  /// then of their files; and the files' names.
  std::vector<DataIdentity> identity() const;
  std::vector<std::string> fileNames() const;

  /// Training samples [first, first + batch) of the row of epochs. With
  /// `wanted` only these samples are read and the others hold anything;
  /// `counted`, if given, becomes the number of values of the whole batch that
  /// count.
  Status trainingBatch(uint64_t first, int64_t batch, DataBatch &result,
                       const SamplesRead *wanted = nullptr,
                       uint64_t *counted = nullptr) const;
  /// Validation batches, in the order of the files; the last may be short and
  /// then has nothing but values that do not count in the rows that are
  /// missing.
  uint64_t validationBatches(int64_t batch) const;
  Status validationBatch(uint64_t index, int64_t batch, DataBatch &result,
                         const SamplesRead *wanted = nullptr,
                         uint64_t *counted = nullptr) const;

private:
  class Column;

  Dataset();
  void makeColumns(const DataOptions &options);
  void countSamples();
  /// Throws if a file changed its size since: what is gone cannot be read.
  void checkSizes() const;
  void resize(int64_t batch, DataBatch &result) const;
  /// A sample, to row `row` of a batch; or nothing that counts.
  void readSample(uint64_t sample, int64_t row, const SamplesRead *wanted,
                  DataBatch &batch, uint64_t &counted) const;
  void clearSample(uint64_t row, DataBatch &batch) const;

  std::vector<Datum> data;
  std::vector<std::unique_ptr<Column>> columns; ///< by datum
  /// In the order of identity().
  std::vector<std::shared_ptr<const DataFile>> allFiles;
  uint64_t training = 0, validation = 0;
  uint64_t seed = 0;
};

} // namespace grt

#endif // GRT_DATA_H
