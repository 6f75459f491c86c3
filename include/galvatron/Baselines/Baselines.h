//===- Baselines.h - Planners of other publications -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Baselines are the published planners of others, each a space with a name: AMP
// and what it compares itself with (docs/amp.md), PipeDream-2BW (docs/2bw.md)
// and Harmony (docs/harmony.md). They search as their papers do, and share with
// the planner how a plan is priced, simulated and found not to fit. Nobody gets
// one unasked.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_BASELINES_BASELINES_H
#define GALVATRON_BASELINES_BASELINES_H

#include "galvatron/Planner/Planner.h"

#include "llvm/Support/JSON.h"

namespace galvatron {

/// How the ranks of a plan of space 'amp' get devices (docs/amp.md).
enum class Placement : uint8_t {
  Heuristic, ///< consecutive devices: tensor ranks inside, stages outside
  Anneal     ///< simulated annealing from there
};
/// "heuristic", "anneal".
llvm::StringRef placementName(Placement placement);
/// Reads a name; the error lists all.
llvm::Expected<Placement> parsePlacement(llvm::StringRef text);

/// Options of space 'amp' alone.
struct AmpOptions {
  std::optional<Placement> placement; ///< nothing: Placement::Heuristic
  uint64_t seed = 1;                  ///< of annealing
  /// The link that rings have; nothing: RingLink::Neighbours.
  std::optional<RingLink> ring;
};

/// "amp", "megatron-heuristic", "2bw", "harmony-pp", "harmony-dp".
std::vector<std::string> baselineSpaces();
bool isBaseline(llvm::StringRef space);
/// Whether plans of a baseline can be compiled: then planSpace() makes them,
/// and reportBaseline() shows what else was looked at.
bool isExecutedSpace(llvm::StringRef space);
/// Why plans of a baseline are not compiled.
std::string notExecutedSpace(llvm::StringRef space);

/// The best plan of any space, of plannerSpaces() as plan() finds it. Errors:
/// those of plan(), plans that are not compiled, and options that have no
/// meaning in a baseline.
llvm::Expected<PlannerResult> planSpace(LayerModel &model,
                                        const Cluster &cluster,
                                        const PlannerOptions &options,
                                        const AmpOptions &amp = {});

struct BaselineReport {
  /// Why there is no plan; then the rest is empty.
  std::optional<Infeasible> infeasible;
  /// The keys of a plan, and those of the baseline.
  llvm::json::Object json;
  /// A table that a person can read.
  std::string text;
};

/// Plans in one of baselineSpaces() and tells what else was looked at; with
/// `simulate` the figure of an event simulation is in the answer. Errors: no
/// batch, options that have no meaning there, for 2BW and Harmony a cluster of
/// several kinds of devices, and for Harmony one of several nodes.
llvm::Expected<BaselineReport> reportBaseline(LayerModel &model,
                                              const Cluster &cluster,
                                              const PlannerOptions &options,
                                              const AmpOptions &amp,
                                              bool simulate);

} // namespace galvatron

#endif // GALVATRON_BASELINES_BASELINES_H
