//===- json_tree_test.cpp - JSON that is read once ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/json_tree.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>

using namespace grt;
using Kind = JsonTree::Kind;

namespace {

/// A tree as values of another library, which reads JSON by itself.
nlohmann::ordered_json valueOf(const JsonTree &tree, uint32_t at) {
  switch (tree.kind(at)) {
  case Kind::Null:
    return nullptr;
  case Kind::False:
    return false;
  case Kind::True:
    return true;
  case Kind::Integer:
    if (const auto integer = tree.integer(at))
      return *integer;
    [[fallthrough]];
  case Kind::Number:
    return tree.number(at).value_or(0);
  case Kind::String:
    return std::string(tree.text(at));
  case Kind::List:
  case Kind::Object:
    break;
  }
  const bool isList = tree.kind(at) == Kind::List;
  auto value = isList ? nlohmann::ordered_json::array()
                      : nlohmann::ordered_json::object();
  for (uint32_t each = at + 1; each < tree.end(at); each = tree.end(each))
    if (isList)
      value.push_back(valueOf(tree, each));
    else
      value[std::string(tree.key(each))] = valueOf(tree, each);
  return value;
}

TEST(JsonTree, ValuesAndTheirPlaces) {
  const auto tree = JsonTree::parse(
      R"( {"a" : [1, -2.5e1, {"b": []}], "c\u00e9\n": "\ud83d\ude00 \"x\"",)"
      R"( "d": {"e": null, "f": true, "g": false}} )");
  ASSERT_TRUE(tree);
  const auto a = tree->find(0, "a"), c = tree->find(0, "c\u00e9\n"),
             d = tree->find(0, "d");
  ASSERT_TRUE(a && c && d);
  EXPECT_EQ(tree->kind(*a), Kind::List);
  EXPECT_EQ(tree->text(*a), "[1, -2.5e1, {\"b\": []}]");
  EXPECT_EQ(tree->integer(*a + 1), 1);
  EXPECT_EQ(tree->number(*a + 2), -25);
  EXPECT_EQ(tree->text(*c), "\U0001f600 \"x\"");
  EXPECT_EQ(tree->kind(*tree->find(*d, "e")), Kind::Null);
  EXPECT_EQ(tree->kind(*tree->find(*d, "f")), Kind::True);
  EXPECT_FALSE(tree->find(*d, "h"));
  // Members are read in any order, and again.
  EXPECT_EQ(tree->find(0, "a"), a);
  EXPECT_EQ(tree->find(0, "c\u00e9\n"), c);
  const auto b = tree->find(*a + 3, "b");
  ASSERT_TRUE(b);
  EXPECT_EQ(tree->pathOf(*b), "a[2].b");
  EXPECT_EQ(tree->pathOf(0), "");
  EXPECT_EQ(tree->pathOf(*tree->find(*d, "e")), "d.e");
  EXPECT_TRUE(tree->wasAskedFor(*b));
  EXPECT_FALSE(tree->wasAskedFor(*tree->find(*d, "f") + 1));
}

TEST(JsonTree, NumbersThatAreTooLarge) {
  const auto tree = JsonTree::parse(
      "[9223372036854775807, 9223372036854775808, -1, 1e999, 0.5]");
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->integer(1), INT64_MAX);
  EXPECT_EQ(tree->integer(2), std::nullopt);
  EXPECT_EQ(tree->number(2), 9223372036854775808.0);
  EXPECT_EQ(tree->integer(3), -1);
  EXPECT_EQ(tree->number(4), std::nullopt);
  EXPECT_EQ(tree->integer(5), std::nullopt);
}

TEST(JsonTree, WhatIsNoJson) {
  for (const char *text : {"",
                           " ",
                           "{",
                           "}",
                           "[1,]",
                           "[,1]",
                           "{\"a\":1,}",
                           "{\"a\"}",
                           "{a:1}",
                           "{1:1}",
                           "[1 2]",
                           "01",
                           "-",
                           "+1",
                           "1.",
                           ".5",
                           "1e",
                           "1e+",
                           "nul",
                           "truee",
                           "\"",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"\t\"",
                           "\"\xff\"",
                           "\"\xc3\"",
                           "[1]]",
                           "{}{}",
                           "[}",
                           "'a'",
                           "NaN",
                           "[1",
                           "\"a\\"})
    EXPECT_FALSE(JsonTree::parse(text)) << text;
  for (const char *text : {"0", "-0", "\"\"", " [ ] ", "{}", "1E-2", "null",
                           "\"\x7f\"", "{\"\":{\"\":[]}}"})
    EXPECT_TRUE(JsonTree::parse(text)) << text;
}

/// Deep nesting costs no stack.
TEST(JsonTree, DeepOnes) {
  const size_t depth = 1 << 16;
  const std::string open(depth, '['), close(depth, ']');
  const auto tree = JsonTree::parse(open + close);
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->size(), depth);
  EXPECT_FALSE(JsonTree::parse(open));
  EXPECT_FALSE(JsonTree::parse(open + close + "]"));
}

TEST(JsonTree, ReadsWhatAnotherLibraryReads) {
  const std::string good =
      R"({"a":[1,-2,3.25,1e3],"b\n":{"c":"\u00e9\\","d":[[],{},[{"e":"x"}]]},)"
      R"("f":null,"g":true,"h":false,"i":"\ud83d\ude00","j":-0.5e-3,"é":"ü"})";
  std::mt19937 random(1);
  const std::string letters = "{}[]\",:\\0123456789.-+eEntfu \n\x01\xc3\xa9x";
  auto below = [&](size_t count) { return size_t(random() % count); };
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (size_t i = below(3) + (round > 0); i > 0; --i) {
      const size_t at = below(text.size());
      switch (below(4)) {
      case 0:
        text[at] = letters[below(letters.size())];
        break;
      case 1:
        text.insert(at, 1, letters[below(letters.size())]);
        break;
      case 2:
        text.erase(at, 1 + below(3));
        text += '}';
        break;
      default:
        text.resize(at + 1);
      }
    }
    const auto expected = nlohmann::ordered_json::parse(
        text, nullptr, /*allow_exceptions=*/false);
    const auto tree = JsonTree::parse(text);
    ASSERT_EQ(tree.has_value(), !expected.is_discarded()) << text;
    if (tree)
      ASSERT_EQ(valueOf(*tree, 0), expected) << text;
  }
}

} // namespace
