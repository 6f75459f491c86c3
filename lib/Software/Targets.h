//===- Targets.h - The targets that there are -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_TARGETS_H
#define GALVATRON_LIB_SOFTWARE_TARGETS_H

#include "galvatron/Software/Target.h"

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

std::unique_ptr<Target> makeDeepSpeedTarget();
std::unique_ptr<Target> makeFsdpTarget();
std::unique_ptr<Target> makeHetuGalvatronTarget();
std::unique_ptr<Target> makeMegatronTarget();
std::unique_ptr<Target> makeNanotronTarget();
std::unique_ptr<Target> makeTorchtitanTarget();

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_TARGETS_H
