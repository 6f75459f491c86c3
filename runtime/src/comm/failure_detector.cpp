//===- failure_detector.cpp - Who is alive, who stands still, who failed --===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/failure_detector.h"
#include "comm/agreement.h"
#include "grt/session.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace grt {
namespace {

/// Beats come about every second; a process is late after this many, and one
/// that a relay speaks for after a second more.
constexpr double beatEvery = 1, lateBeat = 1.9;

/// Seconds that a lost process's peers get to come to wait for it.
constexpr double lostGrace = 0.4;
/// Seconds that the others of a lost relay's host get to call process 0, and
/// that they try for. A launcher that ends all of us leaves less time.
constexpr double relayGrace = 2, hurriedGrace = 0.7, rootGrace = 5;
/// Seconds between questions while a loss is looked into, and that a relay
/// waits for its host's answers.
constexpr double askEvery = 0.1, answerTime = 0.05;
/// Seconds after SIGTERM, with which mpirun ends the processes that a dead one
/// leaves behind. A process that learns of a loss, or is asked about one,
/// within the first waits for the verdict for the second.
constexpr double termGrace = 0.5, lossGrace = 4;
/// Seconds after which a process that has failed, and has no answer, calls
/// process 0, and after which it prints what it found.
constexpr double callAfter = 0.5, speakAfter = 1.5;

/// Ticks come in a tenth of a second. After this time without one a process was
/// stopped, or had no core.
constexpr double standstill = 1;

/// Seconds between two looks at all processes.
constexpr double judgeEvery = 0.05;

/// Ranks that a message describes; more would hide the first ones.
constexpr int mostDescribed = 8;

constexpr const char *endedHow = "ended without a word";

std::string rankList(int first, int count) {
  if (count == 0)
    return "no rank";
  if (count == 1)
    return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + " to " +
         std::to_string(first + count - 1);
}

std::string failureText(const Failure &failure) {
  int32_t code = failure.exitCode;
  return std::string(reinterpret_cast<const char *>(&code), sizeof(code)) +
         failure.message;
}

} // namespace

FailureDetector::FailureDetector(const HostTree &tree, int self,
                                 const DetectorOptions &options,
                                 DetectorEnvironment &environment, double now)
    : tree(tree), self(self), options(options), around(environment),
      parent(tree.parent(self)), children(tree.children(self)), lastMove(now) {
  for (int child : children)
    links[child].heard = known[child].heard = now;
  if (parent >= 0)
    links[parent].heard = known[parent].heard = now;
  if (isRoot())
    for (int other = 1; other < tree.size(); ++other)
      known[other].heard = now;
}

bool FailureDetector::isOpen(int process) const {
  auto link = links.find(process);
  return link != links.end() && link->second.open;
}

/// Returns the process that this one reports to, -1 if there is none: process 0
/// if it had to be called.
int FailureDetector::upwards() const {
  if (isOpen(0))
    return 0;
  return parent >= 0 && isOpen(parent) ? parent : -1;
}

//===----------------------------------------------------------------------===//
// What happens
//===----------------------------------------------------------------------===//

void FailureDetector::connected(int process, double now) {
  links[process] = {true, now};
  known[process].heard = now;
  beatSoon();
  if (found && !told) {
    if (ownFailed && !isRoot())
      around.send(process, WatchKind::Failed, failureText(*found));
  } else if (found && isRoot()) {
    around.send(process, WatchKind::Stop, failureText(*found));
  }
}

void FailureDetector::closed(int process, double now) {
  auto link = links.find(process);
  if (link == links.end() || !link->second.open)
    return;
  link->second.open = false;
  Known &lost = known[process];
  if (told || lost.state != ProcessReport::Alive)
    return;
  lost.state = ProcessReport::Lost;
  lossAt = std::min(lossAt, now);
  if (isRoot()) {
    if (!tree.isRelay(process) || tree.hostOf(process).size() == 1)
      return lose({process}, endedHow, now);
    orphaned.emplace(process, now);
    ask(now);
    return;
  }
  if (process == parent && parent != 0) {
    // Process 0 finds out whether the relay alone is gone.
    parentLost = true;
    parentLostAt = now;
    if (!called)
      around.callRoot();
    called = true;
    return;
  }
  if (tree.parent(process) == self) {
    answerAt = now;
    if (upwards() >= 0)
      return;
  } else if (parent != 0) {
    return; // Of process 0, by one that called it: judgeParent.
  }
  lose({process}, endedHow, now);
}

void FailureDetector::received(int from, const Message &message, double now) {
  links[from].heard = now;
  known[from].heard = now;
  switch (WatchKind(message.kind)) {
  case WatchKind::Beat:
    return merge(from, message.text, now);
  case WatchKind::Ask:
    lossAt = std::min(lossAt, now);
    for (int child : children)
      if (isOpen(child))
        around.send(child, WatchKind::Ask, {});
    answerAt = std::min(answerAt, now + (children.empty() ? 0 : answerTime));
    return;
  case WatchKind::Leaving:
    return leaves(from);
  case WatchKind::Failed:
  case WatchKind::Stop:
    break;
  default:
    return;
  }
  int32_t code = 1;
  if (message.text.size() < sizeof(code))
    return;
  std::memcpy(&code, message.text.data(), sizeof(code));
  Failure failure{code, message.text.substr(sizeof(code))};
  if (WatchKind(message.kind) == WatchKind::Stop)
    return report(failure, Source::Told, now);
  // Only process 0 says which failure came first; a process that passes one on
  // hears of it later.
  if (!isRoot() && upwards() >= 0)
    around.send(upwards(), WatchKind::Failed, message.text);
  else
    report(failure, Source::Judged, now);
}

void FailureDetector::merge(int from, const std::string &text, double now) {
  std::optional<std::vector<ProcessReport>> reports = decodeReports(text);
  if (!reports)
    return;
  for (ProcessReport &report : *reports) {
    const int process = report.process;
    if (process < 0 || process >= tree.size() || process == self ||
        (process != from && tree.parent(process) != from))
      continue;
    auto at = known.find(process);
    if (at == known.end())
      continue;
    Known &old = at->second;
    // Over two ways an older report may come later.
    double heard = now - report.age;
    if (process == from || heard >= old.heard) {
      old.heard = std::max(old.heard, heard);
      old.firstRank = report.firstRank;
      old.ranks = std::move(report.ranks);
    }
    if (old.state != ProcessReport::Alive)
      continue;
    if (report.state == ProcessReport::Leaving)
      leaves(process);
    if (report.state == ProcessReport::Lost) {
      old.state = ProcessReport::Lost;
      lose({process}, endedHow, now);
    }
  }
}

void FailureDetector::leaves(int process) {
  auto mark = [&](int leaving) {
    if (Known &one = known[leaving]; one.state == ProcessReport::Alive)
      one.state = ProcessReport::Leaving;
  };
  mark(process);
  // All have come to the end, so nobody speaks for the others of its host now.
  if (isRoot() && tree.isRelay(process))
    for (int member : tree.hostOf(process))
      if (!isOpen(member))
        mark(member);
}

void FailureDetector::fail(const Failure &failure, double now) {
  report(failure, Source::Own, now);
}

void FailureDetector::terminated(double now) {
  if (termAt == never)
    termAt = now;
}

void FailureDetector::leave() {
  for (const auto &[process, link] : links)
    if (link.open)
      around.send(process, WatchKind::Leaving, {});
}

/// Time in which this process stood still itself says nothing of others, whose
/// messages may only begin to come again.
void FailureDetector::forgiveStandstill(double now) {
  const double away = now - std::exchange(lastTick, now);
  if (away < standstill)
    return;
  for (auto &[process, link] : links)
    link.heard = std::min(now, link.heard + away);
  for (auto &[process, one] : known)
    one.heard = std::min(now, one.heard + away);
  lastMove = std::min(now, lastMove + away);
}

void FailureDetector::tick(double now) {
  forgiveStandstill(now);
  beat(now);
  if (found) {
    if (!told && !isRoot()) {
      // The relay may be stopped, or gone before it passed this on.
      bool unanswered = now - foundAt > callAfter;
      if (unanswered && parent != 0 && !isOpen(0) && !called) {
        called = true;
        around.callRoot();
      }
      if (upwards() < 0 && now - foundAt > speakAfter) {
        around.speak(found->message);
        told = true;
        around.allTold();
      }
    }
    // The process has not ended in time: some rank is in a place from which it
    // does not come back.
    if (now - foundAt > options.patience)
      around.end(found->exitCode);
    return;
  }
  judgeOrphans(now);
  if (termAt != never && now - termAt > termGrace &&
      (lossAt > termAt + termGrace || now - termAt > termGrace + lossGrace))
    return around.end(128 + SIGTERM);
  if (!missing.empty())
    return explainLost(now);
  if (!isRoot())
    return judgeParent(now);
  // Messages come in thousands a second where processes do.
  if (now - judgedAt < judgeEvery)
    return;
  judgedAt = now;
  judgeSilence(now);
  if (missing.empty() && orphaned.empty())
    judgeProgress(now);
}

double FailureDetector::untilTick() const {
  return !missing.empty() || !orphaned.empty() || answerAt < -never ? 0.02
                                                                    : 0.1;
}

//===----------------------------------------------------------------------===//
// What is told
//===----------------------------------------------------------------------===//

void FailureDetector::beat(double now) {
  const bool due = now - lastBeat >= beatEvery, asked = now >= answerAt;
  if (!due && !asked)
    return;
  answerAt = -never;
  if (due)
    lastBeat = now;
  around.describe(own.firstRank, own.ranks);
  std::vector<ProcessReport> reports{
      {self, ProcessReport::Alive, 0, own.firstRank, own.ranks}};
  if (due) {
    std::string text = encode(reports);
    for (const auto &[process, link] : links)
      if (link.open && process != parent && (isRoot() || process != 0))
        around.send(process, WatchKind::Beat, text);
  }
  if (isRoot())
    return;
  for (int child : children) {
    const Known &one = known[child];
    reports.push_back(
        {child, one.state, now - one.heard, one.firstRank, one.ranks});
  }
  std::string text = encode(reports);
  if (isOpen(parent))
    around.send(parent, WatchKind::Beat, text);
  if (parent != 0 && isOpen(0))
    around.send(0, WatchKind::Beat, text);
}

void FailureDetector::ask(double now) {
  if (now - askedAt < askEvery)
    return;
  askedAt = now;
  for (const auto &[process, link] : links)
    if (link.open && (isRoot() || tree.parent(process) == self))
      around.send(process, WatchKind::Ask, {});
}

/// The first failure that arrives stands. Process 0 prints and spreads it;
/// another process asks it to, or does without if it is gone.
void FailureDetector::report(const Failure &failure, Source source,
                             double now) {
  const bool first = !found;
  if (first) {
    found = failure;
    foundAt = now;
    ownFailed = source == Source::Own;
    around.wakeRanks(failure);
  } else if (told || source != Source::Told) {
    return;
  }
  std::string text = failureText(failure);
  if (source == Source::Own && !isRoot()) {
    if (int up = upwards(); up >= 0) {
      around.send(up, WatchKind::Failed, text);
      return;
    }
    // Process 0 is being called, or is gone.
    if (parent != 0)
      return;
  }
  if (source != Source::Told)
    around.speak(failure.message);
  if (isRoot()) {
    for (const auto &[process, link] : links)
      if (link.open)
        around.send(process, WatchKind::Stop, text);
  } else {
    for (int child : children)
      if (isOpen(child))
        around.send(child, WatchKind::Stop, text);
  }
  told = true;
  around.allTold();
}

//===----------------------------------------------------------------------===//
// Who is gone
//===----------------------------------------------------------------------===//

void FailureDetector::lose(std::vector<int> processes, std::string how,
                           double now) {
  if (found || !missing.empty())
    return;
  for (int process : processes)
    known[process].state = ProcessReport::Lost;
  missing = std::move(processes);
  missingHow = std::move(how);
  missedAt = now;
  lossAt = std::min(lossAt, now);
  ask(now);
}

/// The connection of a relay closed. The others of its host call process 0, or
/// are gone, too.
void FailureDetector::judgeOrphans(double now) {
  for (auto at = orphaned.begin(); at != orphaned.end();) {
    const auto [relay, since] = *at;
    // The relay, and those that it told of or that called and closed.
    std::vector<int> lost, silentOnes;
    for (int member : tree.hostOf(relay))
      if (known[member].state == ProcessReport::Lost)
        lost.push_back(member);
      else if (known[member].state == ProcessReport::Alive && !isOpen(member))
        silentOnes.push_back(member);
    const bool hurried = termAt != never && now - since >= hurriedGrace;
    if (!silentOnes.empty() && !hurried && now - since < relayGrace) {
      ++at;
      continue;
    }
    at = orphaned.erase(at);
    // In a hurry nothing is said of processes that may yet come.
    if (!hurried)
      lost.insert(lost.end(), silentOnes.begin(), silentOnes.end());
    std::sort(lost.begin(), lost.end());
    if (missing.empty()) {
      lose(std::move(lost), endedHow, now);
    } else if (tree.relayOf(missing.front()) == relay && !found) {
      missing.insert(missing.end(), lost.begin(), lost.end());
      std::sort(missing.begin(), missing.end());
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    }
  }
}

void FailureDetector::explainLost(double now) {
  if (orphaned.count(tree.relayOf(missing.front())))
    return;
  around.describe(own.firstRank, own.ranks);
  std::vector<Span> lost;
  for (int process : missing)
    lost.push_back(
        {known[process].firstRank, int(known[process].ranks.size())});
  std::string waiting = waiters(lost);
  if (waiting.empty() && now - missedAt < lostGrace) {
    // Ranks that do not wait for the lost ones yet will soon.
    ask(now);
    return;
  }
  std::string text = nameOf(missing) + " " + missingHow;
  int described = 0;
  for (int process : missing) {
    const Known &gone = known[process];
    for (size_t i = 0; i < gone.ranks.size() && described < mostDescribed;
         ++i) {
      ++described;
      text += "; rank " + std::to_string(gone.firstRank + int(i)) +
              " was last seen in " + gone.ranks[i].doing;
    }
  }
  report({ExitPeerLost, text + waiting + calls(now)}, Source::Judged, now);
}

void FailureDetector::judgeSilence(double now) {
  auto quiet = [&](int process) { return now - known[process].heard; };
  for (const auto &[process, one] : known) {
    if (one.state != ProcessReport::Alive || quiet(process) <= options.silence)
      continue;
    const int relay = tree.relayOf(process);
    if (relay == process && relay != 0) {
      // Living processes of the relay's host have called process 0 by now, so
      // only silent ones are lost.
      std::vector<int> lost;
      for (int member : tree.hostOf(relay))
        if (known[member].state == ProcessReport::Alive &&
            quiet(member) > options.silence)
          lost.push_back(member);
      return lose(std::move(lost), silent(), now);
    }
    // A process whose relay is silent is not judged: the relay is, or it is
    // heard of again.
    if (relay != 0 && known[relay].state == ProcessReport::Alive &&
        quiet(relay) > options.silence / 2)
      continue;
    return lose({process}, silent(), now);
  }
}

/// Judges the process through which this one hears of the others: its relay, or
/// process 0.
void FailureDetector::judgeParent(double now) {
  if (known[parent].state == ProcessReport::Leaving)
    return;
  const double quiet = now - known[parent].heard;
  if (parent == 0) {
    if (quiet > options.silence)
      lose({0}, silent(), now);
    return;
  }
  if (quiet > options.silence / 2 && !called) {
    called = true;
    around.callRoot();
  }
  if (!parentLost && quiet <= options.silence)
    return;
  if (isOpen(0)) {
    if (now - known[0].heard > options.silence)
      lose({0}, silent(), now);
  } else if (!parentLost) {
    lose({parent}, silent(), now);
  } else if (now - parentLostAt > rootGrace) {
    lose({parent}, endedHow, now);
  }
}

//===----------------------------------------------------------------------===//
// Who stands still
//===----------------------------------------------------------------------===//

bool FailureDetector::isLate(int process, double now) const {
  double allowed = lateBeat;
  if (tree.parent(process) != self)
    allowed += beatEvery;
  return now - known.at(process).heard > allowed;
}

void FailureDetector::judgeProgress(double now) {
  if (options.timeout <= 0)
    return;
  // Training is in step: where one rank stands still, soon all do.
  around.describe(own.firstRank, own.ranks);
  uint64_t moved = 0;
  bool busy = false;
  int stuck = -1;
  std::string all;
  int described = 0;
  forEachRank([&](int rank, const RankReport &report) {
    moved += report.progress;
    if (!report.busy)
      return;
    busy = true;
    if (!report.waiting && stuck < 0)
      stuck = rank;
    if (described++ < mostDescribed)
      all += "; rank " + std::to_string(rank) + ": " + report.doing;
  });
  // A process that is heard of and whose ranks have nothing to do reads or
  // writes files, however long that takes; the others may wait for it.
  auto hasIdle = [](const Known &one) {
    return one.ranks.empty() ||
           std::any_of(one.ranks.begin(), one.ranks.end(),
                       [](const RankReport &report) { return !report.busy; });
  };
  bool onStorage = hasIdle(own);
  for (const auto &[process, one] : known)
    onStorage |= hasIdle(one) && !isLate(process, now);
  if (moved != lastProgress || !busy || onStorage) {
    lastProgress = moved;
    lastMove = now;
    return;
  }
  if (now - lastMove < options.timeout)
    return;
  char limit[64];
  std::snprintf(limit, sizeof(limit), " progress for %g s", options.timeout);
  std::string text = "no rank makes" + (limit + all);
  if (stuck >= 0) {
    text = "rank " + std::to_string(stuck) + " makes no" + limit;
    forEachRank([&](int rank, const RankReport &report) {
      if (rank == stuck)
        text += ": " + report.doing;
    });
    text += waiters({{stuck, 1}});
  }
  int late = 0;
  for (const auto &[process, one] : known)
    if (one.state == ProcessReport::Alive && isLate(process, now) &&
        late++ < mostDescribed) {
      std::snprintf(limit, sizeof(limit), " was last heard of %.1f s ago",
                    now - one.heard);
      text += "; " + nameOf({process}) + limit;
    }
  report({ExitPeerLost, text + calls(now)}, Source::Judged, now);
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

std::string FailureDetector::silent() const {
  char how[64];
  std::snprintf(how, sizeof(how), "gave no sign of life for %.0f s",
                options.silence);
  return how;
}

std::string FailureDetector::nameOf(const std::vector<int> &processes) const {
  const int process = processes.front();
  if (processes.size() == 1) {
    const Known &one = known.at(process);
    return "process " + std::to_string(process) + " (" +
           rankList(one.firstRank, int(one.ranks.size())) + ", " +
           around.whereIs(process) + ")";
  }
  std::string host = "'" + around.hostName(process) + "'";
  if (processes == tree.hostOf(process))
    return "host " + host + " (" + processList(processes) + ")";
  return processList(processes) + " on " + host;
}

/// Calls `visit(rank, report)` for every rank that is known of, in their order.
template <typename Visit> void FailureDetector::forEachRank(Visit visit) const {
  auto look = [&](const Known &one) {
    for (size_t i = 0; i < one.ranks.size(); ++i)
      visit(one.firstRank + int(i), one.ranks[i]);
  };
  auto at = known.begin();
  for (; at != known.end() && at->first < self; ++at)
    look(at->second);
  look(own);
  for (; at != known.end(); ++at)
    look(at->second);
}

/// Names the collective that the ranks hang in, as far as those say that stand
/// still. Ranks of processes that are lost or late do not answer.
std::string FailureDetector::calls(double now) const {
  std::vector<RankCollectives> called;
  auto look = [&](const Known &one) {
    for (size_t i = 0; i < one.ranks.size(); ++i) {
      const RankReport &rank = one.ranks[i];
      called.push_back({one.firstRank + int(i), rank.known, rank.host,
                        rank.peers, rank.communicators});
    }
  };
  look(own);
  for (const auto &[process, one] : known)
    if (one.state == ProcessReport::Alive && !isLate(process, now))
      look(one);
  return findingsText(compareCollectives(called, Absent::Silent));
}

/// "; rank 0 waits for it: step 17, .." for the ranks that wait for one of
/// those that are lost.
std::string FailureDetector::waiters(const std::vector<Span> &lost) const {
  auto isLost = [&](int rank) {
    return std::any_of(lost.begin(), lost.end(),
                       [&](const Span &span) { return span.has(rank); });
  };
  std::string text;
  int described = 0;
  forEachRank([&](int rank, const RankReport &report) {
    if (report.busy && described < mostDescribed && !isLost(rank) &&
        std::any_of(report.peers.begin(), report.peers.end(), isLost)) {
      ++described;
      text +=
          "; rank " + std::to_string(rank) + " waits for it: " + report.doing;
    }
  });
  return text;
}

} // namespace grt
