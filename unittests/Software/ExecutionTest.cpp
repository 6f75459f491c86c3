//===- ExecutionTest.cpp - Executions and requests ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

std::string messageOf(llvm::Error error) {
  return llvm::toString(std::move(error));
}

TEST(Execution, HaveASourceAndWhatTheyAreLike) {
  std::vector<std::string> names = Execution::names();
  EXPECT_GE(names.size(), 10u);
  for (const std::string &name : names) {
    Execution execution = llvm::cantFail(Execution::named(name));
    EXPECT_FALSE(execution.source.empty()) << name;
    EXPECT_FALSE(execution.software.empty()) << name;
  }
  Execution megatron = llvm::cantFail(Execution::named("megatron-2020"));
  Execution bloom = llvm::cantFail(Execution::named("deepspeed-bloom"));
  EXPECT_TRUE(megatron.launches);
  EXPECT_FALSE(megatron.waits);
  // Of deepspeed-2021, of megatron-2020 behind it, and its own.
  EXPECT_TRUE(bloom.sumsEverywhere);
  EXPECT_TRUE(bloom.keepsScores);
  EXPECT_FALSE(bloom.launches);
  EXPECT_TRUE(bloom.waits);
  EXPECT_EQ(bloom.figure, MemoryFigure::Card);
}

TEST(Execution, ConstantsAreThoseOfTheCard) {
  Execution fused = llvm::cantFail(Execution::named("fused"));
  EXPECT_EQ(fused.attentionOn("a100-80gb"), 0.36);
  EXPECT_EQ(fused.attentionOn("h100"), 0.245);
  EXPECT_EQ(fused.attentionOn("another"), 0.245);
  EXPECT_EQ(fused.productsOn("h100"), 0.83);
  EXPECT_EQ(fused.productsOn("h200"), 0.83);
  EXPECT_EQ(fused.productsOn("a100-80gb"), 1);
  EXPECT_EQ(fused.contextOn("v100-16gb"), 3.75e9);
  EXPECT_EQ(fused.contextOn("h100"), 0);
  Execution titan = llvm::cantFail(Execution::named("torchtitan"));
  EXPECT_EQ(titan.attentionOn("h200"), 0.50);
  EXPECT_EQ(titan.figure, MemoryFigure::Reserved);
}

TEST(Execution, FactsAreSetByName) {
  Execution execution = llvm::cantFail(Execution::named("fused"));
  EXPECT_EQ(messageOf(execution.set({{"overlaps", "off"},
                                     {"logit-bytes", "8"},
                                     {"gradient-copies", "stay"},
                                     {"figure", "card"},
                                     {"wait-us", "12.5"},
                                     {"attention", "0.5"}})),
            "");
  EXPECT_FALSE(execution.overlaps);
  EXPECT_EQ(execution.logitBytes, 8);
  EXPECT_EQ(execution.gradientCopies, GradientCopies::Stay);
  EXPECT_EQ(execution.waitUs, 12.5);
  EXPECT_EQ(execution.attentionOn("a100-80gb"), 0.5);
  EXPECT_EQ(messageOf(execution.set({{"overlaps", "maybe"}})),
            "fact 'overlaps' of an execution: expected 'on' or 'off', found "
            "'maybe'");
  EXPECT_EQ(messageOf(execution.set({{"logit-bytes", "-1"}})),
            "fact 'logit-bytes' of an execution: expected a count of at least "
            "0, found '-1'");
  EXPECT_EQ(messageOf(execution.set({{"wait-us", "nan"}})),
            "fact 'wait-us' of an execution: expected a number of at least 0, "
            "found 'nan'");
  std::string unknown = messageOf(execution.set({{"overlap", "on"}}));
  EXPECT_NE(unknown.find("did you mean 'overlaps'?"), std::string::npos)
      << unknown;
}

TEST(SoftwareRequest, ReadsAndRefuses) {
  SoftwareRequest request =
      llvm::cantFail(SoftwareRequest::parse("execution:alpa,launches=off"));
  EXPECT_TRUE(request.execution);
  EXPECT_EQ(request.name, "alpa");
  ASSERT_EQ(request.options.size(), 1u);
  EXPECT_EQ(request.options[0].second, "off");
  for (auto [text, message] :
       {std::pair("", "expected a name in front, found ''"),
        std::pair("execution:", "expected a name in front, found 'execution:'"),
        std::pair("megatron,version",
                  "expected OPTION=VALUE behind 'megatron', found 'version'"),
        std::pair("megatron,a=1,a=2", "option 'a' is given twice")})
    EXPECT_EQ(messageOf(SoftwareRequest::parse(text).takeError()), message);
  SoftwareRequest unknown{false, "megatrom", {}};
  EXPECT_EQ(messageOf(TargetRegistry::make(unknown).takeError()),
            "unknown software 'megatrom', expected megatron, torchtitan, fsdp, "
            "deepspeed, nanotron, hetu-galvatron; did you mean 'megatron'?");
}

} // namespace
