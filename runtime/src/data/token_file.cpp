//===- token_file.cpp - Token files and samples ---------------------------===//
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
#include <sys/stat.h>
#include <unistd.h>

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

TokenFile::~TokenFile() {
  if (descriptor >= 0)
    close(descriptor);
}

Status TokenFile::open(const DataOptions &options, int64_t vocabulary,
                       int64_t seqLen, std::unique_ptr<TokenFile> &result) {
  return guarded([&] {
    std::unique_ptr<TokenFile> file(new TokenFile);
    const std::string &path = options.path;
    std::string format = options.format;
    if (format.empty()) {
      size_t dot = path.rfind('.');
      std::string suffix = dot == std::string::npos ? "" : path.substr(dot);
      format = suffix == ".txt"   ? "text"
               : suffix == ".u16" ? "u16"
               : suffix == ".u32" ? "u32"
                                  : "";
      if (format.empty())
        invalid("data file '" + path +
                "': expected a suffix .txt, .u16 or .u32, or a data format");
    }
    if (format != "text" && format != "u16" && format != "u32")
      invalid("data format: expected text, u16 or u32, found '" + format + "'");
    if (!(options.validationFraction >= 0 && options.validationFraction < 1))
      invalid("validation fraction: expected a number from 0 to below 1");
    file->path = path;
    file->width = format == "text" ? 1 : format == "u16" ? 2 : 4;
    file->seqLen = seqLen;
    file->seed = options.seed;
    file->descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (file->descriptor < 0 || fstat(file->descriptor, &status) != 0)
      invalid("cannot open data file '" + path + "': " + strerror(errno));
    if (!S_ISREG(status.st_mode))
      invalid("data file '" + path + "' is not a regular file");
    if (uint64_t(status.st_size) % file->width)
      invalid("data file '" + path + "': " + std::to_string(status.st_size) +
              " bytes are not a whole number of " + format + " tokens");
    file->tokens = uint64_t(status.st_size) / file->width;

    uint64_t samples = file->tokens ? (file->tokens - 1) / uint64_t(seqLen) : 0;
    if (samples == 0)
      invalid("data file '" + path + "' is too short: expected at least " +
              std::to_string(seqLen + 1) + " tokens, found " +
              std::to_string(file->tokens));
    file->validation =
        uint64_t(std::floor(double(samples) * options.validationFraction));
    file->training = samples - file->validation;

    // Whatever a token's width can hold needs no check.
    if (vocabulary < (int64_t(1) << (8 * file->width))) {
      std::vector<int32_t> chunk(1 << 16);
      for (uint64_t first = 0; first < file->tokens; first += chunk.size()) {
        uint64_t count = std::min<uint64_t>(chunk.size(), file->tokens - first);
        file->read(first, count, chunk.data());
        for (uint64_t i = 0; i < count; ++i)
          if (uint32_t(chunk[i]) >= uint64_t(vocabulary))
            invalid("data file '" + path + "': token " +
                    std::to_string(uint32_t(chunk[i])) + " at position " +
                    std::to_string(first + i) +
                    ", expected less than the vocabulary of " +
                    std::to_string(vocabulary));
      }
    }
    result = std::move(file);
  });
}

void TokenFile::read(uint64_t first, uint64_t count, int32_t *out) const {
  // Bytes are read into the end of the output and widened in place, from the
  // front: a narrow token never lies before the place it goes to.
  unsigned char *bytes =
      reinterpret_cast<unsigned char *>(out) + count * (4 - width);
  uint64_t wanted = count * width, done = 0;
  while (done < wanted) {
    ssize_t got = pread(descriptor, bytes + done, wanted - done,
                        off_t(first * width + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      fail("cannot read data file '" + path +
           "': " + (got < 0 ? strerror(errno) : "it became shorter"));
    done += uint64_t(got);
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t token = 0;
    for (uint64_t b = 0; b < width; ++b)
      token |= uint32_t(bytes[i * width + b]) << (8 * b);
    out[i] = int32_t(token);
  }
}

void TokenFile::readSample(uint64_t sample, int32_t *inputs,
                           int32_t *labels) const {
  uint64_t first = sample * uint64_t(seqLen);
  read(first, uint64_t(seqLen), inputs);
  read(first + 1, uint64_t(seqLen), labels);
}

Status TokenFile::trainingBatch(uint64_t step, int64_t batch,
                                std::vector<int32_t> &inputs,
                                std::vector<int32_t> &labels) {
  return guarded([&] {
    if (training == 0)
      invalid("data file '" + path + "' has no training samples");
    inputs.resize(size_t(batch * seqLen));
    labels.resize(size_t(batch * seqLen));
    for (int64_t j = 0; j < batch; ++j) {
      uint64_t number = (step - 1) * uint64_t(batch) + uint64_t(j);
      Permutation order(training, seed, number / training);
      readSample(order(number % training), inputs.data() + j * seqLen,
                 labels.data() + j * seqLen);
    }
  });
}

uint64_t TokenFile::validationBatches(int64_t batch) const {
  return (validation + uint64_t(batch) - 1) / uint64_t(batch);
}

Status TokenFile::validationBatch(uint64_t index, int64_t batch,
                                  std::vector<int32_t> &inputs,
                                  std::vector<int32_t> &labels) {
  return guarded([&] {
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
