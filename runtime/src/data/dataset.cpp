//===- dataset.cpp - Samples of files -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "data/files.h"
#include "grt/data.h"
#include "grt/philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace grt {

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size(size), seed(seed), epoch(epoch), halfBits(1) {
  while (halfBits < 32 && (uint64_t(1) << (2 * halfBits)) < size)
    ++halfBits;
}

uint64_t Permutation::operator()(uint64_t index) const {
  // A stream of its own, apart from weights and dropout.
  const PhiloxKey key = philoxKey(seed, 0x73616d706c657321ull);
  const uint64_t mask = (uint64_t(1) << halfBits) - 1;
  do {
    uint64_t left = index >> halfBits, right = index & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      PhiloxBlock block = philox(key, uint32_t(right), uint32_t(epoch),
                                 uint32_t(epoch >> 32), round);
      uint64_t next = (left ^ block.lane[0]) & mask;
      left = right;
      right = next;
    }
    index = left << halfBits | right;
  } while (index >= size);
  return index;
}

/// Integers of a file that are checked when it is opened: what takes a moment.
/// Those of longer files are checked as they are read.
static constexpr uint64_t checkedAtOnce = uint64_t(1) << 25;

/// One datum of every sample. Columns that are made from the same files share
/// them.
class Dataset::Column {
public:
  using Files = std::vector<std::shared_ptr<const DataFile>>;

  /// `shift`: how many values later a sample of a row of tokens begins;
  /// `spare`: how many values must follow the last sample of a file.
  Column(const Datum &datum, Files files, uint64_t shift, uint64_t spare)
      : datum(datum), fileList(std::move(files)), shift(shift), spare(spare) {
    for (const std::shared_ptr<const DataFile> &file : fileList) {
      if (file->isArray())
        checkShape(*file);
      else if (datum.type != GRT_I32)
        invalid("data file '" + file->name() + "': expected an array file " +
                "(.npy) for '" + datum.name +
                "', whose values are no integers");
      // Of next tokens the tokens are checked.
      if (datum.type == GRT_I32 && shift == 0)
        file->checkIntegers(datum, 0, std::min(file->values(), checkedAtOnce));
      if (samplesOf(*file) == 0)
        invalid("data file '" + file->name() + "' is too short: expected at " +
                "least " + str(length() + spare) + " " + unit() + ", found " +
                str(file->values()));
    }
  }

  const Files &files() const { return fileList; }
  /// Whether values may be negative, so that how many count is known only when
  /// they were read.
  bool hasSigns() const {
    return std::any_of(fileList.begin(), fileList.end(),
                       [](const auto &file) { return file->hasSigns(); });
  }
  uint64_t samples() const {
    uint64_t sum = 0;
    for (const std::shared_ptr<const DataFile> &file : fileList)
      sum += samplesOf(*file);
    return sum;
  }
  void read(uint64_t sample, char *to) const {
    for (const std::shared_ptr<const DataFile> &file : fileList) {
      uint64_t here = samplesOf(*file);
      if (sample >= here) {
        sample -= here;
        continue;
      }
      uint64_t first = sample * length() + shift;
      if (datum.type == GRT_I32 && first + length() > checkedAtOnce)
        file->checkIntegers(datum, first, length());
      return file->read(first, length(), datum.type, to);
    }
  }

private:
  uint64_t length() const { return uint64_t(datum.elements()); }
  const char *unit() const {
    return datum.kind == "tokens" ? "tokens" : "values";
  }
  uint64_t samplesOf(const DataFile &file) const {
    uint64_t values = file.values();
    return values < spare ? 0 : (values - spare) / length();
  }
  void checkShape(const DataFile &file) const {
    auto text = [](const std::vector<int64_t> &shape) {
      std::string result = "[";
      for (size_t i = 0; i < shape.size(); ++i)
        result += (i ? ", " : "") + str(shape[i]);
      return result + "]";
    };
    std::vector<int64_t> found = file.header().shape;
    if (spare)
      invalid("data file '" + file.name() +
              "': an array of samples has no next tokens, expected labels in a "
              "file of their own");
    if (found.empty() || !std::equal(found.begin() + 1, found.end(),
                                     datum.shape.begin(), datum.shape.end()))
      invalid("data file '" + file.name() + "': expected samples of shape " +
              text(datum.shape) + " for '" + datum.name +
              "', found an array of shape " + text(found));
  }

  Datum datum;
  Files fileList;
  uint64_t shift, spare;
};

Dataset::Dataset() = default;
Dataset::~Dataset() = default;

/// The datum that files are of which name none.
static const Datum &mainDatum(const std::vector<Datum> &data) {
  for (const Datum &datum : data)
    if (datum.kind == "tokens")
      return datum;
  return data.front();
}

void Dataset::makeColumns(const DataOptions &options) {
  const Datum &main = mainDatum(data);
  std::vector<std::vector<std::string>> paths(data.size());
  for (const DataFiles &given : options.files) {
    const std::string &name = given.name.empty() ? main.name : given.name;
    auto datum = std::find_if(data.begin(), data.end(), [&](const Datum &each) {
      return each.name == name;
    });
    if (datum == data.end()) {
      std::string names;
      for (const Datum &each : data)
        names += (names.empty() ? "'" : ", '") + each.name + "'";
      invalid("data '" + name + "': expected one of the program's, " + names);
    }
    std::vector<std::string> &list = paths[size_t(datum - data.begin())];
    list.insert(list.end(), given.paths.begin(), given.paths.end());
  }
  // The next token of the row is a label of its own.
  auto isNextToken = [&](size_t i) {
    return data[i].kind == "labels" && paths[i].empty() &&
           main.kind == "tokens" && data[i].shape == main.shape &&
           data[i].below == main.below;
  };
  bool shifted = false;
  for (size_t i = 0; i < data.size(); ++i)
    shifted |= isNextToken(i);
  Column::Files mainFiles;
  for (size_t i = 0; i < data.size(); ++i) {
    if (isNextToken(i)) {
      columns.push_back(nullptr); // made below, when the tokens are there
      continue;
    }
    if (paths[i].empty())
      invalid("data '" + data[i].name + "' of kind '" + data[i].kind +
              "': expected a file, --data=" + data[i].name + "=FILE");
    Column::Files files;
    for (const std::string &path : paths[i])
      files.push_back(std::make_shared<DataFile>(path, options.format));
    allFiles.insert(allFiles.end(), files.begin(), files.end());
    bool isMain = &data[i] == &main;
    if (isMain)
      mainFiles = files;
    columns.push_back(std::make_unique<Column>(data[i], std::move(files), 0,
                                               isMain && shifted ? 1 : 0));
  }
  for (size_t i = 0; i < data.size(); ++i)
    if (!columns[i])
      columns[i] = std::make_unique<Column>(data[i], mainFiles, 1, 1);
}

void Dataset::countSamples() {
  training = columns.front()->samples();
  for (size_t i = 1; i < columns.size(); ++i)
    if (columns[i]->samples() != training)
      invalid("data '" + data[i].name + "' has " + str(columns[i]->samples()) +
              " samples, expected the " + str(training) + " of '" +
              data.front().name + "'");
}

Status Dataset::open(const DataOptions &options, std::vector<Datum> data,
                     std::unique_ptr<Dataset> &result) {
  return guarded([&] {
    if (options.files.empty())
      invalid("expected at least one data file");
    if (!(options.validationFraction >= 0 && options.validationFraction <= 1))
      invalid("validation fraction: expected a number from 0 to 1");
    std::unique_ptr<Dataset> opened(new Dataset);
    opened->data = std::move(data);
    opened->seed = options.seed;
    opened->makeColumns(options);
    opened->countSamples();
    uint64_t samples = opened->training;
    opened->validation =
        uint64_t(std::floor(double(samples) * options.validationFraction));
    opened->training = samples - opened->validation;
    result = std::move(opened);
  });
}

/// Whether a row of a batch lies in one of the ranges.
static bool contains(const std::vector<SampleRange> &ranges, int64_t row) {
  return std::any_of(ranges.begin(), ranges.end(), [&](SampleRange range) {
    return row >= range.first && row < range.first + range.count;
  });
}

/// How many of the integers are not negative.
static uint64_t countOf(const char *integers, uint64_t bytes) {
  uint64_t count = 0;
  for (uint64_t at = 0; at < bytes; at += sizeof(int32_t)) {
    int32_t value;
    std::memcpy(&value, integers + at, sizeof(value));
    count += value >= 0;
  }
  return count;
}

std::vector<DataIdentity> Dataset::identity() const {
  std::vector<DataIdentity> identities;
  for (const auto &file : allFiles)
    identities.push_back(file->identity());
  return identities;
}

std::vector<std::string> Dataset::fileNames() const {
  std::vector<std::string> names;
  for (const auto &file : allFiles)
    names.push_back(file->name());
  return names;
}

void Dataset::checkSizes() const {
  for (const auto &file : allFiles)
    file->checkSize();
}

void Dataset::readSample(uint64_t sample, int64_t row,
                         const SamplesRead *wanted, DataBatch &batch,
                         uint64_t &counted) const {
  for (size_t i = 0; i < columns.size(); ++i) {
    bool isCounted = data[i].counted;
    bool countsAll = isCounted && !columns[i]->hasSigns();
    if (countsAll)
      counted += uint64_t(data[i].elements());
    bool isWanted = !wanted || contains((*wanted)[i], row);
    if (!isWanted && (!isCounted || countsAll))
      continue;
    char *to = batch[i].data() + uint64_t(row) * data[i].bytesPerSample;
    columns[i]->read(sample, to);
    if (isCounted && !countsAll)
      counted += countOf(to, data[i].bytesPerSample);
  }
}

Status Dataset::trainingBatch(uint64_t first, int64_t batch, DataBatch &result,
                              const SamplesRead *wanted,
                              uint64_t *counted) const {
  return guarded([&] {
    uint64_t values = 0;
    if (training == 0)
      invalid("data: the validation fraction leaves no training samples");
    checkSizes();
    resize(batch, result);
    for (int64_t j = 0; j < batch; ++j) {
      uint64_t number = first + uint64_t(j);
      Permutation order(training, seed, number / training);
      readSample(order(number % training), j, wanted, result, values);
    }
    if (counted)
      *counted = values;
  });
}

uint64_t Dataset::validationBatches(int64_t batch) const {
  return (validation + uint64_t(batch) - 1) / uint64_t(batch);
}

Status Dataset::validationBatch(uint64_t index, int64_t batch,
                                DataBatch &result, const SamplesRead *wanted,
                                uint64_t *counted) const {
  return guarded([&] {
    uint64_t values = 0;
    checkSizes();
    resize(batch, result);
    for (int64_t j = 0; j < batch; ++j) {
      uint64_t sample = index * uint64_t(batch) + uint64_t(j);
      if (sample < validation)
        readSample(training + sample, j, wanted, result, values);
      else
        clearSample(uint64_t(j), result);
    }
    if (counted)
      *counted = values;
  });
}

void Dataset::resize(int64_t batch, DataBatch &result) const {
  result.resize(data.size());
  for (size_t i = 0; i < data.size(); ++i)
    result[i].resize(size_t(batch) * data[i].bytesPerSample);
}

void Dataset::clearSample(uint64_t row, DataBatch &batch) const {
  // Integers of all ones are -1, which does not count.
  for (size_t i = 0; i < data.size(); ++i)
    std::memset(batch[i].data() + row * data[i].bytesPerSample,
                data[i].counted ? 0xff : 0, data[i].bytesPerSample);
}

} // namespace grt
