//===- whole_buffers.h - Buffers of collectives and pieces of arenas ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_WHOLE_BUFFERS_H
#define GRT_CORE_WHOLE_BUFFERS_H

#include "core/manifest.h"
#include "program/reader.h"

namespace grt {

/// Whether every buffer that collectives and exchanges of a role's layers read
/// or write is on one side of each end of the arena's windows (grt_arena). True
/// without windows.
bool hasWholeBuffers(const Manifest &manifest, const Role &role,
                     const ProgramFile &program);

} // namespace grt

#endif // GRT_CORE_WHOLE_BUFFERS_H
