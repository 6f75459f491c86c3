//===- normalize_test.cpp - Layer norm and GELU ---------------------------===//
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

/// Rows and columns: of single elements, of packs that registers hold, by a
/// warp, by several, and rows that none of those hold.
const std::vector<std::pair<int64_t, int64_t>> normShapes = {
    {1, 1},   {3, 7},    {65, 96},  {40, 1021},
    {5, 768}, {3, 1600}, {2, 5000}, {2, 8200}};

class Normalize : public KernelTest {
protected:
  static constexpr double eps = 1e-5;

  static Values layerNorm(int64_t rows, int64_t n, const Values &x,
                          const Values &gamma, const Values &beta,
                          Values *stats = nullptr) {
    Values y;
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < n; ++i)
        mean += x[r * n + i] / double(n);
      for (int64_t i = 0; i < n; ++i)
        variance += std::pow(x[r * n + i] - mean, 2) / double(n);
      double inverse = 1 / std::sqrt(variance + eps);
      for (int64_t i = 0; i < n; ++i)
        y.push_back((x[r * n + i] - mean) * inverse * gamma[i] + beta[i]);
      if (stats) {
        stats->push_back(mean);
        stats->push_back(inverse);
      }
    }
    return y;
  }

  struct Gradients {
    Values dx, dgamma, dbeta;
  };
  static Gradients layerNormGrad(int64_t rows, int64_t n, const Values &dy,
                                 const Values &x, const Values &gamma) {
    Gradients g = {Values(rows * n), Values(n, 0.0), Values(n, 0.0)};
    Values stats;
    layerNorm(rows, n, x, gamma, Values(n, 0.0), &stats);
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, product = 0;
      auto normal = [&](int64_t i) {
        return (x[r * n + i] - stats[2 * r]) * stats[2 * r + 1];
      };
      for (int64_t i = 0; i < n; ++i) {
        mean += dy[r * n + i] * gamma[i] / double(n);
        product += dy[r * n + i] * gamma[i] * normal(i) / double(n);
      }
      for (int64_t i = 0; i < n; ++i) {
        g.dx[r * n + i] = stats[2 * r + 1] * (dy[r * n + i] * gamma[i] - mean -
                                              normal(i) * product);
        g.dgamma[i] += dy[r * n + i] * normal(i);
        g.dbeta[i] += dy[r * n + i];
      }
    }
    return g;
  }

  static double gelu(double x, bool approximate) {
    if (!approximate)
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  /// Central differences with one step of extrapolation: error of order h^4.
  static double slope(const std::function<double(double)> &f, double x) {
    auto central = [&](double h) { return (f(x + h) - f(x - h)) / (2 * h); };
    return (4 * central(5e-4) - central(1e-3)) / 3;
  }
};

TEST_P(Normalize, layer_norm_and_statistics) {
  Random random(1);
  for (auto [rows, n] : normShapes)
    for (double offset : {0.0, 30.0}) {
      Values x = random.values(rows * n, 2, offset), stats;
      Values gamma = random.values(n, 1, 1), beta = random.values(n);
      Values expected = layerNorm(rows, n, x, gamma, beta, &stats);
      auto xBuffer = input(x), gammaBuffer = input(gamma);
      auto betaBuffer = input(beta), y = output(rows * n);
      auto statsBuffer = sums(2 * rows);
      device.run(GRT_KERNEL_LAYER_NORM,
                 {*xBuffer, *gammaBuffer, *betaBuffer, *y, *statsBuffer},
                 {rows, n}, {eps});
      double worse = n == 1 ? 100 : 1 + offset;
      expectNear(y->read(), expected, "y", 2e-6 * worse, 1e-13 * worse);
      expectNear(statsBuffer->read(), stats, "stats", 2e-6, 1e-13);
    }
}

TEST_P(Normalize, layer_norm_without_a_shift) {
  Random random(21);
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{3, 7}, {33, 96}, {3, 768}, {2, 5000}})
    for (int64_t acc : {0, 1}) {
      Values x = random.values(rows * n, 2, 0.5), stats;
      Values gamma = random.values(n, 1, 1), dy = random.values(rows * n);
      Values expected = layerNorm(rows, n, x, gamma, Values(n, 0.0), &stats);
      auto xBuffer = input(x), gammaBuffer = input(gamma), dyBuffer = input(dy);
      auto y = output(rows * n), statsBuffer = sums(2 * rows);
      device.run(GRT_KERNEL_CENTERED_NORM,
                 {*xBuffer, *gammaBuffer, *y, *statsBuffer}, {rows, n}, {eps});
      expectNear(y->read(), expected, "y", 4e-6, 2e-13);
      expectNear(statsBuffer->read(), stats, "stats", 2e-6, 1e-13);

      Gradients g = layerNormGrad(rows, n, dy, x, gamma);
      Values before = random.values(n);
      if (acc)
        for (int64_t i = 0; i < n; ++i)
          g.dgamma[i] += before[i];
      auto given = sums(stats), sum = sums(before);
      device.run(GRT_KERNEL_CENTERED_NORM_GRAD,
                 {*dyBuffer, *xBuffer, *given, *gammaBuffer, *dyBuffer, *sum},
                 {rows, n, acc});
      expectNear(dyBuffer->read(), g.dx, "dx", 8e-6, 1e-12);
      expectNear(sum->read(), g.dgamma, "dgamma", 8e-6, 1e-12);
    }
}

TEST_P(Normalize, layer_norm_without_weights) {
  Random random(22);
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{3, 7}, {33, 96}, {3, 768}, {2, 5000}}) {
    Values x = random.values(rows * n, 2, 0.5), stats;
    const Values ones(n, 1.0);
    Values dy = random.values(rows * n);
    Values expected = layerNorm(rows, n, x, ones, Values(n, 0.0), &stats);
    auto xBuffer = input(x), dyBuffer = input(dy);
    auto y = output(rows * n), statsBuffer = sums(2 * rows);
    device.run(GRT_KERNEL_PLAIN_NORM, {*xBuffer, *y, *statsBuffer}, {rows, n},
               {eps});
    expectNear(y->read(), expected, "y", 4e-6, 2e-13);
    expectNear(statsBuffer->read(), stats, "stats", 2e-6, 1e-13);
    auto given = sums(stats);
    device.run(GRT_KERNEL_PLAIN_NORM_GRAD,
               {*dyBuffer, *xBuffer, *given, *dyBuffer}, {rows, n});
    expectNear(dyBuffer->read(), layerNormGrad(rows, n, dy, x, ones).dx, "dx",
               8e-6, 1e-12);
  }
}

TEST_P(Normalize, reference_gradient_agrees_with_differences) {
  Random random(2);
  int64_t rows = 2, n = 5;
  Values x = random.values(rows * n), gamma = random.values(n, 1, 1);
  Values dy = random.values(rows * n);
  Gradients g = layerNormGrad(rows, n, dy, x, gamma);
  auto objective = [&](const Values &at, const Values &scale) {
    Values y = layerNorm(rows, n, at, scale, Values(n, 0.0));
    double sum = 0;
    for (int64_t i = 0; i < rows * n; ++i)
      sum += y[i] * dy[i];
    return sum;
  };
  for (int64_t i = 0; i < rows * n; ++i)
    EXPECT_NEAR(g.dx[i],
                slope(
                    [&](double value) {
                      Values moved = x;
                      moved[i] = value;
                      return objective(moved, gamma);
                    },
                    x[i]),
                1e-6);
  for (int64_t i = 0; i < n; ++i)
    EXPECT_NEAR(g.dgamma[i],
                slope(
                    [&](double value) {
                      Values moved = gamma;
                      moved[i] = value;
                      return objective(x, moved);
                    },
                    gamma[i]),
                1e-6);
}

TEST_P(Normalize, layer_norm_grad_with_alias_and_accumulation) {
  Random random(3);
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{1, 3}, {37, 7}, {70, 96}, {33, 1021}})
    for (int64_t acc : {0, 1, 2})
      for (bool alias : {false, true}) {
        Values x = random.values(rows * n, 2, 0.5),
               dy = random.values(rows * n);
        Values gamma = random.values(n, 1, 1), stats;
        layerNorm(rows, n, x, gamma, Values(n, 0.0), &stats);
        Gradients expected = layerNormGrad(rows, n, dy, x, gamma);
        Values before = random.values(n);
        bool add = acc == 1; // acc 2 on the first micro-batch overwrites
        device.accumulate = false;
        if (add)
          for (int64_t i = 0; i < n; ++i) {
            expected.dgamma[i] += before[i];
            expected.dbeta[i] += before[i];
          }
        auto dyBuffer = input(dy), xBuffer = input(x),
             statsBuffer = sums(stats);
        auto gammaBuffer = input(gamma), dx = output(rows * n);
        auto dgamma = add ? sums(before) : sums(n);
        auto dbeta = add ? sums(before) : sums(n);
        Buffer &target = alias ? *dyBuffer : *dx;
        device.run(GRT_KERNEL_LAYER_NORM_GRAD,
                   {*dyBuffer, *xBuffer, *statsBuffer, *gammaBuffer, target,
                    *dgamma, *dbeta},
                   {rows, n, acc});
        expectNear(target.read(), expected.dx, "dx", 5e-6);
        expectNear(dgamma->read(), expected.dgamma, "dgamma", 5e-6);
        expectNear(dbeta->read(), expected.dbeta, "dbeta");
      }
}

TEST_P(Normalize, add_layer_norm_keeps_the_sum) {
  Random random(6);
  for (auto [rows, n] : normShapes)
    // 0: all apart; 1 and 2: the sum takes the place of x, of the residual
    for (int alias : {0, 1, 2}) {
      Values x = random.values(rows * n, 2), past = random.values(rows * n, 3);
      Values gamma = random.values(n, 1, 1), beta = random.values(n), sum;
      for (int64_t i = 0; i < rows * n; ++i)
        sum.push_back(x[i] + past[i]);
      auto xBuffer = input(x), pastBuffer = input(past);
      auto gammaBuffer = input(gamma), betaBuffer = input(beta);
      auto apart = output(rows * n), y = output(rows * n);
      auto statsBuffer = sums(2 * rows);
      Buffer &target = alias == 0   ? *apart
                       : alias == 1 ? *xBuffer
                                    : *pastBuffer;
      device.run(GRT_KERNEL_ADD_LAYER_NORM,
                 {*xBuffer, *pastBuffer, *gammaBuffer, *betaBuffer, target, *y,
                  *statsBuffer},
                 {1, rows, n, 3}, {eps, 0});
      expectNear(target.read(), sum, "sum", 1e-7, 1e-15);
      // The norm is that of the sum as it is stored.
      Values stats;
      Values expected = layerNorm(rows, n, rounded(sum), gamma, beta, &stats);
      double worse = n == 1 ? 100 : 1;
      expectNear(y->read(), expected, "y", 2e-6 * worse, 1e-13 * worse);
      expectNear(statsBuffer->read(), stats, "stats", 2e-6, 1e-13);
    }
}

// One call gives the bits of the two that it stands for.
TEST_P(Normalize, add_layer_norm_drops_as_dropout_add_does) {
  Random random(7);
  device.at.first_sample = 5;
  device.at.layer = 2;
  device.step.seed = 77;
  device.step.step = 3;
  for (uint32_t mode : {GRT_MODE_TRAIN, GRT_MODE_EVALUATE})
    for (int64_t n : {6, 64, 1021}) {
      device.step.mode = mode;
      int64_t samples = 2, positions = 9, rows = samples * positions;
      auto x = input(random.values(rows * n, 2));
      auto past = input(random.values(rows * n, 3));
      auto gamma = input(random.values(n, 1, 1)),
           beta = input(random.values(n));
      auto apart = output(rows * n), apartY = output(rows * n);
      auto apartStats = sums(2 * rows);
      device.run(GRT_KERNEL_DROPOUT_ADD, {*x, *past, *apart},
                 {samples, positions, n, 4, 0}, {0.25});
      device.run(GRT_KERNEL_LAYER_NORM,
                 {*apart, *gamma, *beta, *apartY, *apartStats}, {rows, n},
                 {eps});
      auto sum = output(rows * n), y = output(rows * n);
      auto stats = sums(2 * rows);
      device.run(GRT_KERNEL_ADD_LAYER_NORM,
                 {*x, *past, *gamma, *beta, *sum, *y, *stats},
                 {samples, positions, n, 4}, {eps, 0.25});
      expectSame(sum->read(), apart->read(), "sum");
      expectSame(y->read(), apartY->read(), "y");
      expectSame(stats->read(), apartStats->read(), "stats");
      if (mode != GRT_MODE_TRAIN)
        continue;
      int64_t kept = 0;
      Values before = past->read();
      for (int64_t i = 0; i < rows * n; ++i)
        kept += sum->at(i) != before[size_t(i)];
      EXPECT_LT(kept, rows * n) << "nothing was dropped";
    }
}

TEST_P(Normalize, layer_norm_add_grad_adds_what_went_past) {
  Random random(8);
  // A warp a row, several, and rows too wide for registers in one type or
  // another.
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{1, 3},
                         {37, 7},
                         {70, 96},
                         {33, 1021},
                         {39, 768},
                         {11, 1600},
                         {9, 2048},
                         {5, 4096},
                         {2, 8200}})
    for (int64_t acc : {0, 1})
      // 0: all apart; 1 and 2: dx takes the place of dy, of the residual
      for (int alias : {0, 1, 2}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(n) +
                     ", accumulates " + std::to_string(acc) + ", alias " +
                     std::to_string(alias));
        Values x = random.values(rows * n, 2, 0.5),
               dy = random.values(rows * n), past = random.values(rows * n);
        Values gamma = random.values(n, 1, 1), stats;
        layerNorm(rows, n, x, gamma, Values(n, 0.0), &stats);
        Gradients expected = layerNormGrad(rows, n, dy, x, gamma);
        for (int64_t i = 0; i < rows * n; ++i)
          expected.dx[i] += past[i];
        Values before = random.values(n);
        if (acc)
          for (int64_t i = 0; i < n; ++i) {
            expected.dgamma[i] += before[i];
            expected.dbeta[i] += before[i];
          }
        auto dyBuffer = input(dy), xBuffer = input(x), pastBuffer = input(past);
        auto statsBuffer = sums(stats), gammaBuffer = input(gamma);
        auto apart = output(rows * n);
        auto dgamma = acc ? sums(before) : sums(n);
        auto dbeta = acc ? sums(before) : sums(n);
        Buffer &target = alias == 0   ? *apart
                         : alias == 1 ? *dyBuffer
                                      : *pastBuffer;
        device.run(GRT_KERNEL_LAYER_NORM_ADD_GRAD,
                   {*dyBuffer, *xBuffer, *statsBuffer, *gammaBuffer,
                    *pastBuffer, target, *dgamma, *dbeta},
                   {rows, n, acc});
        expectNear(target.read(), expected.dx, "dx", 5e-6);
        expectNear(dgamma->read(), expected.dgamma, "dgamma", 5e-6);
        expectNear(dbeta->read(), expected.dbeta, "dbeta");
      }
}

TEST_P(Normalize, gelu_over_the_whole_range) {
  for (bool approximate : {false, true}) {
    Values x;
    for (double value = -30; value <= 30; value += 0.0078125)
      x.push_back(value);
    x.insert(x.end(), {-1e4, 1e4, -0.0, 1e-30, -1e-20});
    if (dtype() == GRT_BF16)
      x = rounded(x);
    int64_t n = int64_t(x.size());
    auto xBuffer = input(x), y = output(n);
    device.run(GRT_KERNEL_GELU, {*xBuffer, *y}, {n, approximate});
    for (int64_t i = 0; i < n; ++i) {
      double expected = gelu(x[i], approximate);
      // Relative to the larger of the value and a thousandth of the argument:
      // the far tail is a tiny number times an exponential.
      double scale = std::max(std::fabs(expected), 1e-3 * std::fabs(x[i]));
      double bound = scale * (dtype() == GRT_F64 ? 1e-12 : 1e-6);
      if (dtype() == GRT_BF16)
        bound += std::fabs(expected) / 256;
      EXPECT_NEAR(y->at(i), expected, bound) << "gelu(" << x[i] << ")";
    }
    device.run(GRT_KERNEL_GELU, {*xBuffer, *xBuffer}, {n, approximate});
    expectSame(xBuffer->read(), y->read(), "aliased");
  }
}

TEST_P(Normalize, gelu_grad_and_its_alias) {
  Random random(4);
  for (bool approximate : {false, true})
    for (int64_t n : {1, 63, 20011}) {
      Values x = random.values(n, 6), dy = random.values(n), expected;
      for (int64_t i = 0; i < n; ++i)
        expected.push_back(
            dy[i] *
            slope([&](double value) { return gelu(value, approximate); },
                  x[i]));
      auto xBuffer = input(x), dyBuffer = input(dy), dx = output(n);
      device.run(GRT_KERNEL_GELU_GRAD, {*xBuffer, *dyBuffer, *dx},
                 {n, approximate});
      // The bound of f64 is that of the differences.
      expectNear(dx->read(), expected, "dx", 2e-6, 2e-11);
      device.run(GRT_KERNEL_GELU_GRAD, {*xBuffer, *dyBuffer, *dyBuffer},
                 {n, approximate});
      expectSame(dyBuffer->read(), dx->read(), "aliased");
    }
}

TEST_P(Normalize, bias_gelu_keeps_its_argument) {
  Random random(5);
  for (bool approximate : {false, true})
    for (auto [rows, n] :
         {std::pair<int64_t, int64_t>{1, 1}, {9, 13}, {130, 384}}) {
      Values x = random.values(rows * n, 3), bias = random.values(n);
      Values pre, expected;
      for (int64_t i = 0; i < rows * n; ++i) {
        pre.push_back(x[i] + bias[i % n]);
        expected.push_back(gelu(pre[i], approximate));
      }
      auto xBuffer = input(x), biasBuffer = input(bias);
      auto preBuffer = output(rows * n), y = output(rows * n);
      device.run(GRT_KERNEL_BIAS_GELU, {*xBuffer, *biasBuffer, *preBuffer, *y},
                 {rows, n, approximate});
      expectNear(preBuffer->read(), pre, "pre", 1e-7, 1e-15);
      expectNear(y->read(), expected, "y", 1e-6);
      auto again = output(rows * n);
      device.run(GRT_KERNEL_BIAS_GELU,
                 {*xBuffer, *biasBuffer, *xBuffer, *again},
                 {rows, n, approximate});
      expectSame(xBuffer->read(), preBuffer->read(), "pre is x");
      expectSame(again->read(), y->read(), "y");
    }
}

TEST_P(Normalize, nan_reaches_the_output) {
  Values x(40, 0.5);
  x[17] = NAN;
  auto xBuffer = input(x), y = output(40);
  for (int64_t approximate : {0, 1}) {
    device.run(GRT_KERNEL_GELU, {*xBuffer, *y}, {40, approximate});
    EXPECT_TRUE(std::isnan(y->at(17)));
    EXPECT_FALSE(std::isnan(y->at(16)));
  }
}

GRT_KERNEL_SUITE(Normalize);

} // namespace
} // namespace grt::conformance
