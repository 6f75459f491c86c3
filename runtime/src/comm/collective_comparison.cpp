//===- collective_comparison.cpp - Which collective a run hangs in --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/collective_comparison.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace grt {
namespace {

/// Findings and ranks that a message has; more would hide the first ones.
constexpr size_t mostFindings = 4, mostRankNames = 8;

/// A member's part in a call that some member has not finished.
struct Member {
  int rank;
  const RankCollectives *record = nullptr; ///< null: absent
  const CommunicatorState *state = nullptr;

  uint64_t enqueued() const { return state ? state->enqueued : 0; }
  uint64_t started() const { return state ? state->started : 0; }
  uint64_t done() const { return state ? state->done : 0; }
  bool isKnown() const { return record && record->known; }
  /// True if the rank has begun a call on this communicator that has not ended.
  bool isIn() const { return isKnown() && done() < enqueued(); }
  const CollectiveCall *call(uint64_t number) const {
    if (state)
      for (const CollectiveCall &each : state->calls)
        if (each.number == number)
          return &each;
    return nullptr;
  }
};

/// A communicator with a call that has begun and not ended everywhere.
struct Stuck {
  std::string name;
  std::vector<Member> members;
  std::unordered_map<int, size_t> index; ///< of a rank in `members`
  uint64_t number = 0;                   ///< of the first such call
  std::vector<int> silent, missing, waiting, finished;
  bool hasUnknown = false; ///< members of which nothing is known
  /// The lowest number whose calls differ, 0 if none does.
  uint64_t differs = 0;

  bool isComplete() const {
    return silent.empty() && missing.empty() && !hasUnknown;
  }
  const Member *member(int rank) const {
    auto at = index.find(rank);
    return at == index.end() ? nullptr : &members[at->second];
  }
  /// Returns the call with a number, of any member that still has it, or null.
  const CollectiveCall *call(uint64_t of) const {
    for (const Member &each : members)
      if (const CollectiveCall *found = each.call(of))
        return found;
    return nullptr;
  }
  bool inGraph() const {
    const CollectiveCall *first = call(number);
    return first && first->inGraph;
  }
  std::string place() const {
    std::vector<int> ranks;
    for (const Member &each : members)
      ranks.push_back(each.rank);
    const CollectiveCall *any = call(number);
    if (any && any->kind == CollectiveKind::Transfer && members.size() == 2)
      return "from rank " + std::to_string(ranks[0]) + " to rank " +
             std::to_string(ranks[1]);
    return "of '" + name + "' (" + rankNames(ranks) + ")";
  }
  /// "all-reduce 812 of 'tensor' (ranks 0 to 3)".
  std::string text() const {
    const CollectiveCall *any = call(number);
    return std::string(any ? collectiveName(any->kind) : "collective") + " " +
           std::to_string(number) + " " + place();
  }
};

class Comparison {
public:
  Comparison(std::span<const RankCollectives> ranks, Absent absent)
      : ranks(ranks), absent(absent) {
    for (const RankCollectives &rank : ranks)
      byRank[rank.rank] = &rank;
    findStuck();
  }

  std::vector<CollectiveFinding> findings() {
    for (const Stuck &each : stuck)
      if (each.differs)
        addDisagreement(each);
    for (const Stuck &each : stuck)
      if (!each.silent.empty())
        add(CollectiveFinding::Silent, each, each.silent,
            rankNames(each.silent) +
                (each.silent.size() > 1 ? " do not answer, and "
                                        : " does not answer, and ") +
                rankNames(each.waiting) +
                (each.waiting.size() > 1 ? " wait in " : " waits in ") +
                each.text());
    addMissing();
    addUnfinished();
    if (found.empty() && !stuck.empty())
      addCircle();
    return std::move(found);
  }

private:
  /// A communicator (its index in `stuck`) or a rank.
  using Node = std::pair<bool, int>;
  static Node ofRank(int rank) { return {true, rank}; }
  static Node ofStuck(size_t index) { return {false, int(index)}; }

  void findStuck() {
    std::map<std::pair<std::string, RankList>, Stuck> all;
    for (const RankCollectives &rank : ranks)
      for (const CommunicatorState &state : rank.communicators) {
        Stuck &entry = all[{state.name, state.members}];
        if (entry.members.empty()) {
          entry.name = state.name;
          for (int member : state.members.ranks()) {
            auto at = byRank.find(member);
            entry.index[member] = entry.members.size();
            entry.members.push_back(
                {member, at == byRank.end() ? nullptr : at->second});
          }
        }
        if (auto at = entry.index.find(rank.rank); at != entry.index.end())
          entry.members[at->second].state = &state;
      }
    for (auto &[key, entry] : all) {
      uint64_t done = UINT64_MAX, enqueued = 0;
      for (const Member &member : entry.members)
        if (member.isKnown()) {
          done = std::min(done, member.done());
          enqueued = std::max(enqueued, member.enqueued());
        }
      if (done == UINT64_MAX)
        continue;
      // Skip it if all known members have ended all that any of them has begun.
      if (enqueued <= done)
        continue;
      entry.number = done + 1;
      for (const Member &member : entry.members) {
        if (!member.record && absent == Absent::Silent) {
          entry.silent.push_back(member.rank);
        } else if (!member.isKnown()) {
          entry.hasUnknown = true;
        } else if (member.enqueued() < entry.number) {
          entry.missing.push_back(member.rank);
        } else if (member.done() < entry.number) {
          entry.waiting.push_back(member.rank);
        } else {
          entry.finished.push_back(member.rank);
        }
      }
      entry.differs = firstDifference(entry);
      stuck.push_back(std::move(entry));
    }
  }

  static bool isAlike(const CollectiveCall &a, const CollectiveCall &b) {
    return a.kind == b.kind && a.bytes == b.bytes;
  }

  static uint64_t firstDifference(const Stuck &of) {
    std::map<uint64_t, const CollectiveCall *> seen;
    uint64_t first = 0;
    for (const Member &member : of.members)
      if (member.state)
        for (const CollectiveCall &call : member.state->calls) {
          auto [at, fresh] = seen.try_emplace(call.number, &call);
          if (!fresh && !isAlike(*at->second, call) &&
              (!first || call.number < first))
            first = call.number;
        }
    return first;
  }

  void add(CollectiveFinding::Kind kind, const Stuck &of,
           std::vector<int> named, std::string text) {
    found.push_back(
        {kind, std::move(named), of.name, of.number, std::move(text)});
  }

  void addDisagreement(const Stuck &of) {
    // The distinct calls of this number, each with the ranks that made it; the
    // most frequent one comes first.
    std::vector<std::pair<const CollectiveCall *, std::vector<int>>> kinds;
    for (const Member &member : of.members)
      if (const CollectiveCall *call = member.call(of.differs)) {
        auto at = std::find_if(kinds.begin(), kinds.end(), [&](auto &one) {
          return isAlike(*one.first, *call);
        });
        if (at == kinds.end())
          at = kinds.insert(at, {call, {}});
        at->second.push_back(member.rank);
      }
    std::stable_sort(kinds.begin(), kinds.end(), [](auto &a, auto &b) {
      return a.second.size() > b.second.size();
    });
    const auto &[most, mostly] = kinds[0];
    const auto &[other, others] = kinds[1];
    std::vector<int> named{mostly[0], others[0]};
    const bool sameKind = most->kind == other->kind;
    auto has = [&](const CollectiveCall &call) {
      return (sameKind ? "" : std::string(collectiveName(call.kind)) + " of ") +
             std::to_string(call.bytes) + " bytes";
    };
    std::string text =
        rankNames(named) +
        " disagree: " + (sameKind ? collectiveName(most->kind) : "collective") +
        " " + std::to_string(of.differs) + " " + of.place() +
        (sameKind ? ", of " : ", ") + has(*most) + " against " + has(*other);
    found.push_back({CollectiveFinding::Disagree, std::move(others), of.name,
                     of.differs, std::move(text)});
  }

  /// Returns what a communicator or a rank waits for; empty if it stands still
  /// for a reason of its own.
  std::vector<Node> awaited(const Node &node) const {
    std::vector<Node> next;
    if (node.first) {
      const RankCollectives &rank = *byRank.at(node.second);
      if (rank.host == RankCollectives::ForRanks)
        for (int peer : rank.peers)
          if (byRank.count(peer))
            next.push_back(ofRank(peer));
      if (rank.host == RankCollectives::InCollective ||
          rank.host == RankCollectives::ForDevice)
        for (size_t i = 0; i < stuck.size(); ++i)
          if (const Member *own = stuck[i].member(rank.rank);
              own && own->isIn())
            next.push_back(ofStuck(i));
      return next;
    }
    const Stuck &of = stuck[size_t(node.second)];
    if (of.differs || !of.silent.empty())
      return next;
    for (int rank : of.missing)
      next.push_back(ofRank(rank));
    if (!of.isComplete())
      return next;
    // All members have come, and some device has something else to end before.
    for (int rank : of.waiting) {
      const Member &member = *of.member(rank);
      const CollectiveCall *own = member.call(of.number);
      if (member.started() >= of.number || !own)
        continue;
      for (size_t i = 0; i < stuck.size(); ++i) {
        const Member *other = stuck[i].member(rank);
        if (&stuck[i] == &of || !other || !other->isIn())
          continue;
        const CollectiveCall *before = other->call(other->done() + 1);
        if (before && before->order < own->order)
          next.push_back(ofStuck(i));
      }
    }
    return next;
  }

  void addMissing() {
    // Communicators by the missing ranks that wait for nothing else, which they
    // all wait for.
    std::map<std::vector<int>, std::vector<const Stuck *>> waits;
    for (const Stuck &each : stuck) {
      if (each.differs || !each.silent.empty())
        continue;
      std::vector<int> own;
      for (int rank : each.missing)
        if (awaited(ofRank(rank)).empty())
          own.push_back(rank);
      if (!own.empty())
        waits[own].push_back(&each);
    }
    for (auto &[named, all] : waits) {
      std::string text = rankNames(named) + " never enqueued ";
      constexpr size_t mostNamed = 3;
      for (size_t i = 0; i < std::min(all.size(), mostNamed); ++i)
        text += (i ? ", nor " : "") + all[i]->text();
      if (all.size() > mostNamed)
        text += ", nor " + std::to_string(all.size() - mostNamed) + " others";
      for (const Stuck *each : all)
        add(CollectiveFinding::Missing, *each, named, text);
    }
  }

  void addUnfinished() {
    std::set<int> inGraph;
    const Stuck *graph = nullptr;
    for (size_t i = 0; i < stuck.size(); ++i) {
      const Stuck &each = stuck[i];
      if (each.differs || !each.isComplete() || each.waiting.empty() ||
          !awaited(ofStuck(i)).empty())
        continue;
      if (each.inGraph()) {
        graph = &each;
        inGraph.insert(each.waiting.begin(), each.waiting.end());
        continue;
      }
      std::vector<int> late;
      for (int rank : each.waiting)
        if (each.member(rank)->started() < each.number)
          late.push_back(rank);
      std::string text = "all ranks enqueued " + each.text() + ", ";
      const bool some = !late.empty() && late.size() < each.waiting.size();
      std::vector<int> named = some ? late : each.waiting;
      if (some)
        text += rankNames(late) + " never started it";
      else if (each.waiting.size() == each.members.size())
        text += late.empty() ? "and none finished" : "and none started it";
      else
        text += rankNames(each.waiting) + " never finished";
      add(CollectiveFinding::Unfinished, each, std::move(named),
          std::move(text));
    }
    if (!graph)
      return;
    std::vector<int> named(inGraph.begin(), inGraph.end());
    add(CollectiveFinding::Unfinished, *graph, named,
        "all ranks started a graph with " + graph->text() + ", " +
            rankNames(named) +
            " never finished; --no-cuda-graph names the collective");
  }

  void addCircle() {
    // Walks from any communicator along what is waited for, until a node comes
    // again.
    std::vector<Node> path{ofStuck(0)};
    while (true) {
      std::vector<Node> next = awaited(path.back());
      if (next.empty())
        return;
      auto at = std::find(path.begin(), path.end(), next[0]);
      if (at != path.end()) {
        path.erase(path.begin(), at);
        break;
      }
      path.push_back(next[0]);
    }
    std::vector<int> named;
    std::string text;
    const Stuck *first = nullptr;
    for (size_t i = 0; i < path.size(); ++i) {
      if (path[i].first) {
        named.push_back(path[i].second);
        continue;
      }
      const Stuck &each = stuck[size_t(path[i].second)];
      first = first ? first : &each;
      const Node &then = path[(i + 1) % path.size()];
      text += (text.empty() ? "" : ", ") + each.text() + " waits for ";
      if (then.first) {
        text += "rank " + std::to_string(then.second);
      } else {
        // A device that has them in another order.
        text += stuck[size_t(then.second)].text();
        named.insert(named.end(), each.waiting.begin(), each.waiting.end());
      }
    }
    std::sort(named.begin(), named.end());
    named.erase(std::unique(named.begin(), named.end()), named.end());
    if (first)
      add(CollectiveFinding::Circle, *first, named,
          rankNames(named) + " wait for each other: " + text);
  }

  std::span<const RankCollectives> ranks;
  const Absent absent;
  std::map<int, const RankCollectives *> byRank;
  std::vector<Stuck> stuck;
  std::vector<CollectiveFinding> found;
};

} // namespace

const char *collectiveName(CollectiveKind kind) {
  static const char *const names[collectiveKinds] = {
      "all-reduce", "all-gather",        "reduce-scatter", "gather",
      "transfer",   "all-reduce of max", "all-to-all",     "shift"};
  return names[size_t(kind)];
}

RankList::RankList(std::span<const int> ranks) {
  for (size_t i = 0; i < ranks.size();) {
    Run run{ranks[i], 0, 1};
    if (i + 1 < ranks.size())
      run.stride = ranks[i + 1] - ranks[i];
    while (i + run.count < ranks.size() &&
           ranks[i + run.count] - ranks[i + run.count - 1] == run.stride)
      ++run.count;
    if (run.count == 1)
      run.stride = 0;
    i += run.count;
    runs.push_back(run);
  }
}

std::vector<int> RankList::ranks() const {
  std::vector<int> all;
  for (const Run &run : runs)
    for (uint64_t i = 0; i < run.count; ++i)
      all.push_back(run.first + run.stride * int(i));
  return all;
}

std::string rankNames(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  if (ranks.size() == 1)
    return "rank " + std::to_string(ranks[0]);
  if (ranks.size() > 2 && ranks.back() - ranks.front() + 1 == int(ranks.size()))
    return "ranks " + std::to_string(ranks.front()) + " to " +
           std::to_string(ranks.back());
  const size_t named = std::min(ranks.size(), mostRankNames);
  std::string text = "ranks ";
  for (size_t i = 0; i < named; ++i)
    text += (i == 0                                    ? ""
             : i + 1 == named && named == ranks.size() ? " and "
                                                       : ", ") +
            std::to_string(ranks[i]);
  if (named < ranks.size())
    text += " and " + std::to_string(ranks.size() - named) + " more";
  return text;
}

std::vector<CollectiveFinding>
compareCollectives(std::span<const RankCollectives> ranks, Absent absent) {
  return Comparison(ranks, absent).findings();
}

std::string findingsText(std::span<const CollectiveFinding> findings) {
  std::vector<std::string> texts;
  for (const CollectiveFinding &finding : findings)
    if (std::find(texts.begin(), texts.end(), finding.text) == texts.end())
      texts.push_back(finding.text);
  std::string all;
  for (size_t i = 0; i < std::min(texts.size(), mostFindings); ++i)
    all += "; " + texts[i];
  if (texts.size() > mostFindings)
    all += "; and " + std::to_string(texts.size() - mostFindings) + " more";
  return all;
}

} // namespace grt
