//===- bench.cpp - What each kernel of a device reaches -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   grt-device-bench --backend=PATH [--rows=N] [--width=N] [--json=FILE]
//
// Times the kernels on the shapes of a transformer layer in bf16 (rows tokens
// of `width`, sequences of 1024, heads of 64, 50304 words) as device_probe.h
// says, and prints bytes or operations a second, and the share of the ceiling
// measured in the same run: a copy, and a large product. Bytes are those that
// the kernel must move, as its comment states them.
//
//===----------------------------------------------------------------------===//

#include "device_probe.h"
#include "on_backend.h"

#include "grt/cuda_bounds.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace grt::test;
using grt::profile::DeviceProbe;

namespace {

using Buffer = DeviceProbe::Buffer;

/// Seconds spent on each kernel, beyond the least number of calls.
constexpr double secondsEach = 0.1;

/// Milliseconds of a call.
class Bench {
public:
  explicit Bench(const grt_backend &backend) : probe(backend) {}

  double kernel(grt_kernel kernel, const std::vector<Buffer> &buffers,
                const std::vector<int64_t> &ints,
                const std::vector<double> &reals = {}) {
    return 1e3 * probe.kernel(secondsEach, kernel, buffers, ints, reals);
  }
  double copy(uint64_t bytes) { return 1e3 * probe.copies(secondsEach, bytes); }

private:
  DeviceProbe probe;
};

int64_t option(int argc, char **argv, const std::string &name, int64_t value) {
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]).rfind("--" + name + "=", 0) == 0)
      value = std::atoll(argv[i] + name.size() + 3);
  return value;
}

/// What was found, for the table and for programs that read it.
class Results {
public:
  Results(int64_t rows, int64_t width, double copied, double peak)
      : copied(copied), peak(peak) {
    text = "{\"rows\": " + std::to_string(rows) +
           ", \"width\": " + std::to_string(width) +
           ", \"copy-bytes-per-second\": " + number(copied * 1e9) +
           ", \"product-flops-per-second\": " + number(peak * 1e12) +
           ", \"kernels\": [";
  }
  void add(const char *name, const char *bound, double milliseconds,
           double perSecond, double share) {
    text += std::string(first ? "" : ", ") + "\n  {\"name\": \"" + name +
            "\", \"bound\": \"" + bound +
            "\", \"ms\": " + number(milliseconds) +
            ", \"per-second\": " + number(perSecond) +
            ", \"of-ceiling\": " + number(share) + "}";
    first = false;
  }
  void write(const std::string &path) {
    std::FILE *file = std::fopen(path.c_str(), "w");
    if (!file || std::fprintf(file, "%s\n]}\n", text.c_str()) < 0 ||
        std::fclose(file) != 0)
      throw std::runtime_error("cannot write '" + path + "'");
  }

  const double copied; ///< GB/s
  const double peak;   ///< TFLOP/s

private:
  static std::string number(double value) {
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.6g", value);
    return digits;
  }

  std::string text;
  bool first = true;
};

void bench(const grt_backend &backend, int64_t rows, int64_t width,
           const std::string &json) {
  const int64_t words = 50304, sequence = std::min<int64_t>(rows, 1024);
  const int64_t samples = rows / sequence, heads = width / 64;
  const int64_t n = rows * width, wide = 4 * width;
  const int64_t chunk = std::min<int64_t>(rows, 4096);
  Bench pool(backend);

  const uint64_t large = uint64_t(n) * 8;
  double copied = 2.0 * double(large) / pool.copy(large) / 1e6;
  double side =
      double(std::max<int64_t>(1024, std::min<int64_t>(8192, width * 4)));
  double peak =
      2 * side * side * side /
      pool.kernel(GRT_KERNEL_GEMM,
                  {{GRT_BF16, int64_t(side * side)},
                   {GRT_BF16, int64_t(side * side)},
                   {GRT_BF16, int64_t(side * side)}},
                  {int64_t(side), int64_t(side), int64_t(side), 0, 0, 0, 0}) /
      1e9;
  std::printf("rows %lld, width %lld, bf16\n", (long long)rows,
              (long long)width);
  std::printf("%-34s %10s %10s %8s\n", "kernel", "ms", "GB/s", "of copy");
  std::printf("%-34s %10s %10.0f %8s\n", "copy (the ceiling)", "", copied, "");
  Results results(rows, width, copied, peak);
  auto moved = [&](const char *name, double milliseconds, double bytes) {
    double rate = bytes / milliseconds / 1e6;
    results.add(name, "memory", milliseconds, rate * 1e9, rate / copied);
    std::printf("%-34s %10.4f %10.0f %7.0f%%\n", name, milliseconds, rate,
                100 * rate / copied);
  };
  auto bf = [](int64_t count) { return Buffer{GRT_BF16, count}; };
  auto f = [](int64_t count) { return Buffer{GRT_F32, count}; };
  auto i = [](int64_t count) { return Buffer{GRT_I32, count, int32_t(words)}; };
  double dn = double(n);
  moved("bias-add",
        pool.kernel(GRT_KERNEL_BIAS_ADD, {bf(n), bf(width), bf(n)},
                    {rows, width}),
        4 * dn);
  moved("bias-grad",
        pool.kernel(GRT_KERNEL_BIAS_GRAD, {bf(n), f(width)}, {rows, width, 0}),
        2 * dn);
  moved("layer-norm",
        pool.kernel(GRT_KERNEL_LAYER_NORM,
                    {bf(n), bf(width), bf(width), bf(n), f(2 * rows)},
                    {rows, width}, {1e-5}),
        4 * dn);
  moved("layer-norm-grad",
        pool.kernel(
            GRT_KERNEL_LAYER_NORM_GRAD,
            {bf(n), bf(n), f(2 * rows), bf(width), bf(n), f(width), f(width)},
            {rows, width, 0}),
        6 * dn);
  moved("add-layer-norm",
        pool.kernel(
            GRT_KERNEL_ADD_LAYER_NORM,
            {bf(n), bf(n), bf(width), bf(width), bf(n), bf(n), f(2 * rows)},
            {samples, sequence, width, 0}, {1e-5, 0.1}),
        8 * dn);
  moved("layer-norm-add-grad",
        pool.kernel(GRT_KERNEL_LAYER_NORM_ADD_GRAD,
                    {bf(n), bf(n), f(2 * rows), bf(width), bf(n), bf(n),
                     f(width), f(width)},
                    {rows, width, 0}),
        8 * dn);
  for (int64_t approximate : {1, 0}) {
    moved(approximate ? "bias-gelu, tanh" : "bias-gelu, erf",
          pool.kernel(GRT_KERNEL_BIAS_GELU,
                      {bf(4 * n), bf(wide), bf(4 * n), bf(4 * n)},
                      {rows, wide, approximate}),
          24 * dn);
    moved(approximate ? "gelu-grad, tanh" : "gelu-grad, erf",
          pool.kernel(GRT_KERNEL_GELU_GRAD, {bf(4 * n), bf(4 * n), bf(4 * n)},
                      {4 * n, approximate}),
          24 * dn);
  }
  moved("dropout-add",
        pool.kernel(GRT_KERNEL_DROPOUT_ADD, {bf(n), bf(n), bf(n)},
                    {samples, sequence, width, 0, 0}, {0.1}),
        6 * dn);
  moved("add", pool.kernel(GRT_KERNEL_ADD, {bf(n), bf(n), bf(n)}, {n}), 6 * dn);
  moved("embedding",
        pool.kernel(GRT_KERNEL_EMBEDDING, {i(rows), bf(words * width), bf(n)},
                    {rows, width, words, 0}),
        4 * dn);
  moved("position-grad",
        pool.kernel(GRT_KERNEL_POSITION_GRAD, {bf(n), f(sequence * width)},
                    {samples, sequence, width, sequence, 0}),
        2 * dn + 4 * double(sequence * width));
  double logits = double(chunk * words);
  moved("softmax-stats",
        pool.kernel(GRT_KERNEL_SOFTMAX_STATS,
                    {bf(chunk * words), i(chunk), f(3 * chunk)},
                    {chunk, words, words, 0}),
        2 * logits);
  moved("cross-entropy",
        pool.kernel(GRT_KERNEL_CROSS_ENTROPY,
                    {bf(chunk * words),
                     i(chunk),
                     f(3 * chunk),
                     bf(chunk * words),
                     {GRT_F64, 1}},
                    {chunk, words, words, 0, 1}),
        4 * logits);
  moved("optimizer, adamw",
        pool.kernel(GRT_KERNEL_OPTIMIZER,
                    {bf(n), f(n), {GRT_F32, 3 * n, 1, true}},
                    {2, n, 1, 0, n, 1}),
        30 * dn);
  moved("norm", pool.kernel(GRT_KERNEL_NORM, {f(n)}, {n, 1, 0, n, 0}), 4 * dn);

  std::printf("%-34s %10s %10s %8s\n", "kernel", "ms", "TFLOP/s", "of peak");
  std::printf("%-34s %10s %10.1f %8s\n", "large product (the ceiling)", "",
              peak, "");
  auto computed = [&](const char *name, double milliseconds,
                      double operations) {
    double rate = operations / milliseconds / 1e9;
    results.add(name, "compute", milliseconds, rate * 1e12, rate / peak);
    std::printf("%-34s %10.4f %10.1f %7.0f%%\n", name, milliseconds, rate,
                100 * rate / peak);
  };
  computed("gemm, forward",
           pool.kernel(GRT_KERNEL_GEMM,
                       {bf(n), bf(width * wide), bf(4 * n), bf(wide)},
                       {rows, wide, width, 0, 0, 0, 1}),
           2 * dn * double(wide));
  computed("gemm, gradient of weights",
           pool.kernel(GRT_KERNEL_GEMM, {bf(n), bf(4 * n), f(width * wide)},
                       {width, wide, rows, 1, 0, 2, 0}),
           2 * dn * double(wide));
  // Where the library refuses an epilogue, its share is below that of the
  // product alone by the pass that is made instead.
  computed(
      "gemm-gelu, forward",
      pool.kernel(GRT_KERNEL_GEMM_GELU,
                  {bf(n), bf(width * wide), bf(wide), bf(4 * n), bf(4 * n)},
                  {rows, wide, width, 0, 0, 1, 1}),
      2 * dn * double(wide));
  computed("gemm, gradient of the input",
           pool.kernel(GRT_KERNEL_GEMM, {bf(n), bf(width * wide), bf(4 * n)},
                       {rows, wide, width, 0, 1, 0, 0}),
           2 * dn * double(wide));
  computed("gemm-gelu-grad",
           pool.kernel(GRT_KERNEL_GEMM_GELU_GRAD,
                       {bf(n), bf(width * wide), bf(4 * n), bf(4 * n)},
                       {rows, wide, width, 0, 1, 1}),
           2 * dn * double(wide));
  computed("gemm-bias-grad",
           pool.kernel(GRT_KERNEL_GEMM_BIAS_GRAD,
                       {bf(n), bf(4 * n), f(width * wide), f(wide)},
                       {width, wide, rows, 2}),
           2 * dn * double(wide));
  std::vector<Buffer> attention = {bf(3 * n), bf(3 * n),       bf(3 * n),
                                   bf(n),     f(rows * heads), f(64)};
  std::vector<int64_t> ints = {samples,   sequence, sequence,  heads,
                               heads,     64,       3 * width, 3 * width,
                               3 * width, 1,        0,         0};
  double scores =
      double(samples * heads) * double(sequence) * double(sequence) * 64 / 2;
  for (double p : {0.0, 0.1}) {
    computed(p == 0 ? "attention" : "attention, dropout",
             pool.kernel(GRT_KERNEL_ATTENTION, attention, ints, {0.125, p}),
             4 * scores);
    std::vector<Buffer> backward = {
        bf(3 * n),
        bf(3 * n),
        bf(3 * n),
        bf(n),
        f(rows * heads),
        bf(n),
        bf(3 * n),
        bf(3 * n),
        bf(3 * n),
        f(int64_t(grt_cuda_attention_scratch_bytes(samples, sequence, sequence,
                                                   heads, heads, 64, 2, 1) /
                  4))};
    computed(p == 0 ? "attention-grad" : "attention-grad, dropout",
             pool.kernel(GRT_KERNEL_ATTENTION_GRAD, backward, ints, {0.125, p}),
             10 * scores);
  }
  if (!json.empty())
    results.write(json);
}

} // namespace

int main(int argc, char **argv) {
  std::string path, json;
  for (int i = 1; i < argc; ++i)
    for (auto [name, to] : {std::pair("--backend=", &path), {"--json=", &json}})
      if (std::string(argv[i]).rfind(name, 0) == 0)
        *to = argv[i] + std::strlen(name);
  if (path.empty()) {
    std::fprintf(stderr, "expected --backend=PATH [--rows=N] [--width=N] "
                         "[--json=FILE]\n");
    return 2;
  }
  try {
    bench(loadBackend(path), option(argc, argv, "rows", 16384),
          option(argc, argv, "width", 1024), json);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
