//===- proof_waits.cpp - What roles wait for one another for --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Messages and collectives of two roles match, and no waits between them form a
// cycle. Why one run over the roles decides for all runs: proof.cpp.
//
//===----------------------------------------------------------------------===//

#include "schedule/fault_log.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>

namespace galvatron::tasks::proof {
namespace {

/// The waits of one part of the program.
class Waits {
public:
  explicit Waits(FaultLog &log) : log(log), program(log.program) {}

  /// Pairs the ends of all messages; false if some have no other end.
  bool matchTransfers() {
    bool good = true;
    for (const auto &[ends, channel] : channels())
      good &=
          matchChannel(channel.first, channel.second, ends.first, ends.second);
    return good;
  }

  /// Checks that any two roles agree on the sequence of collectives they share.
  bool matchCollectives() {
    std::vector<std::vector<std::pair<Collective, TaskRef>>> lists;
    for (int64_t role = 0; role < log.roleCount; ++role)
      lists.push_back(collectivesOf(role));
    for (int64_t a = 0; a < log.roleCount; ++a)
      for (int64_t b = a + 1; b < log.roleCount; ++b) {
        std::vector<std::pair<Collective, TaskRef>> inA, inB;
        std::ranges::copy_if(lists[a], std::back_inserter(inA),
                             [&](const auto &c) { return c.first.has(b); });
        std::ranges::copy_if(lists[b], std::back_inserter(inB),
                             [&](const auto &c) { return c.first.has(a); });
        size_t shared = std::min(inA.size(), inB.size());
        for (size_t i = 0; i < shared; ++i) {
          if (!(inA[i].first == inB[i].first)) {
            log.report(ScheduleFaultKind::CollectiveMismatch, inA[i].second,
                       "meets " + log.taskName(inB[i].second) +
                           ", expected the same collective in the same order");
            return false;
          }
          peers[{a, inA[i].second.index}].push_back(inB[i].second);
          peers[{b, inB[i].second.index}].push_back(inA[i].second);
        }
        if (inA.size() != inB.size()) {
          bool inFirst = inA.size() > inB.size();
          log.report(ScheduleFaultKind::CollectiveMismatch,
                     (inFirst ? inA : inB)[shared].second,
                     "has no counterpart in " + log.roleName(inFirst ? b : a));
          return false;
        }
      }
    return true;
  }

  /// Reports a cycle of waits between matched tasks, if there is one.
  void findDeadlock() {
    std::vector<int64_t> reached(log.roleCount, 0);
    bool progress = true;
    while (progress) {
      progress = false;
      for (int64_t role = 0; role < log.roleCount; ++role)
        while (reached[role] < int64_t(log.tasksOf(role).size()) &&
               !waitsFor({role, reached[role]}, reached)) {
          ++reached[role];
          progress = true;
        }
    }
    int64_t start = -1;
    for (int64_t role = 0; role < log.roleCount && start < 0; ++role)
      if (reached[role] < int64_t(log.tasksOf(role).size()))
        start = role;
    if (start < 0)
      return;
    // Follow the waits; the first role met twice closes the cycle.
    std::vector<int64_t> path;
    int64_t role = start;
    while (std::ranges::find(path, role) == path.end()) {
      path.push_back(role);
      role = waitsFor({role, reached[role]}, reached)->role;
    }
    path.erase(path.begin(), std::ranges::find(path, role));
    std::string cycle;
    for (int64_t member : path) {
      TaskRef at{member, reached[member]};
      const TaskRef *peer = waitsFor(at, reached);
      if (member != path.front())
        cycle += ", which waits for ";
      cycle += log.taskName(*peer) + ", but " + log.roleName(peer->role) +
               " is at " + log.taskName({peer->role, reached[peer->role]});
    }
    log.report(ScheduleFaultKind::Deadlock,
               {path.front(), reached[path.front()]},
               "deadlock: waits for " + cycle);
  }

private:
  /// An end of a message, as the sender names it.
  struct TransferEnd {
    TaskRef ref;
    TransferValue value;
    int64_t chunk;      ///< that it comes from; of a stash that it goes to
    int64_t microBatch; ///< from the batch on that the part is run for

    auto key() const { return std::tuple(value, chunk, microBatch); }
  };

  std::string messageName(const TransferEnd &end) const {
    return joined(transferValueName(end.value), " of ",
                  log.passName(end.chunk, end.microBatch));
  }

  /// Home of a chunk; -1 if there is no such chunk.
  int64_t homeOf(int64_t chunk) const {
    return chunk < int64_t(program.chunks.size()) ? program.chunks[chunk].role
                                                  : -1;
  }

  /// Sends and receives by sender and receiver, in the order of either side's
  /// tasks.
  using Channel = std::pair<std::vector<TransferEnd>, std::vector<TransferEnd>>;
  std::map<std::pair<int64_t, int64_t>, Channel> channels() const {
    std::map<std::pair<int64_t, int64_t>, Channel> list;
    for (int64_t role = 0; role < log.roleCount; ++role)
      for (size_t i = 0; i < log.tasksOf(role).size(); ++i)
        for (const TransferPart &message : log.tasksOf(role)[i].parts) {
          TransferEnd end{
              {role, int64_t(i)},
              message.value,
              message.sends() != (message.value == TransferValue::Stash)
                  ? message.chunk
                  : message.peerChunk,
              message.generation * program.microBatches + message.microBatch};
          int64_t peer = homeOf(message.peerChunk);
          if (message.sends())
            list[{role, peer}].first.push_back(end);
          else
            list[{peer, role}].second.push_back(end);
        }
    return list;
  }

  /// Pairs what one role sends to another with what that receives, in order.
  bool matchChannel(std::span<const TransferEnd> sends,
                    std::span<const TransferEnd> recvs, int64_t sender,
                    int64_t receiver) {
    std::map<decltype(std::declval<TransferEnd>().key()), int64_t> balance;
    for (const TransferEnd &end : sends)
      ++balance[end.key()];
    for (const TransferEnd &end : recvs)
      --balance[end.key()];
    bool good = true;
    auto unmatched = [&](std::span<const TransferEnd> list, int64_t sign,
                         const char *missing, int64_t peer) {
      for (const TransferEnd &end : std::views::reverse(list)) {
        int64_t &left = balance[end.key()];
        if (left * sign <= 0)
          continue;
        left -= sign;
        good = false;
        log.report(ScheduleFaultKind::UnmatchedTransfer, end.ref, "no ",
                   missing, " of the ", messageName(end), " in ",
                   (peer >= 0 ? log.roleName(peer)
                              : std::string("a neighbour, there is none")));
      }
    };
    unmatched(sends, 1, "receive", receiver);
    unmatched(recvs, -1, "send", sender);
    if (!good)
      return false;
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i].key() != recvs[i].key()) {
        log.report(ScheduleFaultKind::MicroBatchMismatch, sends[i].ref,
                   "meets " + log.taskName(recvs[i].ref) + ": the " +
                       messageName(sends[i]) + " where the " +
                       messageName(recvs[i]) + " is expected");
        return false;
      }
      peers[{sends[i].ref.role, sends[i].ref.index}].push_back(recvs[i].ref);
      peers[{recvs[i].ref.role, recvs[i].ref.index}].push_back(sends[i].ref);
    }
    return true;
  }

  /// A collective over roles; two are equal if they are the same call.
  struct Collective {
    TaskKind kind;
    size_t tie = 0;
    int64_t owner = -1, borrower = -1; ///< of a tie; -1: all roles

    bool has(int64_t role) const {
      return owner < 0 || owner == role || borrower == role;
    }
    bool operator==(const Collective &other) const {
      return kind == other.kind && tie == other.tie;
    }
  };

  std::vector<std::pair<Collective, TaskRef>>
  collectivesOf(int64_t role) const {
    std::vector<std::pair<Collective, TaskRef>> list;
    for (size_t i = 0; i < log.tasksOf(role).size(); ++i) {
      TaskKind kind = log.tasksOf(role)[i].kind;
      TaskRef ref{role, int64_t(i)};
      // A norm is no collective if batches go on: it uses numbers that all
      // ranks have told a batch before.
      if (kind == TaskKind::Norm && !program.goesOn()) {
        list.push_back({{kind}, ref});
      } else if ((kind == TaskKind::TieReduce ||
                  kind == TaskKind::TieBroadcast) &&
                 !log.takesHere(role)) {
        for (size_t t = 0; t < program.ties.size(); ++t) {
          const TieRoles &tie = program.ties[t];
          if (tie.forwardOnly && kind == TaskKind::TieReduce)
            continue;
          if (tie.owner == role || tie.borrower == role)
            list.push_back({{kind, t, tie.owner, tie.borrower}, ref});
        }
      }
    }
    return list;
  }

  /// The first peer that `ref` still waits for, given how far each role is.
  const TaskRef *waitsFor(TaskRef ref, std::span<const int64_t> reached) const {
    auto it = peers.find({ref.role, ref.index});
    if (it == peers.end())
      return nullptr;
    for (const TaskRef &peer : it->second)
      if (reached[peer.role] < peer.index)
        return &peer;
    return nullptr;
  }

  FaultLog &log;
  const TaskProgram &program;
  /// Tasks of other roles that a task meets, by its role and index.
  std::map<std::pair<int64_t, int64_t>, std::vector<TaskRef>> peers;
};

} // namespace

void checkWaits(FaultLog &log) {
  Waits waits(log);
  bool matched = waits.matchTransfers();
  matched &= waits.matchCollectives();
  // Waits are only defined between matched operations.
  if (matched)
    waits.findDeadlock();
}

} // namespace galvatron::tasks::proof
