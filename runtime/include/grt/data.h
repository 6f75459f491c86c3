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
// Labels without files are the tokens shifted by one: the next token, if a file
// of labels beside the tokens does not say that it does not count. Samples
// are numbered through the files in their order, alike for all data.
// The last ones may be set aside for validation. Training samples come in a
// permutation per epoch, keyed by the seed: the row of epochs is the same
// whatever the plan, and a position in it is all that a run must remember.
//
// Files with weights are a mixture: every 65536 samples of the row have exactly
// their parts of them, in an order of its own; each source has its own epochs
// and the last of its samples for validation.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_DATA_H
#define GRT_DATA_H

#include "grt/checkpoint.h"
#include "grt/corruption.h"
#include "grt/session.h"

#include <functional>
#include <optional>

namespace grt {

class DataFile;
class SampleMaker;

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

/// Tokens of a text, in memory.
struct EncodedText {
  uint64_t width = 2; ///< bytes of a token: 2 or 4, least significant first
  std::string tokens;
  /// Number of tokens up to the end of each document.
  std::vector<uint64_t> ends;
};
/// Makes tokens of a file of text.
using TextEncoder =
    std::function<Status(const std::string &path, EncodedText &result)>;

/// The files of one of a program's data.
struct DataFiles {
  /// Name of the datum; empty: the tokens, or the first of a program without
  /// tokens.
  std::string name;
  /// Paths of the files, in the order in which samples are numbered.
  std::vector<std::string> paths;
  /// Part of a mixture's samples that comes from these files.
  std::optional<double> weight = std::nullopt;
};

struct DataOptions {
  std::vector<DataFiles> files;
  /// "text" (bytes), "jsonl", "u16", "u32" (little endian), "bin"
  /// (Megatron-LM's) or "npy"; empty: of each file by its suffix, which is that
  /// name or .txt.
  std::string format;
  /// Tokenizer of text; empty: its bytes are its tokens.
  TextEncoder encodeText;
  /// SHA-256 of the tokenizer's file, as hexadecimal digits: shards whose index
  /// says that another made them are refused; empty: nothing is known of it.
  std::string tokenizerHash;
  /// The first token of a document is no label of the last of the one before.
  bool maskDocuments = false;
  /// Corruption of rows of tokens, by which data are made instead of next
  /// tokens.
  Corruption corruption;
  /// Part of the samples, at the end, that is never trained on.
  double validationFraction = 0;
  uint64_t seed = 0;
};

/// Names of the indices that a file of tokens may have beside it.
std::vector<std::string> possibleIndices(const std::string &file);

/// The identity's format of a mixture whose sources are read in whole passes.
/// Older checkpoints say "mixture": they were made in another order.
inline constexpr const char *mixtureFormat = "mixture in passes";

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
  /// Samples that are drawn from a source; data that are no mixture have one.
  struct Draws {
    std::string name;      ///< of its first file
    uint64_t training = 0; ///< samples of a pass
    uint64_t drawn = 0;    ///< samples
  };
  /// Returns the samples that the first `number` places of the row of epochs
  /// take of each source: `drawn / training` whole passes, then samples of the
  /// next.
  std::vector<Draws> draws(uint64_t number) const;
  /// Values in the files of the tokens, or of the first datum, and those among
  /// them that stand in samples: ends of files fill none.
  struct Usable {
    uint64_t all = 0, used = 0;
    /// Values that may be labels: all, but of shards with a file of labels
    /// those that count.
    uint64_t labels = 0;
    /// Samples were packed of several documents, which the program does not
    /// keep apart.
    bool areMixed = false;
  };
  Usable usable() const;
  /// Identities of the files that a checkpoint remembers, in the order of the
  /// data and then of their files; and the files' names.
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
  /// Files whose samples are drawn together.
  struct Source {
    uint64_t files = 0;      ///< of the tokens
    double weight = 0;       ///< of a mixture
    uint64_t first = 0;      ///< sample
    uint64_t training = 0;   ///< from the first on
    uint64_t validation = 0; ///< behind those
    uint64_t quotaBegin = 0; ///< among the samples of a block
    uint64_t quota = 0;
  };

  /// A sample, and how often it came before; of validation the same always.
  struct Place {
    uint64_t sample = 0, epoch = ~uint64_t(0);
  };

  Dataset();
  void makeColumns(const DataOptions &options);
  /// Throws unless the datum of where documents begin can be made of the
  /// tokens; `hasFiles`: whether files were given for it.
  void checkStarts(const Datum &starts, const Datum &main, bool hasFiles) const;
  /// True if the program keeps the documents of a sample apart.
  bool keepsDocumentsApart() const;
  void countSamples(const DataOptions &options);
  void makeMixture();
  /// Samples that the places in front of `number` take from a source of a
  /// mixture.
  uint64_t drawn(const Source &source, uint64_t number) const;
  /// Returns the sample at a place of the row of epochs, and at one of the
  /// validation.
  Place trainingSample(uint64_t number) const;
  Place validationSample(uint64_t number) const;
  /// Throws if a file changed its size since: what is gone cannot be read.
  void checkSizes() const;
  void resize(int64_t batch, DataBatch &result) const;
  /// A sample, to row `row` of a batch; or nothing that counts.
  void readSample(Place place, int64_t row, const SamplesRead *wanted,
                  DataBatch &batch, uint64_t &counted) const;
  /// The part of it that is made from a row of tokens.
  void makeSample(Place place, int64_t row, const SamplesRead *wanted,
                  DataBatch &batch, uint64_t &counted) const;
  void clearSample(uint64_t row, DataBatch &batch) const;

  std::vector<Datum> data;
  std::unique_ptr<SampleMaker> maker; ///< null: files have all, or next tokens
  /// Columns by datum; null for data that are made, but for the row of tokens
  /// that they are made of.
  std::vector<std::unique_ptr<Column>> columns;
  /// Files of all data, in the order of identity().
  std::vector<std::shared_ptr<const DataFile>> allFiles;
  std::vector<Source> sources; ///< one without weights: no mixture
  bool isMixture = false, masks = false;
  uint64_t training = 0, validation = 0;
  uint64_t seed = 0;
};

} // namespace grt

#endif // GRT_DATA_H
