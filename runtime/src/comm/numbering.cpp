//===- numbering.cpp - Which process has which ranks ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/numbering.h"
#include "base/error.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

namespace grt {
namespace {

/// Counts of places by their number of ranks, which something takes or has.
using Sizes = std::vector<int>;

/// Places (blocks of consecutive ranks, one for each process) that must be on
/// one host: nodes that share a place are together.
struct Component {
  std::vector<int> places; ///< ascending
  Sizes sizes;
};

/// The components of a problem, those that take the same of a host together.
struct Kind {
  Sizes sizes;
  std::vector<int> components; ///< by their first place
};

std::vector<Component> findComponents(std::span<const int> ranks,
                                      std::span<const int> classOf, int classes,
                                      std::span<const int> nodes) {
  std::vector<int> parent(ranks.size());
  std::iota(parent.begin(), parent.end(), 0);
  auto root = [&](int place) {
    while (parent[size_t(place)] != place)
      place = parent[size_t(place)] = parent[size_t(parent[size_t(place)])];
    return place;
  };
  std::map<int, int> first; // by node: a place that has ranks of it
  size_t rank = 0;
  for (size_t place = 0; place < ranks.size(); ++place)
    for (int i = 0; i < ranks[place]; ++i, ++rank) {
      auto [at, isNew] = first.try_emplace(nodes[rank], int(place));
      // The smaller place stays the root.
      auto [low, high] = std::minmax(root(at->second), root(int(place)));
      parent[size_t(high)] = low;
    }
  std::vector<Component> components;
  std::map<int, size_t> number;
  for (size_t place = 0; place < ranks.size(); ++place) {
    auto [at, isNew] = number.try_emplace(root(int(place)), components.size());
    if (isNew)
      components.push_back({{}, Sizes(size_t(classes))});
    Component &component = components[at->second];
    component.places.push_back(int(place));
    ++component.sizes[size_t(classOf[place])];
  }
  return components;
}

/// Fills hosts, one after the other, with components.
class Filling {
public:
  Filling(const std::vector<Component> &components, std::vector<Sizes> rooms)
      : rooms(std::move(rooms)), orders(this->rooms.size()),
        hostOf(components.size(), -1) {
    std::map<Sizes, size_t> known;
    for (size_t i = 0; i < components.size(); ++i) {
      auto [at, isNew] = known.try_emplace(components[i].sizes, kinds.size());
      if (isNew)
        kinds.push_back({components[i].sizes, {}});
      kinds[at->second].components.push_back(int(i));
    }
    used.resize(kinds.size());
  }

  /// The host of each component; empty if they do not fill the hosts.
  std::vector<int> solve() {
    size_t host = 0, at = 0;
    for (int steps = 0; steps < mostSteps; ++steps) {
      if (at == 0 && host == rooms.size())
        return hostOf;
      bool dead = at == 0 && failed.count({host, used});
      if (!dead && at == 0)
        sortKinds(host);
      if (!dead && isFull(rooms[host])) {
        ++host;
        at = 0;
        continue;
      }
      if (!dead && at < kinds.size()) {
        // Try as many of a kind as fit first, and fewer later.
        tried.push_back({host, at, mostOf(host, orders[host][at])});
        place(tried.back(), +1);
        ++at;
        continue;
      }
      while (!tried.empty() && tried.back().count == 0) {
        if (tried.back().at == 0)
          failed.insert({tried.back().host, used});
        tried.pop_back();
      }
      if (tried.empty())
        return {};
      Choice &last = tried.back();
      place(last, -1);
      --last.count;
      place(last, +1);
      host = last.host;
      at = last.at + 1;
    }
    return {};
  }

private:
  /// A host has `count` components of the kind that is `at` in its order.
  struct Choice {
    size_t host, at;
    int count;
  };

  /// The kind whose next component has the lowest place goes first, so that
  /// processes, above all the first, stay where they are if they can.
  void sortKinds(size_t host) {
    auto next = [&](size_t kind) {
      const std::vector<int> &all = kinds[kind].components;
      return size_t(used[kind]) < all.size() ? all[size_t(used[kind])]
                                             : int(hostOf.size());
    };
    std::vector<size_t> order(kinds.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return next(a) < next(b); });
    orders[host] = std::move(order);
  }
  static bool isFull(const Sizes &room) {
    return std::all_of(room.begin(), room.end(), [](int n) { return n == 0; });
  }
  int mostOf(size_t host, size_t kind) const {
    int most = int(kinds[kind].components.size()) - used[kind];
    for (size_t i = 0; i < rooms[host].size(); ++i)
      if (kinds[kind].sizes[i] > 0)
        most = std::min(most, rooms[host][i] / kinds[kind].sizes[i]);
    return most;
  }
  /// Does what the choice says, or takes it back (-1).
  void place(const Choice &choice, int direction) {
    const size_t kind = orders[choice.host][choice.at];
    for (int i = 0; i < choice.count; ++i) {
      int number = direction > 0 ? used[kind]++ : --used[kind];
      hostOf[size_t(kinds[kind].components[size_t(number)])] = int(choice.host);
    }
    Sizes &room = rooms[choice.host];
    for (size_t i = 0; i < room.size(); ++i)
      room[i] -= direction * choice.count * kinds[kind].sizes[i];
  }

  static constexpr int mostSteps = 1'000'000;
  std::vector<Sizes> rooms; ///< what is left of each host
  std::vector<Kind> kinds;
  std::vector<std::vector<size_t>> orders; ///< of kinds, by host
  Sizes used; ///< of each kind, how many components have a host
  std::vector<int> hostOf;
  std::vector<Choice> tried;
  /// States that are known to fail: no placement on the hosts from this one on
  /// takes the components that are left.
  std::set<std::pair<size_t, Sizes>> failed;
};

class RenumberedTransport final : public Transport {
public:
  RenumberedTransport(Transport &inner, std::vector<int> order)
      : inner(inner), order(std::move(order)),
        self(int(
            std::find(this->order.begin(), this->order.end(), inner.process()) -
            this->order.begin())) {}

  int process() const override { return self; }
  int processes() const override { return inner.processes(); }
  size_t largestMessage() const override { return inner.largestMessage(); }
  int largestTag() const override { return inner.largestTag(); }
  Request send(int process, int tag, const void *data, size_t bytes) override {
    return inner.send(order[size_t(process)], tag, data, bytes);
  }
  Request receive(int process, int tag, void *data, size_t bytes) override {
    return inner.receive(order[size_t(process)], tag, data, bytes);
  }
  bool test(std::span<Request> requests) override {
    return inner.test(requests);
  }
  void cancel(std::span<Request> requests) override { inner.cancel(requests); }
  void broadcast(void *data, size_t bytes, int root) override {
    inner.broadcast(data, bytes, order[size_t(root)]);
  }
  void allGather(const void *in, void *out, size_t bytes) override {
    std::vector<char> all(order.size() * bytes);
    inner.allGather(in, all.data(), bytes);
    for (size_t i = 0; i < order.size() && bytes; ++i)
      std::memcpy(static_cast<char *>(out) + i * bytes,
                  &all[size_t(order[i]) * bytes], bytes);
  }
  void finalize() override { inner.finalize(); }
  std::string name() const override { return inner.name(); }
  std::string sessionKey() const override { return inner.sessionKey(); }
  std::string hubPlaces() const override { return inner.hubPlaces(); }
  size_t mostHeldBytes() const override { return inner.mostHeldBytes(); }
  size_t heldLimit() const override { return inner.heldLimit(); }

private:
  Transport &inner;
  const std::vector<int> order;
  const int self;
};

} // namespace

bool keepsNodes(std::span<const int> hostOfRank, std::span<const int> nodes) {
  std::map<int, int> hostOfNode;
  for (size_t rank = 0; rank < nodes.size(); ++rank)
    if (hostOfNode.try_emplace(nodes[rank], hostOfRank[rank]).first->second !=
        hostOfRank[rank])
      return false;
  return true;
}

std::optional<std::vector<int>> numberProcesses(std::span<const int> ranks,
                                                std::span<const int> hosts,
                                                std::span<const int> nodes) {
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> hostOfRank;
  for (size_t process = 0; process < ranks.size(); ++process)
    hostOfRank.insert(hostOfRank.end(), size_t(ranks[process]), hosts[process]);
  if (keepsNodes(hostOfRank, nodes))
    return order;

  // Processes with equal numbers of ranks may take each other's places.
  std::map<int, int> classes;
  std::vector<int> classOf(ranks.size());
  for (size_t process = 0; process < ranks.size(); ++process)
    classOf[process] =
        classes.try_emplace(ranks[process], int(classes.size())).first->second;
  int hostCount = *std::max_element(hosts.begin(), hosts.end()) + 1;
  std::vector<Sizes> rooms(size_t(hostCount), Sizes(classes.size()));
  for (size_t process = 0; process < ranks.size(); ++process)
    ++rooms[size_t(hosts[process])][size_t(classOf[process])];
  std::vector<Component> components =
      findComponents(ranks, classOf, int(classes.size()), nodes);
  std::vector<int> hostOf = Filling(components, std::move(rooms)).solve();
  if (hostOf.empty())
    return std::nullopt;

  std::vector<int> wanted(ranks.size()); // by place: its host
  for (size_t i = 0; i < components.size(); ++i)
    for (int place : components[i].places)
      wanted[size_t(place)] = hostOf[i];
  std::map<std::pair<int, int>, std::vector<int>> free; // descending
  for (size_t process = ranks.size(); process-- > 0;)
    free[{hosts[process], classOf[process]}].push_back(int(process));
  for (size_t place = 0; place < ranks.size(); ++place) {
    std::vector<int> &next = free[{wanted[place], classOf[place]}];
    order[place] = next.back();
    next.pop_back();
  }
  return order;
}

std::unique_ptr<Transport> renumbered(Transport &transport,
                                      std::vector<int> order) {
  return std::make_unique<RenumberedTransport>(transport, std::move(order));
}

std::string rankRanges(std::span<const int> ranks, size_t most) {
  std::vector<std::string> parts;
  for (size_t i = 0, next; i < ranks.size(); i = next) {
    next = i + 1;
    while (next < ranks.size() && ranks[next] == ranks[next - 1] + 1)
      ++next;
    if (parts.size() == most) {
      parts.push_back("..");
      break;
    }
    parts.push_back(str(ranks[i]) + (next - i == 1 ? ""
                                     : next - i == 2
                                         ? ", " + str(ranks[i + 1])
                                         : " to " + str(ranks[next - 1])));
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i ? ", " : "") + parts[i];
  return text;
}

std::string renumberingText(const RunHosts &hosts) {
  constexpr size_t most = 4;
  std::string text = "ranks are not numbered as they were started, so that "
                     "each node of the plan is on one host:";
  for (size_t host = 0; host < hosts.names.size(); ++host) {
    if (host == most)
      return text + ", ..";
    std::vector<int> own;
    for (size_t rank = 0; rank < hosts.ofRank.size(); ++rank)
      if (hosts.ofRank[rank] == int(host))
        own.push_back(int(rank));
    text += std::string(host ? "," : "") + " '" + hosts.names[host] + "' has " +
            rankRanges(own);
  }
  return text;
}

} // namespace grt
