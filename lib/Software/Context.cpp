//===- Context.cpp - Positions cut among ranks ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Context.h"

#include <algorithm>
#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

constexpr int64_t kBytes = 2; ///< of a 16-bit value

/// Bytes of a rank's own keys and values of one micro-batch. Ranks of TP that
/// share a key head have it each.
double ownKeysAndValues(const ModelShape &shape, const Configuration &degrees) {
  double heads = std::max(double(shape.keyHeads) / double(degrees.tensor), 1.0);
  double tokens = double(shape.tokens) / double(degrees.context);
  return double(kBytes * degrees.microBatch) * 2 * tokens * heads *
         double(shape.headWidth);
}

/// Bytes of a rank's part of the queries of one micro-batch.
double ownQueries(const ModelShape &shape, const Configuration &degrees) {
  return double(kBytes * degrees.microBatch) * double(shape.tokens) /
         double(degrees.context) * double(shape.queries()) /
         double(degrees.tensor);
}

/// Bytes that a rank exchanges of a layer in a pass: queries, keys, values and
/// what attention gives. Every rank has a key head, copied where there are
/// fewer.
double exchangedBytes(const ModelShape &shape, const Configuration &degrees) {
  const double heads =
      std::max(double(shape.keyHeads) / double(degrees.tensor), 1.0);
  const double copies = std::max(double(degrees.context) / heads, 1.0);
  return 2 * ownQueries(shape, degrees) +
         copies * ownKeysAndValues(shape, degrees);
}

/// Seconds in which every rank sends an equal part of its bytes to each of the
/// others. Within a node it sends as much as in a gather of so many bytes. Of
/// nodes all ranks send at once what is for other nodes, through one network.
double exchangeSeconds(double bytes, const GroupLink &link,
                       const Configuration &degrees, const Cluster &cluster) {
  const double ranks = double(degrees.context);
  const double inNode = std::min(
      std::max(double(cluster.nodeGroups().front().devices / degrees.tensor),
               1.0),
      ranks);
  if (inNode < ranks)
    bytes *= inNode * (ranks - inNode) / (ranks - 1);
  return link.seconds(Collective::AllGather, bytes);
}

/// Seconds of a layer's attention in a forward pass of a micro-batch, with one
/// rank's part of the keys.
double attentionSeconds(const ModelShape &shape, const Configuration &degrees,
                        const Execution &execution, const Cluster &cluster,
                        StringRef dtype) {
  const DeviceType &type = cluster.deviceType(0);
  double queries = double(shape.tokens) / double(degrees.context);
  double flops = 4 * queries * queries * double(shape.queries()) *
                 double(degrees.microBatch) / double(degrees.tensor);
  // A causal kernel leaves out the half that is masked, and positions are dealt
  // so that all ranks have as much of it.
  double reached = 1;
  if (!execution.keepsScores) {
    flops *= 0.5;
    reached = execution.attentionOn(type.name);
  }
  return flops / (type.flops.at(dtype.str()) * reached);
}

} // namespace

ModelShape partOfSample(const ModelShape &shape, const Configuration &degrees) {
  ModelShape part = shape;
  part.tokens /= degrees.context;
  return part;
}

GroupLink contextLink(const Configuration &degrees, const Cluster &cluster) {
  if (degrees.context == 1)
    return {};
  std::vector<std::vector<int64_t>> groups;
  for (int64_t first = 0; first < degrees.sharing() * degrees.tensor;
       first += degrees.context * degrees.tensor)
    for (int64_t part = 0; part < degrees.tensor; ++part) {
      std::vector<int64_t> &group = groups.emplace_back();
      for (int64_t rank = 0; rank < degrees.context; ++rank)
        group.push_back(first + rank * degrees.tensor + part);
    }
  return cluster.linkOfGroups(groups);
}

ContextSeconds contextSeconds(const ModelShape &shape,
                              const Configuration &degrees,
                              const Execution &execution,
                              const Cluster &cluster, const GroupLink &link,
                              StringRef dtype) {
  if (degrees.context == 1)
    return {};
  const double ranks = double(degrees.context);
  const double own = ownKeysAndValues(shape, degrees);
  const double gather = link.seconds(Collective::AllGather, ranks * own);
  double forward = 0, backward = 0;
  switch (execution.contextWay) {
  case ContextWay::Exchange:
    // Gradients go the ways of what they are of.
    forward = backward =
        exchangeSeconds(exchangedBytes(shape, degrees), link, degrees, cluster);
    break;
  case ContextWay::Gather:
    forward = gather;
    backward = gather + link.seconds(Collective::ReduceScatter, ranks * own);
    break;
  case ContextWay::Ring: {
    // So many shifts of keys and values; their gradients go the whole way
    // round, to come home.
    const double shift = gather / (ranks - 1);
    const double work =
        attentionSeconds(shape, degrees, execution, cluster, dtype);
    constexpr double kBackward = 2.5; // five products for two
    forward = (ranks - 1) * std::max(shift - work, 0.0);
    backward = (ranks - 1) * std::max(2 * shift - kBackward * work, 0.0) +
               std::max(shift, 0.0);
  }
  }
  return {forward, backward};
}

double contextMs(const ContextSeconds &ofBlock, const Configuration &degrees) {
  if (degrees.context == 1)
    return 0;
  const auto [forward, backward] = ofBlock;
  // The busiest stage has them in every micro-batch, the others while the
  // pipeline fills and drains.
  const int64_t stages = degrees.pipeline;
  std::vector<double> seconds(size_t(stages), 0);
  for (size_t chunk = 0; chunk < degrees.blocks.size(); ++chunk) {
    int64_t blocks = degrees.blocks[chunk];
    seconds[chunk % size_t(stages)] +=
        double(blocks) * (forward + backward) +
        double(degrees.recomputedOf(blocks)) * forward;
  }
  const double most = *std::max_element(seconds.begin(), seconds.end());
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return 1e3 * (double(degrees.microBatches()) * most +
                (all - most) / double(degrees.chunks));
}

int64_t contextBytes(const ModelShape &shape, const Configuration &degrees,
                     const Execution &execution) {
  if (degrees.context == 1)
    return 0;
  // Backward keeps received values in place of sent ones, which are there
  // beside them.
  if (execution.contextWay == ContextWay::Exchange)
    return int64_t(exchangedBytes(shape, degrees));
  // Keys, values and gradients of both: of all ranks, or those that come and go
  // of a neighbour.
  bool gathers = execution.contextWay == ContextWay::Gather;
  double parts = gathers ? double(degrees.context) : 2;
  return int64_t(2 * parts * ownKeysAndValues(shape, degrees));
}

} // namespace galvatron
