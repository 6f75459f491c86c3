//===- files.cpp - Files that samples are read from -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/files.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/values.h"
#include "grt/philox.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

namespace grt {
namespace {

struct Format {
  const char *name, *suffix;
  uint64_t width; ///< bytes of a token; 0: others say it
};
constexpr Format formats[] = {{"text", ".txt", 1}, {"jsonl", ".jsonl", 1},
                              {"u16", ".u16", 2},  {"u32", ".u32", 4},
                              {"bin", ".bin", 0},  {"npy", ".npy", 0}};

/// The format of a file, by the option or by its suffix.
const Format &formatOf(const std::string &path, const std::string &wanted) {
  for (const Format &format : formats)
    if (wanted.empty() ? path.ends_with(format.suffix) : wanted == format.name)
      return format;
  if (!wanted.empty())
    invalid("data format: expected text, jsonl, u16, u32, bin or npy, found '" +
            wanted + "'");
  if (!std::filesystem::exists(path))
    invalid("cannot open data file '" + path + "': No such file or directory");
  invalid("data file '" + path +
          "': expected a suffix .txt, .jsonl, .u16, .u32, .bin or .npy, or a "
          "data format");
}

} // namespace

DataFile::DataFile(const std::string &path, const std::string &wanted,
                   const TextEncoder &encodeText, uint64_t mostChecked)
    : path(path), checkedFirst(mostChecked) {
  if (std::filesystem::is_directory(path))
    invalid("data file '" + path + "' is a folder; the pattern '" +
            (std::filesystem::path(path) / "*.u16").string() +
            "' would be the files of tokens in it");
  const Format &format = formatOf(path, wanted);
  formatName = format.name;
  bool isText = formatName == "text" || formatName == "jsonl";
  if (isText && encodeText) {
    if (Status status = encodeText(path, encoded); !status)
      fail(ExitCode(status.exitCode()), status.message());
    if (encoded.tokens.empty())
      invalid("data file '" + path + "' has no tokens");
    data = encoded.tokens;
    ends = documentEndsOf(std::move(encoded.ends));
    formatName = encoded.width == 2 ? "u16" : "u32";
    openTokens(encoded.width);
    return;
  }
  if (formatName == "jsonl")
    invalid("data file '" + path + "': expected a tokenizer for its text");
  file = std::make_unique<MappedFile>(path, "data file");
  data = file->bytes();
  if (formatName == "npy") {
    openArray();
    return;
  }
  uint64_t width = format.width;
  if (formatName == "bin") {
    if (!path.ends_with(".bin"))
      invalid("data file '" + path + "': expected a name that ends in .bin, " +
              "whose index ends in .idx");
    MegatronIndex index;
    ends = openMegatronIndex(path, data.size(), index);
    width = index.width;
  }
  openTokens(width);
  if (formatName != "u16" && formatName != "u32")
    return;
  if (std::optional<IndexedShard> index = openShardIndex(path, data, width)) {
    largest = index->facts.largest;
    const std::array<uint8_t, 32> &hash = index->facts.tokenizer;
    if (hash != std::array<uint8_t, 32>{})
      tokenizer = hexadecimal(std::string_view(
          reinterpret_cast<const char *>(hash.data()), hash.size()));
    checkedFirst = 0;
    ends = std::move(index->ends);
    labelFile = std::move(index->labels);
    if (index->facts.labels)
      labelFacts = *index->facts.labels;
    packedFor = index->facts.sampleTokens;
  }
}

void DataFile::openTokens(uint64_t width) {
  array.kind = 'u';
  array.width = width;
  if (data.size() % width)
    invalid("data file '" + path + "': " + str(data.size()) +
            " bytes are not a whole number of " + formatName + " tokens");
  count = data.size() / width;
  labelFacts.counted = count;
  array.shape = {int64_t(count)};
  checkedFirst = std::min(count, checkedFirst);
}

void DataFile::openArray() {
  array = parseNpyHeader(data, path);
  count = 1;
  for (int64_t dim : array.shape)
    count *= uint64_t(dim);
  labelFacts.counted = count;
  if (array.dataOffset + count * array.width != data.size())
    invalid("data file '" + path + "': expected " + str(count) +
            " elements of type " + array.typeName() + " in " +
            str(array.dataOffset + count * array.width) + " bytes, found " +
            str(data.size()));
  checkedFirst = std::min(count, checkedFirst);
}

DataFile::~DataFile() = default;

void DataFile::checkFirst(const Datum &datum) const {
  // Readers of tokens check them all the same: an index may be wrong.
  if (largest && *largest >= uint64_t(datum.below))
    invalid("data file '" + path + "': its index says that token " +
            str(*largest) + " is in it, expected less than the vocabulary of " +
            str(datum.below));
  checkIntegers(datum, 0, checkedFirst);
}

int64_t DataFile::integerAt(uint64_t position) const {
  const unsigned char *at = elements() + position * array.width;
  uint64_t value = 0;
  for (uint64_t b = 0; b < array.width; ++b)
    value |= uint64_t(at[b]) << (8 * b);
  if (array.kind != 'i')
    return int64_t(value);
  unsigned unused = unsigned(64 - 8 * array.width);
  return int64_t(value << unused) >> unused;
}

double DataFile::realAt(uint64_t position) const {
  const unsigned char *at = elements() + position * array.width;
  if (array.kind != 'f') {
    auto value = double(integerAt(position));
    return array.kind == 'u' && array.width == 1 ? value / 255 : value;
  }
  if (array.width == 8) {
    double value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  float value;
  std::memcpy(&value, at, sizeof(value));
  return double(value);
}

/// True if all integers, of type `T`, lie in [low, below). The loop has no
/// early end, so that several are compared at once.
template <typename T>
static bool allWithin(const unsigned char *at, uint64_t count, int64_t low,
                      int64_t below) {
  T least = 0, most = 0;
  for (uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, at + i * sizeof(T), sizeof(T));
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return int64_t(least) >= low && int64_t(most) < below;
}

bool DataFile::areWithin(uint64_t first, uint64_t number, int64_t low,
                         int64_t below) const {
  const unsigned char *at = elements() + first * array.width;
  switch (array.width * 2 + (array.kind == 'i')) {
  case 2:
    return allWithin<uint8_t>(at, number, low, below);
  case 3:
    return allWithin<int8_t>(at, number, low, below);
  case 4:
    return allWithin<uint16_t>(at, number, low, below);
  case 5:
    return allWithin<int16_t>(at, number, low, below);
  case 8:
    return allWithin<uint32_t>(at, number, low, below);
  case 9:
    return allWithin<int32_t>(at, number, low, below);
  default: // Files have no other integers than of 8 bytes.
    return allWithin<int64_t>(at, number, low, below);
  }
}

void DataFile::checkIntegers(const Datum &datum, uint64_t first,
                             uint64_t number) const {
  if (array.kind == 'f')
    invalid("data file '" + path + "': expected integers for '" + datum.name +
            "', found elements of type " + array.typeName());
  constexpr uint64_t block = 4096;
  const int64_t low =
      datum.counted ? std::numeric_limits<int64_t>::min() : int64_t(0);
  for (uint64_t begin = first; begin < first + number; begin += block) {
    uint64_t end = std::min(begin + block, first + number);
    if (areWithin(begin, end - begin, low, datum.below))
      continue;
    uint64_t at = begin;
    while (areWithin(at, 1, low, datum.below))
      ++at;
    int64_t value = integerAt(at);
    bool isToken = datum.kind == "tokens";
    invalid("data file '" + path + "': " +
            (isToken ? std::string("token") : "'" + datum.name + "' has") +
            " " + str(value) + " at position " + str(at) + ", expected " +
            (value < 0 ? "at least 0 and " : "") + "less than " +
            (isToken ? "the vocabulary of " : "") + str(datum.below));
  }
}

/// Integers of type `T` as 32 bits. Negative values of whatever width are all
/// the same: not counted.
template <typename T>
static void convert(const unsigned char *at, uint64_t count, int32_t *to) {
  for (uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, at + i * sizeof(T), sizeof(T));
    to[i] = int32_t(std::is_signed_v<T> ? std::max<T>(value, T(-1)) : value);
  }
}

void DataFile::read(uint64_t first, uint64_t number, uint32_t type,
                    char *to) const {
  if (type == GRT_I32) {
    auto *out = reinterpret_cast<int32_t *>(to);
    const unsigned char *at = elements() + first * array.width;
    switch (array.width * 2 + (array.kind == 'i')) {
    case 2:
      return convert<uint8_t>(at, number, out);
    case 3:
      return convert<int8_t>(at, number, out);
    case 4:
      return convert<uint16_t>(at, number, out);
    case 5:
      return convert<int16_t>(at, number, out);
    case 8:
      return convert<uint32_t>(at, number, out);
    case 9:
      return convert<int32_t>(at, number, out);
    default: // Files have no other integers than of 8 bytes.
      return convert<int64_t>(at, number, out);
    }
  }
  // Values that have the wanted type already are copied.
  const bool isKept = type == GRT_F64 || type == GRT_F32;
  const uint64_t width = dtypeBytes(type);
  if (array.kind == 'f' && array.width == width && isKept) {
    std::memcpy(to, elements() + first * width, number * width);
    return;
  }
  for (uint64_t i = 0; i < number; ++i) {
    double value = realAt(first + i);
    if (type == GRT_F64) {
      std::memcpy(to + i * sizeof(double), &value, sizeof(value));
    } else if (type == GRT_F32) {
      auto single = float(value);
      std::memcpy(to + i * sizeof(float), &single, sizeof(single));
    } else {
      storeValues(&value, 1, grt_dtype(type), to + i * 2);
    }
  }
}

void DataFile::checkSize() const {
  if (file)
    file->checkSize();
  if (labelFile)
    labelFile->checkSize();
}

DataIdentity DataFile::identity() const {
  uint64_t hash = edgeHashOf(data);
  if (labelFile)
    hash ^= mix64(labelFacts.edgeHash + labelFacts.counted);
  return {formatName, count, hash};
}

} // namespace grt
