//===- HetuGalvatron.h - Hetu-Galvatron's profiles and formulas -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The input of Hetu-Galvatron's search engine (its arguments and six measured
// profiles), its cost formulas (galvatron/core/cost_model and search_engine of
// cea12ffb, June 2026), and the best plan by them. Megabytes are its: 2^20
// bytes. Its rules that matter here: memory is counted in whole megabytes, a
// fifth of it stays in reserve where there are more than 20 GB, embedding and
// head have one strategy of their own, and stages have equally many layers, the
// last one the rest.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_HETUGALVATRON_H
#define GALVATRON_LIB_SOFTWARE_HETUGALVATRON_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace galvatron {

/// How ranks of a stage share a layer, or embedding and head.
struct HetuStrategy {
  int64_t tensor = 1, ulysses = 1, data = 1; ///< at most one of the first two
  bool zero3 = false;                        ///< else the default of the run
  bool checkpoint = false;

  /// Ranks that share a sample.
  int64_t shared() const { return tensor * ulysses; }
  /// Ranks among which states are sharded.
  int64_t sharded() const { return data * ulysses; }
  /// As the engine prints it behind the stages: "4*-2f-c-sp".
  std::string str() const;
  auto operator<=>(const HetuStrategy &) const = default;
};

/// Milliseconds of a number of samples.
struct HetuTime {
  double perSample = 0, constant = 0;

  double of(double samples) const { return perSample * samples + constant; }
};

/// Milliseconds of messages by their megabytes; others are on a fitted line.
struct HetuLatency {
  std::map<double, double> measured;
  HetuTime fitted;

  double of(double megabytes) const;
};

/// Megabytes of embedding and head by the degree that they are cut by.
struct HetuEnds {
  std::map<int64_t, double> states, activations;
};

struct HetuLayers {
  int64_t hidden = 1, tokens = 1, count = 1;
  double parameterMb = 0; ///< of one layer, f32
  /// Kept of a sample, by the ranks that share it.
  std::map<int64_t, double> activationMb;
  double checkpointMb = 0;
  HetuTime forward;
};

struct HetuProblem {
  std::string model;
  std::vector<HetuLayers> types;
  HetuTime other; ///< embedding and head
  HetuEnds whole, first, last;

  std::map<std::pair<int64_t, bool>, double> allReduce; ///< ms of a megabyte
  std::map<int64_t, double> p2p;
  double overlap = 1;
  std::map<int64_t, HetuLatency> allGather, allToAll;

  std::string precision = "bf16", defaultDp = "ddp", schedule = "gpipe";
  bool asyncReduce = true, sequenceParallel = false, globalBuffer = false;
  bool fine = true; ///< a strategy a layer, else one for all
  int64_t nodes = 1, perNode = 8, memoryGb = 24;
  std::vector<int64_t> batches;
  int64_t chunks = 0; ///< 0: any divisor of the batch
  bool dp = true, tp = true, sp = true, pp = true, ckpt = true, fsdp = true;
  bool vocabularyTp = true, vocabularySp = true;
  int64_t mostTensor = 8, mostPipeline = 8, mostUlysses = 8;

  bool mixed() const { return precision != "fp32"; }
  int64_t devices() const { return nodes * perNode; }
  int64_t layerCount() const;
  /// Megabytes that plans may use of a card.
  int64_t budgetMb() const;
  /// Megabytes beside it.
  int64_t reserveMb() const;

  /// Reads the engine's arguments with its profiles, each inline or the path of
  /// its file, seen from `path`. Errors name the key or the file, and what of
  /// the engine is not done here.
  static llvm::Expected<HetuProblem> fromJson(const llvm::json::Value &value,
                                              llvm::StringRef path);
};

/// One plan: what galvatron_config_*.json says.
struct HetuPlan {
  int64_t batch = 1, chunks = 1, pipeline = 1;
  std::vector<int64_t> division; ///< layers of each stage
  std::vector<HetuStrategy> layers;
  HetuStrategy ends; ///< of embedding and head
  // By the engine's formulas.
  double seconds = 0;
  std::vector<int64_t> memoryMb; ///< of each stage, with the reserve
  bool fits = true;
  /// No plan of the space takes less than this.
  double leastSeconds = 0;

  bool operator==(const HetuPlan &) const = default;
};

/// Seconds of a layer in a micro-batch, with and without the sums of gradients.
struct HetuLayerSeconds {
  double sync = 0, nosync = 0;
};
HetuLayerSeconds hetuLayerSeconds(const HetuProblem &problem,
                                  const HetuLayers &type,
                                  const HetuStrategy &strategy, int64_t batch,
                                  int64_t chunks, int64_t pipeline);
/// Megabytes of a layer on a stage, rounded up.
int64_t hetuLayerMb(const HetuProblem &problem, const HetuLayers &type,
                    const HetuStrategy &strategy, int64_t batch, int64_t chunks,
                    int64_t pipeline, int64_t stage);
/// Costs of embedding and head: seconds without sums and megabytes, a stage
/// each; empty where no profile has the strategy.
struct HetuEndCosts {
  std::vector<double> seconds;
  std::vector<int64_t> megabytes;
};
HetuEndCosts hetuEndCosts(const HetuProblem &problem,
                          const HetuStrategy &strategy, int64_t batch,
                          int64_t chunks, int64_t pipeline);
/// Megabytes of the buffer in which activations are gathered for `ranks`.
double hetuBufferMb(const HetuProblem &problem, int64_t batch, int64_t chunks,
                    int64_t pipeline, int64_t ranks);
/// Seconds of a step, of the sums over a stage's layers with and without sums
/// of gradients, the latter with embedding and head.
double hetuStepSeconds(llvm::ArrayRef<double> sync,
                       llvm::ArrayRef<double> nosync, int64_t chunks);
/// Whether the profiles have what the strategy needs, and it divides.
bool hetuHas(const HetuProblem &problem, const HetuStrategy &strategy,
             int64_t batch, int64_t chunks);
/// Prices a plan: sets its seconds, its memory and whether it fits.
void priceHetuPlan(const HetuProblem &problem, HetuPlan &plan);

/// The plan of most samples a second that its runtime takes. Error: none fits.
llvm::Expected<HetuPlan> searchHetuPlan(const HetuProblem &problem);

/// The written configuration, and what its runtime asserts of one
/// (core/runtime/hybrid_parallel_config.py): keys, lengths, degrees, the batch.
llvm::json::Object hetuConfiguration(const HetuProblem &problem,
                                     const HetuPlan &plan);
llvm::Expected<HetuPlan> readHetuConfiguration(const HetuProblem &problem,
                                               const llvm::json::Value &value,
                                               llvm::StringRef name);

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_HETUGALVATRON_H
