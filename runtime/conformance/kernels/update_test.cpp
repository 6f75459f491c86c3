//===- update_test.cpp - Optimizers and the gradient norm -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include <cmath>

namespace grt::conformance {
namespace {

class Update : public KernelTest {
protected:
  struct Segment {
    int64_t begin, length, flag;
  };
  static Integers ints(Integers head, const std::vector<Segment> &segments) {
    head.push_back(int64_t(segments.size()));
    for (const Segment &s : segments)
      head.insert(head.end(), {s.begin, s.length, s.flag});
    return head;
  }

  /// `moments` times zeros, and behind them the master weights if the compute
  /// type has such.
  Values withMaster(int64_t moments, const Values &p) const {
    Values state(moments * p.size(), 0.0);
    if (dtype() == GRT_BF16)
      state.insert(state.end(), p.begin(), p.end());
    return state;
  }
  /// Master weights are as exact as f32 is: nothing was rounded to bf16 on the
  /// way.
  static void expectMaster(const Values &found, const Values &expected) {
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 2e-6) << "master weight " << i;
  }

  /// One step as the documents of torch.optim state it, in f64.
  void reference(int64_t optimizer, bool decay, double &p, double gradient,
                 double &m, double &v) const {
    const grt_step &s = device.step;
    double g = gradient * s.clip_factor;
    double wd = decay ? s.weight_decay : 0;
    if (optimizer == 2)
      p -= s.learning_rate * wd * p;
    else
      g += wd * p;
    if (optimizer == 0) {
      m = s.momentum * m + g;
      p -= s.learning_rate * m;
      return;
    }
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    double mHat = m / (1 - std::pow(s.beta1, double(s.step)));
    double vHat = v / (1 - std::pow(s.beta2, double(s.step)));
    p -= s.learning_rate * mHat / (std::sqrt(vHat) + s.eps);
  }
};

TEST_P(Update, three_steps_of_every_optimizer) {
  int64_t n = 1000;
  // Segments with gaps (alignment padding) that must not change.
  std::vector<Segment> segments = {{0, 100, 1}, {112, 1, 0}, {128, 855, 1}};
  device.step.weight_decay = 0.1;
  device.step.momentum = 0.9;
  device.step.clip_factor = 0.5;
  for (int64_t optimizer : {0, 1, 2}) {
    Random random(1 + uint64_t(optimizer));
    Values p = random.values(n), m(n, 0.0), v(n, 0.0);
    auto parameter = input(p);
    auto state = sums(withMaster(optimizer == 0 ? 1 : 2, p));
    for (uint64_t step = 1; step <= 3; ++step) {
      device.step.step = step;
      Values g = random.values(n, 0.3);
      auto gradient = sums(g);
      device.run(GRT_KERNEL_OPTIMIZER, {*parameter, *gradient, *state},
                 ints({optimizer, n}, segments));
      for (const Segment &s : segments)
        for (int64_t i = s.begin; i < s.begin + s.length; ++i)
          reference(optimizer, s.flag, p[i], g[i], m[i], v[i]);
    }
    expectNear(parameter->read(), p, "parameter");
    Values expected = m;
    if (optimizer != 0)
      expected.insert(expected.end(), v.begin(), v.end());
    if (dtype() == GRT_BF16) {
      // The parameter is the rounded master weight, whatever that is.
      Values held = state->read();
      Values master(held.end() - n, held.end());
      expectMaster(master, p);
      expectSame(parameter->read(), rounded(master), "rounded copy");
      held.resize(expected.size());
      expectNear(held, expected, "state");
      continue;
    }
    expectNear(state->read(), expected, "state");
  }
}

TEST_P(Update, shards_equal_the_whole) {
  int64_t n = 960;
  std::vector<Segment> segments = {{0, 333, 1}, {336, 500, 0}, {848, 100, 1}};
  device.step.weight_decay = 0.01;
  for (int64_t optimizer : {0, 2}) {
    Random random(11);
    Values p = random.values(n), g = random.values(n);
    auto parameter = input(p), gradient = sums(g);
    int64_t moments = optimizer == 0 ? 1 : 2;
    auto state = sums(withMaster(moments, p));
    device.at.sdp_index = 0;
    device.run(GRT_KERNEL_OPTIMIZER, {*parameter, *gradient, *state},
               ints({optimizer, n}, segments));
    Values whole = parameter->read();
    for (int64_t shards : {2, 3}) {
      int64_t shard = n / shards;
      device.at.sdp_size = shards;
      for (int64_t i = 0; i < shards; ++i) {
        device.at.sdp_index = i;
        auto part = [&](const Values &values) {
          return Values(values.begin() + i * shard,
                        values.begin() + (i + 1) * shard);
        };
        auto shardParameter = input(part(p)), shardGradient = sums(part(g));
        auto shardState = sums(withMaster(moments, part(p)));
        device.run(GRT_KERNEL_OPTIMIZER,
                   {*shardParameter, *shardGradient, *shardState},
                   ints({optimizer, shard}, segments));
        expectSame(shardParameter->read(), part(whole), "shard");
      }
    }
  }
}

TEST_P(Update, nothing_changes_where_the_update_is_left_out) {
  device.step.update_left_out = 1;
  device.step.weight_decay = 0.1;
  Random random(5);
  const int64_t n = 77;
  Values p = random.values(n), g = random.values(n);
  for (int64_t optimizer : {0, 1, 2}) {
    Values held = withMaster(optimizer == 0 ? 1 : 2, p);
    auto parameter = input(p), gradient = sums(g), state = sums(held);
    device.run(GRT_KERNEL_OPTIMIZER, {*parameter, *gradient, *state},
               ints({optimizer, n}, {{0, n, 1}}));
    expectSame(parameter->read(), p, "parameter");
    expectSame(state->read(), held, "state");
  }
}

TEST_P(Update, missing_segments_are_refused) {
  auto p = input({1.0}), g = sums(Values{1.0}), s = sums(Values{0.0, 0.0});
  EXPECT_NE(
      device.refused(GRT_KERNEL_OPTIMIZER, {*p, *g, *s}, {2, 1, 2, 0, 1, 0})
          .find("segments"),
      std::string::npos);
}

TEST_P(Update, norm_counts_every_element_once) {
  int64_t n = 999;
  Random random(21);
  Values g = random.values(n);
  std::vector<Segment> segments = {{0, 401, 1}, {404, 500, 0}};
  double replicated = 0, own = 0;
  for (int64_t i = 0; i < 401; ++i)
    replicated += g[i] * g[i];
  for (int64_t i = 404; i < 904; ++i)
    own += g[i] * g[i];
  auto gradient = sums(g);
  auto run = [&] {
    device.step.local_norm_squared = 0.5;
    device.run(GRT_KERNEL_NORM, {*gradient}, ints({n}, segments));
    return device.step.local_norm_squared - 0.5;
  };
  EXPECT_NEAR(run(), replicated + own, 1e-10);
  device.at.tp_size = 2;
  device.at.tp_index = 1;
  EXPECT_NEAR(run(), own, 1e-10);
  device.at.dp_size = 2;
  device.at.dp_index = 1;
  EXPECT_EQ(run(), 0);
  device.at.dp_index = 0;
  device.at.tp_index = 0;
  // Shards: the sum over sdp is the whole.
  device.at.sdp_size = 3;
  double total = 0;
  for (int64_t i = 0; i < 3; ++i) {
    device.at.sdp_index = i;
    auto shard = sums(Values(g.begin() + i * 333, g.begin() + (i + 1) * 333));
    device.step.local_norm_squared = 0;
    device.run(GRT_KERNEL_NORM, {*shard}, ints({333}, segments));
    total += device.step.local_norm_squared;
  }
  EXPECT_NEAR(total, replicated + own, 1e-10);
}

GRT_KERNEL_SUITE(Update);

} // namespace
} // namespace grt::conformance
