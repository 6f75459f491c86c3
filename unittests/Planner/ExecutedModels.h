//===- ExecutedModels.h - Models whose plans are simulated ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef UNITTESTS_PLANNER_EXECUTEDMODELS_H
#define UNITTESTS_PLANNER_EXECUTEDMODELS_H

#include "../RandomProfile.h"
#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Simulate/Simulate.h"

namespace galvatron::test {

/// Nodes of equal devices of 10 TFLOP/s.
inline Cluster executedCluster(int64_t nodes, int64_t devices, double network,
                               const char *backend = "cuda") {
  DeviceType type;
  type.name = "device";
  type.backend = backend;
  type.memory = int64_t(1) << 34;
  type.flops = {{"f32", 1e13}};
  type.memoryBandwidth = 1e12;
  type.overlapSlowdown = type.backend == "cpu" ? 2 : 1.3;
  return llvm::cantFail(Cluster::get("test", {type},
                                     {{nodes, "device", devices, {2e10, 5e-6}}},
                                     Link{network, 1e-5}));
}

/// Simulates a plan anew.
inline double simulated(LayerModel &model, const Cluster &cluster,
                        const Plan &plan) {
  SimulationInput input = llvm::cantFail(simulationInput(model, cluster, plan));
  return llvm::cantFail(simulate(input)).seconds * 1e3;
}

/// The same layers.
class SameLayers : public LayerModel {
public:
  explicit SameLayers(LayerModel &layers) : layers(layers) {}
  std::string name() const override { return layers.name(); }
  std::string hash() const override { return layers.hash(); }
  std::string dtype() const override { return layers.dtype(); }
  bool exact() const override { return layers.exact(); }
  bool splitsBackward() const override { return layers.splitsBackward(); }
  std::vector<Tie> ties() const override { return layers.ties(); }
  size_t layerCount() const override { return layers.layerCount(); }
  std::string layerName(size_t layer) const override {
    return layers.layerName(layer);
  }
  size_t kindOf(size_t layer) const override { return layers.kindOf(layer); }
  int64_t boundaryBytesPerSample(size_t layer) const override {
    return layers.boundaryBytesPerSample(layer);
  }
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    return layers.footprint(kind, strategy, samples);
  }

protected:
  LayerModel &layers;
};

/// The same layers, all but the first and the last one alike, with their
/// sharded parameters gathered by the stage, which does so a layer ahead where
/// memory allows it.
class GatheredModel : public SameLayers {
public:
  using SameLayers::SameLayers;
  size_t kindOf(size_t layer) const override {
    return layers.kindOf(layer == 0 || layer + 1 == layerCount() ? layer : 1);
  }
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    llvm::Expected<LayerFootprint> own =
        layers.footprint(kind, strategy, samples);
    if (!own)
      return own;
    int64_t gathered =
        own->bytesOf(CollectiveGroup::Parameters, Collective::AllGather,
                     CollectiveTime::Forward);
    // A profile's temporaries hold them.
    own->forwardGathered = own->backwardGathered = gathered;
    return own;
  }
};

} // namespace galvatron::test

#endif // UNITTESTS_PLANNER_EXECUTEDMODELS_H
