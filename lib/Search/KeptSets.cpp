//===- KeptSets.cpp - Which values are kept for backward ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/KeptSets.h"
#include "galvatron/Search/MaximumFlow.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <limits>

using namespace llvm;

namespace galvatron {

/// Weights and sums of what they weigh stay below this, so that a product fits
/// into a capacity and is less than one without bound.
constexpr int64_t kMostWeight = int64_t(1) << 62;

/// The operation that makes each value.
static std::vector<size_t> makersOf(const KeptProblem &problem) {
  std::vector<size_t> makers(problem.values.size());
  for (auto [number, operation] : enumerate(problem.operations))
    for (size_t value : operation.results)
      makers[value] = number;
  return makers;
}

Error KeptProblem::check() const {
  std::vector<bool> made(values.size(), false);
  __int128 bytes = 0, time = 0;
  for (const Operation &operation : operations) {
    for (size_t value : operation.operands)
      if (value >= values.size() || !made[value])
        return makeError("expected the operands of an operation to be made "
                         "before it, found value " +
                         Twine(value));
    for (size_t value : operation.results) {
      if (value >= values.size() || made[value])
        return makeError("expected one operation to make value " +
                         Twine(value));
      made[value] = true;
    }
    if (operation.time < 0)
      return makeError("expected times not to be negative");
    time += operation.time;
  }
  for (auto [number, value] : enumerate(values)) {
    if (!made[number])
      return makeError("expected an operation that makes value " +
                       Twine(number));
    if (value.needed && !value.mayBeKept)
      return makeError(
          "expected a needed value that may be kept, found value " +
          Twine(number) + ", which may not");
    if (value.bytes < 0)
      return makeError("expected bytes not to be negative");
    bytes += value.bytes;
  }
  if (bytes >= kMostWeight || time >= kMostWeight)
    return makeError("expected sums of bytes and of times below 2^62");
  return Error::success();
}

std::optional<KeptSet> priceKept(const KeptProblem &problem,
                                 ArrayRef<size_t> kept) {
  KeptSet set;
  set.values.assign(kept.begin(), kept.end());
  llvm::sort(set.values);
  std::vector<bool> isKept(problem.values.size(), false);
  for (size_t value : set.values) {
    if (!problem.values[value].mayBeKept)
      return std::nullopt;
    isKept[value] = true;
    set.bytes += problem.values[value].bytes;
  }
  // The values that backward needs and does not have. An operation stands
  // behind those that make its operands: the order is from the last one.
  std::vector<bool> missing(problem.values.size(), false);
  for (auto [number, value] : enumerate(problem.values))
    missing[number] = value.needed && !isKept[number];
  for (const KeptProblem::Operation &operation :
       llvm::reverse(problem.operations)) {
    if (none_of(operation.results, [&](size_t v) { return missing[v]; }))
      continue;
    if (!operation.mayBeRemade)
      return std::nullopt;
    set.time += operation.time;
    for (size_t operand : operation.operands)
      if (!isKept[operand])
        missing[operand] = true;
  }
  return set;
}

KeptSet cheapestKept(const KeptProblem &problem, int64_t bytesWeight,
                     int64_t timeWeight) {
  assert(bytesWeight >= 0 && timeWeight >= 0 && bytesWeight < kMostWeight &&
         timeWeight < kMostWeight);
  using Capacity = FlowNetwork::Capacity;
  std::vector<size_t> makers = makersOf(problem);
  size_t values = problem.values.size(), source = 0, sink = 1;
  auto available = [](size_t value) { return 2 + value; };
  auto remade = [&](size_t operation) { return 2 + values + operation; };
  FlowNetwork network(2 + values + problem.operations.size());
  // A node on the source's side is a variable that is 1; an edge is paid if its
  // tail is 1 and its head 0.
  for (auto [number, value] : enumerate(problem.values)) {
    if (value.needed)
      network.addEdge(source, available(number), FlowNetwork::kUnbounded);
    network.addEdge(available(number), remade(makers[number]),
                    value.mayBeKept ? Capacity(bytesWeight) * value.bytes
                                    : FlowNetwork::kUnbounded);
  }
  for (auto [number, operation] : enumerate(problem.operations)) {
    network.addEdge(remade(number), sink,
                    operation.mayBeRemade
                        ? Capacity(timeWeight) * operation.time
                        : FlowNetwork::kUnbounded);
    for (size_t operand : operation.operands)
      network.addEdge(remade(number), available(operand),
                      FlowNetwork::kUnbounded);
  }
  network.maximise(source, sink);
  std::vector<bool> isOne = network.sourceSide();
  std::vector<size_t> kept;
  for (size_t value = 0; value < values; ++value)
    if (isOne[available(value)] && !isOne[remade(makers[value])])
      kept.push_back(value);
  // Keeping all that is needed is always enough, so the cut is finite.
  return *priceKept(problem, kept);
}

/// Appends the vertices between two of the hull, without these.
static void addBetween(const KeptProblem &problem, const KeptSet &more,
                       const KeptSet &less, std::vector<KeptSet> &hull) {
  int64_t bytes = more.bytes - less.bytes;
  Picoseconds time = less.time - more.time;
  if (bytes <= 0 || time <= 0)
    return;
  auto cost = [&](const KeptSet &set) {
    return static_cast<__int128>(time) * set.bytes +
           static_cast<__int128>(bytes) * set.time;
  };
  // Below the line through both, or there is nothing between them.
  KeptSet middle = cheapestKept(problem, time, bytes);
  if (cost(middle) >= cost(more))
    return;
  addBetween(problem, more, middle, hull);
  hull.push_back(middle);
  addBetween(problem, middle, less, hull);
}

std::vector<KeptSet> keptHull(const KeptProblem &problem) {
  int64_t bytes = 0;
  Picoseconds time = 0;
  for (const KeptProblem::Value &value : problem.values)
    bytes += value.bytes;
  for (const KeptProblem::Operation &operation : problem.operations)
    time += operation.time;
  // The other only decides between equals.
  KeptSet quickest = cheapestKept(problem, 1, bytes + 1);
  KeptSet smallest = cheapestKept(problem, time + 1, 1);
  std::vector<KeptSet> hull = {quickest};
  addBetween(problem, quickest, smallest, hull);
  if (smallest.bytes < quickest.bytes)
    hull.push_back(smallest);
  return hull;
}

/// The largest time by which mixes of two vertices are above those between.
static double largestLoss(ArrayRef<KeptSet> hull, size_t from, size_t to) {
  double most = 0;
  auto bytes = static_cast<double>(hull[from].bytes - hull[to].bytes);
  auto time = static_cast<double>(hull[to].time - hull[from].time);
  for (size_t i = from + 1; i < to; ++i) {
    auto saved = static_cast<double>(hull[from].bytes - hull[i].bytes);
    auto taken = static_cast<double>(hull[i].time - hull[from].time);
    most = std::max(most, time * saved / bytes - taken);
  }
  return most;
}

std::vector<size_t> choosePoints(ArrayRef<KeptSet> hull, size_t most,
                                 Picoseconds enough) {
  size_t count = hull.size();
  if (count < 3)
    return {};
  // The least loss from the first vertex to this one with so many between, and
  // the vertex before it.
  struct Best {
    double loss = std::numeric_limits<double>::infinity();
    size_t before = 0;
  };
  std::vector<std::vector<Best>> best(most + 1, std::vector<Best>(count));
  for (size_t to = 1; to < count; ++to)
    best[0][to] = {largestLoss(hull, 0, to), 0};
  for (size_t chosen = 1; chosen <= most; ++chosen)
    for (size_t to = 1; to < count; ++to)
      for (size_t before = 1; before < to; ++before) {
        double loss = std::max(best[chosen - 1][before].loss,
                               largestLoss(hull, before, to));
        if (loss < best[chosen][to].loss)
          best[chosen][to] = {loss, before};
      }
  size_t fewest = 0;
  auto lossOf = [&](size_t chosen) { return best[chosen][count - 1].loss; };
  for (size_t chosen = 1;
       chosen <= most && lossOf(fewest) > static_cast<double>(enough); ++chosen)
    if (lossOf(chosen) < lossOf(fewest))
      fewest = chosen;
  std::vector<size_t> points;
  for (size_t to = count - 1, chosen = fewest; chosen > 0; --chosen) {
    to = best[chosen][to].before;
    points.push_back(to);
  }
  std::reverse(points.begin(), points.end());
  return points;
}

} // namespace galvatron
