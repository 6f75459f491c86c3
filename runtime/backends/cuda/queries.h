//===- queries.h - What else can be asked of a device ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Apart from gpu.h, which every kernel's source includes.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_QUERIES_H
#define GRT_BACKENDS_CUDA_QUERIES_H

#include "gpu.h"

namespace grt::cuda::gpu {

/// Whether what was recorded last is done. Throws what went wrong before it.
bool isDone(Event event);
/// Bytes of the device's last cache.
uint64_t cacheBytes();
/// Bytes of shared memory of a multiprocessor.
uint64_t sharedBytes();
int multiprocessors();
/// 10 * major + minor.
int capability();
/// Whether four warps may multiply together what is in shared memory
/// (tensor_core.h).
bool multipliesInGroups();
/// Returns how many devices this process may use; makes no context. Throws
/// where there is none, saying what was tried.
int count();
/// Chooses the device of this process. Throws where there is none of this
/// number, or another one is in use.
void choose(int number);
/// The UUID of this process's device, or of the part of one that it is.
std::string identity();
/// Returns the kind of device that measured times belong to: "compute
/// capability 9.0, 132 multiprocessors".
std::string deviceKind();
/// Whether work can be captured as graphs at all.
bool hasGraphs();
/// Pins memory that the host has; throws where no more may be pinned.
void pinHost(void *memory, uint64_t bytes);
void unpinHost(void *memory);

} // namespace grt::cuda::gpu

#endif // GRT_BACKENDS_CUDA_QUERIES_H
