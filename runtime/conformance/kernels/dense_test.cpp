//===- dense_test.cpp - Products, biases, sums, copies --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "grt/cpu_bounds.h"
#include "harness.h"

#include <array>
#include <cmath>
#include <thread>

namespace grt::conformance {
namespace {

class Dense : public KernelTest {
protected:
  struct Shape {
    int64_t m, n, k;
  };

  /// The product in f64, on top of `c`.
  static Values product(const Shape &s, const Values &a, bool transA,
                        const Values &b, bool transB, const Values &c,
                        const Values &bias) {
    Values result = c;
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < s.k; ++k)
          sum += a[transA ? k * s.m + i : i * s.k + k] *
                 b[transB ? j * s.k + k : k * s.n + j];
        result[i * s.n + j] += sum + (bias.empty() ? 0 : bias[j]);
      }
    return result;
  }

  /// The product alone.
  static Values product(const Shape &s, const Values &a, bool transA,
                        const Values &b, bool transB) {
    return product(s, a, transA, b, transB, Values(s.m * s.n, 0.0), Values());
  }

  /// The tolerance of a result of the compute type that has a bias, or is added
  /// to what was `before` (each may be empty). Libraries may store what they
  /// have in the type of the result before they add the rest: in bf16 an error
  /// of 2^-8 of that, which may be larger than the result, and is at most the
  /// sum of all parts.
  void expectNearOnTop(const Values &found, const Values &expected,
                       const Values &alone, const Values &bias,
                       const Values &before, const std::string &what) const {
    Values onTheWay = alone;
    for (size_t i = 0; i < onTheWay.size(); ++i)
      onTheWay[i] = std::fabs(alone[i]) +
                    (bias.empty() ? 0 : std::fabs(bias[i % bias.size()])) +
                    (before.empty() ? 0 : std::fabs(before[i]));
    expectNear(found, expected, what, 2e-6, 1e-13, 1e-3, onTheWay);
  }

  static double gelu(double x, bool approximate) {
    return approximate ? 0.5 * x * (1 + std::tanh(inner(x)))
                       : 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  }
  static double geluSlope(double x, bool approximate) {
    if (!approximate)
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
             x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
    double t = std::tanh(inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) *
                               (1 + 3 * 0.044715 * x * x);
  }

private:
  static double inner(double x) {
    return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  }
};

TEST_P(Dense, gemm_in_all_forms) {
  Random random(1);
  for (const Shape &s : std::vector<Shape>{{1, 1, 1},
                                           {1, 17, 5},
                                           {7, 1, 13},
                                           {13, 29, 1},
                                           {6, 64, 64},
                                           {31, 67, 101},
                                           {97, 130, 259},
                                           {128, 96, 300}}) {
    Values a = random.values(s.m * s.k), b = random.values(s.k * s.n);
    Values bias = random.values(s.n), before = random.values(s.m * s.n);
    auto aBuffer = input(a), bBuffer = input(b), biasBuffer = input(bias);
    for (int form = 0; form < 4; ++form) {
      const Values alone = product(s, a, form & 1, b, form >> 1);
      for (int64_t acc : {0, 1, 2})
        for (bool hasBias : {false, true}) {
          device.accumulate = form % 2 == 0;
          bool add = acc == 1 || (acc == 2 && device.accumulate);
          auto c = add ? sums(before) : sums(s.m * s.n);
          std::vector<Argument> buffers = {*aBuffer, *bBuffer, *c};
          if (hasBias)
            buffers.push_back(*biasBuffer);
          device.run(GRT_KERNEL_GEMM, buffers,
                     {s.m, s.n, s.k, form & 1, form >> 1, acc, hasBias});
          Values expected = product(s, a, form & 1, b, form >> 1,
                                    add ? before : Values(s.m * s.n, 0.0),
                                    hasBias ? bias : Values());
          expectNear(c->read(), expected, "c");
          // The result c is of the compute type.
          auto narrow = add ? input(before) : output(s.m * s.n);
          buffers[2] = *narrow;
          device.run(GRT_KERNEL_GEMM, buffers,
                     {s.m, s.n, s.k, form & 1, form >> 1, acc, hasBias});
          if (add || hasBias)
            expectNearOnTop(narrow->read(), expected, alone,
                            hasBias ? bias : Values(), add ? before : Values(),
                            "narrow c");
          else
            expectNear(narrow->read(), expected, "narrow c");
        }
    }
  }
}

TEST_P(Dense, gemm_of_nothing_gives_zeros_or_the_bias) {
  Random random(2);
  Values bias = random.values(5);
  auto a = input({}), b = input({}), biasBuffer = input(bias);
  auto c = sums(15);
  device.run(GRT_KERNEL_GEMM, {*a, *b, *c}, {3, 5, 0, 0, 0, 0, 0});
  expectSame(c->read(), Values(15, 0.0), "c");
  c->poison();
  device.run(GRT_KERNEL_GEMM, {*a, *b, *c, *biasBuffer}, {3, 5, 0, 0, 0, 0, 1});
  for (int64_t i = 0; i < 15; ++i)
    EXPECT_EQ(c->at(i), bias[i % 5]);
}

// Work areas shrink from more than any code wants to what it cannot do without.
TEST_P(Dense, gemm_stays_within_its_scratch) {
  Random random(11);
  uint32_t width = dtype() == GRT_F64 ? 8 : dtype() == GRT_BF16 ? 2 : 4;
  uint32_t accumulator = dtype() == GRT_F64 ? 8 : 4;
  for (const Shape &s :
       std::vector<Shape>{{5, 7, 3}, {97, 130, 259}, {200, 320, 64}}) {
    Values a = random.values(s.m * s.k), b = random.values(s.k * s.n);
    Values bias = random.values(s.n), before = random.values(s.m * s.n);
    auto aBuffer = input(a), bBuffer = input(b), biasBuffer = input(bias);
    for (bool narrow : {false, true})
      for (int form = 0; form < 4; ++form) {
        uint32_t result = narrow ? width : accumulator;
        bool hasBias = form % 2 == 0;
        auto planned = [&](int64_t threads) {
          return grt_cpu_gemm_scratch_bytes(s.m, s.n, s.k, form & 1, form >> 1,
                                            1, width, result, threads);
        };
        uint64_t least = grt_cpu_gemm_pack_bytes(
            s.m, s.n, s.k, accumulator, result < accumulator,
            GRT_CPU_GEMM_LEAST_BYTES_OF_ROW);
        ASSERT_GE(planned(1), least);
        Values alone = product(s, a, form & 1, b, form >> 1);
        Values expected = product(s, a, form & 1, b, form >> 1, before,
                                  hasBias ? bias : Values());
        for (uint64_t bytes : {2 * planned(mostThreads), planned(mostThreads),
                               planned(1), (planned(1) + least) / 2, least}) {
          auto c = narrow ? input(before) : sums(before);
          auto scratch = std::make_unique<Buffer>(GRT_U8, int64_t(bytes));
          std::vector<Argument> buffers = {*aBuffer, *bBuffer, *c};
          if (hasBias)
            buffers.push_back(*biasBuffer);
          buffers.push_back(*scratch);
          // A primitive is made for the scratch of the first call of its shape.
          Device fresh(std::get<1>(GetParam()));
          fresh.run(GRT_KERNEL_GEMM, buffers,
                    {s.m, s.n, s.k, form & 1, form >> 1, 1, hasBias});
          if (narrow)
            expectNearOnTop(c->read(), expected, alone,
                            hasBias ? bias : Values(), before, "narrow c");
          else
            expectNear(c->read(), expected, "c");
        }
      }
  }
}

TEST_P(Dense, gemm_repeats_its_bits) {
  Random random(3);
  int64_t m = 61, n = 127, k = 190;
  auto a = input(random.values(m * k)), b = input(random.values(k * n));
  auto first = sums(m * n), second = sums(m * n);
  Integers ints = {m, n, k, 0, 0, 0, 0};
  device.run(GRT_KERNEL_GEMM, {*a, *b, *first}, ints);
  device.run(GRT_KERNEL_GEMM, {*a, *b, *second}, ints);
  expectSame(second->read(), first->read(), "c");
}

TEST_P(Dense, ranks_on_threads_of_their_own_agree) {
  Random random(9);
  int64_t m = 96, n = 200, k = 150;
  auto a = input(random.values(m * k)), b = input(random.values(k * n));
  std::vector<std::unique_ptr<Buffer>> results;
  for (int rank = 0; rank < 4; ++rank)
    results.push_back(sums(m * n));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      Device own(std::get<1>(GetParam()));
      for (int repeat = 0; repeat < 5; ++repeat)
        own.run(GRT_KERNEL_GEMM, {*a, *b, *results[rank]},
                {m, n, k, 0, 0, 0, 0});
    });
  for (std::thread &rank : ranks)
    rank.join();
  for (int rank = 1; rank < 4; ++rank)
    expectSame(results[rank]->read(), results[0]->read(), "c");
}

TEST_P(Dense, gemm_reports_missing_arguments) {
  auto a = input({1.0}), b = input({1.0});
  EXPECT_NE(device.refused(GRT_KERNEL_GEMM, {*a, *b}, {1, 1, 1, 0, 0, 0, 0})
                .find("buffers"),
            std::string::npos);
  auto c = sums(1);
  EXPECT_NE(
      device.refused(GRT_KERNEL_GEMM, {*a, *b, *c}, {1, 1, 1}).find("integers"),
      std::string::npos);
}

TEST_P(Dense, bias_add_and_its_alias) {
  Random random(4);
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 37}, {600, 131}}) {
    Values x = random.values(rows * n), bias = random.values(n), expected;
    for (int64_t i = 0; i < rows * n; ++i)
      expected.push_back(x[i] + bias[i % n]);
    auto xBuffer = input(x), biasBuffer = input(bias), y = output(rows * n);
    device.run(GRT_KERNEL_BIAS_ADD, {*xBuffer, *biasBuffer, *y}, {rows, n});
    expectNear(y->read(), expected, "y");
    expectSame(xBuffer->read(), x, "x");
    device.run(GRT_KERNEL_BIAS_ADD, {*xBuffer, *biasBuffer, *xBuffer},
               {rows, n});
    expectSame(xBuffer->read(), y->read(), "aliased");
  }
}

TEST_P(Dense, bias_grad_sums_rows) {
  Random random(5);
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {33, 7}, {97, 1023}, {2, 50}})
    for (int64_t acc : {0, 1, 2}) {
      Values dy = random.values(rows * n), before = random.values(n), expected;
      bool add = acc > 0;
      device.accumulate = true;
      for (int64_t j = 0; j < n; ++j) {
        expected.push_back(add ? before[j] : 0);
        for (int64_t r = 0; r < rows; ++r)
          expected[j] += dy[r * n + j];
      }
      auto dyBuffer = input(dy), dbias = add ? sums(before) : sums(n);
      device.run(GRT_KERNEL_BIAS_GRAD, {*dyBuffer, *dbias}, {rows, n, acc});
      expectNear(dbias->read(), expected, "dbias");
    }
}

TEST_P(Dense, add_and_its_aliases) {
  Random random(6);
  for (int64_t n : {1, 15, 64, 70001}) {
    Values a = random.values(n), b = random.values(n), expected;
    for (int64_t i = 0; i < n; ++i)
      expected.push_back(double(a[i] + b[i]));
    auto aBuffer = input(a), bBuffer = input(b), y = output(n);
    device.run(GRT_KERNEL_ADD, {*aBuffer, *bBuffer, *y}, {n});
    expectNear(y->read(), expected, "y", 1e-7, 1e-15);
    auto aliased = input(a);
    device.run(GRT_KERNEL_ADD, {*aliased, *bBuffer, *aliased}, {n});
    expectSame(aliased->read(), y->read(), "y is a");
    device.run(GRT_KERNEL_ADD, {*aBuffer, *bBuffer, *bBuffer}, {n});
    expectSame(bBuffer->read(), y->read(), "y is b");
  }
}

TEST_P(Dense, scale_and_its_alias) {
  Random random(7);
  for (int64_t n : {1, 31, 1024, 40009}) {
    Values x = random.values(n), expected;
    for (double value : x)
      expected.push_back(-0.375 * value);
    auto xBuffer = input(x), y = output(n);
    device.run(GRT_KERNEL_SCALE, {*xBuffer, *y}, {n}, {-0.375});
    expectSame(y->read(), rounded(expected), "y");
    device.run(GRT_KERNEL_SCALE, {*xBuffer, *xBuffer}, {n}, {-0.375});
    expectSame(xBuffer->read(), rounded(expected), "aliased");
  }
}

TEST_P(Dense, copy_with_strides_touches_nothing_between_rows) {
  Random random(8);
  int64_t width = dtype() == GRT_F64 ? 8 : dtype() == GRT_BF16 ? 2 : 4;
  Values source = random.values(7 * 11), target = random.values(7 * 13);
  Values expected = target;
  for (int64_t r = 0; r < 7; ++r)
    for (int64_t j = 0; j < 5; ++j)
      expected[r * 13 + j] = source[r * 11 + j];
  auto from = input(source), to = input(target);
  device.run(GRT_KERNEL_COPY, {*from, *to},
             {7, 5 * width, 11 * width, 13 * width});
  expectSame(to->read(), expected, "strided");
  auto whole = output(7 * 11);
  device.run(GRT_KERNEL_COPY, {*from, *whole},
             {7, 11 * width, 11 * width, 11 * width});
  expectSame(whole->read(), source, "whole");
}

TEST_P(Dense, zero_clears_all_bytes) {
  auto buffer = output(1237);
  device.run(GRT_KERNEL_ZERO, {*buffer}, {});
  expectSame(buffer->read(), Values(1237, 0.0), "dst");
}

// Rows of 8 n elements are what a library's epilogue asks for; the others go
// without.
const std::vector<std::array<int64_t, 3>> epilogueShapes = {
    {1, 1, 1}, {7, 13, 5}, {6, 64, 64}, {31, 67, 101}, {130, 96, 259}};

TEST_P(Dense, gemm_gelu_keeps_what_it_is_applied_to) {
  Random random(10);
  for (auto [m, n, k] : epilogueShapes)
    for (bool approximate : {true, false})
      for (int form = 0; form < 4; ++form) {
        Values a = random.values(m * k), b = random.values(k * n);
        Values bias = random.values(n);
        Values pre = product({m, n, k}, a, form & 1, b, form >> 1,
                             Values(m * n, 0.0), bias);
        Values plain = product({m, n, k}, a, form & 1, b, form >> 1);
        Values expected;
        for (double value : pre)
          expected.push_back(gelu(value, approximate));
        auto aBuffer = input(a), bBuffer = input(b), biasBuffer = input(bias);
        auto y = output(m * n), kept = output(m * n), alone = output(m * n);
        device.run(GRT_KERNEL_GEMM_GELU,
                   {*aBuffer, *bBuffer, *biasBuffer, *y, *kept},
                   {m, n, k, form & 1, form >> 1, approximate, 1});
        expectNearOnTop(kept->read(), pre, plain, bias, Values(), "pre");
        device.run(GRT_KERNEL_GEMM_GELU,
                   {*aBuffer, *bBuffer, *biasBuffer, *alone},
                   {m, n, k, form & 1, form >> 1, approximate, 0});
        // The result y has the rounding of pre, too, if that is stored in 16
        // bits and read again, of numbers that may be larger than itself; and
        // so may the product be stored before the bias is added. The slope of
        // GELU is below 1.2.
        double largest = 1e-3;
        for (double value : pre)
          largest = std::max(largest, std::fabs(value));
        for (Buffer *found : {y.get(), alone.get()}) {
          Values values = found->read();
          for (int64_t i = 0; i < m * n; ++i) {
            double limit = (dtype() == GRT_F64 ? 1e-12 : 4e-6) * largest;
            if (dtype() == GRT_BF16)
              limit += (1.2 * (std::fabs(pre[i]) + std::fabs(plain[i])) +
                        std::fabs(expected[i])) /
                       256;
            EXPECT_NEAR(values[i], expected[i], limit)
                << (found == y.get() ? "y" : "y alone") << ", element " << i;
          }
        }
      }
}

TEST_P(Dense, gemm_gelu_grad_is_the_product_times_the_slope) {
  Random random(11);
  for (auto [m, n, k] : epilogueShapes)
    for (bool approximate : {true, false})
      for (int form = 0; form < 4; ++form) {
        Values a = random.values(m * k), b = random.values(k * n);
        Values x = random.values(m * n, 3);
        Values plain = product({m, n, k}, a, form & 1, b, form >> 1);
        Values expected;
        double largest = 0;
        for (int64_t i = 0; i < m * n; ++i) {
          expected.push_back(plain[i] * geluSlope(x[i], approximate));
          largest = std::max(largest, std::fabs(plain[i]));
        }
        auto aBuffer = input(a), bBuffer = input(b), xBuffer = input(x);
        auto c = output(m * n);
        device.run(GRT_KERNEL_GEMM_GELU_GRAD,
                   {*aBuffer, *bBuffer, *xBuffer, *c},
                   {m, n, k, form & 1, form >> 1, approximate});
        // The product in 16 bits may be rounded before it is scaled. In f32 the
        // slope may be made of a library's own tanh, which is approximate:
        // cuBLASLt's was found to be off by 4.04e-6 of the largest product.
        Values found = c->read();
        for (int64_t i = 0; i < m * n; ++i) {
          double limit = (dtype() == GRT_F64 ? 1e-12 : 6e-6) * (largest + 1e-3);
          if (dtype() == GRT_BF16)
            limit += std::fabs(expected[i]) / 128;
          EXPECT_NEAR(found[i], expected[i], limit) << "c, element " << i;
        }
      }
}

TEST_P(Dense, gemm_bias_grad_sums_the_rows_of_the_gradient) {
  Random random(12);
  for (auto [m, n, k] : epilogueShapes)
    for (int64_t acc : {0, 1, 2})
      for (bool accumulate : {false, true}) {
        device.accumulate = accumulate;
        bool add = acc == 1 || (acc == 2 && accumulate);
        Values a = random.values(k * m), b = random.values(k * n);
        Values before = random.values(m * n), sumsBefore = random.values(n);
        Values expected = product({m, n, k}, a, true, b, false,
                                  add ? before : Values(m * n, 0.0), Values());
        Values dbias = add ? sumsBefore : Values(n, 0.0);
        for (int64_t r = 0; r < k; ++r)
          for (int64_t j = 0; j < n; ++j)
            dbias[j] += b[r * n + j];
        auto aBuffer = input(a), bBuffer = input(b);
        auto c = add ? sums(before) : sums(m * n);
        auto sum = add ? sums(sumsBefore) : sums(n);
        device.run(GRT_KERNEL_GEMM_BIAS_GRAD, {*aBuffer, *bBuffer, *c, *sum},
                   {m, n, k, acc});
        expectNear(c->read(), expected, "c");
        expectNear(sum->read(), dbias, "dbias");
      }
}

// Those with epilogues find theirs behind their other buffers, with an optional
// one before it and without.
TEST_P(Dense, gemm_epilogues_stay_within_their_scratch) {
  Random random(13);
  constexpr int64_t m = 97, n = 130, k = 259;
  int threads = std::get<1>(GetParam());
  uint32_t width = dtype() == GRT_F64 ? 8 : dtype() == GRT_BF16 ? 2 : 4;
  uint32_t accumulator = dtype() == GRT_F64 ? 8 : 4;
  auto a = input(random.values(m * k)), b = input(random.values(k * n));
  auto bias = input(random.values(n)), x = input(random.values(m * n));
  auto check = [&](grt_kernel kernel, std::vector<Argument> buffers,
                   std::vector<int64_t> ints, bool transA, uint32_t result,
                   std::vector<Buffer *> results) {
    // Each on a device of its own: without scratch it takes as much itself.
    Device(threads).run(kernel, buffers, ints);
    std::vector<Values> expected;
    for (Buffer *buffer : results)
      expected.push_back(buffer->read());
    uint64_t bytes = grt_cpu_gemm_scratch_bytes(m, n, k, transA, 0, 0, width,
                                                result, threads);
    auto scratch = std::make_unique<Buffer>(GRT_U8, int64_t(bytes));
    buffers.push_back(*scratch);
    Device(threads).run(kernel, buffers, ints);
    for (size_t i = 0; i < results.size(); ++i)
      expectSame(results[i]->read(), expected[i], "with scratch");
    if (backend().device) // needs none
      return;
    auto little = std::make_unique<Buffer>(GRT_U8, 64);
    buffers.back() = *little;
    EXPECT_NE(Device(threads).refused(kernel, buffers, ints).find("of scratch"),
              std::string::npos);
  };
  auto y = output(m * n), pre = output(m * n), c = output(m * n);
  check(GRT_KERNEL_GEMM_GELU, {*a, *b, *bias, *y, *pre}, {m, n, k, 0, 0, 1, 1},
        false, width, {y.get(), pre.get()});
  check(GRT_KERNEL_GEMM_GELU, {*a, *b, *bias, *y}, {m, n, k, 0, 0, 1, 0}, false,
        width, {y.get()});
  check(GRT_KERNEL_GEMM_GELU_GRAD, {*a, *b, *x, *c}, {m, n, k, 0, 0, 1}, false,
        width, {c.get()});
  auto wide = sums(m * n), sum = sums(n);
  check(GRT_KERNEL_GEMM_BIAS_GRAD, {*a, *b, *wide, *sum}, {m, n, k, 0}, true,
        accumulator, {wide.get(), sum.get()});
}

TEST_P(Dense, gemm_gelu_reports_missing_arguments) {
  auto one = input({1.0});
  EXPECT_NE(device
                .refused(GRT_KERNEL_GEMM_GELU, {*one, *one, *one, *one},
                         {1, 1, 1, 0, 0, 1, 1})
                .find("takes at least 5 buffers"),
            std::string::npos);
}

GRT_KERNEL_SUITE(Dense);

} // namespace
} // namespace grt::conformance
