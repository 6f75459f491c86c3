//===- ReferenceAttention.cpp - Attention with plain loops ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Written from the definitions in NNOps.td and from grt/abi.h where they speak
// of random numbers, not from any kernel.
//
//===----------------------------------------------------------------------===//

#include "ReferenceTools.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include <cmath>
#include <limits>

using namespace galvatron::reference;
using namespace mlir;

namespace {

/// Indices into packed queries, keys and values, and into the outputs.
struct Heads {
  int64_t samples, positions, heads, size, width;
  Heads(const Tensor &qkv, int64_t heads)
      : samples(qkv.shape[0]), positions(qkv.shape[1]), heads(heads),
        size(qkv.shape[3] / heads), width(qkv.shape[3]) {}
  /// `part`: 0 queries, 1 keys, 2 values.
  int64_t packed(int64_t s, int64_t t, int64_t part, int64_t h,
                 int64_t e) const {
    return ((s * positions + t) * 3 + part) * width + h * size + e;
  }
  int64_t output(int64_t s, int64_t t, int64_t h, int64_t e) const {
    return (s * positions + t) * width + h * size + e;
  }
  int64_t row(int64_t s, int64_t h, int64_t t) const {
    return (s * heads + h) * positions + t;
  }
};

/// Scaled scores of query `t` with the keys up to the last one that it sees;
/// those before its document have minus infinity.
template <typename OpTy>
std::vector<double> scores(OpTy op, const Heads &at, Operands in, int64_t s,
                           int64_t h, int64_t t) {
  const Tensor &qkv = *in[0];
  int64_t keys = op.getCausal() ? t + 1 : at.positions;
  double start = op.getStarts() ? in.back()->values[s * at.positions + t] : 0;
  std::vector<double> result(keys);
  for (int64_t k = 0; k < keys; ++k) {
    if (double(k) < start) {
      result[k] = -std::numeric_limits<double>::infinity();
      continue;
    }
    for (int64_t e = 0; e < at.size; ++e)
      result[k] += qkv.values[at.packed(s, t, 0, h, e)] *
                   qkv.values[at.packed(s, k, 1, h, e)];
    result[k] *= op.getScale().convertToDouble();
  }
  return result;
}

/// Number of a row of probabilities among all ranks' heads.
int64_t maskRow(const Heads &at, const Context &context, Rank rank, int64_t s,
                int64_t h, int64_t t) {
  int64_t head = rank.index * at.heads + h, heads = rank.count * at.heads;
  return ((context.firstSample + s) * heads + head) * at.positions + t;
}

template <typename OpTy> DropoutMask attentionMask(OpTy op, const Context &c) {
  return DropoutMask(c, op.getDropout().convertToDouble(), op.getOpIndex());
}

template <typename Visit> void forEachRow(const Heads &at, Visit visit) {
  for (int64_t s = 0; s < at.samples; ++s)
    for (int64_t h = 0; h < at.heads; ++h)
      for (int64_t t = 0; t < at.positions; ++t)
        visit(s, h, t);
}

void attention(nn::AttentionOp op, Operands in, Results out,
               const Context &context, Rank rank) {
  const Tensor &qkv = *in[0];
  Heads at(qkv, op.getHeads());
  DropoutMask mask = attentionMask(op, context);
  forEachRow(at, [&](int64_t s, int64_t h, int64_t t) {
    std::vector<double> row = scores(op, at, in, s, h, t);
    double maximum = *std::max_element(row.begin(), row.end()), sum = 0;
    for (double score : row)
      sum += std::exp(score - maximum);
    out[1].values[at.row(s, h, t)] = maximum + std::log(sum);
    for (size_t k = 0; k < row.size(); ++k) {
      double weight = std::exp(row[k] - maximum) / sum *
                      mask(maskRow(at, context, rank, s, h, t), int64_t(k));
      for (int64_t e = 0; e < at.size; ++e)
        out[0].values[at.output(s, t, h, e)] +=
            weight * qkv.values[at.packed(s, int64_t(k), 2, h, e)];
    }
  });
}

// With probabilities p, mask m, w = m * p, o = w v: dv = w^T do,
// dp = m * (do v^T), ds = p * (dp - sum(p * dp)); that sum is do . o.
void attentionGrad(nn::AttentionGradOp op, Operands in, Results out,
                   const Context &context, Rank rank) {
  const Tensor &qkv = *in[0], &o = *in[1], &lse = *in[2], &dout = *in[3];
  Heads at(qkv, op.getHeads());
  DropoutMask mask = attentionMask(op, context);
  double scale = op.getScale().convertToDouble();
  std::vector<double> &d = out[0].values;
  forEachRow(at, [&](int64_t s, int64_t h, int64_t t) {
    std::vector<double> row = scores(op, at, in, s, h, t);
    double delta = 0;
    for (int64_t e = 0; e < at.size; ++e)
      delta +=
          dout.values[at.output(s, t, h, e)] * o.values[at.output(s, t, h, e)];
    for (int64_t k = 0; k < int64_t(row.size()); ++k) {
      double p = std::exp(row[k] - lse.values[at.row(s, h, t)]);
      double m = mask(maskRow(at, context, rank, s, h, t), k);
      double dp = 0;
      for (int64_t e = 0; e < at.size; ++e) {
        double g = dout.values[at.output(s, t, h, e)];
        dp += m * g * qkv.values[at.packed(s, k, 2, h, e)];
        d[at.packed(s, k, 2, h, e)] += p * m * g;
      }
      double ds = p * (dp - delta) * scale;
      for (int64_t e = 0; e < at.size; ++e) {
        d[at.packed(s, t, 0, h, e)] +=
            ds * qkv.values[at.packed(s, k, 1, h, e)];
        d[at.packed(s, k, 1, h, e)] +=
            ds * qkv.values[at.packed(s, t, 0, h, e)];
      }
    }
  });
}

/// The same for separate queries and keys.
struct GroupedHeads {
  int64_t samples, queries, keys, heads, keyHeads, size;
  bool causal;
  int64_t window;
  double cap, distance;
  const Tensor *mask, *starts, *bias; ///< null: none
  template <typename OpTy>
  GroupedHeads(OpTy op, Operands in)
      : samples(in[0]->shape[0]), queries(in[0]->shape[1]),
        keys(in[1]->shape[1]), heads(in[0]->shape[2]),
        keyHeads(in[1]->shape[2]), size(in[0]->shape[3]),
        causal(op.getCausal()), window(op.getWindow()),
        cap(op.getCap().convertToDouble()),
        distance(op.getDistance().convertToDouble()), mask(nullptr),
        starts(nullptr), bias(nullptr) {
    // They stand behind the others, in this order.
    size_t next = in.size() - (op.getMask() ? 1 : 0) -
                  (op.getStarts() ? 1 : 0) - (op.getBias() ? 1 : 0);
    if (op.getMask())
      mask = in[next++];
    if (op.getStarts())
      starts = in[next++];
    if (op.getBias())
      bias = in[next];
  }
  int64_t query(int64_t s, int64_t t, int64_t h, int64_t e) const {
    return ((s * queries + t) * heads + h) * size + e;
  }
  /// For query head `h`.
  int64_t key(int64_t s, int64_t t, int64_t h, int64_t e) const {
    int64_t keyHead = h / (heads / keyHeads);
    return ((s * keys + t) * keyHeads + keyHead) * size + e;
  }
  int64_t row(int64_t s, int64_t h, int64_t t) const {
    return (s * heads + h) * queries + t;
  }
  bool sees(int64_t s, int64_t t, int64_t k) const {
    int64_t own = t + keys - queries;
    return (!causal || k <= own) &&
           (window == 0 || std::abs(own - k) < window) &&
           (!mask || mask->values[s * keys + k] != 0) &&
           (!starts || double(k) >= starts->values[s * queries + t]);
  }
  double score(const Tensor &q, const Tensor &k, double scale, Rank rank,
               int64_t s, int64_t h, int64_t t, int64_t at) const {
    double sum = 0;
    for (int64_t e = 0; e < size; ++e)
      sum += q.values[query(s, t, h, e)] * k.values[key(s, at, h, e)];
    return capped(scale * sum) +
           (bias ? bias->values[biasPlace(rank, s, h, t, at)] : 0) +
           distance * slope(rank.index * heads + h, rank.count * heads) *
               double(at - t - (keys - queries));
  }
  double capped(double score) const {
    return cap > 0 ? cap * std::tanh(score / cap) : score;
  }
  /// What the cap multiplies the gradient of a score by, from the score behind
  /// it.
  double throughCap(Rank rank, int64_t h, int64_t t, int64_t at,
                    double score) const {
    if (cap == 0)
      return 1;
    double before =
        score - distance * slope(rank.index * heads + h, rank.count * heads) *
                    double(at - t - (keys - queries));
    return 1 - before / cap * (before / cap);
  }
  /// Of head `h` of all ranks' `all`: the geometric sequence of the largest
  /// power of two, and between its members those of the next one.
  static double slope(int64_t h, int64_t all) {
    double n = std::exp2(std::floor(std::log2(double(all))));
    return double(h) < n ? std::pow(2, -8 * double(h + 1) / n)
                         : std::pow(2, -8 * (double(h) - n + 0.5) / n);
  }
  int64_t biasPlace(Rank rank, int64_t s, int64_t h, int64_t t,
                    int64_t at) const {
    int64_t head = rank.index * heads + h;
    return (s * bias->shape[1] + head) * (queries + keys - 1) + at - t +
           queries - 1;
  }
  int64_t maskRow(const Context &context, Rank rank, int64_t s, int64_t h,
                  int64_t t) const {
    int64_t head = rank.index * heads + h, all = rank.count * heads;
    return ((context.firstSample + s) * all + head) * queries + t;
  }
  template <typename Visit> void forEachRow(Visit visit) const {
    for (int64_t s = 0; s < samples; ++s)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < queries; ++t)
          visit(s, h, t);
  }
};

void groupedAttention(nn::GroupedAttentionOp op, Operands in, Results out,
                      const Context &context, Rank rank) {
  const Tensor &q = *in[0], &k = *in[1], &v = *in[2];
  GroupedHeads at(op, in);
  DropoutMask mask = attentionMask(op, context);
  double scale = op.getScale().convertToDouble();
  at.forEachRow([&](int64_t s, int64_t h, int64_t t) {
    // Scores of language models' heads in f64: no maximum is needed.
    double sum = 0;
    std::vector<double> weights(at.keys);
    for (int64_t j = 0; j < at.keys; ++j)
      if (at.sees(s, t, j))
        sum += weights[j] = std::exp(at.score(q, k, scale, rank, s, h, t, j));
    out[1].values[at.row(s, h, t)] = std::log(sum);
    for (int64_t j = 0; j < at.keys; ++j) {
      double m = mask(at.maskRow(context, rank, s, h, t), j);
      for (int64_t e = 0; e < at.size && at.sees(s, t, j); ++e)
        out[0].values[at.query(s, t, h, e)] +=
            weights[j] / sum * m * v.values[at.key(s, j, h, e)];
    }
  });
}

void groupedAttentionGrad(nn::GroupedAttentionGradOp op, Operands in,
                          Results out, const Context &context, Rank rank) {
  const Tensor &q = *in[0], &k = *in[1], &v = *in[2], &o = *in[3];
  const Tensor &lse = *in[4], &dout = *in[5];
  GroupedHeads at(op, in);
  DropoutMask mask = attentionMask(op, context);
  double scale = op.getScale().convertToDouble();
  at.forEachRow([&](int64_t s, int64_t h, int64_t t) {
    double delta = 0;
    for (int64_t e = 0; e < at.size; ++e) {
      int64_t place = at.query(s, t, h, e);
      delta += dout.values[place] * o.values[place];
    }
    for (int64_t j = 0; j < at.keys; ++j) {
      if (!at.sees(s, t, j))
        continue;
      double score = at.score(q, k, scale, rank, s, h, t, j);
      double p = std::exp(score - lse.values[at.row(s, h, t)]);
      double m = mask(at.maskRow(context, rank, s, h, t), j), dp = 0;
      for (int64_t e = 0; e < at.size; ++e) {
        double g = dout.values[at.query(s, t, h, e)];
        dp += m * g * v.values[at.key(s, j, h, e)];
        out[2].values[at.key(s, j, h, e)] += p * m * g;
      }
      if (at.bias)
        out[3].values[at.biasPlace(rank, s, h, t, j)] += p * (dp - delta);
      double ds =
          p * (dp - delta) * scale * at.throughCap(rank, h, t, j, score);
      for (int64_t e = 0; e < at.size; ++e) {
        out[0].values[at.query(s, t, h, e)] +=
            ds * k.values[at.key(s, j, h, e)];
        out[1].values[at.key(s, j, h, e)] +=
            ds * q.values[at.query(s, t, h, e)];
      }
    }
  });
}

/// Attention inside windows of a grid.
struct WindowHeads {
  int64_t samples, windows, positions, heads, size, window, across, shift;
  template <typename OpTy>
  WindowHeads(OpTy op, const Tensor &q)
      : samples(q.shape[0]), windows(q.shape[1]), positions(q.shape[2]),
        heads(q.shape[3]), size(q.shape[4]), window(op.getWindow()),
        across(op.getAcross()), shift(op.getShift()) {}
  int64_t element(int64_t n, int64_t t, int64_t h, int64_t e) const {
    return ((n * positions + t) * heads + h) * size + e;
  }
  int64_t row(int64_t n, int64_t h, int64_t t) const {
    return (n * heads + h) * positions + t;
  }
  int64_t tablePlace(int64_t h, int64_t t, int64_t at) const {
    int64_t down = t / window - at / window + window - 1;
    int64_t right = t % window - at % window + window - 1;
    return (down * (2 * window - 1) + right) * heads + h;
  }
  /// Where the paper's figure 4 has different colours: in the grid as turned,
  /// rows and columns of its last `shift` come from the other end.
  bool together(int64_t n, int64_t t, int64_t at) const {
    int64_t number = n % windows, down = windows / across;
    auto region = [&](int64_t position) {
      int64_t i = number / across * window + position / window;
      int64_t j = number % across * window + position % window;
      return std::pair(i >= down * window - shift,
                       j >= across * window - shift);
    };
    return region(t) == region(at);
  }
  double score(const Tensor &q, const Tensor &k, const Tensor &table,
               double scale, int64_t n, int64_t h, int64_t t,
               int64_t at) const {
    double sum = 0;
    for (int64_t e = 0; e < size; ++e)
      sum += q.values[element(n, t, h, e)] * k.values[element(n, at, h, e)];
    return scale * sum + table.values[tablePlace(h, t, at)] -
           (together(n, t, at) ? 0 : 100);
  }
  int64_t maskRow(const Context &context, Rank rank, int64_t n, int64_t h,
                  int64_t t) const {
    int64_t head = rank.index * heads + h, all = rank.count * heads;
    return ((context.firstSample * windows + n) * all + head) * positions + t;
  }
  /// `n` counts the windows of all samples.
  template <typename Visit> void forEachRow(Visit visit) const {
    for (int64_t n = 0; n < samples * windows; ++n)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < positions; ++t)
          visit(n, h, t);
  }
};

void windowAttention(nn::WindowAttentionOp op, Operands in, Results out,
                     const Context &context, Rank rank) {
  const Tensor &q = *in[0], &k = *in[1], &v = *in[2], &table = *in[3];
  WindowHeads at(op, q);
  double scale = op.getScale().convertToDouble();
  DropoutMask mask(context, op.getDropout().convertToDouble(), op.getOpIndex());
  at.forEachRow([&](int64_t n, int64_t h, int64_t t) {
    double sum = 0;
    std::vector<double> weights(at.positions);
    for (int64_t j = 0; j < at.positions; ++j)
      sum += weights[j] = std::exp(at.score(q, k, table, scale, n, h, t, j));
    out[1].values[at.row(n, h, t)] = std::log(sum);
    for (int64_t j = 0; j < at.positions; ++j) {
      double m = mask(at.maskRow(context, rank, n, h, t), j);
      for (int64_t e = 0; e < at.size; ++e)
        out[0].values[at.element(n, t, h, e)] +=
            weights[j] / sum * m * v.values[at.element(n, j, h, e)];
    }
  });
}

void windowAttentionGrad(nn::WindowAttentionGradOp op, Operands in, Results out,
                         const Context &context, Rank rank) {
  const Tensor &q = *in[0], &k = *in[1], &v = *in[2], &o = *in[3],
               &lse = *in[4], &dout = *in[5], &table = *in[6];
  WindowHeads at(op, q);
  double scale = op.getScale().convertToDouble();
  DropoutMask mask(context, op.getDropout().convertToDouble(), op.getOpIndex());
  at.forEachRow([&](int64_t n, int64_t h, int64_t t) {
    double delta = 0;
    for (int64_t e = 0; e < at.size; ++e)
      delta += dout.values[at.element(n, t, h, e)] *
               o.values[at.element(n, t, h, e)];
    for (int64_t j = 0; j < at.positions; ++j) {
      double p = std::exp(at.score(q, k, table, scale, n, h, t, j) -
                          lse.values[at.row(n, h, t)]);
      double m = mask(at.maskRow(context, rank, n, h, t), j), dp = 0;
      for (int64_t e = 0; e < at.size; ++e) {
        double g = dout.values[at.element(n, t, h, e)];
        dp += m * g * v.values[at.element(n, j, h, e)];
        out[2].values[at.element(n, j, h, e)] += p * m * g;
      }
      double ds = p * (dp - delta);
      out[3].values[at.tablePlace(h, t, j)] += ds;
      for (int64_t e = 0; e < at.size; ++e) {
        out[0].values[at.element(n, t, h, e)] +=
            scale * ds * k.values[at.element(n, j, h, e)];
        out[1].values[at.element(n, j, h, e)] +=
            scale * ds * q.values[at.element(n, t, h, e)];
      }
    }
  });
}

} // namespace

void ::galvatron::reference::addAttentionEvaluators(
    llvm::StringMap<Evaluator> &table) {
  add<nn::WindowAttentionOp>(table, windowAttention);
  add<nn::WindowAttentionGradOp>(table, windowAttentionGrad);
  add<nn::GroupedAttentionOp>(table, groupedAttention);
  add<nn::GroupedAttentionGradOp>(table, groupedAttentionGrad);
  add<nn::AttentionOp>(table, attention);
  add<nn::AttentionGradOp>(table, attentionGrad);
}
