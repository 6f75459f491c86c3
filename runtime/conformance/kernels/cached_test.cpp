//===- cached_test.cpp - One position at a time ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include <cmath>

namespace grt::conformance {
namespace {

/// Rows of a cache that come to have some positions, a few in each call.
struct Cache {
  int64_t rows, length, heads, kvHeads, headDim, window;
  double cap;
  bool packed;
  double distance = 0;
  int64_t distances = 0; ///< that have a bias; 0: there is none
};

/// One sample of a call.
struct Sample {
  int64_t row, position;
};

class Cached : public KernelTest {
protected:
  /// Returns ALiBi's slope of one head of this rank's.
  double slopeOf(const Cache &c, int64_t head) const {
    const int64_t all = c.heads * device.at.tp_size;
    const int64_t number = c.heads * device.at.tp_index + head;
    const double power = std::pow(2.0, std::floor(std::log2(double(all))));
    return number < int64_t(power)
               ? std::pow(2.0, -8 * double(number + 1) / power)
               : std::pow(2.0, -8 * (double(number) - power + 0.5) / power);
  }
  /// Returns the attention of one head of a query over all positions before.
  /// `keys` and `values` have a row of all key heads for each position.
  Values attend(const Cache &c, const double *q, int64_t head, int64_t position,
                const std::vector<Values> &keys,
                const std::vector<Values> &values, double scale,
                const double *bias) const {
    const int64_t at = head / (c.heads / c.kvHeads) * c.headDim;
    const int64_t first =
        c.window > 0 ? std::max<int64_t>(0, position + 1 - c.window) : 0;
    Values weights;
    double total = 0;
    for (int64_t j = first; j <= position; ++j) {
      double score = 0;
      for (int64_t d = 0; d < c.headDim; ++d)
        score += q[d] * keys[size_t(j)][size_t(at + d)];
      score *= scale;
      if (c.cap > 0)
        score = c.cap * std::tanh(score / c.cap);
      score += c.distance * slopeOf(c, head) * double(j - position);
      if (bias)
        score += bias[j - position + c.distances / 2];
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    Values o(size_t(c.headDim), 0.0);
    for (int64_t j = first; j <= position; ++j)
      for (int64_t d = 0; d < c.headDim; ++d)
        o[size_t(d)] += weights[size_t(j - first)] / total *
                        values[size_t(j)][size_t(at + d)];
    return o;
  }
};

/// Rows that are behind each other, several positions of one in a call, samples
/// of none, windows whose places are used again, heads that share keys; work
/// for one thread and for several.
TEST_P(Cached, attention_sees_what_was_kept) {
  const std::vector<std::vector<Sample>> calls = {
      {{0, 0}, {2, 0}, {0, 1}, {0, 2}, {-1, 0}},
      {{1, 0}, {2, 1}, {1, 1}, {0, 3}, {2, 2}},
      {{0, 4}, {0, 5}, {0, 6}, {0, 7}, {0, 8}},
      {{-1, 3}, {1, 2}, {-1, 0}, {2, 3}, {0, 9}},
      {{1, 0}, {1, 1}, {2, 4}, {2, 5}, {1, 2}}}; // another text in row 1
  for (const Cache &c :
       std::vector<Cache>{{3, 10, 2, 2, 5, 0, 0, false},
                          {3, 10, 4, 2, 8, 0, 0, false},
                          {3, 12, 3, 3, 16, 0, 0, true},
                          {3, 4, 4, 1, 33, 4, 0, false},
                          {3, 3, 2, 2, 64, 2, 2.5, false},
                          {3, 150, 1, 1, 130, 0, 1.5, true},
                          {3, 10, 96, 48, 128, 0, 0, false, 1},
                          {3, 10, 6, 3, 8, 0, 0, false, 1},
                          {3, 3, 5, 5, 16, 2, 1.5, true, 4},
                          {3, 10, 2, 2, 5, 0, 0, false, 0, 19},
                          {3, 11, 6, 3, 8, 0, 0, true, 0, 25}}) {
    const bool ofHeads = c.distance != 0 || c.distances > 0;
    device.at.tp_size = ofHeads ? 2 : 1;
    device.at.tp_index = ofHeads ? 1 : 0;
    const int64_t biasHeads = c.distances > 0 ? 2 * c.heads : 0;
    Random random(uint64_t(c.heads * 100 + c.headDim));
    const int64_t kept = c.rows * c.kvHeads * c.length * c.headDim;
    const int64_t samples = 5, own = c.heads * c.headDim,
                  shared = c.kvHeads * c.headDim;
    auto keys = input(Values(size_t(kept), 0.0)),
         values = input(Values(size_t(kept), 0.0));
    std::vector<std::vector<Values>> k(3), v(3); // by row and position
    for (const std::vector<Sample> &call : calls) {
      Values q = random.values(samples * own), kNow, vNow, packed, expected;
      Values rows, positions;
      const Values biases = random.values(samples * biasHeads * c.distances);
      for (int64_t s = 0; s < samples; ++s) {
        const Sample &sample = call[size_t(s)];
        const Values key = random.values(shared), value = random.values(shared);
        kNow.insert(kNow.end(), key.begin(), key.end());
        vNow.insert(vNow.end(), value.begin(), value.end());
        packed.insert(packed.end(), q.begin() + s * own,
                      q.begin() + (s + 1) * own);
        packed.insert(packed.end(), key.begin(), key.end());
        packed.insert(packed.end(), value.begin(), value.end());
        rows.push_back(double(sample.row));
        positions.push_back(double(sample.position));
        if (sample.row >= 0) {
          auto &row = k[size_t(sample.row)];
          row.resize(size_t(sample.position));
          row.push_back(key);
          auto &other = v[size_t(sample.row)];
          other.resize(size_t(sample.position));
          other.push_back(value);
        }
        for (int64_t h = 0; h < c.heads; ++h) {
          Values o =
              sample.row < 0
                  ? Values(size_t(c.headDim), 0.0)
                  : attend(c, q.data() + s * own + h * c.headDim, h,
                           sample.position, k[size_t(sample.row)],
                           v[size_t(sample.row)], 0.5,
                           biases.empty()
                               ? nullptr
                               : biases.data() + (s * biasHeads + c.heads + h) *
                                                     c.distances);
          expected.insert(expected.end(), o.begin(), o.end());
        }
      }
      auto o = output(samples * own);
      auto row = integers(rows), position = integers(positions);
      const int64_t stride = own + 2 * shared;
      Integers ints = {samples,
                       c.rows,
                       c.length,
                       c.heads,
                       c.kvHeads,
                       c.headDim,
                       c.packed ? stride : own,
                       c.packed ? stride : shared,
                       c.packed ? stride : shared,
                       c.window};
      auto all = input(packed), qs = input(q), ks = input(kNow),
           vs = input(vNow);
      std::vector<Argument> buffers = {
          c.packed ? Argument(*all) : Argument(*qs),
          c.packed ? Argument(*all, own) : Argument(*ks),
          c.packed ? Argument(*all, own + shared) : Argument(*vs),
          *keys,
          *values,
          *row,
          *position,
          *o};
      auto bias = input(biases);
      if (c.distances > 0) {
        buffers.push_back(*bias);
        ints.insert(ints.end(), {1, biasHeads, c.distances});
      }
      if (backend().device) {
        EXPECT_NE(device
                      .refused(GRT_KERNEL_CACHED_ATTENTION, buffers, ints,
                               {0.5, c.cap, c.distance})
                      .find("run on CPU ranks"),
                  std::string::npos);
        return;
      }
      device.run(GRT_KERNEL_CACHED_ATTENTION, buffers, ints,
                 {0.5, c.cap, c.distance});
      expectNear(o->read(), expected, "o", 4e-6, 1e-13);
    }
  }
}

TEST_P(Cached, attention_refuses_places_that_are_not_there) {
  if (backend().device)
    return;
  auto q = input(Values(8, 0.5)), keys = input(Values(12, 0.5)),
       values = input(Values(12, 0.5)), o = output(8);
  for (const Sample &wrong :
       std::vector<Sample>{{2, 0}, {-2, 0}, {0, 3}, {1, -1}}) {
    auto row = integers({0, double(wrong.row)}),
         position = integers({0, double(wrong.position)});
    EXPECT_NE(device
                  .refused(GRT_KERNEL_CACHED_ATTENTION,
                           {*q, *q, *q, *keys, *values, *row, *position, *o},
                           {2, 2, 3, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0}, {1, 0, 0})
                  .find("sample 1 has row and position"),
              std::string::npos);
  }
}

/// Sources that begin in some calls, in others none; samples of rows that began
/// before, of none, and of sources without tokens.
TEST_P(Cached, cross_attention_sees_what_was_kept) {
  struct Call {
    Values begins, rows, counts;
  };
  const std::vector<Call> calls = {
      {{2, -1, 0, -1}, {0, 2, -1, 0}, {3, 5, 1, 1}},
      {{-1, -1, -1, -1}, {2, 2, 0, 0}, {5, 1, 3, 0}},
      {{-1, 1, -1, 2}, {1, 2, 0, -1}, {4, 5, 2, 0}}};
  for (const Cache &c : std::vector<Cache>{{3, 5, 2, 2, 5, 0, 0, false},
                                           {3, 5, 4, 2, 16, 0, 0, false},
                                           {3, 200, 8, 8, 64, 0, 0, false}}) {
    Random random(uint64_t(c.heads * 100 + c.headDim));
    const int64_t samples = 4, own = c.heads * c.headDim,
                  shared = c.kvHeads * c.headDim;
    auto keys = input(Values(size_t(c.rows * c.length * shared), 0.0)),
         values = input(Values(size_t(c.rows * c.length * shared), 0.0));
    // By row and position.
    std::vector<std::vector<Values>> k(3), v(3);
    for (const Call &call : calls) {
      const Values q = random.values(samples * own),
                   kNow = random.values(samples * c.length * shared),
                   vNow = random.values(samples * c.length * shared);
      auto rowsOf = [&](const Values &all, int64_t sample) {
        std::vector<Values> made;
        for (int64_t j = 0; j < c.length; ++j) {
          auto begin = all.begin() + (sample * c.length + j) * shared;
          made.emplace_back(begin, begin + shared);
        }
        return made;
      };
      Values expected;
      for (int64_t s = 0; s < samples; ++s)
        if (call.begins[size_t(s)] >= 0) {
          k[size_t(call.begins[size_t(s)])] = rowsOf(kNow, s);
          v[size_t(call.begins[size_t(s)])] = rowsOf(vNow, s);
        }
      for (int64_t s = 0; s < samples; ++s)
        for (int64_t h = 0; h < c.heads; ++h) {
          const double row = call.rows[size_t(s)],
                       count = call.counts[size_t(s)];
          const Values o = row < 0 || count == 0
                               ? Values(size_t(c.headDim), 0.0)
                               : attend(c, q.data() + s * own + h * c.headDim,
                                        h, int64_t(count) - 1, k[size_t(row)],
                                        v[size_t(row)], 0.5, /*bias=*/nullptr);
          expected.insert(expected.end(), o.begin(), o.end());
        }
      auto qs = input(q), ks = input(kNow), vs = input(vNow),
           o = output(samples * own);
      auto begins = integers(call.begins), rows = integers(call.rows),
           counts = integers(call.counts);
      const Integers ints = {samples,   c.rows, c.length, c.heads, c.kvHeads,
                             c.headDim, own,    shared,   shared};
      const std::vector<Argument> buffers = {
          *qs, *ks, *vs, *keys, *values, *begins, *rows, *counts, *o};
      if (backend().device) {
        EXPECT_NE(device
                      .refused(GRT_KERNEL_CACHED_CROSS_ATTENTION, buffers, ints,
                               {0.5})
                      .find("run on CPU ranks"),
                  std::string::npos);
        return;
      }
      device.run(GRT_KERNEL_CACHED_CROSS_ATTENTION, buffers, ints, {0.5});
      expectNear(o->read(), expected, "o", 4e-6, 1e-13);
    }
  }
}

TEST_P(Cached, cross_attention_refuses_rows_that_are_not_there) {
  if (backend().device)
    return;
  auto q = input(Values(4, 0.5)), k = input(Values(12, 0.5)),
       keys = input(Values(12, 0.5)), values = input(Values(12, 0.5)),
       o = output(4);
  // begins, row, count
  for (const Values &wrong : std::vector<Values>{
           {2, 0, 1}, {-2, 0, 1}, {0, 2, 1}, {0, 0, 4}, {-1, 0, -1}}) {
    auto begins = integers({-1, wrong[0]}), row = integers({0, wrong[1]}),
         count = integers({0, wrong[2]});
    EXPECT_NE(
        device
            .refused(GRT_KERNEL_CACHED_CROSS_ATTENTION,
                     {*q, *k, *k, *keys, *values, *begins, *row, *count, *o},
                     {2, 2, 3, 1, 1, 2, 2, 2, 2}, {1})
            .find("sample 1 has row and position"),
        std::string::npos);
  }
}

/// Rows that have positions of their own are turned as rows that stand there.
TEST_P(Cached, rotary_of_given_positions) {
  const int64_t heads = 2, headDim = 12, pairs = 5, places = 9;
  Values reals = {1.25};
  for (int64_t i = 0; i < pairs; ++i)
    reals.push_back(1 / double(i + 1));
  const int64_t width = heads * headDim;
  const Values x = Random(21).values(places * width);
  auto all = input(x), y = output(places * width);
  for (int64_t interleaved : {0, 1}) {
    device.run(GRT_KERNEL_ROTARY, {*all, *y},
               {1, places, heads, headDim, 0, pairs, interleaved}, reals);
    const Values turned = y->read();
    const Values at = {7, 0, 3, 3, 8, 1};
    Values some, expected;
    for (double t : at) {
      const auto first = int64_t(t) * width;
      some.insert(some.end(), x.begin() + first, x.begin() + first + width);
      expected.insert(expected.end(), turned.begin() + first,
                      turned.begin() + first + width);
    }
    auto rows = input(some), positions = integers(at);
    for (int64_t samples : {6, 2}) {
      auto result = output(6 * width);
      const Integers ints = {
          samples, 6 / samples, heads,        headDim,        0,
          pairs,   interleaved, /*length=*/0, /*balanced=*/0, 1};
      if (backend().device) {
        EXPECT_NE(device
                      .refused(GRT_KERNEL_ROTARY, {*rows, *result, *positions},
                               ints, reals)
                      .find("run on CPU ranks"),
                  std::string::npos);
        continue;
      }
      device.run(GRT_KERNEL_ROTARY, {*rows, *result, *positions}, ints, reals);
      expectSame(result->read(), expected, "y");
    }
  }
}

/// Products of a few rows, whose other operand is read in place: widths beside
/// those of vectors and blocks, lines that are no multiple of parts.
TEST_P(Cached, products_of_few_rows) {
  Random random(22);
  for (int64_t m : {1, 2, 3, 4, 5})
    for (auto [n, k] : {std::pair<int64_t, int64_t>{1, 1},
                        {7, 9},
                        {65, 24},
                        {130, 70},
                        {1100, 33},
                        {33, 1100}})
      for (bool transB : {false, true})
        for (int64_t acc : {0, 1}) {
          const Values a = random.values(m * k), b = random.values(k * n),
                       bias = random.values(n), before = random.values(m * n);
          Values expected(size_t(m * n), 0.0), parts(size_t(m * n), 0.0);
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              double sum =
                  bias[size_t(j)] + (acc ? before[size_t(i * n + j)] : 0);
              for (int64_t d = 0; d < k; ++d)
                sum += a[size_t(i * k + d)] *
                       b[size_t(transB ? j * k + d : d * n + j)];
              expected[size_t(i * n + j)] = sum;
              parts[size_t(i * n + j)] = std::fabs(sum) + 2;
            }
          auto aBuffer = input(a), bBuffer = input(b), biasBuffer = input(bias);
          auto c = acc ? input(before) : output(m * n);
          device.run(GRT_KERNEL_GEMM, {*aBuffer, *bBuffer, *c, *biasBuffer},
                     {m, n, k, 0, transB, acc, 1});
          expectNear(c->read(), expected, "c", 4e-6, 1e-13, 1e-3, parts);
          auto sums = this->sums(m * n);
          device.run(GRT_KERNEL_GEMM, {*aBuffer, *bBuffer, *sums},
                     {m, n, k, 0, transB, 0, 0});
          Values alone = expected;
          for (int64_t i = 0; i < m * n; ++i)
            alone[size_t(i)] -=
                bias[size_t(i % n)] + (acc ? before[size_t(i)] : 0);
          expectNear(sums->read(), alone, "sums", 4e-6, 1e-13, 1e-3, parts);
        }
}

GRT_KERNEL_SUITE(Cached);

} // namespace
} // namespace grt::conformance
