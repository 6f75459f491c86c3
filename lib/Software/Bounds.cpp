//===- Bounds.cpp - What a configuration takes at least -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Bounds.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace llvm;

namespace galvatron {

/// Seconds of the all-reduces in a block's forward pass.
static double tensorSeconds(const ModelShape &shape,
                            const Configuration &degrees,
                            const Cluster &cluster) {
  if (degrees.tensor == 1)
    return 0;
  // The best placed group: stages meet links of their own. Nodes are alike, and
  // so are groups as far apart as a multiple of both sizes.
  const int64_t period =
      std::min(cluster.deviceCount(),
               degrees.tensor * cluster.nodeGroups().front().devices);
  const double bytes =
      2.0 * double(degrees.microBatch * shape.tokens * shape.hidden);
  double least = 0;
  for (int64_t first = 0; first < period; first += degrees.tensor) {
    std::vector<int64_t> group(size_t(degrees.tensor));
    std::iota(group.begin(), group.end(), first);
    double seconds =
        2 * cluster.linkOfGroups({group}).seconds(Collective::AllReduce, bytes);
    if (least == 0 || seconds < least)
      least = seconds;
  }
  return least;
}

double leastStepMs(const ModelShape &shape, const Configuration &degrees,
                   const Execution &execution, const Cluster &cluster) {
  const double t = double(shape.tokens), m = double(degrees.microBatches());
  std::string dtype = cantFail(halfTypeOf(cluster));
  const DeviceType &type = cluster.deviceType(0);
  double products = type.flops.at(dtype), attention = products;
  if (!execution.keepsScores) {
    products *= execution.productsOn(type.name);
    attention = products * execution.attentionOn(type.name);
  }
  // Forward and backward of one micro-batch, seconds.
  const double samples = double(degrees.microBatch) / double(degrees.tensor);
  const double scores =
      4 * t * t * double(shape.queries()) * (execution.keepsScores ? 1 : 0.5);
  const double passes =
      samples *
      (2 * t * double(shape.blockWeights()) / products + scores / attention);
  // What ranks of TP send stands in the way of a forward pass; of a backward
  // pass part of it may run beside the products of weights.
  const double forward = passes + tensorSeconds(shape, degrees, cluster) *
                                      (1 - execution.hiddenTensor());
  const double backward = 2 * passes, block = forward + backward;
  auto againOf = [&](int64_t blocks) {
    return forward * double(degrees.recomputedOf(blocks));
  };
  const double head = samples * 3 * 2 * t * double(shape.vocabulary) *
                      double(shape.hidden) / products;
  // Chunk c is on stage c mod P, or folded where the schedule is a V.
  const size_t stages = size_t(degrees.pipeline), count = degrees.blocks.size();
  std::vector<double> work(stages, 0);
  bool folded = degrees.schedule->name() == "zb-v";
  for (size_t chunk = 0; chunk < count; ++chunk) {
    size_t stage = chunk % stages;
    if (folded && chunk >= stages)
      stage = 2 * stages - 1 - chunk;
    work[stage] +=
        block * double(degrees.blocks[chunk]) + againOf(degrees.blocks[chunk]);
    if (chunk + 1 == count)
      work[stage] += head;
  }
  // A stage waits for the forward passes in front of it, and a step for the
  // backward passes behind its last one, unless parts of these are put off.
  StringRef schedule = degrees.schedule->name();
  bool whole = schedule == "1f1b" || schedule == "interleaved";
  double least = 0, around = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    least = std::max(least, around + m * work[stage]);
    const int64_t blocks = degrees.blocks[stage];
    around += forward * double(blocks) +
              (whole ? backward * double(blocks) + againOf(blocks) : 0);
  }
  return least * 1e3;
}

int64_t leastAllocated(const ModelShape &shape, const Configuration &degrees,
                       const Execution &execution) {
  const std::vector<ProfileLayer> layers =
      softwareLayers(shape, degrees, execution);
  const ProfileLayer &block = layers[1];
  const int64_t stages = degrees.pipeline, chunks = degrees.chunks;
  const int64_t shards = degrees.shards();
  const int64_t parts =
      degrees.sharding == Sharding::Optimizer ? degrees.data : shards;
  // On a rank: parameters, gradients, an f32 copy and two moments.
  auto statesOf = [&](const ProfileLayer &layer) {
    int64_t parameters = layer.parameterBytes / degrees.tensor;
    int64_t gradients = parameters * (execution.halfGradients ? 1 : 2);
    return (parameters + gradients) / shards + parameters * 6 / parts;
  };
  // Kept of a chunk by a forward pass of a micro-batch.
  const int64_t cut = block.intermediateBytes - block.tpReplicatedBytes;
  const int64_t kept =
      block.boundaryBytes + block.tpReplicatedBytes + cut / degrees.tensor;
  auto keptOf = [&](int64_t blocks) {
    int64_t again = degrees.recomputedOf(blocks);
    return degrees.microBatch *
           (again * block.boundaryBytes + (blocks - again) * kept);
  };
  // The first stage has most passes in flight.
  int64_t blocks = 0, fewest = shape.layers;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    // Of a schedule that is a V a stage's chunks are elsewhere: none counts.
    bool folded = degrees.schedule->name() == "zb-v";
    int64_t count = folded && chunk > 0
                        ? degrees.blocks.back()
                        : degrees.blocks[size_t(chunk * stages)];
    blocks += count;
    fewest = std::min(fewest, count);
  }
  int64_t flight = 1;
  if (degrees.schedule->name() == "1f1b")
    flight = std::min(stages, degrees.microBatches());
  else if (degrees.schedule->name() == "interleaved")
    flight = std::min(degrees.microBatches() * chunks,
                      2 * (stages - 1) + (chunks - 1) * stages + 1);
  // A last stage's logits may be counted once; nothing is said of one stage.
  if (stages == 1)
    flight = 1;
  return statesOf(layers.front()) + blocks * statesOf(block) +
         flight * keptOf(fewest);
}

} // namespace galvatron
