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

TEST(TextTable, text_is_folded_between_words) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(foldText("one two three", 0), Lines{"one two three"});
  EXPECT_EQ(foldText("one two three", 8), (Lines{"one two", "three"}));
  EXPECT_EQ(foldText("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(foldText("  one two", 6), (Lines{"  one", "two"}));
  // A word is never cut.
  EXPECT_EQ(foldText("incomprehensible it is", 4),
            (Lines{"incomprehensible", "it", "is"}));
  EXPECT_EQ(foldedText("  one two three four five six seven", 26, 2),
            "  one two three four five\n    six seven");
  EXPECT_EQ(foldedText("  one two", 0, 2), "  one two");
}

TEST(TextTable, notes_are_folded_and_colours_take_no_place) {
  TableStyle style{30, /*colour=*/true};
  EXPECT_EQ(emphasised("x", Emphasis::Bold, {}), "x");
  TextTable table("lr");
  table.row({emphasised("ab", Emphasis::Bold, style), "1"});
  table.note("  a note of more letters than a line has");
  table.row({"abc", "22"});
  EXPECT_EQ(table.width(), 7u);
  std::string text;
  llvm::raw_string_ostream os(text);
  table.print(os, 1, style.columns);
  EXPECT_EQ(text, " \x1b[1mab\x1b[0m    1\n"
                  "   a note of more letters than\n"
                  "   a line has\n"
                  " abc  22\n");
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
