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
    int64_t tp = strategy.degree(strategy.on(LayerAxis::Tensor));
    if (pick(0, 19) == 0 && tp > 1)
      return llvm::createStringError("heads do not divide");
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
    auto add = [&](CollectiveGroup among, Collective kind, CollectiveTime when,
                   int64_t bytes) {
      out.addCollective({among, kind, when, bytes});
    };
    for (CollectiveTime when :
         {CollectiveTime::Forward, CollectiveTime::Backward}) {
      add(CollectiveGroup::Tensor, Collective::AllReduce, when,
          tp > 1 ? samples * 60000 : 0);
      add(CollectiveGroup::Parameters, Collective::AllGather, when,
          sdp > 1 ? states * sdp : 0);
    }
    add(CollectiveGroup::Parameters, Collective::ReduceScatter,
        CollectiveTime::Backward, sdp > 1 ? states * sdp : 0);
    add(CollectiveGroup::Gradients, Collective::AllReduce, CollectiveTime::Step,
        strategy.degree(Paradigm::DP) > 1 ? pick(1, 40) * states : 0);
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

/// What cluster files may say beside nodes of equal devices: types, links and
/// cores by node, a bandwidth for each pair of devices, measured collectives.
inline Cluster oddCluster(std::mt19937_64 &random, int64_t devices) {
  auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  ClusterDescription odd;
  odd.name = "odd";
  int64_t types = pick(random, 1, 2);
  for (int64_t t = 0; t < types; ++t) {
    DeviceType type;
    type.name = "type" + std::to_string(t);
    type.backend = "cpu";
    type.memory = int64_t(1) << 30;
    type.flops = {{"f32", real(5e9, 15e9)}};
    type.memoryBandwidth = real(5e9, 15e9);
    type.overlapSlowdown = 1 + 0.5 * static_cast<double>(pick(random, 0, 2));
    if (pick(random, 0, 1))
      type.optimizerBandwidth = real(1e9, 5e9);
    if (pick(random, 0, 1))
      type.kernelOverhead = real(1e-6, 1e-5);
    odd.deviceTypes.push_back(type);
  }
  for (int64_t left = devices; left > 0;) {
    NodeGroup group{1,
                    odd.deviceTypes[size_t(pick(random, 0, types - 1))].name,
                    pick(random, 1, left),
                    {real(2e9, 4e9), real(1e-6, 5e-6)}};
    left -= group.devices;
    if (pick(random, 0, 2) == 0)
      group.network = Link{real(5e8, 2e9), real(5e-6, 2e-5)};
    if (pick(random, 0, 3) == 0)
      group.cores = 1;
    odd.nodes.push_back(group);
  }
  odd.network = Link{1e9, 9e-6};
  if (pick(random, 0, 1)) {
    odd.matrix.resize(size_t(devices), std::vector<double>(size_t(devices)));
    for (std::vector<double> &row : odd.matrix)
      for (double &bandwidth : row)
        bandwidth = real(3e8, 4e9);
  }
  for (int64_t tables = pick(random, 0, 4); tables > 0; --tables) {
    CollectiveTable table;
    table.kind = static_cast<Collective>(pick(random, 0, kCollectiveCount - 1));
    table.ranks = table.kind == Collective::Send ? 2 : pick(random, 2, devices);
    table.acrossNodes = pick(random, 0, 1);
    table.stride = pick(random, 0, 2);
    table.times = {{1000, real(1e-6, 1e-5)}, {1000000, real(1e-4, 1e-3)}};
    odd.collectives.push_back(table);
  }
  return llvm::cantFail(Cluster::get(std::move(odd)));
}

} // namespace galvatron::test

#endif // UNITTESTS_PLANNER_RANDOMMODEL_H
