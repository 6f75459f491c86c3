//===- SharedHomesTest.cpp - Bounds of shared homes and brute force -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/SharedHomes.h"
#include "BruteForce.h"
#include "galvatron/Search/WholeLayers.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cstdlib>
#include <random>

using namespace galvatron;

namespace {

class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  }
  bool once(int64_t of) { return pick(1, of) == 1; }

private:
  std::mt19937_64 engine;
};

/// Two homes with two chunks each, in turns or in a V, two to three options a
/// layer: faster ones take more memory. Rows are those of a schedule: what a
/// home does for all micro-batches, and what goes before its first chunk.
HomesProblem randomProblem(uint64_t seed) {
  Random random(seed);
  HomesProblem problem;
  auto layers = static_cast<size_t>(random.pick(4, 6));
  auto places = static_cast<size_t>(random.pick(1, 2));
  auto kinds = static_cast<size_t>(random.pick(1, 3));
  for (size_t set = 0; set < places * kinds; ++set) {
    auto &options = problem.optionSets.emplace_back();
    int64_t count = random.pick(1, layers > 5 ? 2 : 3);
    for (int64_t o = 0; o < count; ++o) {
      HomesOption option;
      option.forward = static_cast<double>(random.pick(5, 30));
      option.backward = static_cast<double>(random.pick(5, 60));
      option.input = option.backward / 2;
      option.sums = static_cast<double>(random.pick(0, 30));
      option.end = static_cast<double>(random.pick(0, 20));
      option.state = random.pick(0, 60);
      option.kept = random.once(4) ? 0 : 600 / random.pick(10, 60);
      options.push_back(option);
    }
  }
  for (size_t place = 0; place < places; ++place) {
    auto &sets = problem.layers.emplace_back();
    for (size_t l = 0; l < layers; ++l)
      sets.push_back(place * kinds + (l == 0 ? 0 : l % kinds));
  }
  bool isV = random.once(2);
  for (size_t c = 0; c < 4; ++c) {
    size_t home = isV ? (c < 2 ? c : 3 - c) : c % 2;
    problem.chunks.push_back({home, home % places, random.pick(1, 4)});
  }
  auto count = static_cast<double>(random.pick(1, 8));
  const bool hasInputs = layers % 2;
  for (size_t home = 0; home < 2; ++home)
    for (bool returns : {false, true}) {
      HomesRow row;
      for (size_t c = 0; c < 4; ++c) {
        bool isOwn = problem.chunks[c].home == home, isBefore = c < home;
        row.forward.push_back(isOwn ? count : isBefore ? 1 : 0);
        row.backward.push_back(isOwn ? count : returns && isBefore ? 1 : 0);
        row.sums.push_back(isOwn ? 0.3 : returns && c == 0 ? 1 : 0);
        row.end.push_back(returns ? problem.chunks[c].home == 0 : isOwn);
        if (hasInputs)
          row.input.push_back(isOwn || isBefore ? 0 : 1);
        if (c == 3)
          break;
        row.out.push_back(isOwn ? count : 0);
        row.back.push_back(problem.chunks[c + 1].home == home ? count - 1 : 0);
      }
      problem.rows.push_back(row);
    }
  for (size_t cut = 0; cut < 3; ++cut) {
    problem.out.emplace_back();
    problem.back.emplace_back();
    for (size_t l = 0; l < layers; ++l) {
      problem.out.back().push_back(static_cast<double>(random.pick(0, 9)));
      problem.back.back().push_back(static_cast<double>(random.pick(0, 9)));
    }
  }
  problem.memory = {random.pick(60, 600), random.pick(60, 600)};
  if (random.once(8)) {
    problem.partition = {1, 1, 1, static_cast<int64_t>(layers) - 3};
    std::shuffle(problem.partition.begin(), problem.partition.end(),
                 std::mt19937_64(seed));
  }
  // The same rows over other work, of which faster options have more.
  if (seed % 2) {
    for (auto &options : problem.optionSets)
      for (HomesOption &option : options) {
        option.otherForward =
            static_cast<double>(random.pick(0, 60)) - option.forward / 2 + 15;
        option.otherBackward = static_cast<double>(random.pick(0, 60));
      }
    for (size_t row = 0; row < 4; row += 2)
      problem.rows.push_back(problem.rows[row]);
    problem.rows[4].isOther = problem.rows[5].isOther = true;
  }
  return problem;
}

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

} // namespace

/// The bound is never above the optimum, is tight in most cases, and what is
/// returned is what it says. GALVATRON_LONG: 10,000 cases.
TEST(SharedHomes, bounds_agree_with_brute_force) {
  int cases = std::getenv("GALVATRON_LONG") ? 10000 : 400;
  int solved = 0, found = 0;
  std::vector<double> gaps, branched, repaired;
  for (int seed = 0; seed < cases; ++seed) {
    HomesProblem problem = randomProblem(static_cast<uint64_t>(seed));
    ASSERT_FALSE(problem.check());
    std::optional<HomesSolution> best = bruteforce::solveHomes(problem);
    HomesSearch search(problem, kNoLimit, 120);
    std::vector<HomesSolution> solutions = search.solutions();
    for (const HomesSolution &solution : solutions) {
      HomesSolution again =
          evaluateHomes(problem, solution.partition, solution.choice);
      EXPECT_EQ(again.longest, solution.longest);
      EXPECT_EQ(again.fullness, solution.fullness);
    }
    if (!best)
      continue;
    ++solved;
    EXPECT_LE(search.least(), best->longest * (1 + 1e-12)) << "seed " << seed;
    gaps.push_back(best->longest / search.least() - 1);
    if (!solutions.empty() && solutions.front().fullness <= 1) {
      ++found;
      repaired.push_back(solutions.front().longest / best->longest - 1);
      EXPECT_GE(repaired.back(), -1e-12);
    }
    for (int nodes = 0; nodes < 40; ++nodes) {
      double before = search.least();
      if (!search.branch(best->longest))
        break;
      EXPECT_GE(search.least(), before);
    }
    EXPECT_LE(search.least(), best->longest * (1 + 1e-12)) << "seed " << seed;
    branched.push_back(best->longest / search.least() - 1);
    // Solutions that are left out under a limit take at least that long.
    for (double part : {0.9, 1.0, 1.5}) {
      double limit = part * best->longest;
      HomesSearch limited(problem, limit, 40);
      double most = std::min(limit, best->longest) * (1 + 1e-12);
      EXPECT_LE(limited.least(), most) << "seed " << seed;
      for (int nodes = 0; nodes < 10 && limited.branch(limit); ++nodes)
        EXPECT_LE(limited.least(), most) << "seed " << seed;
    }
  }
  for (std::vector<double> *list : {&gaps, &branched, &repaired})
    std::sort(list->begin(), list->end());
  auto at = [](const std::vector<double> &list, double part) {
    return 100 * list[static_cast<size_t>(
                     part * static_cast<double>(list.size() - 1))];
  };
  printf("%d cases, %d have a plan, %d found without repair; gap of the bound "
         "%.1f%% in the median, %.1f%% of 90%%, %.1f%% at most, and %.1f%%, "
         "%.1f%%, %.1f%% branched; plans %.1f%%, %.1f%%, %.1f%% above the "
         "optimum\n",
         cases, solved, found, at(gaps, 0.5), at(gaps, 0.9), at(gaps, 1),
         at(branched, 0.5), at(branched, 0.9), at(branched, 1),
         at(repaired, 0.5), at(repaired, 0.9), at(repaired, 1));
  EXPECT_GT(solved, cases / 2);
  EXPECT_GT(found, solved * 3 / 4);
  // A bound that loses a term is sound, and far away.
  EXPECT_LT(at(gaps, 0.5), 12);
  EXPECT_LT(at(gaps, 0.9), 30);
  EXPECT_LT(at(branched, 0.5), 0.1);
  EXPECT_LT(at(branched, 0.9), 10);
  EXPECT_LT(at(repaired, 0.5), 3);
}

/// The bounds, solutions and rounds of searches for fixed problems are those
/// recorded here: a change of the search shows where they get better or worse.
TEST(SharedHomes, does_as_much_as_it_did) {
  double first = 0, branched = 0, limited = 0, longest = 0, fullness = 0;
  uint64_t rounds = 0;
  for (uint64_t seed = 20'000; seed < 20'120; ++seed) {
    const HomesProblem problem = randomProblem(seed);
    HomesSearch search(problem, kNoLimit, 40);
    const std::vector<HomesSolution> solutions = search.solutions();
    if (solutions.empty() || solutions.front().fullness > 1)
      continue;
    first += search.least();
    for (const HomesSolution &solution : solutions) {
      longest += solution.longest;
      fullness += solution.fullness;
    }
    for (int nodes = 0; nodes < 4 && search.branch(kNoLimit); ++nodes)
      ;
    branched += search.least();
    rounds += search.rounds();
    // Some searches reach this limit at once, others behind some nodes.
    const double limit = 1.05 * search.least();
    HomesSearch known(problem, limit, 20);
    for (int nodes = 0; nodes < 8 && known.branch(limit); ++nodes)
      ;
    limited += known.least();
    rounds += known.rounds();
  }
  const double expected[] = {67535.085, 69504.350, 69327.765,
                             226614.5,  198.38942, 14802};
  const double now[] = {first,   branched, limited,
                        longest, fullness, static_cast<double>(rounds)};
  for (size_t i = 0; i < std::size(now); ++i)
    EXPECT_NEAR(now[i], expected[i], 1e-4 * expected[i]) << "number " << i;
}

/// Chunks on one to three homes, which have one or two each. All layers but the
/// first and last are of one kind.
HomesProblem problemOfEqualLayers(uint64_t seed) {
  Random random(seed);
  HomesProblem problem;
  auto homes = static_cast<size_t>(random.pick(1, 3));
  size_t chunks =
      homes * static_cast<size_t>(homes < 3 ? random.pick(1, 2) : 1);
  auto layers = static_cast<size_t>(random.pick(4, 6));
  bool areAlike = random.once(3);
  for (size_t set = 0; set < 3; ++set) {
    auto &options = problem.optionSets.emplace_back();
    for (int64_t o = 0; o < (set == 1 ? 2 : 1); ++o) {
      HomesOption option;
      option.forward = static_cast<double>(random.pick(5, 30));
      option.backward = static_cast<double>(random.pick(5, 60));
      option.otherForward = static_cast<double>(random.pick(0, 50));
      option.otherBackward = static_cast<double>(random.pick(0, 50));
      option.state = random.pick(10, 60);
      option.kept = random.pick(10, 60);
      options.push_back(option);
    }
  }
  auto &sets = problem.layers.emplace_back(layers, 1);
  if (!areAlike) {
    sets.front() = 0;
    sets.back() = 2;
  }
  for (size_t c = 0; c < chunks; ++c)
    problem.chunks.push_back({c % homes, 0, random.pick(1, 3)});
  auto count = static_cast<double>(random.pick(1, 8));
  for (size_t home = 0; home < homes; ++home)
    for (bool isOther : {false, true}) {
      HomesRow row;
      for (size_t c = 0; c < chunks; ++c) {
        bool isOwn = problem.chunks[c].home == home;
        row.forward.push_back(isOwn ? count : c < home ? 1 : 0);
        row.backward.push_back(isOwn ? count : 0);
        row.sums.push_back(0);
        row.end.push_back(0);
      }
      row.out.assign(chunks - 1, 1);
      row.back.assign(chunks - 1, 1);
      row.isOther = isOther;
      problem.rows.push_back(row);
    }
  problem.out.assign(chunks - 1, std::vector<double>(layers, 3));
  problem.back = problem.out;
  for (size_t home = 0; home < homes; ++home)
    problem.memory.push_back(random.pick(200, 900));
  return problem;
}

/// Counting whole layers is a bound, and near where that is all there is.
/// GALVATRON_LONG: 10,000 cases.
TEST(SharedHomes, whole_layers_agree_with_brute_force) {
  int cases = std::getenv("GALVATRON_LONG") ? 10000 : 400;
  std::vector<double> gaps;
  for (int seed = 0; seed < cases; ++seed) {
    HomesProblem problem = problemOfEqualLayers(static_cast<uint64_t>(seed));
    ASSERT_FALSE(problem.check());
    std::optional<HomesSolution> best = bruteforce::solveHomes(problem);
    double bound = boundByWholeLayers(problem, kNoLimit);
    if (!best)
      continue;
    EXPECT_LE(bound, best->longest * (1 + 1e-12)) << "seed " << seed;
    // What is beyond a limit is not looked at.
    double limit = 0.9 * best->longest;
    EXPECT_LE(boundByWholeLayers(problem, limit), limit);
    EXPECT_LE(boundByWholeLayers(problem, 2 * best->longest),
              best->longest * (1 + 1e-12));
    gaps.push_back(best->longest / bound - 1);
  }
  std::sort(gaps.begin(), gaps.end());
  auto at = [&](double part) {
    return 100 * gaps[static_cast<size_t>(
                     part * static_cast<double>(gaps.size() - 1))];
  };
  printf("%zu of %d cases have a plan; gap of the bound %.1f%% in the median, "
         "%.1f%% of 90%%, %.1f%% at most\n",
         gaps.size(), cases, at(0.5), at(0.9), at(1));
  EXPECT_GT(gaps.size(), static_cast<size_t>(cases) / 2);
  EXPECT_LT(at(0.5), 8);
  EXPECT_LT(at(0.9), 30);
}

/// Layers that cannot be divided: seven on three homes are three on one.
TEST(SharedHomes, whole_layers_count) {
  HomesProblem problem;
  problem.optionSets = {{{1, 2, 0, 0, 10, 0}}};
  problem.layers = {std::vector<size_t>(7, 0)};
  problem.chunks = {{0, 0, 1}, {1, 0, 1}, {2, 0, 1}};
  problem.memory = {1000, 1000, 1000};
  for (size_t home = 0; home < 3; ++home) {
    HomesRow row;
    for (size_t c = 0; c < 3; ++c)
      for (std::vector<double> *list : {&row.forward, &row.backward})
        list->push_back(c == home ? 4 : 0);
    row.sums = row.end = {0, 0, 0};
    row.out = row.back = {0, 0};
    problem.rows.push_back(row);
  }
  problem.out =
      problem.back = {std::vector<double>(7, 0), std::vector<double>(7, 0)};
  ASSERT_FALSE(problem.check());
  EXPECT_NEAR(boundByWholeLayers(problem, kNoLimit), 3 * 12, 1e-2);
  // A home that holds one leaves three to each of the others.
  problem.memory = {19, 1000, 1000};
  EXPECT_NEAR(boundByWholeLayers(problem, kNoLimit), 3 * 12, 1e-2);
  problem.memory = {19, 19, 1000};
  EXPECT_NEAR(boundByWholeLayers(problem, kNoLimit), 5 * 12, 1e-2);
  problem.memory = {19, 19, 19};
  EXPECT_EQ(boundByWholeLayers(problem, 500), 500);
}

/// Without memory to share, one home, and one way to cut, nothing is lost.
TEST(SharedHomes, one_home_is_exact) {
  HomesProblem problem;
  problem.optionSets = {{{3, 4, 2, 1, 10, 5}, {2, 3, 2, 1, 30, 9}}};
  problem.layers = {{0, 0, 0}};
  problem.chunks = {{0, 0, 2}};
  problem.memory = {1000};
  problem.rows = {{{4}, {4}, {0.5}, {1}, {}, {}}};
  ASSERT_FALSE(problem.check());
  EXPECT_NEAR(HomesSearch(problem, kNoLimit, 10).least(),
              3 * (2 * 4 + 3 * 4 + 2 * 0.5 + 1), 1e-6);
  // 3 * (30 + 2 * 9) bytes do not fit: one layer takes the slower option.
  problem.memory = {130};
  HomesSearch search(problem, kNoLimit, 200);
  ASSERT_FALSE(search.solutions().empty());
  std::optional<HomesSolution> best = bruteforce::solveHomes(problem);
  ASSERT_TRUE(best);
  EXPECT_LE(search.least(), best->longest);
  EXPECT_GT(search.least(), 3 * (2 * 4 + 3 * 4 + 2 * 0.5 + 1) + 1);
}

/// One row, one option a layer and given chunks: the bound is the row.
TEST(SharedHomes, messages_count_both_ways) {
  HomesProblem problem;
  problem.optionSets = {{{3, 4, 8, 1, 10, 5}}};
  problem.layers = {{0, 0, 0}};
  problem.chunks = {{0, 0, 2}, {1, 0, 1}};
  problem.memory = {1000, 1000};
  problem.rows = {{{4, 1}, {4, 0}, {0.5, 0.25}, {1, 0}, {5}, {7}}};
  problem.out = {{2, 30, 0}};
  problem.back = {{3, 40, 0}};
  problem.partition = {1, 2};
  ASSERT_FALSE(problem.check());
  double row = 4 * 3 + 4 * 4 + 0.5 * 8 + 1 + 2 * (3 + 0.25 * 8) + 5 * 2 + 7 * 3;
  EXPECT_NEAR(HomesSearch(problem, kNoLimit, 10).least(), row, 1e-6);
  // The other cut is dearer.
  problem.partition.clear();
  EXPECT_NEAR(HomesSearch(problem, kNoLimit, 10).least(), row, 1e-6);
  EXPECT_EQ(bruteforce::solveHomes(problem)->longest, row);
}

TEST(SharedHomes, input_parts_count_where_a_row_has_them) {
  HomesProblem problem;
  problem.optionSets = {{{3, 4, 0, 0, 10, 5}}};
  problem.optionSets[0][0].input = 1.5;
  problem.layers = {{0, 0, 0}};
  problem.chunks = {{0, 0, 2}, {1, 0, 1}};
  problem.memory = {1000, 1000};
  problem.rows = {{{1, 1}, {4, 0}, {0, 0}, {0, 0}, {0}, {0}, false, {0, 2}}};
  problem.out = problem.back = {{0, 0, 0}};
  problem.partition = {1, 2};
  ASSERT_FALSE(problem.check());
  double row = 3 * 3 + 4 * 4 + 2 * 2 * 1.5;
  EXPECT_NEAR(HomesSearch(problem, kNoLimit, 10).least(), row, 1e-6);
  EXPECT_EQ(bruteforce::solveHomes(problem)->longest, row);
  // Kinds of layers that are counted have input parts, too.
  problem.partition.clear();
  EXPECT_NEAR(HomesSearch(problem, kNoLimit, 10).least(), row, 1e-6);
  problem.rows[0].input.pop_back();
  EXPECT_EQ(llvm::toString(problem.check()),
            "shared homes: expected numbers for every chunk and cut in a row");
  problem.rows[0].input.clear();
  problem.optionSets[0][0].input = -1;
  EXPECT_EQ(llvm::toString(problem.check()),
            "shared homes: expected times and bytes of at least 0");
}

TEST(SharedHomes, what_cannot_be_is_refused) {
  HomesProblem problem = randomProblem(1);
  problem.memory[0] = 0;
  EXPECT_EQ(llvm::toString(problem.check()),
            "shared homes: expected memory above 0 in every home");
  problem = randomProblem(1);
  problem.chunks[0].home = 7;
  EXPECT_EQ(llvm::toString(problem.check()),
            "shared homes: a chunk has no home or no place");
  problem = randomProblem(1);
  problem.rows[0].out.pop_back();
  EXPECT_EQ(llvm::toString(problem.check()),
            "shared homes: expected numbers for every chunk and cut in a row");
  problem = randomProblem(1);
  problem.optionSets[0][0].sums = -1;
  EXPECT_EQ(llvm::toString(problem.check()),
            "shared homes: expected times and bytes of at least 0");
  problem = randomProblem(1);
  auto layers = static_cast<int64_t>(problem.layerCount());
  problem.partition.assign(problem.chunks.size(), 1);
  problem.partition.back() =
      layers - static_cast<int64_t>(problem.chunks.size()) + 2;
  EXPECT_EQ(llvm::toString(problem.check()),
            "shared homes: expected chunks with all " + std::to_string(layers) +
                " layers and at least one each");
  problem.partition.back() -= 1;
  EXPECT_FALSE(problem.check());
}
