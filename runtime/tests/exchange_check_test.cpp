//===- exchange_check_test.cpp - What exchanges have to move --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/exchange_check.h"

#include <gtest/gtest.h>

#include <functional>

using namespace grt;

namespace {

/// The exchange is from four ranks with two samples each to four of which two
/// pairs have four each, on the same devices.
struct Boundary {
  Role role;
  Layer front, behind;
  Exchange exchange;
  uint64_t unit = 64;

  Boundary() {
    role.devices = {4, 5, 6, 7};
    front.samples = 2;
    front.levels = {{GRT_AXIS_DP, 4, 1}};
    behind.samples = 4;
    behind.levels = {{GRT_AXIS_SDP, 2, 2}, {GRT_AXIS_TP, 2, 1}};
    exchange.name = "e";
    exchange.bytesPerUnit = unit;
    for (int pair = 0; pair < 2; ++pair)
      for (int to = 0; to < 2; ++to)
        for (int from = 0; from < 2; ++from)
          exchange.transfers.push_back(
              {4 + 2 * pair + from, 4 + 2 * pair + to, 0, 2 * from, 2});
  }

  std::string refusal() const {
    return guarded([&] {
             checkExchange(exchange, {&role, &front, 2 * unit},
                           {&role, &behind, 4 * unit});
           })
        .message();
  }
  std::string refusalOf(const std::function<void(Boundary &)> &change) const {
    Boundary changed = *this;
    change(changed);
    return changed.refusal();
  }
};

using Change = std::function<void(Boundary &)>;

TEST(ExchangeCheck, SamplesAreThoseOfBothEnds) {
  const Boundary good;
  ASSERT_EQ(good.refusal(), "");
  const std::pair<Change, std::string> wrong[] = {
      {[](Boundary &b) { b.exchange.transfers[3].source = 6; },
       "expected sample 2 as unit 2 of rank 5, found sample 4, unit 0 of rank "
       "6"},
      {[](Boundary &b) { b.exchange.transfers[3].source = 3; },
       "source rank 3 is not in stage 0"},
      {[](Boundary &b) { b.exchange.transfers[0].destination = 6; },
       "expected every unit of rank 6 from one rank, found unit 0 from ranks 4 "
       "and 6"},
      {[](Boundary &b) { b.exchange.transfers[0].destination = 8; },
       "destination rank 8 is not in stage 0"},
      {[](Boundary &b) {
         b.exchange.transfers[0].units = 1;
         b.exchange.transfers[0].sourceUnit = 1;
       },
       "expected sample 0 as unit 0 of rank 4, found sample 1, unit 1 of rank "
       "4"},
      {[](Boundary &b) { b.exchange.transfers[0].units = 1; },
       "expected 4 units to rank 4, found 3"},
      {[](Boundary &b) { b.exchange.transfers.pop_back(); },
       "expected 4 units to rank 7, found 2"},
      {[](Boundary &b) { b.exchange.transfers.push_back({7, 7, 0, 2, 2}); },
       "expected every unit of rank 7 from one rank, found unit 2 from ranks 7 "
       "and 7"},
      {[](Boundary &b) { b.exchange.transfers[0].units = 3; },
       "source rank 4 needs 3 units of 64 bytes in a buffer of 128"},
      {[](Boundary &b) { b.exchange.transfers[1].destinationUnit = 3; },
       "destination rank 4 needs 5 units of 64 bytes in a buffer of 256"},
      {[](Boundary &b) {
         b.behind.levels = {{GRT_AXIS_TP, 2, 2}, {GRT_AXIS_SDP, 2, 1}};
       },
       "expected sample 4 as unit 0 of rank 5, found sample 0, unit 0 of rank "
       "4"}};
  for (const auto &[change, message] : wrong) {
    const std::string found = good.refusalOf(change);
    EXPECT_EQ(found, "manifest: exchange 'e': " + message);
  }
}

/// Any one of several ranks that hold a sample may give it.
TEST(ExchangeCheck, AnyHolderMayGiveASample) {
  Boundary back;
  std::swap(back.front, back.behind);
  back.exchange.transfers = {
      {5, 4, 0, 0, 2}, {4, 5, 2, 0, 2}, {6, 6, 0, 0, 2}, {6, 7, 2, 0, 2}};
  auto refusal = [&] {
    return guarded([&] {
             checkExchange(back.exchange, {&back.role, &back.front, 256},
                           {&back.role, &back.behind, 128});
           })
        .message();
  };
  EXPECT_EQ(refusal(), "");
  back.exchange.transfers[0].source = 6;
  EXPECT_NE(refusal(), "");
}

TEST(ExchangeCheck, TensorsLieInOneOrder) {
  Boundary two;
  two.exchange.bytesPerUnit = 64;
  two.exchange.tensors = {{32, 0, 0}, {32, 64, 128}};
  ASSERT_EQ(two.refusal(), "");
  const std::string place = "manifest: exchange 'e': ";
  EXPECT_EQ(two.refusalOf([](Boundary &b) {
    std::swap(b.exchange.tensors[0].source, b.exchange.tensors[1].source);
  }),
            place + "expected a tensor of 32 bytes from 0 to 0, found it from "
                    "64 to 0");
  EXPECT_EQ(
      two.refusalOf([](Boundary &b) { b.exchange.tensors[1].destination = 0; }),
      place + "expected a tensor of 32 bytes from 64 to 128, found it "
              "from 64 to 0");
}

TEST(ExchangeCheck, WhetherRanksHaveTheSameSamples) {
  Boundary b;
  EXPECT_TRUE(haveSameSamples(b.role, b.front, b.front));
  EXPECT_FALSE(haveSameSamples(b.role, b.front, b.behind));
  // Sharded or not, samples are cut alike.
  Layer sharded = b.front;
  sharded.levels[0].axis = GRT_AXIS_SDP;
  EXPECT_TRUE(haveSameSamples(b.role, b.front, sharded));
  // The ranks are as many, but in another order.
  Layer inner = b.behind, outer = b.behind;
  outer.levels = {{GRT_AXIS_TP, 2, 2}, {GRT_AXIS_SDP, 2, 1}};
  EXPECT_FALSE(haveSameSamples(b.role, inner, outer));
}

} // namespace
