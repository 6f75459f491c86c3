//===- PipelineTables.cpp - What the bounds of stages are read from -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PipelineTables.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <set>

using namespace llvm;

namespace galvatron::search {

double Curve::bound(size_t begin, size_t end, double memory) const {
  Prefix from = before(begin), to = before(end);
  auto at = [&](size_t k) { return to[k] - from[k] - multipliers[k] * memory; };
  size_t best = peakOf(at);
  // Prefix sums carry the rounding of all layers before.
  return std::max(0.0, at(best)) - 2 - 1e-12 * to[best];
}

double Curve::boundOfStage(size_t begin, size_t end, double memory) const {
  Prefix from = before(begin), to = before(end - 1);
  const double *own = lastOf(end - 1);
  auto at = [&](size_t k) {
    return to[k] - from[k] + own[k] - multipliers[k] * memory;
  };
  size_t best = peakOf(at);
  return std::max(0.0, at(best)) - 2 - 1e-12 * (to[best] + own[best]);
}

void Curve::choose(size_t begin, size_t end, double memory, size_t reach,
                   std::vector<double> &chosen) const {
  size_t count = multipliers.size();
  Prefix from = before(begin), to = before(end);
  size_t best = peakOf(
      [&](size_t k) { return to[k] - from[k] - multipliers[k] * memory; });
  chosen.push_back(0);
  for (size_t k = best > reach ? best - reach : 0;
       k <= best + reach && k < count; ++k)
    chosen.push_back(multipliers[k]);
}

int64_t Station::boundary(size_t begin, size_t end) const {
  int64_t boundary = 0;
  for (size_t l = begin; l < end; ++l)
    boundary = std::max(boundary, leastBoundary[l]);
  return boundary;
}

PipelineTables::PipelineTables(const PipelineProblem &problem, bool boundsOnly)
    : problem(problem), stages(problem.stages.size()),
      layers(problem.layerCount()),
      bottleneck(stages == 1            ? 0
                 : problem.slowestAlone ? 1
                                        : problem.microBatches - 1),
      summed(problem.slowestAlone ? 0 : 1) {
  int64_t single = problem.slowestAlone ? 1 : problem.microBatches - 1;
  weights[kTime] = {summed, stages > 1 ? 0 : single};
  weights[kNosync] = {0, 1};
  weights[kMix] = {summed, bottleneck};
  weights[kBalance] = {
      summed, std::max<int64_t>(1, bottleneck / static_cast<int64_t>(stages))};
  for (auto *table :
       {&rowLeast, &columnLeast, &spreads, &rowResiduals, &columnResiduals})
    table->resize(problem.matrices.size());
  isTied.assign(layers, false);
  for (const PipelineTie &tie : problem.ties)
    isTied[tie.owner] = isTied[tie.borrower] = true;
  enumerateTies();
  for (const PipelineStage &stage : problem.stages) {
    auto it = llvm::find_if(stations, [&](const Station &station) {
      return station.place == stage.place &&
             station.inFlight == stage.inFlight &&
             station.memory == stage.memory &&
             station.sendsFromTransient == stage.sendsFromTransient;
    });
    stationOf.push_back(it - stations.begin());
    if (it != stations.end())
      continue;
    stations.emplace_back();
    stations.back().place = stage.place;
    stations.back().inFlight = stage.inFlight;
    stations.back().memory = stage.memory;
    stations.back().sendsFromTransient = stage.sendsFromTransient;
  }
  for (Station &station : stations)
    buildStation(station, boundsOnly);
  for (size_t s = 0; s < stages; ++s) {
    auto cutsOf = [&](size_t stage) {
      return std::make_tuple(stationOf[stage], stage > 0,
                             stage > 0 ? problem.cutPlace[stage - 1] : 0,
                             stage + 1 < stages,
                             stage + 1 < stages ? problem.cutPlace[stage] : 0);
    };
    size_t representative = 0;
    while (cutsOf(representative) != cutsOf(s))
      ++representative;
    representatives.push_back(representative);
  }
  equalUntil.resize(stages);
}

size_t PipelineTables::shiftDistance(size_t stage, size_t begin, size_t end) {
  std::vector<size_t> &until = equalUntil[representatives[stage]];
  if (until.empty()) {
    until.assign(layers, layers - 1);
    const Station &at = station(stage);
    const std::vector<size_t> &transforms =
        problem.transforms[problem.stages[stage].place];
    auto boundary = [&](size_t l) {
      return problem.boundaryBehind.empty() ? 0 : problem.boundaryBehind[l];
    };
    auto alike = [&](size_t l) {
      if (isTied[l] || isTied[l + 1] || at.options[l] != at.options[l + 1])
        return false;
      if (l + 2 < layers && transforms[l] != transforms[l + 1])
        return false;
      if (stage > 0 && l > 0 &&
          (cut(stage - 1, l).gradient != cut(stage - 1, l + 1).gradient ||
           boundary(l - 1) != boundary(l)))
        return false;
      if (l + 2 < layers && boundary(l) != boundary(l + 1))
        return false;
      // Only the last stage ends at the last layer.
      return stage + 1 == stages ||
             (l + 2 < layers &&
              cut(stage, l + 1).activation == cut(stage, l + 2).activation);
    };
    for (size_t l = layers - 1; l-- > 0;)
      until[l] = alike(l) ? until[l + 1] : l;
  }
  return until[begin] >= end ? until[begin] + 1 - end : 0;
}

Choices PipelineTables::convert(const std::vector<PipelineOption> &options,
                                int64_t inFlight) const {
  Choices choices;
  for (uint32_t i = 0; i < options.size(); ++i) {
    const PipelineOption &from = options[i];
    Choice choice;
    choice.index = i;
    choice.layoutClass = static_cast<uint32_t>(from.layoutClass);
    choice.time = problem.slowestAlone ? 0 : from.time;
    choice.nosync = problem.slowestAlone ? from.time : from.nosync;
    // What the other micro-batches in flight keep counts like state.
    choice.kept = from.kept;
    choice.state = from.state + (inFlight - 1) * from.kept;
    choice.transient = from.transient;
    choice.boundary = from.boundary;
    choices.push_back(choice);
  }
  return choices;
}

const Choices &PipelineTables::choicesOf(size_t set, int64_t inFlight) {
  auto [it, fresh] = converted.try_emplace({set, inFlight});
  if (fresh)
    it->second = withoutDominated(convert(problem.optionSets[set], inFlight),
                                  /*timesMatter=*/true);
  return it->second;
}

const std::vector<Picoseconds> &PipelineTables::leastTies(size_t tieIndex,
                                                          size_t place) {
  auto [it, fresh] = tieLeast.try_emplace({tieIndex, place});
  if (!fresh)
    return it->second;
  const PipelineTie &tie = problem.ties[tieIndex];
  std::set<size_t> tables;
  for (size_t o = 0; o < stages; ++o)
    if (problem.stages[o].place == place)
      for (size_t b = o; b < stages; ++b)
        tables.insert(tie.table[o * stages + b]);
  size_t keys = problem.tieKeys;
  it->second.assign(keys, kNoBound);
  for (size_t table : tables)
    for (size_t owner = 0; owner < keys; ++owner)
      for (size_t key = 0; key < keys; ++key)
        it->second[owner] = std::min(
            it->second[owner], problem.tieTables[table][owner * keys + key]);
  return it->second;
}

void PipelineTables::buildStation(Station &station, bool boundsOnly) {
  for (size_t l = 0; l < layers; ++l) {
    size_t set = problem.layers[station.place][l];
    bool owner = any_of(problem.ties,
                        [&](const PipelineTie &tie) { return tie.owner == l; });
    if (!owner) {
      station.options.push_back(&choicesOf(set, station.inFlight));
      continue;
    }
    Choices &choices =
        relaxedOwners[{static_cast<size_t>(&station - stations.data()), l}];
    choices = convert(problem.optionSets[set], station.inFlight);
    for (size_t t = 0; t < problem.ties.size(); ++t)
      if (problem.ties[t].owner == l)
        for (Choice &choice : choices)
          tiedTime(choice) += leastTies(
              t, station.place)[problem.optionSets[set][choice.index].tieKey];
    choices = withoutDominated(choices, /*timesMatter=*/true);
    station.options.push_back(&choices);
  }
  station.leastBytes.assign(layers + 1, 0);
  for (size_t l = 0; l < layers; ++l) {
    constexpr int64_t most = std::numeric_limits<int64_t>::max();
    int64_t bytes = most, last = most, boundary = most;
    for (const Choice &choice : *station.options[l]) {
      bytes = std::min(bytes, choice.bytes());
      last = std::min(last, choice.bytes() + choice.transient);
      boundary = std::min(boundary, choice.boundary);
    }
    station.leastBytes[l + 1] = station.leastBytes[l] + bytes;
    station.leastLast.push_back(last);
    station.leastBoundary.push_back(boundary);
  }
  static_assert(kTime == 0 && kNosync == 1, "the bounds need these two");
  size_t built =
      boundsOnly ? std::min<size_t>(functionals(), 2) : functionals();
  for (size_t f = 0; f < built; ++f)
    buildCurve(station, f);
}

void PipelineTables::buildCurve(Station &station, size_t functional) {
  // Hundreds of problems are opened for a bound only, with a station for every
  // stage: all of this is in few pieces of memory.
  struct Point {
    double bytes, cost;
  };
  SmallVector<const Choices *, 16> distinct;
  SmallVector<uint32_t, 128> numberOf; // by layer
  for (size_t l = 0; l < layers; ++l) {
    const Choices *options = station.options[l];
    if (l > 0 && options == station.options[l - 1]) {
      numberOf.push_back(numberOf.back());
      continue;
    }
    auto *it = llvm::find(distinct, options);
    numberOf.push_back(static_cast<uint32_t>(it - distinct.begin()));
    if (it == distinct.end())
      distinct.push_back(options);
  }
  // The dual function of a sum bends at the slopes of its terms' lower hulls.
  SmallVector<Point, 256> hulls;
  SmallVector<size_t, 17> firstOf = {0}; // in `hulls`, by number
  SmallVector<Point, 64> points;
  SmallVector<double, 256> slopes;
  for (const Choices *options : distinct) {
    points.clear();
    for (const Choice &choice : *options)
      points.push_back(
          {static_cast<double>(choice.bytes()),
           weights[functional].of(static_cast<double>(choice.time),
                                  static_cast<double>(choice.nosync))});
    llvm::sort(points, [](const Point &a, const Point &b) {
      return std::tie(a.bytes, a.cost) < std::tie(b.bytes, b.cost);
    });
    auto slope = [](const Point &a, const Point &b) {
      return (a.cost - b.cost) / (b.bytes - a.bytes);
    };
    size_t first = firstOf.back();
    for (const Point &point : points) {
      auto size = [&] { return hulls.size() - first; };
      if (size() > 0 && point.cost >= hulls.back().cost)
        continue;
      while (size() > 1 && slope(hulls[hulls.size() - 2], hulls.back()) <=
                               slope(hulls.back(), point))
        hulls.pop_back();
      if (size() > 0 && hulls.back().bytes == point.bytes)
        hulls.pop_back();
      hulls.push_back(point);
    }
    for (size_t i = first; i + 1 < hulls.size(); ++i)
      slopes.push_back(slope(hulls[i], hulls[i + 1]));
    firstOf.push_back(hulls.size());
  }
  llvm::sort(slopes);
  slopes.erase(llvm::unique(slopes), slopes.end());
  Curve &curve = station.curves[functional];
  curve.multipliers = {0};
  // Models of many kinds have many bends; a sample of them is as good.
  constexpr size_t most = 40;
  size_t index = 0, step = (slopes.size() + most - 1) / most;
  for (double slope : slopes)
    if (index++ % std::max<size_t>(step, 1) == 0 || index == slopes.size())
      curve.multipliers.push_back(slope);
  size_t count = curve.multipliers.size();
  auto leastOf = [&](ArrayRef<Point> among, double *row) {
    for (size_t k = 0; k < count; ++k) {
      double value = std::numeric_limits<double>::infinity();
      for (const Point &point : among)
        value =
            std::min(value, point.cost + curve.multipliers[k] * point.bytes);
      row[k] = value;
    }
  };
  std::vector<double> rows(2 * distinct.size() * count);
  for (size_t n = 0; n < distinct.size(); ++n) {
    leastOf(ArrayRef(hulls).slice(firstOf[n], firstOf[n + 1] - firstOf[n]),
            &rows[2 * n * count]);
    // The last layer of a stage: nothing covers its temporaries.
    points.clear();
    for (const Choice &choice : *distinct[n])
      points.push_back(
          {static_cast<double>(choice.bytes() + choice.transient),
           weights[functional].of(static_cast<double>(choice.time),
                                  static_cast<double>(choice.nosync))});
    leastOf(points, &rows[(2 * n + 1) * count]);
  }
  // By runs of equal layers; the end belongs to the last run.
  auto startsRun = [&](size_t l) {
    return l == 0 || numberOf[l] != numberOf[l - 1];
  };
  size_t runs = 0;
  for (size_t l = 0; l < layers; ++l)
    runs += startsRun(l);
  curve.starts.reserve(runs);
  curve.runOf.reserve(layers + 1);
  for (std::vector<double> *table : {&curve.sums, &curve.least, &curve.last})
    table->reserve(runs * count);
  std::vector<double> sum(count, 0);
  for (size_t l = 0; l < layers; ++l) {
    const double *row = &rows[2 * numberOf[l] * count], *end = row + count;
    if (startsRun(l)) {
      curve.starts.push_back(static_cast<uint32_t>(l));
      curve.sums.insert(curve.sums.end(), sum.begin(), sum.end());
      curve.least.insert(curve.least.end(), row, row + count);
      curve.last.insert(curve.last.end(), end, end + count);
    }
    curve.runOf.push_back(static_cast<uint32_t>(curve.starts.size() - 1));
    for (size_t k = 0; k < count; ++k)
      sum[k] += row[k];
  }
  curve.runOf.push_back(curve.runOf.back());
}

void PipelineTables::enumerateTies() {
  tieChoices = {TieChoice()};
  auto stagesOf = [&](size_t layer) {
    std::vector<size_t> possible;
    if (!problem.partition.empty()) {
      size_t stage = 0, end = problem.partition[0];
      while (layer >= end)
        end += problem.partition[++stage];
      return std::vector<size_t>{stage};
    }
    for (size_t s = 0; s < stages; ++s)
      if (s <= layer && stages - 1 - s <= layers - 1 - layer &&
          (layer > 0 || s == 0) && (layer + 1 < layers || s + 1 == stages))
        possible.push_back(s);
    return possible;
  };
  size_t keys = problem.tieKeys;
  for (const PipelineTie &tie : problem.ties) {
    std::vector<TieChoice> grown;
    for (size_t owner : stagesOf(tie.owner))
      for (size_t borrower : stagesOf(tie.borrower)) {
        if (borrower < owner)
          continue;
        const std::vector<Picoseconds> &table =
            problem.tieTables[tie.table[owner * stages + borrower]];
        // Borrowers' keys that cost every owner the same are one choice.
        size_t place = problem.stages[borrower].place;
        std::vector<bool> present(keys, false);
        for (const PipelineOption &option :
             problem.optionSets[problem.layers[place][tie.borrower]])
          present[option.tieKey] = true;
        std::vector<TieChoice::Settled> groups;
        for (size_t key = 0; key < keys; ++key) {
          if (!present[key])
            continue;
          auto it = llvm::find_if(groups, [&](const auto &group) {
            for (size_t o = 0; o < keys; ++o)
              if (table[o * keys + key] != table[o * keys + group.key])
                return false;
            return true;
          });
          if (it == groups.end()) {
            groups.push_back(
                {owner, borrower, std::vector<bool>(keys, false), key});
            it = std::prev(groups.end());
          }
          it->allowed[key] = true;
        }
        for (const TieChoice &choice : tieChoices)
          for (const TieChoice::Settled &group : groups) {
            grown.push_back(choice);
            grown.back().ties.push_back(group);
          }
      }
    tieChoices = std::move(grown);
  }
}

bool PipelineTables::tied(size_t begin, size_t end) const {
  return any_of(problem.ties, [&](const PipelineTie &tie) {
    return (tie.owner >= begin && tie.owner < end) ||
           (tie.borrower >= begin && tie.borrower < end);
  });
}

bool PipelineTables::agrees(size_t tieChoice, size_t stage, size_t begin,
                            size_t end) const {
  for (size_t t = 0; t < problem.ties.size(); ++t) {
    const PipelineTie &tie = problem.ties[t];
    const TieChoice::Settled &choice = tieChoices[tieChoice].ties[t];
    auto inside = [&](size_t layer) { return layer >= begin && layer < end; };
    if (inside(tie.owner) != (stage == choice.ownerStage) ||
        inside(tie.borrower) != (stage == choice.borrowerStage))
      return false;
  }
  return true;
}

const Choices &PipelineTables::options(size_t stage, size_t layer,
                                       size_t tieChoice) {
  if (!isTied[layer])
    return *station(stage).options[layer];
  auto [it, fresh] = settled.try_emplace({stationOf[stage], layer, tieChoice});
  if (!fresh)
    return it->second;
  const PipelineStage &at = problem.stages[stage];
  const std::vector<PipelineOption> &set =
      problem.optionSets[problem.layers[at.place][layer]];
  Choices choices = convert(set, at.inFlight);
  for (size_t t = 0; t < problem.ties.size(); ++t) {
    const PipelineTie &tie = problem.ties[t];
    const TieChoice::Settled &choice = tieChoices[tieChoice].ties[t];
    if (tie.borrower == layer)
      erase_if(choices, [&](const Choice &own) {
        return !choice.allowed[set[own.index].tieKey];
      });
    if (tie.owner == layer) {
      const std::vector<Picoseconds> &table =
          problem.tieTables[tie.table[choice.ownerStage * stages +
                                      choice.borrowerStage]];
      for (Choice &own : choices)
        tiedTime(own) +=
            table[set[own.index].tieKey * problem.tieKeys + choice.key];
    }
  }
  it->second = withoutDominated(choices, /*timesMatter=*/true);
  return it->second;
}

const std::vector<Picoseconds> *PipelineTables::endCharge(size_t stage,
                                                          size_t end) {
  if (stage + 1 == stages)
    return nullptr;
  size_t index = cut(stage, end).activation, classes = problem.classes;
  std::vector<Picoseconds> &least = rowLeast[index];
  if (least.empty()) {
    const std::vector<Picoseconds> &matrix = problem.matrices[index];
    for (size_t a = 0; a < classes; ++a)
      least.push_back(*std::min_element(matrix.begin() + a * classes,
                                        matrix.begin() + (a + 1) * classes));
  }
  return &least;
}

const std::vector<Picoseconds> *PipelineTables::startCharge(size_t stage,
                                                            size_t begin) {
  if (stage == 0)
    return nullptr;
  size_t index = cut(stage - 1, begin).gradient, classes = problem.classes;
  std::vector<Picoseconds> &least = columnLeast[index];
  if (least.empty()) {
    least.assign(classes, kNoBound);
    const std::vector<Picoseconds> &matrix = problem.matrices[index];
    for (size_t cell = 0; cell < classes * classes; ++cell)
      least[cell % classes] = std::min(least[cell % classes], matrix[cell]);
  }
  return &least;
}

const std::vector<Picoseconds> &
PipelineTables::activationResiduals(size_t stage, size_t end) {
  size_t index = cut(stage, end).activation, classes = problem.classes;
  std::vector<Picoseconds> &residuals = rowResiduals[index];
  if (residuals.empty()) {
    const std::vector<Picoseconds> &charge = *endCharge(stage, end);
    for (size_t cell = 0; cell < classes * classes; ++cell)
      residuals.push_back(problem.matrices[index][cell] -
                          charge[cell / classes]);
    residuals.push_back(*llvm::max_element(residuals));
  }
  return residuals;
}

const std::vector<Picoseconds> &
PipelineTables::gradientResiduals(size_t stage, size_t begin) {
  size_t index = cut(stage - 1, begin).gradient, classes = problem.classes;
  std::vector<Picoseconds> &residuals = columnResiduals[index];
  if (residuals.empty()) {
    const std::vector<Picoseconds> &charge = *startCharge(stage, begin);
    for (size_t cell = 0; cell < classes * classes; ++cell)
      residuals.push_back(problem.matrices[index][cell] -
                          charge[cell % classes]);
    residuals.push_back(*llvm::max_element(residuals));
  }
  return residuals;
}

Picoseconds PipelineTables::endResidual(size_t stage, size_t end) {
  return stage + 1 == stages ? 0 : activationResiduals(stage, end).back();
}

Picoseconds PipelineTables::startResidual(size_t stage, size_t begin) {
  return stage == 0 ? 0 : gradientResiduals(stage, begin).back();
}

const std::vector<Picoseconds> &PipelineTables::transform(size_t stage,
                                                          size_t layer) const {
  return problem
      .matrices[problem.transforms[problem.stages[stage].place][layer]];
}

const std::vector<Picoseconds> &PipelineTables::spread(size_t stage,
                                                       size_t layer) {
  size_t index = problem.transforms[problem.stages[stage].place][layer];
  size_t classes = problem.classes;
  std::vector<Picoseconds> &most = spreads[index];
  if (most.empty()) {
    const std::vector<Picoseconds> &matrix = problem.matrices[index];
    most.assign(classes * classes, -kNoBound);
    for (size_t a = 0; a < classes; ++a)
      for (size_t b = 0; b < classes; ++b)
        for (size_t x = 0; x < classes; ++x)
          most[a * classes + b] =
              std::max(most[a * classes + b],
                       matrix[x * classes + a] - matrix[x * classes + b]);
  }
  return most;
}

} // namespace galvatron::search
