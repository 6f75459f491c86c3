//===- replicas.h - Whether replicas hold the same values -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SESSION_REPLICAS_H
#define GRT_SESSION_REPLICAS_H

#include "core/executor.h"

#include <span>
#include <string>

namespace grt {

/// Numbers that every rank gives to a comparison: one for each of its layers,
/// of as many as the longest role has.
size_t replicaNumbers(const Manifest &manifest);

/// Sums over the bits of the parameters that a rank holds of each layer; zeros
/// before.
void sumReplicas(const Manifest &manifest, Rank &rank,
                 std::span<uint64_t> sums);

/// Compares the sums of all ranks, in the order of ranks: those of a layer that
/// differ in their data-parallel coordinate alone hold the same parameters.
/// Says which layer and ranks differ; empty if none do.
std::string compareReplicas(const Manifest &manifest,
                            std::span<const uint64_t> sums);

} // namespace grt

#endif // GRT_SESSION_REPLICAS_H
