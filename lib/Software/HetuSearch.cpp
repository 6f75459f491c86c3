//===- HetuSearch.cpp - The best plan by Hetu-Galvatron's formulas --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step by its formulas is the largest of linear forms in the stages' sums of
// layer times, with and without sums of gradients. Each form is minimised
// stage by stage by the exact solver of layer strategies: the largest of these
// minima bounds every plan from below, and the plans that reach them are
// candidates. Choices of stages, micro-batches, embedding and head, and of the
// buffer are listed in the order of a bound that takes no solver (parts of
// layers may have parts of memory), up to where that is above the best plan.
//
//===----------------------------------------------------------------------===//

#include "HetuGalvatron.h"

#include "galvatron/Search/PipelineSearch.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <deque>
#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

/// A form: sum over stages of nosync[s] * C_s + sync[s] * W_s, over `scale`.
struct Form {
  std::vector<int64_t> nosync, sync;
  int64_t scale = 1;
};

/// Forms whose largest is a lower bound of the step, and mixtures of two that
/// bound it better than either.
std::vector<Form> formsOf(int64_t stages, int64_t chunks) {
  const size_t count = size_t(stages);
  std::vector<Form> forms;
  auto base = [&](std::vector<int64_t> nosync) {
    forms.push_back({nosync, std::vector<int64_t>(count, 0), 1});
    for (size_t late = 0; late < count; ++late) {
      // W_late - sum up to it of C: whole, and half of it.
      Form whole{nosync, std::vector<int64_t>(count, 0), 1}, half = whole;
      half.scale = 2;
      whole.sync[late] = half.sync[late] = 1;
      for (size_t stage = 0; stage < count; ++stage)
        half.nosync[stage] *= 2;
      for (size_t stage = 0; stage <= late; ++stage) {
        --whole.nosync[stage];
        --half.nosync[stage];
      }
      for (Form &form : {std::ref(whole), std::ref(half)})
        if (all_of(form.nosync, [](int64_t weight) { return weight >= 0; }))
          forms.push_back(form);
    }
  };
  std::vector<int64_t> drain(count, 1), fill(count, 0), wait(count, 1);
  drain.back() = chunks;
  const int64_t rounds = std::max<int64_t>(0, chunks + 1 - stages);
  fill.front() = std::min(stages - 1, chunks - 1) + rounds;
  wait.front() = rounds;
  base(drain);
  base(fill);
  base(wait);
  return forms;
}

/// The least cost of layers by the memory they have, where parts of a layer may
/// have different strategies: a convex line below every choice.
class Hull {
public:
  /// Adds `count` layers of options with these costs and bytes.
  void add(int64_t count, std::vector<std::pair<double, double>> options);
  /// Infinite where nothing fits.
  double at(double memory) const;

private:
  struct Step {
    double memory, cost; ///< more of the one, less of the other
  };
  double memory = 0, cost = 0; ///< where least memory is used
  std::vector<Step> steps;     ///< those that save most by memory first
};

void Hull::add(int64_t count, std::vector<std::pair<double, double>> options) {
  // From least memory on, of equal ones the cheapest.
  llvm::sort(options);
  memory += double(count) * options.front().first;
  cost += double(count) * options.front().second;
  for (size_t last = 0;;) {
    size_t next = last;
    double best = 0;
    for (size_t i = last + 1; i < options.size(); ++i) {
      double more = options[i].first - options[last].first;
      double less = options[last].second - options[i].second;
      if (less > 0 && more > 0 && less / more >= best) {
        best = less / more;
        next = i;
      }
    }
    if (next == last)
      break;
    steps.push_back(
        {double(count) * (options[next].first - options[last].first),
         double(count) * (options[last].second - options[next].second)});
    last = next;
  }
  stable_sort(steps, [](const Step &a, const Step &b) {
    return a.cost * b.memory > b.cost * a.memory;
  });
}

double Hull::at(double limit) const {
  if (limit < memory)
    return std::numeric_limits<double>::infinity();
  double left = limit - memory, value = cost;
  for (const Step &step : steps) {
    double part = std::min(1.0, left / step.memory);
    value -= part * step.cost;
    left -= part * step.memory;
    if (part < 1)
      break;
  }
  return value;
}

/// Plans of one batch, number of micro-batches and of stages.
class StageSearch {
public:
  StageSearch(const HetuProblem &problem, int64_t batch, int64_t chunks,
              int64_t pipeline);

  /// Plans of a buffer with a strategy of embedding and head.
  struct Task {
    double bound; ///< seconds a sample
    StageSearch *search;
    size_t buffer, ends;
  };
  std::vector<Task> tasks();
  /// Tries all plans of a task; seconds a sample that none of them is below.
  double run(const Task &task, std::optional<HetuPlan> &best);
  /// One strategy for all layers, embedding and head.
  void runCoarse(std::optional<HetuPlan> &best) const;

private:
  /// The layers of a stage, and what their times come to.
  struct Choice {
    int64_t sync = 0, nosync = 0;
    std::vector<HetuStrategy> layers;
  };
  /// Strategies whose largest degree the buffer is for.
  struct Buffer {
    double megabytes = 0;
    std::vector<HetuStrategy> layers, ends;
    std::vector<PipelineProblem> problems; ///< of the stages
    std::vector<std::vector<Hull>> hulls;  ///< of forms and stages
    std::map<std::tuple<size_t, int64_t, int64_t, int64_t>,
             std::optional<Choice>>
        known;
  };
  void listStrategies();
  void divideLayers();
  void addBuffer(double megabytes,
                 llvm::function_ref<bool(const HetuStrategy &)> keeps);
  double boundOf(const Form &form, ArrayRef<Hull> hulls,
                 ArrayRef<int64_t> budgets, const HetuEndCosts &ends) const;
  std::vector<int64_t> budgetsOf(const Buffer &buffer,
                                 const HetuEndCosts &ends) const;
  const std::optional<Choice> &choose(Buffer &buffer, size_t stage,
                                      int64_t budget, int64_t nosync,
                                      int64_t sync);
  PipelineProblem stageProblem(ArrayRef<HetuStrategy> layers,
                               size_t stage) const;
  void offer(HetuPlan plan, std::optional<HetuPlan> &best) const;
  HetuPlan emptyPlan() const;

  const HetuProblem &problem;
  int64_t batch, chunks, pipeline;
  std::vector<HetuStrategy> layerStrategies, endStrategies;
  std::vector<int64_t> division;
  /// Layers of each type, by stage.
  std::vector<std::vector<int64_t>> ofTypes;
  std::vector<Form> forms;
  std::vector<Buffer> buffers;
};

StageSearch::StageSearch(const HetuProblem &problem, int64_t batch,
                         int64_t chunks, int64_t pipeline)
    : problem(problem), batch(batch), chunks(chunks), pipeline(pipeline),
      forms(formsOf(pipeline, chunks)) {
  listStrategies();
  divideLayers();
  if (!problem.fine)
    return;
  // Without tensor parallelism there is no buffer; with it, it is of the
  // largest degree.
  addBuffer(0,
            [](const HetuStrategy &strategy) { return strategy.tensor == 1; });
  for (int64_t ranks = 2; ranks <= problem.devices() / pipeline; ranks *= 2)
    addBuffer(hetuBufferMb(problem, batch, chunks, pipeline, ranks),
              [&](const HetuStrategy &strategy) {
                return strategy.shared() <= ranks;
              });
}

void StageSearch::listStrategies() {
  const int64_t ranks = problem.devices() / pipeline;
  for (int64_t shared = 1; shared <= ranks; shared *= 2)
    for (bool ulysses : {false, true})
      for (bool zero3 : {false, true})
        for (bool checkpoint : {false, true}) {
          HetuStrategy strategy;
          (ulysses ? strategy.ulysses : strategy.tensor) = shared;
          strategy.data = ranks / shared;
          strategy.zero3 = zero3;
          strategy.checkpoint = checkpoint;
          if ((ulysses && shared == 1) || (zero3 && strategy.data == 1) ||
              shared > (ulysses ? problem.mostUlysses : problem.mostTensor) ||
              (!problem.tp && strategy.tensor > 1) ||
              (!problem.sp && strategy.ulysses > 1) ||
              (!problem.dp && strategy.data > 1) || (!problem.fsdp && zero3) ||
              !hetuHas(problem, strategy, batch, chunks))
            continue;
          if (!checkpoint || problem.ckpt)
            layerStrategies.push_back(strategy);
          if (!checkpoint && (problem.vocabularyTp || strategy.tensor == 1) &&
              (problem.vocabularySp || strategy.ulysses == 1))
            endStrategies.push_back(strategy);
        }
}

void StageSearch::divideLayers() {
  const int64_t all = problem.layerCount(), each = all / pipeline;
  division.assign(size_t(pipeline), each);
  division.back() = all - each * (pipeline - 1);
  size_t type = 0;
  int64_t used = 0;
  for (int64_t layers : division) {
    ofTypes.emplace_back(problem.types.size(), 0);
    for (int64_t i = 0; i < layers; ++i) {
      while (used == problem.types[type].count) {
        ++type;
        used = 0;
      }
      ++used;
      ++ofTypes.back()[type];
    }
  }
}

HetuPlan StageSearch::emptyPlan() const {
  HetuPlan plan;
  plan.batch = batch;
  plan.chunks = chunks;
  plan.pipeline = pipeline;
  plan.division = division;
  return plan;
}

void StageSearch::offer(HetuPlan plan, std::optional<HetuPlan> &best) const {
  priceHetuPlan(problem, plan);
  if (plan.fits && (!best || double(plan.batch) / plan.seconds >
                                 double(best->batch) / best->seconds))
    best = std::move(plan);
}

void StageSearch::runCoarse(std::optional<HetuPlan> &best) const {
  for (const HetuStrategy &strategy : layerStrategies) {
    HetuPlan plan = emptyPlan();
    plan.layers.assign(size_t(problem.layerCount()), strategy);
    plan.ends = strategy;
    plan.ends.checkpoint = false;
    offer(plan, best);
  }
}

void StageSearch::addBuffer(
    double megabytes, llvm::function_ref<bool(const HetuStrategy &)> keeps) {
  Buffer buffer;
  buffer.megabytes = megabytes;
  copy_if(layerStrategies, std::back_inserter(buffer.layers), keeps);
  copy_if(endStrategies, std::back_inserter(buffer.ends), keeps);
  if (buffer.layers.empty())
    return;
  for (size_t stage = 0; stage < division.size(); ++stage)
    buffer.problems.push_back(stageProblem(buffer.layers, stage));
  for (const Form &form : forms) {
    std::vector<Hull> &hulls = buffer.hulls.emplace_back();
    for (size_t stage = 0; stage < division.size(); ++stage) {
      Hull &hull = hulls.emplace_back();
      const PipelineProblem &layers = buffer.problems[stage];
      for (auto [set, options] : enumerate(layers.optionSets)) {
        std::vector<std::pair<double, double>> points;
        for (const PipelineOption &option : options)
          points.push_back(
              {double(option.state),
               double(form.nosync[stage]) * double(option.nosync) +
                   double(form.sync[stage]) * double(option.time)});
        hull.add(count(layers.layers.front(), set), std::move(points));
      }
    }
  }
  buffers.push_back(std::move(buffer));
}

std::vector<int64_t> StageSearch::budgetsOf(const Buffer &buffer,
                                            const HetuEndCosts &ends) const {
  std::vector<int64_t> budgets;
  for (int64_t megabytes : ends.megabytes)
    budgets.push_back(problem.budgetMb() - megabytes -
                      int64_t(buffer.megabytes));
  return budgets;
}

/// Seconds of a step that a form is not below.
double StageSearch::boundOf(const Form &form, ArrayRef<Hull> hulls,
                            ArrayRef<int64_t> budgets,
                            const HetuEndCosts &ends) const {
  double value = 0;
  for (size_t stage = 0; stage < division.size(); ++stage)
    value += hulls[stage].at(double(budgets[stage])) * 1e-12 +
             double(form.nosync[stage]) * ends.seconds[stage];
  return value / double(form.scale);
}

std::vector<StageSearch::Task> StageSearch::tasks() {
  std::vector<Task> tasks;
  for (auto [index, buffer] : enumerate(buffers))
    for (auto [end, strategy] : enumerate(buffer.ends)) {
      HetuEndCosts costs =
          hetuEndCosts(problem, strategy, batch, chunks, pipeline);
      std::vector<int64_t> budgets = budgetsOf(buffer, costs);
      double bound = 0;
      for (auto [form, hulls] : zip(forms, buffer.hulls))
        bound = std::max(bound, boundOf(form, hulls, budgets, costs));
      if (std::isfinite(bound))
        tasks.push_back({bound / double(batch), this, index, end});
    }
  return tasks;
}

/// The layers of a stage, as a pipeline that is not cut: `time` and `nosync` of
/// options are their seconds with and without sums of gradients.
PipelineProblem StageSearch::stageProblem(ArrayRef<HetuStrategy> layers,
                                          size_t stage) const {
  PipelineProblem stageProblem;
  stageProblem.stages.emplace_back();
  std::vector<size_t> &sets = stageProblem.layers.emplace_back();
  for (auto [type, count] : enumerate(ofTypes[stage])) {
    std::vector<PipelineOption> options;
    const HetuLayers &layer = problem.types[type];
    for (const HetuStrategy &strategy : layers) {
      HetuLayerSeconds seconds =
          hetuLayerSeconds(problem, layer, strategy, batch, chunks, pipeline);
      PipelineOption option;
      option.time = toPicoseconds(seconds.sync);
      option.nosync = toPicoseconds(seconds.nosync);
      option.state = hetuLayerMb(problem, layer, strategy, batch, chunks,
                                 pipeline, int64_t(stage));
      options.push_back(option);
    }
    if (count > 0) {
      sets.insert(sets.end(), size_t(count), stageProblem.optionSets.size());
      stageProblem.optionSets.push_back(std::move(options));
    }
  }
  stageProblem.matrices = {{0}};
  stageProblem.transforms.emplace_back(sets.size() - 1, 0);
  return stageProblem;
}

/// The layers of least nosync * C + sync * W within a budget, alike ones
/// together; none fits: nothing.
const std::optional<StageSearch::Choice> &
StageSearch::choose(Buffer &buffer, size_t stage, int64_t budget,
                    int64_t nosync, int64_t sync) {
  // Weights that say nothing, or the same.
  if (sync == 0 && nosync == 0)
    sync = nosync = 1;
  int64_t divisor = std::gcd(sync, nosync);
  sync /= divisor;
  nosync /= divisor;
  auto [entry, isNew] =
      buffer.known.insert({{stage, budget, nosync, sync}, std::nullopt});
  if (!isNew || budget < 0)
    return entry->second;
  PipelineProblem weighted = buffer.problems[stage];
  weighted.stages.front().memory = budget;
  for (std::vector<PipelineOption> &set : weighted.optionSets)
    for (PipelineOption &option : set)
      option.time = option.nosync = sync * option.time + nosync * option.nosync;
  std::optional<PipelineSolution> solution = PipelineSearch(weighted).solve();
  if (!solution)
    return entry->second;
  Choice choice;
  PipelineValue value = evaluatePipeline(buffer.problems[stage],
                                         solution->partition, solution->choice);
  choice.sync = value.time.front();
  choice.nosync = value.nosync.front();
  // Layers of a type are in whatever order: those whose samples are shared
  // alike stand together, and the engine has recomputed ones first.
  ArrayRef<HetuStrategy> layers = buffer.layers;
  const std::vector<size_t> &sets = weighted.layers.front();
  std::vector<uint32_t> &options = solution->choice;
  for (size_t begin = 0, end = 0; begin < options.size(); begin = end) {
    while (end < options.size() && sets[end] == sets[begin])
      ++end;
    auto keyOf = [&](uint32_t option) {
      const HetuStrategy &strategy = layers[option];
      return std::tuple(strategy.shared(), strategy.ulysses,
                        !strategy.checkpoint, !strategy.zero3);
    };
    std::sort(options.begin() + long(begin), options.begin() + long(end),
              [&](uint32_t a, uint32_t b) { return keyOf(a) < keyOf(b); });
  }
  for (uint32_t option : options)
    choice.layers.push_back(layers[option]);
  entry->second = std::move(choice);
  return entry->second;
}

double StageSearch::run(const Task &task, std::optional<HetuPlan> &best) {
  Buffer &buffer = buffers[task.buffer];
  const HetuStrategy &end = buffer.ends[task.ends];
  HetuEndCosts costs = hetuEndCosts(problem, end, batch, chunks, pipeline);
  std::vector<int64_t> budgets = budgetsOf(buffer, costs);
  double bound = task.bound;
  std::vector<HetuPlan> candidates;
  for (const Form &form : forms) {
    double value = 0;
    HetuPlan plan = emptyPlan();
    plan.ends = end;
    for (size_t stage = 0; stage < division.size(); ++stage) {
      const std::optional<Choice> &choice = choose(
          buffer, stage, budgets[stage], form.nosync[stage], form.sync[stage]);
      if (!choice)
        return std::numeric_limits<double>::infinity();
      value += double(form.nosync[stage]) *
                   (double(choice->nosync) * 1e-12 + costs.seconds[stage]) +
               double(form.sync[stage]) * double(choice->sync) * 1e-12;
      plan.layers.insert(plan.layers.end(), choice->layers.begin(),
                         choice->layers.end());
    }
    bound = std::max(bound, value / double(form.scale) / double(batch));
    // Whatever else is chosen, it takes longer than the best.
    if (best && bound >= best->seconds / double(best->batch))
      return bound;
    if (!is_contained(candidates, plan))
      candidates.push_back(std::move(plan));
  }
  for (HetuPlan &plan : candidates)
    offer(std::move(plan), best);
  return bound;
}

} // namespace

std::string HetuStrategy::str() const {
  std::string text = std::to_string(shared());
  if (shared() > 1)
    text += "*";
  text += "-" + std::to_string(data);
  if (zero3)
    text += "f";
  if (checkpoint)
    text += "-c";
  if (ulysses > 1)
    text += "-sp";
  return text;
}

Expected<HetuPlan> searchHetuPlan(const HetuProblem &problem) {
  std::optional<HetuPlan> best;
  const int64_t most = problem.pp
                           ? std::min({problem.devices(), problem.mostPipeline,
                                       problem.layerCount()})
                           : 1;
  std::deque<StageSearch> searches;
  std::vector<StageSearch::Task> tasks;
  for (int64_t batch : problem.batches)
    for (int64_t chunks = 1; chunks <= batch; ++chunks) {
      if (batch % chunks || (problem.chunks && chunks != problem.chunks))
        continue;
      for (int64_t pipeline = 1; pipeline <= std::min(most, chunks);
           pipeline *= 2) {
        if (pipeline > 1 && !problem.p2p.count(pipeline))
          continue;
        searches.emplace_back(problem, batch, chunks, pipeline);
        if (!problem.fine)
          searches.back().runCoarse(best);
        append_range(tasks, searches.back().tasks());
      }
    }
  stable_sort(tasks,
              [](const auto &a, const auto &b) { return a.bound < b.bound; });
  // Seconds a sample that no plan is below.
  double least = best ? best->seconds / double(best->batch)
                      : std::numeric_limits<double>::infinity();
  for (const StageSearch::Task &task : tasks) {
    if (best && task.bound >= best->seconds / double(best->batch))
      break;
    least = std::min(least, task.search->run(task, best));
  }
  if (!best)
    return makeError("no plan fits " + Twine(problem.budgetMb()) +
                     " MB of a card's " + Twine(problem.memoryGb * 1024) +
                     ", a fifth of which stays in reserve above 20 GB, or "
                     "divides the batch");
  best->leastSeconds = std::min(best->seconds, least * double(best->batch));
  return std::move(*best);
}

} // namespace galvatron
