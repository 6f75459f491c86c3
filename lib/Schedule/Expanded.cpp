//===- Expanded.cpp - Running every rank of a task program ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/Verify.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

/// One rank's end of a message or a collective: the operation ends once every
/// rank in `with` has reached its operation of the same key.
struct RankOperation {
  std::string name;
  /// The peer's n-th operation on a channel; what it carries must agree (for
  /// collectives that is a number below 0).
  struct Wait {
    int64_t peer;
    std::string channel;
    int64_t occurrence;
    int64_t content;
  };
  std::vector<Wait> waits;
};

class Expansion {
public:
  Expansion(const TaskProgram &program, ArrayRef<int64_t> ranksPerRole)
      : program(program), ranksPerRole(ranksPerRole) {
    int64_t next = 0;
    for (int64_t count : ranksPerRole) {
      firstRank.push_back(next);
      next += count;
    }
    operations.resize(next);
    arrivals.resize(next);
  }

  std::string run() {
    // Three batches if they go on: one that begins, one between, one that ends.
    for (SchedulePart part : trainingParts(program, program.goesOn() ? 3 : 1)) {
      for (size_t role = 0; role < program.roles.size(); ++role)
        for (const Task &task : program.roles[role].part(part))
          for (int64_t local = 0; local < ranksPerRole[role]; ++local)
            if (part == SchedulePart::StepEnd || !endsStep(task.kind))
              expand(role, local, task);
      batch += part == SchedulePart::StepEnd;
    }
    return execute();
  }

private:
  std::vector<int64_t> ranksOf(int64_t role) const {
    std::vector<int64_t> ranks(ranksPerRole[role]);
    std::iota(ranks.begin(), ranks.end(), firstRank[role]);
    return ranks;
  }

  /// Adds a wait for each peer and notes where this rank can be met: the n-th
  /// operation on a channel meets the peer's n-th on the same channel.
  void meet(int64_t rank, RankOperation &operation, ArrayRef<int64_t> with,
            const std::string &channel, int64_t content) {
    for (int64_t peer : with) {
      if (peer == rank)
        continue;
      std::string key = channel + ":" + std::to_string(std::min(rank, peer)) +
                        "-" + std::to_string(std::max(rank, peer));
      std::vector<std::pair<int64_t, int64_t>> &met = arrivals[rank][key];
      operation.waits.push_back(
          {peer, key, static_cast<int64_t>(met.size()), content});
      met.push_back({static_cast<int64_t>(operations[rank].size()), content});
    }
  }

  /// Adds an end of a message between chunks of one role, which waits for the
  /// other end on the same rank.
  void meetItself(int64_t rank, RankOperation &operation, bool sends,
                  int64_t content) {
    auto &own = arrivals[rank][sends ? "sends" : "receives"];
    operation.waits.push_back({rank, sends ? "receives" : "sends",
                               static_cast<int64_t>(own.size()), content});
    own.push_back({static_cast<int64_t>(operations[rank].size()), content});
  }

  /// Adds an end of a message between two ranks, whose messages of one
  /// direction meet in their order.
  void message(int64_t role, int64_t local, const TransferPart &part,
               RankOperation &operation) {
    bool known = part.peerChunk < program.chunks.size();
    int64_t peer = known ? program.chunks[part.peerChunk].role : -1;
    int64_t chunk = part.sends() ? part.chunk : part.peerChunk;
    int64_t sets = static_cast<int64_t>(program.chunks.size()) * 3;
    int64_t content =
        ((batch + part.generation) * program.parts() + part.microBatch) * sets +
        chunk * 3 + static_cast<int64_t>(part.value);
    int64_t rank = firstRank[role] + local;
    if (peer == role)
      return meetItself(rank, operation, part.sends(), content);
    for (int64_t other : overlapping(role, local, peer))
      meet(rank, operation, other,
           "from " + std::to_string(part.sends() ? rank : other), content);
  }

  /// Ranks of `peer` whose share of the samples meets rank `local`'s.
  std::vector<int64_t> overlapping(int64_t role, int64_t local,
                                   int64_t peer) const {
    std::vector<int64_t> ranks;
    if (peer < 0 || peer >= static_cast<int64_t>(program.roles.size()))
      return ranks;
    int64_t n = ranksPerRole[role], other = ranksPerRole[peer];
    for (int64_t r = 0; r < other; ++r)
      if (local * other < (r + 1) * n && r * n < (local + 1) * other)
        ranks.push_back(firstRank[peer] + r);
    return ranks;
  }

  void expand(int64_t role, int64_t local, const Task &task) {
    int64_t rank = firstRank[role] + local;
    RankOperation operation;
    operation.name = task.str(program.hasSeveralChunks());
    switch (task.kind) {
    case TaskKind::Forward:
    case TaskKind::Backward:
    case TaskKind::BackwardInput:
    case TaskKind::BackwardWeight:
    case TaskKind::SyncGradients:
      meet(rank, operation, ranksOf(role), "stage", -1);
      break;
    case TaskKind::Transfer:
      for (const TransferPart &part : task.parts)
        message(role, local, part, operation);
      break;
    case TaskKind::Norm: {
      if (program.goesOn())
        break;
      std::vector<int64_t> all(operations.size());
      std::iota(all.begin(), all.end(), 0);
      meet(rank, operation, all, "norm", -1);
      break;
    }
    case TaskKind::TieReduce:
    case TaskKind::TieBroadcast:
      // One operation per tie: a rank meets the members of the first tie
      // before it turns to the second.
      for (size_t t = 0; t < program.ties.size(); ++t) {
        const TieRoles &tie = program.ties[t];
        if (tie.owner != role && tie.borrower != role)
          continue;
        if (tie.forwardOnly && task.kind == TaskKind::TieReduce)
          continue;
        std::vector<int64_t> group = ranksOf(tie.owner);
        if (tie.borrower != tie.owner)
          append_range(group, ranksOf(tie.borrower));
        RankOperation part;
        part.name = operation.name;
        // The directions share the group's communicator: the kind is part of
        // what has to agree.
        meet(rank, part, group, "tie" + std::to_string(t),
             -1 - static_cast<int64_t>(task.kind));
        operations[rank].push_back(std::move(part));
      }
      return;
    case TaskKind::Update:
    case TaskKind::Swap:
      break;
    }
    operations[rank].push_back(std::move(operation));
  }

  std::string execute() {
    std::vector<size_t> at(operations.size(), 0);
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t rank = 0; rank < operations.size(); ++rank) {
        while (at[rank] < operations[rank].size()) {
          bool free = true;
          for (const RankOperation::Wait &wait :
               operations[rank][at[rank]].waits) {
            const auto &met = arrivals[wait.peer][wait.channel];
            if (wait.occurrence >= static_cast<int64_t>(met.size()) ||
                static_cast<int64_t>(at[wait.peer]) <
                    met[wait.occurrence].first) {
              free = false;
              continue;
            }
            if (met[wait.occurrence].second != wait.content)
              return "rank " + std::to_string(rank) + " at '" +
                     operations[rank][at[rank]].name +
                     "' meets another operation of rank " +
                     std::to_string(wait.peer);
          }
          if (!free)
            break;
          ++at[rank];
          progress = true;
        }
      }
    }
    for (size_t rank = 0; rank < operations.size(); ++rank)
      if (at[rank] < operations[rank].size())
        return "rank " + std::to_string(rank) + " is stuck at '" +
               operations[rank][at[rank]].name + "'";
    return "";
  }

  const TaskProgram &program;
  ArrayRef<int64_t> ranksPerRole;
  std::vector<int64_t> firstRank;
  int64_t batch = 0; ///< that parts are run for
  std::vector<std::vector<RankOperation>> operations; ///< by rank
  /// Occurrences by rank and channel: (operation index, content) of each.
  std::vector<std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>>
      arrivals;
};

} // namespace

std::string runExpanded(const TaskProgram &program,
                        ArrayRef<int64_t> ranksPerRole) {
  return Expansion(program, ranksPerRole).run();
}

} // namespace galvatron
