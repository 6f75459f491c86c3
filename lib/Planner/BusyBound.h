//===- BusyBound.h - How long a plan's busiest stage works ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A lower bound of the simulated step of any schedule, for searches that try
// plan after plan: no stage does its micro-batches faster than one after the
// other, with gathers and scatters beside computation as far as they can be and
// nothing beside messages, which hold up both of their stages, from when the
// first one has come to when the last one has gone back; and gradients that are
// summed once a step have only the last passes to run beside (docs/search.md).
// Layers are priced once, so a bound takes microseconds where pricing a plan
// takes milliseconds.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_PLANNER_BUSYBOUND_H
#define GALVATRON_LIB_PLANNER_BUSYBOUND_H

#include "CostTables.h"

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace galvatron::planner {

class BusyBound {
public:
  /// `chunks`: of each stage.
  BusyBound(LayerModel &model, const Cluster &cluster, const Schedule &schedule,
            int64_t chunks)
      : model(model), cluster(cluster), schedule(schedule), chunks(chunks),
        tables(model, cluster, Objective::Executed, schedule) {}

  /// Plans may have stages of any devices (CostTables::setAnyGroups()); all
  /// plans of one degree have the same.
  void setAnyGroups() { tables.setAnyGroups(); }
  /// Seconds that a step of the plan takes at least; 0 if a layer cannot have
  /// its strategy.
  double leastSeconds(const Plan &plan);
  /// The least seconds of all plans with the layers' strategies, whatever
  /// chunks of stages of one size they are in. Messages count where all layers
  /// have one strategy.
  double leastSecondsAnywhere(const Plan &plan);
  /// Times of a micro-batch of each layer by Eq. 9. Errors: a layer cannot have
  /// its strategy.
  llvm::Expected<std::vector<Picoseconds>> layerTimes(const Plan &plan);

  /// Seconds of one layer: what computes or sums over TP ranks, what is
  /// gathered or scattered, and both as they are where nothing runs ahead.
  struct Times {
    std::string refusal;
    double forward = 0, backward = 0, forwardMoved = 0, backwardMoved = 0;
    double backwardInLine = 0;
    /// Computation and TP all-reduces of the input part of a backward pass, or
    /// of all of one that is not split.
    double input = 0;
    double scatterBeside = 0; ///< computation, in `backwardInLine`
    double sums = 0;          ///< of gradients, once a step
    double end = 0;           ///< norm and update
    bool ahead = false;
    double slowdown = 1;
    Picoseconds nosync = 0;
    LayerMemory memory;
  };
  /// The times of a kind of layer on a stage of a plan, whose layers are not
  /// read.
  const Times &timesOf(const Plan &plan, size_t kind, const Strategy &strategy,
                       size_t stage);
  /// Stages of one number have the same times, where they share no cores.
  size_t placeOf(const Plan &plan, size_t stage);
  /// Seconds of an output of `bytes` a sample, and of the gradient back, from a
  /// stage to another, at least, whatever the strategies of both sets.
  std::pair<double, double> leastMessages(const Plan &plan,
                                          const StrategySet &former,
                                          const StrategySet &latter,
                                          int64_t from, int64_t to,
                                          int64_t bytes);

private:
  /// Sums of them.
  struct Sum {
    double forward = 0, backward = 0, forwardMoved = 0, backwardMoved = 0;
    double backwardInLine = 0, scatterBeside = 0, sums = 0, end = 0;
    double firstSums = 0, lastBackward = 0; ///< of the first and last layer
    double slowdown = 2;                    ///< the least
    bool ahead = false;
    bool isEmpty = true;

    void add(const Times &times);
    /// Seconds of a micro-batch.
    double forwardSeconds() const;
    double backwardSeconds() const;
    /// Seconds of a backward pass that have no scatter beside them.
    double roomForSums() const;
    /// Seconds of the chunk's sums that may run beside its last backward pass:
    /// those of the last layer begin behind it, and behind those of the first
    /// layer nothing is computed.
    double sumsBesideOwnPass() const;
  };

  /// Seconds by which sums of gradients make a role's step longer at least.
  /// Chunks are added in the order of the model.
  struct GradientSums {
    bool isBeside = false; ///< may sums run beside computation?
    bool isWhole = false;  ///< are backward passes one task?
    double slowdown = 2;
    double all = 0, hideable = 0;
    double behindRole = 0; ///< of the chunk that ends the role's passes
    double room = 0;       ///< what they may run beside
    double passesInFront = 0;

    /// `messages`: seconds of the gradients that come and go with a pass.
    /// `endsRole`: the role's last pass is surely one of this chunk.
    void add(const Sum &chunk, double messages, int64_t slots, bool endsRole);
    double seconds() const;
  };

  /// Seconds of an output and of the gradient back, of a micro-batch.
  struct Messages {
    double output = 0, gradient = 0;
  };
  struct ChunkTimes {
    size_t stage = 0;
    Sum sum;
    Messages behind; ///< to the next chunk and back
  };
  /// The times of all chunks; nothing if a layer cannot have its strategy.
  std::optional<std::vector<ChunkTimes>> chunksOf(const Plan &plan);

  /// The messages of `bytes` a sample from a stage to one of the next layers.
  Messages messagesOf(const Plan &plan, const Strategy &former,
                      const Strategy &latter, int64_t from, int64_t to,
                      int64_t bytes);
  const Times &timesOf(const Plan &plan, size_t layer, size_t stage) {
    return timesOf(plan, model.kindOf(layer), plan.layers[layer].strategy,
                   stage);
  }
  size_t placeOf(const Plan &plan, int64_t from, int64_t to);
  const CoreContention &contentionOf(const Plan &plan, size_t stage);

  LayerModel &model;
  const Cluster &cluster;
  const Schedule &schedule;
  int64_t chunks;
  CostTables tables;
  std::map<int64_t, std::vector<size_t>> places; ///< by degree
  std::map<std::pair<int64_t, int64_t>, std::vector<CoreContention>>
      contentions; ///< by degree and micro-batches
  CoreContention alone;
  /// Places of pairs of stages, by degree and both; and moves there and back,
  /// by place and the strategies of the former and the latter layer.
  std::map<std::tuple<int64_t, int64_t, int64_t>, size_t> cutPlaces;
  std::map<size_t,
           std::map<Strategy, std::map<Strategy, std::array<ReshardRate, 2>>>>
      moves;
  /// The key is place, kind and samples, and micro-batches and stage where
  /// these share cores.
  std::map<std::tuple<size_t, size_t, int64_t, int64_t, size_t>,
           std::map<Strategy, Times>>
      known;
};

} // namespace galvatron::planner

#endif // GALVATRON_LIB_PLANNER_BUSYBOUND_H
