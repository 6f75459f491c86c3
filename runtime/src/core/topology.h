//===- topology.h - Whether ranks are where the plan has them ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TOPOLOGY_H
#define GRT_CORE_TOPOLOGY_H

#include "comm/numbering.h"
#include "core/manifest.h"

#include <string>

namespace grt {

/// What is wrong where ranks of one node of the plan are on several hosts: the
/// node, the hosts, and a level of a layer that the plan priced inside a node
/// and that crosses hosts, with what the plan has for both links. Empty if each
/// node is on one host, or the program does not say its nodes.
std::string misplacedText(const Manifest &manifest, const RunHosts &hosts);

} // namespace grt

#endif // GRT_CORE_TOPOLOGY_H
