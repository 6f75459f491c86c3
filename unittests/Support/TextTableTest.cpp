//===- TextTableTest.cpp - Columns of text --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/TextTable.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

TEST(TextTable, columns_are_as_wide_as_their_widest_cell) {
  TextTable table("lr");
  table.row({"name", "n"});
  table.note("a note that is longer than any column");
  table.row({"x", "1000"});
  table.row({"only"});
  std::string text;
  llvm::raw_string_ostream os(text);
  table.print(os, 1);
  EXPECT_EQ(text, " name     n\n"
                  " a note that is longer than any column\n"
                  " x     1000\n"
                  " only\n");
}

TEST(TextTable, numbers) {
  EXPECT_EQ(printMilliseconds(1.23456), "1.235 ms");
  EXPECT_EQ(printMilliseconds(123456.7), "123457 ms");
  EXPECT_EQ(printPercent(0.12345), "12.3%");
  EXPECT_EQ(printPercent(0.999, 0), "100%");
  EXPECT_EQ(printPercent(-1e-9), "0.0%");
  EXPECT_EQ(printChange(0.05), "+5.0%");
  EXPECT_EQ(printChange(-0.05), "-5.0%");
  EXPECT_EQ(printChange(0), "+0.0%");
  EXPECT_EQ(printBar(0.5, 4), "##..");
  EXPECT_EQ(printBar(7, 4), "####");
  EXPECT_EQ(printBar(-1, 4), "....");
}

} // namespace
