//===- dataset.cpp - Token files and samples ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "grt/data.h"
#include "grt/philox.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace grt {
namespace {

/// The format of a file, by the option or by its suffix.
std::string formatOf(const std::string &path, const std::string &wanted) {
  if (!wanted.empty()) {
    if (wanted != "text" && wanted != "u16" && wanted != "u32")
      invalid("data format: expected text, u16 or u32, found '" + wanted + "'");
    return wanted;
  }
  if (path.ends_with(".txt"))
    return "text";
  if (path.ends_with(".u16"))
    return "u16";
  if (path.ends_with(".u32"))
    return "u32";
  invalid("data file '" + path +
          "': expected a suffix .txt, .u16 or .u32, or a data format");
}

} // namespace

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

/// One file, mapped.
class Dataset::Source {
public:
  Source(const std::string &path, const std::string &format)
      : path(path), format(formatOf(path, format)) {
    width = this->format == "text" ? 1 : this->format == "u16" ? 2 : 4;
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (descriptor < 0 || fstat(descriptor, &status) != 0)
      fail(codeOfPath(errno),
           "cannot open data file '" + path + "': " + strerror(errno));
    if (!S_ISREG(status.st_mode))
      invalid("data file '" + path + "' is not a regular file");
    bytes = uint64_t(status.st_size);
    if (bytes == 0)
      invalid("data file '" + path + "' is empty");
    if (bytes % width)
      invalid("data file '" + path + "': " + std::to_string(bytes) +
              " bytes are not a whole number of " + this->format + " tokens");
    void *mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
      fail(errno == ENOMEM ? ExitMemory : ExitStorage,
           "cannot map data file '" + path + "': " + strerror(errno));
    data = static_cast<const unsigned char *>(mapped);
  }
  ~Source() {
    if (data)
      munmap(const_cast<unsigned char *>(data), bytes);
    if (descriptor >= 0)
      close(descriptor);
  }
  Source(const Source &) = delete;
  Source &operator=(const Source &) = delete;

  const std::string &name() const { return path; }
  uint64_t tokens() const { return bytes / width; }
  uint64_t samples(int64_t seqLen) const {
    return (tokens() - 1) / uint64_t(seqLen);
  }

  void read(uint64_t first, uint64_t count, int32_t *out) const {
    const unsigned char *at = data + first * width;
    for (uint64_t i = 0; i < count; ++i) {
      uint32_t token = 0;
      for (uint64_t b = 0; b < width; ++b)
        token |= uint32_t(at[i * width + b]) << (8 * b);
      out[i] = int32_t(token);
    }
  }

  void checkVocabulary(int64_t vocabulary) const {
    // Whatever a token's width can hold needs no check.
    if (vocabulary >= (int64_t(1) << (8 * width)))
      return;
    for (uint64_t i = 0; i < tokens(); ++i) {
      int32_t token;
      read(i, 1, &token);
      if (uint32_t(token) >= uint64_t(vocabulary))
        invalid("data file '" + path + "': token " +
                std::to_string(uint32_t(token)) + " at position " +
                std::to_string(i) + ", expected less than the vocabulary of " +
                std::to_string(vocabulary));
    }
  }

  void checkSize() const {
    struct stat status{};
    if (fstat(descriptor, &status) != 0)
      fail(ExitStorage,
           "cannot look at data file '" + path + "': " + strerror(errno));
    if (uint64_t(status.st_size) != bytes)
      fail(ExitStorage, "data file '" + path +
                            "' changed while it was used: expected " +
                            std::to_string(bytes) + " bytes, found " +
                            std::to_string(status.st_size));
  }

  DataIdentity identity() const {
    constexpr uint64_t edge = 1 << 16;
    uint64_t hash = 0xcbf29ce484222325ull;
    auto add = [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i)
        hash = (hash ^ data[i]) * 0x100000001b3ull;
    };
    add(0, std::min(edge, bytes));
    if (bytes > edge)
      add(std::max(edge, bytes - edge), bytes);
    return {format, tokens(), hash};
  }

private:
  std::string path, format;
  int descriptor = -1;
  uint64_t width = 1, bytes = 0;
  const unsigned char *data = nullptr;
};

Dataset::Dataset() = default;
Dataset::~Dataset() = default;

Status Dataset::open(const DataOptions &options, int64_t vocabulary,
                     int64_t seqLen, std::unique_ptr<Dataset> &result) {
  return guarded([&] {
    if (options.paths.empty())
      invalid("expected at least one data file");
    if (!(options.validationFraction >= 0 && options.validationFraction <= 1))
      invalid("validation fraction: expected a number from 0 to 1");
    std::unique_ptr<Dataset> opened(new Dataset);
    opened->seqLen = seqLen;
    opened->seed = options.seed;
    uint64_t samples = 0;
    for (const std::string &path : options.paths) {
      auto source = std::make_unique<Source>(path, options.format);
      if (source->samples(seqLen) == 0)
        invalid("data file '" + path + "' is too short: expected at least " +
                std::to_string(seqLen + 1) + " tokens, found " +
                std::to_string(source->tokens()));
      source->checkVocabulary(vocabulary);
      samples += source->samples(seqLen);
      opened->sources.push_back(std::move(source));
    }
    opened->validation =
        uint64_t(std::floor(double(samples) * options.validationFraction));
    opened->training = samples - opened->validation;
    result = std::move(opened);
  });
}

uint64_t Dataset::tokenCount() const {
  uint64_t tokens = 0;
  for (const std::unique_ptr<Source> &source : sources)
    tokens += source->tokens();
  return tokens;
}

std::vector<DataIdentity> Dataset::identity() const {
  std::vector<DataIdentity> files;
  for (const std::unique_ptr<Source> &source : sources)
    files.push_back(source->identity());
  return files;
}

void Dataset::checkSizes() const {
  for (const std::unique_ptr<Source> &source : sources)
    source->checkSize();
}

void Dataset::readSample(uint64_t sample, int32_t *inputs,
                         int32_t *labels) const {
  for (const std::unique_ptr<Source> &source : sources) {
    uint64_t count = source->samples(seqLen);
    if (sample >= count) {
      sample -= count;
      continue;
    }
    uint64_t first = sample * uint64_t(seqLen);
    source->read(first, uint64_t(seqLen), inputs);
    source->read(first + 1, uint64_t(seqLen), labels);
    return;
  }
}

Status Dataset::trainingBatch(uint64_t first, int64_t batch,
                              std::vector<int32_t> &inputs,
                              std::vector<int32_t> &labels) const {
  return guarded([&] {
    if (training == 0)
      invalid("data: the validation fraction leaves no training samples");
    checkSizes();
    inputs.resize(size_t(batch * seqLen));
    labels.resize(size_t(batch * seqLen));
    for (int64_t j = 0; j < batch; ++j) {
      uint64_t number = first + uint64_t(j);
      Permutation order(training, seed, number / training);
      readSample(order(number % training), inputs.data() + j * seqLen,
                 labels.data() + j * seqLen);
    }
  });
}

uint64_t Dataset::validationBatches(int64_t batch) const {
  return (validation + uint64_t(batch) - 1) / uint64_t(batch);
}

Status Dataset::validationBatch(uint64_t index, int64_t batch,
                                std::vector<int32_t> &inputs,
                                std::vector<int32_t> &labels) const {
  return guarded([&] {
    checkSizes();
    inputs.assign(size_t(batch * seqLen), 0);
    labels.assign(size_t(batch * seqLen), -1);
    for (int64_t j = 0; j < batch; ++j) {
      uint64_t sample = index * uint64_t(batch) + uint64_t(j);
      if (sample < validation)
        readSample(training + sample, inputs.data() + j * seqLen,
                   labels.data() + j * seqLen);
    }
  });
}

} // namespace grt
