//===- steps.cpp - bench-steps: training steps on command -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   bench-steps PROGRAM.gvx [--threads=N]
//
// Loads a program and obeys lines of standard input, so that a driver can
// interleave it with other programs on the same cores:
//
//   steps N     runs N steps; answers one line a step: wall and processor
//               milliseconds and the loss
//   profile N   runs N steps; answers a table of time by kernel, then "end"
//
// Data are random, of a fixed seed; masks let everything count. Waiting for a
// line takes no processor time.
//
//===----------------------------------------------------------------------===//

#include "profile.h"

#include "core/executor.h"
#include "grt/session.h"
#include "grt/variables.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <random>
#include <thread>

using namespace galvatron::bench;

namespace {

double wallMilliseconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(
             Clock::now().time_since_epoch())
      .count();
}

/// Of all threads of the process, in user and system mode.
double processorMilliseconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * double(time.tv_sec) + 1e-6 * double(time.tv_nsec);
}

void check(const grt::Status &status) {
  if (!status)
    throw std::runtime_error(status.message());
}

/// A batch of all that the program takes.
grt::DataBatch randomBatch(const grt::Program &program) {
  std::mt19937 generator(1);
  grt::DataBatch batch;
  for (const grt::Datum &datum : program.data()) {
    size_t count = size_t(program.batchSize() * datum.elements());
    std::vector<char> bytes(size_t(program.batchSize()) * datum.bytesPerSample);
    const size_t size = bytes.size() / count;
    for (size_t i = 0; i < count; ++i) {
      int32_t integer =
          datum.kind == "mask"
              ? 1
              : int32_t(generator() % uint64_t(datum.below ? datum.below : 1));
      double real = double(generator()) / 4294967296.0 - 0.5;
      float single = float(real);
      char *place = bytes.data() + i * size;
      if (datum.below || datum.type == GRT_I32)
        std::memcpy(place, &integer, size);
      else if (size == sizeof(double))
        std::memcpy(place, &real, size);
      else // Of bf16 the upper half.
        std::memcpy(place, reinterpret_cast<char *>(&single) + 4 - size, size);
    }
    batch.push_back(std::move(bytes));
  }
  return batch;
}

void run(const char *path, int threads) {
  std::shared_ptr<const grt::Program> program;
  check(grt::Program::loadFile(path, program));
  int ranks = int(program->worldSize());
  int cores = int(std::thread::hardware_concurrency());

  grt::BackendHandle backend("cpu", "");
  Profile profile(*backend);
  std::unique_ptr<grt::Session> plain, measuring;
  auto open = [&](const grt_backend *table,
                  std::unique_ptr<grt::Session> &session) {
    grt::SessionOptions options;
    options.threadsPerRank = threads;
    options.backend = table;
    check(grt::Session::create(program, options, session));
    check(session->setBatch(randomBatch(*program)));
  };

  char line[64];
  while (std::fgets(line, sizeof(line), stdin)) {
    char command[16];
    int count = 0;
    if (std::sscanf(line, "%15s %d", command, &count) != 2 || count < 1)
      throw std::runtime_error("expected 'steps N' or 'profile N'");
    grt::StepResult result;
    if (!std::strcmp(command, "steps")) {
      if (!plain)
        open(&*backend, plain);
      for (int i = 0; i < count; ++i) {
        double wall = wallMilliseconds(), processor = processorMilliseconds();
        check(plain->step(result));
        std::printf("%.4f %.4f %.6f\n", wallMilliseconds() - wall,
                    processorMilliseconds() - processor, result.loss);
      }
    } else if (!std::strcmp(command, "profile")) {
      plain.reset();
      Peaks peaks = measurePeaks(*backend, threads ? threads * ranks : cores);
      open(profile.table(), measuring);
      check(measuring->step(result));
      profile.reset();
      double begin = wallMilliseconds();
      for (int i = 0; i < count; ++i)
        check(measuring->step(result));
      profile.print(stdout, peaks, ranks, count,
                    1e-3 * (wallMilliseconds() - begin));
      std::printf("end\n");
      measuring.reset();
    } else {
      throw std::runtime_error(std::string("unknown command '") + command +
                               "'");
    }
    std::fflush(stdout);
  }
}

} // namespace

int main(int argc, char **argv) {
  grt::setLibraryVariables();
  const char *path = nullptr;
  int threads = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::strncmp(argv[i], "--threads=", 10))
      threads = std::atoi(argv[i] + 10);
    else
      path = argv[i];
  }
  if (!path || threads < 0) {
    std::fprintf(stderr, "usage: bench-steps PROGRAM.gvx [--threads=N]\n");
    return 2;
  }
  try {
    run(path, threads);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "bench-steps: error: %s\n", error.what());
    return 1;
  }
  return 0;
}
