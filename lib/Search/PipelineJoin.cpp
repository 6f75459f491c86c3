//===- PipelineJoin.cpp - Stages put together -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Choices of neighbouring stages are joined under a ceiling: once no stage may
// be slower, only the sum of the times is left to be minimised, and the least
// sum falls as the ceiling rises. What lies between two ceilings costs at least
// the sum under the higher one and the nosync of the lower one, so few ceilings
// have to be tried.
//
//===----------------------------------------------------------------------===//

#include "PipelineImpl.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

using namespace search;

class PipelineSearch::Impl::Joiner {
public:
  Joiner(Impl &impl, const Entries &entries, const KeyedPaths &paths,
         SearchWindow window)
      : impl(impl), window(window), weight(impl.tables.bottleneck),
        classes(impl.problem.classes), stages(impl.tables.stages) {
    levels.resize(stages);
    Neighbours exits(impl, paths);
    for (size_t s = 0; s < stages; ++s) {
      exits.enter(s);
      prepare(levels[s], s, entries[s], exits);
    }
    const Point &least = paths.whole();
    if (weight == 0) {
      search(0, kNoBound, least.sum);
    } else {
      search(std::max(window.floor, least.largest),
             impl.mostNosync(window, least.sum), least.sum);
    }
  }

  std::optional<PipelineSolution> best;

private:
  struct Piece {
    Picoseconds time, nosync;
    const StageEntry *entry;
  };
  /// The front of one interval with given classes.
  struct Cell {
    size_t begin, first, end, last;
    size_t from, to; ///< pieces: time ascends, nosync falls
    size_t target;   ///< of what lies behind
  };
  /// The end of a stage, with the class of its last layer.
  struct Target {
    size_t end, last;
    Picoseconds residual;  ///< the most that the activation still adds
    Picoseconds leastRest; ///< least sum of all that follows
    std::vector<size_t> nodes;
  };
  /// Stages up to one joined. The last one may still grow by what it sends.
  struct Node {
    Picoseconds sum;
    Picoseconds largest; ///< nosync of the stages before the last
    Picoseconds current; ///< of the last stage so far
    size_t piece, parent;
  };
  struct Level {
    std::vector<Piece> pieces;
    std::vector<Cell> cells; ///< by begin and first class
    std::vector<Target> targets;
    std::vector<Node> nodes;
  };
  /// A way to enter a stage: everything before it and its gradient.
  struct Arrival {
    Picoseconds sum, gradient, largest;
    size_t parent;
  };

  void prepare(Level &level, size_t stage,
               ArrayRef<std::pair<const Keyed *, const StageEntry *>> entries,
               Neighbours &exits) {
    struct Item {
      size_t begin, first, end, last;
      Piece piece;
    };
    std::vector<Item> items;
    for (const auto &[interval, entry] : entries)
      items.push_back(
          {interval->begin, entry->firstClass, interval->end, entry->lastClass,
           Piece{impl.tables.weights[kTime].of(entry->time, entry->nosync),
                 weight > 0 ? entry->nosync : 0, entry}});
    llvm::stable_sort(items, [](const Item &a, const Item &b) {
      return std::tie(a.begin, a.first, a.end, a.last, a.piece.time,
                      a.piece.nosync) < std::tie(b.begin, b.first, b.end,
                                                 b.last, b.piece.time,
                                                 b.piece.nosync);
    });
    std::map<std::pair<size_t, size_t>, size_t> targetOf;
    for (const Item &item : items) {
      Cell *cell = level.cells.empty() ? nullptr : &level.cells.back();
      if (!cell || std::tie(cell->begin, cell->first, cell->end, cell->last) !=
                       std::tie(item.begin, item.first, item.end, item.last)) {
        auto [it, fresh] =
            targetOf.try_emplace({item.end, item.last}, level.targets.size());
        if (fresh) {
          Charges *charges = impl.tables.endCharges(stage, item.end);
          level.targets.push_back({item.end,
                                   item.last,
                                   charges ? charges->above().back() : 0,
                                   exits.at(item.end, item.last).sum,
                                   {}});
        }
        level.cells.push_back({item.begin, item.first, item.end, item.last,
                               level.pieces.size(), level.pieces.size(),
                               it->second});
        cell = &level.cells.back();
      } else if (item.piece.nosync >= level.pieces.back().nosync) {
        continue;
      }
      level.pieces.push_back(item.piece);
      cell->to = level.pieces.size();
    }
  }

  /// Adds the pieces of a cell behind an arrival, as far as their nosync can
  /// decide.
  void extend(Level &level, const Cell &cell, const Arrival &arrival,
              Picoseconds ceiling) {
    Target &target = level.targets[cell.target];
    auto from = std::partition_point(
        level.pieces.begin() + cell.from, level.pieces.begin() + cell.to,
        [&](const Piece &piece) {
          return piece.nosync + arrival.gradient > ceiling;
        });
    // Below this what is sent on cannot make the stage too slow.
    Picoseconds enough = ceiling - target.residual;
    for (auto end = level.pieces.begin() + cell.to; from != end; ++from) {
      Node node{arrival.sum + from->time, arrival.largest,
                from->nosync + arrival.gradient,
                static_cast<size_t>(from - level.pieces.begin()),
                arrival.parent};
      if (node.sum + target.leastRest + weight * least > window.limit)
        return;
      Picoseconds current = std::max(node.current, enough);
      bool dominated = any_of(target.nodes, [&](size_t other) {
        return level.nodes[other].sum <= node.sum &&
               std::max(level.nodes[other].current, enough) <= current;
      });
      if (!dominated) {
        erase_if(target.nodes, [&](size_t other) {
          return level.nodes[other].sum >= node.sum &&
                 std::max(level.nodes[other].current, enough) >= current;
        });
        target.nodes.push_back(level.nodes.size());
        level.nodes.push_back(node);
      }
      if (node.current <= enough)
        return;
    }
  }

  /// The ways to enter a stage at a layer of some class.
  void arrivalsAt(size_t stage, size_t begin, size_t first, Picoseconds ceiling,
                  std::vector<Arrival> &arrivals) {
    arrivals.clear();
    const Level &level = levels[stage - 1];
    bool ignored = impl.fault == PipelineFault::DropCutTransfer;
    const auto &activations = impl.tables.endCharges(stage - 1, begin)->above();
    const auto &gradients = impl.tables.startCharges(stage, begin)->above();
    for (const Target &target : level.targets) {
      if (target.end != begin)
        continue;
      size_t cell = target.last * classes + first;
      Picoseconds activation = ignored ? 0 : activations[cell];
      Picoseconds gradient = ignored ? 0 : gradients[cell];
      for (size_t n : target.nodes) {
        const Node &node = level.nodes[n];
        Picoseconds own = node.current + activation;
        if (own <= ceiling)
          arrivals.push_back(
              {node.sum + impl.tables.summed * (activation + gradient),
               gradient, std::max(node.largest, own), n});
      }
    }
    llvm::sort(arrivals, [](const Arrival &a, const Arrival &b) {
      return std::tie(a.sum, a.gradient, a.largest, a.parent) <
             std::tie(b.sum, b.gradient, b.largest, b.parent);
    });
    size_t kept = 0;
    for (const Arrival &arrival : arrivals)
      if (kept == 0 || arrival.gradient < arrivals[kept - 1].gradient)
        arrivals[kept++] = arrival;
    arrivals.resize(kept);
  }

  /// The least sum under a ceiling, and the largest nosync that comes with it;
  /// kNoBound if nothing that matters is left.
  Point solve(Picoseconds ceiling) {
    std::vector<Arrival> arrivals;
    for (size_t s = 0; s < stages; ++s) {
      Level &level = levels[s];
      level.nodes.clear();
      for (Target &target : level.targets)
        target.nodes.clear();
      if (s == 0) {
        for (const Cell &cell : level.cells)
          extend(level, cell, {0, 0, window.floor, 0}, ceiling);
        continue;
      }
      const Cell *last = nullptr;
      for (const Cell &cell : level.cells) {
        if (!last || std::tie(last->begin, last->first) !=
                         std::tie(cell.begin, cell.first))
          arrivalsAt(s, cell.begin, cell.first, ceiling, arrivals);
        last = &cell;
        for (const Arrival &arrival : arrivals)
          extend(level, cell, arrival, ceiling);
      }
    }
    const Level &level = levels.back();
    Point found{kNoBound, kNoBound};
    const Node *end = nullptr;
    for (const Target &target : level.targets)
      for (size_t n : target.nodes) {
        const Node &node = level.nodes[n];
        Picoseconds largest = std::max(node.largest, node.current);
        if (std::tie(node.sum, largest) >= std::tie(found.sum, found.largest))
          continue;
        found = {node.sum, largest};
        end = &node;
      }
    if (end)
      keep(*end, found.sum + weight * found.largest);
    return found;
  }

  void keep(const Node &end, Picoseconds cost) {
    if (cost > window.limit)
      return;
    PipelineSolution solution;
    solution.cost = cost;
    solution.partition.resize(stages);
    std::vector<const StageEntry *> chosen(stages);
    const Node *node = &end;
    for (size_t s = stages; s-- > 0;) {
      chosen[s] = levels[s].pieces[node->piece].entry;
      if (s > 0)
        node = &levels[s - 1].nodes[node->parent];
    }
    for (size_t s = 0; s < stages; ++s) {
      solution.partition[s] = static_cast<int64_t>(chosen[s]->choice.size());
      llvm::append_range(solution.choice, chosen[s]->choice);
    }
    // The floor counted although no stage may be as slow.
    if (window.floor > 0)
      solution.cost =
          evaluatePipeline(impl.problem, solution.partition, solution.choice)
              .cost;
    window.limit = solution.cost - 1;
    best = std::move(solution);
  }

  /// Finds the best pipeline whose slowest stage has a nosync from `low` to
  /// `high`, where times sum to at least `sum`.
  void search(Picoseconds low, Picoseconds high, Picoseconds sum) {
    if (low > high || sum + weight * low > window.limit || impl.late())
      return;
    least = weight > 0 ? low : 0;
    Point found = solve(high);
    if (found.sum >= kNoBound || weight == 0)
      return;
    // Nothing from here to `high` is better than what was found.
    high = found.largest - 1;
    if (low > high || found.sum + weight * low > window.limit)
      return;
    Picoseconds middle = low + (high - low) / 2;
    search(middle + 1, high, found.sum);
    search(low, middle, found.sum);
  }

  Impl &impl;
  SearchWindow window;
  int64_t weight;
  size_t classes, stages;
  Picoseconds least = 0; ///< nosync that the slowest stage has at least
  std::vector<Level> levels;
};

std::optional<PipelineSolution>
PipelineSearch::Impl::join(const Entries &entries, const KeyedPaths &paths,
                           SearchWindow window) {
  return std::move(Joiner(*this, entries, paths, window).best);
}

} // namespace galvatron
