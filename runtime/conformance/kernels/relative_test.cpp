//===- relative_test.cpp - Relative positions, ReLU, gated GELU -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include <cmath>
#include <limits>

namespace grt::conformance {
namespace {

/// Kernels that encoders and decoders of the T5 kind have besides products,
/// norms and attention.
class Relative : public KernelTest {
protected:
  struct Problem {
    int64_t samples, heads, positions, buckets, maxDistance;
    bool bidirectional;
    int64_t distances() const { return 2 * positions - 1; }
    int64_t count() const { return samples * heads * distances(); }
    Integers ints() const {
      return {samples, heads, positions, buckets, maxDistance, bidirectional};
    }
    /// The reference follows the definition in grt/kernels.def.
    int64_t bucket(int64_t distance) const {
      int64_t n = bidirectional ? buckets / 2 : buckets;
      int64_t base = bidirectional && distance > 0 ? n : 0;
      int64_t r =
          bidirectional ? std::abs(distance) : std::max<int64_t>(-distance, 0);
      int64_t e = n / 2;
      if (r < e)
        return base + r;
      double share = std::log(double(r) / double(e)) /
                     std::log(double(maxDistance) / double(e));
      return base +
             std::min(n - 1, e + int64_t(std::floor(share * double(n - e))));
    }
  };

  void check(const Problem &p, uint64_t seed) {
    Random random(seed);
    Values table = random.values(p.buckets * p.heads), bias;
    Values dbias = random.values(p.count());
    Values before = random.values(p.buckets * p.heads);
    Values replaced(table.size(), 0.0);
    for (int64_t i = 0; i < p.count(); ++i) {
      int64_t head = i / p.distances() % p.heads;
      int64_t at =
          p.bucket(i % p.distances() - (p.positions - 1)) * p.heads + head;
      bias.push_back(table[at]);
      replaced[at] += dbias[i];
    }
    auto tableBuffer = input(table), result = output(p.count());
    device.run(GRT_KERNEL_RELATIVE_BIAS, {*tableBuffer, *result}, p.ints());
    expectSame(result->read(), bias, "bias");
    auto gradient = input(dbias);
    for (int64_t acc : {0, 1}) {
      auto sum = sums(before);
      Integers ints = p.ints();
      ints.push_back(acc);
      device.run(GRT_KERNEL_RELATIVE_BIAS_GRAD, {*gradient, *sum}, ints);
      Values expected = replaced;
      for (size_t i = 0; acc && i < expected.size(); ++i)
        expected[i] += before[i];
      expectNear(sum->read(), expected, "dtable", 5e-6, 1e-13);
    }
  }
};

TEST_P(Relative, biases_are_those_of_the_buckets) {
  uint64_t seed = 0;
  for (bool both : {false, true}) {
    check({1, 1, 1, 4, 3, both}, ++seed);
    check({2, 3, 9, 6, 7, both}, ++seed);
    check({3, 2, 40, 9, 20, both}, ++seed);
    check({1, 8, 200, 32, 128, both}, ++seed);
    check({2, 5, 300, 256, 1000, both}, ++seed);
  }
  check({1, 2, 17, 2, 2, false}, ++seed);
}

/// The usual table of 32 rows, to 128 positions: where its buckets begin.
TEST_P(Relative, the_usual_buckets_begin_where_they_do) {
  Problem both = {1, 1, 140, 32, 128, true}, one = both;
  one.bidirectional = false;
  Values rows;
  for (int64_t b = 0; b < 32; ++b)
    rows.push_back(double(b));
  auto table = input(rows), result = output(both.count());
  auto at = [&](int64_t distance) { return result->at(139 + distance); };
  device.run(GRT_KERNEL_RELATIVE_BIAS, {*table, *result}, both.ints());
  const int64_t far[] = {8, 12, 16, 23, 32, 46, 64, 91};
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(at(-i), double(i));
    EXPECT_EQ(at(i), i ? double(16 + i) : 0);
    EXPECT_EQ(at(-far[i]), double(8 + i)) << far[i];
    EXPECT_EQ(at(far[i]), double(24 + i)) << far[i];
    EXPECT_EQ(at(1 - far[i]), double(7 + i)) << far[i];
  }
  EXPECT_EQ(at(139), 31);
  device.run(GRT_KERNEL_RELATIVE_BIAS, {*table, *result}, one.ints());
  EXPECT_EQ(at(139), 0);
  EXPECT_EQ(at(-15), 15);
  EXPECT_EQ(at(-18), 16);
  EXPECT_EQ(at(-19), 17);
  EXPECT_EQ(at(-112), 30);
  EXPECT_EQ(at(-113), 31);
}

TEST_P(Relative, buckets_that_cannot_be_are_refused) {
  auto table = input(Values(4, 1.0)), bias = output(9);
  for (Problem p :
       {Problem{1, 1, 5, 1, 8, false}, Problem{1, 1, 5, 3, 8, true},
        Problem{1, 1, 5, 257, 1000, false}, Problem{1, 1, 5, 4, 2, false}})
    EXPECT_NE(
        device.refused(GRT_KERNEL_RELATIVE_BIAS, {*table, *bias}, p.ints())
            .find("relative positions take"),
        std::string::npos);
}

double gelu(double x) {
  return 0.5 * x *
         (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

TEST_P(Relative, gated_gelu_and_its_gradient) {
  Random random(7);
  for (int64_t n : {1, 7, 100, 40000}) {
    Values gate = random.values(n, 4), up = random.values(n, 2);
    Values dy = random.values(n), y, dgate, dup;
    for (int64_t i = 0; i < n; ++i) {
      double x = gate[i];
      double t = std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
      double slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) *
                                         0.79788456080286535588 *
                                         (1 + 3 * 0.044715 * x * x);
      y.push_back(gelu(x) * up[i]);
      dgate.push_back(dy[i] * up[i] * slope);
      dup.push_back(dy[i] * gelu(x));
    }
    auto gateBuffer = input(gate), upBuffer = input(up), dyBuffer = input(dy);
    auto result = output(n), left = output(n), right = output(n);
    device.run(GRT_KERNEL_GATED_GELU, {*gateBuffer, *upBuffer, *result}, {n});
    expectNear(result->read(), y, "y", 4e-6);
    device.run(GRT_KERNEL_GATED_GELU_GRAD,
               {*gateBuffer, *upBuffer, *dyBuffer, *left, *right}, {n});
    expectNear(left->read(), dgate, "dgate", 4e-6);
    expectNear(right->read(), dup, "dup", 4e-6);
    // The gradient of the gate in place of dy, that of up in place of up.
    device.run(GRT_KERNEL_GATED_GELU_GRAD,
               {*gateBuffer, *upBuffer, *dyBuffer, *dyBuffer, *upBuffer}, {n});
    expectSame(dyBuffer->read(), left->read(), "dgate in place");
    expectSame(upBuffer->read(), right->read(), "dup in place");
    // The form with erf in place of tanh.
    for (int64_t i = 0; i < n; ++i) {
      double part = 0.5 * (1 + std::erf(gate[i] / std::sqrt(2.0)));
      double density = std::exp(-0.5 * gate[i] * gate[i]) / std::sqrt(2 * M_PI);
      y[i] = gate[i] * part * up[i];
      dgate[i] = dy[i] * up[i] * (part + gate[i] * density);
      dup[i] = dy[i] * gate[i] * part;
    }
    auto exact = output(n), up2 = input(up), dy2 = input(dy);
    device.run(GRT_KERNEL_GATED_GELU, {*gateBuffer, *up2, *exact}, {n, 1});
    expectNear(exact->read(), y, "exact y", 4e-6);
    device.run(GRT_KERNEL_GATED_GELU_GRAD,
               {*gateBuffer, *up2, *dy2, *dy2, *up2}, {n, 1});
    expectNear(dy2->read(), dgate, "exact dgate", 4e-6);
    expectNear(up2->read(), dup, "exact dup", 4e-6);
    auto again = input(up);
    device.run(GRT_KERNEL_GATED_GELU, {*gateBuffer, *again, *again}, {n});
    expectSame(again->read(), result->read(), "y in place");
  }
}

TEST_P(Relative, relu_and_its_gradient) {
  Random random(8);
  for (int64_t n : {1, 7, 100, 40000}) {
    Values x = random.values(n), dy = random.values(n), y, dx;
    x[n / 2] = 0;
    for (int64_t i = 0; i < n; ++i) {
      y.push_back(x[i] > 0 ? x[i] : 0);
      dx.push_back(x[i] > 0 ? dy[i] : 0);
    }
    auto xBuffer = input(x), dyBuffer = input(dy), result = output(n);
    device.run(GRT_KERNEL_RELU, {*xBuffer, *xBuffer}, {n});
    expectSame(xBuffer->read(), y, "y in place");
    device.run(GRT_KERNEL_RELU_GRAD, {*xBuffer, *dyBuffer, *result}, {n});
    expectSame(result->read(), dx, "dx");
    device.run(GRT_KERNEL_RELU_GRAD, {*xBuffer, *dyBuffer, *dyBuffer}, {n});
    expectSame(dyBuffer->read(), dx, "dx in place");
  }
}

TEST_P(Relative, relu_keeps_what_is_no_number) {
  auto x = input({-std::numeric_limits<double>::infinity(), NAN,
                  std::numeric_limits<double>::infinity()});
  device.run(GRT_KERNEL_RELU, {*x, *x}, {3});
  Values y = x->read();
  EXPECT_EQ(y[0], 0);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isinf(y[2]));
}

GRT_KERNEL_SUITE(Relative);

} // namespace
} // namespace grt::conformance
