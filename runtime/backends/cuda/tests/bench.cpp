//===- bench.cpp - What each kernel of a device reaches -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   grt-device-bench --backend=PATH [--rows=N] [--width=N] [--json=FILE]
//   grt-device-bench --bounds [--rows=N] [--width=N] [--json=FILE]
//
// Times a call of every kernel on the shapes of a transformer layer in bf16
// (kernel_cases.h) as device_probe.h says, and prints bytes or operations a
// second, and the share of the ceiling measured in the same run: a copy, and a
// large product. --bounds prints the same table without a device: what each
// call must move or compute, and no times.
//
//===----------------------------------------------------------------------===//

#include "kernel_cases.h"
#include "on_backend.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

using namespace grt::test;
using grt::profile::DeviceProbe;

namespace {

/// Seconds spent on each kernel, beyond the least number of calls.
constexpr double secondsEach = 0.1;

int64_t option(int argc, char **argv, const std::string &name, int64_t value) {
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]).rfind("--" + name + "=", 0) == 0)
      value = std::atoll(argv[i] + name.size() + 3);
  return value;
}

/// Bytes and operations a second.
struct Ceilings {
  double copied, peak;
};

Ceilings measureCeilings(DeviceProbe &probe, int64_t rows, int64_t width) {
  const uint64_t large = uint64_t(rows * width) * 8;
  const int64_t side =
      std::max<int64_t>(1024, std::min<int64_t>(8192, width * 4));
  const DeviceProbe::Buffer matrix = {GRT_BF16, side * side};
  double copied = 2.0 * double(large) / probe.copies(secondsEach, large);
  double product =
      probe.kernel(secondsEach, GRT_KERNEL_GEMM, {matrix, matrix, matrix},
                   {side, side, side, 0, 0, 0, 0});
  return {copied, 2 * double(side) * double(side) * double(side) / product};
}

std::string number(double value) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%.6g", value);
  return digits;
}

/// What was found, for the table and for programs that read it.
class Results {
public:
  Results(int64_t rows, int64_t width, std::optional<Ceilings> ceilings)
      : ceilings(ceilings) {
    text = "{\"rows\": " + std::to_string(rows) +
           ", \"width\": " + std::to_string(width);
    std::printf("rows %lld, width %lld, bf16\n", (long long)rows,
                (long long)width);
    if (ceilings) {
      text += ", \"copy-bytes-per-second\": " + number(ceilings->copied) +
              ", \"product-flops-per-second\": " + number(ceilings->peak);
      std::printf("ceilings: %.0f GB/s copied, %.1f TFLOP/s in a large "
                  "product\n",
                  ceilings->copied / 1e9, ceilings->peak / 1e12);
    }
    text += ", \"kernels\": [";
    std::printf("%-28s %-7s %10s %10s %8s %10s %9s %7s\n", "kernel", "bound",
                "MB", "GFLOP", "FLOP/B", "ms", "GB|TF/s", "of it");
  }

  void add(const KernelCase &call, const KernelWork &work,
           std::optional<double> seconds) {
    const bool computes = work.operations > 0;
    const char *bound = computes ? "compute" : "memory";
    std::printf("%-28s %-7s %10.2f ", call.name.c_str(), bound,
                double(work.bytes) / 1e6);
    if (computes)
      std::printf("%10.2f %8.0f ", double(work.operations) / 1e9,
                  double(work.operations) / double(work.bytes));
    else
      std::printf("%10s %8s ", "", "");
    text += std::string(first ? "" : ", ") + "\n  {\"name\": \"" + call.name +
            "\", \"bound\": \"" + bound +
            "\", \"bytes\": " + std::to_string(work.bytes) +
            ", \"operations\": " + std::to_string(work.operations);
    // A device of tests takes no time, for which the probe says a nanosecond.
    if (seconds && *seconds > 2e-9 && ceilings) {
      const double rate =
          double(computes ? work.operations : work.bytes) / *seconds;
      const double share =
          rate / (computes ? ceilings->peak : ceilings->copied);
      std::printf("%10.4f %9.1f %6.0f%%\n", 1e3 * *seconds,
                  rate / (computes ? 1e12 : 1e9), 100 * share);
      text += ", \"ms\": " + number(1e3 * *seconds) +
              ", \"per-second\": " + number(rate) +
              ", \"of-ceiling\": " + number(share);
    } else {
      std::printf("%10s %9s %7s\n", "-", "-", "-");
    }
    text += "}";
    first = false;
  }

  void write(const std::string &path) {
    std::FILE *file = std::fopen(path.c_str(), "w");
    if (!file || std::fprintf(file, "%s\n]}\n", text.c_str()) < 0 ||
        std::fclose(file) != 0)
      throw std::runtime_error("cannot write '" + path + "'");
  }

private:
  const std::optional<Ceilings> ceilings;
  std::string text;
  bool first = true;
};

void bench(const std::string &backend, int64_t rows, int64_t width,
           const std::string &json) {
  std::optional<DeviceProbe> probe;
  std::optional<Ceilings> ceilings;
  if (!backend.empty()) {
    probe.emplace(loadBackend(backend));
    ceilings = measureCeilings(*probe, rows, width);
  }
  Results results(rows, width, ceilings);
  for (const KernelCase &call : kernelCases(rows, width)) {
    std::optional<double> seconds;
    // What only CPU ranks run has bounds alone.
    if (probe && call.kernel != GRT_KERNEL_CACHED_ATTENTION &&
        call.kernel != GRT_KERNEL_CACHED_CROSS_ATTENTION)
      seconds = probe->kernel(secondsEach, call.kernel, call.buffers, call.ints,
                              call.reals);
    results.add(call, workOf(call), seconds);
  }
  if (!json.empty())
    results.write(json);
}

} // namespace

int main(int argc, char **argv) {
  std::string path, json;
  bool bounds = false;
  for (int i = 1; i < argc; ++i) {
    for (auto [name, to] : {std::pair("--backend=", &path), {"--json=", &json}})
      if (std::string(argv[i]).rfind(name, 0) == 0)
        *to = argv[i] + std::strlen(name);
    bounds |= std::string(argv[i]) == "--bounds";
  }
  if (path.empty() != bounds) {
    std::fprintf(stderr, "expected --backend=PATH or --bounds, and "
                         "[--rows=N] [--width=N] [--json=FILE]\n");
    return 2;
  }
  try {
    bench(path, option(argc, argv, "rows", 16384),
          option(argc, argv, "width", 1024), json);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
