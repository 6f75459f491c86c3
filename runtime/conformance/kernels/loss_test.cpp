//===- loss_test.cpp - Softmax statistics and cross entropy ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace grt::conformance {
namespace {

class Loss : public KernelTest {
protected:
  struct Answer {
    double loss = 0;
    Values dlogits;
  };
  static Answer reference(int64_t rows, int64_t vocabulary,
                          const Values &logits, const Values &labels,
                          double inverseTokens) {
    Answer answer;
    for (int64_t r = 0; r < rows; ++r) {
      const double *row = logits.data() + r * vocabulary;
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t c = 0; c < vocabulary; ++c)
        largest = std::max(largest, row[c]);
      for (int64_t c = 0; c < vocabulary; ++c)
        sum += std::exp(row[c] - largest);
      int64_t label = int64_t(labels[r]);
      if (label >= 0)
        answer.loss += largest + std::log(sum) - row[label];
      for (int64_t c = 0; c < vocabulary; ++c) {
        double p = std::exp(row[c] - largest) / sum;
        answer.dlogits.push_back(
            label < 0 ? 0 : (p - (c == label ? 1.0 : 0.0)) * inverseTokens);
      }
    }
    return answer;
  }

  /// Columns [shard * local, ...) of every row; padding is NaN.
  static Values slice(const Values &logits, int64_t rows, int64_t vocabulary,
                      int64_t local, int64_t shard) {
    Values part;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = shard * local; c < (shard + 1) * local; ++c)
        part.push_back(c < vocabulary ? logits[r * vocabulary + c] : NAN);
    return part;
  }

  /// Statistics of all shards, one after the other.
  std::unique_ptr<Buffer> gather(int64_t rows, int64_t vocabulary, int64_t tp,
                                 const Values &logits, Buffer &labels) {
    int64_t local = (vocabulary + tp - 1) / tp;
    Values all;
    device.at.tp_size = tp;
    for (int64_t i = 0; i < tp; ++i) {
      device.at.tp_index = i;
      auto part = input(slice(logits, rows, vocabulary, local, i));
      auto stats = sums(rows * 3);
      device.run(GRT_KERNEL_SOFTMAX_STATS, {*part, labels, *stats},
                 {rows, local, vocabulary, tp > 1});
      for (double value : stats->read())
        all.push_back(value);
    }
    return sums(all);
  }
};

TEST_P(Loss, agrees_for_every_number_of_shards) {
  Random random(1);
  for (auto [rows, vocabulary] :
       {std::pair<int64_t, int64_t>{1, 2}, {9, 101}, {3, 50257}})
    for (int64_t tp : {1, 2, 4, 8}) {
      if (vocabulary < tp)
        continue;
      // 101 columns over 8 shards: the last holds 10 of 13.
      int64_t local = (vocabulary + tp - 1) / tp;
      Values logits = random.values(rows * vocabulary, 8), labels;
      for (int64_t r = 0; r < rows; ++r)
        labels.push_back(double(random.integer(0, vocabulary)));
      if (rows > 2) {
        labels[1] = -1;
        labels[2] = double(vocabulary - 1);
      }
      auto labelBuffer = integers(labels);
      device.step.inverse_tokens = 1.0 / 7;
      Answer expected = reference(rows, vocabulary, logits, labels, 1.0 / 7);
      auto stats = gather(rows, vocabulary, tp, logits, *labelBuffer);
      for (bool alias : {false, true})
        for (int64_t i = 0; i < tp; ++i) {
          device.at.tp_index = i;
          auto part = input(slice(logits, rows, vocabulary, local, i));
          auto fresh = output(rows * local);
          Buffer &dlogits = alias ? *part : *fresh;
          Buffer loss(GRT_F64, 1);
          loss.poison();
          device.run(GRT_KERNEL_CROSS_ENTROPY,
                     {*part, *labelBuffer, *stats, dlogits, loss},
                     {rows, local, vocabulary, tp > 1, tp});
          EXPECT_NEAR(loss.at(0), expected.loss,
                      (expected.loss + double(rows)) *
                          (dtype() == GRT_F64 ? 1e-13 : 2e-7));
          Values padded = slice(expected.dlogits, rows, vocabulary, local, i);
          for (double &value : padded)
            value = std::isnan(value) ? 0 : value;
          expectNear(dlogits.read(), padded, "dlogits", 1e-6, 1e-13, 0.1);
        }
    }
}

TEST_P(Loss, reference_gradient_agrees_with_differences) {
  Random random(2);
  Values logits = random.values(3 * 5), labels = {4, -1, 0};
  Answer answer = reference(3, 5, logits, labels, 0.25);
  for (int64_t i = 0; i < 15; ++i) {
    double h = 1e-5;
    Values above = logits, below = logits;
    above[i] += h;
    below[i] -= h;
    double slope = (reference(3, 5, above, labels, 0.25).loss -
                    reference(3, 5, below, labels, 0.25).loss) /
                   (2 * h) * 0.25;
    EXPECT_NEAR(answer.dlogits[i], slope, 1e-9);
  }
}

TEST_P(Loss, statistics_of_a_shard_that_is_all_padding) {
  // 9 columns over 8 shards of 2: shards 5, 6 and 7 hold padding only.
  Random random(3);
  Values logits = random.values(2 * 9), labels = {8, 0};
  auto labelBuffer = integers(labels);
  auto stats = gather(2, 9, 8, logits, *labelBuffer);
  Answer expected = reference(2, 9, logits, labels, 1);
  device.at.tp_index = 7;
  auto part = input(slice(logits, 2, 9, 2, 7));
  Buffer loss(GRT_F64, 1);
  device.run(GRT_KERNEL_CROSS_ENTROPY,
             {*part, *labelBuffer, *stats, *part, loss}, {2, 2, 9, 1, 8});
  EXPECT_NEAR(loss.at(0), expected.loss, 1e-5);
  expectSame(part->read(), Values(4, 0.0), "dlogits");
}

TEST_P(Loss, large_logits_do_not_overflow) {
  // Exact in every type; e^88 is the largest that f32 holds.
  Values logits = {8192, -8192, 8192 - 32, 0}, labels = {2};
  auto part = input(logits), labelBuffer = integers(labels);
  auto stats = sums(3);
  Buffer loss(GRT_F64, 1);
  device.run(GRT_KERNEL_SOFTMAX_STATS, {*part, *labelBuffer, *stats},
             {1, 4, 4, 0});
  device.run(GRT_KERNEL_CROSS_ENTROPY,
             {*part, *labelBuffer, *stats, *part, loss}, {1, 4, 4, 0, 1});
  EXPECT_NEAR(loss.at(0), 32 + std::log1p(std::exp(-32.0)), 1e-5);
}

TEST_P(Loss, one_shard_far_above_the_others_does_not_overflow) {
  // e^200 is beyond f32: every shard must subtract the maximum over all.
  // Integers up to 256 are exact in bf16.
  const int64_t rows = 2, vocabulary = 8, tp = 2, local = 4;
  const Values logits = {0,   1,   -2,  3, 201, 199, 200, 202,
                         200, 203, 201, 0, 1,   -1,  2,   0},
               labels = {1, 6};
  device.step.inverse_tokens = 0.5;
  auto labelBuffer = integers(labels);
  Answer expected = reference(rows, vocabulary, logits, labels, 0.5);
  auto stats = gather(rows, vocabulary, tp, logits, *labelBuffer);
  for (int64_t i = 0; i < tp; ++i) {
    device.at.tp_index = i;
    auto part = input(slice(logits, rows, vocabulary, local, i));
    auto dlogits = output(rows * local);
    Buffer loss(GRT_F64, 1);
    device.run(GRT_KERNEL_CROSS_ENTROPY,
               {*part, *labelBuffer, *stats, *dlogits, loss},
               {rows, local, vocabulary, 1, tp});
    EXPECT_NEAR(loss.at(0), expected.loss,
                expected.loss * (dtype() == GRT_F64 ? 1e-13 : 1e-6));
    expectNear(dlogits->read(),
               slice(expected.dlogits, rows, vocabulary, local, i), "dlogits",
               1e-6, 1e-13, 0.1);
  }
}

TEST_P(Loss, labels_outside_the_vocabulary_are_refused) {
  auto part = input(Values(8, 0.0)), labels = integers({0, 7});
  auto stats = sums(6);
  EXPECT_NE(device
                .refused(GRT_KERNEL_SOFTMAX_STATS, {*part, *labels, *stats},
                         {2, 4, 4, 0})
                .find("label 7"),
            std::string::npos);
}

TEST_P(Loss, generation_writes_the_largest_column) {
  Random random(4);
  int64_t rows = 6, vocabulary = 101;
  device.step.mode = GRT_MODE_GENERATE;
  for (int64_t tp : {1, 4, 8}) {
    int64_t local = (vocabulary + tp - 1) / tp;
    Values logits = random.values(rows * vocabulary), expected;
    logits[0 * vocabulary + 100] = 5;
    logits[1 * vocabulary + 0] = 5;
    logits[2 * vocabulary + 60] = logits[2 * vocabulary + 61] = 5; // first wins
    for (int64_t r = 0; r < rows; ++r) {
      int64_t best = 0;
      for (int64_t c = 1; c < vocabulary; ++c)
        if (logits[r * vocabulary + c] > logits[r * vocabulary + best])
          best = c;
      expected.push_back(double(best));
    }
    auto labels = integers(Values(rows, -1.0));
    auto stats = gather(rows, vocabulary, tp, logits, *labels);
    device.at.tp_index = tp - 1;
    auto part = input(slice(logits, rows, vocabulary, local, tp - 1));
    Buffer loss(GRT_F64, 1);
    device.run(GRT_KERNEL_CROSS_ENTROPY, {*part, *labels, *stats, *part, loss},
               {rows, local, vocabulary, tp > 1, tp});
    expectSame(labels->read(), expected, "labels");
  }
}

/// Statistics, labels, loss and gradient of one call are those of two, to the
/// last bit: of rows that stay in a device's shared memory whole and of longer
/// ones, that begin anywhere, in place and not.
TEST_P(Loss, one_call_has_the_bits_of_two) {
  Random random(6);
  for (grt_mode mode : {GRT_MODE_TRAIN, GRT_MODE_GENERATE})
    for (auto [rows, cols] :
         {std::pair<int64_t, int64_t>{1, 1}, {4, 64}, {9, 101}, {3, 50257}})
      for (bool alias : {true, false}) {
        // A row that is kept in part is tried once: emulation is slow.
        if (cols > 1000 && (mode != GRT_MODE_TRAIN || !alias))
          continue;
        device.step.mode = mode;
        device.step.inverse_tokens = 1.0 / 7;
        Values logits = random.values(rows * cols, 8), labels;
        for (int64_t r = 0; r < rows; ++r)
          labels.push_back(double(random.integer(0, cols)));
        if (rows > 2) {
          labels[1] = -1;
          labels[2] = double(cols - 1);
        }
        struct Run {
          std::unique_ptr<Buffer> logits, labels, stats, fresh;
          Buffer loss{GRT_F64, 1};
        };
        Run two{input(logits), integers(labels), sums(rows * 3),
                output(rows * cols)};
        Run one{input(logits), integers(labels), sums(rows * 3),
                output(rows * cols)};
        Buffer &expected = alias ? *two.logits : *two.fresh;
        device.run(GRT_KERNEL_SOFTMAX_STATS,
                   {*two.logits, *two.labels, *two.stats},
                   {rows, cols, cols, 0});
        device.run(GRT_KERNEL_CROSS_ENTROPY,
                   {*two.logits, *two.labels, *two.stats, expected, two.loss},
                   {rows, cols, cols, 0, 1});
        Buffer &found = alias ? *one.logits : *one.fresh;
        device.run(GRT_KERNEL_SOFTMAX_CROSS_ENTROPY,
                   {*one.logits, *one.labels, *one.stats, found, one.loss},
                   {rows, cols});
        expectSame(one.stats->read(), two.stats->read(), "stats");
        expectSame(one.labels->read(), two.labels->read(), "labels");
        if (mode == GRT_MODE_GENERATE) {
          expectSame(one.logits->read(), two.logits->read(), "logits");
          continue;
        }
        EXPECT_EQ(one.loss.at(0), two.loss.at(0));
        expectSame(found.read(), expected.read(), "dlogits");
        if (!alias)
          expectSame(one.logits->read(), two.logits->read(), "logits");
      }
}

/// Blocks of rows have their own of all labels, in one call and in two.
TEST_P(Loss, blocks_of_rows_recombine) {
  Random random(8);
  const int64_t rows = 12, cols = 37, ranks = 3, own = rows / ranks;
  device.step.inverse_tokens = 1.0 / 5;
  const Values logits = random.values(rows * cols, 4);
  Values labels;
  for (int64_t r = 0; r < rows; ++r)
    labels.push_back(r % 4 == 1 ? -1 : double(random.integer(0, cols)));
  auto all = integers(labels), whole = input(logits), stats = sums(rows * 3),
       expected = output(rows * cols);
  Buffer loss(GRT_F64, 1);
  device.run(GRT_KERNEL_SOFTMAX_CROSS_ENTROPY,
             {*whole, *all, *stats, *expected, loss}, {rows, cols});
  // Where a device adds a row up depends on where in memory it begins.
  auto expectRows = [&](const Values &found, const Values &wanted,
                        const char *what) {
    if (backend().device)
      expectNear(found, wanted, what);
    else
      expectSame(found, wanted, what);
  };
  device.at.block_count = ranks;
  for (int64_t balanced : {0, 1}) {
    double inOne = 0, inTwo = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      device.at.block_index = rank;
      auto part = [&](const Values &values) {
        return blockOfRows(values, rank, ranks, balanced != 0);
      };
      auto mine = input(part(logits)), own3 = sums(own * 3),
           found = output(own * cols);
      Buffer term(GRT_F64, 1);
      device.run(GRT_KERNEL_SOFTMAX_CROSS_ENTROPY,
                 {*mine, *all, *own3, *found, term},
                 {own, cols, rows, balanced});
      expectRows(found->read(), part(expected->read()), "dlogits");
      expectRows(own3->read(), part(stats->read()), "stats");
      inOne += term.at(0);
      auto again = input(part(logits));
      device.run(GRT_KERNEL_SOFTMAX_STATS, {*again, *all, *own3},
                 {own, cols, cols, 0, rows, balanced});
      device.run(GRT_KERNEL_CROSS_ENTROPY, {*again, *all, *own3, *found, term},
                 {own, cols, cols, 0, 1, rows, balanced});
      expectRows(found->read(), part(expected->read()), "dlogits of two calls");
      inTwo += term.at(0);
    }
    EXPECT_NEAR(inOne, loss.at(0), 1e-6 * loss.at(0));
    EXPECT_NEAR(inTwo, loss.at(0), 1e-6 * loss.at(0));
  }
}

/// Label smoothing and z-loss over shards: loss, sum of squares and gradient
/// are those of their formulas, the gradient that of differences; evaluation is
/// without smoothing, generation as without both.
TEST_P(Loss, regularized_agrees_for_every_number_of_shards) {
  Random random(7);
  const int64_t rows = 3, vocabulary = 37;
  const double smoothing = 0.1, zLoss = 0.05, inverse = 1.0 / 3;
  Values logits = random.values(rows * vocabulary, 8), labels = {36, -1, 7};
  auto terms = [&](const Values &at, double e, double &squares) {
    double loss = 0;
    squares = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double *row = at.data() + r * vocabulary;
      double sum = 0, total = 0;
      if (labels[r] < 0)
        continue;
      for (int64_t c = 0; c < vocabulary; ++c) {
        sum += std::exp(row[c]);
        total += row[c];
      }
      double lse = std::log(sum);
      loss += (1 - e) * (lse - row[int64_t(labels[r])]) +
              e * (lse - total / double(vocabulary));
      squares += lse * lse;
    }
    return loss;
  };
  double squares = 0;
  const double plain = terms(logits, 0, squares),
               smooth = terms(logits, smoothing, squares);
  Values gradient;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double h = 1e-4;
    double above = 0, below = 0;
    Values moved = logits;
    moved[i] += h;
    double slope = terms(moved, smoothing, above);
    moved[i] -= 2 * h;
    slope -= terms(moved, smoothing, below);
    gradient.push_back((slope + zLoss * (above - below)) / (2 * h) * inverse);
  }
  device.step.inverse_tokens = inverse;
  for (int64_t tp : {1, 4}) {
    const int64_t local = (vocabulary + tp - 1) / tp;
    const bool sharded = tp > 1;
    auto labelBuffer = integers(labels);
    Values all;
    device.at.tp_size = tp;
    for (grt_mode mode :
         {GRT_MODE_TRAIN, GRT_MODE_EVALUATE, GRT_MODE_GENERATE}) {
      device.step.mode = mode;
      all.clear();
      for (int64_t i = 0; i < tp; ++i) {
        device.at.tp_index = i;
        auto part = input(slice(logits, rows, vocabulary, local, i));
        auto own = sums(rows * 4);
        device.run(GRT_KERNEL_REGULARIZED_STATS, {*part, *labelBuffer, *own},
                   {rows, local, vocabulary, sharded});
        for (double value : own->read())
          all.push_back(value);
      }
      auto stats = sums(all);
      for (int64_t i = 0; i < tp; ++i) {
        device.at.tp_index = i;
        auto part = input(slice(logits, rows, vocabulary, local, i));
        auto given = integers(labels);
        Buffer loss(GRT_F64, 2);
        loss.poison();
        device.run(GRT_KERNEL_REGULARIZED_CROSS_ENTROPY,
                   {*part, *given, *stats, *part, loss},
                   {rows, local, vocabulary, sharded, tp}, {smoothing, zLoss});
        if (mode == GRT_MODE_GENERATE) {
          Values best;
          for (int64_t r = 0; r < rows; ++r)
            best.push_back(
                double(std::max_element(logits.begin() + r * vocabulary,
                                        logits.begin() + (r + 1) * vocabulary) -
                       (logits.begin() + r * vocabulary)));
          expectSame(given->read(), best, "labels");
          continue;
        }
        const double expected = mode == GRT_MODE_TRAIN ? smooth : plain;
        const double bound = dtype() == GRT_F64 ? 1e-12 : 2e-6;
        EXPECT_NEAR(loss.at(0), expected, expected * bound);
        EXPECT_NEAR(loss.at(1), squares, squares * bound);
        if (mode == GRT_MODE_EVALUATE)
          continue;
        Values padded = slice(gradient, rows, vocabulary, local, i);
        for (double &value : padded)
          value = std::isnan(value) ? 0 : value;
        expectNear(part->read(), padded, "dlogits", 2e-6, 1e-8, 0.1);
      }
    }
  }
}

TEST_P(Loss, regularized_refuses_bad_factors) {
  auto part = input(Values(8, 0.0)), labels = integers({0, 1});
  auto stats = sums(8);
  Buffer loss(GRT_F64, 2);
  for (auto [smoothing, zLoss] :
       {std::pair<double, double>{1, 0}, {-0.1, 0}, {0, -1}, {0, NAN}})
    EXPECT_NE(device
                  .refused(GRT_KERNEL_REGULARIZED_CROSS_ENTROPY,
                           {*part, *labels, *stats, *part, loss},
                           {2, 4, 4, 0, 1}, {smoothing, zLoss})
                  .find("label smoothing in [0, 1)"),
              std::string::npos);
}

TEST_P(Loss, one_call_refuses_labels_outside_the_vocabulary) {
  auto part = input(Values(8, 0.0)), labels = integers({0, 7});
  auto stats = sums(6);
  Buffer loss(GRT_F64, 1);
  EXPECT_NE(device
                .refused(GRT_KERNEL_SOFTMAX_CROSS_ENTROPY,
                         {*part, *labels, *stats, *part, loss}, {2, 4})
                .find("label 7"),
            std::string::npos);
}

GRT_KERNEL_SUITE(Loss);

} // namespace
} // namespace grt::conformance
