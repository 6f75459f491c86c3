//===- LeastFreeTime.cpp - A lower bound whatever the memory --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LeastTimes.h"

#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

using namespace llvm;

namespace galvatron::planner {

/// A mean of the bounds of 1F1B in which stages wait for those behind them,
/// sum_j (1 + p_j) c_j: p_j by stage, given what the whole model takes on each,
/// such that (1 + p_j) times that is the same for all as far as it can be.
static std::vector<double> awaitedParts(const Shape &shape,
                                        ArrayRef<double> wholes) {
  size_t stages = wholes.size();
  auto count = static_cast<double>(shape.microBatches);
  std::vector<double> parts(stages, 0);
  // The weights of the mean, added up, which grow with `level`.
  auto weightsFor = [&](double level) {
    double sum = 0;
    for (size_t j = 0; j < stages; ++j) {
      double periods = count - static_cast<double>(stages - j);
      double weight = std::max(0.0, level / wholes[j] - 1 - sum) / periods;
      parts[j] = weight * periods + sum;
      sum += weight;
    }
    return sum;
  };
  // The mean of all has parts of (m - 1) / P where stages are alike.
  double low = 0, high = *llvm::max_element(wholes) * (count + 1);
  for (int i = 0; i < 50; ++i) {
    double level = (low + high) / 2;
    (weightsFor(level) <= 1 ? low : high) = level;
  }
  weightsFor(low);
  return parts;
}

namespace {

/// The fastest options of all kinds of layers on stages that are alike.
struct Sort {
  std::vector<double> fastest; ///< by place in LeastTimes::layersOfKind
  double whole = 0;            ///< of the whole model
};

/// A lower bound of the executed time of a shape's plans.
///
/// The slowest stage r takes c_r (1 - a_r) with a_r of it done ahead: at least
/// any mean of that over the stages. Stages of the weight 1 / (T_r (1 - a_r)),
/// where T_r is what the whole model takes there, count alike. From that mean
/// on slowestStage() halves.
class FreeTime : LeastTimes {
public:
  FreeTime(CostTables &tables, const Shape &shape)
      : LeastTimes(tables, shape), contentions(tables.contentionsOf(shape)),
        countsBusy(LeastForm::countsBusy(shape)) {}

  Picoseconds bound(bool cuts);

private:
  std::optional<Picoseconds> findFastest();
  bool weighStages();
  void addLayers();
  void addCuts();
  double slowestStage() const;
  const Sort &sortOf(size_t stage) const {
    return sorts.at({layout.place[stage], contentions[stage]});
  }

  const std::vector<size_t> &contentions;
  bool countsBusy;

  std::map<std::pair<size_t, size_t>, Sort> sorts;
  double forwardPart = 0; ///< the most that forward is of a layer's time
  std::vector<double> weightOf, awaited; ///< by stage
  /// By stage: the part of its time that counts in a period of the slowest
  /// stage, and what its messages add to it.
  std::vector<double> counted, moved;
  double weights = 0; ///< the sum of weightOf
  /// The bounds' terms, seconds: one micro-batch, the slowest stage's, and the
  /// mean in which stages wait.
  double sum = 0, mean = 0, waiting = 0;
};

/// Fills `sorts`; the answer if that ends the search for one.
std::optional<Picoseconds> FreeTime::findFastest() {
  for (size_t s = 0; s < layout.place.size(); ++s) {
    auto [it, fresh] = sorts.try_emplace({layout.place[s], contentions[s]});
    if (!fresh)
      continue;
    Sort &sort = it->second;
    Hiding hiding = hidingOn(s);
    for (auto [kind, layers] : layersOfKind) {
      const KindOptions &own = options(kind, s);
      if (tables.incomplete())
        return 0;
      if (own.options.empty())
        return kNoBound;
      double fastest = std::numeric_limits<double>::infinity();
      for (const KindOption &option : own.options) {
        Least time = of(option, hiding);
        double both = time.forward + time.backward;
        fastest = std::min(fastest, both);
        if (both > 0)
          forwardPart = std::max(forwardPart, time.forward / both);
      }
      sort.fastest.push_back(fastest);
      sort.whole += static_cast<double>(layers) * fastest;
    }
  }
  return std::nullopt;
}

/// False if the whole model takes no time on a stage.
bool FreeTime::weighStages() {
  std::vector<double> wholes;
  for (size_t s = 0; s < layout.place.size(); ++s) {
    double ahead = 0;
    if (shape.microBatches > 1 && !countsBusy)
      ahead = (slotsAhead(shape, s) - 1) / (count - 1) * forwardPart;
    double whole = sortOf(s).whole;
    if (whole <= 0)
      return false;
    counted.push_back(std::max(1 - ahead, 1e-9));
    weightOf.push_back(1 / (counted.back() * whole));
    weights += weightOf.back();
    wholes.push_back(whole);
  }
  if (LeastForm::hasWaits(shape))
    awaited = awaitedParts(shape, wholes);
  return true;
}

void FreeTime::addLayers() {
  for (size_t k = 0; k < layersOfKind.size(); ++k) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double fastest = infinity, share = infinity, shortest = infinity;
    for (const auto &[key, sort] : sorts) {
      fastest = std::min(fastest, sort.fastest[k]);
      share = std::min(share, sort.fastest[k] / sort.whole);
    }
    auto layers = static_cast<double>(layersOfKind[k].second);
    sum += layers * fastest;
    mean += layers * share / weights;
    for (size_t s = 0; s < awaited.size(); ++s)
      shortest = std::min(shortest, (1 + awaited[s]) * sortOf(s).fastest[k]);
    if (!awaited.empty())
      waiting += layers * shortest;
  }
}

void FreeTime::addCuts() {
  std::vector<CostTables::LeastMove> moves = leastCuts(tables, shape);
  if (tables.incomplete())
    return;
  for (size_t s = 0; s < moves.size(); ++s) {
    double there = toMilliseconds(moves[s].activation) * 1e-3;
    double back = toMilliseconds(moves[s].gradient) * 1e-3;
    if (!awaited.empty())
      waiting += (1 + awaited[s]) * there + (1 + awaited[s + 1]) * back;
    sum += there + back;
    if (hasPhases(*shape.schedule) || count == 1)
      continue;
    there *= periodsOfMoves(shape, s, /*waits=*/0) / (count - 1);
    back *= periodsOfMoves(shape, s + 1, /*waits=*/0) / (count - 1);
    mean += (weightOf[s] * there + weightOf[s + 1] * back) / weights;
    moved[s] += there;
    moved[s + 1] += back;
  }
}

/// Returns a lower bound of what the slowest stage takes in any partition, the
/// least there is within a ten-thousandth. Stages in order take as many layers
/// as they can do in a given time; if layers are left over, no partition is
/// that fast. Stages may stay empty, which only lowers the bound. Halving
/// begins at the mean.
double FreeTime::slowestStage() const {
  std::vector<size_t> placeOf; // of layers, in layersOfKind
  for (size_t l = 0; l < model.layerCount(); ++l)
    placeOf.push_back(llvm::find_if(layersOfKind,
                                    [&](const auto &kind) {
                                      return kind.first == model.kindOf(l);
                                    }) -
                      layersOfKind.begin());
  auto isEnough = [&](double most) {
    size_t next = 0;
    for (size_t s = 0; s < counted.size() && next < placeOf.size(); ++s) {
      const std::vector<double> &fastest = sortOf(s).fastest;
      double time = moved[s];
      while (next < placeOf.size() &&
             (time += counted[s] * fastest[placeOf[next]]) <= most)
        ++next;
    }
    return next == placeOf.size();
  };
  if (!(mean > 0))
    return mean;
  double low = mean, high = mean;
  while (!isEnough(high))
    high *= 2;
  constexpr double enough = 1 + 1e-4;
  while (high > low * enough) {
    double middle = (low + high) / 2;
    (isEnough(middle) ? high : low) = middle;
  }
  return low;
}

Picoseconds FreeTime::bound(bool cuts) {
  if (std::optional<Picoseconds> answer = findFastest())
    return *answer;
  if (!weighStages())
    return 0;
  addLayers();
  moved.assign(counted.size(), 0);
  if (cuts && !countsBusy)
    addCuts();
  if (tables.incomplete())
    return 0;
  mean = slowestStage();
  if (countsBusy)
    return floorPicoseconds(count * mean);
  return floorPicoseconds(std::max(waiting, sum + (count - 1) * mean));
}

} // namespace

Picoseconds leastFreeTime(CostTables &tables, const Shape &shape, bool cuts) {
  return FreeTime(tables, shape).bound(cuts);
}

} // namespace galvatron::planner
