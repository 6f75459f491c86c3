//===- Pricing.cpp - Step and memory of a plan in some software -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Pricing.h"

#include "Context.h"
#include "KeptOperations.h"
#include "Memory.h"
#include "Passes.h"

#include "galvatron/Software/PublishedRuns.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace llvm;

namespace galvatron {
namespace {

constexpr int64_t kWidth = 2; ///< bytes of a 16-bit value
/// The alignment that NVIDIA's guides want of widths on a card and of heads,
/// elements.
constexpr int64_t kAlignedWidth = 64, kAlignedHead = 8;
/// The same of rotary embeddings as of norms (to f32, product with 2 x 2
/// matrices, sum, back), for each of queries and keys, and kernels of a layer
/// besides for both.
constexpr double kUnfusedRotary = 18;
constexpr int64_t kUnfusedKernels = 18;
/// Matrices of a layer that are gathered by themselves.
constexpr int64_t kMatrices = 4;

int64_t rounded(double bytes) { return int64_t(std::nearbyint(bytes)); }

/// One transformer block.
ProfileLayer blockOf(const ModelShape &shape, const Configuration &degrees,
                     const Execution &facts) {
  // Every key passes a rank's part of the queries.
  const double keys = double(shape.tokens);
  const double t = keys / double(degrees.context), h = double(shape.hidden),
               q = double(shape.queries()), kv = double(shape.keys()),
               f = double(shape.inner);
  const double weights = double(shape.blockWeights());
  ProfileLayer block;
  block.name = "block";
  block.count = shape.layers;
  // A fused causal kernel leaves out the half that is masked, and moves no
  // scores.
  double attention = 4 * t * keys * q * (facts.keepsScores ? 1 : 0.5);
  const double scores = facts.keepsScores ? double(shape.heads) * t * keys : 0;
  bool odd = shape.hidden / degrees.tensor % kAlignedWidth ||
             shape.inner / degrees.tensor % kAlignedWidth;
  if (shape.headWidth % kAlignedHead)
    attention *= facts.unalignedAttention;
  const double wide = t * f * double(shape.matrices() - 1);
  // Two norms, two residual sums, the activation; softmax and dropout.
  double moved = 10 * t * h + 2 * wide + 4 * scores;
  double kernels =
      facts.keepsScores ? facts.kernelsUnfused : facts.kernelsFused;
  if (!facts.fusesNorms) {
    moved += t * (2 * kUnfusedNorm * h + kUnfusedRotary * (q + kv));
    kernels += double(kUnfusedKernels);
  }
  block.forwardFlops = (odd ? facts.unalignedProducts : 1) * 2 * t * weights;
  block.forwardAttentionFlops = attention;
  // A fused kernel computes scores again in backward: five products for two.
  // Where they are dropped by themselves, the forward ones are made again.
  if (!facts.keepsScores)
    block.backwardAttentionFlops = std::nearbyint(2.5 * attention);
  else if (degrees.dropsScores())
    block.backwardAttentionFlops = std::nearbyint(3 * attention);
  block.forwardAttentionBytes =
      double(rounded(kWidth * (2 * t * q + 2 * keys * kv + 2 * scores)));
  block.forwardMovedBytes = double(rounded(kWidth * moved));
  const double replicated = 10 * t * h;
  block.tpReplicatedMovedBytes = double(rounded(kWidth * replicated));
  block.forwardProductBytes =
      double(rounded(kWidth * (4 * t * h + 2 * t * q + 2 * t * kv + 2 * wide)));
  block.forwardKernels = int64_t(kernels);
  block.parameterBytes = rounded(kWidth * (weights + 4 * h));
  block.boundaryBytes = rounded(kWidth * t * h);
  // Korthikanti et al. (2022), Eq. 1: 34 s b h + 5 a s^2 b for ffn = 4 h.
  const double kept = degrees.dropsScores() ? 0 : 5 * scores;
  block.intermediateBytes = rounded(12 * t * h + 4 * t * q + 4 * wide + kept);
  block.tpAllReduceBytes = rounded(2 * kWidth * t * h);
  block.tpReplicatedBytes = rounded(replicated);
  return block;
}

/// Rows of activations are cut among the ranks of TP wherever products are not:
/// nothing is held, moved or sent by all of them.
void cutRows(ProfileLayer &layer, int64_t ranks) {
  layer.tpReplicatedBytes = 0;
  if (layer.tpReplicatedMovedBytes >= 0)
    layer.tpReplicatedMovedBytes = 0;
  layer.boundaryBytes /= ranks;
}

/// Layers of the profile: "block.4-block.7".
std::string blockRange(const ModelShape &shape, int64_t first, int64_t count) {
  if (shape.layers == 1)
    return "block";
  std::string begin = "block." + std::to_string(first);
  return count == 1 ? begin
                    : begin + "-block." + std::to_string(first + count - 1);
}

} // namespace

Expected<std::string> halfTypeOf(const Cluster &cluster) {
  if (!cluster.isUniform())
    return makeError("cluster '" + cluster.name() +
                     "': expected devices of one type, as training software "
                     "takes degrees for all of them");
  if (cluster.backend() != "cuda")
    return makeError("cluster '" + cluster.name() +
                     "': expected GPUs, which other software is priced on");
  for (StringRef dtype : {"bf16", "f16"})
    if (cluster.flopsOf({0}, dtype) > 0)
      return dtype.str();
  return makeError("device type '" + cluster.deviceType(0).name +
                   "': expected a rate for bf16 or f16, found none");
}

std::vector<ProfileLayer> softwareLayers(const ModelShape &shape,
                                         const Configuration &configuration,
                                         const Execution &execution) {
  const double t = double(shape.tokens / configuration.context),
               h = double(shape.hidden), v = double(shape.vocabulary);
  const double boundary = kWidth * t * h, logits = t * v;
  // Tensor parallelism cuts the vocabulary: one all-reduce forward behind the
  // embedding and one backward in front of the head, here half in each pass.
  ProfileLayer embedding;
  embedding.name = "embedding";
  embedding.forwardMovedBytes = 3 * boundary;
  embedding.forwardKernels = 3;
  embedding.parameterBytes = rounded(kWidth * v * h);
  embedding.tpAllReduceBytes = int64_t(boundary) / 2;
  ProfileLayer head;
  head.name = "head";
  head.forwardFlops = 2 * logits * h;
  head.forwardMovedBytes = 4 * 4 * logits; // cross entropy in f32
  head.forwardProductBytes = boundary + kWidth * logits;
  head.forwardKernels = 8;
  head.parameterBytes = embedding.parameterBytes;
  // On another stage a tied head is a copy with states of its own.
  if (shape.tied && configuration.pipeline == 1)
    head.borrowedBytes = head.parameterBytes;
  head.boundaryBytes = int64_t(boundary);
  head.intermediateBytes = rounded(double(execution.logitBytes) * logits);
  head.tpAllReduceBytes = int64_t(boundary) / 2;
  if (execution.gathersLogits) {
    head.tpReplicatedBytes = head.intermediateBytes;
    head.tpReplicatedMovedBytes = head.forwardMovedBytes;
    // A gather counts as half an all-reduce, half of it in each pass.
    head.tpAllReduceBytes += rounded(kWidth * logits / 4);
  }
  std::vector<ProfileLayer> layers = {
      embedding, blockOf(shape, configuration, execution), head};
  for (ProfileLayer &layer : layers) {
    if (configuration.tensor == 1)
      continue;
    // Messages that are sent in pieces are rows.
    if (configuration.sequenceParallel)
      layer.tpAllReduceBytes = rounded(double(layer.tpAllReduceBytes) *
                                       (1 - execution.hiddenTensor()));
    if (execution.sendsParts)
      layer.sentBytes = layer.boundaryBytes / configuration.tensor;
    if (configuration.sequenceParallel) {
      cutRows(layer, configuration.tensor);
      layer.sentBytes = layer.boundaryBytes;
    }
  }
  if (configuration.recompute == Recompute::Operations)
    keepOperations(layers[1], shape, configuration, execution);
  if (configuration.recompute == Recompute::Modules)
    recomputeModulesOf(layers[1], shape, configuration, execution);
  return layers;
}

Expected<std::unique_ptr<ProfileLayerModel>>
softwareModel(const ModelShape &shape, const Configuration &configuration,
              const Execution &execution, const std::string &dtype) {
  ProfileSoftware software;
  if (execution.halfGradients)
    software.gradientDtype = dtype;
  software.gathersAhead = execution.gathersAhead;
  software.addsGradients = execution.addsGradients;
  software.sumsEverywhere = execution.sumsEverywhere;
  software.shardsStatesAlone = configuration.groupsStates();
  TrainingOptions training;
  training.dtype = dtype;
  return ProfileLayerModel::get(shape.name, dtype,
                                softwareLayers(shape, configuration, execution),
                                training, 0, software);
}

Expected<Cluster> softwareCluster(const Cluster &cluster,
                                  const Configuration &configuration,
                                  const Execution &execution) {
  ClusterDescription description{
      cluster.name().str(),       cluster.deviceTypes().vec(),
      cluster.nodeGroups().vec(), cluster.networkLink(),
      cluster.matrix(),           cluster.collectives().vec()};
  for (DeviceType &type : description.deviceTypes) {
    if (execution.waits)
      type.kernelOverhead = execution.waitUs * 1e-6;
    if (execution.launches)
      type.hostOverhead = execution.launchUs * 1e-6;
    if (!execution.overlaps)
      type.overlapSlowdown = 2;
    if (execution.keepsScores)
      continue;
    for (auto &[dtype, rate] : type.flops)
      rate *= execution.productsOn(type.name);
    type.attentionEfficiency =
        EfficiencyCurve({{1.0, execution.attentionOn(type.name)}});
  }
  if (execution.gathersMatrices && description.network &&
      configuration.shards() > 1)
    description.network->latency =
        kMatrices *
        (description.network->latency + execution.gatheredRankUs * 1e-6);
  return Cluster::get(std::move(description));
}

Expected<SoftwarePrice> price(const ModelShape &shape,
                              const Configuration &configuration,
                              const Execution &execution,
                              const Cluster &given) {
  if (Error error = configuration.check(shape))
    return error;
  if (configuration.devices() != given.deviceCount())
    return makeError("expected degrees whose product is the cluster's " +
                     Twine(given.deviceCount()) + " devices, found " +
                     Twine(configuration.devices()));
  Expected<std::string> dtype = halfTypeOf(given);
  if (!dtype)
    return dtype.takeError();
  Expected<Cluster> cluster = softwareCluster(given, configuration, execution);
  if (!cluster)
    return cluster.takeError();
  PlannerOptions options;
  options.training.dtype = *dtype;
  auto model = softwareModel(shape, configuration, execution, *dtype);
  if (!model)
    return model.takeError();
  // A rank's part of a sample is a sample to the planner.
  options.batch = configuration.batch * configuration.context;
  options.pipelineDegree = configuration.pipeline;
  options.microBatches = configuration.microBatches();
  options.schedule = configuration.schedule;
  options.chunks = configuration.chunks > 1 ? configuration.chunks : 0;
  options.keepDpSdp = true;
  options.strategy = configuration.strategyOfEnds();
  if (configuration.recompute == Recompute::Full) {
    int64_t first = 0;
    for (int64_t blocks : configuration.blocks) {
      if (int64_t count = configuration.recomputedOf(blocks))
        options.pins.push_back({blockRange(shape, first, count),
                                configuration.strategyOfBlocks()});
      first += blocks;
    }
  }
  options.partition = configuration.blocks;
  options.partition.front() += 1;
  options.partition.back() += 1;
  // The software's peak decides what fits, not the search.
  options.memory = int64_t(1) << 46;
  options.relaxations = options.reasons = options.boundsGivenPlan = false;
  Expected<PlannerResult> planned = plan(**model, *cluster, options);
  if (!planned)
    return planned.takeError();
  if (!planned->feasible())
    return makeError(planned->infeasible().reason);
  SoftwarePrice price;
  price.plan = planned->plan();
  price.plan.batch = configuration.batch;
  price.plan.samplesPerSecond /= double(configuration.context);
  // Nothing was searched, and the memory is the card's.
  price.plan.space = "given";
  price.plan.foundBy.clear();
  price.plan.provenGapPercent.reset();
  price.plan.gapPercent.reset();
  price.plan.boundMs.reset();
  for (PlanStage &stage : price.plan.stages)
    stage.availableBytes = given.budgetOf(stage.devices);
  for (PlanLayer &layer : price.plan.layers)
    layer.strategy = configuration.shownStrategy(/*ofBlocks=*/false)
                         .withCheckpoint(layer.strategy.checkpoint());
  const PlanStage &first = price.plan.stages.front();
  Expected<std::optional<PassSumsEither>> sums =
      passSums(**model, *cluster,
               linksOf(*cluster, configuration.strategyOfEnds(), first.devices),
               configuration, execution);
  if (!sums)
    return sums.takeError();
  double saved = 0;
  if (*sums)
    saved = 1e3 *
            savedSeconds(first.gathersAhead ? (*sums)->ahead : (*sums)->inFront,
                         (price.plan.iterationMs - first.optimizerMs) / 1e3);
  price.stepMs =
      stepMs(price.plan, execution) - saved +
      contextMs(contextSeconds(shape, configuration, execution, *cluster,
                               contextLink(configuration, *cluster), *dtype),
                configuration);
  price.allocated = allocatedBytes(price.plan, shape, configuration, execution);
  const DeviceType &type = given.deviceType(0);
  price.memory = type.memory;
  price.shown = shownBytes(price.allocated, execution, type);
  price.fits = fitsCard(price.allocated, shape, configuration, execution, type);
  return price;
}

Expected<PlannerResult> planUnrestricted(const ModelShape &shape,
                                         const Execution &given,
                                         const Cluster &onCluster,
                                         int64_t batch) {
  Expected<std::string> dtype = halfTypeOf(onCluster);
  if (!dtype)
    return dtype.takeError();
  Expected<Cluster> cluster = softwareCluster(onCluster, {}, given);
  if (!cluster)
    return cluster.takeError();
  auto model = softwareModel(shape, {}, given, *dtype);
  if (!model)
    return model.takeError();
  PlannerOptions options;
  options.training.dtype = *dtype;
  options.batch = batch;
  options.relaxations = options.reasons = false;
  return plan(**model, *cluster, options);
}

json::Value SoftwarePrice::toJson(const Configuration &configuration,
                                  const Execution &execution) const {
  const Standing standing = standingOf(execution.name);
  return json::Object{{"execution", execution.name},
                      {"published-runs", standing.runs},
                      {"median-error-percent", standing.medianError},
                      {"configuration", configuration.str()},
                      {"step-ms", stepMs},
                      {"allocated-bytes", allocated},
                      {"shown-bytes", shown},
                      {"device-bytes", memory},
                      {"fits", fits}};
}

} // namespace galvatron
