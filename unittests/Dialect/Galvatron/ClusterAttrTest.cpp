//===- ClusterAttrTest.cpp - Clusters as attributes -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cluster in a module, and in a module's text, is the cluster that was given.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/MLIRContext.h"
#include "gtest/gtest.h"

using namespace galvatron;

namespace {

class ClusterAttrTest : public ::testing::Test {
protected:
  ClusterAttrTest() {
    context.loadDialect<mlir::galvatron::GalvatronDialect>();
  }

  void expectKept(const Cluster &cluster) {
    auto attribute = mlir::galvatron::ClusterAttr::get(&context, cluster);
    Cluster again = llvm::cantFail(attribute.toCluster());
    EXPECT_TRUE(again == cluster) << "expected\n"
                                  << cluster.toYaml() << "found\n"
                                  << again.toYaml();
    EXPECT_EQ(again.hash(), cluster.hash());
    std::string text;
    llvm::raw_string_ostream(text) << attribute;
    EXPECT_EQ(mlir::parseAttribute(text, &context), attribute) << text;
  }

  mlir::MLIRContext context;
};

TEST_F(ClusterAttrTest, built_in_clusters_are_kept) {
  for (const std::string &type : Cluster::builtinTypes())
    for (const char *shape : {"1x", "3x4x"})
      expectKept(llvm::cantFail(Cluster::builtin(shape + type)));
}

/// With all that a cluster may have, each number another one.
TEST_F(ClusterAttrTest, everything_that_is_optional_is_kept) {
  ClusterDescription full;
  full.name = "full";
  DeviceType fast;
  fast.name = "fast";
  fast.backend = "cuda";
  fast.memory = 1001;
  fast.reservedMemory = 102;
  fast.flops = {{"f32", 1.5e12}, {"bf16", 2.5e12}};
  fast.efficiency = EfficiencyCurve({{64, 0.25}, {128, 0.5}, {256, 0.75}});
  fast.attentionEfficiency = EfficiencyCurve({{32, 0.125}, {96, 0.375}});
  fast.memoryBandwidth = 3.5e9;
  fast.overlapSlowdown = 1.25;
  fast.kernelOverhead = 4.5e-6;
  fast.hostOverhead = 5.5e-6;
  fast.optimizerBandwidth = 6.5e9;
  fast.hostBandwidth = 7.5e9;
  fast.hostMemoryBandwidth = 8.5e9;
  DeviceType idle = fast;
  idle.name = "idle";
  idle.optimizerBandwidth = 0;
  DeviceType plain;
  plain.name = "plain";
  plain.backend = "cpu";
  plain.memory = 2002;
  plain.flops = {{"f64", 1e9}};
  plain.memoryBandwidth = 1e9;
  full.deviceTypes = {fast, idle, plain};
  full.nodes = {{2, "fast", 2, {9.5e9, 1.5e-6}, Link{1.5e8, 2.5e-6}, 4},
                {1, "idle", 2, {9e9, 3.5e-6}, std::nullopt, 0},
                {1, "plain", 1, {}, std::nullopt, 3}};
  full.network = Link{2.5e8, 4.5e-5};
  for (int64_t i = 0; i < 7; ++i) {
    full.matrix.emplace_back();
    for (int64_t j = 0; j < 7; ++j)
      full.matrix.back().push_back(1e8 + 10 * i + j);
  }
  for (int kind = 0; kind < kCollectiveCount; ++kind) {
    CollectiveTable table;
    table.kind = static_cast<Collective>(kind);
    table.ranks = table.kind == Collective::Send ? 2 : 2 + kind;
    table.acrossNodes = kind % 2;
    table.stride = kind;
    table.concurrent = 1 + kind;
    for (int64_t point = 1; point <= 3 - kind % 3; ++point)
      table.times.push_back({64 * point + kind, 1e-6 * (point + kind)});
    full.collectives.push_back(table);
  }
  expectKept(llvm::cantFail(Cluster::get(full)));
  // And nothing of it is made up.
  full.matrix.clear();
  full.collectives.clear();
  expectKept(llvm::cantFail(Cluster::get(full)));
}

} // namespace
