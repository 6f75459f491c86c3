//===- tokens.cpp - bench-generation: what a token costs ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   bench-generation KEPT.gvx [WHOLE.gvx] [--threads=N] [--rounds=N]
//                    [--from=POSITION]
//
// Times, by turns and with the same threads, a token of a program that keeps
// keys and values, behind `from` others, and a pass over as many bytes as its
// weights have that only reads them; and with WHOLE, a program of the same
// model that keeps none, a token of that. Weights are random. Medians are
// printed, and the ratios of each turn's own.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "grt/session.h"
#include "grt/variables.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>
#include <vector>

namespace {

double milliseconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(
             Clock::now().time_since_epoch())
      .count();
}

void check(const grt::Status &status) {
  if (!status)
    throw std::runtime_error(status.message());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// The bytes of the weights of a program, without what it keeps.
uint64_t weightBytes(const grt::Program &program) {
  const grt::Manifest &manifest = program.manifest();
  uint64_t bytes = 0;
  for (const grt::Parameter &parameter : manifest.parameters)
    if (!parameter.isCache)
      bytes += uint64_t(parameter.elements()) * grt::dtypeBytes(manifest.dtype);
  return bytes;
}

/// Reads all of it, as much as there are threads at a time.
class Reader {
public:
  Reader(uint64_t bytes, int threads)
      : words(bytes / sizeof(uint64_t)), sums(size_t(threads)) {
    std::iota(words.begin(), words.end(), uint64_t(1));
  }
  double run() {
    const double begin = milliseconds();
    const size_t each = words.size() / sums.size();
    std::vector<std::thread> others;
    for (size_t t = 1; t < sums.size(); ++t)
      others.emplace_back([this, t, each] { sum(t, each); });
    sum(0, each);
    for (std::thread &other : others)
      other.join();
    return milliseconds() - begin;
  }
  uint64_t total() const {
    return std::accumulate(sums.begin(), sums.end(), uint64_t(0));
  }

private:
  void sum(size_t t, size_t each) {
    const uint64_t *from = words.data() + t * each;
    uint64_t parts[16] = {};
    for (size_t i = 0; i + 16 <= each; i += 16)
      for (size_t l = 0; l < 16; ++l)
        parts[l] += from[i + l];
    sums[t] = std::accumulate(std::begin(parts), std::end(parts), uint64_t(0));
  }

  std::vector<uint64_t> words, sums;
};

struct Options {
  std::vector<const char *> programs;
  int threads = 1, rounds = 15, from = 128;
};

std::unique_ptr<grt::Session> open(const char *path, int threads) {
  std::shared_ptr<const grt::Program> program;
  check(grt::Program::loadFile(path, program));
  grt::SessionOptions options;
  options.threadsPerRank = threads;
  std::unique_ptr<grt::Session> session;
  check(grt::Session::create(program, options, session));
  return session;
}

void run(const Options &options) {
  std::unique_ptr<grt::Session> kept =
      open(options.programs[0], options.threads);
  const grt::Program &program = kept->program();
  if (options.from + 2 * options.rounds > program.cacheLength())
    throw std::runtime_error("the program keeps too few positions");
  std::unique_ptr<grt::Session> whole;
  if (options.programs.size() > 1)
    whole = open(options.programs[1], options.threads);
  const int ranks = int(program.worldSize());
  const uint64_t bytes = weightBytes(program);
  Reader reader(bytes, options.threads * ranks);

  std::vector<int32_t> result, text;
  int position = 0;
  auto token = [&] {
    const int32_t next = position % 7 + 1;
    text.push_back(next);
    const grt::RowToken one = {0, position++, next};
    const double begin = milliseconds();
    check(kept->decode({&one, 1}, result));
    return milliseconds() - begin;
  };
  while (position < options.from)
    token();
  reader.run();
  std::vector<double> tokens, reads, ratios, slow;
  for (int i = 0; i < options.rounds; ++i) {
    token(); // what the pass that reads has pushed out of the cache
    tokens.push_back(token());
    reads.push_back(reader.run());
    ratios.push_back(tokens.back() / reads.back());
    if (!whole || i % 5)
      continue;
    const double begin = milliseconds();
    check(whole->predict(text, result));
    slow.push_back(milliseconds() - begin);
  }
  std::printf("token %.2f ms, reading %.1f MB %.2f ms (%.1f GB/s), ratio %.2f",
              median(tokens), 1e-6 * double(bytes), median(reads),
              1e-6 * double(bytes) / median(reads), median(ratios));
  if (whole)
    std::printf(", whole sequence %.0f ms, %.1f times", median(slow),
                median(slow) / median(tokens));
  std::printf(" (%llu)\n",
              static_cast<unsigned long long>(reader.total() % 10));
}

} // namespace

int main(int argc, char **argv) {
  grt::setLibraryVariables();
  Options options;
  const std::pair<const char *, int *> numbers[] = {
      {"--threads=", &options.threads},
      {"--rounds=", &options.rounds},
      {"--from=", &options.from}};
  for (int i = 1; i < argc; ++i) {
    bool isNumber = false;
    for (auto [name, value] : numbers)
      if (!std::strncmp(argv[i], name, std::strlen(name))) {
        *value = std::atoi(argv[i] + std::strlen(name));
        isNumber = true;
      }
    if (!isNumber)
      options.programs.push_back(argv[i]);
  }
  if (options.programs.empty() || options.threads < 1 || options.rounds < 1) {
    std::fprintf(stderr, "usage: bench-generation KEPT.gvx [WHOLE.gvx] "
                         "[--threads=N] [--rounds=N] [--from=POSITION]\n");
    return 2;
  }
  try {
    run(options);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "bench-generation: error: %s\n", error.what());
    return 1;
  }
  return 0;
}
