//===- sums_proof.h - The order of sums behind passes -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_SUMS_PROOF_H
#define GRT_CORE_SUMS_PROOF_H

#include "core/manifest.h"
#include "program/reader.h"

#include <string>

namespace grt {

/// The first command of a role that may run beside a sum of gradients whose
/// group shares two or more ranks with its own, and what it is missing; "" if
/// there is none. The groups are those of the layers' levels, whatever the
/// manifest says of what awaits sums. Each procedure is followed once for every
/// state of the sums and streams that it is run in, so the time does not grow
/// with micro-batches. The program has been checked (checkCommands).
std::string wrongSums(const Manifest &manifest, const ProgramFile &program,
                      size_t role);

} // namespace grt

#endif // GRT_CORE_SUMS_PROOF_H
