//===- Targets.h - The targets that there are -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_TARGETS_H
#define GALVATRON_LIB_SOFTWARE_TARGETS_H

#include "galvatron/Software/Target.h"

#include <functional>

namespace galvatron {

/// Takes the value of an option that is a count. Error: it is none, or out of
/// range.
llvm::Error readCount(llvm::StringRef target, llvm::StringRef option,
                      llvm::StringRef value, int64_t least, int64_t most,
                      int64_t &count);

/// Ends the reading of a file. Error, behind `fileName`: a configuration that
/// its shape cannot have.
llvm::Expected<SoftwareReading> checkedReading(SoftwareReading reading,
                                               llvm::StringRef fileName);

/// Whether positions are cut among so many ranks around `tensor` of tensor
/// parallelism: in pairs of parts, which rows of TP divide, and in no smaller
/// parts than 2,048 tokens, which bounds the space.
bool canCutPositions(const ModelShape &shape, int64_t context, int64_t tensor);

/// Limits of a software's degrees, besides that they divide what they cut.
struct DegreeLimits {
  bool stages = true; ///< it has pipelines
  /// Whether so many ranks may share products; empty: any that divide.
  std::function<bool(int64_t tensor)> tensor = {};
  /// Whether positions may be cut in `context` > 1 beside `tensor`; empty: they
  /// are whole.
  std::function<bool(int64_t context, int64_t tensor)> context = {};
};

/// Calls `visit` for every way in which devices are ranks of tensor parallelism
/// (that key heads and feed-forwards divide by), stages of at least one block,
/// parts of a sample's positions, and replicas, with every micro-batch that the
/// batch can have on a replica. Schedules, blocks and states are left to it.
void visitDegrees(const ModelShape &shape, int64_t devices, int64_t batch,
                  const DegreeLimits &limits,
                  llvm::function_ref<void(const Configuration &)> visit);

std::unique_ptr<Target> makeDeepSpeedTarget();
std::unique_ptr<Target> makeFsdpTarget();
std::unique_ptr<Target> makeHetuGalvatronTarget();
std::unique_ptr<Target> makeMegatronTarget();
std::unique_ptr<Target> makeNanotronTarget();
std::unique_ptr<Target> makeTorchtitanTarget();

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_TARGETS_H
