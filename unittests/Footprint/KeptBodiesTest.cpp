//===- KeptBodiesTest.cpp - Kept sets of real bodies, by counting ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bodies of every family, on one rank and cut, with times and bytes as planned:
// minimum cuts and hulls are those of all subsets. Bodies of more than 16
// candidates are looked at in connected parts of so many: one part of each, or
// 200 with GALVATRON_LONG (minutes).
//
//===----------------------------------------------------------------------===//

#include "../../lib/Footprint/BodyCompiler.h"
#include "../Search/KeptSubsets.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Footprint/IRLayerModel.h"
#include "galvatron/Import/HuggingFace.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <random>
#include <set>

using namespace mlir;
using namespace ::galvatron;
using mlir::galvatron::BodyCompiler;
using Engine = std::mt19937;

namespace {

constexpr size_t kMostCandidates = 16;

bool isLong() { return std::getenv("GALVATRON_LONG"); }

/// A device of 100 TFLOP/s and 1 TB/s with links of 100 GB/s.
double secondsOf(const mlir::galvatron::FunctionWork &work) {
  double seconds =
      work.flops / 1e14 + work.movedBytes / 1e12 + 1e-6 * double(work.kernels);
  for (const LayerCollective &collective : work.collectives)
    seconds += 5e-6 + double(collective.bytes) / 1e11;
  return seconds;
}

size_t candidatesOf(const KeptProblem &problem) {
  return size_t(llvm::count_if(
      problem.values, [](const auto &value) { return value.mayBeKept; }));
}

/// A part of a problem that operations and their operands connect, with at most
/// so many candidates; what it reads from outside is there.
KeptProblem connectedPart(const KeptProblem &whole, Engine &random) {
  size_t count = whole.operations.size();
  std::vector<size_t> makerOf(whole.values.size());
  for (size_t o = 0; o < count; ++o)
    for (size_t result : whole.operations[o].results)
      makerOf[result] = o;
  std::vector<std::set<size_t>> neighbours(count);
  for (size_t o = 0; o < count; ++o)
    for (size_t operand : whole.operations[o].operands) {
      neighbours[o].insert(makerOf[operand]);
      neighbours[makerOf[operand]].insert(o);
    }
  auto candidates = [&](size_t o) {
    return size_t(
        llvm::count_if(whole.operations[o].results, [&](size_t result) {
          return whole.values[result].mayBeKept;
        }));
  };
  std::set<size_t> part, border = {random() % count};
  size_t held = 0;
  while (!border.empty()) {
    auto next = std::next(border.begin(), long(random() % border.size()));
    size_t o = *next;
    border.erase(next);
    if (held + candidates(o) > kMostCandidates)
      continue;
    held += candidates(o);
    part.insert(o);
    for (size_t other : neighbours[o])
      if (!part.count(other))
        border.insert(other);
  }
  KeptProblem problem;
  std::map<size_t, size_t> numbers;
  for (size_t o : part) {
    KeptProblem::Operation operation = whole.operations[o];
    llvm::erase_if(operation.operands,
                   [&](size_t value) { return !numbers.count(value); });
    for (size_t &operand : operation.operands)
      operand = numbers.at(operand);
    for (size_t &result : operation.results) {
      numbers[result] = problem.values.size();
      problem.values.push_back(whole.values[result]);
      result = numbers.at(result);
    }
    problem.operations.push_back(std::move(operation));
  }
  return problem;
}

/// The undominated sums of one point of each front.
std::vector<KeptPoint> sumOf(const std::vector<KeptPoint> &a,
                             const std::vector<KeptPoint> &b) {
  KeptFront front(a.back().first + b.back().first);
  for (auto [bytes, time] : a)
    for (auto [more, longer] : b)
      front.add(bytes + more, time + longer);
  return front.finish();
}

void expectExact(const KeptProblem &problem, Engine &random) {
  ASSERT_FALSE(bool(problem.check()));
  std::vector<KeptPoint> sets = frontOf(problem);
  ASSERT_FALSE(sets.empty());
  int64_t bytes = 1;
  Picoseconds time = 1;
  for (const auto &value : problem.values)
    bytes += value.bytes;
  for (const auto &operation : problem.operations)
    time += operation.time;
  for (int price = 0; price < 20; ++price) {
    // From bytes that cost next to nothing to times that do.
    double exponent = (double(price) + double(random() % 100) / 100) / 20;
    auto byteWeight = int64_t(std::pow(double(time), exponent));
    auto timeWeight = int64_t(std::pow(double(bytes), 1 - exponent));
    auto cost = [&](int64_t bytes, Picoseconds time) {
      return static_cast<__int128>(byteWeight) * bytes +
             static_cast<__int128>(timeWeight) * time;
    };
    // Weights are not negative, so one that is not dominated is cheapest.
    __int128 least = cost(sets.front().first, sets.front().second);
    for (auto [bytes, time] : sets)
      least = std::min(least, cost(bytes, time));
    KeptSet found = cheapestKept(problem, byteWeight, timeWeight);
    EXPECT_EQ(priceKept(problem, found.values), found);
    EXPECT_TRUE(cost(found.bytes, found.time) == least) << "price " << price;
  }
  std::vector<KeptPoint> hull;
  for (const KeptSet &set : keptHull(problem))
    hull.push_back({set.bytes, set.time});
  EXPECT_EQ(hull, hullOf(sets));

  // Stages of one to four layers that mix vertices lose at most one layer's
  // step against all subsets, within any bytes.
  Picoseconds step = 0;
  for (size_t i = 1; i < hull.size(); ++i)
    step = std::max(step, hull[i].second - hull[i - 1].second);
  std::reverse(hull.begin(), hull.end());
  std::vector<KeptPoint> every = {{0, 0}}, mixed = every;
  for (int layers = 1; layers <= 4; ++layers) {
    every = sumOf(every, sets);
    mixed = sumOf(mixed, hull);
    auto within = mixed.begin();
    ASSERT_LE(within->first, every.front().first);
    for (auto [budget, best] : every) {
      while (std::next(within) != mixed.end() &&
             std::next(within)->first <= budget)
        ++within;
      EXPECT_LE(within->second, best + step) << layers << " layers, " << budget;
    }
  }
}

class KeptBodiesTest : public ::testing::TestWithParam<std::string> {
protected:
  KeptBodiesTest() {
    DialectRegistry registry;
    registerFootprints(registry);
    context.appendDialectRegistry(registry);
    context.loadDialect<mlir::galvatron::GalvatronDialect, nn::NNDialect,
                        func::FuncDialect>();
  }

  /// Calls visit(compiler, hash of the body, axes) for the distinct bodies of
  /// the oracle's model, on one rank and cut. Its samples are as long as the
  /// oracle's, or, where they have tokens, have so many.
  void forEachBody(
      llvm::function_ref<void(BodyCompiler &, StringRef, StringRef)> visit,
      StringRef backend = "cpu", int64_t tokens = 0) {
    std::string path = ORACLE_FOLDER "/" + GetParam() + ".json";
    auto file = llvm::MemoryBuffer::getFile(path);
    ASSERT_TRUE(bool(file));
    llvm::json::Value json =
        llvm::cantFail(llvm::json::parse((*file)->getBuffer()));
    llvm::json::Object *config = json.getAsObject()->getObject("config");
    ASSERT_TRUE(config);
    ImportOptions options;
    options.seqLen = json.getAsObject()->getInteger("seq-len").value_or(0);
    if (tokens > 0 && options.seqLen > 0) {
      options.seqLen = tokens;
      for (StringRef length : {"max_position_embeddings", "n_positions"})
        if (config->get(length))
          (*config)[length] = tokens;
    }
    std::string text;
    llvm::raw_string_ostream(text)
        << llvm::json::Value(llvm::json::Object(*config));
    auto module =
        llvm::cantFail(importHuggingFaceConfig(text, path, options, context));
    std::set<std::string> seen;
    for (mlir::galvatron::LayerOp layer :
         mlir::galvatron::getModel(*module).getLayers()) {
      std::string callee = layer.getCallee()->str();
      if (!seen.insert(callee).second)
        continue;
      SCOPED_TRACE(callee);
      auto body = SymbolTable(*module).lookup<func::FuncOp>(callee);
      std::string hash = nn::hashBody(body);
      OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
      auto copy = cast<func::FuncOp>(builder.clone(*body));
      FailureOr<nn::DerivedFunctions> derived =
          nn::differentiateBody(copy, layer.getDataInputs());
      ASSERT_TRUE(succeeded(derived));
      BodyCompiler compiler(*derived, callee, hash, {backend, 1});
      for (StringRef axes : {"single", "tp2", "tsp2"}) {
        SCOPED_TRACE(axes.str());
        visit(compiler, hash, axes);
        if (HasFailure())
          return;
      }
    }
  }

  MLIRContext context;
};

std::vector<std::string> oracles() {
  std::vector<std::string> names;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it(ORACLE_FOLDER, error), end;
       !error && it != end; it.increment(error))
    if (llvm::StringRef(it->path()).ends_with(".json"))
      names.push_back(llvm::sys::path::stem(it->path()).str());
  llvm::sort(names);
  return names;
}

std::string nameOf(const ::testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  for (char &letter : name)
    letter = letter == '-' ? '_' : letter;
  return name;
}

/// FLOPs and bytes of collectives: they add up, whatever is fused.
double additive(const mlir::galvatron::FunctionWork &work) {
  double units = work.flops;
  for (const LayerCollective &collective : work.collectives)
    units += double(collective.bytes);
  return units;
}

/// The same as a time, of which a picosecond is one.
double additiveSeconds(const mlir::galvatron::FunctionWork &work) {
  return additive(work) * 1e-12;
}

/// So many samples that products are bound by computing also in models of small
/// images, whether or not a bias is added beside: only FLOPs are compared.
constexpr int64_t kSamples = 8;

/// The FLOPs and bytes of collectives of the backward function of a variant.
double compiledBackward(BodyCompiler &compiler, const Strategy &strategy,
                        BodyCompiler::Variant variant) {
  return additive(llvm::cantFail(compiler.compile(strategy, variant,
                                                  /*borrowed=*/{}, kSamples,
                                                  /*splits=*/false))
                      .backward.work);
}

/// A set of kept values, and what backward computes besides if these are kept,
/// as it is compiled: FLOPs and bytes of collectives.
struct CompiledSlice {
  std::vector<size_t> kept;
  double taken;
};

/// How the time of the set in a problem differs from what its slice takes;
/// empty if it does not.
std::string differenceOf(const KeptProblem &problem, const CompiledSlice &slice,
                         bool sharesGathers) {
  std::optional<KeptSet> set = priceKept(problem, slice.kept);
  if (!set)
    return "the problem does not have the set";
  double told = double(set->time), rounding = 1e-6 * slice.taken + 2;
  // Rows that several values need are gathered once.
  if (slice.taken <= told + rounding &&
      (sharesGathers || slice.taken >= told - rounding))
    return "";
  return "the slice takes " + std::to_string(slice.taken) + ", the problem " +
         std::to_string(told);
}

TEST_P(KeptBodiesTest, AgreesWithAllSubsets) {
  Engine random(uint32_t(std::hash<std::string>()(GetParam())));
  size_t bodies = 0, checked = 0, subsets = 0;
  forEachBody([&](BodyCompiler &compiler, StringRef, StringRef axes) {
    Strategy strategy = llvm::cantFail(Strategy::parse(axes));
    auto choice =
        compiler.keptChoice(strategy.axes(), /*samples=*/2, secondsOf);
    if (!choice)
      // Not every body can be cut.
      return llvm::consumeError(choice.takeError());
    bool whole = candidatesOf(choice->problem) <= kMostCandidates;
    ++bodies;
    int rounds = !whole && isLong() ? 200 : 1;
    for (int round = 0; round < rounds && !HasFailure(); ++round) {
      KeptProblem problem =
          whole ? choice->problem : connectedPart(choice->problem, random);
      expectExact(problem, random);
      ++checked;
      subsets += size_t(1) << candidatesOf(problem);
    }
  });
  EXPECT_GE(checked, 2u);
  if (isLong())
    llvm::outs() << GetParam() << ": bodies " << bodies << ", problems "
                 << checked << ", subsets " << subsets << "\n";
}

// The time of a set in the problem is that of the slice which backward begins
// with: an operation of several results is computed once, collectives and all
// operands are in it.
TEST_P(KeptBodiesTest, TakesWhatTheCompiledSliceTakes) {
  Engine random(uint32_t(std::hash<std::string>()(GetParam())));
  size_t checked = 0;
  forEachBody([&](BodyCompiler &compiler, StringRef hash, StringRef axes) {
    Strategy strategy = llvm::cantFail(Strategy::parse(axes));
    auto choice =
        compiler.keptChoice(strategy.axes(), kSamples, additiveSeconds);
    if (!choice)
      return llvm::consumeError(choice.takeError());
    auto backwardOf = [&](BodyCompiler::Variant variant) {
      return compiledBackward(compiler, strategy, variant);
    };
    double plain = backwardOf(BodyCompiler::kKeepsAll);
    for (int round = 0; round < 3; ++round) {
      // A few of all values; sometimes none.
      KeptValues kept{hash.str(), {}};
      std::vector<size_t> numbers;
      for (auto [value, number] : choice->values)
        if (random() % 3 < unsigned(round)) {
          kept.values.push_back({value.first, value.second});
          numbers.push_back(number);
        }
      std::optional<KeptSet> set = priceKept(choice->problem, numbers);
      if (!set)
        continue;
      ++checked;
      double taken =
          backwardOf(llvm::cantFail(compiler.variantOf(kept))) - plain;
      EXPECT_EQ(differenceOf(choice->problem, {numbers, taken},
                             axes.starts_with("tsp")),
                "")
          << axes.str() << ", round " << round;
    }
  });
  EXPECT_GE(checked, 2u);
}

class KeptFaultsTest : public KeptBodiesTest {
protected:
  using Fault = std::pair<std::string, KeptProblem>;

  /// Faults of the problem of a body, one in each: an operation of several
  /// results that is one for each, a collective that takes no time, an operand
  /// that need not be available.
  static std::vector<Fault> faultsOf(const KeptProblem &problem,
                                     const KeptProblem &collectives) {
    std::vector<Fault> faults;
    for (size_t o = 0; o < problem.operations.size(); ++o) {
      const KeptProblem::Operation &operation = problem.operations[o];
      if (operation.results.size() > 1) {
        KeptProblem &apart = faults.emplace_back("apart", problem).second;
        apart.operations.erase(apart.operations.begin() + long(o));
        for (size_t result : operation.results) {
          KeptProblem::Operation one = operation;
          one.results = {result};
          apart.operations.insert(apart.operations.begin() + long(o), one);
        }
      }
      if (collectives.operations[o].time > 0)
        faults.emplace_back("collective", problem).second.operations[o].time =
            0;
      for (size_t i = 0; i < operation.operands.size(); ++i) {
        std::vector<size_t> &operands = faults.emplace_back("operand", problem)
                                            .second.operations[o]
                                            .operands;
        operands.erase(operands.begin() + long(i));
      }
    }
    return faults;
  }
};

// Comparing a problem with the compiled slices of these sets says when the
// problem is wrong: that which keeps nothing, and those that keep what backward
// needs but the results of one operation.
TEST_P(KeptFaultsTest, AreCaughtByTheCompiledSlices) {
  std::map<std::string, std::pair<size_t, size_t>> caughtOf;
  // Of long samples attention is bound by its products, which are counted.
  auto visit = [&](BodyCompiler &compiler, StringRef hash, StringRef axes) {
    if (axes.starts_with("tsp"))
      return;
    Strategy strategy = llvm::cantFail(Strategy::parse(axes));
    auto choice =
        compiler.keptChoice(strategy.axes(), kSamples, additiveSeconds);
    if (!choice)
      return llvm::consumeError(choice.takeError());
    const KeptProblem &problem = choice->problem;
    double plain =
        compiledBackward(compiler, strategy, BodyCompiler::kKeepsAll);
    std::vector<CompiledSlice> slices;
    auto addSlice = [&](ArrayRef<size_t> without) {
      KeptValues kept{hash.str(), {}};
      std::vector<size_t> numbers;
      for (auto [value, number] : choice->values)
        if (problem.values[number].needed &&
            !llvm::is_contained(without, number)) {
          kept.values.push_back({value.first, value.second});
          numbers.push_back(number);
        }
      if (!priceKept(problem, numbers))
        return;
      auto variant = llvm::cantFail(compiler.variantOf(kept));
      slices.push_back(
          {numbers, compiledBackward(compiler, strategy, variant) - plain});
      EXPECT_EQ(differenceOf(problem, slices.back(), false), "");
    };
    std::vector<size_t> all;
    for (auto [value, number] : choice->values)
      all.push_back(number);
    addSlice(all);
    for (const KeptProblem::Operation &operation : problem.operations)
      if (llvm::any_of(operation.results, [&](size_t result) {
            return problem.values[result].needed;
          }))
        addSlice(operation.results);
    auto collectives = llvm::cantFail(compiler.keptChoice(
        strategy.axes(), /*samples=*/2,
        [](const mlir::galvatron::FunctionWork &work) {
          return work.collectives.empty() ? 0 : additiveSeconds(work);
        }));
    for (const auto &[kind, faulty] : faultsOf(problem, collectives.problem)) {
      auto &[caught, count] = caughtOf[kind];
      ++count;
      caught += llvm::any_of(slices, [&](const CompiledSlice &slice) {
        return !differenceOf(faulty, slice, false).empty();
      });
    }
  };
  forEachBody(visit, "cpu", /*tokens=*/512);
  for (const char *kind : {"apart", "collective", "operand"}) {
    auto [caught, count] = caughtOf[kind];
    EXPECT_GT(caught, 0u) << kind << ", of " << count << " places";
    if (isLong())
      llvm::outs() << GetParam() << ": " << kind << " caught in " << caught
                   << " of " << count << " places\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, KeptFaultsTest,
                         ::testing::Values("gpt2-untied", "llama-grouped",
                                           "t5-gated", "swin-wide"),
                         nameOf);

void expectSameWork(const mlir::galvatron::FunctionWork &a,
                    const mlir::galvatron::FunctionWork &b) {
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.movedBytes, b.movedBytes);
  EXPECT_EQ(a.kernels, b.kernels);
  ASSERT_EQ(a.products.size(), b.products.size());
  for (auto [one, other] : llvm::zip(a.products, b.products)) {
    EXPECT_EQ(one.flops, other.flops);
    EXPECT_EQ(one.size, other.size);
    EXPECT_EQ(one.attention, other.attention);
  }
  ASSERT_EQ(a.collectives.size(), b.collectives.size());
  for (auto [one, other] : llvm::zip(a.collectives, b.collectives)) {
    EXPECT_EQ(one.kind, other.kind);
    EXPECT_EQ(one.among, other.among);
    EXPECT_EQ(one.bytes, other.bytes);
  }
}

// The search may leave out by what is measured what it would leave out by what
// is compiled.
TEST_P(KeptBodiesTest, MeasuredIsCompiledWithNoMoreTemporaries) {
  Engine random(uint32_t(std::hash<std::string>()(GetParam())));
  size_t checked = 0, tight = 0;
  for (StringRef backend : {"cpu", "cuda"})
    forEachBody(
        [&](BodyCompiler &compiler, StringRef hash, StringRef axes) {
          auto choice =
              compiler.keptChoice(llvm::cantFail(Strategy::parse(axes)).axes(),
                                  /*samples=*/2, secondsOf);
          if (!choice)
            return llvm::consumeError(choice.takeError());
          KeptValues kept{hash.str(), {}};
          for (auto [value, number] : choice->values)
            if (random() % 2)
              kept.values.push_back({value.first, value.second});
          auto variant = compiler.variantOf(kept);
          if (!variant)
            return llvm::consumeError(variant.takeError());
          for (StringRef sharding : {"", "sdp2", "zdp2"}) {
            if (axes == "single" ? sharding.empty() : random() % 3 > 0)
              continue;
            std::string text = axes == "single" ? sharding.str()
                               : sharding.empty()
                                   ? axes.str()
                                   : (axes + "." + sharding).str();
            SCOPED_TRACE(text + " on " + backend.str());
            Strategy strategy = llvm::cantFail(Strategy::parse(text));
            int64_t samples = 1 + int64_t(random() % 3);
            auto compiled = compiler.compile(strategy, *variant, {}, samples,
                                             /*splits=*/false);
            auto measured = compiler.measure(strategy, *variant, {}, samples);
            ASSERT_EQ(bool(compiled), bool(measured));
            if (!compiled) {
              llvm::consumeError(compiled.takeError());
              llvm::consumeError(measured.takeError());
              continue;
            }
            expectSameWork(measured->forward.work, compiled->forward.work);
            expectSameWork(measured->backward.work, compiled->backward.work);
            EXPECT_EQ(measured->forward.regions.stashBytes,
                      compiled->forward.regions.stashBytes);
            EXPECT_EQ(measured->forward.regions.outputBytes,
                      compiled->forward.regions.outputBytes);
            EXPECT_EQ(measured->dataBytesPerSample,
                      compiled->dataBytesPerSample);
            EXPECT_EQ(measured->forward.bytes.gathered,
                      compiled->forward.bytes.gathered);
            for (auto function : {&mlir::galvatron::CompiledLayer::forward,
                                  &mlir::galvatron::CompiledLayer::backward}) {
              int64_t least = ((*measured).*function).bytes.transient;
              int64_t taken = ((*compiled).*function).bytes.transient;
              EXPECT_LE(least, taken);
              tight += least == taken;
              ++checked;
            }
          }
        },
        backend);
  EXPECT_GE(checked, 4u);
  if (isLong())
    llvm::outs() << GetParam() << ": " << checked << " functions, " << tight
                 << " exact\n";
}

INSTANTIATE_TEST_SUITE_P(Families, KeptBodiesTest,
                         ::testing::ValuesIn(oracles()), nameOf);

} // namespace
