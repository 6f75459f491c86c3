//===- ReshardPlan.cpp - Moving a boundary between two strategies ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/ReshardPlan.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

using namespace llvm;

namespace galvatron {

namespace {

/// The ranks that own the blocks of a boundary, and what each has sent so far.
/// A layout gives every block equally many owners, so they lie in one table; of
/// many they are kept in order, too.
class BlockOwners {
public:
  /// The owners among the first `ranks`, which own the first blocks.
  BlockOwners(const SampleLayout &layout, ArrayRef<int64_t> devices,
              size_t ranks)
      : perBlock(devices.size() / static_cast<size_t>(layout.blocks())),
        table(ranks) {
    std::vector<size_t> found(ranks / perBlock, 0);
    for (auto [rank, device] : enumerate(devices.take_front(ranks))) {
      auto block =
          static_cast<size_t>(layout.block(static_cast<int64_t>(rank)));
      table[block * perBlock + found[block]++] = {device, 0};
    }
    if (perBlock > kFew)
      idlest.resize(ranks / perBlock);
  }

  /// The device that sends `units` of a block to a receiver: the owner that has
  /// sent least so far, then the nearest, then the first.
  int64_t send(int64_t block, int64_t receiver, int64_t units) {
    MutableArrayRef<Owner> owners = MutableArrayRef<Owner>(table).slice(
        static_cast<size_t>(block) * perBlock, perBlock);
    if (perBlock > kFew)
      return sendInOrder(idlest[static_cast<size_t>(block)], owners, receiver,
                         units);
    auto key = [&](const Owner &owner) {
      return std::make_tuple(owner.sent, std::llabs(owner.device - receiver),
                             owner.device);
    };
    Owner *sender = owners.begin();
    for (Owner &owner : owners.drop_front())
      if (key(owner) < key(*sender))
        sender = &owner;
    sender->sent += units;
    return sender->device;
  }

private:
  struct Owner {
    int64_t device, sent;
  };
  /// Devices of a block's owners by what they have sent.
  using BySent = std::map<int64_t, std::set<int64_t>>;

  /// The same of many owners, without looking at all of them.
  static int64_t sendInOrder(BySent &bySent, ArrayRef<Owner> owners,
                             int64_t receiver, int64_t units) {
    if (bySent.empty())
      for (std::set<int64_t> &all = bySent[0]; const Owner &owner : owners)
        all.insert(all.end(), owner.device);
    const int64_t sent = bySent.begin()->first;
    std::set<int64_t> &least = bySent.begin()->second;
    auto sender = least.lower_bound(receiver);
    // The one in front is the first of two that are as far away.
    const bool hasFormer = sender != least.begin();
    if (sender == least.end() ||
        (hasFormer && receiver - *std::prev(sender) <= *sender - receiver))
      --sender;
    const int64_t device = *sender;
    bySent[sent + units].insert(least.extract(sender));
    if (least.empty())
      bySent.erase(sent);
    return device;
  }

  /// The number of owners of a block up to which they are looked at one by one.
  static constexpr size_t kFew = 16;
  std::vector<BySent> idlest; ///< by block, where it has many owners
  size_t perBlock;
  std::vector<Owner> table; ///< block by block, by rank inside
};

} // namespace

void forEachTransfer(const Strategy &from, const Strategy &to,
                     ArrayRef<int64_t> fromDevices, ArrayRef<int64_t> toDevices,
                     int64_t samples, size_t receivers,
                     function_ref<void(const ReshardTransfer &)> visit) {
  assert(from.devices() == static_cast<int64_t>(fromDevices.size()) &&
         to.devices() == static_cast<int64_t>(toDevices.size()) &&
         "a strategy fills its devices");
  assert(samples > 0 && from.divides(samples) && to.divides(samples) &&
         "blocks are equal");
  SampleLayout before = from.sampleLayout(), after = to.sampleLayout();
  int64_t fromUnits = samples / before.blocks();
  int64_t toUnits = samples / after.blocks();
  bool sameDevices = fromDevices == toDevices;
  if (sameDevices && before == after)
    return;

  bool all = receivers == toDevices.size();
  assert((all || (fromDevices.size() == toDevices.size() &&
                  receivers % before.period() == 0 &&
                  receivers % after.period() == 0)) &&
         "receivers fetch from owners that are known");
  BlockOwners owners(before, fromDevices, all ? fromDevices.size() : receivers);
  for (auto [dst, device] : enumerate(toDevices.take_front(receivers))) {
    auto rank = static_cast<int64_t>(dst);
    int64_t begin = after.block(rank) * toUnits;
    int64_t end = begin + toUnits;
    for (int64_t at = begin; at < end;) {
      int64_t block = at / fromUnits;
      int64_t units = std::min(end, (block + 1) * fromUnits) - at;
      int64_t source = sameDevices && before.block(rank) == block
                           ? device
                           : owners.send(block, device, units);
      visit({source, device, at - block * fromUnits, at - begin, units});
      at += units;
    }
  }
}

ReshardPlan reshardPlan(const Strategy &from, const Strategy &to,
                        ArrayRef<int64_t> fromDevices,
                        ArrayRef<int64_t> toDevices, int64_t samples) {
  ReshardPlan plan;
  plan.samples = samples;
  plan.fromUnits = samples / from.sampleLayout().blocks();
  plan.toUnits = samples / to.sampleLayout().blocks();
  forEachTransfer(from, to, fromDevices, toDevices, samples, toDevices.size(),
                  [&](const ReshardTransfer &transfer) {
                    plan.transfers.push_back(transfer);
                  });
  return plan;
}

ReshardPlan chunkTransferPlan(const Strategy &from, const Strategy &to,
                              ArrayRef<int64_t> fromDevices,
                              ArrayRef<int64_t> toDevices, int64_t samples) {
  ReshardPlan plan = reshardPlan(from, to, fromDevices, toDevices, samples);
  if (plan.transfers.empty())
    for (int64_t device : fromDevices)
      plan.transfers.push_back({device, device, 0, 0, plan.fromUnits});
  return plan;
}

} // namespace galvatron
