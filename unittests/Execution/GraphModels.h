//===- GraphModels.h - Small models that are no chains ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models whose values skip layers, each as layers and as the same mathematics
// in one layer behind the embedding: the independent reference of what the
// compiler makes of values that pass layers.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_EXECUTION_GRAPHMODELS_H
#define GALVATRON_UNITTESTS_EXECUTION_GRAPHMODELS_H

#include "Twin.h"

namespace galvatron::test {

/// One layer of a graph: which body, and the names of values. Values named
/// "tokens" and "labels" are the data.
struct GraphLayer {
  std::string name, body;
  std::vector<std::string> inputs, outputs;
};

/// A model of eight or more layers, from an embedding to the loss.
struct GraphModel {
  std::string name;
  std::vector<GraphLayer> layers;

  TwinModel asLayers() const;
  /// All layers but the first as one.
  TwinModel fused() const;
};

/// Values used three and four layers later, by two layers, crossing each other;
/// and a layer without parameters in front of others.
GraphModel skipGraph();
/// Two tensors of unequal sizes at most boundaries, in changing order.
GraphModel pairGraph();
/// An encoder whose output every decoder layer attends to.
GraphModel encoderDecoderGraph();
/// Any graph of these bodies: every layer takes values of any in front of it,
/// and every value is used.
GraphModel randomGraph(std::mt19937 &generator);

} // namespace galvatron::test

#endif // GALVATRON_UNITTESTS_EXECUTION_GRAPHMODELS_H
