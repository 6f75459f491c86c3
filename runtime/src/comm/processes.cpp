//===- processes.cpp - Runs of several processes --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/processes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/plugin.h"
#include "comm/agreement.h"
#include "comm/launch.h"
#include "comm/monitor.h"
#include "comm/numbering.h"
#include "comm/secret.h"
#include "comm/tcp.h"
#include "comm/tree.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <unistd.h>

namespace grt {
namespace {

const char *environment(const char *name) {
  const char *value = std::getenv(name);
  return value && *value ? value : nullptr;
}

Transport &openMpi(const std::string &folder) {
  auto *open = reinterpret_cast<OpenTransport *>(
      loadPlugin("mpi", "grt_transport_open", folder,
                 "this process was started by mpirun or srun, but MPI is not "
                 "there"));
  char message[256] = "";
  Transport *transport = open(transportVersion, message, sizeof(message));
  if (!transport)
    fail(message);
  return *transport;
}

/// Machine and ranks of a process, sent before processes have their numbers.
struct Arrival {
  char name[64], kernel[40]; ///< of its machine
  int32_t ranks;
};

/// The name and the running kernel tell hosts apart, as NCCL does: containers
/// of one machine reach each other over the network.
Arrival ownArrival(const ProcessOptions &options) {
  Arrival own{};
  if (options.host.empty()) {
    gethostname(own.name, sizeof(own.name) - 1);
    std::ifstream("/proc/sys/kernel/random/boot_id").read(own.kernel, 36);
  } else {
    std::memcpy(own.name, options.host.data(),
                std::min(options.host.size(), sizeof(own.name) - 1));
  }
  own.ranks = options.threadRanks;
  return own;
}

/// The planned node of each rank; empty where programs do not say it or differ,
/// which those find who compare them. Collective.
std::vector<int> commonNodes(Transport &transport,
                             const ProcessOptions &options, int ranks) {
  std::vector<int> nodes;
  if (options.nodes)
    nodes = options.nodes(ranks);
  if (nodes.size() != size_t(ranks))
    nodes.clear();
  const uint64_t own = hashName({reinterpret_cast<const char *>(nodes.data()),
                                 nodes.size() * sizeof(int)});
  std::vector<uint64_t> all(size_t(transport.processes()));
  transport.allGather(&own, all.data(), sizeof(own));
  if (std::count(all.begin(), all.end(), own) != ptrdiff_t(all.size()))
    nodes.clear();
  return nodes;
}

/// The processes of a run as they are numbered.
struct Numbered {
  std::unique_ptr<Transport> anew; ///< null: as the launcher has them
  RunHosts hosts;
  std::string text; ///< Processes::renumbering()
};

/// Collective.
Numbered numberAll(Transport &transport, const ProcessOptions &options) {
  const auto count = size_t(transport.processes());
  const Arrival own = ownArrival(options);
  std::vector<Arrival> arrivals(count);
  transport.allGather(&own, arrivals.data(), sizeof(own));

  std::vector<int> ranks, hosts, order(count);
  std::iota(order.begin(), order.end(), 0);
  Numbered result;
  std::map<std::string, int> known;
  for (const Arrival &one : arrivals) {
    auto [at, isNew] = known.try_emplace(
        std::string(one.name) + " " + one.kernel, int(known.size()));
    if (isNew)
      result.hosts.names.push_back(one.name);
    hosts.push_back(at->second);
    ranks.push_back(one.ranks);
  }
  if (known.size() > 1) {
    std::vector<int> nodes = commonNodes(
        transport, options, std::accumulate(ranks.begin(), ranks.end(), 0));
    result.hosts.sought = !nodes.empty();
    if (result.hosts.sought)
      if (std::optional<std::vector<int>> found =
              numberProcesses(ranks, hosts, nodes))
        order = *found;
  }
  for (int process : order)
    result.hosts.ofRank.insert(result.hosts.ofRank.end(),
                               size_t(ranks[size_t(process)]),
                               hosts[size_t(process)]);
  if (!std::is_sorted(order.begin(), order.end())) {
    result.text = renumberingText(result.hosts);
    result.anew = renumbered(transport, std::move(order));
  }
  return result;
}

/// The texts of all processes. Collective.
std::vector<std::string> gatherTexts(Transport &transport,
                                     const std::string &own) {
  const auto count = size_t(transport.processes());
  constexpr size_t most = 16 << 10;
  const auto length = uint32_t(std::min(own.size(), most));
  std::vector<uint32_t> lengths(count);
  transport.allGather(&length, lengths.data(), sizeof(length));
  const size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::string> texts(count);
  if (longest == 0)
    return texts;
  std::string mine = own.substr(0, length), all(count * longest, 0);
  mine.resize(longest);
  transport.allGather(mine.data(), all.data(), longest);
  for (size_t i = 0; i < count; ++i)
    texts[i] = all.substr(i * longest, lengths[i]);
  return texts;
}

} // namespace

/// Opens the transport of processes that know of each other.
static std::unique_ptr<Transport> openKnown(const ProcessOptions &options) {
  const KnownProcesses &known = *options.known;
  Rendezvous at;
  at.rank = known.number;
  at.size = known.count;
  at.address = known.address;
  at.port = known.port;
  at.run = known.run;
  at.seconds = known.seconds;
  at.secret = launchSecret(options.secretFile);
  at.listen = options.listen;
  if (const char *places = environment("GRT_LISTEN");
      places && at.listen.empty())
    at.listen = places;
  return connectByTcp(at);
}

Transport *openTransport(const LaunchOptions &options) {
  const Launch launch = launchOfEnvironment();
  if (launch.launcher == Launcher::None)
    return nullptr;
  // A secret that others can read is refused whoever would use it.
  std::string secret = launchSecret(options.secretFile);
  if (launch.joinsByMpi())
    return &openMpi(options.folder);
  static const std::unique_ptr<Transport> transport = [&] {
    Rendezvous at = *rendezvousOfEnvironment();
    at.secret = std::move(secret);
    at.catchesUp = options.restarts;
    at.smaller = options.smaller;
    if (!options.listen.empty())
      at.listen = options.listen;
    return connectByTcp(at);
  }();
  return transport.get();
}

std::vector<int> gatherRankCounts(Transport &transport, int own) {
  std::vector<int> counts(static_cast<size_t>(transport.processes()));
  transport.allGather(&own, counts.data(), sizeof(int));
  std::vector<int> first(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), first.begin() + 1);
  return first;
}

struct Processes::Implementation {
  Implementation(std::unique_ptr<Transport> own, Transport &joined,
                 const ProcessOptions &options)
      : own(std::move(own)),
        numbered(numberAll(comparedTransport(joined), options)),
        transport(numbered.anew ? *numbered.anew : joined),
        told(gatherTexts(transport, options.tells)), tool(options.tool),
        monitor(transport, monitorOptions(options)),
        world(transport, gatherRankCounts(transport, options.threadRanks), 0,
              [this](const Failure &failure) { monitor.fail(failure); }) {
    world.setHosts(numbered.hosts);
    monitor.watch(&world);
  }
  ~Implementation() { monitor.watch(nullptr); }

  /// Returns the transport, after all builds were compared: this precedes
  /// anything that another build could see differently.
  static Transport &comparedTransport(Transport &transport) {
    compareBuilds(transport, ownBuild());
    return transport;
  }
  static MonitorOptions monitorOptions(const ProcessOptions &options) {
    MonitorOptions result;
    result.tool = options.tool;
    result.ownsProcess = options.ownsProcess;
    result.timeout = options.timeout;
    result.listen = options.listen;
    if (const char *places = environment("GRT_LISTEN");
        places && result.listen.empty())
      result.listen = places;
    return result;
  }

  /// Waits until the messages have arrived, which may depend on what another
  /// process reads from storage: only a failure ends it, and is thrown.
  void wait(std::vector<Transport::Request> requests);
  /// Waits until all processes have come here.
  void barrier();
  /// Ends the monitor and the transport; called after barrier().
  Status close() {
    monitor.close();
    return guarded([&] { transport.finalize(); });
  }

  const std::unique_ptr<Transport> own; ///< null: the launcher's
  const Numbered numbered;
  Transport &transport;
  const std::vector<std::string> told;
  const std::string tool;
  Monitor monitor;
  ProcessWorld world;
};

void Processes::Implementation::wait(std::vector<Transport::Request> requests) {
  while (!transport.test(requests)) {
    if (std::optional<Failure> failure = monitor.failure()) {
      transport.cancel(requests);
      throw Error(failure->exitCode, failure->message);
    }
    usleep(500);
  }
}

void Processes::Implementation::barrier() {
  // A single process sends nothing; an error of its transport shows all the
  // same.
  wait({});
  meetAll({transport, hostTag(transport),
           [this](auto requests) { wait(std::move(requests)); }});
}

Processes::Processes() = default;
Processes::~Processes() = default;

int Processes::launchedNumber() {
  Launch launch;
  return readLaunch(launch) ? launch.number() : 0;
}

Status Processes::join(const ProcessOptions &options,
                       std::shared_ptr<Processes> &result) {
  return guarded([&] {
    std::unique_ptr<Transport> own;
    if (options.known)
      own = openKnown(options);
    Transport *transport =
        own ? own.get()
            : openTransport({options.folder, options.secretFile, options.listen,
                             options.restarts, options.smaller});
    if (!transport)
      return;
    std::shared_ptr<Processes> processes(new Processes);
    processes->impl =
        std::make_shared<Implementation>(std::move(own), *transport, options);
    result = std::move(processes);
  });
}

int Processes::number() const { return impl->transport.process(); }
int Processes::count() const { return impl->transport.processes(); }
int Processes::ranks() const { return impl->world.size(); }
const std::vector<std::string> &Processes::told() const { return impl->told; }
std::string Processes::renumbering() const { return impl->numbered.text; }
std::string Processes::transport() const { return impl->transport.name(); }
uint64_t Processes::bufferBytes() const {
  return ProcessWorld::scratchBytes(ranks());
}
std::optional<Processes::Held> Processes::heldBytes() const {
  const uint64_t limit = impl->transport.heldLimit();
  return limit ? std::optional(Held{impl->transport.mostHeldBytes(), limit})
               : std::nullopt;
}
std::shared_ptr<World> Processes::world() {
  // The run's, so that a session keeps it alive.
  return {impl, &impl->world};
}

Status Processes::agree(const Status &own, const std::vector<Term> &terms) {
  Status verdict;
  Status status = guarded([&] {
    verdict = grt::agree(
        impl->transport, hostTag(impl->transport),
        [&](auto requests) { impl->wait(std::move(requests)); }, {own, terms});
  });
  return status ? verdict : status;
}

Status Processes::share(std::string &text) {
  return guarded([&] {
    grt::share(
        impl->transport, hostTag(impl->transport),
        [&](auto requests) { impl->wait(std::move(requests)); }, text);
  });
}

Status Processes::leave() {
  Status status = guarded([&] { impl->barrier(); });
  return status ? impl->close() : status;
}

int Processes::finish(const Status &ended) {
  Status status = ended;
  if (status)
    status = guarded([&] { impl->barrier(); });
  if (status) {
    // All processes are done, so an error of the library now changes nothing.
    if (Status last = impl->close(); !last)
      std::fprintf(stderr, "%s: warning: %s\n", impl->tool.c_str(),
                   last.message().c_str());
    return 0;
  }
  // The first failure of the run counts, wherever it was.
  std::optional<Failure> known = impl->monitor.failure();
  Failure failure =
      known ? *known : Failure{status.exitCode(), status.message()};
  if (!known)
    impl->monitor.fail(failure);
  impl->monitor.waitUntilReported();
  std::fflush(nullptr);
  // The process ends without MPI_Finalize, which would wait for the dead.
  _exit(failure.exitCode);
}

} // namespace grt
