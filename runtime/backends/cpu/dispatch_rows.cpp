//===- dispatch_rows.cpp - Calls on rows and elements ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Norms, activations, dropout, embeddings and positions, and what moves rows.
//
//===----------------------------------------------------------------------===//

#include "dispatch.h"

#include "grt/philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace grt::cpu {

bool dropoutStream(const Call &call, double p, int64_t opIndex,
                   DropoutStream &stream) {
  if (call.step().mode != GRT_MODE_TRAIN || p == 0)
    return false;
  CallReader::checkDropout(p);
  PhiloxKey key =
      dropoutKey(call.step().seed, call.step().step, call.at().layer);
  stream = {key.lo, key.hi, uint32_t(opIndex), dropoutThreshold(p),
            1.0 / (1.0 - p)};
  return true;
}

template <class T> void runBiasAdd(const Call &call) {
  using K = kernels::BiasAdd;
  const auto n = call.ints<K>();
  call.table<T>().biasAdd(call.threads(), n.rows, n.n, call.buffer<T>(K::x),
                          call.buffer<T>(K::bias), call.buffer<T>(K::y));
}

template <class T> void runBiasGrad(const Call &call) {
  using K = kernels::BiasGrad;
  const auto n = call.ints<K>();
  const bool counts = n.ofFirstBlock == 0 || call.at().block_index == 0;
  call.table<T>().biasGrad(
      call.threads(), counts ? n.rows : 0, n.n, call.buffer<T>(K::dy),
      call.buffer<Accumulator<T>>(K::dbias), call.add(n.acc));
}

template <class T> void runLayerNorm(const Call &call) {
  using K = kernels::LayerNorm;
  const auto n = call.ints<K>();
  call.table<T>().layerNorm(
      call.threads(), n.rows, n.n, call.buffer<T>(K::x),
      call.buffer<T>(K::gamma), call.buffer<T>(K::beta), call.buffer<T>(K::y),
      call.buffer<Accumulator<T>>(K::stats), call.real(K::eps));
}

template <class T> void runPlainNorm(const Call &call) {
  using K = kernels::PlainNorm;
  const auto n = call.ints<K>();
  call.table<T>().layerNorm(
      call.threads(), n.rows, n.n, call.buffer<T>(K::x), /*gamma=*/nullptr,
      /*beta=*/nullptr, call.buffer<T>(K::y),
      call.buffer<Accumulator<T>>(K::stats), call.real(K::eps));
}

template <class T> void runPlainNormGrad(const Call &call) {
  using K = kernels::PlainNormGrad;
  const auto n = call.ints<K>();
  call.table<T>().layerNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<Accumulator<T>>(K::stats), /*gamma=*/nullptr, nullptr,
      call.buffer<T>(K::dx), /*dgamma=*/nullptr, /*dbeta=*/nullptr,
      /*add=*/false);
}

template <class T> void runColumnScale(const Call &call) {
  using K = kernels::ColumnScale;
  const auto n = call.ints<K>();
  call.table<T>().columnScale(call.threads(), n.rows, n.n, call.buffer<T>(K::x),
                              call.buffer<T>(K::scale), call.buffer<T>(K::y));
}

template <class T> void runColumnScaleGrad(const Call &call) {
  using K = kernels::ColumnScaleGrad;
  const auto n = call.ints<K>();
  call.table<T>().columnScaleGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<Accumulator<T>>(K::dscale), call.add(n.acc));
}

template <class T> void runCenteredNorm(const Call &call) {
  using K = kernels::CenteredNorm;
  const auto n = call.ints<K>();
  call.table<T>().layerNorm(
      call.threads(), n.rows, n.n, call.buffer<T>(K::x),
      call.buffer<T>(K::gamma), /*beta=*/nullptr, call.buffer<T>(K::y),
      call.buffer<Accumulator<T>>(K::stats), call.real(K::eps));
}

template <class T> void runCenteredNormGrad(const Call &call) {
  using K = kernels::CenteredNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma), nullptr,
      call.buffer<T>(K::dx), call.buffer<A>(K::dgamma), /*dbeta=*/nullptr,
      call.add(n.acc));
}

template <class T> void runLayerNormGrad(const Call &call) {
  using K = kernels::LayerNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma), nullptr,
      call.buffer<T>(K::dx), call.buffer<A>(K::dgamma),
      call.buffer<A>(K::dbeta), call.add(n.acc));
}

template <class T> void runLayerNormAddGrad(const Call &call) {
  using K = kernels::LayerNormAddGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().layerNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma),
      call.buffer<T>(K::residual), call.buffer<T>(K::dx),
      call.buffer<A>(K::dgamma), call.buffer<A>(K::dbeta), call.add(n.acc));
}

template <class T> void runRmsNorm(const Call &call) {
  using K = kernels::RmsNorm;
  const auto n = call.ints<K>();
  call.table<T>().rmsNorm(call.threads(), n.rows, n.n, call.buffer<T>(K::x),
                          call.buffer<T>(K::gamma), call.buffer<T>(K::y),
                          call.buffer<Accumulator<T>>(K::stats),
                          n.unitOffset != 0, call.real(K::eps));
}

template <class T> void runRmsNormGrad(const Call &call) {
  using K = kernels::RmsNormGrad;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  call.table<T>().rmsNormGrad(
      call.threads(), n.rows, n.n, call.buffer<T>(K::dy), call.buffer<T>(K::x),
      call.buffer<A>(K::stats), call.buffer<T>(K::gamma), call.buffer<T>(K::dx),
      call.buffer<A>(K::dgamma), call.add(n.acc), n.unitOffset != 0);
}

template <class T> void runRotary(const Call &call) {
  using K = kernels::Rotary;
  const auto n = call.ints<K>();
  call.checkFrequencies(n.pairs);
  RotaryArguments a = {};
  a.samples = n.samples;
  a.positions = n.T;
  a.heads = n.heads;
  a.headDim = n.headDim;
  a.inverse = n.inverse != 0;
  a.interleaved = n.interleaved != 0;
  a.pairs = n.pairs;
  a.factor = call.real(K::factor);
  a.frequencies = call.op().reals + K::frequency;
  const T *x = call.buffer<T>(K::x);
  T *y = call.buffer<T>(K::y);
  a.each = call.buffer<const int32_t>(K::positions, n.hasPositions);
  if (n.length == 0)
    return call.table<T>().rotary(call.threads(), a, x, y);
  call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
    a.positions = run.count;
    a.firstPosition = run.first;
    const int64_t place = run.row * n.heads * n.headDim;
    call.table<T>().rotary(call.threads(), a, x + place, y + place);
  });
}

template <class T> void runGatedSilu(const Call &call) {
  using K = kernels::GatedSilu;
  const auto n = call.ints<K>();
  call.table<T>().gatedSilu(call.threads(), n.n, call.buffer<T>(K::gate),
                            call.buffer<T>(K::up), call.buffer<T>(K::y));
}

template <class T> void runGatedSiluGrad(const Call &call) {
  using K = kernels::GatedSiluGrad;
  const auto n = call.ints<K>();
  call.table<T>().gatedSiluGrad(
      call.threads(), n.n, call.buffer<T>(K::gate), call.buffer<T>(K::up),
      call.buffer<T>(K::dy), call.buffer<T>(K::dgate), call.buffer<T>(K::dup));
}

template <class T> void runRelu(const Call &call) {
  using K = kernels::Relu;
  const auto n = call.ints<K>();
  call.table<T>().relu(call.threads(), n.n, call.buffer<T>(K::x),
                       call.buffer<T>(K::y));
}

template <class T> void runReluGrad(const Call &call) {
  using K = kernels::ReluGrad;
  const auto n = call.ints<K>();
  call.table<T>().reluGrad(call.threads(), n.n, call.buffer<T>(K::y),
                           call.buffer<T>(K::dy), call.buffer<T>(K::dx));
}

template <class T> void runSoftCap(const Call &call) {
  using K = kernels::SoftCap;
  call.checkCap(call.real(K::cap));
  call.table<T>().softCap(call.threads(), call.ints<K>().n,
                          call.buffer<T>(K::x), call.buffer<T>(K::y),
                          call.real(K::cap));
}

template <class T> void runSoftCapGrad(const Call &call) {
  using K = kernels::SoftCapGrad;
  call.checkCap(call.real(K::cap));
  call.table<T>().softCapGrad(call.threads(), call.ints<K>().n,
                              call.buffer<T>(K::y), call.buffer<T>(K::dy),
                              call.buffer<T>(K::dx), call.real(K::cap));
}

template <class T> void runRound(const Call &call) {
  using K = kernels::Round;
  call.table<T>().round(call.threads(), call.ints<K>().n,
                        call.buffer<Accumulator<T>>(K::x),
                        call.buffer<T>(K::y));
}

template <class T> void runClip(const Call &call) {
  using K = kernels::Clip;
  call.checkCap(call.real(K::limit));
  call.table<T>().clip(call.threads(), call.ints<K>().n, call.buffer<T>(K::x),
                       call.buffer<T>(K::y), call.real(K::limit));
}

template <class T> void runClipGrad(const Call &call) {
  using K = kernels::ClipGrad;
  call.checkCap(call.real(K::limit));
  call.table<T>().clipGrad(call.threads(), call.ints<K>().n,
                           call.buffer<T>(K::x), call.buffer<T>(K::dy),
                           call.buffer<T>(K::dx), call.real(K::limit));
}

template <class T> void runGatedGelu(const Call &call) {
  using K = kernels::GatedGelu;
  const auto n = call.ints<K>();
  call.table<T>().gatedGelu(call.threads(), n.n, call.buffer<T>(K::gate),
                            call.buffer<T>(K::up), call.buffer<T>(K::y),
                            /*approximate=*/n.exact == 0);
}

template <class T> void runGatedGeluGrad(const Call &call) {
  using K = kernels::GatedGeluGrad;
  const auto n = call.ints<K>();
  call.table<T>().gatedGeluGrad(
      call.threads(), n.n, call.buffer<T>(K::gate), call.buffer<T>(K::up),
      call.buffer<T>(K::dy), call.buffer<T>(K::dgate), call.buffer<T>(K::dup),
      /*approximate=*/n.exact == 0);
}

template <class T> void runGelu(const Call &call) {
  using K = kernels::Gelu;
  const auto n = call.ints<K>();
  call.table<T>().biasGelu(call.threads(), 1, n.n, call.buffer<T>(K::x),
                           nullptr, nullptr, call.buffer<T>(K::y),
                           n.approximate != 0);
}

template <class T> void runGeluGrad(const Call &call) {
  using K = kernels::GeluGrad;
  const auto n = call.ints<K>();
  call.table<T>().geluGrad(call.threads(), n.n, call.buffer<T>(K::x),
                           call.buffer<T>(K::dy), call.buffer<T>(K::dx),
                           n.approximate != 0);
}

template <class T> void runBiasGelu(const Call &call) {
  using K = kernels::BiasGelu;
  const auto n = call.ints<K>();
  call.table<T>().biasGelu(call.threads(), n.rows, n.n, call.buffer<T>(K::x),
                           call.buffer<T>(K::bias), call.buffer<T>(K::pre),
                           call.buffer<T>(K::y), n.approximate != 0);
}

namespace {

template <class K, class T> void dropout(const Call &call, const T *residual) {
  const auto n = call.ints<K>();
  DropoutArguments a = {};
  a.rows = n.samples * n.rowsPerSample;
  a.cols = n.cols;
  const T *x = call.buffer<T>(K::x);
  T *y = call.buffer<T>(K::y);
  const int64_t elements = a.rows * a.cols;
  if (!dropoutStream(call, call.real(K::p), n.opIndex, a.stream)) {
    if (residual)
      call.table<T>().add(call.threads(), elements, x, residual, y);
    else if (x != y)
      std::memmove(y, x, size_t(elements) * sizeof(T));
    return;
  }
  a.firstColumn = n.colSharded != 0 ? uint64_t(call.at().tp_index * a.cols) : 0;
  call.forEachDropoutPiece(n, [&](int64_t row, int64_t count, uint64_t number) {
    a.rows = count;
    a.firstRow = number;
    const int64_t place = row * a.cols;
    call.table<T>().dropout(call.threads(), a, x + place,
                            residual ? residual + place : nullptr, y + place);
  });
}

} // namespace

template <class T> void runDropout(const Call &call) {
  dropout<kernels::Dropout, T>(call, nullptr);
}

template <class T> void runDropoutAdd(const Call &call) {
  using K = kernels::DropoutAdd;
  dropout<K, T>(call, call.buffer<T>(K::residual));
}

template <class T> void runAddLayerNorm(const Call &call) {
  using K = kernels::AddLayerNorm;
  const auto n = call.ints<K>();
  DropoutArguments a = {};
  a.cols = n.n;
  bool drops = dropoutStream(call, call.real(K::p), n.opIndex, a.stream);
  call.forEachDropoutPiece(n, [&](int64_t row, int64_t count, uint64_t number) {
    a.rows = count;
    a.firstRow = number;
    const int64_t place = row * a.cols;
    call.table<T>().addLayerNorm(
        call.threads(), a.rows, a.cols, drops ? &a : nullptr,
        call.buffer<T>(K::x) + place, call.buffer<T>(K::residual) + place,
        call.buffer<T>(K::gamma), call.buffer<T>(K::beta),
        call.buffer<T>(K::sum) + place, call.buffer<T>(K::y) + place,
        call.buffer<Accumulator<T>>(K::stats) + 2 * row, call.real(K::eps));
  });
}

template <class T> void runAdd(const Call &call) {
  using K = kernels::Add;
  const auto n = call.ints<K>();
  call.table<T>().add(call.threads(), n.n, call.buffer<T>(K::a),
                      call.buffer<T>(K::b), call.buffer<T>(K::y));
}

template <class T> void runScale(const Call &call) {
  using K = kernels::Scale;
  const auto n = call.ints<K>();
  call.table<T>().scale(call.threads(), n.n, call.buffer<T>(K::x),
                        call.buffer<T>(K::y), call.real(K::factor));
}

namespace {

/// Rows of the table, counted from `first`, that this rank holds.
struct TableSlice {
  int64_t first, localRows;
};

TableSlice tableSlice(const Call &call, const int32_t *tokens, int64_t rows,
                      int64_t localRows, bool sharded) {
  TableSlice slice = {sharded ? call.at().tp_index * localRows : 0, localRows};
  int64_t limit = sharded ? call.at().tp_size * localRows : localRows;
  for (int64_t r = 0; r < rows; ++r)
    if (tokens[r] < 0 || tokens[r] >= limit)
      throw CallError("token " + std::to_string(tokens[r]) + " at row " +
                      std::to_string(r) + " is not in [0, " +
                      std::to_string(limit) + ")");
  return slice;
}

} // namespace

template <class T> void runEmbedding(const Call &call) {
  using K = kernels::Embedding;
  const auto n = call.ints<K>();
  const int32_t *tokens = call.buffer<int32_t>(K::tokens);
  TableSlice slice =
      tableSlice(call, tokens, n.rows, n.localRows, n.sharded != 0);
  call.table<T>().embedding(call.threads(), n.rows, n.width, slice.first,
                            slice.localRows, tokens, call.buffer<T>(K::table),
                            call.buffer<T>(K::y));
}

template <class T> void runEmbeddingGrad(const Call &call) {
  using K = kernels::EmbeddingGrad;
  const auto n = call.ints<K>();
  call.forEachPieceOf(n.rows, n.tokenRows, n.balanced, [&](const auto &piece) {
    const int32_t *tokens = call.buffer<int32_t>(K::tokens) + piece.number;
    TableSlice slice =
        tableSlice(call, tokens, piece.count, n.localRows, n.sharded != 0);
    call.table<T>().embeddingGrad(
        call.threads(), piece.count, n.width, slice.first, slice.localRows,
        n.padding, tokens, call.buffer<T>(K::dy) + piece.row * n.width,
        call.buffer<Accumulator<T>>(K::dtable),
        piece.row > 0 || call.add(n.acc));
  });
}

template <class T> void runPositionAdd(const Call &call) {
  using K = kernels::PositionAdd;
  const auto n = call.ints<K>();
  const T *x = call.buffer<T>(K::x);
  const T *table = call.buffer<T>(K::table) + n.first * n.width;
  T *y = call.buffer<T>(K::y);
  if (n.length == 0)
    return call.table<T>().positionAdd(
        call.threads(), n.samples, n.T, n.width,
        call.buffer<const int32_t>(K::starts, n.hasStarts), x, table, y);
  call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
    call.table<T>().positionAdd(
        call.threads(), /*samples=*/1, run.count, n.width, /*starts=*/nullptr,
        x + run.row * n.width, table + run.first * n.width,
        y + run.row * n.width);
  });
}

template <class T> void runPositionGrad(const Call &call) {
  using K = kernels::PositionGrad;
  const auto n = call.ints<K>();
  auto *dtable = call.buffer<Accumulator<T>>(K::dtable);
  const int64_t before = n.first * n.width;
  if (!call.add(n.acc))
    std::fill(dtable, dtable + before, Accumulator<T>(0));
  const T *dy = call.buffer<T>(K::dy);
  if (n.length == 0)
    return call.table<T>().positionGrad(
        call.threads(), n.samples, n.T, n.width, n.tableRows - n.first,
        call.buffer<const int32_t>(K::starts, n.hasStarts), dy, dtable + before,
        call.add(n.acc));
  if (!call.add(n.acc))
    std::fill(dtable + before, dtable + n.tableRows * n.width,
              Accumulator<T>(0));
  call.forEachRowRun(n.T, n.length, n.balanced, [&](const auto &run) {
    const int64_t first = n.first + run.first;
    call.table<T>().positionGrad(call.threads(), /*samples=*/1, run.count,
                                 n.width, n.tableRows - first,
                                 /*starts=*/nullptr, dy + run.row * n.width,
                                 dtable + first * n.width, /*add=*/true);
  });
}

template <class T> void runPatches(const Call &call) {
  using K = kernels::Patches;
  const auto n = call.ints<K>();
  PatchArguments a = {n.samples,   n.channels,  n.rows,       n.cols,
                      n.patchRows, n.patchCols, n.padded != 0};
  call.table<T>().patches(call.threads(), a, call.buffer<T>(K::images),
                          call.buffer<T>(K::y));
}

template <class T> void runWindows(const Call &call) {
  using K = kernels::Windows;
  const auto n = call.ints<K>();
  WindowsArguments a = {n.samples, n.rows,  n.cols,       n.width,
                        n.window,  n.shift, n.merge != 0, n.join != 0};
  call.table<T>().windows(call.threads(), a, call.buffer<T>(K::x),
                          call.buffer<T>(K::y));
}

template <class T> void runDropPath(const Call &call) {
  using K = kernels::DropPath;
  const auto n = call.ints<K>();
  DropPathArguments a = {};
  a.samples = n.samples;
  a.elements = n.elementsPerSample;
  a.firstSample = uint64_t(call.at().first_sample);
  const T *x = call.buffer<T>(K::x);
  T *y = call.buffer<T>(K::y);
  if (dropoutStream(call, call.dropPathProbability(), n.opIndex, a.stream))
    call.table<T>().dropPath(call.threads(), a, x, y);
  else if (x != y)
    std::memmove(y, x, size_t(a.samples * a.elements) * sizeof(T));
}

template <class T> void runMean(const Call &call) {
  using K = kernels::Mean;
  const auto n = call.ints<K>();
  call.table<T>().mean(call.threads(),
                       {n.samples, n.T, n.width, n.besideFirst != 0},
                       call.buffer<T>(K::x), call.buffer<T>(K::y));
}

template <class T> void runMeanGrad(const Call &call) {
  using K = kernels::MeanGrad;
  const auto n = call.ints<K>();
  call.table<T>().meanGrad(call.threads(),
                           {n.samples, n.T, n.width, n.besideFirst != 0},
                           call.buffer<T>(K::dy), call.buffer<T>(K::dx));
}

template <class T> void runTranspose(const Call &call) {
  using K = kernels::Transpose;
  const auto n = call.ints<K>();
  call.table<T>().transpose(call.threads(), n.count, n.rows, n.cols,
                            call.buffer<T>(K::x), call.buffer<T>(K::y));
}

GRT_CPU_KERNEL(BiasAdd)
GRT_CPU_KERNEL(BiasGrad)
GRT_CPU_KERNEL(LayerNorm)
GRT_CPU_KERNEL(PlainNorm)
GRT_CPU_KERNEL(PlainNormGrad)
GRT_CPU_KERNEL(ColumnScale)
GRT_CPU_KERNEL(ColumnScaleGrad)
GRT_CPU_KERNEL(Round)
GRT_CPU_KERNEL(CenteredNorm)
GRT_CPU_KERNEL(CenteredNormGrad)
GRT_CPU_KERNEL(LayerNormGrad)
GRT_CPU_KERNEL(LayerNormAddGrad)
GRT_CPU_KERNEL(RmsNorm)
GRT_CPU_KERNEL(RmsNormGrad)
GRT_CPU_KERNEL(Rotary)
GRT_CPU_KERNEL(GatedSilu)
GRT_CPU_KERNEL(GatedSiluGrad)
GRT_CPU_KERNEL(Relu)
GRT_CPU_KERNEL(ReluGrad)
GRT_CPU_KERNEL(SoftCap)
GRT_CPU_KERNEL(SoftCapGrad)
GRT_CPU_KERNEL(Clip)
GRT_CPU_KERNEL(ClipGrad)
GRT_CPU_KERNEL(GatedGelu)
GRT_CPU_KERNEL(GatedGeluGrad)
GRT_CPU_KERNEL(Gelu)
GRT_CPU_KERNEL(GeluGrad)
GRT_CPU_KERNEL(BiasGelu)
GRT_CPU_KERNEL(Dropout)
GRT_CPU_KERNEL(DropoutAdd)
GRT_CPU_KERNEL(AddLayerNorm)
GRT_CPU_KERNEL(Add)
GRT_CPU_KERNEL(Scale)
GRT_CPU_KERNEL(Embedding)
GRT_CPU_KERNEL(EmbeddingGrad)
GRT_CPU_KERNEL(PositionAdd)
GRT_CPU_KERNEL(PositionGrad)
GRT_CPU_KERNEL(Patches)
GRT_CPU_KERNEL(Windows)
GRT_CPU_KERNEL(DropPath)
GRT_CPU_KERNEL(Mean)
GRT_CPU_KERNEL(MeanGrad)
GRT_CPU_KERNEL(Transpose)

} // namespace grt::cpu
