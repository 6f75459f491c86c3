//===- RandomModel.h - Models for tests of the planner ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef UNITTESTS_PLANNER_RANDOMMODEL_H
#define UNITTESTS_PLANNER_RANDOMMODEL_H

#include "../RandomInstances.h"
#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerModel.h"

#include <map>
#include <random>

namespace galvatron::test {

/// A model with random but fixed footprints per kind, strategy and samples.
class RandomModel : public LayerModel {
public:
  RandomModel(uint64_t seed, std::vector<size_t> kinds, bool tied)
      : seed(seed), kinds(std::move(kinds)), tied(tied) {}

  std::string name() const override { return "random"; }
  std::string hash() const override { return "0"; }
  std::string dtype() const override { return "f32"; }
  bool exact() const override { return true; }
  size_t layerCount() const override { return kinds.size(); }
  std::string layerName(size_t layer) const override {
    return "l" + std::to_string(layer);
  }
  size_t kindOf(size_t layer) const override { return kinds[layer]; }
  int64_t boundaryBytesPerSample(size_t layer) const override {
    return layer + 1 < kinds.size() ? 60000 : 0;
  }
  std::vector<Tie> ties() const override {
    if (!tied || kinds.size() < 2)
      return {};
    return {{0, kinds.size() - 1, 1 << 20}};
  }
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    std::mt19937_64 random(seed ^ (kind * 7919) ^
                           std::hash<std::string>()(strategy.str()) ^
                           (samples << 20));
    auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    if (pick(0, 19) == 0 && strategy.degree(Paradigm::TP) > 1)
      return llvm::createStringError("heads do not divide");
    int64_t tp = strategy.degree(Paradigm::TP);
    int64_t sdp = strategy.degree(Paradigm::SDP);
    int64_t states = (40000 + 10000 * static_cast<int64_t>(kind)) / tp / sdp;
    LayerFootprint out;
    out.inputBytes = kind == 0 ? 0 : samples * 60032;
    out.outputBytes = samples * 60032;
    int64_t intermediate = samples * pick(50000, 400000) / tp;
    out.stashBytes = strategy.checkpoint() ? 0 : intermediate;
    out.forwardTransient = pick(0, 100000);
    out.backwardTransient =
        pick(0, 200000) + (strategy.checkpoint() ? intermediate : 0);
    out.parameterBytes = states;
    out.gradientBytes = states;
    out.optimizerBytes = 2 * states;
    if (kind == 0)
      out.dataBytesPerSample = {100};
    out.forwardFlops = static_cast<double>(samples * pick(1, 9)) * 1e6 / tp;
    out.backwardFlops = 2 * out.forwardFlops;
    out.recomputeFlops = strategy.checkpoint() ? out.forwardFlops : 0;
    out.tpForwardBytes = tp > 1 ? samples * 60000 : 0;
    out.tpForwardCalls = out.tpBackwardCalls = tp > 1 ? 1 : 0;
    out.tpBackwardBytes = out.tpForwardBytes;
    out.gatherBytes = sdp > 1 ? states * sdp : 0;
    out.scatterBytes = out.gatherBytes;
    out.gradientSyncBytes =
        strategy.degree(Paradigm::DP) > 1 ? pick(1, 40) * states : 0;
    return out;
  }

private:
  uint64_t seed;
  std::vector<size_t> kinds;
  bool tied;
};

/// A model whose figures can be worked out by hand.
class PlainModel : public RandomModel {
public:
  explicit PlainModel(size_t layers)
      : RandomModel(0, std::vector<size_t>(layers, 1), false) {}
  llvm::Expected<LayerFootprint> footprint(size_t, const Strategy &strategy,
                                           int64_t samples) override {
    LayerFootprint out;
    out.inputBytes = out.outputBytes = 64 * samples;
    out.stashBytes = strategy.checkpoint() ? 0 : 640 * samples;
    out.backwardTransient = strategy.checkpoint() ? 640 * samples : 0;
    out.parameterBytes = out.gradientBytes =
        6400 / strategy.degree(Paradigm::TP) / strategy.degree(Paradigm::SDP);
    out.forwardFlops = 10e6 * static_cast<double>(samples) /
                       static_cast<double>(strategy.degree(Paradigm::TP));
    out.backwardFlops = 2 * out.forwardFlops;
    out.recomputeFlops = strategy.checkpoint() ? out.forwardFlops : 0;
    return out;
  }
  int64_t boundaryBytesPerSample(size_t layer) const override {
    return layer + 1 < layerCount() ? 64 : 0;
  }
};

/// Nodes of equal devices of 10 GFLOP/s.
inline Cluster smallCluster(int64_t nodes, int64_t devices, double slowdown,
                            int64_t cores = 0) {
  DeviceType type;
  type.name = "unit";
  type.backend = "cpu";
  type.memory = int64_t(1) << 30;
  type.flops = {{"f32", 10e9}};
  type.memoryBandwidth = 10e9;
  type.overlapSlowdown = slowdown;
  NodeGroup group{nodes, "unit", devices, {3e9, 2e-6}};
  group.cores = cores;
  return llvm::cantFail(
      Cluster::get("small", {type}, {group}, Link{1e9, 9e-6}));
}

} // namespace galvatron::test

#endif // UNITTESTS_PLANNER_RANDOMMODEL_H
