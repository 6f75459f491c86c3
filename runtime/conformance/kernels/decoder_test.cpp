//===- decoder_test.cpp - RMS norm, rotary embedding, gated SiLU ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include <cmath>
#include <functional>

namespace grt::conformance {
namespace {

/// Kernels that decoders of the LLaMA kind have besides products and attention.
class Decoder : public KernelTest {
protected:
  static constexpr double eps = 1e-5;

  /// The value as the compute type holds it.
  double number(double value) const {
    return conformance::rounded(value, dtype());
  }

  Values rmsNorm(int64_t rows, int64_t n, const Values &x, const Values &gamma,
                 Values *stats = nullptr) const {
    Values y;
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < n; ++i)
        squares += x[r * n + i] * x[r * n + i] / double(n);
      double inverse = 1 / std::sqrt(squares + eps);
      for (int64_t i = 0; i < n; ++i)
        y.push_back(x[r * n + i] * inverse * gamma[i]);
      if (stats)
        stats->push_back(inverse);
    }
    return y;
  }

  struct Turn {
    int64_t samples, positions, heads, headDim, pairs;
    double factor;
    bool interleaved = false;
    int64_t count() const { return samples * positions * heads * headDim; }
    Integers ints(bool inverse) const {
      return {samples, positions, heads, headDim, inverse, pairs, interleaved};
    }
    Values reals() const {
      Values all = {factor};
      for (int64_t i = 0; i < pairs; ++i)
        all.push_back(std::pow(1000.0, -double(i) / double(pairs)));
      return all;
    }
  };
  /// Complex numbers x[i] + i x[i + pairs], or of neighbours, times factor
  /// e^(i t w).
  Values turned(const Turn &p, const Values &x, bool inverse) const {
    Values y = x, reals = p.reals();
    for (int64_t row = 0; row < p.samples * p.positions * p.heads; ++row) {
      double t = double(row / p.heads % p.positions);
      for (int64_t i = 0; i < p.pairs; ++i) {
        double angle = t * reals[1 + i] * (inverse ? -1 : 1);
        double c = number(p.factor * std::cos(angle));
        double s = number(p.factor * std::sin(angle));
        int64_t low = row * p.headDim + (p.interleaved ? 2 * i : i);
        int64_t high = low + (p.interleaved ? 1 : p.pairs);
        y[low] = x[low] * c - x[high] * s;
        y[high] = x[low] * s + x[high] * c;
      }
    }
    return y;
  }

  static double silu(double x) { return x / (1 + std::exp(-x)); }
  /// Central differences with one step of extrapolation: error of order h^4.
  static double slope(const std::function<double(double)> &f, double x) {
    auto central = [&](double h) { return (f(x + h) - f(x - h)) / (2 * h); };
    return (4 * central(5e-4) - central(1e-3)) / 3;
  }
};

TEST_P(Decoder, rms_norm_and_statistics) {
  Random random(1);
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{1, 1},
                         {3, 7},
                         {65, 96},
                         {40, 1021},
                         {3, 8200}}) {
    Values x = random.values(rows * n, 2, 0.5), stats;
    Values gamma = random.values(n, 1, 1);
    Values expected = rmsNorm(rows, n, x, gamma, &stats);
    auto xBuffer = input(x), gammaBuffer = input(gamma);
    auto y = output(rows * n), statsBuffer = sums(rows);
    device.run(GRT_KERNEL_RMS_NORM, {*xBuffer, *gammaBuffer, *y, *statsBuffer},
               {rows, n, 0}, {eps});
    expectNear(statsBuffer->read(), stats, "stats", 2e-6, 1e-13);
    if (dtype() != GRT_BF16) {
      expectNear(y->read(), expected, "y", 2e-6, 1e-13);
      continue;
    }
    // The normalised row is rounded before it is scaled. A sum that ends just
    // off the middle between two numbers may round the other way: one step.
    Values found = y->read();
    for (int64_t i = 0; i < rows * n; ++i) {
      double normal = x[i] * stats[i / n];
      double twice = number(number(normal) * gamma[i % n]);
      EXPECT_NEAR(found[i], twice, std::abs(twice) / 120 + 1e-30) << i;
    }
  }
}

TEST_P(Decoder, rms_norm_rounds_before_it_scales) {
  // x / rms = 1 + 2^-9 is 1 in bf16; times 3 it would be 3.0117 otherwise.
  if (dtype() != GRT_BF16)
    GTEST_SKIP() << "rounding between is that of bf16";
  int64_t n = 512;
  Values x(n, 1.0);
  for (int64_t i = 0; i < n; i += 2)
    x[i] = 0.9921875; // mean of squares 0.9922
  auto xBuffer = input(x), gamma = input(Values(n, 2.984375));
  auto y = output(n), stats = sums(1);
  device.run(GRT_KERNEL_RMS_NORM, {*xBuffer, *gamma, *y, *stats}, {1, n, 0},
             {1e-30});
  double inverse = stats->at(0);
  Values found = y->read();
  for (int64_t i = 0; i < n; ++i) {
    double once = number(x[i] * inverse);
    EXPECT_EQ(found[i], number(once * 2.984375)) << i;
  }
}

/// A weight of 1 + gamma; the product is rounded once.
TEST_P(Decoder, rms_norm_with_a_unit_offset) {
  Random random(7);
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{3, 7}, {33, 96}, {5, 1021}, {3, 8200}}) {
    Values x = random.values(rows * n, 2, 0.5), gamma = random.values(n);
    Values weight, stats;
    for (double value : gamma)
      weight.push_back(1 + value);
    Values expected = rmsNorm(rows, n, x, weight, &stats);
    auto xBuffer = input(x), gammaBuffer = input(gamma);
    auto y = output(rows * n), statsBuffer = sums(rows);
    device.run(GRT_KERNEL_RMS_NORM, {*xBuffer, *gammaBuffer, *y, *statsBuffer},
               {rows, n, 1}, {eps});
    expectNear(y->read(), expected, "y", 2e-6, 1e-13);

    Values dy = random.values(rows * n), dx(rows * n), dgamma(n, 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      double product = 0;
      for (int64_t i = 0; i < n; ++i) {
        double normal = x[r * n + i] * stats[r];
        product += dy[r * n + i] * weight[i] * normal / double(n);
        dgamma[i] += dy[r * n + i] * normal;
      }
      for (int64_t i = 0; i < n; ++i)
        dx[r * n + i] = stats[r] * (dy[r * n + i] * weight[i] -
                                    x[r * n + i] * stats[r] * product);
    }
    auto dyBuffer = input(dy), given = sums(stats), sum = sums(Values(n, 0.0));
    device.run(GRT_KERNEL_RMS_NORM_GRAD,
               {*dyBuffer, *xBuffer, *given, *gammaBuffer, *dyBuffer, *sum},
               {rows, n, 0, 1});
    expectNear(dyBuffer->read(), dx, "dx", 4e-6, 1e-13);
    expectNear(sum->read(), dgamma, "dgamma", 4e-6, 1e-13);
  }
}

TEST_P(Decoder, rms_norm_grad_with_alias_and_accumulation) {
  Random random(3);
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{1, 3},
                         {37, 7},
                         {70, 96},
                         {33, 1021},
                         {20, 4096},
                         {3, 8200}})
    for (int64_t acc : {0, 1, 2}) {
      Values x = random.values(rows * n), gamma = random.values(n, 1, 1);
      Values dy = random.values(rows * n), before = random.values(n), stats;
      rmsNorm(rows, n, x, gamma, &stats);
      Values dx(rows * n), dgamma(n, 0.0);
      device.accumulate = acc == 2 && rows == 37;
      if (acc == 1 || device.accumulate)
        dgamma = before;
      for (int64_t r = 0; r < rows; ++r) {
        double product = 0;
        for (int64_t i = 0; i < n; ++i) {
          double normal = x[r * n + i] * stats[r];
          product += dy[r * n + i] * gamma[i] * normal / double(n);
          dgamma[i] += dy[r * n + i] * normal;
        }
        for (int64_t i = 0; i < n; ++i)
          dx[r * n + i] = stats[r] * (dy[r * n + i] * gamma[i] -
                                      x[r * n + i] * stats[r] * product);
      }
      auto dyBuffer = input(dy), xBuffer = input(x), gammaBuffer = input(gamma);
      auto statsBuffer = sums(stats), sum = sums(before);
      device.run(
          GRT_KERNEL_RMS_NORM_GRAD,
          {*dyBuffer, *xBuffer, *statsBuffer, *gammaBuffer, *dyBuffer, *sum},
          {rows, n, acc, 0});
      expectNear(dyBuffer->read(), dx, "dx", 4e-6, 1e-13);
      expectNear(sum->read(), dgamma, "dgamma", 4e-6, 1e-13);
    }
}

TEST_P(Decoder, soft_cap_and_its_gradient) {
  Random random(11);
  for (int64_t n : {1, 7, 96, 1021})
    for (double cap : {0.5, 2.0, 30.0}) {
      Values x = random.values(n, 3), dy = random.values(n), y, dx;
      for (int64_t i = 0; i < n; ++i)
        y.push_back(cap * std::tanh(x[i] / cap));
      auto xBuffer = input(x), yBuffer = output(n);
      device.run(GRT_KERNEL_SOFT_CAP, {*xBuffer, *yBuffer}, {n}, {cap});
      expectNear(yBuffer->read(), y, "y", 2e-6, 1e-14);
      // The input is y as it is stored, in the place of dy.
      Values stored = yBuffer->read();
      for (int64_t i = 0; i < n; ++i)
        dx.push_back(dy[i] * (1 - stored[i] / cap * (stored[i] / cap)));
      auto dyBuffer = input(dy);
      device.run(GRT_KERNEL_SOFT_CAP_GRAD, {*yBuffer, *dyBuffer, *dyBuffer},
                 {n}, {cap});
      // Little is left of 1 - tanh^2 if the cap is reached.
      expectNear(dyBuffer->read(), dx, "dx", 2e-6, 1e-14, 1);
    }
  auto buffer = input({1.0});
  EXPECT_NE(device.refused(GRT_KERNEL_SOFT_CAP, {*buffer, *buffer}, {1}, {0.0})
                .find("expected a cap that is positive"),
            std::string::npos);
}

TEST_P(Decoder, clip_and_its_gradient) {
  Random random(12);
  for (int64_t n : {1, 7, 96, 1021}) {
    const double limit = 0.5;
    Values x = random.values(n, 2), dy = random.values(n), y, dx;
    // The limit itself is within it, and NaN stays.
    x[0] = n % 2 ? limit : -limit;
    for (int64_t i = 0; i < n; ++i) {
      y.push_back(std::clamp(x[i], -limit, limit));
      dx.push_back(std::abs(x[i]) <= limit ? dy[i] : 0);
    }
    auto xBuffer = input(x), dyBuffer = input(dy), yBuffer = output(n);
    device.run(GRT_KERNEL_CLIP, {*xBuffer, *yBuffer}, {n}, {limit});
    expectNear(yBuffer->read(), y, "y", 0, 0);
    device.run(GRT_KERNEL_CLIP_GRAD, {*xBuffer, *dyBuffer, *dyBuffer}, {n},
               {limit});
    expectNear(dyBuffer->read(), dx, "dx", 0, 0);
    device.run(GRT_KERNEL_CLIP, {*xBuffer, *xBuffer}, {n}, {limit});
    expectSame(xBuffer->read(), yBuffer->read(), "y in place");
  }
  auto buffer = input({std::nan("")}), result = output(1);
  device.run(GRT_KERNEL_CLIP, {*buffer, *result}, {1}, {1.0});
  EXPECT_TRUE(std::isnan(result->read()[0]));
  EXPECT_NE(device.refused(GRT_KERNEL_CLIP, {*buffer, *buffer}, {1}, {-1.0})
                .find("expected a cap that is positive"),
            std::string::npos);
}

TEST_P(Decoder, column_scale_and_its_gradient) {
  Random random(13);
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {37, 7}, {70, 96}, {33, 1021}})
    for (int64_t acc : {0, 1}) {
      Values x = random.values(rows * n), scale = random.values(n, 2);
      Values dy = random.values(rows * n), y, dscale(n, 0.0);
      Values before = random.values(n);
      if (acc)
        dscale = before;
      for (int64_t i = 0; i < rows * n; ++i) {
        y.push_back(x[i] * scale[i % n]);
        dscale[i % n] += dy[i] * x[i];
      }
      auto xBuffer = input(x), scaleBuffer = input(scale), dyBuffer = input(dy);
      auto yBuffer = output(rows * n), sum = sums(before);
      device.run(GRT_KERNEL_COLUMN_SCALE, {*xBuffer, *scaleBuffer, *yBuffer},
                 {rows, n});
      expectNear(yBuffer->read(), y, "y", 1e-6, 1e-14);
      device.run(GRT_KERNEL_COLUMN_SCALE_GRAD, {*dyBuffer, *xBuffer, *sum},
                 {rows, n, acc});
      expectNear(sum->read(), dscale, "dscale", 8e-6, 1e-12);
    }
}

TEST_P(Decoder, reference_of_rms_norm_agrees_with_differences) {
  Random random(4);
  int64_t n = 5;
  Values x = random.values(n), gamma = random.values(n, 1, 1);
  Values dy = random.values(n), stats;
  rmsNorm(1, n, x, gamma, &stats);
  double product = 0;
  for (int64_t i = 0; i < n; ++i)
    product += dy[i] * gamma[i] * x[i] * stats[0] / double(n);
  for (int64_t i = 0; i < n; ++i)
    EXPECT_NEAR(stats[0] * (dy[i] * gamma[i] - x[i] * stats[0] * product),
                slope(
                    [&](double value) {
                      Values moved = x;
                      moved[i] = value;
                      Values y = rmsNorm(1, n, moved, gamma);
                      double sum = 0;
                      for (int64_t j = 0; j < n; ++j)
                        sum += y[j] * dy[j];
                      return sum;
                    },
                    x[i]),
                1e-6);
}

TEST_P(Decoder, rotary_turns_pairs_of_every_head) {
  Random random(5);
  for (const Turn &p :
       std::vector<Turn>{{1, 1, 1, 2, 1, 1},
                         {2, 5, 3, 8, 4, 1},
                         {3, 33, 2, 14, 7, 1.25},
                         {1, 70, 4, 64, 32, 1},
                         {2, 9, 2, 20, 3, 0.5}, // part of a head
                         {1, 4, 1, 6, 0, 1},
                         {3, 2, 40, 128, 64, 1}, // several turns of a block
                         {1, 3, 1, 512, 256, 1},
                         {2, 9, 3, 8, 4, 1, true},
                         {1, 33, 2, 20, 3, 1.25, true},
                         {2, 7, 4, 64, 16, 1, true}})
    for (bool inverse : {false, true})
      for (bool inPlace : {false, true}) {
        Values x = random.values(p.count());
        auto xBuffer = input(x), y = output(p.count());
        Buffer &result = inPlace ? *xBuffer : *y;
        device.run(GRT_KERNEL_ROTARY, {*xBuffer, result}, p.ints(inverse),
                   p.reals());
        // Angles are f32 products: at position 70 off by 4e-6.
        expectNear(result.read(), turned(p, x, inverse), "y", 6e-6, 1e-13);
      }
}

/// Rows of blocks that begin and end inside samples are turned by the angles of
/// their positions.
TEST_P(Decoder, rotary_of_blocks_of_rows) {
  const Turn whole = {2, 9, 3, 8, 4, 1.25};
  const int64_t ranks = 3, own = 6, count = own * 3 * 8;
  const Values x = Random(15).values(whole.count());
  auto all = input(x), y = output(whole.count());
  device.run(GRT_KERNEL_ROTARY, {*all, *y}, whole.ints(false), whole.reals());
  const Values expected = y->read();
  device.at.block_count = ranks;
  for (int64_t number = 0; number < 2 * ranks; ++number) {
    const int64_t rank = number / 2, balanced = number % 2;
    device.at.block_index = rank;
    auto part = [&](const Values &values) {
      return blockOfRows(values, rank, ranks, balanced != 0);
    };
    auto mine = input(part(x)), result = output(count);
    const Integers ints = {1, own, 3, 8, 0, 4, 0, 9, balanced};
    device.run(GRT_KERNEL_ROTARY, {*mine, *result}, ints, whole.reals());
    expectSame(result->read(), part(expected), "y");
  }
}

TEST_P(Decoder, rotary_and_its_inverse_give_the_lengths_back) {
  Turn p = {2, 17, 2, 16, 8, 1};
  Random random(6);
  Values x = random.values(p.count());
  auto buffer = input(x);
  device.run(GRT_KERNEL_ROTARY, {*buffer, *buffer}, p.ints(false), p.reals());
  device.run(GRT_KERNEL_ROTARY, {*buffer, *buffer}, p.ints(true), p.reals());
  // Cosine and sine in bf16 make a turn longer or shorter by 2^-8.
  bool coarse = dtype() == GRT_BF16;
  expectNear(buffer->read(), x, "x", coarse ? 2e-2 : 4e-6, 1e-13);
}

TEST_P(Decoder, rotary_refuses_pairs_without_place_or_frequency) {
  auto x = input(Values(16, 0.5));
  EXPECT_NE(device
                .refused(GRT_KERNEL_ROTARY, {*x, *x}, {1, 2, 1, 8, 0, 5},
                         {1, 1, 1, 1, 1, 1})
                .find("pairs"),
            std::string::npos);
  EXPECT_NE(device
                .refused(GRT_KERNEL_ROTARY, {*x, *x}, {1, 2, 1, 8, 0, 4},
                         {1, 1, 1, 1})
                .find("reals"),
            std::string::npos);
}

TEST_P(Decoder, gated_silu_and_its_gradient) {
  Random random(7);
  for (int64_t n : {1, 7, 100, 40000}) {
    Values gate = random.values(n, 6), up = random.values(n, 2);
    Values dy = random.values(n), y, dgate, dup;
    for (int64_t i = 0; i < n; ++i) {
      double s = 1 / (1 + std::exp(-gate[i]));
      y.push_back(silu(gate[i]) * up[i]);
      dgate.push_back(dy[i] * up[i] * s * (1 + gate[i] * (1 - s)));
      dup.push_back(dy[i] * silu(gate[i]));
    }
    EXPECT_NEAR(dgate[0], dy[0] * up[0] * slope(silu, gate[0]), 1e-8);
    auto gateBuffer = input(gate), upBuffer = input(up), dyBuffer = input(dy);
    auto result = output(n), left = output(n), right = output(n);
    device.run(GRT_KERNEL_GATED_SILU, {*gateBuffer, *upBuffer, *result}, {n});
    expectNear(result->read(), y, "y", 1e-6);
    device.run(GRT_KERNEL_GATED_SILU_GRAD,
               {*gateBuffer, *upBuffer, *dyBuffer, *left, *right}, {n});
    expectNear(left->read(), dgate, "dgate", 1e-6);
    expectNear(right->read(), dup, "dup", 1e-6);
    // The gradient of the gate in place of dy, that of up in place of up.
    device.run(GRT_KERNEL_GATED_SILU_GRAD,
               {*gateBuffer, *upBuffer, *dyBuffer, *dyBuffer, *upBuffer}, {n});
    expectSame(dyBuffer->read(), left->read(), "dgate in place");
    expectSame(upBuffer->read(), right->read(), "dup in place");
    auto again = input(up);
    device.run(GRT_KERNEL_GATED_SILU, {*gateBuffer, *again, *again}, {n});
    expectSame(again->read(), result->read(), "y in place");
  }
}

TEST_P(Decoder, gated_silu_of_large_gates_stays_finite) {
  Values gate = {-1000, -100, 100, 1000}, up(4, 1.0);
  auto gateBuffer = input(gate), upBuffer = input(up), y = output(4);
  device.run(GRT_KERNEL_GATED_SILU, {*gateBuffer, *upBuffer, *y}, {4});
  expectNear(y->read(), {0, 0, 100, 1000}, "y", 1e-2);
}

GRT_KERNEL_SUITE(Decoder);

} // namespace
} // namespace grt::conformance
