//===- HetuCosts.cpp - Hetu-Galvatron's cost formulas ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HetuGalvatron.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace galvatron {
namespace {

constexpr double kContextMb = 1024;
/// Time of a backward pass by that of a forward one.
constexpr double kBackward = 2;
/// The constant that the engine adds to the share of sharded states.
constexpr double kShardedMore = 0.003;

/// Samples of a micro-batch on one replica.
int64_t samplesOf(const HetuStrategy &strategy, int64_t batch, int64_t chunks) {
  return batch / chunks / strategy.data;
}

double messageMb(const HetuProblem &problem, double samples, int64_t tokens,
                 int64_t hidden) {
  return samples * double(tokens) * double(hidden) * (problem.mixed() ? 2 : 4) /
         1024 / 1024;
}

double allReduceOf(const HetuProblem &problem, const HetuStrategy &strategy) {
  return problem.allReduce.at({strategy.sharded(), strategy.tensor == 1});
}

/// Backward computation beside sums of gradients, milliseconds.
double besideSums(double sums, double backward, double perMb, double overlap) {
  const double slowSums = sums * perMb * overlap, slow = backward * overlap;
  if (slowSums > slow)
    return slow + (sums - slow / (perMb * overlap)) * perMb;
  return slowSums + (backward - slowSums / overlap);
}

/// The part of a layer's states that a rank holds.
double statesShare(const HetuProblem &problem, const HetuStrategy &strategy,
                   int64_t chunks) {
  const int64_t ranks = strategy.sharded();
  const bool half = problem.mixed();
  // Without ranks there is nothing to shard.
  bool zero2 = problem.defaultDp == "zero2" && strategy.data > 1;
  if (!strategy.zero3 && !zero2)
    return 1;
  const double cut = 1.0 / double(ranks) + kShardedMore;
  auto mixed = [&](double part) { return part * cut + (1 - part); };
  if (strategy.zero3) {
    if (chunks == 1)
      return cut;
    if (problem.asyncReduce)
      return mixed(half ? 7.0 / 8 : 3.0 / 4);
    return cut * 5 / 4;
  }
  if (chunks > 1 && problem.asyncReduce)
    return mixed(half ? 6.0 / 8 : 2.0 / 4);
  const double share = mixed(half ? 7.0 / 8 : 3.0 / 4);
  // Gradients in f32 beside 16-bit ones.
  return chunks > 1 && half ? share * 5 / 4 : share;
}

/// Micro-batches whose activations a stage keeps.
int64_t keptChunks(const HetuProblem &problem, int64_t chunks, int64_t pipeline,
                   int64_t stage) {
  if (pipeline == 1)
    return 1;
  return problem.schedule == "gpipe" ? chunks : pipeline - stage;
}

/// Computation beside communication, either of which may be the longer one.
double besideComputation(double communication, double computation,
                         double overlap) {
  const double slow = computation * overlap;
  return slow > communication ? communication + (slow - communication) / overlap
                              : communication;
}

} // namespace

double HetuLatency::of(double megabytes) const {
  auto entry = measured.find(megabytes);
  return entry == measured.end() ? fitted.of(megabytes) : entry->second;
}

int64_t HetuProblem::layerCount() const {
  return std::accumulate(
      types.begin(), types.end(), int64_t(0),
      [](int64_t sum, const HetuLayers &type) { return sum + type.count; });
}

int64_t HetuProblem::reserveMb() const {
  return memoryGb > 20 ? int64_t(double(memoryGb * 1024) * 0.2) : 0;
}

int64_t HetuProblem::budgetMb() const { return memoryGb * 1024 - reserveMb(); }

HetuLayerSeconds hetuLayerSeconds(const HetuProblem &problem,
                                  const HetuLayers &type,
                                  const HetuStrategy &strategy, int64_t batch,
                                  int64_t chunks, int64_t pipeline) {
  const double samples = double(samplesOf(strategy, batch, chunks));
  const double forward = type.forward.of(samples / double(strategy.shared()));
  const double backward = forward * (kBackward + (strategy.checkpoint ? 1 : 0));
  const int64_t ranks = strategy.sharded();
  const double sums =
      2 * double(ranks - 1) *
      (type.parameterMb / double(strategy.tensor) / double(ranks)) *
      (problem.mixed() ? 0.5 : 1);
  const double perMb = allReduceOf(problem, strategy);
  double shared = 0;
  if (strategy.shared() > 1) {
    // All-to-alls of Ulysses, or gathers and scatters of rows.
    bool ulysses = strategy.tensor == 1;
    const HetuLatency &latency =
        (ulysses ? problem.allToAll : problem.allGather).at(strategy.shared());
    shared = latency.of(messageMb(problem, samples, type.tokens, type.hidden)) *
             (ulysses ? 4 : 6) * (strategy.checkpoint ? 1.5 : 1);
  }
  auto seconds = [&](double summed) {
    double time = forward + shared;
    time += strategy.data > 1
                ? besideSums(summed, backward, perMb, problem.overlap)
                : backward;
    if (strategy.zero3)
      time += sums * 0.5 * perMb;
    // The engine divides the message between stages by the layers.
    if (pipeline > 1)
      time += problem.p2p.at(pipeline) * double(pipeline) * 2 *
              messageMb(problem, samples, type.tokens, type.hidden) /
              double(type.count);
    return time * 1e-3;
  };
  return {seconds(sums), seconds(0)};
}

int64_t hetuLayerMb(const HetuProblem &problem, const HetuLayers &type,
                    const HetuStrategy &strategy, int64_t batch, int64_t chunks,
                    int64_t pipeline, int64_t stage) {
  const double samples = double(samplesOf(strategy, batch, chunks) *
                                keptChunks(problem, chunks, pipeline, stage));
  const double states = 4 * type.parameterMb / double(strategy.tensor) *
                        statesShare(problem, strategy, chunks);
  double kept = 0;
  if (strategy.checkpoint) {
    kept = type.checkpointMb * samples;
    if (strategy.ulysses > 1 ||
        (strategy.tensor > 1 && problem.sequenceParallel))
      kept /= double(strategy.shared());
  } else {
    kept = type.activationMb.at(strategy.shared()) * samples;
  }
  return int64_t(std::ceil(states + kept));
}

HetuEndCosts hetuEndCosts(const HetuProblem &problem,
                          const HetuStrategy &strategy, int64_t batch,
                          int64_t chunks, int64_t pipeline) {
  const size_t stages = size_t(pipeline);
  HetuEndCosts costs;
  costs.seconds.assign(stages, 0);
  std::vector<double> megabytes(stages, kContextMb);
  const int64_t samples = samplesOf(strategy, batch, chunks);
  const double forward =
      problem.other.of(double(samples) / double(strategy.shared())) /
      (pipeline == 1 ? 1 : 2);
  const int64_t ranks = strategy.sharded();
  const double perMb =
      allReduceOf(problem, strategy) * double(ranks - 1) / double(ranks);
  // The sums of gradients are left out, gathers of sharded states are not.
  const double gathers = strategy.zero3 ? 0.5 : 0;
  auto end = [&](size_t stage, const HetuEnds &ends, double gathered) {
    const double states = ends.states.at(strategy.tensor);
    const double communication =
        states / 4 * (problem.mixed() ? 0.5 : 1) * perMb * gathers;
    costs.seconds[stage] +=
        1e-3 * (besideComputation(communication, forward, problem.overlap) +
                besideComputation(communication, forward * kBackward,
                                  problem.overlap) +
                gathered);
    megabytes[stage] +=
        states * statesShare(problem, strategy, chunks) +
        ends.activations.at(strategy.shared()) *
            double(samples *
                   keptChunks(problem, chunks, pipeline, int64_t(stage)));
  };
  auto gathered = [&](const HetuLayers &type) {
    if (strategy.tensor == 1)
      return 0.0;
    return problem.allGather.at(strategy.tensor)
        .of(messageMb(problem, double(samples), type.tokens,
                      problem.types.front().hidden));
  };
  const double front = gathered(problem.types.front()),
               back = gathered(problem.types.back());
  if (pipeline == 1) {
    end(0, problem.whole, front + back);
  } else {
    end(0, problem.first, front);
    end(stages - 1, problem.last, back);
  }
  for (double mb : megabytes)
    costs.megabytes.push_back(int64_t(std::ceil(mb)));
  return costs;
}

double hetuBufferMb(const HetuProblem &problem, int64_t batch, int64_t chunks,
                    int64_t pipeline, int64_t ranks) {
  if (!problem.sequenceParallel || !problem.globalBuffer)
    return 0;
  int64_t tokens = 0;
  for (const HetuLayers &type : problem.types)
    tokens = std::max(tokens, type.tokens);
  const double samples = double(batch) / double(chunks) /
                         double(problem.devices() / pipeline / ranks);
  // Two bytes an element, whatever the precision.
  return samples * double(problem.types.front().hidden * tokens) * 4 / 1024 /
         1024 / 2;
}

double hetuStepSeconds(llvm::ArrayRef<double> sync,
                       llvm::ArrayRef<double> nosync, int64_t chunks) {
  const size_t stages = sync.size();
  const double all = std::accumulate(nosync.begin(), nosync.end(), 0.0);
  const double most = double(std::min(int64_t(stages) - 1, chunks - 1));
  const double behind = all - nosync.front();
  double step = all + nosync.back() * double(chunks - 1);
  step = std::max(
      step, std::max(most * nosync.front(), behind) +
                nosync.front() *
                    double(std::max<int64_t>(0, chunks + 1 - int64_t(stages))));
  double late = 0, before = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    before += nosync[stage];
    late = std::max(late, sync[stage] - before);
  }
  return step + late;
}

bool hetuHas(const HetuProblem &problem, const HetuStrategy &strategy,
             int64_t batch, int64_t chunks) {
  const int64_t shared = strategy.shared();
  if (batch % (chunks * strategy.data) ||
      !problem.allReduce.count({strategy.sharded(), strategy.tensor == 1}))
    return false;
  if (shared > 1 &&
      !(strategy.tensor > 1 ? problem.allGather : problem.allToAll)
           .count(shared))
    return false;
  for (const HetuLayers &type : problem.types)
    if (!type.activationMb.count(shared))
      return false;
  for (const HetuEnds *ends : {&problem.whole, &problem.first, &problem.last})
    if (!ends->states.count(strategy.tensor) ||
        !ends->activations.count(shared))
      return false;
  return true;
}

void priceHetuPlan(const HetuProblem &problem, HetuPlan &plan) {
  HetuEndCosts ends =
      hetuEndCosts(problem, plan.ends, plan.batch, plan.chunks, plan.pipeline);
  // There is no buffer where nothing is cut by tensor parallelism.
  int64_t ranks = plan.ends.shared();
  bool cut = plan.ends.tensor > 1;
  for (const HetuStrategy &strategy : plan.layers) {
    ranks = std::max(ranks, strategy.shared());
    cut |= strategy.tensor > 1;
  }
  const double buffer =
      cut ? hetuBufferMb(problem, plan.batch, plan.chunks, plan.pipeline, ranks)
          : 0;
  const size_t stages = size_t(plan.pipeline);
  std::vector<double> sync(stages, 0), nosync = ends.seconds;
  plan.memoryMb.clear();
  size_t layer = 0, type = 0;
  int64_t ofType = 0;
  plan.fits = true;
  for (size_t stage = 0; stage < stages; ++stage) {
    int64_t used =
        ends.megabytes[stage] +
        (problem.fine ? int64_t(buffer) : int64_t(std::ceil(buffer)));
    for (int64_t i = 0; i < plan.division[stage]; ++i, ++layer) {
      while (ofType == problem.types[type].count) {
        ++type;
        ofType = 0;
      }
      ++ofType;
      const HetuStrategy &strategy = plan.layers[layer];
      HetuLayerSeconds seconds =
          hetuLayerSeconds(problem, problem.types[type], strategy, plan.batch,
                           plan.chunks, plan.pipeline);
      sync[stage] += seconds.sync;
      nosync[stage] += seconds.nosync;
      used += hetuLayerMb(problem, problem.types[type], strategy, plan.batch,
                          plan.chunks, plan.pipeline, int64_t(stage));
    }
    plan.fits &= used <= problem.budgetMb();
    plan.memoryMb.push_back(used + problem.reserveMb());
  }
  plan.seconds = hetuStepSeconds(sync, nosync, plan.chunks);
}

} // namespace galvatron
