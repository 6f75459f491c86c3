//===- capture.h - What of a program a graph of a device can have -*- C++ -===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A run of commands can be a graph if the host has no part in any of them. So
// that is a property of a procedure, which the compiler marks and the loader
// checks; how many graphs a step is follows from its tasks and from where the
// update is decided: a device can do that in its graph, and between two graphs
// the host does.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_CAPTURE_H
#define GRT_CORE_CAPTURE_H

#include "core/manifest.h"
#include "program/reader.h"

#include <cstdint>

namespace grt {

/// Why no graph can have a command of the role, as a clause that says what the
/// host does; null if one can. `readsCounts`: its function has a collective
/// whose sizes the host reads.
const char *hostPartOf(const gvx::Command &command, const Role &role,
                       bool readsCounts);
/// The same of the first of a procedure's commands that has one.
const char *hostPartOf(const gvx::Procedure &procedure, const Role &role,
                       const ProgramFile &program);

/// How a training step can be given to a device that makes graphs, holds
/// collectives in them and decides of the update.
struct StepCapture {
  int graphs = 1;       ///< 0: it is put on streams call by call
  const char *why = ""; ///< it is not one graph; empty if it is
};
StepCapture captureOf(const Manifest &manifest, const ProgramFile &program);

/// Whether so many ranks can gather their results in the workspace of each.
bool canGatherResults(const Manifest &manifest, uint64_t ranks);

} // namespace grt

#endif // GRT_CORE_CAPTURE_H
