//===- links.cpp - Whether links are as fast as the plan has them ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "links.h"

#include "base/error.h"
#include "comm/numbering.h"
#include "comm/rank_messages.h"
#include "comm/threads.h"
#include "core/executor.h"
#include "core/joined_rank.h"
#include "core/placement.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

using namespace grt;

namespace {

using Clock = std::chrono::steady_clock;

/// NCCL reaches 0.7 to 0.9 of a link with buffers of this size; what is wrong
/// costs a factor of five or more.
constexpr double leastShare = 0.4;
constexpr uint64_t deviceBytes = uint64_t(64) << 20;
constexpr uint64_t hostBytes = uint64_t(16) << 20; ///< beyond caches
constexpr uint64_t firstBytes = uint64_t(1) << 20;
constexpr double secondsOfLink = 1; ///< what a level may take, about
constexpr int mostTimes = 5;

/// Ends what ranks of this process wait for once another process has failed, or
/// a level takes too long.
class Guard {
public:
  Guard(World &world, double patience)
      : world(world), patience(patience), thread([this] { watch(); }) {}
  ~Guard() {
    stops = true;
    thread.join();
  }
  Guard(const Guard &) = delete;
  Guard &operator=(const Guard &) = delete;

  void add(JoinedRank *rank) {
    std::lock_guard<std::mutex> lock(mutex);
    ranks.push_back(rank);
  }
  void remove(JoinedRank *rank) {
    std::lock_guard<std::mutex> lock(mutex);
    std::erase(ranks, rank);
  }
  /// A level begins that is called so; null: nothing that has a limit.
  void begin(const std::string *level) {
    std::lock_guard<std::mutex> lock(mutex);
    running = level ? *level : "";
    began = Clock::now();
  }
  /// Why it ended them; nothing if it did not.
  std::optional<Failure> cause() {
    std::lock_guard<std::mutex> lock(mutex);
    return late;
  }
  void abortAll() {
    std::lock_guard<std::mutex> lock(mutex);
    for (JoinedRank *rank : ranks)
      rank->abort();
  }

private:
  void watch() {
    for (bool ended = false; !stops && !ended;
         std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      ended = isLate() || world.failure();
      if (!ended)
        continue;
      if (late)
        world.abort(*late);
      abortAll();
    }
  }

  /// Whether a level has run for too long.
  bool isLate() {
    std::lock_guard<std::mutex> lock(mutex);
    if (running.empty() ||
        std::chrono::duration<double>(Clock::now() - began).count() < patience)
      return false;
    char text[32];
    std::snprintf(text, sizeof(text), "%g s", patience);
    late = Failure{ExitPeerLost, "all-reduces of '" + running +
                                     "', which measure its links, have not "
                                     "ended in " +
                                     text};
    return true;
  }

  World &world;
  const double patience;
  std::mutex mutex;
  std::optional<Failure> late;
  std::vector<JoinedRank *> ranks;
  std::string running;
  Clock::time_point began;
  std::atomic<bool> stops = false;
  std::thread thread; ///< last: it reads what stands above
};

std::vector<int> everybody(int ranks) {
  std::vector<int> all(size_t(ranks), 0);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// What one rank of this process measures.
class RankLinks {
public:
  RankLinks(JoinedRank &rank, Guard &guard, bool onDevice)
      : rank(rank), guard(guard), most(onDevice ? deviceBytes : hostBytes),
        seconds(MessageKind::Times, 1, size_t(rank.host().size())) {}

  LinkRate measure(const PlannedLink &link) {
    guard.begin(&link.name);
    if (!memory)
      memory = rank.allocate(most);
    Group *group = rank.groupOf(link.groups);
    // Connects, and loads what is launched first.
    time(group, firstBytes / 16, 1);
    uint64_t bytes = firstBytes;
    double each = time(group, bytes, 1);
    // All ranks know the same times, and choose alike.
    for (; bytes < most && 4 * each < secondsOfLink;
         each = time(group, bytes, 1))
      bytes *= 4;
    const int times = std::clamp(int(secondsOfLink / each), 1, mostTimes);
    if (times > 1)
      time(group, bytes, times);
    guard.begin(nullptr);
    return rateOf(link, bytes, seconds.values());
  }

private:
  /// Seconds of one of `times` all-reduces; the longest of all ranks. Those of
  /// each are in `seconds`.
  double time(Group *group, uint64_t bytes, int times) {
    seconds.gather(rank.host()); // they begin together
    const auto begin = Clock::now();
    if (group) {
      for (int i = 0; i < times; ++i)
        rank.peers().allReduce(*group, memory, bytes / sizeof(float), GRT_F32);
      rank.wait();
    }
    seconds.mine().front() =
        group ? std::chrono::duration<double>(Clock::now() - begin).count() /
                    times
              : 0;
    seconds.gather(rank.host());
    double longest = 1e-9;
    for (size_t i = 0; i < seconds.ranks(); ++i)
      longest = std::max(longest, seconds[i]);
    return longest;
  }

  JoinedRank &rank;
  Guard &guard;
  const uint64_t most;
  char *memory = nullptr;
  RankMessages<double> seconds; ///< of the last all-reduces
};

/// Gathers what NCCL chose on all ranks.
NcclChoice gatherChoices(JoinedRank &rank) {
  struct Text {
    char text[256] = "";
  };
  Text own;
  std::snprintf(own.text, sizeof(own.text), "%s",
                encode(readNcclLog(NcclLog::text())).c_str());
  Communicator &host = rank.host();
  std::vector<Text> texts(size_t(host.size()));
  host.allGather(host.group(everybody(host.size())), &own, texts.data(),
                 sizeof(own));
  std::vector<NcclChoice> all;
  for (const Text &each : texts)
    all.push_back(decodeChoice(each.text));
  return joinChoices(all);
}

LinksFound measureRank(JoinedRank &rank, Guard &guard,
                       const std::vector<PlannedLink> &links) {
  LinksFound found;
  rank.join();
  RankLinks measured(rank, guard, bool(rank.device()));
  for (const PlannedLink &link : links)
    found.rates.push_back(measured.measure(link));
  if (rank.device())
    found.nccl = gatherChoices(rank);
  return found;
}

/// Returns what may make a link slow, as the end of a message.
std::string causeText(const LinkRate &rate, const NcclChoice &nccl,
                      bool onDevices) {
  if (!onDevices)
    return "do others use the cores or the network?";
  if (rate.inside)
    return nccl.ways.count("SHM")
               ? "NCCL goes through shared memory; is P2P off "
                 "(NCCL_P2P_DISABLE, ACS of PCIe bridges, a virtual machine)?"
               : "is P2P off (NCCL_P2P_DISABLE), or NVLink down (nvidia-smi "
                 "nvlink --status)?";
  if (nccl.networks.count("Socket"))
    return "NCCL goes through TCP sockets; is InfiniBand off (NCCL_IB_DISABLE, "
           "NCCL_IB_HCA), or not in the container?";
  if (nccl.throughHost)
    return "NCCL goes through the host's memory; is GPU-direct missing "
           "(nvidia-peermem, NCCL_NET_GDR_LEVEL)?";
  return "are adapters missing (NCCL_IB_HCA), or do others use the network?";
}

} // namespace

double sentBySecond(uint64_t bytes, int members, double seconds) {
  // A ring sends every part twice, but for one's own.
  return 2.0 * (members - 1) / members * double(bytes) /
         std::max(seconds, 1e-9);
}

LinkRate rateOf(const PlannedLink &link, uint64_t bytes,
                const std::vector<double> &secondsOfRanks) {
  LinkRate rate{link.name, link.inside, link.bandwidth, 0, 0, {}};
  std::vector<double> rates;
  for (const std::vector<int> &group : link.groups) {
    double longest = 0;
    for (int rank : group)
      longest = std::max(longest, secondsOfRanks[size_t(rank)]);
    rates.push_back(sentBySecond(bytes, int(group.size()), longest));
    if (rate.ranks.empty() || rates.back() < rate.slowest) {
      rate.slowest = rates.back();
      rate.ranks = group;
    }
  }
  auto middle = rates.begin() + ptrdiff_t(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  rate.median = *middle;
  return rate;
}

LinksFound measureLinks(World &world, const grt_backend &backend,
                        const std::vector<PlannedLink> &links,
                        double patience) {
  if (links.empty())
    return {};
  std::vector<LinksFound> results(size_t(world.localCount()));
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr failure;
  Guard guard(world, patience);
  for (int local = 0; local < world.localCount(); ++local)
    threads.emplace_back([&, local] {
      try {
        JoinedRank rank(world, world.firstLocal() + local, backend, 1);
        guard.add(&rank);
        try {
          results[size_t(local)] = measureRank(rank, guard, links);
        } catch (...) {
          guard.remove(&rank);
          throw;
        }
        guard.remove(&rank);
      } catch (const std::exception &problem) {
        // The first one is the cause; the others were woken by it.
        std::lock_guard<std::mutex> lock(mutex);
        if (failure)
          return;
        failure = std::current_exception();
        const auto *error = dynamic_cast<const Error *>(&problem);
        world.abort(
            {error ? int(error->exitCode()) : int(ExitFailed), problem.what()});
        guard.abortAll();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  // A failure that came from elsewhere says more than a wait that it ended.
  if (failure)
    for (const std::optional<Failure> &cause : {guard.cause(), world.failure()})
      if (cause)
        throw Error(cause->exitCode, cause->message);
  if (failure)
    std::rethrow_exception(failure);
  return results[0];
}

std::string textOf(const LinkRate &rate) {
  std::string text = rate.name + " " + bandwidthText(rate.slowest) +
                     (rate.inside ? " inside a node" : " between nodes");
  if (rate.planned > 0)
    text += ", " + bandwidthText(rate.planned) + " in the plan";
  return text;
}

std::vector<std::string> linesOf(const LinksFound &found) {
  std::vector<std::string> lines;
  if (std::string text = textOf(found.nccl); !text.empty())
    lines.push_back("NCCL: " + text);
  for (const LinkRate &rate : found.rates)
    lines.push_back("link: " + textOf(rate));
  return lines;
}

Status lookAtLinks(const Options &options, const Program &program,
                   Processes *processes, LinksFound &found, std::string &why) {
  const int64_t ranks = program.worldSize();
  if (!options.linkCheck || options.checkStreams || options.shareGpus ||
      ranks < 2 || (processes && processes->ranks() != ranks))
    return Status();
  std::unique_ptr<BackendHandle> backend;
  Status status = guarded([&] {
    backend = std::make_unique<BackendHandle>(program.manifest().backend, "");
    if (!processes && (*backend)->device_identity)
      invalid("there is no process for each GPU");
    placeProcess(**backend, options.shareGpus);
  });
  // Nobody begins whom another one would wait for.
  if (processes)
    status = processes->agree(status, {});
  if (!status) {
    why = status.message();
    return Status();
  }
  std::shared_ptr<World> world =
      processes ? processes->world()
                : std::make_shared<ThreadsWorld>(int(ranks));
  return guarded([&] {
    found = measureLinks(*world, **backend, plannedLinks(program.manifest()));
  });
}

Findings judgeLinks(const LinksFound &found, bool onDevices) {
  Findings findings;
  for (const LinkRate &rate : found.rates) {
    if (rate.planned <= 0 || rate.slowest >= leastShare * rate.planned)
      continue;
    std::string text = rate.name + ": the plan expects " +
                       bandwidthText(rate.planned) +
                       (rate.inside ? " inside a node" : " between nodes") +
                       ", found " + bandwidthText(rate.slowest);
    // A single slow group points at one machine.
    if (rate.slowest < leastShare * rate.median)
      text += " between ranks " + rankRanges(rate.ranks) + " and " +
              bandwidthText(rate.median) + " between others";
    findings.push_back(
        {0, text + ": " + causeText(rate, found.nccl, onDevices)});
  }
  return findings;
}
