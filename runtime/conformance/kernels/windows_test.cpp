//===- windows_test.cpp - Windows of a grid, means, transposes ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include "grt/philox.h"

#include <cmath>

namespace grt::conformance {
namespace {

/// Kernels that models with windows, and mixers, have besides products and
/// norms.
class Windows : public KernelTest {
protected:
  /// Positions of a grid.
  struct Grid {
    int64_t samples, rows, cols, width, window, shift = 0;
    bool merge = false;
    int64_t down() const { return (rows + window - 1) / window; }
    int64_t across() const { return (cols + window - 1) / window; }
    int64_t elements() const { return samples * rows * cols * width; }
    int64_t inWindows() const {
      return samples * down() * across() * window * window * width;
    }
    Integers ints(bool join) const {
      return {samples, rows, cols, width, window, shift, merge, join};
    }
  };

  /// The element of the grid, by element of the windows; -1: a zero.
  static Integers places(const Grid &g) {
    Integers result;
    for (int64_t s = 0; s < g.samples; ++s)
      for (int64_t a = 0; a < g.down(); ++a)
        for (int64_t b = 0; b < g.across(); ++b)
          for (int64_t i = 0; i < g.window; ++i)
            for (int64_t j = 0; j < g.window; ++j) {
              int64_t row = a * g.window + (g.merge ? j : i) + g.shift;
              int64_t col = b * g.window + (g.merge ? i : j) + g.shift;
              row %= g.down() * g.window;
              col %= g.across() * g.window;
              for (int64_t c = 0; c < g.width; ++c)
                result.push_back(
                    row < g.rows && col < g.cols
                        ? ((s * g.rows + row) * g.cols + col) * g.width + c
                        : -1);
            }
    return result;
  }

  void check(const Grid &g, uint64_t seed) {
    Random random(seed);
    Values grid = random.values(g.elements()), windows;
    for (int64_t place : places(g))
      windows.push_back(place < 0 ? 0 : grid[size_t(place)]);
    auto x = input(grid), y = output(g.inWindows());
    device.run(GRT_KERNEL_WINDOWS, {*x, *y}, g.ints(false));
    expectSame(y->read(), windows, "windows");
    auto back = output(g.elements());
    device.run(GRT_KERNEL_WINDOWS, {*y, *back}, g.ints(true));
    expectSame(back->read(), grid, "grid");
  }

  struct Attention {
    int64_t samples, down, across, window, shift, heads, headDim;
    double dropout = 0;
    int64_t opIndex = 3;
    int64_t windows() const { return samples * down * across; }
    int64_t positions() const { return window * window; }
    int64_t side() const { return 2 * window - 1; }
    int64_t elements() const {
      return windows() * positions() * heads * headDim;
    }
    double scale() const { return 1 / std::sqrt(double(headDim)); }
    Integers ints() const {
      return {samples, down, across, window, shift, heads, headDim, opIndex};
    }
  };
  struct Operands {
    Values q, k, v, dout, table;
  };
  struct Results {
    Values o, lse, dq, dk, dv, dtable;
  };

  static Operands random(const Attention &p, uint64_t seed) {
    Random random(seed);
    return {random.values(p.elements()), random.values(p.elements()),
            random.values(p.elements()), random.values(p.elements()),
            random.values(p.side() * p.side() * p.heads, 2)};
  }

  double factor(const Attention &p, int64_t n, int64_t h, int64_t i,
                int64_t j) const {
    if (p.dropout == 0 || device.step.mode != GRT_MODE_TRAIN)
      return 1;
    uint64_t number = uint64_t(device.at.first_sample * p.down * p.across + n);
    uint64_t heads = uint64_t(device.at.tp_size * p.heads);
    uint64_t head = uint64_t(device.at.tp_index * p.heads + h);
    PhiloxKey key =
        dropoutKey(device.step.seed, device.step.step, device.at.layer);
    PhiloxBlock block = dropoutBlock(
        key, (number * heads + head) * uint64_t(p.positions()) + uint64_t(i),
        uint32_t(j / 4), uint32_t(p.opIndex));
    return block.lane[j % 4] >= dropoutThreshold(p.dropout)
               ? 1 / (1 - p.dropout)
               : 0;
  }

  Results reference(const Attention &p, const Operands &x) const {
    Results r;
    r.o.assign(p.elements(), 0);
    r.dq = r.dk = r.dv = r.o;
    r.dtable.assign(x.table.size(), 0);
    const int64_t w = p.window;
    for (int64_t n = 0; n < p.windows(); ++n) {
      bool lastRow = n % (p.down * p.across) / p.across == p.down - 1;
      bool lastCol = n % p.across == p.across - 1;
      auto element = [&](int64_t t, int64_t h) {
        return ((n * p.positions() + t) * p.heads + h) * p.headDim;
      };
      auto tableAt = [&](int64_t i, int64_t j, int64_t h) {
        return ((i / w - j / w + w - 1) * p.side() + i % w - j % w + w - 1) *
                   p.heads +
               h;
      };
      auto apart = [&](int64_t i, int64_t j) {
        auto late = [&](int64_t place) { return place >= w - p.shift; };
        return (lastRow && late(i / w) != late(j / w)) ||
               (lastCol && late(i % w) != late(j % w));
      };
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t i = 0; i < p.positions(); ++i) {
          int64_t query = element(i, h);
          Values score, gradient;
          double sum = 0, delta = 0;
          for (int64_t j = 0; j < p.positions(); ++j) {
            double dot = 0;
            for (int64_t d = 0; d < p.headDim; ++d)
              dot += x.q[query + d] * x.k[element(j, h) + d];
            score.push_back(dot * p.scale() + x.table[tableAt(i, j, h)] -
                            (apart(i, j) ? 100 : 0));
            sum += std::exp(score.back());
          }
          r.lse.push_back(std::log(sum));
          for (int64_t j = 0; j < p.positions(); ++j) {
            score[j] = std::exp(score[j]) / sum;
            double kept = factor(p, n, h, i, j), dot = 0;
            for (int64_t d = 0; d < p.headDim; ++d) {
              int64_t value = element(j, h) + d;
              r.o[query + d] += kept * score[j] * x.v[value];
              dot += x.dout[query + d] * x.v[value];
              r.dv[value] += kept * score[j] * x.dout[query + d];
            }
            gradient.push_back(kept * dot);
            delta += score[j] * kept * dot;
          }
          for (int64_t j = 0; j < p.positions(); ++j) {
            double ds = score[j] * (gradient[j] - delta);
            r.dtable[tableAt(i, j, h)] += ds;
            for (int64_t d = 0; d < p.headDim; ++d) {
              r.dq[query + d] += ds * p.scale() * x.k[element(j, h) + d];
              r.dk[element(j, h) + d] += ds * p.scale() * x.q[query + d];
            }
          }
        }
    }
    return r;
  }

  Results run(const Attention &p, const Operands &x, int64_t acc = 0,
              const Values &before = {}) {
    auto q = input(x.q), k = input(x.k), v = input(x.v), dout = input(x.dout),
         table = input(x.table);
    auto o = output(p.elements()), dq = output(p.elements()),
         dk = output(p.elements()), dv = output(p.elements());
    auto lse = sums(p.windows() * p.heads * p.positions());
    auto dtable = before.empty() ? sums(int64_t(x.table.size())) : sums(before);
    auto scratch = [&](bool backward) {
      uint32_t element = dtype() == GRT_F64 ? 8 : dtype() == GRT_BF16 ? 2 : 4;
      uint64_t bytes = windowScratchBytes(p.windows(), p.window, p.heads,
                                          p.headDim, element, backward);
      return sums(int64_t(bytes / (dtype() == GRT_F64 ? 8 : 4)));
    };
    auto forward = scratch(false), backward = scratch(true);
    Integers ints = p.ints();
    device.run(GRT_KERNEL_WINDOW_ATTENTION,
               {*q, *k, *v, *o, *lse, *forward, *table}, ints,
               {p.scale(), p.dropout});
    ints.push_back(acc);
    device.run(GRT_KERNEL_WINDOW_ATTENTION_GRAD,
               {*q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv, *backward, *table,
                *dtable},
               ints, {p.scale(), p.dropout});
    return {o->read(),  lse->read(), dq->read(),
            dk->read(), dv->read(),  dtable->read()};
  }

  void check(const Attention &p, uint64_t seed) {
    SCOPED_TRACE("windows " + std::to_string(p.samples) + "x" +
                 std::to_string(p.down) + "x" + std::to_string(p.across) +
                 " of " + std::to_string(p.window) + " turned by " +
                 std::to_string(p.shift) + " heads " + std::to_string(p.heads) +
                 " dim " + std::to_string(p.headDim) + " dropout " +
                 std::to_string(p.dropout));
    Operands x = random(p, seed);
    Values before = Random(seed + 1).values(int64_t(x.table.size()));
    Results expected = reference(p, x), found = run(p, x);
    // Backward starts from the rounded o.
    double rough = dtype() == GRT_BF16 ? 4e-3 : 5e-6;
    double floor = dtype() == GRT_BF16 ? 0.5 : 0.05;
    expectNear(found.o, expected.o, "o", 5e-6, 1e-13, 0.05);
    expectNear(found.lse, expected.lse, "lse", 5e-6, 1e-13, 0.05);
    expectNear(found.dq, expected.dq, "dq", rough, 1e-13, floor);
    expectNear(found.dk, expected.dk, "dk", rough, 1e-13, floor);
    expectNear(found.dv, expected.dv, "dv", 5e-6, 1e-13, 0.05);
    expectNear(found.dtable, expected.dtable, "dtable", 4 * rough, 1e-12,
               floor);
    for (size_t i = 0; i < before.size(); ++i)
      expected.dtable[i] += before[i];
    expectNear(run(p, x, 1, before).dtable, expected.dtable, "sum of dtables",
               4 * rough, 1e-12, floor);
  }
};

TEST_P(Windows, positions_go_into_windows_and_back) {
  uint64_t seed = 0;
  for (bool merge : {false, true}) {
    check(Grid{1, 1, 1, 1, 1, 0, merge}, ++seed);
    check(Grid{2, 4, 6, 3, 2, 0, merge}, ++seed);
    check(Grid{3, 5, 7, 8, 2, 1, merge}, ++seed);
    check(Grid{1, 14, 14, 96, 7, 3, merge}, ++seed);
    check(Grid{2, 9, 4, 20, 3, 2, merge}, ++seed);
    check(Grid{1, 2, 50, 5, 6, 3, merge}, ++seed);
  }
}

TEST_P(Windows, attention_agrees_with_naive_loops) {
  uint64_t seed = 100;
  for (double dropout : {0.0, 0.3}) {
    check(Attention{1, 1, 1, 1, 0, 1, 1, dropout}, ++seed);
    check(Attention{2, 2, 3, 2, 0, 3, 5, dropout}, ++seed);
    check(Attention{2, 2, 3, 2, 1, 3, 5, dropout}, ++seed);
    check(Attention{1, 2, 2, 7, 3, 2, 32, dropout}, ++seed);
    check(Attention{3, 1, 4, 4, 2, 1, 16, dropout}, ++seed);
    check(Attention{1, 3, 1, 5, 1, 2, 70, dropout}, ++seed);
    // More positions than a tile has rows.
    check(Attention{1, 1, 2, 9, 4, 2, 12, dropout}, ++seed);
    check(Attention{1, 2, 1, 12, 6, 1, 32, dropout}, ++seed);
  }
}

TEST_P(Windows, ranks_have_heads_of_their_own) {
  Attention whole = {2, 2, 2, 3, 1, 4, 8, 0.25};
  Operands x = random(whole, 200);
  device.at.first_sample = 6;
  device.at.layer = 5;
  device.at.tp_size = 1;
  device.at.tp_index = 0;
  Results all = run(whole, x);
  device.at.tp_size = 2;
  for (int64_t rank = 0; rank < 2; ++rank) {
    Attention part = whole;
    part.heads = 2;
    device.at.tp_index = rank;
    auto slice = [&](const Values &values, int64_t width) {
      Values result;
      for (size_t i = 0; i < values.size(); ++i)
        if (int64_t(i) / (2 * width) % 2 == rank)
          result.push_back(values[i]);
      return result;
    };
    Results found = run(part, {slice(x.q, 8), slice(x.k, 8), slice(x.v, 8),
                               slice(x.dout, 8), slice(x.table, 1)});
    expectSame(found.o, slice(all.o, 8), "o");
    expectSame(found.dq, slice(all.dq, 8), "dq");
    expectSame(found.dk, slice(all.dk, 8), "dk");
    expectSame(found.dv, slice(all.dv, 8), "dv");
    expectSame(found.dtable, slice(all.dtable, 1), "dtable");
  }
}

TEST_P(Windows, reference_gradient_agrees_with_differences) {
  Attention p = {1, 2, 2, 2, 1, 2, 3, 0.3};
  Operands x = random(p, 300);
  Results r = reference(p, x);
  auto objective = [&] {
    Results moved = reference(p, x);
    double sum = 0;
    for (size_t i = 0; i < moved.o.size(); ++i)
      sum += moved.o[i] * x.dout[i];
    return sum;
  };
  auto compare = [&](Values &argument, const Values &gradient) {
    for (size_t i = 0; i < argument.size(); i += 5) {
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
  compare(x.table, r.dtable);
}

TEST_P(Windows, what_cannot_be_is_refused) {
  auto x = input(Values(64, 0.5)), y = output(64);
  auto lse = sums(8), scratch = sums(1);
  for (Integers sides : {Integers{0, 0}, Integers{2, 2}, Integers{2, -1}}) {
    EXPECT_NE(device
                  .refused(GRT_KERNEL_WINDOWS, {*x, *y},
                           {1, 2, 2, 1, sides[0], sides[1], 0, 0})
                  .find("windows have at least one position"),
              std::string::npos);
    EXPECT_NE(device
                  .refused(GRT_KERNEL_WINDOW_ATTENTION,
                           {*x, *x, *x, *y, *lse, *scratch, *x},
                           {1, 1, 1, sides[0], sides[1], 1, 4, 0}, {1.0, 0.0})
                  .find("windows have at least one position"),
              std::string::npos);
  }
  EXPECT_NE(
      device
          .refused(GRT_KERNEL_WINDOW_ATTENTION_GRAD,
                   {*x, *x, *x, *x, *lse, *x, *y, *y, *y, *scratch, *x, *lse},
                   {1, 1, 1, 2, 0, 1, 4, 0, 0}, {1.0, 0.0})
          .find("scratch"),
      std::string::npos);
}

TEST_P(Windows, paths_are_dropped_by_sample) {
  Random random(400);
  for (int64_t n : {1, 7, 5000}) {
    const int64_t samples = 40, opIndex = 2, firstLayer = 3;
    const double rate = 0.1;
    device.at.layer = 7;
    device.at.first_sample = 16;
    Values x = random.values(samples * n), expected;
    PhiloxKey key = dropoutKey(device.step.seed, device.step.step, 7);
    int64_t dropped = 0;
    for (int64_t i = 0; i < samples * n; ++i) {
      PhiloxBlock block =
          dropoutBlock(key, uint64_t(16 + i / n), 0, uint32_t(opIndex));
      bool kept = block.lane[0] >= dropoutThreshold(0.4);
      dropped += !kept;
      expected.push_back(kept ? x[i] / 0.6 : 0);
    }
    EXPECT_GT(dropped, 0);
    EXPECT_LT(dropped, samples * n);
    auto from = input(x), to = output(samples * n);
    Integers ints = {samples, n, opIndex, firstLayer};
    device.run(GRT_KERNEL_DROP_PATH, {*from, *to}, ints, {rate});
    expectNear(to->read(), expected, "y");
    auto same = input(x);
    device.run(GRT_KERNEL_DROP_PATH, {*same, *same}, ints, {rate});
    expectSame(same->read(), to->read(), "y in place");
    // The first layer drops none, and evaluation neither.
    device.at.layer = firstLayer;
    device.run(GRT_KERNEL_DROP_PATH, {*from, *to}, ints, {rate});
    expectSame(to->read(), rounded(x), "y of the first layer");
    device.at.layer = 7;
    device.step.mode = GRT_MODE_EVALUATE;
    device.run(GRT_KERNEL_DROP_PATH, {*from, *to}, ints, {rate});
    expectSame(to->read(), rounded(x), "y in evaluation");
    device.step.mode = GRT_MODE_TRAIN;
  }
  auto x = input(Values(4, 1.0)), y = output(4);
  device.at.layer = 20;
  EXPECT_NE(device.refused(GRT_KERNEL_DROP_PATH, {*x, *y}, {2, 2, 0, 3}, {0.1})
                .find("dropout probability must be in [0, 1), found 1.7"),
            std::string::npos);
}

TEST_P(Windows, means_over_positions) {
  Random random(500);
  for (Integers shape :
       {Integers{1, 1, 1}, Integers{3, 5, 7}, Integers{2, 49, 100},
        Integers{1, 300, 33}, Integers{5, 16, 768}}) {
    int64_t samples = shape[0], count = shape[1], width = shape[2];
    Values x = random.values(samples * count * width), y(samples * width, 0);
    Values dy = random.values(samples * width), dx;
    for (int64_t i = 0; i < samples * count * width; ++i) {
      int64_t at = i / width / count * width + i % width;
      y[at] += x[i] / double(count);
      dx.push_back(dy[at] / double(count));
    }
    auto from = input(x), to = output(samples * width);
    device.run(GRT_KERNEL_MEAN, {*from, *to}, shape);
    expectNear(to->read(), y, "y", 4e-6);
    auto gradient = input(dy), back = output(samples * count * width);
    device.run(GRT_KERNEL_MEAN_GRAD, {*gradient, *back}, shape);
    expectNear(back->read(), dx, "dx");
  }
}

TEST_P(Windows, means_beside_the_first_position) {
  Random random(550);
  for (Integers shape : {Integers{1, 2, 1}, Integers{3, 5, 7},
                         Integers{2, 50, 100}, Integers{5, 17, 768}}) {
    int64_t samples = shape[0], count = shape[1], width = shape[2];
    Values x = random.values(samples * count * width);
    Values y(2 * samples * width, 0), dx;
    Values dy = random.values(2 * samples * width);
    for (int64_t i = 0; i < samples * count * width; ++i) {
      const bool isFirst = i / width % count == 0;
      const double factor = isFirst ? 1 : 1 / double(count - 1);
      int64_t at =
          (i / width / count * 2 + (isFirst ? 0 : 1)) * width + i % width;
      y[at] += x[i] * factor;
      dx.push_back(dy[at] * factor);
    }
    Integers ints = shape;
    ints.push_back(1);
    auto from = input(x), to = output(2 * samples * width);
    device.run(GRT_KERNEL_MEAN, {*from, *to}, ints);
    expectNear(to->read(), y, "y", 4e-6);
    auto gradient = input(dy), back = output(samples * count * width);
    device.run(GRT_KERNEL_MEAN_GRAD, {*gradient, *back}, ints);
    expectNear(back->read(), dx, "dx");
  }
}

TEST_P(Windows, transposes) {
  Random random(600);
  for (Integers shape :
       {Integers{1, 1, 1}, Integers{3, 5, 7}, Integers{2, 33, 64},
        Integers{1, 200, 70}, Integers{2, 72, 136}}) {
    int64_t count = shape[0], rows = shape[1], cols = shape[2];
    Values x = random.values(count * rows * cols), y(x.size());
    for (int64_t i = 0; i < int64_t(x.size()); ++i)
      y[(i / (rows * cols) * cols + i % cols) * rows + i / cols % rows] = x[i];
    auto from = input(x), to = output(int64_t(x.size()));
    device.run(GRT_KERNEL_TRANSPOSE, {*from, *to}, shape);
    expectSame(to->read(), y, "y");
  }
}

TEST_P(Windows, ranks_have_their_parts) {
  Random random(700);
  // Rows, parts, elements of a part, ranks that share one.
  for (Integers shape :
       {Integers{1, 1, 1, 1}, Integers{1, 1, 40, 4}, Integers{1, 2, 35, 2},
        Integers{3, 4, 5, 1}, Integers{7, 2, 64, 3}, Integers{1, 8, 4096, 2}}) {
    int64_t rows = shape[0], parts = shape[1], each = shape[2];
    int64_t ranks = shape[3];
    device.at.tp_size = parts * ranks;
    Values whole = random.values(rows * parts * each);
    Values gradient = random.values(rows * each);
    for (int64_t rank = 0; rank < parts * ranks; ++rank) {
      device.at.tp_index = rank;
      Values part(rows * each), back(rows * parts * each, 0.0);
      for (int64_t i = 0; i < rows * each; ++i) {
        int64_t at = (i / each * parts + rank / ranks) * each + i % each;
        part[i] = whole[at];
        back[at] = gradient[i];
      }
      auto from = input(whole), to = output(rows * each);
      device.run(GRT_KERNEL_OWN_PART, {*from, *to},
                 {rows, parts, each, ranks, 0});
      expectSame(to->read(), rounded(part), "part");
      auto own = input(gradient), all = output(rows * parts * each);
      device.run(GRT_KERNEL_OWN_PART, {*own, *all},
                 {rows, parts, each, ranks, 1});
      expectSame(all->read(), rounded(back), "gradient of the whole");
    }
  }
  // Parts of ranks that divide rows, from both ends.
  device.at.block_count = 3;
  for (int64_t rank = 0; rank < 3; ++rank) {
    device.at.block_index = rank;
    auto whole = input({1, 2, 3}), part = output(1);
    for (int64_t ofBlocks : {1, 2}) {
      device.run(GRT_KERNEL_OWN_PART, {*whole, *part},
                 {1, 3, 1, 1, 0, ofBlocks});
      EXPECT_EQ(part->at(0), double(ofBlocks == 1 ? rank + 1 : 3 - rank));
    }
  }
  // Parts of tensor-parallel ranks, from the last.
  device.at.tp_size = 3;
  for (int64_t rank = 0; rank < 3; ++rank) {
    device.at.tp_index = rank;
    auto whole = input({1, 2, 3}), part = output(1);
    device.run(GRT_KERNEL_OWN_PART, {*whole, *part}, {1, 3, 1, 1, 0, 3});
    EXPECT_EQ(part->at(0), double(3 - rank));
  }
  device.at.tp_size = 6;
  device.at.tp_index = 5;
  auto x = input(Values(4, 1.0)), y = output(1);
  EXPECT_NE(device.refused(GRT_KERNEL_OWN_PART, {*x, *y}, {1, 4, 1, 1, 0})
                .find("parts and the ranks of each must make up the 6 ranks of "
                      "tensor parallelism, found 4 and 1"),
            std::string::npos);
}

GRT_KERNEL_SUITE(Windows);

} // namespace
} // namespace grt::conformance
