//===- fuzz_data.cpp - Token files ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The first byte chooses format, vocabulary, sequence length and split; the
// rest is the file.

#include "grt/data.h"
#include "parsers.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  const char *const formats[] = {"text", "u16", "u32", "npy"};
  const int64_t vocabularies[] = {1, 100, 50257, 0x7fffffff};
  int descriptor = memfd_create("tokens", MFD_CLOEXEC);
  if (descriptor < 0 ||
      write(descriptor, data + 1, size - 1) != ssize_t(size - 1))
    std::abort();
  DataOptions options;
  options.files = {{"", {"/proc/self/fd/" + std::to_string(descriptor)}}};
  options.format = formats[data[0] & 3];
  options.validationFraction = (data[0] & 64) ? 0.3 : 0;
  int64_t vocabulary = vocabularies[(data[0] >> 2) & 3];
  int64_t length = 1 + 3 * ((data[0] >> 4) & 3);
  if (data[0] & 128) {
    options.corruption.kind = Corruption::Kind::Tokens;
    options.corruption.mask = 0;
    options.corruption.words = vocabulary;
  }
  std::unique_ptr<Dataset> dataset;
  auto datum = [&](const char *kind, bool counted) {
    Datum result;
    result.name = result.kind = kind;
    result.shape = {length};
    result.bytesPerSample = uint64_t(length) * sizeof(int32_t);
    result.below = vocabulary;
    result.counted = counted;
    return result;
  };
  // Labels of an array are another file; here they are the same.
  if (options.format == "npy")
    options.files.push_back({"labels", options.files.front().paths});
  Status status = Dataset::open(
      options, {datum("tokens", false), datum("labels", true)}, dataset);
  if (!status && (status.exitCode() != 2 || status.message().empty()))
    std::abort();
  DataBatch batch;
  for (uint64_t first : {uint64_t(0), uint64_t(5), uint64_t(1) << 40})
    if (status && dataset->trainingSamples() > 0) {
      if (!dataset->trainingBatch(first, 3, batch))
        std::abort();
      for (size_t at = 0; at < batch[0].size(); at += sizeof(int32_t)) {
        int32_t token;
        std::memcpy(&token, &batch[0][at], sizeof(token));
        if (token < 0 || token >= vocabulary)
          std::abort();
      }
    }
  for (uint64_t i = 0; status && i < dataset->validationBatches(3) && i < 4;
       ++i)
    if (!dataset->validationBatch(i, 3, batch))
      std::abort();
  dataset.reset();
  close(descriptor);
  return 0;
}
