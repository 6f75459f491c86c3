//===- attention_test.cpp - Attention and its gradient --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include "grt/philox.h"

#include <cmath>
#include <limits>

namespace grt::conformance {
namespace {

/// A problem whose q, k and v are columns of packed rows, as a fused projection
/// leaves them.
struct Problem {
  int64_t samples, tq, tk, heads, kvHeads, headDim;
  bool causal;
  double dropout = 0;
  int64_t opIndex = 3;
  /// Rows begin at multiples of this many elements; 1: just behind an odd pad.
  int64_t alignment = 1;
  int64_t window = 0;
  /// A mask by sample and key; empty: every key may be seen.
  Values mask = {};
  bool biased = false;
  /// The first position of its document, by sample and query; empty: none.
  Values starts = {};
  double cap = 0, distance = 0;

  bool shaped() const { return cap != 0 || distance != 0; }
  /// Returns the slope of head `head` of `all`: slopes are members of the
  /// geometric sequence of the largest power of two, and behind them those of
  /// the next one that lie between.
  static double slope(int64_t head, int64_t all) {
    int64_t n = 1;
    while (2 * n <= all)
      n *= 2;
    double place = head < n ? double(head + 1) : double(head - n) + 0.5;
    return std::pow(2, -8 * place / double(n));
  }

  int64_t distances() const { return tq + tk - 1; }
  bool hides(int64_t sample, int64_t key) const {
    return !mask.empty() && mask[size_t(sample * tk + key)] == 0;
  }
  int64_t aligned(int64_t width) const {
    return (width + alignment - 1) / alignment * alignment;
  }
  int64_t qStride() const { return aligned(qWidth() + 3); }
  int64_t kvStride() const { return aligned(2 * kvWidth() + 5); }
  int64_t qWidth() const { return heads * headDim; }
  int64_t kvWidth() const { return kvHeads * headDim; }
  double scale() const { return 1 / std::sqrt(double(headDim)); }
};

/// Plain matrices: q [samples, tq, heads, headDim] and so on.
struct Operands {
  Values q, k, v, dout;
  Values bias = {}; ///< [samples, heads of all ranks, distances]
};
struct Results {
  Values o, lse, dq, dk, dv, dbias = {};
};

class Attention : public KernelTest {
protected:
  void blocksOfQueries(int64_t length, int64_t heads, int64_t kvHeads,
                       int64_t dim);
  void stepsOfARing(int64_t length, int64_t heads, int64_t kvHeads,
                    int64_t dim);

  /// 1 / (1 - p) or 0, from the definition in grt/philox.h.
  double factor(const Problem &p, int64_t s, int64_t h, int64_t i,
                int64_t j) const {
    if (p.dropout == 0 || device.step.mode != GRT_MODE_TRAIN)
      return 1;
    uint64_t sample = uint64_t(device.at.first_sample + s);
    uint64_t heads = uint64_t(device.at.tp_size * p.heads);
    uint64_t head = uint64_t(device.at.tp_index * p.heads + h);
    PhiloxKey key =
        dropoutKey(device.step.seed, device.step.step, device.at.layer);
    PhiloxBlock block = dropoutBlock(
        key, (sample * heads + head) * uint64_t(p.tq) + uint64_t(i),
        uint32_t(j / 4), uint32_t(p.opIndex));
    return block.lane[j % 4] >= dropoutThreshold(p.dropout)
               ? 1 / (1 - p.dropout)
               : 0;
  }

  /// The offset of a head's row of biases.
  int64_t biasPlace(const Problem &p, int64_t s, int64_t h) const {
    return ((s * device.at.tp_size + device.at.tp_index) * p.heads + h) *
           p.distances();
  }
  int64_t biases(const Problem &p) const {
    return p.biased ? p.samples * device.at.tp_size * p.heads * p.distances()
                    : 0;
  }

  Results reference(const Problem &p, const Operands &x) const {
    Results r;
    r.o.assign(p.samples * p.tq * p.qWidth(), 0);
    r.dq = r.o;
    r.dk.assign(p.samples * p.tk * p.kvWidth(), 0);
    r.dv = r.dk;
    r.dbias.assign(x.bias.size(), 0);
    for (int64_t s = 0; s < p.samples; ++s)
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t i = 0; i < p.tq; ++i) {
          // A window reaches to both sides if attention is not causal.
          const int64_t own = i + p.tk - p.tq;
          int64_t limit = p.tk;
          if (p.causal || p.window)
            limit =
                std::clamp<int64_t>(own + (p.causal ? 1 : p.window), 0, p.tk);
          int64_t first =
              p.window ? std::clamp<int64_t>(own - p.window + 1, 0, limit) : 0;
          if (!p.starts.empty())
            first = std::max(first, int64_t(p.starts[size_t(s * p.tq + i)]));
          int64_t query = ((s * p.tq + i) * p.heads + h) * p.headDim;
          auto keyAt = [&](int64_t j) {
            int64_t kvHead = h / (p.heads / p.kvHeads);
            return ((s * p.tk + j) * p.kvHeads + kvHead) * p.headDim;
          };
          int64_t bias = biasPlace(p, s, h) - i + p.tq - 1;
          Values score, probability, through;
          const double slope =
              p.distance * Problem::slope(device.at.tp_index * p.heads + h,
                                          device.at.tp_size * p.heads);
          double largest = -std::numeric_limits<double>::infinity(), sum = 0;
          for (int64_t j = 0; j < limit; ++j) {
            double dot = 0;
            for (int64_t d = 0; d < p.headDim; ++d)
              dot += x.q[query + d] * x.k[keyAt(j) + d];
            double value = dot * p.scale();
            const double capped = p.cap > 0 ? std::tanh(value / p.cap) : 0;
            through.push_back(1 - capped * capped);
            if (p.cap > 0)
              value = p.cap * capped;
            value += slope * double(j - i - (p.tk - p.tq));
            score.push_back(j < first || p.hides(s, j)
                                ? -std::numeric_limits<double>::infinity()
                                : value + (p.biased ? x.bias[bias + j] : 0));
            largest = std::max(largest, score[j]);
          }
          for (double value : score)
            sum += std::exp(value - largest);
          r.lse.push_back(largest + std::log(sum));
          if (largest == -std::numeric_limits<double>::infinity()) {
            r.lse.back() = largest;
            continue;
          }
          double delta = 0;
          Values gradient;
          for (int64_t j = 0; j < limit; ++j) {
            probability.push_back(std::exp(score[j] - r.lse.back()));
            double kept = factor(p, s, h, i, j), dot = 0;
            for (int64_t d = 0; d < p.headDim; ++d) {
              r.o[query + d] += kept * probability[j] * x.v[keyAt(j) + d];
              dot += x.dout[query + d] * x.v[keyAt(j) + d];
              r.dv[keyAt(j) + d] += kept * probability[j] * x.dout[query + d];
            }
            gradient.push_back(kept * dot);
            delta += probability[j] * kept * dot;
          }
          for (int64_t j = 0; j < limit; ++j) {
            double ds = probability[j] * (gradient[j] - delta);
            if (p.biased)
              r.dbias[bias + j] += ds;
            ds *= p.scale() * through[size_t(j)];
            for (int64_t d = 0; d < p.headDim; ++d) {
              r.dq[query + d] += ds * x.k[keyAt(j) + d];
              r.dk[keyAt(j) + d] += ds * x.q[query + d];
            }
          }
        }
    // lse is [samples, heads, tq], as it was appended.
    return r;
  }

  /// [rows, width] placed at a column of rows of `stride`; the rest is NaN.
  static void place(Values &packed, int64_t stride, int64_t column,
                    const Values &part, int64_t width) {
    for (int64_t i = 0; i < int64_t(part.size()); ++i)
      packed[i / width * stride + column + i % width] = part[i];
  }
  static Values cut(const Values &packed, int64_t stride, int64_t column,
                    int64_t rows, int64_t width) {
    Values part;
    for (int64_t i = 0; i < rows * width; ++i)
      part.push_back(packed[i / width * stride + column + i % width]);
    return part;
  }

  /// Runs forward and backward on packed buffers. q, k and v share rows if
  /// tq == tk; the pad columns must stay as they are.
  Results run(const Problem &p, const Operands &x) {
    int64_t qStride = p.qStride(), kvStride = p.kvStride();
    int64_t qPad = qStride - p.qWidth(), kvPad = kvStride - 2 * p.kvWidth();
    int64_t qRows = p.samples * p.tq, kvRows = p.samples * p.tk;
    Values qPacked(qRows * qStride, NAN), kvPacked(kvRows * kvStride, NAN);
    place(qPacked, qStride, 0, x.q, p.qWidth());
    place(kvPacked, kvStride, 0, x.k, p.kvWidth());
    place(kvPacked, kvStride, p.kvWidth(), x.v, p.kvWidth());
    auto q = input(qPacked), kv = input(kvPacked);
    auto o = output(qRows * p.qWidth()), dout = input(x.dout);
    auto lse = sums(qRows * p.heads);
    auto dq = input(Values(qRows * qStride, 77.0));
    auto dkv = input(Values(kvRows * kvStride, 77.0));
    Integers ints = {p.samples, p.tq,      p.tk,      p.heads,
                     p.kvHeads, p.headDim, qStride,   kvStride,
                     kvStride,  p.causal,  p.opIndex, p.window};
    auto scratch = [&](bool backward) {
      uint32_t element = dtype() == GRT_F64 ? 8 : dtype() == GRT_BF16 ? 2 : 4;
      uint64_t bytes =
          attentionScratchBytes(p.samples, p.tq, p.tk, p.heads, p.kvHeads,
                                p.headDim, element, backward, p.biased);
      return sums(int64_t(bytes / (dtype() == GRT_F64 ? 8 : 4)));
    };
    auto forwardScratch = scratch(false), backwardScratch = scratch(true);
    std::vector<Argument> forward = {*q, *kv,  {*kv, p.kvWidth()},
                                     *o, *lse, *forwardScratch};
    std::vector<Argument> backward = {*q,
                                      *kv,
                                      {*kv, p.kvWidth()},
                                      *o,
                                      *lse,
                                      *dout,
                                      *dq,
                                      *dkv,
                                      {*dkv, p.kvWidth()},
                                      *backwardScratch};
    auto bias = input(x.bias), dbias = output(biases(p));
    if (p.biased) {
      ints.push_back(device.at.tp_size * p.heads);
      forward.push_back(*bias);
      backward.push_back(*bias);
      backward.push_back(*dbias);
    }
    auto mask = integers(p.mask), starts = integers(p.starts);
    ints.push_back(!p.mask.empty());
    if (!p.mask.empty()) {
      forward.push_back(*mask);
      backward.push_back(*mask);
    }
    ints.push_back(!p.starts.empty());
    if (!p.starts.empty()) {
      forward.push_back(*starts);
      backward.push_back(*starts);
    }
    Values reals = {p.scale(), p.dropout};
    if (p.shaped())
      reals.insert(reals.end(), {p.cap, p.distance});
    device.run(p.shaped() ? GRT_KERNEL_SHAPED_ATTENTION
               : p.biased ? GRT_KERNEL_BIASED_ATTENTION
                          : GRT_KERNEL_ATTENTION,
               forward, ints, reals);
    device.run(p.shaped() ? GRT_KERNEL_SHAPED_ATTENTION_GRAD
               : p.biased ? GRT_KERNEL_BIASED_ATTENTION_GRAD
                          : GRT_KERNEL_ATTENTION_GRAD,
               backward, ints, reals);
    expectSame(cut(dq->read(), qStride, p.qWidth(), qRows, qPad),
               Values(qRows * qPad, 77.0), "pad of dq");
    expectSame(cut(dkv->read(), kvStride, 2 * p.kvWidth(), kvRows, kvPad),
               Values(kvRows * kvPad, 77.0), "pad of dk and dv");
    return {o->read(),
            lse->read(),
            cut(dq->read(), qStride, 0, qRows, p.qWidth()),
            cut(dkv->read(), kvStride, 0, kvRows, p.kvWidth()),
            cut(dkv->read(), kvStride, p.kvWidth(), kvRows, p.kvWidth()),
            dbias->read()};
  }

  static Operands random(const Problem &p, uint64_t seed, double size = 1) {
    Random random(seed);
    return {random.values(p.samples * p.tq * p.qWidth(), size),
            random.values(p.samples * p.tk * p.kvWidth(), size),
            random.values(p.samples * p.tk * p.kvWidth()),
            random.values(p.samples * p.tq * p.qWidth())};
  }

  void check(const Problem &p, uint64_t seed, double size = 1) {
    SCOPED_TRACE(
        "samples " + std::to_string(p.samples) + " tq " + std::to_string(p.tq) +
        " tk " + std::to_string(p.tk) + " heads " + std::to_string(p.heads) +
        "/" + std::to_string(p.kvHeads) + " dim " + std::to_string(p.headDim) +
        (p.causal ? " causal" : "") + (p.biased ? " biased" : "") + " window " +
        std::to_string(p.window) + " dropout " + std::to_string(p.dropout) +
        " cap " + std::to_string(p.cap) + " distance " +
        std::to_string(p.distance));
    Operands x = random(p, seed, size);
    x.bias = Random(seed + 1000).values(biases(p), 2);
    Results expected = reference(p, x), found = run(p, x);
    double f32 = 5e-6 * size * size;
    // Backward starts from the rounded o.
    double rough = dtype() == GRT_BF16 ? 4e-3 * size : f32;
    double floor = dtype() == GRT_BF16 ? 0.5 : 0.05;
    // The products of tensor cores take weights rounded to bf16. Their
    // exponentials and sums are f32.
    bool tensorCores = dtype() == GRT_BF16 && backend().device &&
                       p.alignment > 1 && !p.shaped();
    double weighed = tensorCores ? rough : f32;
    double weighedFloor = tensorCores ? floor : 0.05;
    expectNear(found.o, expected.o, "o", weighed, 1e-13, weighedFloor);
    expectNear(found.lse, expected.lse, "lse", f32, 1e-13, 0.05);
    expectNear(found.dq, expected.dq, "dq", rough, 1e-13, floor);
    expectNear(found.dk, expected.dk, "dk", rough, 1e-13, floor);
    expectNear(found.dv, expected.dv, "dv", weighed, 1e-13, weighedFloor);
    expectNear(found.dbias, expected.dbias, "dbias", rough, 1e-13, floor);
  }
};

TEST_P(Attention, agrees_with_naive_loops) {
  uint64_t seed = 1;
  for (bool causal : {false, true})
    for (double dropout : {0.0, 0.3}) {
      check({1, 1, 1, 1, 1, 1, causal, dropout}, ++seed);
      check({2, 5, 5, 3, 3, 7, causal, dropout}, ++seed);
      check({1, 64, 64, 2, 2, 64, causal, dropout}, ++seed);
      check({2, 65, 65, 1, 1, 20, causal, dropout}, ++seed);
      check({1, 131, 131, 2, 2, 33, causal, dropout}, ++seed);
      check({1, 200, 200, 1, 1, 80, causal, dropout}, ++seed);
    }
}

TEST_P(Attention, rows_that_begin_at_whole_packs) {
  uint64_t seed = 101;
  for (double dropout : {0.0, 0.3}) {
    check({2, 64, 64, 2, 2, 64, true, dropout, 3, 8}, ++seed);
    check({1, 70, 131, 4, 2, 64, true, dropout, 3, 8}, ++seed);
    check({1, 97, 40, 1, 1, 80, false, dropout, 3, 8}, ++seed);
    check({1, 130, 130, 2, 1, 128, true, dropout, 3, 8}, ++seed);
    check({2, 128, 128, 2, 2, 64, true, dropout, 3, 8}, ++seed);
  }
}

TEST_P(Attention, windows_leave_out_what_lies_behind) {
  uint64_t seed = 201;
  for (double dropout : {0.0, 0.2}) {
    check({1, 9, 9, 2, 1, 7, true, dropout, 3, 1, 1}, ++seed);
    check({2, 37, 37, 6, 2, 16, true, dropout, 3, 1, 5}, ++seed);
    check({1, 200, 200, 2, 2, 20, true, dropout, 3, 1, 70}, ++seed);
    check({1, 300, 300, 1, 1, 33, true, dropout, 3, 1, 64}, ++seed);
    check({1, 70, 190, 2, 1, 12, true, dropout, 3, 1, 33}, ++seed);
    check({1, 190, 70, 1, 1, 12, true, dropout, 3, 1, 33}, ++seed);
    check({1, 50, 50, 1, 1, 12, true, dropout, 3, 1, 1000}, ++seed);
    // Rows at whole packs: what takes tensor cores where there are any.
    check({1, 200, 200, 2, 1, 64, true, dropout, 3, 8, 70}, ++seed);
    check({1, 150, 260, 2, 2, 128, true, dropout, 3, 8, 33}, ++seed);
  }
}

TEST_P(Attention, windows_reach_to_both_sides) {
  if (backend().device)
    GTEST_SKIP() << "the CPU backend alone has them";
  uint64_t seed = 251;
  for (double dropout : {0.0, 0.2}) {
    // A query's gradient with one key is what rounding leaves of 0.
    check({1, 9, 9, 2, 1, 7, false, dropout, 3, 1, 2}, ++seed);
    check({2, 37, 37, 6, 2, 16, false, dropout, 3, 1, 5}, ++seed);
    check({1, 140, 140, 1, 1, 12, false, dropout, 3, 1, 40}, ++seed);
    check({1, 300, 300, 1, 1, 33, false, dropout, 3, 1, 64}, ++seed);
    check({1, 70, 190, 2, 1, 12, false, dropout, 3, 1, 33}, ++seed);
    check({1, 190, 70, 1, 1, 12, false, dropout, 3, 1, 33}, ++seed);
    check({1, 50, 50, 1, 1, 12, false, dropout, 3, 1, 1000}, ++seed);
  }
}

TEST_P(Attention, caps_and_slopes_change_scores) {
  uint64_t seed = 401;
  auto shaped = [&](Problem p, double cap, double distance, double size = 1) {
    p.cap = cap;
    p.distance = distance;
    check(p, ++seed, size);
  };
  for (double dropout : {0.0, 0.3}) {
    // Caps that scores reach, and those that they hardly notice.
    shaped({2, 5, 5, 3, 3, 7, true, dropout}, 0.5, 0);
    shaped({1, 70, 70, 2, 1, 20, true, dropout}, 2, 0, 3);
    shaped({1, 67, 90, 1, 1, 64, true, dropout, 3, 8}, 50, 0, 2);
    shaped({1, 97, 40, 1, 1, 8, false, dropout}, 1, 0);
    // Heads that are no power of two, and more keys than queries.
    shaped({2, 37, 37, 3, 3, 8, true, dropout}, 0, 1);
    shaped({1, 33, 33, 7, 7, 4, true, dropout}, 0, 0.25);
    shaped({1, 70, 130, 2, 1, 12, true, dropout, 3, 1, 33}, 3, 0.5);
  }
  // Slopes are those of the heads of all ranks.
  device.at.tp_size = 3;
  device.at.tp_index = 2;
  shaped({1, 33, 33, 2, 2, 8, true}, 0, 1);
}

TEST_P(Attention, refuses_caps_that_are_none) {
  Problem p = {1, 4, 4, 1, 1, 4, true};
  auto buffer = input(Values(64, 0.0));
  auto lse = sums(4), scratch = sums(1 << 16);
  for (auto [cap, distance] :
       {std::pair<double, double>{-1, 0}, {NAN, 0}, {1, INFINITY}})
    EXPECT_NE(device
                  .refused(GRT_KERNEL_SHAPED_ATTENTION,
                           {*buffer, *buffer, *buffer, *buffer, *lse, *scratch},
                           {1, 4, 4, 1, 1, 4, 4, 4, 4, 1, 0, 0, 0, 0},
                           {p.scale(), 0, cap, distance})
                  .find("scores have a cap of 0 or more"),
              std::string::npos)
        << cap << " " << distance;
}

TEST_P(Attention, masks_take_keys_from_all_queries_of_a_sample) {
  Random random(301);
  uint64_t seed = 301;
  // Holes anywhere, and a sample's own number of keys in front of its padding.
  auto holes = [&](Problem p) {
    for (int64_t i = 0; i < p.samples * p.tk; ++i)
      p.mask.push_back(double(random.integer(0, 3)));
    check(p, ++seed);
  };
  auto padding = [&](Problem p) {
    for (int64_t s = 0; s < p.samples; ++s) {
      int64_t length = random.integer(1, p.tk + 1);
      for (int64_t j = 0; j < p.tk; ++j)
        p.mask.push_back(j < length);
    }
    check(p, ++seed);
  };
  for (double dropout : {0.0, 0.2}) {
    holes({3, 9, 9, 2, 1, 7, false, dropout});
    holes({2, 70, 131, 2, 2, 16, false, dropout});
    holes({1, 200, 200, 1, 1, 20, true, dropout, 3, 1, 70});
    padding({3, 140, 140, 2, 2, 12, false, dropout});
    padding({2, 33, 33, 4, 2, 16, true, dropout});
    // Rows at whole packs: what takes tensor cores where there are any.
    holes({2, 130, 130, 2, 1, 64, false, dropout, 3, 8});
    padding({2, 70, 200, 2, 2, 128, false, dropout, 3, 8});
  }
}

/// Documents of few and of many tiles, of one token, and samples that are one.
TEST_P(Attention, queries_see_their_own_document) {
  Random random(351);
  uint64_t seed = 351;
  auto documents = [&](Problem p, int64_t longest) {
    for (int64_t s = 0; s < p.samples; ++s)
      for (int64_t i = 0, start = 0, left = 0; i < p.tq; ++i, --left) {
        if (left == 0) {
          start = i;
          left = s == 0 ? random.integer(1, longest + 1) : longest;
        }
        p.starts.push_back(double(start));
      }
    check(p, ++seed);
  };
  documents({3, 9, 9, 2, 1, 7, true, 0.2}, 4);
  documents({2, 150, 150, 2, 1, 16, true}, 110);
  documents({1, 140, 140, 1, 1, 12, true, 0.2, 3, 1, 30}, 70);
  // Rows at whole packs, as tensor cores take them elsewhere.
  documents({1, 130, 130, 1, 1, 64, true, 0, 3, 8}, 60);
  Problem biased = {1, 100, 100, 1, 1, 12, true};
  biased.biased = true;
  documents(biased, 50);
  // Padding inside a document beside them.
  Problem masked = {2, 40, 40, 1, 1, 12, true};
  for (int64_t i = 0; i < 2 * 40; ++i)
    masked.mask.push_back(i % 40 < 33);
  documents(masked, 20);
}

TEST_P(Attention, documents_have_causal_attention) {
  auto q = input(Values(64, 0.5)), o = output(64);
  auto lse = sums(8), scratch = sums(65536);
  auto starts = integers(Values(8, 0.0));
  EXPECT_NE(device
                .refused(GRT_KERNEL_ATTENTION,
                         {*q, *q, *q, *o, *lse, *scratch, *starts},
                         {1, 8, 8, 1, 1, 8, 8, 8, 8, 0, 0, 0, 0, 1}, {1.0, 0.0})
                .find("documents have causal attention, of as many keys as "
                      "queries, found 8 and 8"),
            std::string::npos);
}

TEST_P(Attention, samples_whose_keys_are_all_masked_give_zeros) {
  for (int64_t alignment : {1, 8}) {
    Problem p = {2, 70, 70, 2, 2, 64, false, 0, 3, alignment};
    for (int64_t i = 0; i < 2 * 70; ++i)
      p.mask.push_back(i >= 70);
    Operands x = random(p, 331);
    Results found = run(p, x);
    for (const Values *part : {&found.o, &found.dq, &found.dk, &found.dv})
      for (int64_t i = 0; i < 70 * p.qWidth(); ++i)
        ASSERT_EQ((*part)[i], 0);
    check(p, 332);
  }
}

TEST_P(Attention, a_mask_that_is_said_to_be_there_must_be) {
  auto q = input(Values(64, 0.5)), o = output(64);
  auto lse = sums(8), scratch = sums(65536);
  EXPECT_NE(device
                .refused(GRT_KERNEL_ATTENTION, {*q, *q, *q, *o, *lse, *scratch},
                         {1, 8, 8, 1, 1, 8, 8, 8, 8, 0, 0, 0, 1}, {1.0, 0.0})
                .find("takes at least 7 buffers, found 6"),
            std::string::npos);
}

TEST_P(Attention, biases_are_added_by_head_and_distance) {
  uint64_t seed = 401;
  auto biased = [&](Problem p) {
    p.biased = true;
    check(p, ++seed);
  };
  for (int64_t ranks : {1, 2}) {
    device.at.tp_size = ranks;
    device.at.tp_index = ranks - 1;
    for (bool causal : {false, true}) {
      biased({1, 1, 1, 1, 1, 1, causal});
      biased({3, 9, 9, 2, 2, 7, causal, 0.3});
      biased({2, 65, 65, 3, 1, 20, causal});
      biased({1, 131, 131, 2, 2, 33, causal, 0.2});
      biased({2, 140, 140, 2, 2, 64, causal, 0, 3, 8});
    }
    biased({2, 3, 90, 2, 2, 16, false, 0.1});
    biased({1, 100, 30, 4, 2, 80, false});
    biased({1, 200, 200, 1, 1, 20, true, 0, 3, 1, 70});
    Problem padded = {2, 70, 70, 2, 2, 128, false, 0.2};
    for (int64_t i = 0; i < 2 * 70; ++i)
      padded.mask.push_back(i < 70 || i < 70 + 13);
    biased(padded);
  }
}

TEST_P(Attention, a_bias_of_other_heads_is_refused) {
  auto q = input(Values(64, 0.5)), o = output(64),
       bias = input(Values(45, 1.0));
  auto lse = sums(8), scratch = sums(65536);
  device.at.tp_size = 2;
  EXPECT_NE(device
                .refused(GRT_KERNEL_BIASED_ATTENTION,
                         {*q, *q, *q, *o, *lse, *scratch, *bias},
                         {1, 8, 8, 1, 1, 8, 8, 8, 8, 0, 0, 0, 3}, {1.0, 0.0})
                .find("a bias of attention is of all 2 heads, found 3"),
            std::string::npos);
}

TEST_P(Attention, grouped_and_multi_query_heads) {
  check({2, 37, 37, 6, 2, 16, true, 0.2}, 31);
  check({1, 70, 70, 4, 1, 12, false}, 32);
}

TEST_P(Attention, queries_and_keys_of_different_length) {
  check({2, 3, 90, 2, 2, 16, true, 0.1}, 41);
  check({1, 100, 30, 2, 2, 16, false}, 42);
  check({1, 1, 129, 2, 1, 16, true}, 43);
}

TEST_P(Attention, large_scores_do_not_overflow) {
  check({1, 80, 80, 1, 1, 64, true}, 51, 6);
}

TEST_P(Attention, queries_that_see_no_key_give_zeros) {
  Problem p = {1, 9, 5, 1, 1, 8, true};
  Operands x = random(p, 61);
  Results found = run(p, x);
  for (int64_t i = 0; i < 4 * 8; ++i) {
    EXPECT_EQ(found.o[i], 0);
    EXPECT_EQ(found.dq[i], 0);
  }
  Results expected = reference(p, x);
  expectNear(found.dk, expected.dk, "dk", dtype() == GRT_BF16 ? 4e-3 : 5e-6);
  expectNear(found.dv, expected.dv, "dv", 5e-6);
}

TEST_P(Attention, reference_gradient_agrees_with_differences) {
  Problem p = {1, 4, 4, 2, 1, 3, true, 0.4};
  p.biased = true;
  Operands x = random(p, 71);
  x.bias = Random(72).values(biases(p));
  Results r = reference(p, x);
  auto objective = [&] {
    Results moved = reference(p, x);
    double sum = 0;
    for (size_t i = 0; i < moved.o.size(); ++i)
      sum += moved.o[i] * x.dout[i];
    return sum;
  };
  auto compare = [&](Values &argument, const Values &gradient) {
    for (size_t i = 0; i < argument.size(); ++i) {
      double kept = argument[i], h = 1e-4;
      argument[i] = kept + h;
      double above = objective();
      argument[i] = kept - h;
      double below = objective();
      argument[i] = kept;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-6);
    }
  };
  compare(x.q, r.dq);
  compare(x.k, r.dk);
  compare(x.v, r.dv);
  compare(x.bias, r.dbias);
}

TEST_P(Attention, samples_and_heads_may_be_split) {
  // All of 2 samples and 4 heads at once, and each (sample, head pair) apart
  // with the coordinates of its rank.
  for (int64_t alignment : {1, 8}) {
    int64_t dim = alignment > 1 ? 64 : 16;
    Problem whole = {2, 70, 70, 4, 4, dim, true, 0.25, 3, alignment};
    device.at.tp_size = 1;
    device.at.tp_index = 0;
    Operands x = random(whole, 81);
    device.at.first_sample = 6;
    device.at.layer = 5;
    Results all = run(whole, x);
    for (int64_t s = 0; s < 2; ++s)
      for (int64_t pair = 0; pair < 2; ++pair) {
        Problem part = whole;
        part.samples = 1;
        part.heads = part.kvHeads = 2;
        auto slice = [&](const Values &values) {
          Values rows(values.begin() + s * 70 * 4 * dim,
                      values.begin() + (s + 1) * 70 * 4 * dim);
          return cut(rows, 4 * dim, pair * 2 * dim, 70, 2 * dim);
        };
        device.at.first_sample = 6 + s;
        device.at.tp_size = 2;
        device.at.tp_index = pair;
        Results found =
            run(part, {slice(x.q), slice(x.k), slice(x.v), slice(x.dout)});
        expectSame(found.o, slice(all.o), "o");
        expectSame(found.dq, slice(all.dq), "dq");
        expectSame(found.dk, slice(all.dk), "dk");
        expectSame(found.dv, slice(all.dv), "dv");
      }
  }
}

/// Queries in blocks that begin and end inside samples, also in two pieces of
/// one sample, beside all keys: what blocks give is that of whole samples,
/// gradients of keys in terms.
void Attention::blocksOfQueries(int64_t length, int64_t heads, int64_t kvHeads,
                                int64_t dim) {
  const int64_t samples = 2;
  const int64_t ranks = 3, own = samples * length / ranks;
  const int64_t width = heads * dim, kvWidth = kvHeads * dim;
  const int64_t rows = samples * length;
  Random random(61);
  const Values qs = random.values(rows * width);
  const Values ks = random.values(rows * kvWidth);
  const Values vs = random.values(rows * kvWidth);
  const Values douts = random.values(rows * width);
  const Values reals = {0.4, 0.25};
  device.at.first_sample = 3;
  auto k = input(ks), v = input(vs);
  const int64_t bytes = dtype() == GRT_F64 ? 8 : 4;
  const uint32_t element = dtype() == GRT_BF16 ? 2 : uint32_t(bytes);
  auto scratch =
      sums(int64_t(std::max(attentionScratchBytes(samples, length, rows, heads,
                                                  kvHeads, dim, element,
                                                  /*backward=*/false, false),
                            attentionScratchBytes(samples, length, rows, heads,
                                                  kvHeads, dim, element,
                                                  /*backward=*/true, false))) /
           bytes);
  for (auto [window, balanced] :
       {std::pair<int64_t, int64_t>{0, 0}, {4, 0}, {0, 1}, {4, 1}}) {
    Integers ints = {samples, length,  length,  heads, kvHeads, dim,
                     width,   kvWidth, kvWidth, 1,     3,       window};
    device.at.block_index = 0;
    device.at.block_count = 1;
    auto q = input(qs), o = output(rows * width), lse = sums(rows * heads),
         dout = input(douts), dq = output(rows * width),
         dk = output(rows * kvWidth), dv = output(rows * kvWidth);
    device.run(GRT_KERNEL_ATTENTION, {*q, *k, *v, *o, *lse, *scratch}, ints,
               reals);
    device.run(GRT_KERNEL_ATTENTION_GRAD,
               {*q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv, *scratch}, ints,
               reals);
    ints = {1,       own, rows, heads,  kvHeads, dim, width,  kvWidth,
            kvWidth, 1,   3,    window, 0,       0,   length, balanced};
    device.at.block_count = ranks;
    Values dks(size_t(rows * kvWidth)), dvs = dks;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      device.at.block_index = rank;
      auto part = [&](const Values &values) {
        return blockOfRows(values, rank, ranks, balanced != 0);
      };
      auto mine = input(part(qs)), result = output(own * width),
           stats = sums(own * heads), dmine = input(part(douts)),
           dresult = output(own * width), dkTerm = output(rows * kvWidth),
           dvTerm = output(rows * kvWidth);
      const std::vector<Argument> forward = {*mine,   *k,     *v,
                                             *result, *stats, *scratch};
      device.run(GRT_KERNEL_ATTENTION, forward, ints, reals);
      device.run(GRT_KERNEL_ATTENTION_GRAD,
                 {*mine, *k, *v, *result, *stats, *dmine, *dresult, *dkTerm,
                  *dvTerm, *scratch},
                 ints, reals);
      expectNear(result->read(), part(o->read()), "o", 1e-6, 1e-13, 0.05);
      expectNear(dresult->read(), part(dq->read()), "dq",
                 dtype() == GRT_BF16 ? 1e-2 : 1e-5, 1e-13, 0.05);
      const Values dkRead = dkTerm->read(), dvRead = dvTerm->read();
      for (size_t i = 0; i < dks.size(); ++i) {
        dks[i] += dkRead[i];
        dvs[i] += dvRead[i];
      }
    }
    const double rough = dtype() == GRT_BF16 ? 2e-2 : 1e-5;
    expectNear(dks, dk->read(), "dk", rough, 1e-13, 0.5);
    expectNear(dvs, dv->read(), "dv", rough, 1e-13, 0.5);
  }
}

TEST_P(Attention, blocks_of_queries_recombine) {
  blocksOfQueries(/*length=*/9, /*heads=*/4, /*kvHeads=*/2, /*dim=*/5);
}

/// Heads that kernels for tensor cores take.
TEST_P(Attention, blocks_of_queries_of_wide_heads_recombine) {
  if (dtype() != GRT_BF16)
    GTEST_SKIP() << "tensor cores take bf16 alone";
  blocksOfQueries(/*length=*/36, /*heads=*/2, /*kvHeads=*/1, /*dim=*/64);
}

/// The steps of a ring: every rank meets the blocks of keys one after the
/// other. What the steps give together is what whole samples do, gradients of
/// keys in the order in which the ranks add to them; rows are in order or
/// balanced, and without causal masking key masks stay.
void Attention::stepsOfARing(int64_t length, int64_t heads, int64_t kvHeads,
                             int64_t dim) {
  const int64_t samples = 2;
  const int64_t ranks = 3, own = samples * length / ranks;
  const int64_t width = heads * dim, kvWidth = kvHeads * dim;
  const int64_t rows = samples * length;
  Random random(67);
  const Values qs = random.values(rows * width);
  const Values ks = random.values(rows * kvWidth);
  const Values vs = random.values(rows * kvWidth);
  const Values douts = random.values(rows * width);
  const Values reals = {0.4, 0.25};
  Values seen;
  for (int64_t row = 0; row < rows; ++row)
    seen.push_back(row % length < length - 2 - row / length ? 1 : 0);
  device.at.first_sample = 3;
  const int64_t bytes = dtype() == GRT_F64 ? 8 : 4;
  const uint32_t element = dtype() == GRT_BF16 ? 2 : uint32_t(bytes);
  auto scratch = sums(int64_t(attentionScratchBytes(
                          samples, length, rows, heads, kvHeads, dim, element,
                          /*backward=*/true, false)) /
                      bytes);
  auto k = input(ks), v = input(vs), q = input(qs), dout = input(douts),
       mask = integers(seen);
  for (auto [causal, balanced, masked] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 0, 0},
        {1, 1, 0},
        {0, 0, 0},
        {0, 0, 1},
        {0, 1, 1}}) {
    device.at.block_index = 0;
    device.at.block_count = 1;
    auto o = output(rows * width), lse = sums(rows * heads),
         dq = output(rows * width), dk = output(rows * kvWidth),
         dv = output(rows * kvWidth);
    Integers ints = {samples, length,  length, heads, kvHeads, dim,   width,
                     kvWidth, kvWidth, causal, 3,     0,       masked};
    std::vector<Argument> forward = {*q, *k, *v, *o, *lse, *scratch};
    std::vector<Argument> backward = {*q,    *k,  *v,  *o,  *lse,
                                      *dout, *dq, *dk, *dv, *scratch};
    if (masked) {
      forward.push_back(*mask);
      backward.push_back(*mask);
    }
    device.run(GRT_KERNEL_ATTENTION, forward, ints, reals);
    device.run(GRT_KERNEL_ATTENTION_GRAD, backward, ints, reals);

    device.at.block_count = ranks;
    auto part = [&](const Values &values, int64_t rank) {
      return blockOfRows(values, rank, ranks, balanced != 0);
    };
    auto stepInts = [&](int64_t distance) {
      return Integers{1,    own,      own,         heads,   kvHeads,
                      dim,  width,    kvWidth,     kvWidth, causal,
                      3,    0,        masked,      length,  balanced,
                      rows, distance, distance > 0};
    };
    // The sums that travel: of every block those of its keys' gradients.
    std::vector<Values> dqs(ranks, Values(size_t(own * width), NAN)),
        dks(ranks, Values(size_t(own * kvWidth), NAN)), dvs = dks;
    std::vector<Values> outputs, statistics;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      device.at.block_index = rank;
      auto mine = input(part(qs, rank)), sum = sums(own * width),
           stats = sums(own * heads);
      for (int64_t step = 0; step < ranks; ++step) {
        const int64_t from = (rank + ranks - step) % ranks;
        auto keys = input(part(ks, from)), values = input(part(vs, from));
        std::vector<Argument> arguments = {*mine, *keys,  *values,
                                           *sum,  *stats, *scratch};
        if (masked)
          arguments.push_back(*mask);
        device.run(GRT_KERNEL_RING_ATTENTION, arguments, stepInts(step), reals);
      }
      expectNear(sum->read(), part(o->read(), rank), "o",
                 dtype() == GRT_BF16 ? 1e-2 : 1e-6, 1e-13, 0.05);
      outputs.push_back(sum->read());
      statistics.push_back(stats->read());
    }
    for (int64_t step = 0; step < ranks; ++step)
      for (int64_t rank = 0; rank < ranks; ++rank) {
        device.at.block_index = rank;
        const int64_t from = (rank + ranks - step) % ranks;
        auto mine = input(part(qs, rank)), keys = input(part(ks, from)),
             values = input(part(vs, from)), result = input(outputs[rank]),
             stats = sums(statistics[rank]), dmine = input(part(douts, rank)),
             dqSum = sums(dqs[rank]), dkSum = sums(dks[from]),
             dvSum = sums(dvs[from]);
        std::vector<Argument> arguments = {*mine,  *keys,   *values, *result,
                                           *stats, *dmine,  *dqSum,  *dkSum,
                                           *dvSum, *scratch};
        if (masked)
          arguments.push_back(*mask);
        device.run(GRT_KERNEL_RING_ATTENTION_GRAD, arguments, stepInts(step),
                   reals);
        dqs[rank] = dqSum->read();
        dks[from] = dkSum->read();
        dvs[from] = dvSum->read();
      }
    const double rough = dtype() == GRT_BF16 ? 2e-2 : 1e-5;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      expectNear(dqs[rank], part(dq->read(), rank), "dq", rough, 1e-13, 0.5);
      expectNear(dks[rank], part(dk->read(), rank), "dk", rough, 1e-13, 0.5);
      expectNear(dvs[rank], part(dv->read(), rank), "dv", rough, 1e-13, 0.5);
    }
  }
}

TEST_P(Attention, steps_of_a_ring_recombine) {
  stepsOfARing(/*length=*/18, /*heads=*/4, /*kvHeads=*/2, /*dim=*/5);
}

/// Heads of several parts of columns, and those that kernels for tensor cores
/// take, of several tiles, with runs of keys at multiples of four.
TEST_P(Attention, steps_of_a_ring_of_wide_heads_recombine) {
  stepsOfARing(/*length=*/36, /*heads=*/2, /*kvHeads=*/1, /*dim=*/80);
  if (dtype() == GRT_BF16)
    stepsOfARing(/*length=*/108, /*heads=*/2, /*kvHeads=*/1, /*dim=*/64);
}

TEST_P(Attention, evaluation_drops_nothing) {
  Problem p = {1, 20, 20, 1, 1, 8, true, 0.5};
  Operands x = random(p, 91);
  device.step.mode = GRT_MODE_EVALUATE;
  Values found = run(p, x).o;
  p.dropout = 0;
  expectSame(found, run(p, x).o, "o");
}

TEST_P(Attention, too_little_scratch_is_refused) {
  auto q = input(Values(64, 0.5)), o = output(64);
  auto lse = sums(8), scratch = sums(1);
  EXPECT_NE(device
                .refused(GRT_KERNEL_ATTENTION_GRAD,
                         {*q, *q, *q, *o, *lse, *o, *o, *o, *o, *scratch},
                         {1, 8, 8, 1, 1, 8, 8, 8, 8, 1, 0, 0}, {1.0, 0.0})
                .find("scratch"),
            std::string::npos);
}

GRT_KERNEL_SUITE(Attention);

} // namespace
} // namespace grt::conformance
