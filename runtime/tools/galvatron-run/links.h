//===- links.h - Whether links are as fast as the plan has them -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A variable that turns peer access off, or a wrong interface, makes a run ten
// times slower and nothing fails. So every level of the plan all-reduces once,
// all of its groups at a time, before the program takes memory, and what each
// member sends a second stands beside what the plan was priced with.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_LINKS_H
#define GALVATRON_RUN_LINKS_H

#include "comm/world.h"
#include "core/topology.h"
#include "grt/backend.h"
#include "grt/processes.h"
#include "nccl_log.h"
#include "options.h"
#include "preflight.h"

#include <string>
#include <vector>

/// The rates of a link of the plan, measured while all of its groups run.
struct LinkRate {
  std::string name;
  bool inside = true;
  double planned = 0; ///< bytes per second, 0: unknown
  /// Bytes per second that each member sends: in the slowest group, whose ranks
  /// are named, and in the one in the middle.
  double slowest = 0, median = 0;
  std::vector<int> ranks;
};

struct LinksFound {
  std::vector<LinkRate> rates;
  NcclChoice nccl; ///< of all ranks
};

/// Measures all-reduces on all ranks of the world: 64 MiB of a device, 16 MiB
/// of the host, less where that takes seconds. Collective over all processes;
/// the result is the same on all. Two ranks on one device are an error (2),
/// all-reduces of a link that have not ended in `patience` seconds one of its
/// own (4). Throws grt::Error, and the world is aborted then.
LinksFound measureLinks(grt::World &world, const grt_backend &backend,
                        const std::vector<grt::PlannedLink> &links,
                        double patience = 60);

/// Measures the links of a run of `options` that looks at its GPUs. `why` says
/// what keeps it from that; empty where there is nothing to measure, or it was
/// asked for by --no-link-check. Collective over all processes, if there are
/// several. An error is one by which the run ends.
grt::Status lookAtLinks(const Options &options, const grt::Program &program,
                        grt::Processes *processes, LinksFound &found,
                        std::string &why);

/// Bytes per second that each of `members` sends in an all-reduce of `bytes`
/// that takes so long.
double sentBySecond(uint64_t bytes, int members, double seconds);

/// The rate of a link whose groups took so long, by rank.
LinkRate rateOf(const grt::PlannedLink &link, uint64_t bytes,
                const std::vector<double> &secondsOfRanks);

/// Links with less than 0.4 of what the plan has, and what may be the cause.
Findings judgeLinks(const LinksFound &found, bool onDevices);

/// "tp4 310GB/s inside a node, 340GB/s in the plan".
std::string textOf(const LinkRate &rate);
/// Lines that say what was found: NCCL's choice, and each link.
std::vector<std::string> linesOf(const LinksFound &found);

#endif // GALVATRON_RUN_LINKS_H
