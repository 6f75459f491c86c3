//===- Spaces.h - The spaces of the baselines -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_BASELINES_SPACES_H
#define GALVATRON_LIB_BASELINES_SPACES_H

#include "galvatron/Baselines/Baselines.h"

namespace galvatron::baselines {

/// "space 'amp': " and what is wrong.
llvm::Error refuse(const PlannerOptions &options, const llvm::Twine &what);

/// Spaces 'amp' and 'megatron-heuristic'.
llvm::Expected<PlannerResult> planAmp(LayerModel &model, const Cluster &cluster,
                                      const PlannerOptions &options,
                                      const AmpOptions &amp);
/// Plans with space 'amp' and lists all its candidates.
llvm::Expected<BaselineReport> reportAmp(LayerModel &model,
                                         const Cluster &cluster,
                                         const PlannerOptions &options,
                                         const AmpOptions &amp);

/// Space '2bw'.
llvm::Expected<BaselineReport> reportTwoBuffers(LayerModel &model,
                                                const Cluster &cluster,
                                                const PlannerOptions &options,
                                                bool simulate);

/// "harmony-pp" or "harmony-dp".
bool isHarmonySpace(llvm::StringRef space);
/// These spaces as programs have them.
llvm::Expected<PlannerResult> planHarmony(LayerModel &model,
                                          const Cluster &cluster,
                                          const PlannerOptions &options);
/// Plans with Harmony's spaces and reports its figures as the paper does.
llvm::Expected<BaselineReport> reportHarmony(LayerModel &model,
                                             const Cluster &cluster,
                                             const PlannerOptions &options);

} // namespace galvatron::baselines

#endif // GALVATRON_LIB_BASELINES_SPACES_H
