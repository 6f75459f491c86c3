//===- Pricing.h - Step and memory of a plan in some software ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model's shape and an execution become a layer profile and a cluster as that
// software meets them; the planner prices the one plan, and memory is its
// ledger with what the software keeps otherwise.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_PRICING_H
#define GALVATRON_SOFTWARE_PRICING_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Software/Configuration.h"
#include "galvatron/Software/Execution.h"

#include <memory>

namespace galvatron {

/// A step of a configuration as a software executes it.
struct SoftwarePrice {
  Plan plan;             ///< with times and ledgers of the planner
  double stepMs = 0;     ///< of a step among others
  int64_t allocated = 0; ///< bytes at the peak of the fullest card
  /// The bytes that the software prints for that peak.
  int64_t shown = 0;
  int64_t memory = 0; ///< bytes of a card
  bool fits = true;

  llvm::json::Value toJson(const Configuration &configuration,
                           const Execution &execution) const;
};

/// The 16-bit type that the cluster's devices have: bf16, else f16. Error:
/// devices of several types, or without a rate for either.
llvm::Expected<std::string> halfTypeOf(const Cluster &cluster);

/// Embedding, blocks and head as layers of a profile, in `dtype`. What depends
/// on the degree of tensor parallelism holds for that of `configuration`.
std::vector<ProfileLayer> softwareLayers(const ModelShape &shape,
                                         const Configuration &configuration,
                                         const Execution &execution);
/// The layers of a configuration as the planner's profile of them. Errors are
/// those of the profile.
llvm::Expected<std::unique_ptr<ProfileLayerModel>>
softwareModel(const ModelShape &shape, const Configuration &configuration,
              const Execution &execution, const std::string &dtype);
/// The cluster as the software meets it: what its kernels reach, what the host
/// costs, what overlaps.
llvm::Expected<Cluster> softwareCluster(const Cluster &cluster,
                                        const Configuration &configuration,
                                        const Execution &execution);

/// Prices one configuration. Errors: it does not divide, or the planner's.
llvm::Expected<SoftwarePrice> price(const ModelShape &shape,
                                    const Configuration &configuration,
                                    const Execution &execution,
                                    const Cluster &cluster);

/// The best plan of all that the planner has, strategies by layer among them,
/// if the software executed it: what its restrictions cost. Memory is the
/// planner's ledger in the cards' budget. Nothing that holds for one degree of
/// tensor parallelism alone is counted (parts that are sent, cut rows, widths).
llvm::Expected<PlannerResult> planUnrestricted(const ModelShape &shape,
                                               const Execution &execution,
                                               const Cluster &cluster,
                                               int64_t batch);

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_PRICING_H
