//===- files.cpp - Files that samples are read from -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/files.h"
#include "core/error.h"
#include "core/init.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace grt {
namespace {

struct Format {
  const char *name, *suffix;
  uint64_t width; ///< bytes of a token; 0: an array
};
constexpr Format formats[] = {{"text", ".txt", 1},
                              {"u16", ".u16", 2},
                              {"u32", ".u32", 4},
                              {"npy", ".npy", 0}};

/// The format of a file, by the option or by its suffix.
const Format &formatOf(const std::string &path, const std::string &wanted) {
  for (const Format &format : formats)
    if (wanted.empty() ? path.ends_with(format.suffix) : wanted == format.name)
      return format;
  if (!wanted.empty())
    invalid("data format: expected text, u16, u32 or npy, found '" + wanted +
            "'");
  invalid("data file '" + path +
          "': expected a suffix .txt, .u16, .u32 or .npy, or a data format");
}

} // namespace

DataFile::DataFile(const std::string &path, const std::string &wanted)
    : path(path) {
  const Format &format = formatOf(path, wanted);
  formatName = format.name;
  descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  try {
    struct stat status{};
    if (descriptor < 0 || fstat(descriptor, &status) != 0)
      fail(codeOfPath(errno),
           "cannot open data file '" + path + "': " + strerror(errno));
    if (!S_ISREG(status.st_mode))
      invalid("data file '" + path + "' is not a regular file");
    bytes = uint64_t(status.st_size);
    if (bytes == 0)
      invalid("data file '" + path + "' is empty");
    void *mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
      fail(errno == ENOMEM ? ExitMemory : ExitStorage,
           "cannot map data file '" + path + "': " + strerror(errno));
    data = static_cast<const unsigned char *>(mapped);
    if (format.width) {
      array.kind = 'u';
      array.width = format.width;
      if (bytes % format.width)
        invalid("data file '" + path + "': " + str(bytes) +
                " bytes are not a whole number of " + formatName + " tokens");
      count = bytes / format.width;
      array.shape = {int64_t(count)};
      return;
    }
    array = parseNpyHeader({reinterpret_cast<const char *>(data), bytes}, path);
    count = 1;
    for (int64_t dim : array.shape)
      count *= uint64_t(dim);
    if (array.dataOffset + count * array.width != bytes)
      invalid("data file '" + path + "': expected " + str(count) +
              " elements of type " + array.typeName() + " in " +
              str(array.dataOffset + count * array.width) + " bytes, found " +
              str(bytes));
  } catch (...) {
    if (data)
      munmap(const_cast<unsigned char *>(data), bytes);
    if (descriptor >= 0)
      close(descriptor);
    throw;
  }
}

DataFile::~DataFile() {
  munmap(const_cast<unsigned char *>(data), bytes);
  close(descriptor);
}

int64_t DataFile::integerAt(uint64_t position) const {
  const unsigned char *at = data + array.dataOffset + position * array.width;
  uint64_t value = 0;
  for (uint64_t b = 0; b < array.width; ++b)
    value |= uint64_t(at[b]) << (8 * b);
  if (array.kind != 'i')
    return int64_t(value);
  unsigned unused = unsigned(64 - 8 * array.width);
  return int64_t(value << unused) >> unused;
}

double DataFile::realAt(uint64_t position) const {
  const unsigned char *at = data + array.dataOffset + position * array.width;
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

/// Whether integers of type `T` all lie in [low, below). No early end, so that
/// several are compared at once.
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
  const unsigned char *at = data + array.dataOffset + first * array.width;
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
  default:
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

void DataFile::read(uint64_t first, uint64_t number, uint32_t type,
                    char *to) const {
  if (type == GRT_I32) {
    auto *out = reinterpret_cast<int32_t *>(to);
    for (uint64_t i = 0; i < number; ++i)
      // Negative values of whatever width are all the same: not counted.
      out[i] = int32_t(std::max<int64_t>(integerAt(first + i), -1));
    return;
  }
  // What has the wanted type already is copied.
  uint64_t width = type == GRT_F64 ? 8 : 4;
  if (array.kind == 'f' && array.width == width && type != GRT_BF16) {
    std::memcpy(to, data + array.dataOffset + first * width, number * width);
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
  struct stat status{};
  if (fstat(descriptor, &status) != 0)
    fail(ExitStorage,
         "cannot look at data file '" + path + "': " + strerror(errno));
  if (uint64_t(status.st_size) != bytes)
    fail(ExitStorage, "data file '" + path +
                          "' changed while it was used: expected " +
                          str(bytes) + " bytes, found " + str(status.st_size));
}

DataIdentity DataFile::identity() const {
  constexpr uint64_t edge = 1 << 16;
  uint64_t hash = 0xcbf29ce484222325ull;
  auto add = [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i)
      hash = (hash ^ data[i]) * 0x100000001b3ull;
  };
  add(0, std::min(edge, bytes));
  if (bytes > edge)
    add(std::max(edge, bytes - edge), bytes);
  return {formatName, count, hash};
}

} // namespace grt
