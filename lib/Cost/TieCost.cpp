//===- TieCost.cpp - Time of tied parameters' exchanges -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tied tensor is cut into equal shards, by a factor first and as parameters
// inside; other ranks hold copies. In one direction every receiver fetches its
// shard from the holders, evenly where there are several copies, except what it
// holds itself. The rank that sends or receives longest decides.
//
// A rank's exchange is a sum over its partners. Links between nodes depend on
// no more than the node groups, so partners are counted by shard and group, and
// looked at one by one only inside the rank's own node: the work grows with the
// devices and the shards, not with the pairs of devices.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/LayerCost.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

/// The devices of a stage as a tie sees them. Ranks of one site have equal
/// links among each other, ranks of sites of one sort equal links to those of
/// any other site. Sites are nodes and sorts their groups; where a pair's link
/// depends on more than that, every device is a site and a sort of its own.
struct TiePlace {
  TiePlace(const Cluster &cluster, ArrayRef<int64_t> devices)
      : devices(devices), sites(devices.size()), sorts(devices.size()) {
    bool byNode = cluster.linksByNode();
    for (auto [rank, device] : enumerate(devices)) {
      sites[rank] = byNode ? cluster.nodeOf(device) : device;
      sorts[rank] =
          byNode ? static_cast<int64_t>(cluster.nodeGroupOf(device)) : device;
    }
  }

  ArrayRef<int64_t> devices; ///< by rank
  std::vector<int64_t> sites, sorts;
};

/// The shard of the tensor that every rank of a place holds under a strategy;
/// of an owner the shard that it updates.
struct TieShards {
  TieShards(const TiePlace &place, const Strategy &strategy, bool owns)
      : ofRank(place.devices.size()), bySite(place.devices.size()) {
    // The holder of a part updates it, so the states decide for an owner.
    ParadigmSet sharded =
        owns ? strategy.optimizerSharding() : strategy.parameterSharding();
    Paradigm factor = strategy.on(LayerAxis::Tensor);
    int64_t inner = strategy.degree(sharded);
    count = strategy.degree(factor) * inner;
    copies = strategy.devices() / count;
    for (size_t rank = 0; rank < ofRank.size(); ++rank) {
      auto number = static_cast<int64_t>(rank);
      ofRank[rank] = strategy.coordinate(number, factor) * inner +
                     strategy.coordinate(number, sharded);
    }
    std::iota(bySite.begin(), bySite.end(), 0);
    llvm::sort(bySite, [&](size_t a, size_t b) {
      return std::tie(place.sites[a], ofRank[a], a) <
             std::tie(place.sites[b], ofRank[b], b);
    });
  }

  int64_t count, copies;
  std::vector<int64_t> ofRank;
  std::vector<size_t> bySite; ///< ranks by site, then shard
};

/// The amount a rank exchanges, in units of 1 / (shards of both sides), by sort
/// of the partner.
using UnitsBySort = SmallVector<std::pair<int64_t, int64_t>, 2>;

void addUnits(UnitsBySort &units, int64_t sort, int64_t more) {
  auto *it = find_if(units, [&](auto &entry) { return entry.first == sort; });
  if (it == units.end())
    units.push_back({sort, more});
  else
    it->second += more;
}

/// The ranks of one end of an exchange. `held` is, by rank, the other end's
/// shard that the rank holds itself and does not exchange; -1 if it is not at
/// both ends. Only receivers have one.
struct TieEnd {
  const TiePlace &place;
  const TieShards &shards;
  std::vector<int64_t> held;
};

class TieExchange {
public:
  explicit TieExchange(const Cluster &cluster) : cluster(cluster) {}

  double seconds(const TiePlace &fromPlace, const TieShards &from,
                 const TiePlace &toPlace, const TieShards &to,
                 ArrayRef<int64_t> rankAtFrom, double bytes) {
    TieEnd senders{fromPlace, from,
                   std::vector<int64_t>(from.ofRank.size(), -1)};
    TieEnd receivers{toPlace, to, std::vector<int64_t>(to.ofRank.size(), -1)};
    for (auto [rank, other] : enumerate(rankAtFrom))
      if (other >= 0)
        receivers.held[rank] = from.ofRank[other];
    latency = 0;
    double busiest =
        std::max(busiestOf(senders, receivers), busiestOf(receivers, senders));
    return latency + busiest * bytes / static_cast<double>(from.copies) /
                         static_cast<double>(from.count * to.count);
  }

private:
  /// The largest sum over partners of units / bandwidth of the ranks of `own`;
  /// raises `latency` to the largest that one of them meets.
  double busiestOf(const TieEnd &own, const TieEnd &other) {
    int64_t mine = own.shards.count, theirs = other.shards.count;
    auto common = [&](int64_t a, int64_t b) {
      return std::max<int64_t>(0, std::min((a + 1) * theirs, (b + 1) * mine) -
                                      std::max(a * theirs, b * mine));
    };
    std::vector<UnitsBySort> ranksOf(theirs), total(mine);
    for (auto [rank, shard] : enumerate(other.shards.ofRank))
      addUnits(ranksOf[shard], other.place.sorts[rank], 1);
    for (int64_t a = 0; a < mine; ++a)
      for (int64_t b = firstMet(a, mine, theirs);
           b < theirs && common(a, b) > 0; ++b)
        for (auto [sort, count] : ranksOf[b])
          addUnits(total[a], sort, count * common(a, b));
    for (auto [rank, shard] : enumerate(other.shards.ofRank))
      if (int64_t a = other.held[rank]; a >= 0)
        addUnits(total[a], other.place.sorts[rank], -common(a, shard));

    double busiest = 0;
    const std::vector<size_t> &partners = other.shards.bySite;
    auto siteOf = [&](size_t at) { return other.place.sites[partners[at]]; };
    // Ranks by site, too: the partners of the site follow along.
    size_t begin = 0, end = 0;
    for (size_t rank : own.shards.bySite) {
      int64_t site = own.place.sites[rank], sort = own.place.sorts[rank];
      int64_t a = own.shards.ofRank[rank], held = own.held[rank];
      while (begin < partners.size() && siteOf(begin) < site)
        ++begin;
      for (end = std::max(begin, end);
           end < partners.size() && siteOf(end) == site;)
        ++end;
      // Ranks of its own node follow one by one.
      int64_t near = 0, neighbour = -1;
      for (auto it = std::partition_point(
               partners.begin() + begin, partners.begin() + end,
               [&](size_t partner) {
                 return other.shards.ofRank[partner] <
                        firstMet(a, mine, theirs);
               });
           it != partners.begin() + end; ++it) {
        int64_t b = other.shards.ofRank[*it];
        int64_t units = common(a, b);
        if (units == 0)
          break;
        if (b == held || other.held[*it] == a)
          continue;
        near += units;
        neighbour = other.place.devices[*it];
      }
      double seconds = 0;
      int64_t device = own.place.devices[rank];
      auto meet = [&](int64_t units, const Link &link) {
        latency = std::max(latency, link.latency);
        seconds += static_cast<double>(units) / link.bandwidth;
      };
      if (near > 0)
        meet(near, cluster.pairLink(device, neighbour));
      for (auto [otherSort, units] : total[a]) {
        int64_t far = units - (otherSort == sort ? near : 0);
        if (held >= 0)
          for (auto [heldSort, count] : ranksOf[held])
            if (heldSort == otherSort)
              far -= count * common(a, held);
        if (far > 0)
          meet(far, between(sort, otherSort, device, site, other.place));
      }
      busiest = std::max(busiest, seconds);
    }
    return busiest;
  }

  /// The first of `theirs` shards that has something in common with a shard.
  static int64_t firstMet(int64_t shard, int64_t mine, int64_t theirs) {
    return shard * theirs / mine;
  }

  /// The link to ranks of a sort that are at another site.
  const Link &between(int64_t sort, int64_t otherSort, int64_t device,
                      int64_t site, const TiePlace &other) {
    auto [it, fresh] = links.try_emplace({sort, otherSort});
    if (fresh)
      for (size_t rank = 0; rank < other.devices.size(); ++rank)
        if (other.sorts[rank] == otherSort && other.sites[rank] != site) {
          it->second = cluster.pairLink(device, other.devices[rank]);
          break;
        }
    return it->second;
  }

  const Cluster &cluster;
  std::map<std::pair<int64_t, int64_t>, Link> links; ///< between sites
  double latency = 0;
};

/// The rank, by rank of `to`, of `from` that is the same device, or -1.
std::vector<int64_t> sameDevice(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  DenseMap<int64_t, int64_t> rankOf;
  for (auto [rank, device] : enumerate(from))
    rankOf[device] = static_cast<int64_t>(rank);
  std::vector<int64_t> ranks;
  for (int64_t device : to) {
    auto it = rankOf.find(device);
    ranks.push_back(it == rankOf.end() ? -1 : it->second);
  }
  return ranks;
}

} // namespace

std::vector<TieTime> tieTimes(const Cluster &cluster, ArrayRef<Strategy> owners,
                              ArrayRef<Strategy> borrowers,
                              ArrayRef<int64_t> ownerDevices,
                              ArrayRef<int64_t> borrowerDevices,
                              int64_t bytes) {
  TiePlace ownerPlace(cluster, ownerDevices);
  TiePlace borrowerPlace(cluster, borrowerDevices);
  std::vector<TieShards> ownerShards, borrowerShards;
  for (const Strategy &owner : owners)
    ownerShards.emplace_back(ownerPlace, owner, /*owns=*/true);
  for (const Strategy &borrower : borrowers)
    borrowerShards.emplace_back(borrowerPlace, borrower, /*owns=*/false);
  std::vector<int64_t> ownerOf = sameDevice(ownerDevices, borrowerDevices);
  std::vector<int64_t> borrowerOf = sameDevice(borrowerDevices, ownerDevices);
  auto size = static_cast<double>(bytes);
  TieExchange exchange(cluster);
  std::vector<TieTime> times;
  for (const TieShards &owner : ownerShards)
    for (const TieShards &borrower : borrowerShards)
      times.push_back({exchange.seconds(borrowerPlace, borrower, ownerPlace,
                                        owner, borrowerOf, size),
                       exchange.seconds(ownerPlace, owner, borrowerPlace,
                                        borrower, ownerOf, size)});
  return times;
}

TieTime tieTime(const Cluster &cluster, const Strategy &owner,
                const Strategy &borrower, ArrayRef<int64_t> ownerDevices,
                ArrayRef<int64_t> borrowerDevices, int64_t bytes) {
  return tieTimes(cluster, owner, borrower, ownerDevices, borrowerDevices,
                  bytes)
      .front();
}

double tieSeconds(const Cluster &cluster, const Strategy &owner,
                  const Strategy &borrower, ArrayRef<int64_t> ownerDevices,
                  ArrayRef<int64_t> borrowerDevices, int64_t bytes) {
  return tieTime(cluster, owner, borrower, ownerDevices, borrowerDevices, bytes)
      .total();
}

} // namespace galvatron
