//===- StageLabels.cpp - Label runs over the layers of a stage ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StageLabels.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <tuple>

using namespace llvm;

namespace galvatron::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The four numbers of the header, largest last, and what is on the host.
struct Memory {
  int64_t s, sv, sd, svd, host;

  bool within(const Memory &other) const {
    return s <= other.s && sv <= other.sv && sd <= other.sd &&
           svd <= other.svd && host <= other.host;
  }
  /// The memory with `option` before what this stands for.
  Memory before(const Choice &option, int64_t transient,
                int64_t boundary) const {
    Memory grown;
    grown.s = option.state + s;
    grown.host = option.host + host;
    grown.sv = option.state + option.kept + std::max(sv, s + transient);
    grown.sd = option.state + std::max(sd, s + boundary);
    grown.svd = option.state + option.kept +
                std::max({svd, sd + transient, sv + boundary,
                          s + transient + boundary});
    return grown;
  }
  /// The memory with `bytes` more that the first of these layers keeps, a
  /// micro-batch.
  Memory keeping(int64_t bytes, int64_t inFlight) const {
    int64_t others = (inFlight - 1) * bytes;
    return {s + others, sv + others + bytes, sd + others, svd + others + bytes,
            host};
  }
  /// The memory with boundary buffers of at least so many bytes.
  Memory withBoundary(int64_t boundary) const {
    return {s, sv, std::max(sd, s + boundary), std::max(svd, sv + boundary),
            host};
  }
  /// Raises numbers that cannot decide any more.
  void raise(int64_t transient, int64_t boundary) {
    s = std::max(
        {s, sv - transient, sd - boundary, svd - transient - boundary});
    sv = std::max(sv, svd - boundary);
    sd = std::max(sd, svd - transient);
  }
};

struct Label {
  int64_t cost; ///< time if there are two costs
  int64_t time, nosync;
  Memory memory;
  uint32_t parent; ///< in the labels of the next layer
  uint32_t option; ///< index in the layer's option set
  uint32_t last;   ///< class of the last layer if asked for, or 0
  uint32_t own;    ///< class of the first layer

  bool isOfGroup(const Label &other) const {
    return last == other.last && own == other.own;
  }
};

/// Layers that are all alike, seen by one multiplier: what an option of every
/// class costs at least, for classes that have one.
struct LayerCosts {
  std::vector<uint32_t> classes;
  std::vector<double> own; ///< by entry of `classes`

  LayerCosts(const Choices &options, Weights weights, double multiplier,
             size_t classCount, bool last) {
    std::vector<double> least(classCount, kInfinity);
    for (const Choice &option : options) {
      double &cost = least[option.layoutClass];
      cost = std::min(
          cost,
          weights.of(static_cast<double>(option.time),
                     static_cast<double>(option.nosync)) +
              multiplier * static_cast<double>(option.bytes() +
                                               // Labels of the last layer are
                                               // covered by nothing.
                                               (last ? option.transient : 0)));
    }
    for (size_t c = 0; c < classCount; ++c)
      if (least[c] < kInfinity) {
        classes.push_back(static_cast<uint32_t>(c));
        own.push_back(least[c]);
      }
  }
};

/// Lower bounds on what a label of some class still has to pay, by multiplier.
class Completion {
public:
  Completion(const StageRun &run, const Limit &limit,
             const std::vector<double> &multipliers)
      : classes(run.classes), multipliers(multipliers) {
    size_t begin = run.starts.front(), count = run.end - begin;
    size_t tables = multipliers.size();
    values.assign(count * classes * tables, kInfinity);
    stops.assign(count * classes, kInfinity);
    for (size_t i = 0; i < run.starts.size(); ++i)
      for (size_t c = 0; c < classes; ++c) {
        double charge = run.startCharge[i]
                            ? static_cast<double>((*run.startCharge[i])[c])
                            : 0;
        stops[(run.starts[i] - begin) * classes + c] =
            limit.added[i][c] +
            static_cast<double>(limit.weights.both()) * charge;
      }
    double both = static_cast<double>(limit.weights.both());
    std::vector<double> before;
    for (size_t k = 0; k < tables; ++k) {
      auto costsOf = [&](size_t l) {
        return LayerCosts(*run.options[l], limit.weights, multipliers[k],
                          classes, /*last=*/false);
      };
      LayerCosts here = costsOf(0);
      for (size_t l = 0; l + 1 < count; ++l) {
        before.clear();
        for (size_t i = 0; i < here.classes.size(); ++i) {
          size_t x = here.classes[i];
          before.push_back(here.own[i] + std::min(stops[l * classes + x],
                                                  values[at(l, x) + k]));
        }
        const std::vector<Picoseconds> &matrix = *run.transforms[l];
        std::optional<LayerCosts> other;
        if (run.options[l + 1] != run.options[l])
          other = costsOf(l + 1);
        const LayerCosts &next = other ? *other : here;
        for (size_t c : next.classes) {
          double least = kInfinity;
          for (size_t i = 0; i < here.classes.size(); ++i)
            least = std::min(
                least,
                before[i] + both * static_cast<double>(
                                       matrix[here.classes[i] * classes + c]));
          values[at(l + 1, c) + k] = least;
        }
        if (other)
          here = std::move(*other);
      }
    }
  }

  /// Returns true if `cost` can be completed to at most `limit` from the layer
  /// and class of the row on.
  bool canContinue(const double *row, double cost, double left,
                   double limit) const {
    for (size_t k = 0; k < multipliers.size(); ++k)
      if (cost + row[k] - multipliers[k] * left > limit)
        return false;
    return true;
  }
  /// The least that labels of a class still pay at a layer, by multiplier.
  const double *rowOf(size_t l, size_t c) const { return &values[at(l, c)]; }
  double stop(size_t l, size_t c) const { return stops[l * classes + c]; }

private:
  size_t at(size_t l, size_t c) const {
    return (l * classes + c) * multipliers.size();
  }

  size_t classes;
  const std::vector<double> &multipliers;
  std::vector<double> values; ///< [layer][class][multiplier], not stopping here
  std::vector<double> stops;  ///< [layer][class], starting the stage here
};

/// Sorts numbers that are sorted in runs already, by merging neighbours.
template <typename T, typename IsBefore>
void mergeRuns(std::vector<T> &all, std::vector<T> &spare, IsBefore isBefore) {
  SmallVector<size_t, 64> starts = {0};
  for (size_t i = 1; i < all.size(); ++i)
    if (isBefore(all[i], all[i - 1]))
      starts.push_back(i);
  starts.push_back(all.size());
  while (starts.size() > 2) {
    spare.resize(all.size());
    size_t runs = starts.size() - 1, kept = 0;
    for (size_t run = 0; run < runs; run += 2) {
      size_t first = starts[run], middle = starts[run + 1];
      size_t end = starts[std::min(run + 2, runs)];
      std::merge(all.begin() + first, all.begin() + middle,
                 all.begin() + middle, all.begin() + end, spare.begin() + first,
                 isBefore);
      starts[kept++] = first;
    }
    starts[kept++] = all.size();
    starts.resize(kept);
    std::swap(all, spare);
  }
}

class Runner {
public:
  Runner(const StageRun &run, PipelineStatistics &statistics)
      : run(run), statistics(statistics), begin(run.starts.front()),
        count(run.end - run.starts.front()), classes(run.classes) {
    for (size_t f = 0; f < run.limits.size(); ++f) {
      completions.emplace_back(run, run.limits[f], run.multipliers[f]);
      costsLeft.emplace_back();
      for (double limit : run.limits[f].limit)
        costsLeft.back().push_back(
            roomFor(limit) *
            (run.fault == PipelineFault::CutFrontTooFar ? 0.97 : 1));
    }
    transientBefore.assign(count + 1, 0);
    boundaryBefore.assign(count + 1, 0);
    bytesBefore.assign(count + 1, 0);
    for (size_t l = 0; l < count; ++l) {
      int64_t transient = 0, boundary = 0;
      int64_t bytes = std::numeric_limits<int64_t>::max();
      const PipelineBoundary *next =
          l + 1 < count ? boundaryInFront(l + 1) : nullptr;
      for (const Choice &option : *run.options[l]) {
        transient = std::max(transient, option.transient);
        boundary = std::max(boundary, option.boundary);
        if (next)
          boundary = std::max(boundary, next->live[option.layoutClass] +
                                            largest(next->live));
        bytes = std::min(bytes, option.bytes());
      }
      transientBefore[l + 1] = std::max(transientBefore[l], transient);
      boundaryBefore[l + 1] = std::max(boundaryBefore[l], boundary);
      bytesBefore[l + 1] = bytesBefore[l] + bytes;
    }
    startAt.assign(count, -1);
    for (size_t i = 0; i < run.starts.size(); ++i)
      startAt[run.starts[i] - begin] = static_cast<int>(i);
    // Bytes that a label surely has to add before it can start the stage.
    nearestBytes.assign(count, 0);
    for (size_t l = 0, nearest = 0; l < count; ++l) {
      if (startAt[l] >= 0)
        nearest = l;
      nearestBytes[l] = bytesBefore[l] - bytesBefore[nearest];
    }
  }

  std::optional<std::vector<StageEntry>> go() {
    ++statistics.runs;
    labels.resize(count);
    for (size_t l = count; l-- > 0;) {
      fresh.clear();
      if (l + 1 == count)
        start(l);
      else
        extend(l);
      reduceClasses(l);
      if (run.fault == PipelineFault::DominanceBeforeCompletion)
        reduceAcross(l);
      if (startAt[l] >= 0)
        complete(l);
      dropStopped(l);
      if (l > 0 && run.fault != PipelineFault::DominanceBeforeCompletion)
        reduceAcross(l);
      statistics.labels += labels[l].size();
      if (spent() || (run.cancellation && run.cancellation->requested()))
        return std::nullopt;
      if (labels[l].empty())
        break;
    }
    return std::move(entries);
  }

private:
  /// Returns true if the run has had its steps: one with many labels has more
  /// of them than all before it. What it finds after that is not used.
  bool spent() const { return statistics.steps > run.mostSteps; }
  static int64_t largest(const std::vector<int64_t> &bytes) {
    return *std::max_element(bytes.begin(), bytes.end());
  }
  const PipelineBoundary *boundaryInFront(size_t l) const {
    return run.boundaries.empty() ? nullptr : run.boundaries[l];
  }
  int64_t transientOf(size_t l, const Choice &option) const {
    return run.fault == PipelineFault::IgnoreBackwardPeak && l + 1 < count
               ? 0
               : option.transient;
  }

  void start(size_t l) {
    for (const Choice &option : *run.options[l]) {
      Label label;
      Picoseconds charge =
          run.endCharge ? (*run.endCharge)[option.layoutClass] : 0;
      label.time = option.time + charge;
      label.nosync = option.nosync + charge;
      label.parent = 0;
      label.option = option.index;
      size_t c = option.layoutClass;
      label.own = option.layoutClass;
      label.last = run.byLastClass ? label.own : 0;
      openGates(l, c, label.last);
      const PipelineBoundary *end = boundaryInFront(count);
      int64_t transient = transientOf(l, option);
      auto admitWith = [&](int64_t transient, int64_t boundary) {
        Label copy = label;
        copy.memory = Memory{}.before(option, transient, boundary);
        admit(l, copy);
      };
      admitWith(transient, end ? std::max(option.boundary, 2 * end->live[c])
                               : option.boundary);
      // M is the less of two forms, so a label for each.
      if (end && run.stage.sendsFromTransient && end->passing[c] == 0 &&
          2 * end->live[c] > option.boundary)
        admitWith(std::max(transient, end->live[c]), option.boundary);
    }
  }

  void extend(size_t l) {
    const std::vector<Label> &next = labels[l + 1];
    const std::vector<Picoseconds> &matrix = *run.transforms[l];
    const PipelineBoundary *between = boundaryInFront(l + 1);
    for (const Choice &option : *run.options[l]) {
      size_t own = option.layoutClass;
      int64_t transient = transientOf(l, option);
      // Labels are sorted by group: what their group decides is looked up once.
      for (size_t first = 0, end; first < next.size(); first = end) {
        size_t c = next[first].own;
        for (end = first;
             end < next.size() && next[end].isOfGroup(next[first]);)
          ++end;
        bool moves = between && changesLayout(run.layouts, own, c);
        int64_t passing = moves ? between->passing[c] : 0;
        int64_t boundary = moves
                               ? std::max(option.boundary,
                                          between->live[own] + between->live[c])
                               : option.boundary;
        Picoseconds transform = matrix[own * classes + c];
        openGates(l, own, next[first].last);
        for (size_t i = first; i < end; ++i) {
          const Label &from = next[i];
          Label label;
          label.memory = moves
                             ? from.memory.keeping(passing, run.stage.inFlight)
                                   .before(option, transient, boundary)
                             : from.memory.before(option, transient, boundary);
          label.time = from.time + option.time + transform;
          label.nosync = from.nosync + option.nosync + transform;
          label.parent = static_cast<uint32_t>(i);
          label.option = option.index;
          label.last = from.last;
          label.own = option.layoutClass;
          admit(l, label);
        }
      }
    }
  }

  /// The bounds up to which a functional lets labels of one group pass.
  struct Gate {
    Weights weights;
    double stop, costLeft;
    const Completion *completion;
    const double *row;
  };

  void openGates(size_t l, size_t own, size_t last) {
    gates.clear();
    for (size_t f = 0; f < run.limits.size(); ++f)
      gates.push_back({run.limits[f].weights, completions[f].stop(l, own),
                       costsLeft[f][last], &completions[f],
                       completions[f].rowOf(l, own)});
  }

  /// Takes a label of the group whose gates are open, if it passes them.
  void admit(size_t l, Label &label) {
    if (label.memory.svd + nearestBytes[l] > run.stage.memory ||
        label.memory.host > run.stage.hostMemory)
      return;
    auto left = static_cast<double>(run.stage.memory - label.memory.svd);
    auto time = static_cast<double>(label.time);
    auto nosync = static_cast<double>(label.nosync);
    for (const Gate &gate : gates) {
      double cost = gate.weights.of(time, nosync);
      if (cost + gate.stop > gate.costLeft &&
          !gate.completion->canContinue(gate.row, cost, left, gate.costLeft))
        return;
    }
    label.cost =
        run.twoCosts ? label.time : run.cost.of(label.time, label.nosync);
    label.memory.raise(transientBefore[l], boundaryBefore[l]);
    fresh.push_back(label);
  }

  /// The most by which what stands in front of two labels of different classes
  /// can cost the one more than the other.
  struct Slack {
    Picoseconds time = 0;
    int64_t kept = 0;     ///< more is kept
    int64_t boundary = 0; ///< boundary buffers become as large
  };

  /// The charge for a label of class a that replaces one of class b: any class
  /// may stand in front.
  Slack slackOf(size_t l, size_t a, size_t b) const {
    Slack slack;
    if (run.fault != PipelineFault::IgnoreTransformInDominance)
      slack.time = (*run.spreads[l - 1])[a * classes + b];
    const PipelineBoundary *front = boundaryInFront(l);
    if (!front || run.fault == PipelineFault::IgnoreBoundaryInDominance ||
        !changesLayout(run.layouts, a, b))
      return slack;
    // Class b in front costs b nothing.
    slack.kept = front->passing[a];
    slack.boundary =
        front->live[a] + (front->live[a] > front->live[b] ? largest(front->live)
                                                          : front->live[b]);
    return slack;
  }

  bool beats(const Label &a, const Label &b, const Slack &slack) const {
    if (run.twoCosts) {
      if (a.time + slack.time > b.time || a.nosync + slack.time > b.nosync)
        return false;
    } else if (a.cost + run.cost.both() * slack.time > b.cost) {
      return false;
    }
    if (slack.kept == 0 && slack.boundary == 0)
      return a.memory.within(b.memory);
    return a.memory.keeping(slack.kept, run.stage.inFlight)
        .withBoundary(slack.boundary)
        .within(b.memory);
  }

  /// Labels of one group that no other of the group beats.
  void reduceClasses(size_t l) {
    // Labels are large: their keys are sorted.
    order.clear();
    for (uint32_t i = 0; i < fresh.size(); ++i)
      order.push_back({fresh[i].last, fresh[i].own, i, fresh[i].cost});
    auto isBefore = [&](const Key &one, const Key &other) {
      if (one.last != other.last)
        return one.last < other.last;
      if (one.own != other.own)
        return one.own < other.own;
      if (one.cost != other.cost)
        return one.cost < other.cost;
      const Label &a = fresh[one.index], &b = fresh[other.index];
      return std::tie(a.nosync, a.memory.svd, a.memory.sv, a.option, a.parent,
                      one.index) < std::tie(b.nosync, b.memory.svd, b.memory.sv,
                                            b.option, b.parent, other.index);
    };
    // An option behind the labels of one group keeps their order.
    mergeRuns(order, merged, isBefore);
    std::vector<Label> &kept = labels[l];
    kept.clear();
    leasts.clear();
    size_t first = 0;
    for (const Key &key : order) {
      const Label &label = fresh[key.index];
      if (kept.empty() || !kept.back().isOfGroup(label))
        first = kept.size();
      if (dominatedBy(kept, first, kept.size(), label, Slack(), nullptr))
        continue;
      Least least{label.memory.svd, label.nosync};
      if (kept.size() > first) {
        least.memory = std::min(least.memory, leasts.back().memory);
        least.nosync = std::min(least.nosync, leasts.back().nosync);
      }
      leasts.push_back(least);
      kept.push_back(label);
      if (spent())
        return;
    }
    statistics.steps += fresh.size();
  }

  /// Returns true if one of kept[first..end) beats a label, given `slack` more;
  /// those that are gone do not count. `leasts` are of these labels.
  bool dominatedBy(const std::vector<Label> &kept, size_t first, size_t end,
                   const Label &label, const Slack &slack,
                   const std::vector<char> *gone) {
    // The dearest have the least memory.
    for (size_t i = end; i-- > first;) {
      // None from here on has so little memory or nosync: the loop ends.
      if (leasts[i].memory > label.memory.svd ||
          (run.twoCosts && leasts[i].nosync + slack.time > label.nosync))
        return false;
      ++statistics.steps;
      if (!(gone && (*gone)[i]) && beats(kept[i], label, slack))
        return true;
    }
    return false;
  }

  /// Labels that go on also compete with those of other classes: both pay the
  /// transform to the same class before them.
  void reduceAcross(size_t l) {
    std::vector<Label> &all = labels[l];
    if (l == 0 || all.size() < 2)
      return;
    // Labels are sorted by group, then by cost.
    std::vector<size_t> groups = {0};
    for (size_t i = 1; i < all.size(); ++i)
      if (!all[i].isOfGroup(all[i - 1]))
        groups.push_back(i);
    groups.push_back(all.size());
    leasts.resize(all.size());
    for (size_t g = 0; g + 1 < groups.size(); ++g) {
      Least least{std::numeric_limits<int64_t>::max(), kNoBound};
      for (size_t i = groups[g]; i < groups[g + 1]; ++i) {
        least.memory = std::min(least.memory, all[i].memory.svd);
        least.nosync = std::min(least.nosync, all[i].nosync);
        leasts[i] = least;
      }
    }
    int64_t perSpread = run.twoCosts ? 1 : run.cost.both();
    std::vector<char> gone(all.size(), 0);
    size_t groupOfB = 0;
    slacks.resize(groups.size() - 1);
    for (size_t b = 0; b < all.size(); ++b) {
      const Label &label = all[b];
      if (b == 0 || !label.isOfGroup(all[b - 1])) {
        groupOfB = b == 0 ? 0 : groupOfB + 1;
        for (size_t g = 0; g + 1 < groups.size(); ++g)
          slacks[g] = slackOf(l, all[groups[g]].own, label.own);
      }
      for (size_t g = 0; g + 1 < groups.size() && !gone[b]; ++g) {
        const Label &front = all[groups[g]];
        if (g == groupOfB || front.last != label.last)
          continue;
        const Slack &slack = slacks[g];
        // A label below the least of the group need not be looked for.
        const Least &least = leasts[groups[g + 1] - 1];
        if (front.cost + perSpread * slack.time > label.cost ||
            least.memory > label.memory.svd ||
            (run.twoCosts && least.nosync + slack.time > label.nosync))
          continue;
        // Labels are taken as far as they are cheap enough.
        auto end = std::partition_point(
            all.begin() + groups[g], all.begin() + groups[g + 1],
            [&](const Label &a) {
              return a.cost + perSpread * slack.time <= label.cost;
            });
        gone[b] =
            dominatedBy(all, groups[g], end - all.begin(), label, slack, &gone);
      }
      if (spent())
        return;
    }
    size_t to = 0;
    for (size_t i = 0; i < all.size(); ++i)
      if (!gone[i])
        all[to++] = all[i];
    all.resize(to);
  }

  /// Labels that start the stage here.
  void complete(size_t l) {
    auto index = static_cast<size_t>(startAt[l]);
    std::vector<Label> complete;
    for (const Label &label : labels[l]) {
      size_t c = label.own;
      bool within = true;
      for (size_t f = 0; f < run.limits.size() && within; ++f)
        within = run.limits[f].weights.of(static_cast<double>(label.time),
                                          static_cast<double>(label.nosync)) +
                     completions[f].stop(l, c) <=
                 costsLeft[f][label.last];
      // A stage that does not begin with the model holds what passes.
      const PipelineBoundary *front = boundaryInFront(l);
      int64_t entry =
          front && run.byFirstClass && run.fault != PipelineFault::ForgetEntry
              ? run.stage.inFlight * front->passing[c]
              : 0;
      if (!within || label.memory.svd + entry > run.stage.memory)
        continue;
      Picoseconds charge =
          run.startCharge[index] ? (*run.startCharge[index])[c] : 0;
      Label &made = complete.emplace_back(label);
      made.time += charge;
      made.nosync += charge;
      if (run.twoCosts)
        made.nosync = std::max(made.nosync, run.floors[index]);
      made.cost += charge * (run.twoCosts ? 1 : run.cost.both());
      if (!run.byFirstClass)
        made.own = 0;
    }
    llvm::sort(complete, [](const Label &a, const Label &b) {
      return std::tie(a.own, a.last, a.cost, a.nosync, a.option, a.parent) <
             std::tie(b.own, b.last, b.cost, b.nosync, b.option, b.parent);
    });
    const Label *last = nullptr;
    for (const Label &one : complete) {
      // Sorted by cost: of two costs the second must fall.
      if (last && last->isOfGroup(one) &&
          (!run.twoCosts || last->nosync <= one.nosync))
        continue;
      last = &one;
      StageEntry entry;
      entry.start = index;
      entry.firstClass = one.own;
      entry.lastClass = one.last;
      entry.time = one.time;
      entry.nosync = one.nosync;
      entry.choice.push_back(one.option);
      const Label *at = &one;
      for (size_t next = l + 1; next < count; ++next) {
        at = &labels[next][at->parent];
        entry.choice.push_back(at->option);
      }
      entries.push_back(std::move(entry));
    }
  }

  /// Labels that cannot go on.
  void dropStopped(size_t l) {
    if (startAt[l] < 0)
      return;
    erase_if(labels[l], [&](const Label &label) {
      auto left = static_cast<double>(run.stage.memory - label.memory.svd);
      for (size_t f = 0; f < run.limits.size(); ++f)
        if (!completions[f].canContinue(
                completions[f].rowOf(l, label.own),
                run.limits[f].weights.of(static_cast<double>(label.time),
                                         static_cast<double>(label.nosync)),
                left, costsLeft[f][label.last]))
          return true;
      return false;
    });
  }

  const StageRun &run;
  PipelineStatistics &statistics;
  size_t begin, count, classes;
  std::vector<Completion> completions;
  std::vector<std::vector<double>> costsLeft; ///< by limit and last class
  std::vector<int64_t> transientBefore, boundaryBefore, bytesBefore;
  std::vector<int64_t> nearestBytes;
  std::vector<int> startAt; ///< by layer: index of the start, or -1
  std::vector<Label> fresh;
  /// The key by which labels are sorted first, and their places.
  struct Key {
    uint32_t last, own, index;
    int64_t cost;
  };
  std::vector<Key> order, merged;
  std::vector<Gate> gates; ///< of the group that labels are admitted to
  /// Least memory and nosync of a label and those before it in its group.
  struct Least {
    int64_t memory;
    Picoseconds nosync;
  };
  std::vector<Least> leasts;
  std::vector<Slack> slacks; ///< by group, for one class behind it
  std::vector<std::vector<Label>> labels;
  std::vector<StageEntry> entries;
};

} // namespace

std::optional<std::vector<StageEntry>>
runStage(const StageRun &run, PipelineStatistics &statistics) {
  return Runner(run, statistics).go();
}

std::vector<std::vector<double>>
boundStage(const StageRun &run, Weights weights,
           const std::vector<double> &multipliers,
           const std::vector<int64_t> &reserved) {
  size_t begin = run.starts.front(), count = run.end - begin;
  size_t classes = run.classes;
  size_t firsts = run.byFirstClass ? classes : 1;
  size_t lasts = run.byLastClass ? classes : 1;
  double both = static_cast<double>(weights.both());
  std::vector<std::vector<double>> bounds(
      run.starts.size(), std::vector<double>(firsts * lasts, 0));
  // All last classes at once: [class][last class], both as far as they occur.
  std::vector<double> at, next;
  for (double multiplier : multipliers) {
    LayerCosts end(*run.options[count - 1], weights, multiplier, classes,
                   /*last=*/true);
    size_t ends = run.byLastClass ? end.classes.size() : 1;
    LayerCosts here = end;
    at.assign(end.classes.size() * ends, kInfinity);
    for (size_t i = 0; i < end.classes.size(); ++i)
      at[i * ends + (run.byLastClass ? i : 0)] =
          end.own[i] +
          (run.endCharge
               ? both * static_cast<double>((*run.endCharge)[end.classes[i]])
               : 0);
    size_t s = run.starts.size();
    const Choices *optionsHere = nullptr;
    const std::vector<Picoseconds> *matrixHere = nullptr;
    // Once a layer adds the same to all pairs of classes, so does every other
    // one like it.
    bool steady = false;
    double added = 0;
    for (size_t l = count; l-- > 0;) {
      if (l + 1 < count) {
        const std::vector<Picoseconds> &matrix = *run.transforms[l];
        if (steady && run.options[l] == optionsHere && &matrix == matrixHere) {
          for (double &cost : at)
            cost += added;
        } else {
          bool sameLayer = run.options[l] == optionsHere;
          std::optional<LayerCosts> other;
          if (!sameLayer)
            other.emplace(*run.options[l], weights, multiplier, classes,
                          /*last=*/false);
          const LayerCosts &former = other ? *other : here;
          next.assign(former.classes.size() * ends, kInfinity);
          for (size_t x = 0; x < former.classes.size(); ++x) {
            const Picoseconds *moves = &matrix[former.classes[x] * classes];
            double *row = &next[x * ends];
            for (size_t c = 0; c < here.classes.size(); ++c) {
              double step = former.own[x] +
                            both * static_cast<double>(moves[here.classes[c]]);
              const double *from = &at[c * ends];
              for (size_t last = 0; last < ends; ++last)
                row[last] = std::min(row[last], step + from[last]);
            }
          }
          steady = sameLayer && next.size() == at.size();
          if (steady) {
            double least = kInfinity, most = 0, largest = 0;
            for (size_t i = 0; i < at.size() && steady; ++i) {
              if (next[i] == kInfinity)
                continue;
              steady = at[i] < kInfinity;
              least = std::min(least, next[i] - at[i]);
              most = std::max(most, next[i] - at[i]);
              largest = std::max(largest, next[i]);
            }
            // The least is a bound whatever rounding did to the others.
            steady &= most - least <= 1e-15 * largest;
            added = least;
          }
          std::swap(at, next);
          if (other)
            here = std::move(*other);
          optionsHere = run.options[l];
          matrixHere = &matrix;
        }
      }
      if (s == 0 || run.starts[s - 1] != begin + l)
        continue;
      --s;
      double held =
          multiplier * static_cast<double>(run.stage.memory - reserved[s]);
      std::vector<double> least(firsts * lasts, kInfinity);
      for (size_t i = 0; i < here.classes.size(); ++i) {
        size_t c = here.classes[i];
        double charge =
            run.startCharge[s]
                ? both * static_cast<double>((*run.startCharge[s])[c])
                : 0;
        for (size_t last = 0; last < ends; ++last) {
          double &cell = least[(run.byFirstClass ? c : 0) * lasts +
                               (run.byLastClass ? end.classes[last] : 0)];
          cell = std::min(cell, at[i * ends + last] + charge);
        }
      }
      for (size_t cell = 0; cell < least.size(); ++cell)
        // Less the sums' rounding error, and a little.
        bounds[s][cell] =
            std::max(bounds[s][cell],
                     least[cell] == kInfinity
                         ? kInfinity
                         : least[cell] - held - 2 -
                               1e-12 * (least[cell] + std::max(held, 0.)));
    }
  }
  return bounds;
}

LeastMemory leastMemory(const std::vector<const Choices *> &options) {
  struct Point {
    Memory memory;
    uint32_t option, parent;
  };
  size_t count = options.size();
  std::vector<int64_t> transientBefore(count + 1, 0),
      boundaryBefore = transientBefore;
  for (size_t l = 0; l < count; ++l) {
    transientBefore[l + 1] = transientBefore[l];
    boundaryBefore[l + 1] = boundaryBefore[l];
    for (const Choice &option : *options[l]) {
      transientBefore[l + 1] =
          std::max(transientBefore[l + 1], option.transient);
      boundaryBefore[l + 1] = std::max(boundaryBefore[l + 1], option.boundary);
    }
  }
  std::vector<std::vector<Point>> points(count + 1);
  points[count].emplace_back(); // nothing is behind the last layer
  for (size_t l = count; l-- > 0;) {
    std::vector<Point> fresh;
    for (const Choice &option : *options[l])
      for (uint32_t i = 0; i < points[l + 1].size(); ++i) {
        Memory memory = points[l + 1][i].memory.before(option, option.transient,
                                                       option.boundary);
        memory.raise(transientBefore[l], boundaryBefore[l]);
        fresh.push_back({memory, option.index, i});
      }
    llvm::sort(fresh, [](const Point &a, const Point &b) {
      return std::tie(a.memory.svd, a.memory.sv, a.memory.sd, a.memory.s,
                      a.option, a.parent) < std::tie(b.memory.svd, b.memory.sv,
                                                     b.memory.sd, b.memory.s,
                                                     b.option, b.parent);
    });
    for (const Point &point : fresh)
      if (none_of(points[l], [&](const Point &other) {
            return other.memory.within(point.memory);
          }))
        points[l].push_back(point);
  }
  LeastMemory least;
  least.bytes = points[0][0].memory.svd;
  uint32_t at = 0;
  for (size_t l = 0; l < count; ++l) {
    least.choice.push_back(points[l][at].option);
    at = points[l][at].parent;
  }
  return least;
}

Choices withoutDominated(const Choices &options) {
  Choices kept;
  auto within = [](const Choice &a, const Choice &b) {
    return a.state <= b.state && a.kept <= b.kept &&
           a.transient <= b.transient && a.boundary <= b.boundary &&
           a.host <= b.host && a.time <= b.time && a.nosync <= b.nosync;
  };
  for (const Choice &candidate : options) {
    bool dominated = any_of(options, [&](const Choice &other) {
      // The first of equal ones is kept.
      return other.index != candidate.index &&
             other.layoutClass == candidate.layoutClass &&
             within(other, candidate) &&
             (other.index < candidate.index || !within(candidate, other));
    });
    if (!dominated)
      kept.push_back(candidate);
  }
  return kept;
}

} // namespace galvatron::search
