//===- KeptSetsTest.cpp - Which values are kept for backward --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptSubsets.h"

#include "galvatron/Search/KeptSets.h"
#include "galvatron/Search/MaximumFlow.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <random>

using namespace galvatron;

namespace {

using Engine = std::mt19937;

int64_t draw(Engine &random, int64_t from, int64_t to) {
  return std::uniform_int_distribution<int64_t>(from, to)(random);
}

/// Operations of one to three results, some of which must not run twice; many
/// times and sizes are equal or zero.
KeptProblem drawProblem(Engine &random, size_t mostValues) {
  KeptProblem problem;
  while (problem.values.size() < mostValues) {
    KeptProblem::Operation operation;
    size_t before = problem.values.size();
    int64_t operands = before == 0 ? 0 : draw(random, 0, 3);
    for (int64_t i = 0; i < operands; ++i)
      operation.operands.push_back(
          size_t(draw(random, std::max<int64_t>(0, int64_t(before) - 5),
                      int64_t(before) - 1)));
    int64_t results = draw(random, 0, 3) == 0 ? draw(random, 2, 3) : 1;
    for (int64_t i = 0; i < results && problem.values.size() < mostValues;
         ++i) {
      operation.results.push_back(problem.values.size());
      problem.values.push_back(
          {draw(random, 0, 3) * draw(random, 1, 40), draw(random, 0, 1) == 0});
    }
    operation.time = draw(random, 0, 4) * draw(random, 1, 30);
    operation.mayBeRemade = draw(random, 0, 9) != 0;
    for (size_t value : operation.results)
      if (!problem.values[value].needed)
        problem.values[value].mayBeKept = draw(random, 0, 4) != 0;
    problem.operations.push_back(operation);
  }
  EXPECT_FALSE(bool(problem.check()));
  return problem;
}

std::vector<KeptPoint> pointsOf(const std::vector<KeptSet> &sets) {
  std::vector<KeptPoint> points;
  for (const KeptSet &set : sets)
    points.push_back({set.bytes, set.time});
  return points;
}

} // namespace

TEST(MaximumFlow, SendsWhatTheSmallestCutLets) {
  Engine random(1);
  for (int round = 0; round < 300; ++round) {
    size_t nodes = size_t(draw(random, 2, 9));
    std::vector<std::vector<int64_t>> capacity(nodes,
                                               std::vector<int64_t>(nodes, 0));
    FlowNetwork network(nodes);
    for (int64_t i = draw(random, 1, 25); i > 0; --i) {
      size_t from = size_t(draw(random, 0, int64_t(nodes) - 1));
      size_t to = size_t(draw(random, 0, int64_t(nodes) - 1));
      int64_t most = draw(random, 0, 20);
      capacity[from][to] += most;
      network.addEdge(from, to, most);
    }
    auto cutOf = [&](auto isSource) {
      int64_t cut = 0;
      for (size_t from = 0; from < nodes; ++from)
        for (size_t to = 0; to < nodes; ++to)
          if (isSource(from) && !isSource(to))
            cut += capacity[from][to];
      return cut;
    };
    int64_t least = INT64_MAX;
    for (size_t bits = 0; bits < size_t(1) << nodes; ++bits)
      if ((bits & 3) == 1)
        least = std::min(least,
                         cutOf([&](size_t node) { return bits >> node & 1; }));
    EXPECT_EQ(int64_t(network.maximise(0, 1)), least);
    std::vector<bool> side = network.sourceSide();
    EXPECT_FALSE(side[1]);
    EXPECT_EQ(cutOf([&](size_t node) { return bool(side[node]); }), least);
  }
}

TEST(MaximumFlow, SaysThatNothingBoundsAPath) {
  FlowNetwork network(3);
  network.addEdge(0, 2, FlowNetwork::kUnbounded);
  network.addEdge(2, 1, FlowNetwork::kUnbounded);
  EXPECT_GE(network.maximise(0, 1), FlowNetwork::kUnbounded);
}

TEST(KeptSets, AgreeWithAllSubsetsAtEveryPrice) {
  Engine random(2);
  for (int round = 0; round < 300; ++round) {
    KeptProblem problem = drawProblem(random, size_t(draw(random, 1, 10)));
    std::vector<KeptSet> sets = allSets(problem);
    for (int price = 0; price < 20; ++price) {
      int64_t bytes = draw(random, 0, 50), time = draw(random, 0, 50);
      auto cost = [&](const KeptSet &set) {
        return bytes * set.bytes + time * set.time;
      };
      int64_t least = INT64_MAX;
      for (const KeptSet &set : sets)
        least = std::min(least, cost(set));
      KeptSet found = cheapestKept(problem, bytes, time);
      EXPECT_EQ(cost(found), least) << "round " << round;
      EXPECT_EQ(priceKept(problem, found.values), found);
    }
  }
}

TEST(KeptSets, AreNotThoseOfFaultyProblems) {
  // Cuts of problems that say something else than what is executed: comparing
  // with all subsets must notice each of these faults.
  struct Fault {
    const char *name;
    void (*inject)(KeptProblem &);
  };
  const Fault faults[] = {
      {"none", [](KeptProblem &) {}},
      {"an operation of several results taken apart",
       [](KeptProblem &problem) {
         std::vector<KeptProblem::Operation> apart;
         for (KeptProblem::Operation operation : problem.operations)
           for (size_t result : std::vector<size_t>(operation.results)) {
             operation.results = {result};
             apart.push_back(operation);
           }
         problem.operations = apart;
       }},
      {"a collective forgotten",
       [](KeptProblem &problem) {
         // As a sum is there: what it reads is only on its way.
         for (KeptProblem::Operation &operation : problem.operations)
           for (size_t operand : operation.operands)
             if (!problem.values[operand].mayBeKept)
               operation.time = 0;
       }},
      {"operands not paid",
       [](KeptProblem &problem) {
         for (KeptProblem::Value &value : problem.values)
           if (!value.needed)
             value.bytes = 0;
       }},
      {"operands not available", [](KeptProblem &problem) {
         for (KeptProblem::Operation &operation : problem.operations)
           operation.operands.clear();
       }}};
  for (const Fault &fault : faults) {
    Engine random(6);
    size_t caught = 0;
    for (int round = 0; round < 100; ++round) {
      KeptProblem problem = drawProblem(random, size_t(draw(random, 4, 9)));
      KeptProblem faulty = problem;
      fault.inject(faulty);
      ASSERT_FALSE(bool(faulty.check())) << fault.name;
      int64_t least = INT64_MAX;
      for (const KeptSet &set : allSets(problem))
        least = std::min(least, set.bytes + set.time);
      KeptSet found = cheapestKept(faulty, 1, 1);
      caught += found.bytes + found.time != least ||
                priceKept(problem, found.values) != found;
    }
    if (llvm::StringRef(fault.name) == "none")
      EXPECT_EQ(caught, 0u);
    else
      EXPECT_GE(caught, 5u) << fault.name;
  }
}

TEST(KeptSets, FindTheWholeHull) {
  Engine random(3);
  size_t longest = 0;
  for (int round = 0; round < 300; ++round) {
    KeptProblem problem = drawProblem(random, size_t(draw(random, 1, 11)));
    std::vector<std::pair<int64_t, Picoseconds>> found;
    for (const KeptSet &set : keptHull(problem))
      found.push_back({set.bytes, set.time});
    EXPECT_EQ(found, hullOf(pointsOf(allSets(problem)))) << "round " << round;
    longest = std::max(longest, found.size());
  }
  EXPECT_GE(longest, 5u) << "the problems are too simple to say anything";
}

TEST(KeptSets, AreWalkedAsTheyAreCounted) {
  // The quick walk over all sets, which the bodies' test believes.
  Engine random(5);
  for (int round = 0; round < 200; ++round) {
    KeptProblem problem = drawProblem(random, size_t(draw(random, 1, 11)));
    std::vector<KeptPoint> counted = pointsOf(allSets(problem)), walked;
    SubsetWalk walk(problem, [&](int64_t bytes, Picoseconds time) {
      walked.push_back({bytes, time});
    });
    std::sort(counted.begin(), counted.end());
    std::sort(walked.begin(), walked.end());
    EXPECT_EQ(walked, counted) << "round " << round;
    std::vector<KeptPoint> undominated;
    for (KeptPoint point : counted)
      if (undominated.empty() || point.second < undominated.back().second)
        undominated.push_back(point);
    EXPECT_EQ(frontOf(problem), undominated) << "round " << round;
  }
}

TEST(KeptSets, ComputeAnOperationOfSeveralResultsOnce) {
  // Two results of 10 bytes each, both needed: one of them alone saves nothing
  // if the other is computed again, whose time is paid whole.
  KeptProblem problem;
  problem.values = {{10, true}, {10, true}};
  problem.operations = {{{}, {0, 1}, 15, true}};
  EXPECT_EQ(cheapestKept(problem, 1, 1).time, 15);
  EXPECT_EQ(priceKept(problem, {0})->time, 15);
  // If each result had a maker with the whole time, both would be kept.
  KeptProblem apart = problem;
  apart.operations = {{{}, {0}, 15, true}, {{}, {1}, 15, true}};
  EXPECT_EQ(cheapestKept(apart, 1, 1).bytes, 20);
}

TEST(KeptSets, PayForOperandsThatAreNotThere) {
  // The needed value is quick to make from one that takes long and that
  // backward does not need: keeping that is cheapest.
  KeptProblem problem;
  problem.values = {{8, false}, {100, true}};
  problem.operations = {{{}, {0}, 1000, true}, {{0}, {1}, 5, true}};
  EXPECT_EQ(cheapestKept(problem, 1, 1), (KeptSet{{0}, 8, 5}));
  EXPECT_EQ(priceKept(problem, {})->time, 1005);
}

TEST(KeptSets, KeepNoTermsOfASum) {
  // A product, then the sum of its terms over the ranks: what is kept is the
  // sum, and whoever computes it again pays the collective, too.
  KeptProblem problem;
  problem.values = {{10, false, false}, {10, true}};
  problem.operations = {{{}, {0}, 3, true}, {{0}, {1}, 6, true}};
  EXPECT_EQ(cheapestKept(problem, 1, 1), (KeptSet{{}, 0, 9}));
  EXPECT_EQ(cheapestKept(problem, 4, 5), (KeptSet{{1}, 10, 0}));
  EXPECT_FALSE(priceKept(problem, {0}));
}

TEST(KeptSets, NeverRemakeWhatMustNotRunTwice) {
  KeptProblem problem;
  problem.values = {{100, false}, {50, true}};
  problem.operations = {{{}, {0}, 0, false}, {{0}, {1}, 1, true}};
  EXPECT_FALSE(priceKept(problem, {}));
  EXPECT_EQ(cheapestKept(problem, 1000, 1).values, std::vector<size_t>{1});
}

TEST(KeptSets, ChoosePointsThatLoseLeast) {
  Engine random(4);
  for (int round = 0; round < 200; ++round) {
    // A convex falling line of vertices.
    std::vector<KeptSet> hull;
    size_t count = size_t(draw(random, 2, 9));
    int64_t bytes = 1000, time = 0, slope = 1;
    for (size_t i = 0; i < count; ++i) {
      hull.push_back({{}, bytes, time});
      int64_t step = draw(random, 1, 40);
      slope += draw(random, 1, 20);
      bytes -= step;
      time += step * slope;
    }
    auto lossOf = [&](const std::vector<size_t> &chosen) {
      double most = 0;
      for (size_t i = 1; i < chosen.size(); ++i)
        for (size_t k = chosen[i - 1]; k <= chosen[i]; ++k) {
          const KeptSet &a = hull[chosen[i - 1]], &b = hull[chosen[i]];
          double part =
              double(a.bytes - hull[k].bytes) / double(a.bytes - b.bytes);
          most = std::max(most, a.time + part * double(b.time - a.time) -
                                    double(hull[k].time));
        }
      return most;
    };
    double least = 1e300;
    for (size_t bits = 0; bits < size_t(1) << count; ++bits) {
      std::vector<size_t> chosen;
      for (size_t i = 0; i < count; ++i)
        if (i == 0 || i + 1 == count || bits >> i & 1)
          chosen.push_back(i);
      if (chosen.size() <= 2 + 2)
        least = std::min(least, lossOf(chosen));
    }
    std::vector<size_t> points = choosePoints(hull, 2);
    EXPECT_LE(points.size(), 2u);
    std::vector<size_t> all = {0};
    all.insert(all.end(), points.begin(), points.end());
    all.push_back(count - 1);
    EXPECT_NEAR(lossOf(all), least, 1e-6) << "round " << round;
    // Fewer where they lose no more than is asked for, and no fewer than that.
    Picoseconds enough = Picoseconds(least) + 5;
    std::vector<size_t> fewer = choosePoints(hull, 2, enough);
    std::vector<size_t> some = {0};
    some.insert(some.end(), fewer.begin(), fewer.end());
    some.push_back(count - 1);
    EXPECT_LE(fewer.size(), points.size());
    EXPECT_LE(lossOf(some), double(enough) + 1e-6) << "round " << round;
  }
}

TEST(KeptSets, RefuseWhatIsNoProblem) {
  auto errorOf = [](const KeptProblem &problem) {
    llvm::Error error = problem.check();
    return error ? llvm::toString(std::move(error)) : "";
  };
  KeptProblem problem;
  problem.values = {{1, true}, {1, true}};
  problem.operations = {{{1}, {0}, 1, true}, {{}, {1}, 1, true}};
  EXPECT_EQ(errorOf(problem), "expected the operands of an operation to be "
                              "made before it, found value 1");
  problem.operations = {{{}, {0}, 1, true}, {{}, {0}, 1, true}};
  EXPECT_EQ(errorOf(problem), "expected one operation to make value 0");
  problem.operations = {{{}, {0}, 1, true}};
  EXPECT_EQ(errorOf(problem), "expected an operation that makes value 1");
  problem.operations = {{{}, {0, 1}, -1, true}};
  EXPECT_EQ(errorOf(problem), "expected times not to be negative");
  problem.operations = {{{}, {0, 1}, 1, true}};
  problem.values[1].mayBeKept = false;
  EXPECT_EQ(errorOf(problem), "expected a needed value that may be kept, found "
                              "value 1, which may not");
}
