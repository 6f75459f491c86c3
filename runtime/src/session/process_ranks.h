//===- process_ranks.h - The ranks of a process ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_SESSION_PROCESS_RANKS_H
#define GRT_SESSION_PROCESS_RANKS_H

#include "comm/world.h"
#include "core/executor.h"
#include "core/flight.h"

#include <memory>
#include <vector>

namespace grt {

/// What a session has of each rank of its process, by local rank.
struct ProcessRanks {
  /// Makes all of them; with a trace they are recorded, on `backend`.
  ProcessRanks(RunState &state, World &world, const grt_backend &backend);
  ProcessRanks(const ProcessRanks &) = delete;
  ProcessRanks &operator=(const ProcessRanks &) = delete;

  std::vector<RankFlight> flights() const;

  std::vector<std::unique_ptr<Recorder>> recorders; ///< none without a trace
  std::vector<std::unique_ptr<Activity>> activities;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<Rank>> ranks;
};

} // namespace grt

#endif // GRT_SESSION_PROCESS_RANKS_H
