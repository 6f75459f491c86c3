//===- reading.cpp - Samples a second of files of tokens ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// bench-reading SEQUENCE BATCH BATCHES FILE...: reads training batches as a run
// does, one after the other in one thread; prints the seconds that opening and
// reading took, and a sum of all tokens and labels.
//
//===----------------------------------------------------------------------===//

#include "grt/data.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace grt;

int main(int argc, char **argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s SEQUENCE BATCH BATCHES FILE...\n", argv[0]);
    return 2;
  }
  int64_t length = std::atoll(argv[1]), batch = std::atoll(argv[2]);
  uint64_t batches = std::strtoull(argv[3], nullptr, 10);
  auto datum = [&](const char *kind) {
    Datum result;
    result.name = result.kind = kind;
    result.shape = {length};
    result.bytesPerSample = uint64_t(length) * sizeof(int32_t);
    result.below = 1 << 20;
    result.counted = std::strcmp(kind, "labels") == 0;
    return result;
  };
  DataOptions options;
  options.files = {{"", std::vector<std::string>(argv + 4, argv + argc)}};
  std::unique_ptr<Dataset> data;
  auto begin = std::chrono::steady_clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         begin)
        .count();
  };
  Status status =
      Dataset::open(options, {datum("tokens"), datum("labels")}, data);
  double opened = seconds();
  DataBatch values;
  uint64_t sum = 0;
  for (uint64_t i = 0; status && i < batches; ++i) {
    status = data->trainingBatch(i * uint64_t(batch), batch, values);
    for (const std::vector<char> &bytes : values)
      for (size_t at = 0; status && at < bytes.size(); at += sizeof(int32_t)) {
        int32_t value;
        std::memcpy(&value, &bytes[at], sizeof(value));
        sum += uint64_t(value);
      }
  }
  if (!status) {
    std::fprintf(stderr, "bench-reading: %s\n", status.message().c_str());
    return status.exitCode();
  }
  std::printf("%.6f %.6f %llu\n", opened, seconds() - opened,
              (unsigned long long)sum);
  return 0;
}
