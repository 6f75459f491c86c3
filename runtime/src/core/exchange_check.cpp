//===- exchange_check.cpp - What exchanges have to move -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/exchange_check.h"
#include "base/error.h"
#include "core/layout.h"

#include <algorithm>
#include <unordered_map>

namespace grt {
namespace {

class ExchangeCheck {
public:
  ExchangeCheck(const Exchange &exchange, const ExchangeEnd &from,
                const ExchangeEnd &to)
      : exchange(exchange), from(from), to(to), sources(localsOf(from)),
        destinations(localsOf(to)) {}

  void run() const {
    for (const Transfer &transfer : exchange.transfers) {
      checkRoom(from, sources, "source", transfer.source, transfer.sourceUnit,
                transfer.units);
      checkRoom(to, destinations, "destination", transfer.destination,
                transfer.destinationUnit, transfer.units);
    }
    checkTensors();
    std::vector<Transfer> sorted = exchange.transfers;
    std::ranges::sort(sorted, {}, [](const Transfer &each) {
      return std::pair(each.destination, each.destinationUnit);
    });
    checkSources(sorted);
    if (samplesOf(from) != samplesOf(to))
      return;
    checkSamples();
    checkWhole(sorted);
  }

private:
  using Locals = std::unordered_map<int, int>;

  static Locals localsOf(const ExchangeEnd &end) {
    Locals locals;
    for (size_t i = 0; i < end.role->devices.size(); ++i)
      locals.emplace(end.role->devices[i], int(i));
    return locals;
  }
  static int64_t samplesOf(const ExchangeEnd &end) {
    return end.layer->sampleBlocks() * end.layer->samples;
  }
  /// The first sample of a micro-batch that a rank has.
  static int64_t firstOf(const ExchangeEnd &end, int local) {
    return sampleBlock(*end.layer, local) * end.layer->samples;
  }

  [[noreturn]] void refuse(const std::string &what) const {
    invalid("manifest: exchange '" + exchange.name + "': " + what);
  }

  void checkRoom(const ExchangeEnd &end, const Locals &locals,
                 const std::string &which, int rank, int64_t unit,
                 int64_t units) const {
    const std::string place = which + " rank " + str(rank);
    if (!locals.contains(rank))
      refuse(place + " is not in stage " + str(end.role->stage));
    const auto behind = uint64_t(unit + units);
    const uint64_t bytes = behind * exchange.bytesPerUnit;
    bool fits = bytes / exchange.bytesPerUnit == behind;
    if (exchange.tensors.empty())
      fits &= bytes <= end.bytes;
    for (const ExchangeTensor &tensor : exchange.tensors)
      fits &= behind * tensor.bytes <= end.bytes &&
              (&end == &from ? tensor.source : tensor.destination) <=
                  end.bytes - behind * tensor.bytes;
    if (!fits)
      refuse(place + " needs " + str(unit + units) + " units of " +
             str(int64_t(exchange.bytesPerUnit)) + " bytes in a buffer of " +
             str(int64_t(end.bytes)));
  }

  /// No two transfers go to the same units of a rank.
  void checkSources(const std::vector<Transfer> &sorted) const {
    for (size_t i = 1; i < sorted.size(); ++i) {
      const Transfer &before = sorted[i - 1], &at = sorted[i];
      if (before.destination == at.destination &&
          at.destinationUnit - before.destinationUnit < before.units)
        refuse("expected every unit of rank " + str(at.destination) +
               " from one rank, found unit " + str(at.destinationUnit) +
               " from ranks " + str(before.source) + " and " + str(at.source));
    }
  }

  /// What goes is what comes.
  void checkSamples() const {
    for (const Transfer &each : exchange.transfers) {
      const int64_t sent =
          firstOf(from, sources.at(each.source)) + each.sourceUnit;
      const int64_t expected =
          firstOf(to, destinations.at(each.destination)) + each.destinationUnit;
      if (sent != expected)
        refuse("expected sample " + str(expected) + " as unit " +
               str(each.destinationUnit) + " of rank " + str(each.destination) +
               ", found sample " + str(sent) + ", unit " +
               str(each.sourceUnit) + " of rank " + str(each.source));
    }
  }

  /// Every rank gets all samples that it has of its layer.
  void checkWhole(const std::vector<Transfer> &sorted) const {
    std::vector<int64_t> units(to.role->devices.size());
    for (const Transfer &each : sorted)
      units[size_t(destinations.at(each.destination))] += each.units;
    for (size_t local = 0; local < units.size(); ++local)
      if (units[local] != to.layer->samples)
        refuse("expected " + str(to.layer->samples) + " units to rank " +
               str(to.role->devices[local]) + ", found " + str(units[local]));
  }

  void checkTensors() const {
    uint64_t source = 0, destination = 0;
    for (const ExchangeTensor &tensor : exchange.tensors) {
      if (tensor.source != source || tensor.destination != destination)
        refuse("expected a tensor of " + str(tensor.bytes) + " bytes from " +
               str(source) + " to " + str(destination) + ", found it from " +
               str(tensor.source) + " to " + str(tensor.destination));
      source += alignUp(tensor.bytes * uint64_t(from.layer->samples));
      destination += alignUp(tensor.bytes * uint64_t(to.layer->samples));
    }
  }

  const Exchange &exchange;
  const ExchangeEnd &from, &to;
  const Locals sources, destinations;
};

} // namespace

void checkExchange(const Exchange &exchange, const ExchangeEnd &from,
                   const ExchangeEnd &to) {
  ExchangeCheck(exchange, from, to).run();
}

bool haveSameSamples(const Role &role, const Layer &one, const Layer &other) {
  if (one.samples != other.samples)
    return false;
  for (size_t local = 0; local < role.devices.size(); ++local)
    if (sampleBlock(one, int(local)) != sampleBlock(other, int(local)))
      return false;
  return true;
}

} // namespace grt
