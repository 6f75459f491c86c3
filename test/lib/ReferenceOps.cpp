//===- ReferenceOps.cpp - nn operations with plain loops ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Written from the definitions in NNOps.td and from grt/abi.h where they speak
// of ranks and of random numbers, not from any kernel.
//
//===----------------------------------------------------------------------===//

#include "ReferenceOps.h"
#include "ReferenceTools.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include <cmath>
#include <complex>
#include <numeric>

using namespace galvatron::reference;
using namespace mlir;

namespace {

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

template <typename OpTy>
void dropout(OpTy op, const Tensor &x, Tensor &y, const Context &context,
             int64_t columnShard) {
  DropoutMask mask(context, op.getP().convertToDouble(), op.getOpIndex());
  int64_t columns = x.last(), samples = x.shape[0];
  int64_t rows = samples == 0 ? 0 : x.size() / columns / samples;
  int64_t firstColumn = columnShard * columns;
  for (int64_t r = 0; r < samples * rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y.values[r * columns + c] =
          x.values[r * columns + c] *
          mask(context.firstSample * rows + r, firstColumn + c);
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

/// Calls `visit(row, local table row)` for every token of this rank's shard.
void forEachToken(const Tensor &tokens, const Tensor &table, bool sharded,
                  Rank rank, llvm::function_ref<void(int64_t, int64_t)> visit) {
  int64_t rows = table.shape[0];
  int64_t first = sharded ? rank.index * rows : 0;
  for (int64_t r = 0; r < tokens.size(); ++r) {
    int64_t local = int64_t(tokens.values[r]) - first;
    if (local >= 0 && local < rows)
      visit(r, local);
  }
}

void embedding(nn::EmbeddingOp op, Operands in, Results out, const Context &,
               Rank rank) {
  int64_t width = in[1]->last();
  forEachToken(
      *in[0], *in[1], op.getSharded(), rank, [&](int64_t r, int64_t token) {
        for (int64_t c = 0; c < width; ++c)
          out[0].values[r * width + c] = in[1]->values[token * width + c];
      });
}

void embeddingGrad(nn::EmbeddingGradOp op, Operands in, Results out,
                   const Context &, Rank rank) {
  int64_t width = in[1]->last();
  forEachToken(
      *in[0], *in[2], op.getSharded(), rank, [&](int64_t r, int64_t token) {
        if (op.getPadding() && in[0]->values[r] == double(*op.getPadding()))
          return;
        for (int64_t c = 0; c < width; ++c)
          out[0].values[token * width + c] += in[1]->values[r * width + c];
      });
}

/// Where element `i` of `x` has its own in a table of positions, which count
/// from `starts` unless that is null.
int64_t placeInTable(const Tensor &x, const Tensor *starts, int64_t first,
                     int64_t i) {
  int64_t width = x.shape[2], token = i / width;
  int64_t position = token % x.shape[1];
  if (starts)
    position -= int64_t(starts->values[token]);
  return (first + position) * width + i % width;
}

void positionAdd(nn::PositionAddOp op, Operands in, Results out,
                 const Context &, Rank) {
  const Tensor *starts = op.getStarts() ? in.back() : nullptr;
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] =
        in[0]->values[i] +
        in[1]->values[placeInTable(*in[0], starts, op.getFirst(), i)];
}

void positionGrad(nn::PositionGradOp op, Operands in, Results out,
                  const Context &, Rank) {
  const Tensor *starts = op.getStarts() ? in.back() : nullptr;
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[placeInTable(*in[0], starts, op.getFirst(), i)] +=
        in[0]->values[i];
}

//===----------------------------------------------------------------------===//
// Positions of images
//===----------------------------------------------------------------------===//

void patches(nn::PatchesOp op, Operands in, Results out, const Context &,
             Rank) {
  const Tensor &images = *in[0];
  int64_t channels = images.shape[1], height = images.shape[2],
          width = images.shape[3];
  int64_t rows = op.getRows(), columns = op.getColumns();
  int64_t down = (height + (op.getPad() ? rows - 1 : 0)) / rows;
  int64_t across = (width + (op.getPad() ? columns - 1 : 0)) / columns;
  int64_t count = down * across, patch = channels * rows * columns;
  // From the pixel to where it goes.
  for (int64_t i = 0; i < images.size(); ++i) {
    int64_t column = i % width, row = i / width % height;
    int64_t channel = i / width / height % channels;
    int64_t sample = i / width / height / channels;
    if (row / rows >= down || column / columns >= across)
      continue;
    int64_t place = row / rows * across + column / columns;
    int64_t inside = (channel * rows + row % rows) * columns + column % columns;
    out[0].values[(sample * count + place) * patch + inside] = images.values[i];
  }
}

void prepend(nn::PrependOp, Operands in, Results out, const Context &, Rank) {
  int64_t positions = out[0].shape[1], width = out[0].last();
  for (int64_t i = 0; i < out[0].size(); ++i) {
    int64_t row = i / width, position = row % positions;
    int64_t source = (row - row / positions - 1) * width + i % width;
    out[0].values[i] =
        position == 0 ? in[1]->values[i % width] : in[0]->values[source];
  }
}

void prependGrad(nn::PrependGradOp, Operands in, Results out, const Context &,
                 Rank) {
  int64_t positions = in[0]->shape[1], width = in[0]->last(), next = 0;
  for (int64_t i = 0; i < in[0]->size(); ++i) {
    if (i / width % positions == 0)
      out[1].values[i % width] += in[0]->values[i];
    else
      out[0].values[next++] = in[0]->values[i];
  }
}

void take(nn::TakeOp op, Operands in, Results out, const Context &, Rank) {
  int64_t positions = in[0]->shape[1], width = in[0]->last();
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].values[i] =
        in[0]->values[(i / width * positions + op.getPosition()) * width +
                      i % width];
}

void takeGrad(nn::TakeGradOp op, Operands in, Results out, const Context &,
              Rank) {
  int64_t positions = out[0].shape[1], width = out[0].last();
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[(i / width * positions + op.getPosition()) * width +
                  i % width] = in[0]->values[i];
}

/// Calls `visit(element of the rows, element of the mean, factor)`.
void forEachOfMean(const Tensor &whole, bool besideFirst,
                   llvm::function_ref<void(int64_t, int64_t, double)> visit) {
  int64_t positions = whole.shape[1], width = whole.last();
  int64_t parts = besideFirst ? 2 : 1;
  for (int64_t i = 0; i < whole.size(); ++i) {
    bool isFirst = besideFirst && i / width % positions == 0;
    int64_t part = besideFirst && !isFirst ? 1 : 0;
    visit(i, (i / width / positions * parts + part) * width + i % width,
          isFirst ? 1 : 1 / double(positions - parts + 1));
  }
}

void mean(nn::MeanOp op, Operands in, Results out, const Context &, Rank) {
  forEachOfMean(*in[0], op.getBesideFirst(),
                [&](int64_t from, int64_t to, double factor) {
                  out[0].values[to] += in[0]->values[from] * factor;
                });
}

void meanGrad(nn::MeanGradOp op, Operands in, Results out, const Context &,
              Rank) {
  forEachOfMean(out[0], op.getBesideFirst(),
                [&](int64_t to, int64_t from, double factor) {
                  out[0].values[to] = in[0]->values[from] * factor;
                });
}

void transpose(nn::TransposeOp, Operands in, Results out, const Context &,
               Rank) {
  int64_t columns = in[0]->last(), rows = out[0].last();
  for (int64_t i = 0; i < in[0]->size(); ++i) {
    int64_t matrix = i / columns / rows, row = i / columns % rows;
    out[0].values[(matrix * columns + i % columns) * rows + row] =
        in[0]->values[i];
  }
}

/// Calls `visit(element of the whole, element of this rank's part)`.
void forEachOfPart(const Tensor &whole, const Tensor &part, int64_t dim,
                   int64_t ranks, Rank rank,
                   llvm::function_ref<void(int64_t, int64_t)> visit) {
  int64_t own = part.shape[dim], all = whole.shape[dim], inner = 1;
  for (size_t i = size_t(dim) + 1; i < part.shape.size(); ++i)
    inner *= part.shape[i];
  int64_t first = rank.index / ranks * own;
  for (int64_t i = 0; i < part.size(); ++i) {
    int64_t outer = i / inner / own, at = i / inner % own;
    visit((outer * all + first + at) * inner + i % inner, i);
  }
}

void ownPart(nn::OwnPartOp op, Operands in, Results out, const Context &,
             Rank rank) {
  forEachOfPart(*in[0], out[0], int64_t(op.getDim()), int64_t(op.getRanks()),
                rank, [&](int64_t whole, int64_t part) {
                  out[0].values[part] = in[0]->values[whole];
                });
}

void ownPartGrad(nn::OwnPartGradOp op, Operands in, Results out,
                 const Context &, Rank rank) {
  forEachOfPart(out[0], *in[0], int64_t(op.getDim()), int64_t(op.getRanks()),
                rank, [&](int64_t whole, int64_t part) {
                  out[0].values[whole] = in[0]->values[part];
                });
}

/// From a place in the grid to the one in its windows.
template <typename OpTy>
void forEachInGrid(
    OpTy op, int64_t samples, int64_t width,
    llvm::function_ref<void(int64_t grid, int64_t windows)> visit) {
  int64_t rows = op.getRows(), columns = op.getColumns(), w = op.getWindow();
  int64_t down = (rows + w - 1) / w, across = (columns + w - 1) / w;
  for (int64_t s = 0; s < samples; ++s)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        // Turning takes what stood at the shift to the beginning.
        int64_t i = (row + down * w - int64_t(op.getShift())) % (down * w);
        int64_t j =
            (column + across * w - int64_t(op.getShift())) % (across * w);
        int64_t inside = op.getMerge() ? j % w * w + i % w : i % w * w + j % w;
        int64_t window = (s * down + i / w) * across + j / w;
        for (int64_t c = 0; c < width; ++c)
          visit(((s * rows + row) * columns + column) * width + c,
                (window * w * w + inside) * width + c);
      }
}

void windows(nn::WindowsOp op, Operands in, Results out, const Context &,
             Rank) {
  forEachInGrid(op, in[0]->shape[0], in[0]->last(),
                [&](int64_t grid, int64_t windows) {
                  out[0].values[windows] = in[0]->values[grid];
                });
}

void joinWindows(nn::JoinWindowsOp op, Operands in, Results out,
                 const Context &, Rank) {
  forEachInGrid(op, out[0].shape[0], out[0].last(),
                [&](int64_t grid, int64_t windows) {
                  out[0].values[grid] = in[0]->values[windows];
                });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Element (in, out) of a weight.
struct Weight {
  int64_t ins, outs;
  bool transposed;
  int64_t at(int64_t in, int64_t out) const {
    return transposed ? out * ins + in : in * outs + out;
  }
};

void multiply(const Tensor &x, const Tensor &w, bool transposed,
              const Tensor *bias, Tensor &y) {
  int64_t ins = x.last();
  Weight weight{ins, w.size() / ins, transposed};
  for (int64_t r = 0; r < x.size() / ins; ++r)
    for (int64_t o = 0; o < weight.outs; ++o) {
      double sum = bias ? bias->values[o] : 0;
      for (int64_t i = 0; i < ins; ++i)
        sum += x.values[r * ins + i] * w.values[weight.at(i, o)];
      y.values[r * weight.outs + o] = sum;
    }
}

void multiplyInputGrad(const Tensor &dy, const Tensor &w, bool transposed,
                       Tensor &dx) {
  int64_t ins = dx.last();
  Weight weight{ins, w.size() / ins, transposed};
  for (int64_t r = 0; r < dy.size() / weight.outs; ++r)
    for (int64_t i = 0; i < ins; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < weight.outs; ++o)
        sum += dy.values[r * weight.outs + o] * w.values[weight.at(i, o)];
      dx.values[r * ins + i] = sum;
    }
}

void multiplyWeightGrad(const Tensor &x, const Tensor &dy, bool transposed,
                        Tensor &dw) {
  int64_t ins = x.last();
  Weight weight{ins, dw.size() / ins, transposed};
  for (int64_t r = 0; r < x.size() / ins; ++r)
    for (int64_t i = 0; i < ins; ++i)
      for (int64_t o = 0; o < weight.outs; ++o)
        dw.values[weight.at(i, o)] +=
            x.values[r * ins + i] * dy.values[r * weight.outs + o];
}

void linear(nn::LinearOp op, Operands in, Results out, const Context &, Rank) {
  multiply(*in[0], *in[1], op.getTransposeWeight(),
           in.size() > 2 ? in[2] : nullptr, out[0]);
}

void linearInputGrad(nn::LinearInputGradOp op, Operands in, Results out,
                     const Context &, Rank) {
  multiplyInputGrad(*in[0], *in[1], op.getTransposeWeight(), out[0]);
}

void linearWeightGrad(nn::LinearWeightGradOp op, Operands in, Results out,
                      const Context &, Rank) {
  multiplyWeightGrad(*in[0], *in[1], op.getTransposeWeight(), out[0]);
}

void linearWeightBiasGrad(nn::LinearWeightBiasGradOp, Operands in, Results out,
                          const Context &, Rank) {
  multiplyWeightGrad(*in[0], *in[1], /*transposed=*/false, out[0]);
  for (int64_t i = 0; i < in[1]->size(); ++i)
    out[1].values[i % out[1].size()] += in[1]->values[i];
}

void biasAdd(nn::BiasAddOp, Operands in, Results out, const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = in[0]->values[i] + in[1]->values[i % in[1]->size()];
}

void biasGrad(nn::BiasGradOp, Operands in, Results out, const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i % out[0].size()] += in[0]->values[i];
}

//===----------------------------------------------------------------------===//
// Rows and elements
//===----------------------------------------------------------------------===//

/// `beta` is null: there is none.
void normalize(const Tensor &x, const Tensor &gamma, const Tensor *beta,
               double eps, Tensor &y, Tensor &stats) {
  int64_t n = x.last();
  for (int64_t r = 0; r < x.size() / n; ++r) {
    const double *row = &x.values[r * n];
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < n; ++c)
      mean += row[c] / double(n);
    for (int64_t c = 0; c < n; ++c)
      variance += (row[c] - mean) * (row[c] - mean) / double(n);
    double inverse = 1 / std::sqrt(variance + eps);
    for (int64_t c = 0; c < n; ++c)
      y.values[r * n + c] = (row[c] - mean) * inverse * gamma.values[c] +
                            (beta ? beta->values[c] : 0);
    stats.values[2 * r] = mean;
    stats.values[2 * r + 1] = inverse;
  }
}

void layerNorm(nn::LayerNormOp op, Operands in, Results out, const Context &,
               Rank) {
  normalize(*in[0], *in[1], op.getBeta() ? in[2] : nullptr,
            op.getEps().convertToDouble(), out[0], out[1]);
}

// With g = dy * gamma and h = (x - mean) * inverse:
// dx = inverse * (g - mean(g) - h * mean(g * h)).
void normalizeGrad(Operands in, Results out) {
  const Tensor &dy = *in[0], &x = *in[1], &stats = *in[2], &gamma = *in[3];
  int64_t n = x.last();
  for (int64_t r = 0; r < x.size() / n; ++r) {
    double mean = stats.values[2 * r], inverse = stats.values[2 * r + 1];
    double meanG = 0, meanGH = 0;
    for (int64_t c = 0; c < n; ++c) {
      double d = dy.values[r * n + c];
      double h = (x.values[r * n + c] - mean) * inverse;
      meanG += d * gamma.values[c] / double(n);
      meanGH += d * gamma.values[c] * h / double(n);
      out[1].values[c] += d * h;
      if (out.size() > 2)
        out[2].values[c] += d;
    }
    for (int64_t c = 0; c < n; ++c) {
      double g = dy.values[r * n + c] * gamma.values[c];
      double h = (x.values[r * n + c] - mean) * inverse;
      out[0].values[r * n + c] = inverse * (g - meanG - h * meanGH);
    }
  }
}

void layerNormGrad(nn::LayerNormGradOp, Operands in, Results out,
                   const Context &, Rank) {
  normalizeGrad(in, out);
}

/// The weights of a norm that has none.
Tensor onesFor(const Tensor &x) {
  Tensor gamma;
  gamma.shape = {x.last()};
  gamma.values.assign(size_t(x.last()), 1);
  return gamma;
}

void standardize(nn::StandardizeOp op, Operands in, Results out,
                 const Context &, Rank) {
  normalize(*in[0], onesFor(*in[0]), nullptr, op.getEps().convertToDouble(),
            out[0], out[1]);
}

void standardizeGrad(nn::StandardizeGradOp, Operands in, Results out,
                     const Context &, Rank) {
  Tensor gamma = onesFor(*in[1]);
  const Tensor *all[] = {in[0], in[1], in[2], &gamma};
  Tensor results[2];
  results[0] = out[0];
  results[1].shape = gamma.shape;
  results[1].values.assign(gamma.values.size(), 0);
  normalizeGrad(all, results);
  out[0] = results[0];
}

void layerNormAddGrad(nn::LayerNormAddGradOp, Operands in, Results out,
                      const Context &, Rank) {
  normalizeGrad(in, out);
  for (int64_t i = 0; i < in[4]->size(); ++i)
    out[0].values[i] += in[4]->values[i];
}

void rmsNorm(nn::RMSNormOp op, Operands in, Results out, const Context &,
             Rank) {
  const Tensor &x = *in[0], &gamma = *in[1];
  double offset = op.getUnitOffset() ? 1 : 0;
  int64_t n = gamma.size();
  for (int64_t r = 0; r < x.size() / n; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < n; ++c)
      squares += x.values[r * n + c] * x.values[r * n + c] / double(n);
    double inverse = 1 / std::sqrt(squares + op.getEps().convertToDouble());
    out[1].values[r] = inverse;
    for (int64_t c = 0; c < n; ++c)
      out[0].values[r * n + c] =
          (gamma.values[c] + offset) * (x.values[r * n + c] * inverse);
  }
}

// With g = dy * gamma and h = x * inverse: dx = inverse * (g - h * mean(g *
// h)).
void rmsNormGrad(nn::RMSNormGradOp op, Operands in, Results out,
                 const Context &, Rank) {
  const Tensor &dy = *in[0], &x = *in[1], &stats = *in[2], &gamma = *in[3];
  double offset = op.getUnitOffset() ? 1 : 0;
  int64_t n = gamma.size();
  for (int64_t r = 0; r < x.size() / n; ++r) {
    double inverse = stats.values[r], mean = 0;
    for (int64_t c = 0; c < n; ++c) {
      double h = x.values[r * n + c] * inverse;
      mean += dy.values[r * n + c] * (gamma.values[c] + offset) * h / double(n);
      out[1].values[c] += dy.values[r * n + c] * h;
    }
    for (int64_t c = 0; c < n; ++c)
      out[0].values[r * n + c] =
          inverse * (dy.values[r * n + c] * (gamma.values[c] + offset) -
                     x.values[r * n + c] * inverse * mean);
  }
}

// Pairs as complex numbers, times factor * e^(i angle).
void rotary(nn::RotaryOp op, Operands in, Results out, const Context &, Rank) {
  const Tensor &x = *in[0];
  int64_t positions = x.shape[1], heads = x.shape[2], size = x.shape[3];
  ArrayRef<double> frequencies = op.getFrequencies();
  int64_t pairs = int64_t(frequencies.size());
  double factor = op.getFactor().convertToDouble();
  out[0].values = x.values;
  for (int64_t row = 0; row < x.size() / size; ++row)
    for (int64_t i = 0; i < pairs; ++i) {
      int64_t place = row / heads;
      double position =
          in.size() > 1 ? in[1]->values[place] : double(place % positions);
      double angle = position * frequencies[i];
      std::complex<double> turn =
          std::polar(factor, op.getInverse() ? -angle : angle);
      int64_t at = row * size + (op.getInterleaved() ? 2 * i : i);
      int64_t other = at + (op.getInterleaved() ? 1 : pairs);
      std::complex<double> z(x.values[at], x.values[other]);
      out[0].values[at] = (z * turn).real();
      out[0].values[other] = (z * turn).imag();
    }
}

void gatedSilu(nn::GatedSiluOp, Operands in, Results out, const Context &,
               Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i) {
    double gate = in[0]->values[i];
    out[0].values[i] = gate / (1 + std::exp(-gate)) * in[1]->values[i];
  }
}

void gatedSiluGrad(nn::GatedSiluGradOp, Operands in, Results out,
                   const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i) {
    double gate = in[0]->values[i], up = in[1]->values[i];
    double dy = in[2]->values[i], s = 1 / (1 + std::exp(-gate));
    out[0].values[i] = dy * up * (s + gate * s * (1 - s));
    out[1].values[i] = dy * gate * s;
  }
}

constexpr double kPi = 3.14159265358979323846;
const double kGeluFactor = std::sqrt(2 / kPi);
constexpr double kGeluCubic = 0.044715;

double gelu(double x, bool approximate) {
  if (approximate)
    return 0.5 * x *
           (1 + std::tanh(kGeluFactor * (x + kGeluCubic * x * x * x)));
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}

double geluDerivative(double x, bool approximate) {
  if (approximate) {
    double t = std::tanh(kGeluFactor * (x + kGeluCubic * x * x * x));
    double inner = kGeluFactor * (1 + 3 * kGeluCubic * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
  }
  double density = std::exp(-0.5 * x * x) / std::sqrt(2 * kPi);
  return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * density;
}

void geluForward(nn::GeluOp op, Operands in, Results out, const Context &,
                 Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = gelu(in[0]->values[i], op.getApproximate());
}

void geluGrad(nn::GeluGradOp op, Operands in, Results out, const Context &,
              Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = in[1]->values[i] *
                       geluDerivative(in[0]->values[i], op.getApproximate());
}

void gatedGelu(nn::GatedGeluOp op, Operands in, Results out, const Context &,
               Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] =
        gelu(in[0]->values[i], !op.getExact()) * in[1]->values[i];
}

void gatedGeluGrad(nn::GatedGeluGradOp op, Operands in, Results out,
                   const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i) {
    double gate = in[0]->values[i], up = in[1]->values[i];
    double dy = in[2]->values[i];
    out[0].values[i] = dy * up * geluDerivative(gate, !op.getExact());
    out[1].values[i] = dy * gelu(gate, !op.getExact());
  }
}

void relu(nn::ReluOp, Operands in, Results out, const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = std::max(in[0]->values[i], 0.0);
}

void reluGrad(nn::ReluGradOp, Operands in, Results out, const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = in[0]->values[i] > 0 ? in[1]->values[i] : 0;
}

void softCap(nn::SoftCapOp op, Operands in, Results out, const Context &,
             Rank) {
  double cap = op.getCap().convertToDouble();
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = cap * std::tanh(in[0]->values[i] / cap);
}

void softCapGrad(nn::SoftCapGradOp op, Operands in, Results out,
                 const Context &, Rank) {
  double cap = op.getCap().convertToDouble();
  for (int64_t i = 0; i < in[0]->size(); ++i) {
    double part = in[0]->values[i] / cap;
    out[0].values[i] = in[1]->values[i] * (1 - part * part);
  }
}

void clip(nn::ClipOp op, Operands in, Results out, const Context &, Rank) {
  double limit = op.getLimit().convertToDouble();
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = std::clamp(in[0]->values[i], -limit, limit);
}

void clipGrad(nn::ClipGradOp op, Operands in, Results out, const Context &,
              Rank) {
  double limit = op.getLimit().convertToDouble();
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] =
        std::abs(in[0]->values[i]) <= limit ? in[1]->values[i] : 0;
}

void columnScale(nn::ColumnScaleOp, Operands in, Results out, const Context &,
                 Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = in[0]->values[i] * in[1]->values[i % in[0]->last()];
}

void columnScaleGrad(nn::ColumnScaleGradOp, Operands in, Results out,
                     const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i % in[0]->last()] += in[0]->values[i] * in[1]->values[i];
}

void scale(nn::ScaleOp op, Operands in, Results out, const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = op.getFactor().convertToDouble() * in[0]->values[i];
}

/// Where the elements of a relative bias come from.
template <typename OpTy>
void forEachDistance(
    OpTy op, const Tensor &bias, int64_t buckets,
    llvm::function_ref<void(int64_t bucket, int64_t head, int64_t place)>
        visit) {
  int64_t heads = bias.shape[1], distances = bias.shape[2];
  for (int64_t at = 0; at < bias.size(); ++at) {
    int64_t distance = at % distances - distances / 2;
    int64_t side = buckets, first = 0, size = std::max<int64_t>(-distance, 0);
    if (op.getBidirectional()) {
      side = buckets / 2;
      first = distance > 0 ? side : 0;
      size = std::abs(distance);
    }
    int64_t near = side / 2, bucket = size;
    if (size >= near)
      bucket = std::min(
          side - 1,
          near + int64_t(std::log(double(size) / double(near)) /
                         std::log(double(op.getMaxDistance()) / double(near)) *
                         double(side - near)));
    visit(first + bucket, at / distances % heads, at);
  }
}

void relativeBias(nn::RelativeBiasOp op, Operands in, Results out,
                  const Context &, Rank) {
  forEachDistance(op, out[0], in[0]->shape[0],
                  [&](int64_t bucket, int64_t head, int64_t place) {
                    out[0].values[place] =
                        in[0]->values[bucket * in[0]->last() + head];
                  });
}

void relativeBiasGrad(nn::RelativeBiasGradOp op, Operands in, Results out,
                      const Context &, Rank) {
  forEachDistance(op, *in[0], out[0].shape[0],
                  [&](int64_t bucket, int64_t head, int64_t place) {
                    out[0].values[bucket * out[0].last() + head] +=
                        in[0]->values[place];
                  });
}

void linearGelu(nn::LinearGeluOp op, Operands in, Results out, const Context &,
                Rank) {
  multiply(*in[0], *in[1], op.getTransposeWeight(), in[2], out[0]);
  if (op.getPre())
    out[1].values = out[0].values;
  for (double &value : out[0].values)
    value = gelu(value, op.getApproximate());
}

void linearGeluGrad(nn::LinearGeluGradOp op, Operands in, Results out,
                    const Context &, Rank) {
  multiplyInputGrad(*in[0], *in[1], op.getTransposeWeight(), out[0]);
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].values[i] *= geluDerivative(in[2]->values[i], op.getApproximate());
}

void biasGelu(nn::BiasGeluOp op, Operands in, Results out, const Context &,
              Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i) {
    double pre = in[0]->values[i] + in[1]->values[i % in[1]->size()];
    out[0].values[i] = pre;
    out[1].values[i] = gelu(pre, op.getApproximate());
  }
}

void addition(nn::AddOp, Operands in, Results out, const Context &, Rank) {
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] = in[0]->values[i] + in[1]->values[i];
}

void dropoutForward(nn::DropoutOp op, Operands in, Results out,
                    const Context &context, Rank rank) {
  dropout(op, *in[0], out[0], context, op.getColSharded() ? rank.index : 0);
}

void dropPath(nn::DropPathOp op, Operands in, Results out,
              const Context &context, Rank) {
  double p = op.getRate().convertToDouble() *
             double(context.layer - int64_t(op.getFirstLayer()));
  DropoutMask mask(context, p, op.getOpIndex());
  int64_t perSample = in[0]->size() / std::max<int64_t>(in[0]->shape[0], 1);
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] =
        in[0]->values[i] * mask(context.firstSample + i / perSample, 0);
}

void dropoutAdd(nn::DropoutAddOp op, Operands in, Results out,
                const Context &context, Rank rank) {
  dropout(op, *in[0], out[0], context, op.getColSharded() ? rank.index : 0);
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] += in[1]->values[i];
}

void addLayerNorm(nn::AddLayerNormOp op, Operands in, Results out,
                  const Context &context, Rank) {
  dropout(op, *in[0], out[0], context, 0);
  for (int64_t i = 0; i < in[0]->size(); ++i)
    out[0].values[i] += in[1]->values[i];
  normalize(out[0], *in[2], in[3], op.getEps().convertToDouble(), out[1],
            out[2]);
}

//===----------------------------------------------------------------------===//
// Loss
//===----------------------------------------------------------------------===//

/// Columns of the logits that are classes: a short last shard is padded.
struct Classes {
  int64_t first, valid;
  Classes(const Tensor &logits, int64_t classes, bool sharded, Rank rank)
      : first(sharded ? rank.index * logits.last() : 0),
        valid(std::clamp<int64_t>(classes - first, 0, logits.last())) {}
  bool contains(int64_t label) const {
    return label >= first && label < first + valid;
  }
};

void rowStats(const Tensor &logits, const Tensor &labels,
              const Classes &classes, int64_t r, double *stats) {
  const double *row = &logits.values[r * logits.last()];
  int64_t label = int64_t(labels.values[r]);
  stats[0] = -INFINITY;
  for (int64_t c = 0; c < classes.valid; ++c)
    stats[0] = std::max(stats[0], row[c]);
  stats[1] = 0;
  for (int64_t c = 0; c < classes.valid; ++c)
    stats[1] += std::exp(row[c] - stats[0]);
  stats[2] = classes.contains(label) ? row[label - classes.first] : 0;
}
double rowTotal(const Tensor &logits, const Classes &classes, int64_t r) {
  const double *row = &logits.values[r * logits.last()];
  return std::accumulate(row, row + classes.valid, 0.0);
}

void softmaxStats(nn::SoftmaxStatsOp op, Operands in, Results out,
                  const Context &, Rank rank) {
  Classes classes(*in[0], op.getClasses(), /*sharded=*/true, rank);
  const int64_t width = op.getTotal() ? 4 : 3;
  for (int64_t r = 0; r < in[1]->size(); ++r) {
    double *stats = &out[0].values[width * r];
    rowStats(*in[0], *in[1], classes, r, stats);
    if (op.getTotal())
      stats[3] = rowTotal(*in[0], classes, r);
  }
}

void crossEntropy(nn::CrossEntropyOp op, Operands in, Results out,
                  const Context &context, Rank rank) {
  const Tensor &logits = *in[0], &labels = *in[1];
  bool sharded = bool(op.getStats());
  int64_t rows = labels.size(), shards = sharded ? in[2]->shape[0] : 1;
  Classes classes(logits, op.getClasses(), sharded, rank);
  const int64_t width = op.getStatistics();
  const double smoothing = op.getSmoothing().convertToDouble(),
               zLoss = op.getZLoss().convertToDouble(),
               share = smoothing / double(op.getClasses());
  for (int64_t r = 0; r < rows; ++r) {
    int64_t label = int64_t(labels.values[r]);
    if (label < 0)
      continue;
    std::vector<double> stats(width * shards);
    for (int64_t shard = 0; shard < shards; ++shard)
      if (sharded)
        std::copy_n(&in[2]->values[width * (shard * rows + r)], width,
                    &stats[width * shard]);
      else
        rowStats(logits, labels, classes, r, stats.data());
    if (!sharded && op.isRegularized())
      stats[3] = rowTotal(logits, classes, r);
    double maximum = -INFINITY, sum = 0, target = 0, total = 0;
    for (int64_t shard = 0; shard < shards; ++shard)
      maximum = std::max(maximum, stats[width * shard]);
    for (int64_t shard = 0; shard < shards; ++shard) {
      const double *of = &stats[width * shard];
      sum += of[1] * std::exp(of[0] - maximum);
      target += of[2];
      total += op.isRegularized() ? of[3] : 0;
    }
    double lse = maximum + std::log(sum);
    out[0].values[0] += lse - (1 - smoothing) * target - share * total;
    if (op.isRegularized())
      out[0].values[1] += lse * lse;
    for (int64_t c = 0; c < classes.valid; ++c) {
      double p = std::exp(logits.values[r * logits.last() + c] - lse);
      double wanted = share + (classes.first + c == label ? 1 - smoothing : 0);
      out[1].values[r * logits.last() + c] =
          (p * (1 + 2 * zLoss * lse) - wanted) * context.inverseTokens;
    }
  }
}

} // namespace

void ::galvatron::reference::addNNEvaluators(
    llvm::StringMap<Evaluator> &table) {
  addAttentionEvaluators(table);
  add<nn::EmbeddingOp>(table, embedding);
  add<nn::EmbeddingGradOp>(table, embeddingGrad);
  add<nn::PositionAddOp>(table, positionAdd);
  add<nn::PositionGradOp>(table, positionGrad);
  add<nn::PatchesOp>(table, patches);
  add<nn::PrependOp>(table, prepend);
  add<nn::PrependGradOp>(table, prependGrad);
  add<nn::TakeOp>(table, take);
  add<nn::TakeGradOp>(table, takeGrad);
  add<nn::MeanOp>(table, mean);
  add<nn::MeanGradOp>(table, meanGrad);
  add<nn::TransposeOp>(table, transpose);
  add<nn::OwnPartOp>(table, ownPart);
  add<nn::OwnPartGradOp>(table, ownPartGrad);
  add<nn::WindowsOp>(table, windows);
  add<nn::JoinWindowsOp>(table, joinWindows);
  add<nn::DropPathOp>(table, dropPath);
  add<nn::LinearOp>(table, linear);
  add<nn::LinearInputGradOp>(table, linearInputGrad);
  add<nn::LinearWeightGradOp>(table, linearWeightGrad);
  add<nn::BiasAddOp>(table, biasAdd);
  add<nn::BiasGradOp>(table, biasGrad);
  add<nn::LayerNormOp>(table, layerNorm);
  add<nn::LayerNormGradOp>(table, layerNormGrad);
  add<nn::StandardizeOp>(table, standardize);
  add<nn::StandardizeGradOp>(table, standardizeGrad);
  add<nn::AddLayerNormOp>(table, addLayerNorm);
  add<nn::LayerNormAddGradOp>(table, layerNormAddGrad);
  add<nn::RMSNormOp>(table, rmsNorm);
  add<nn::RMSNormGradOp>(table, rmsNormGrad);
  add<nn::RotaryOp>(table, rotary);
  add<nn::GatedSiluOp>(table, gatedSilu);
  add<nn::GatedSiluGradOp>(table, gatedSiluGrad);
  add<nn::GatedGeluOp>(table, gatedGelu);
  add<nn::GatedGeluGradOp>(table, gatedGeluGrad);
  add<nn::SoftCapOp>(table, softCap);
  add<nn::SoftCapGradOp>(table, softCapGrad);
  add<nn::ClipOp>(table, clip);
  add<nn::ClipGradOp>(table, clipGrad);
  add<nn::ColumnScaleOp>(table, columnScale);
  add<nn::ColumnScaleGradOp>(table, columnScaleGrad);
  add<nn::ReluOp>(table, relu);
  add<nn::ReluGradOp>(table, reluGrad);
  add<nn::ScaleOp>(table, scale);
  add<nn::RelativeBiasOp>(table, relativeBias);
  add<nn::RelativeBiasGradOp>(table, relativeBiasGrad);
  add<nn::GeluOp>(table, geluForward);
  add<nn::GeluGradOp>(table, geluGrad);
  add<nn::BiasGeluOp>(table, biasGelu);
  add<nn::LinearGeluOp>(table, linearGelu);
  add<nn::LinearGeluGradOp>(table, linearGeluGrad);
  add<nn::LinearWeightBiasGradOp>(table, linearWeightBiasGrad);
  add<nn::DropoutOp>(table, dropoutForward);
  add<nn::DropoutAddOp>(table, dropoutAdd);
  add<nn::AddOp>(table, addition);
  add<nn::CrossEntropyOp>(table, crossEntropy);
  add<nn::SoftmaxStatsOp>(table, softmaxStats);
}
