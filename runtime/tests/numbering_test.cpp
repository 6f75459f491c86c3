//===- numbering_test.cpp - Ranks where the plan has them -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/numbering.h"
#include "core/manifest.h"
#include "core/topology.h"
#include "in_process.h"
#include "test_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

using namespace grt;
using namespace grt::test;

namespace {

using Numbers = std::vector<int>;

/// The host of each rank, where place i is process `order[i]`.
Numbers hostOfRank(const Numbers &ranks, const Numbers &hosts,
                   const Numbers &order) {
  Numbers result;
  for (int process : order)
    result.insert(result.end(), size_t(ranks[size_t(process)]),
                  hosts[size_t(process)]);
  return result;
}

Numbers asStarted(size_t count) {
  Numbers order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// True if some order keeps the nodes in which places have as many ranks as
/// before, and process 0 its own if it `stays`.
bool anyOrderDoes(const Numbers &ranks, const Numbers &hosts,
                  const Numbers &nodes, bool stays = false) {
  Numbers order = asStarted(ranks.size());
  do {
    if (stays && order[0] != 0)
      return false;
    bool sameRanks = true;
    for (size_t i = 0; i < order.size(); ++i)
      sameRanks &= ranks[size_t(order[i])] == ranks[i];
    if (sameRanks && keepsNodes(hostOfRank(ranks, hosts, order), nodes))
      return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

/// Nodes of so many ranks each.
Numbers nodesOf(const Numbers &sizes) {
  Numbers nodes;
  for (size_t i = 0; i < sizes.size(); ++i)
    nodes.insert(nodes.end(), size_t(sizes[i]), int(i));
  return nodes;
}

TEST(Numbering, FindsOneExactlyWhereThereIsOne) {
  std::mt19937 random(1);
  auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  int found = 0, none = 0, kept = 0;
  for (int round = 0; round < 3000; ++round) {
    // The case has up to seven processes of one, two or three ranks, on up to
    // four hosts.
    Numbers ranks(size_t(draw(1, 7))), hosts(ranks.size());
    const bool equal = draw(0, 1);
    for (int &count : ranks)
      count = equal ? 1 : draw(1, 3);
    const int hostCount = draw(1, 4);
    int known = 0;
    for (int &host : hosts) {
      host = std::min(draw(0, hostCount - 1), known);
      known = std::max(known, host + 1);
    }
    const int world = std::accumulate(ranks.begin(), ranks.end(), 0);
    Numbers sizes;
    for (int left = world; left > 0; left -= sizes.back())
      sizes.push_back(std::min(left, draw(1, 4)));
    const Numbers nodes = nodesOf(sizes);

    std::optional<Numbers> order = numberProcesses(ranks, hosts, nodes);
    ASSERT_EQ(order.has_value(), anyOrderDoes(ranks, hosts, nodes));
    if (!order) {
      ++none;
      continue;
    }
    Numbers sorted = *order;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted, asStarted(ranks.size()));
    for (size_t i = 0; i < order->size(); ++i)
      ASSERT_EQ(ranks[size_t((*order)[i])], ranks[i]);
    const Numbers where = hostOfRank(ranks, hosts, *order);
    ASSERT_TRUE(keepsNodes(where, nodes));
    ASSERT_EQ((*order)[0] == 0, anyOrderDoes(ranks, hosts, nodes, true));
    // The processes' own order stays if it keeps the nodes; an order that was
    // found is found again, and stays.
    const bool does =
        keepsNodes(hostOfRank(ranks, hosts, asStarted(ranks.size())), nodes);
    ASSERT_EQ(*order == asStarted(ranks.size()), does);
    ASSERT_EQ(numberProcesses(ranks, hosts, nodes), order);
    Numbers moved;
    for (int process : *order)
      moved.push_back(hosts[size_t(process)]);
    ASSERT_EQ(numberProcesses(ranks, moved, nodes), asStarted(ranks.size()));
    ++(does ? kept : found);
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(none, 200);
  EXPECT_GT(kept, 200);
}

TEST(Numbering, RanksThatWereDealtRoundTheHostsCome) {
  // Ranks of mpirun --map-by node on two hosts: 0, 2, 4, .. on the first.
  const Numbers ranks(8, 1), nodes = nodesOf({4, 4});
  EXPECT_EQ(numberProcesses(ranks, Numbers{0, 1, 0, 1, 0, 1, 0, 1}, nodes),
            (Numbers{0, 2, 4, 6, 1, 3, 5, 7}));
  // Small nodes may share a host, a large one may not be on two.
  EXPECT_EQ(numberProcesses(ranks, Numbers{0, 1, 0, 1, 0, 1, 0, 1},
                            nodesOf({2, 2, 2, 2})),
            (Numbers{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(
      numberProcesses(ranks, Numbers{0, 1, 0, 1, 0, 1, 0, 1}, nodesOf({8})),
      std::nullopt);
  // The node of eight is on the host of eight, wherever process 0 is.
  EXPECT_EQ(numberProcesses(Numbers(6, 2), Numbers{0, 0, 1, 1, 1, 1},
                            nodesOf({8, 4})),
            (Numbers{2, 3, 4, 5, 0, 1}));
  // Process 0 stays where it can.
  EXPECT_EQ(numberProcesses(ranks, Numbers{0, 1, 2, 3, 3, 2, 1, 0},
                            nodesOf({2, 2, 2, 2})),
            (Numbers{0, 7, 1, 6, 2, 5, 3, 4}));
}

TEST(Numbering, OfTenThousandHosts) {
  const int hosts = 10000, each = 8;
  Numbers ranks(size_t(hosts * each), 1), where(ranks.size());
  for (size_t i = 0; i < where.size(); ++i)
    where[i] = int(i) % hosts;
  std::optional<Numbers> order =
      numberProcesses(ranks, where, nodesOf(Numbers(size_t(hosts), each)));
  ASSERT_TRUE(order);
  EXPECT_EQ((*order)[1], hosts);
  // Nodes have two sizes, on hosts that must be filled with both.
  Numbers sizes;
  for (int i = 0; i < hosts; ++i)
    sizes.insert(sizes.end(), {3, 5});
  order = numberProcesses(ranks, where, nodesOf(sizes));
  ASSERT_TRUE(order);
  EXPECT_TRUE(keepsNodes(hostOfRank(ranks, where, *order), nodesOf(sizes)));
  // One that is too large for any.
  sizes.back() = 4;
  sizes.insert(sizes.end(), {1});
  sizes.front() = 2;
  sizes.insert(sizes.begin(), {1});
  EXPECT_TRUE(numberProcesses(ranks, where, nodesOf(sizes)));
  sizes.assign(size_t(hosts) - 2, each);
  sizes.insert(sizes.end(), {9, 7});
  EXPECT_FALSE(numberProcesses(ranks, where, nodesOf(sizes)));
}

TEST(Numbering, TransportsGoByTheNewNumbers) {
  const Numbers order{2, 0, 1};
  onProcesses(3, [&](Transport &started) {
    std::unique_ptr<Transport> transport = renumbered(started, order);
    const int self = transport->process();
    EXPECT_EQ(order[size_t(self)], started.process());
    // Each process sends to the next.
    int to = (self + 1) % 3, from = (self + 2) % 3, got = -1;
    waitFor(*transport, {transport->send(to, 5, &self, sizeof(self)),
                         transport->receive(from, 5, &got, sizeof(got))});
    EXPECT_EQ(got, from);
    int all[3] = {-1, -1, -1}, said = self;
    transport->allGather(&self, all, sizeof(self));
    EXPECT_EQ(Numbers(all, all + 3), (Numbers{0, 1, 2}));
    transport->broadcast(&said, sizeof(said), 2);
    EXPECT_EQ(said, 2);
  });
}

TEST(Numbering, SaysWhichHostHasWhichRanks) {
  RunHosts hosts{{"alpha", "beta"}, {0, 0, 0, 1, 1, 0}};
  EXPECT_EQ(renumberingText(hosts),
            "ranks are not numbered as they were started, so that each node of "
            "the plan is on one host: 'alpha' has 0 to 2, 5, 'beta' has 3, 4");
  EXPECT_EQ(rankRanges(Numbers{0, 2, 4, 6, 8}), "0, 2, 4, 6, ..");
}

/// Two stages on four ranks each.
Manifest planned(const std::string &nodes) {
  ModelPlan plan;
  plan.layers[0].levels = {{"dp", 2}, {"tp", 2}};
  plan.layers[1].levels = {{"sdp", 4}};
  plan.layers[2].levels = {{"tp", 4}};
  plan.stages = {{{0, 1}, {0, 1, 2, 3}}, {{2}, {4, 5, 6, 7}}};
  plan.nodesJson = nodes;
  return parseManifest(TestProgram(plan).manifest());
}

TEST(Topology, NamesALevelAndWhatItCosts) {
  RunHosts spread{{"alpha", "beta"}, {0, 0, 0, 0, 0, 0, 1, 1}, true};
  const std::string two =
      R"([{"count": 2, "devices": 4, "bandwidth": 3e11, "network-bandwidth": 1e11}])";
  EXPECT_EQ(misplacedText(planned(two), spread),
            "ranks 4 to 7 are one node of the plan and on hosts 'alpha' and "
            "'beta', and no other numbering of the processes puts each node on "
            "one host: tp4 of layer 'layer2' was priced inside a node and goes "
            "between hosts, at 300GB/s in the plan, which has 25GB/s for each "
            "device between nodes (12 times less)");
  // Pairs stay together: of the first stage sdp alone crosses, in the second
  // node tp does, and what sends most is named.
  RunHosts pairs{{"alpha", "beta"}, {0, 0, 1, 1, 0, 0, 0, 0}};
  EXPECT_EQ(misplacedText(planned(R"([{"count": 1, "devices": 8}])"), pairs),
            "ranks 0 to 7 are one node of the plan and on hosts 'alpha' and "
            "'beta': sdp4 of layer 'layer1' was priced inside a node and goes "
            "between hosts");
  RunHosts stages{{"alpha", "beta"}, {0, 0, 0, 0, 1, 1, 1, 1}};
  EXPECT_EQ(misplacedText(planned(R"([{"count": 1, "devices": 8}])"), stages),
            "ranks 0 to 7 are one node of the plan and on hosts 'alpha' and "
            "'beta': messages between stages were priced inside a node and go "
            "between hosts");
  EXPECT_EQ(misplacedText(planned(two), stages), "");
  EXPECT_EQ(misplacedText(planned(""), spread), "");
}

TEST(Topology, RefusesNodesOfOtherRanks) {
  for (auto [nodes, message] :
       {std::pair{R"([{"count": 2, "devices": 3}])",
                  "nodes: expected the devices of 8 ranks, found 6"},
        std::pair{R"([{"count": 8, "devices": 8}])", "found more"},
        std::pair{R"([{"count": 0, "devices": 8}])", "nodes[0].count"},
        std::pair{R"([{"count": 1, "devices": 8, "bandwidth": -1}])",
                  "nodes[0].bandwidth: expected bytes per second"}})
    try {
      planned(nodes);
      ADD_FAILURE() << nodes;
    } catch (const Error &error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
          << error.what();
    }
}

} // namespace
