//===- KeptOperations.cpp - Recomputation by kinds of operations ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rule of torchtitan 0.3.0 (torchtitan/distributed/
// activation_checkpoint.py, SelectiveAC): results of attention, of products and
// of reduce-scatters are saved, but of every second product not; it counts
// products in the order in which a block computes them.
//
//===----------------------------------------------------------------------===//

#include "KeptOperations.h"

#include "llvm/ADT/SmallVector.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {
namespace {

constexpr double kHalfBytes = 2; ///< bytes of a 16-bit value

/// A matrix product of a block.
struct BlockProduct {
  double inputs, outputs; ///< elements of a token
  /// Ranks of TP have a part each of its inputs, and sum the results; else they
  /// have a part each of its outputs.
  bool sums;
};

/// The products of a block in their order.
SmallVector<BlockProduct, 8> productsOf(const ModelShape &shape,
                                        bool fusesQueries) {
  const double h = double(shape.hidden), q = double(shape.queries()),
               kv = double(shape.keys()), f = double(shape.inner);
  SmallVector<BlockProduct, 8> products;
  if (fusesQueries)
    products.push_back({h, q + 2 * kv, false});
  else
    products.append({{h, q, false}, {h, kv, false}, {h, kv, false}});
  products.push_back({q, h, true});
  for (int64_t into = 1; into < shape.matrices(); ++into)
    products.push_back({h, f, false});
  products.push_back({f, h, true});
  return products;
}

} // namespace

void keepOperations(ProfileLayer &block, const ModelShape &shape,
                    const Configuration &configuration,
                    const Execution &execution) {
  const double ranks = double(configuration.tensor);
  const double t = double(shape.tokens) / double(configuration.context);
  const bool cutsRows = configuration.sequenceParallel && ranks > 1;
  // A compiled backward pass keeps and computes only what it reads: nothing
  // reads the last product's result, nor one behind which a sum is kept.
  const bool compiled = execution.fusesNorms;
  double again = 0, weights = 0;                        // elements of matrices
  double kept = t * double(shape.queries()), whole = 0; // whole: on every rank
  int64_t savedKernels = 1;
  const auto products = productsOf(shape, execution.fusesQueries);
  for (size_t i = 0; i < products.size(); ++i) {
    const BlockProduct &product = products[i];
    const bool last = i + 1 == products.size();
    const double size = product.inputs * product.outputs;
    weights += size;
    if (product.sums && cutsRows && !(last && compiled))
      kept += t * product.outputs;
    const bool isSaved = i % 2 == 0;
    savedKernels += isSaved;
    if (isSaved) {
      if (!product.sums)
        kept += t * product.outputs;
      else if (!(last && compiled))
        whole += t * product.outputs;
    } else if (!(compiled && product.sums && (last || cutsRows))) {
      again += size;
    }
  }
  // Attention keeps the logarithm of a sum in f32 for each row of its scores.
  const double bytes = kHalfBytes * kept + 4 * t * double(shape.heads);
  auto ofRank = [&](double all, double replicated) {
    return replicated + (all - replicated) / ranks;
  };
  const double before =
      ofRank(double(block.intermediateBytes), double(block.tpReplicatedBytes));
  block.tpReplicatedBytes = int64_t(kHalfBytes * whole);
  block.intermediateBytes = int64_t(bytes) + block.tpReplicatedBytes;
  block.again.bytes =
      int64_t(std::max(before - ofRank(double(block.intermediateBytes),
                                       double(block.tpReplicatedBytes)),
                       0.0));
  block.again.flops = block.forwardFlops * again / weights / ranks;
  block.again.movedBytes = ofRank(block.forwardMovedBytes,
                                  std::max(block.tpReplicatedMovedBytes, 0.0));
  block.again.kernels =
      std::max<int64_t>(block.forwardKernels - savedKernels, 0);
  // Rows are gathered again, but not cut and summed; whole sums are made again
  // where something reads them.
  if (ranks > 1)
    block.again.tpAllReduceBytes = cutsRows || compiled
                                       ? block.tpAllReduceBytes / 2
                                       : block.tpAllReduceBytes;
}

void recomputeModulesOf(ProfileLayer &block, const ModelShape &shape,
                        const Configuration &configuration,
                        const Execution &execution) {
  const double ranks = double(configuration.tensor);
  const double t = double(shape.tokens) / double(configuration.context);
  const double h = double(shape.hidden);
  const bool cutsRows = configuration.sequenceParallel && ranks > 1;
  const double rowRanks = cutsRows ? ranks : 1;
  double dropped = 0; // bytes of all ranks
  if (configuration.modules.norms) {
    // Both results are of all ranks unless rows are cut.
    const double results = kHalfBytes * 2 * t * h;
    dropped += results;
    if (!cutsRows)
      block.tpReplicatedBytes -= int64_t(results);
    block.again.bytes += int64_t(results / rowRanks);
    block.again.movedBytes +=
        kHalfBytes * (4 + (execution.fusesNorms ? 0 : 2 * kUnfusedNorm)) * t *
        h / rowRanks;
    block.again.kernels += 2;
  }
  if (configuration.modules.mlp) {
    // What goes into the activation and what comes out, and the products
    // around it with what they send, the last one's sum too: a checkpoint
    // knows nothing of who reads what.
    const double matrices = double(shape.matrices()),
                 wide = t * double(shape.inner) * (matrices - 1);
    dropped += 2 * kHalfBytes * wide;
    block.again.bytes += int64_t(2 * kHalfBytes * wide / ranks);
    block.again.flops += block.forwardFlops * matrices * h *
                         double(shape.inner) / double(shape.blockWeights()) /
                         ranks;
    block.again.movedBytes += kHalfBytes * 2 * wide / ranks;
    block.again.kernels += int64_t(matrices) + 1;
    if (ranks > 1)
      block.again.tpAllReduceBytes += block.tpAllReduceBytes / 2;
  }
  block.intermediateBytes -= int64_t(dropped);
}

} // namespace galvatron
