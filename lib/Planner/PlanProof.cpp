//===- PlanProof.cpp - How fast any plan of a batch can be executed -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The search minimises a formula; this looks for what the simulator can say at
// least of any plan of the chosen batch. Shapes come by the least time that
// they may take, the least first, and are solved under lower bounds of executed
// times (LeastProblem.cpp) until that of the first is known or no shape can be
// faster than the best plan; shapes of schedules that split backward passes
// under rows of shared homes as well (ChunkedProblem.cpp). Plans found on the
// way are simulated, too; where
// the first one's bound leaves a gap, so are those of the shapes behind it.
//
//===----------------------------------------------------------------------===//

#include "ChunkedProblem.h"
#include "Executed.h"
#include "LeastTimes.h"
#include "PlanSearch.h"
#include "galvatron/Planner/Gap.h"

using namespace llvm;

namespace galvatron::planner {

/// Part of the steps of a search that its proof may take after it, 7 million:
/// about a second.
constexpr uint64_t kProofPart = 7;
/// Moves between layers on so few devices are quickly priced.
constexpr int64_t kFewDevices = 16;
/// Forms of the bound that are tried for a shape.
constexpr size_t kMostForms = 6;
/// Forms whose bounds are looked at before one is solved.
constexpr size_t kMostStarts = 8;
/// Part of the steps that may be taken to solve a problem without moves between
/// layers.
constexpr uint64_t kRelaxedPart = 64;
/// A problem takes about as long to make as so many steps of a search.
constexpr uint64_t kStepsToMake = 300;
/// Part of the most steps that solving a form behind the first may take, or as
/// many as the first took.
constexpr uint64_t kLaterPart = 16;
/// One part in so many of a bound is what another form must add to go on that
/// way.
constexpr Picoseconds kWorthwhile = 2000;
/// The most plans it finds that are simulated, each in up to a tenth of a
/// second. Most that are worth it are among the first.
constexpr size_t kMostSimulated = 3;
/// A gap that is worth looking for faster plans once it is proven, percent.
constexpr double kWorthwhileGap = 2;
/// Part of the steps that are left then which that may take.
constexpr uint64_t kPlansPart = 4;
/// The most plans that are simulated then.
constexpr size_t kMostSimulatedThen = 8;
/// The most plans by rows that are simulated.
constexpr size_t kMostByRows = 12;
/// Problems with their searches that are kept, a MiB each on a thousand
/// devices. Those furthest from having a turn are made again should it come.
constexpr size_t kMostOpen = 16;
/// Bytes of problems without their searches that are kept; these take longer to
/// make than a search of a small one to begin.
constexpr size_t kMostBytes = 16 << 20;
/// Work of a round of prices (BoundedShape) that takes as long as one step.
constexpr size_t kWorkOfStep = 40;

namespace {

/// A shape on its way.
struct ShapeProof {
  Picoseconds bound = 0; ///< of any of its plans, executed
  Shape shape;
  /// The relaxation that is next. Forms to begin with are compared without
  /// memory (Starts). The transfers between layers are the dearest part to
  /// price: without them first, but with what cuts take at least where that is
  /// cheap.
  enum {
    Free,
    Rows,
    Cuts,
    Starts,
    Relaxed,
    Opened,
    Branching,
    Done
  } level = Free;
  LeastForm form;
  LeastForm strongest; ///< of those that were looked at
  /// The lower bound of the current form's problem without memory limits.
  Picoseconds unbound = 0;
  /// The strongest form as if memory were endless, until it is looked at with
  /// memory.
  std::optional<LeastForm> strongestUnbound;
  bool compared = false; ///< all forms to begin with, with memory
  /// The bound that the strongest form has by itself.
  Picoseconds strength = 0;
  size_t starts = 0;     ///< forms that were looked at before any is solved
  unsigned change = 0;   ///< of a form, what is tried now
  bool stronger = false; ///< than the strongest before
  bool helped = false;   ///< the change has made it stronger already
  size_t forms = 0;      ///< looked at since the first was solved, and that
  /// The ends of the last pipeline found, and how much of the weights moves for
  /// it.
  Candidate::StageEnds ends;
  double shift = 0.25;
  bool tightened = false;
  uint64_t solving = 0; ///< steps of what was solved
  std::unique_ptr<Candidate> candidate;
  /// The conditions that the candidate was made for besides the shape: the
  /// form, the limit, which moves it has.
  std::tuple<LeastForm, Picoseconds, Moves> madeFor = {};
  size_t laidBy = 0; ///< bytes of a candidate without its search
  std::unique_ptr<PipelineSearch> search;
  Picoseconds slack = 0;
  /// The shape as one of shared homes, where these know more.
  std::unique_ptr<BoundedShape> homes;
  double branchedFrom = 0; ///< the bound that nodes have to raise
  int idleNodes = 0;

  /// Notes the bound that the form at hand has by itself.
  void note(Picoseconds own) {
    if (own <= strength)
      return;
    stronger |= own - strength > strength / kWorthwhile;
    strength = own;
    strongest = form;
  }
};

} // namespace

/// The proof of one batch.
class PlanSearch::Proof {
public:
  Proof(PlanSearch &plans, PlannerResult &result)
      : plans(plans), result(result),
        mostSteps(plans.options.mostSteps == 0
                      ? kNoStepLimit
                      : plans.options.mostSteps / kProofPart) {}

  /// Returns the percentage by which the best plan is above the least that any
  /// plan can take; nothing if time was up before that could be said.
  std::optional<double> run();

private:
  /// The longest time of plans that are of interest.
  Picoseconds limit() const {
    return std::min(ownTime(), plans.knownTime(result.plan().batch));
  }
  Picoseconds ownTime() const {
    return static_cast<Picoseconds>(result.plan().iterationMs * 1e9);
  }
  double gapTo(Picoseconds least) const {
    double leastMs = static_cast<double>(std::max<Picoseconds>(least, 1)) / 1e9;
    return gapInPercent(result.plan().iterationMs, leastMs);
  }
  void advance(ShapeProof &entry, Picoseconds enough);
  bool make(ShapeProof &entry, Moves moves);
  bool open(ShapeProof &entry, bool transfers);
  void layBy(ShapeProof &entry);
  /// The moves of problems that are made first.
  Moves fewMoves(const Shape &shape) const {
    return plans.cutsAreCheap(shape) ? Moves::LeastCuts : Moves::None;
  }
  bool isSmall(const Shape &shape) const {
    return plans.cluster.deviceCount() / shape.degree() <= kFewDevices;
  }
  void closeSome();
  void simulate(Incumbent found, bool byRows = false);
  bool nextStart(ShapeProof &entry);
  void start(ShapeProof &entry);
  void nextShift(ShapeProof &entry);
  void close(ShapeProof &entry);
  /// True if rows of shared homes, of which each stage is one by itself, are
  /// bounds of the shape that know more than the busiest stage does.
  bool hasRows(const Shape &shape) const {
    return shape.schedule->splitsBackward() && shape.degree() > 1;
  }
  BusyBound &timesOf(const Layout &layout);
  void boundByRows(ShapeProof &entry);
  double limitSeconds() const { return toMilliseconds(limit()) / 1e3; }
  /// Raises the entry's bound to that of its rows, which is never above the
  /// limit that they were given.
  void raiseByRows(ShapeProof &entry) {
    const double least = entry.homes->search.least();
    entry.bound = std::max(entry.bound, least >= limitSeconds()
                                            ? limit() + 1
                                            : floorPicoseconds(least));
  }
  /// Counts the rounds of a shape behind the first ones as steps.
  void countRounds(const BoundedShape &shape, uint64_t first) {
    steps += (shape.search.rounds() - first) * shape.workOfNode() / kWorkOfStep;
  }
  void simulateRows(const ShapeProof &entry);
  void branch(ShapeProof &entry);
  bool nextForm(ShapeProof &entry, const PipelineSolution &found);
  void finish(ShapeProof &entry, const PipelineSolution &found);
  /// Lets the entry's search take a turn.
  template <typename Turn>
  auto inSearchOf(ShapeProof &entry, Turn turn, uint64_t most = kNoStepLimit) {
    most = std::min(most, mostSteps - std::min(steps, mostSteps));
    auto found = plans.takeTurn(*entry.search, most, steps, turn);
    entry.bound = std::max(entry.bound, entry.search->lowerBound());
    return found;
  }

  PlanSearch &plans;
  PlannerResult &result;
  uint64_t steps = 0, mostSteps;
  size_t simulated = 0, simulatedByRows = 0;
  /// The least that any plan takes is known, and is `least`: what is left is to
  /// find faster plans.
  bool isBounded = false;
  Picoseconds least = kNoBound;
  size_t laidBy = 0; ///< bytes of all entries
  /// The times of rows, by layout where a degree has several.
  std::map<const Layout *, std::unique_ptr<BusyBound>> times;
  /// Entries with a search, and some that have it no more.
  std::vector<ShapeProof *> opened;
};

/// Makes the entry's problem, and raises its bound to what that takes if memory
/// is endless: most shapes are done with before a search is made. False if the
/// entry needs none any more.
bool PlanSearch::Proof::make(ShapeProof &entry, Moves moves) {
  entry.search.reset();
  laidBy -= std::exchange(entry.laidBy, 0);
  std::tuple madeFor(entry.form, limit(), moves);
  if (!entry.candidate || entry.madeFor != madeFor) {
    std::string refusal;
    entry.candidate = Candidate::makeLeast(plans.tables, entry.shape,
                                           entry.form, limit(), refusal, moves);
    entry.madeFor = madeFor;
    if (!entry.candidate) {
      entry.level = ShapeProof::Done;
      return false;
    }
    steps += kStepsToMake;
    if (plans.space.partition != PartitionMode::Free)
      if (std::unique_ptr<Candidate> priced = plans.candidateOf(entry.shape))
        entry.candidate->setPartition(priced->problem().partition);
    entry.unbound = std::min(
        leastWithoutMemory(entry.candidate->problem(), limit()), limit() + 1);
    entry.bound = std::max(entry.bound, entry.unbound);
  }
  if (entry.bound <= limit())
    return true;
  close(entry);
  return false;
}

/// Makes the entry's problem and its search; false if it needs none any more.
bool PlanSearch::Proof::open(ShapeProof &entry, bool transfers) {
  const Picoseconds before = entry.bound;
  if (!make(entry, transfers ? Moves::All : fewMoves(entry.shape)))
    return false;
  entry.search = std::make_unique<PipelineSearch>(entry.candidate->problem(),
                                                  plans.stageClasses);
  // Forms to begin with are compared by what they say themselves. Later nothing
  // below the bound of another form is of interest.
  if (!transfers || entry.compared) {
    entry.search->raise(entry.bound);
    entry.strength = before;
  } else if (entry.level != ShapeProof::Opened) {
    entry.strength = 0;
  }
  if (!is_contained(opened, &entry))
    opened.push_back(&entry);
  entry.slack = 0;
  entry.tightened = false;
  entry.level = transfers ? ShapeProof::Opened : ShapeProof::Relaxed;
  return true;
}

/// Keeps an entry's problem without a search if there is room.
void PlanSearch::Proof::layBy(ShapeProof &entry) {
  entry.search.reset();
  entry.laidBy = entry.candidate->bytes();
  laidBy += entry.laidBy;
  if (laidBy <= kMostBytes)
    return;
  entry.candidate.reset();
  laidBy -= std::exchange(entry.laidBy, 0);
}

/// Drops the searches of the entries that are the last to have a turn; what was
/// proven of them stays, and their problems as far as there is room.
void PlanSearch::Proof::closeSome() {
  erase_if(opened, [](const ShapeProof *entry) { return !entry->search; });
  if (opened.size() <= kMostOpen)
    return;
  llvm::sort(opened, [](const ShapeProof *a, const ShapeProof *b) {
    return std::tie(a->bound, a) < std::tie(b->bound, b);
  });
  for (ShapeProof *entry : ArrayRef(opened).drop_front(kMostOpen))
    layBy(*entry);
}

/// Simulates a plan; it is the best one if it is executed faster.
void PlanSearch::Proof::simulate(Incumbent found, bool byRows) {
  const Solved &known = plans.best->solved;
  bool again = found.shape.str() == plans.best->shape.str() &&
               found.solved.partition == known.partition &&
               found.solved.strategies == known.strategies;
  // Algorithm 2 is the space's own search.
  if (again || plans.space.partition == PartitionMode::BiObjective ||
      (byRows
           ? simulatedByRows++ >= kMostByRows
           : simulated++ >= (isBounded ? kMostSimulatedThen : kMostSimulated)))
    return;
  if (plans.offer(std::move(found), result, "found by its lower bound"))
    plans.finder = Finder::Exact;
}

/// Moves part of the weights to the end, and to the update, that come latest.
static void addWeight(LeastForm &form, const Candidate::StageEnds &ends,
                      double part) {
  auto shift = [&](std::vector<double> &weights, ArrayRef<double> times) {
    for (double &weight : weights)
      weight *= 1 - part;
    weights[llvm::max_element(times) - times.begin()] += part;
  };
  shift(form.weights, ends.ends);
  shift(form.updates, ends.updates);
}

/// Gives the entry another form to begin with, if there is one: what bounds
/// tell of each takes few steps beside solving one. With memory the strongest
/// one without it comes first. From the strongest so far one thing changes at a
/// time, as long as that makes it stronger: the ends of more stages count;
/// updates count where ends do; stages wait less for each other.
bool PlanSearch::Proof::nextStart(ShapeProof &entry) {
  if (entry.strongestUnbound) {
    LeastForm other = *std::exchange(entry.strongestUnbound, std::nullopt);
    if (other != entry.strongest && !other.weights.empty()) {
      entry.form = std::move(other);
      return true;
    }
  }
  // The opposite of a change that made it stronger is not tried.
  bool stronger = std::exchange(entry.stronger, false);
  if (entry.starts++ > 0) {
    entry.helped |= stronger;
    if (!stronger) {
      bool opposed = LeastForm::isOpposed(LeastForm::Change(entry.change));
      entry.change += 1 + (entry.helped && opposed);
      entry.helped = false;
    }
  }
  for (; entry.change <= LeastForm::Change::Last && entry.starts <= kMostStarts;
       ++entry.change) {
    LeastForm form = entry.strongest;
    if (form.apply(LeastForm::Change(entry.change), entry.shape)) {
      entry.form = std::move(form);
      return true;
    }
  }
  return false;
}

/// Makes the problem of a form to begin with and notes what it takes if memory
/// is endless.
void PlanSearch::Proof::start(ShapeProof &entry) {
  const bool isFirst = entry.level == ShapeProof::Cuts;
  if (isFirst) {
    entry.form = LeastForm::first(plans.tables, entry.shape);
    if (plans.tables.incomplete())
      return;
    entry.level = ShapeProof::Starts;
  }
  if (!make(entry, fewMoves(entry.shape)))
    return;
  entry.note(entry.unbound);
  // The next form has another problem, if there are several.
  if (LeastForm::hasWeights(entry.shape))
    entry.candidate.reset();
  else
    layBy(entry);
}

/// The next form of an entry, after what `found` is the least of: a game in
/// which the plan's stages choose what ends early, and the weights what ends
/// late in all plans so far. False if another would not say more.
bool PlanSearch::Proof::nextForm(ShapeProof &entry,
                                 const PipelineSolution &found) {
  ++entry.forms;
  if (!LeastForm::hasWeights(entry.shape) || entry.forms >= kMostForms)
    return false;
  // A plan that is the least of one of both bounds seldom is that of the other.
  entry.ends = entry.candidate->endsOf(found);
  const std::vector<double> &ends = entry.ends.ends;
  double counted = 0;
  for (auto [weight, end] : zip_equal(entry.form.weights, ends))
    counted += weight * end;
  auto latest = llvm::max_element(ends);
  if (*latest - counted <= static_cast<double>(found.cost / kWorthwhile))
    return false;
  addWeight(entry.form, entry.ends, entry.shift);
  return true;
}

/// Opens the form behind one that says no more than those before, in which half
/// as much of the weights moves.
void PlanSearch::Proof::nextShift(ShapeProof &entry) {
  if (entry.forms++ >= kMostForms) {
    close(entry);
    return;
  }
  entry.shift /= 2;
  entry.form = entry.strongest;
  addWeight(entry.form, entry.ends, entry.shift);
  open(entry, /*transfers=*/true);
}

/// Simulates what has the least lower bound of a shape and goes on: with the
/// transfers, and to further forms. The greatest of all their minima is a
/// bound.
void PlanSearch::Proof::finish(ShapeProof &entry,
                               const PipelineSolution &found) {
  // A solution that does not fit with the exact bytes of its points bounds no
  // plan.
  if (plans.hasPoints(entry.shape) && entry.candidate->priceBytes(found) &&
      !plans.costWithMoves({entry.shape, entry.candidate->toSolved(found)})) {
    entry.candidate.reset();
    open(entry, /*transfers=*/entry.level == ShapeProof::Opened);
    return;
  }
  // Moves are dear to price where stages are large: only for cuts, which all
  // plans have.
  int64_t degree = entry.shape.degree();
  bool few = degree > 1 || plans.cluster.deviceCount() < kManyDevices;
  bool relaxed = entry.level == ShapeProof::Relaxed && few;
  // A pipeline whose moves cost nothing makes use of them.
  if (!relaxed)
    simulate({entry.shape, entry.candidate->toSolved(found)});
  if (entry.bound <= limit()) {
    if (relaxed) {
      open(entry, /*transfers=*/true);
      return;
    }
    if (nextForm(entry, found)) {
      open(entry, /*transfers=*/few);
      return;
    }
  }
  close(entry);
}

/// Nothing more is proven of an entry but by rows.
void PlanSearch::Proof::close(ShapeProof &entry) {
  entry.level = entry.homes ? ShapeProof::Branching : ShapeProof::Done;
  entry.search.reset();
  entry.candidate.reset();
}

BusyBound &PlanSearch::Proof::timesOf(const Layout &layout) {
  const bool any = plans.space.anyGroups;
  std::unique_ptr<BusyBound> &known = times[any ? &layout : nullptr];
  if (known)
    return *known;
  known = std::make_unique<BusyBound>(plans.model, plans.cluster,
                                      *plans.best->shape.schedule,
                                      /*chunks=*/1);
  if (any)
    known->setAnyGroups();
  return *known;
}

/// Raises the entry's bound by the rows of its shape.
void PlanSearch::Proof::boundByRows(ShapeProof &entry) {
  Plan plan = plans.emptyPlan(entry.shape);
  plan.offload = plans.options.offload;
  std::optional<ChunkedProblem> problem =
      ChunkedProblem::make(plans.model, plans.cluster, plans.options,
                           plans.space, plan, timesOf(*entry.shape.layout));
  if (!problem)
    return;
  entry.homes = std::make_unique<BoundedShape>(
      std::move(plan), std::move(*problem), limitSeconds());
  steps += kStepsToMake;
  countRounds(*entry.homes, 0);
  raiseByRows(entry);
  // Most shapes are done with.
  if (entry.bound > limit())
    entry.homes.reset();
}

/// Simulates the solutions that prices led to and that fit.
void PlanSearch::Proof::simulateRows(const ShapeProof &entry) {
  const Layout &layout = *entry.shape.layout;
  // Rows know neither rules for where stages end nor layers that are alike.
  if ((plans.space.partition != PartitionMode::Free &&
       plans.space.partition != PartitionMode::Given) ||
      !Candidate::tieRule(plans.model, /*severalStages=*/true).empty())
    return;
  for (const HomesSolution &solution : entry.homes->search.solutions()) {
    if (solution.fullness > 1 || solution.longest >= limitSeconds())
      continue;
    Solved solved;
    solved.partition = solution.partition;
    size_t layer = 0;
    for (auto [s, size] : enumerate(solution.partition))
      for (int64_t i = 0; i < size; ++i, ++layer) {
        const StrategySubset &own = layout.own[s];
        auto at =
            llvm::find(own.set->strategies,
                       entry.homes->problem->strategyOf(solution, s, layer));
        solved.strategies.push_back(own.strategy +
                                    (at - own.set->strategies.begin()));
      }
    simulate({entry.shape, std::move(solved)}, /*byRows=*/true);
  }
}

/// Branches over where stages end, as long as that raises the bound.
void PlanSearch::Proof::branch(ShapeProof &entry) {
  HomesSearch &search = entry.homes->search;
  bool rises =
      search.least() > entry.branchedFrom * (1 + BoundedShape::kLeastRise);
  entry.idleNodes = rises ? 0 : entry.idleNodes + 1;
  if (rises)
    entry.branchedFrom = search.least();
  const uint64_t before = search.rounds();
  bool goesOn = entry.idleNodes <= BoundedShape::kIdleNodes &&
                search.branch(limitSeconds());
  countRounds(*entry.homes, before);
  raiseByRows(entry);
  if (goesOn)
    return;
  simulateRows(entry);
  entry.homes.reset();
  entry.level = ShapeProof::Done;
}

/// Raises the entry's bound, not much above `enough`.
void PlanSearch::Proof::advance(ShapeProof &entry, Picoseconds enough) {
  // Windows and bounds of stages, by stage and layer: some steps each.
  steps += 3 * static_cast<uint64_t>(entry.shape.degree()) *
           plans.model.layerCount();
  if (entry.level == ShapeProof::Branching) {
    branch(entry);
    return;
  }
  if (entry.level == ShapeProof::Free && hasRows(entry.shape)) {
    entry.level = ShapeProof::Rows;
    Picoseconds before = entry.bound;
    boundByRows(entry);
    if (entry.bound > before)
      return;
  }
  if (entry.level <= ShapeProof::Rows) {
    entry.level = ShapeProof::Cuts;
    if (plans.cutsAreCheap(entry.shape)) {
      Picoseconds bound =
          leastFreeTime(plans.tables, entry.shape, /*cuts=*/true);
      if (plans.tables.incomplete())
        return;
      if (bound > entry.bound) {
        entry.bound = bound;
        return;
      }
    }
  }
  if (entry.level <= ShapeProof::Starts) {
    if (entry.level == ShapeProof::Cuts || nextStart(entry)) {
      start(entry);
      return;
    }
    // Once more where moves between layers and memory count: which form is the
    // strongest may be another one then.
    entry.strongestUnbound = std::move(entry.strongest);
    entry.form = LeastForm::first(plans.tables, entry.shape);
    entry.strongest = entry.form;
    entry.starts = entry.change = 0;
    entry.helped = entry.stronger = false;
    entry.level = ShapeProof::Relaxed;
  }
  if (!entry.search &&
      !open(entry, /*transfers=*/entry.level == ShapeProof::Opened))
    return;
  if (!entry.tightened) {
    Picoseconds most = std::min(limit(), enough);
    // Another form, which may say more, is asked first.
    bool another = entry.starts + entry.forms > 0 && !entry.stronger;
    if (another)
      most = std::min(most, entry.strength + entry.strength / kWorthwhile);
    const Picoseconds own = inSearchOf(
        entry, [&](PipelineSearch &search) { return search.tighten(most); });
    entry.tightened = own <= most;
    entry.note(own);
    if (!entry.tightened)
      return;
    if (entry.level == ShapeProof::Relaxed) {
      // Moves between layers on few devices are quickly priced.
      if (isSmall(entry.shape))
        open(entry, /*transfers=*/true);
    } else if (entry.forms > 0) {
      if (!std::exchange(entry.stronger, false))
        nextShift(entry);
    } else if (!entry.compared && nextStart(entry)) {
      open(entry, /*transfers=*/true);
    } else if (!std::exchange(entry.compared, true) &&
               entry.form != entry.strongest) {
      entry.form = entry.strongest;
      entry.tightened = open(entry, /*transfers=*/true);
    }
    if (entry.search && entry.tightened)
      entry.search->raise(entry.bound);
    return;
  }
  entry.slack =
      std::max<Picoseconds>({16, entry.bound / 2000, 2 * entry.slack});
  Picoseconds guess = std::min(
      limit(), std::max(entry.bound, entry.search->lowerBound()) + entry.slack);
  // Later forms may be harder to solve, and seldom say much more than the
  // first. Nor is a problem without moves between layers worth many steps.
  uint64_t before = steps;
  bool relaxed = entry.level == ShapeProof::Relaxed;
  std::optional<PipelineSolution> found = inSearchOf(
      entry, [&](PipelineSearch &search) { return search.attempt(guess); },
      relaxed            ? mostSteps / kRelaxedPart
      : entry.forms == 0 ? kNoStepLimit
                         : std::max(entry.solving, mostSteps / kLaterPart));
  if (entry.forms == 0)
    entry.solving += steps - before;
  if (found && !entry.search->stopped())
    finish(entry, *found);
  else if (entry.search->stopped() && relaxed && steps < mostSteps)
    open(entry, /*transfers=*/true);
  else if (entry.search->stopped() && entry.forms > 0)
    close(entry);
}

std::optional<double> PlanSearch::Proof::run() {
  std::vector<ShapeProof> entries;
  for (const Shape &shape : plans.shapesOf(plans.best->shape.batch)) {
    ShapeProof entry;
    entry.shape = shape;
    entry.bound = leastFreeTime(plans.tables, shape, /*cuts=*/false);
    if (plans.tables.incomplete())
      return std::nullopt;
    entries.push_back(std::move(entry));
  }
  // Turns are many and entries large: their bounds side by side.
  std::vector<Picoseconds> bounds;
  for (const ShapeProof &entry : entries)
    bounds.push_back(entry.bound);
  while (true) {
    size_t first = 0;
    Picoseconds second = kNoBound;
    for (size_t i = 1; i < bounds.size(); ++i) {
      bool less = bounds[i] < bounds[first];
      second = std::min(second, less ? bounds[first] : bounds[i]);
      first = less ? i : first;
    }
    ShapeProof &next = entries[first];
    if (bounds[first] > limit()) {
      if (least <= limit())
        return gapTo(least);
      if (limit() < ownTime())
        plans.log("no plan is executed as fast as the one that is known");
      return gapTo(limit());
    }
    bool isDone = next.level == ShapeProof::Done;
    double gap = gapTo(std::min(next.bound, least));
    bool ends =
        gap <= plans.options.gapPercent || steps >= mostSteps || plans.late();
    if (!isBounded && (isDone || ends)) {
      plans.log(next.shape.str() + ": executed in at least " +
                milliseconds(next.bound) +
                (isDone || gap == 0 ? "" : ", as far as was looked"));
      // Shapes whose bounds are higher may still have a faster plan.
      isBounded = true;
      least = next.bound;
      simulated = 0;
      mostSteps = steps + (mostSteps - std::min(steps, mostSteps)) / kPlansPart;
      ends |= gap <= kWorthwhileGap;
    }
    if (ends)
      return gap;
    if (isDone) {
      bounds[first] = kNoBound;
      continue;
    }
    // The limit rises by a little more than needed, or two shapes take many
    // turns.
    advance(next, second / 100 * 104);
    bounds[first] = next.bound;
    closeSome();
  }
}

/// Adds what is proven of executed times to a plan that was chosen by them.
void PlanSearch::proveExecuted(PlannerResult &priced) {
  bool searched = !unpriced && LeastForm::knows(*best->shape.schedule);
  if (options.objective != Objective::Executed || !searched || late() ||
      isFirstOfTwo() || !options.proves)
    return;
  uint64_t before = steps;
  std::optional<double> gap = Proof(*this, priced).run();
  steps = before;
  std::get<Plan>(priced.outcome).gapPercent = gap;
}

} // namespace galvatron::planner
