//===- JsonTest.cpp - Strict JSON objects ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Json.h"

#include "gtest/gtest.h"

using namespace galvatron;

namespace {

llvm::json::Value parse(const char *text) {
  return llvm::cantFail(parseJson(text, "test"));
}

std::string messageOf(llvm::Error error) {
  return llvm::toString(std::move(error));
}

TEST(Json, members_are_read) {
  llvm::json::Value value =
      parse(R"({"n": 3, "x": 1.5, "s": "text", "b": true, "a": [1]})");
  ObjectReader reader(value, "");
  EXPECT_EQ(reader.natural("n"), 3);
  EXPECT_EQ(reader.number("x"), 1.5);
  EXPECT_EQ(reader.string("s"), "text");
  EXPECT_TRUE(reader.booleanOr("b", false));
  EXPECT_EQ(reader.array("a")->size(), 1u);
  EXPECT_EQ(reader.naturalOr("missing", 7), 7);
  EXPECT_FALSE(llvm::errorToBool(reader.finish()));
}

TEST(Json, errors_name_the_path) {
  llvm::json::Value value = parse(R"({"n": "three", "extra": 1, "m": -1})");
  {
    ObjectReader reader(value, "layers[3]");
    reader.integer("n");
    EXPECT_EQ(messageOf(reader.finish()),
              "'layers[3].n': expected an integer, found a string");
  }
  {
    ObjectReader reader(value, "");
    reader.integer("count");
    EXPECT_EQ(messageOf(reader.finish()), "missing key 'count'");
  }
  {
    ObjectReader reader(value, "");
    reader.natural("m");
    EXPECT_EQ(messageOf(reader.finish()),
              "'m': expected an integer of at least 0, found -1");
  }
  {
    ObjectReader reader(value, "");
    reader.has("n");
    reader.has("m");
    EXPECT_EQ(messageOf(reader.finish()), "unknown key 'extra'");
  }
  {
    ObjectReader reader(parse("[1]"), "");
    EXPECT_EQ(messageOf(reader.finish()),
              "document: expected an object, found an array");
  }
}

TEST(Json, compact_text_keeps_numbers_and_strings) {
  EXPECT_EQ(compactJson("{ \"a b\" : 1.0,\n\t\"c\\\" d\": [1, 1e-05 ] }\n"),
            "{\"a b\":1.0,\"c\\\" d\":[1,1e-05]}");
}

TEST(Json, misspelt_keys_are_told_with_the_nearest) {
  llvm::json::Value value = parse(R"({"forward_ms": 1, "backward-ms": 2})");
  {
    // Missing, because it is misspelt.
    ObjectReader reader(value, "layers[0]");
    reader.number("forward-ms");
    reader.number("backward-ms");
    EXPECT_EQ(messageOf(reader.finish()),
              "unknown key 'layers[0].forward_ms'; did you mean 'forward-ms'?");
  }
  {
    ObjectReader reader(value, "");
    reader.numberOr("forward-ms", 0);
    reader.number("backward-ms");
    EXPECT_EQ(messageOf(reader.finish()),
              "unknown key 'forward_ms'; did you mean 'forward-ms'?");
  }
  {
    // Neither unknown key resembles what is missing.
    ObjectReader reader(value, "");
    reader.integer("count");
    EXPECT_EQ(messageOf(reader.finish()), "missing key 'count'");
  }
  {
    // What was wrong before it comes first, unless that is the key missing.
    ObjectReader reader(value, "");
    reader.string("backward-ms");
    reader.numberOr("forward-ms", 0);
    EXPECT_EQ(messageOf(reader.finish()),
              "'backward-ms': expected a string, found a number");
  }
}

TEST(Json, syntax_errors_carry_name_and_line) {
  llvm::Expected<llvm::json::Value> value =
      parseJson("{\n  \"a\": }", "x.json");
  ASSERT_FALSE(value);
  EXPECT_EQ(messageOf(value.takeError()),
            "x.json:2:8: invalid JSON: expected a value");
  // Brackets in strings are no levels.
  EXPECT_TRUE(bool(parseJson("\"" + std::string(5000, '[') + "\"", "x.json")));
  value = parseJson(std::string(1000000, '['), "x.json");
  ASSERT_FALSE(bool(value));
  EXPECT_EQ(llvm::toString(value.takeError()),
            "x.json: invalid JSON: nested too deeply");
  value = parseJson("{\"a\": 1", "x.json");
  ASSERT_FALSE(value);
  EXPECT_EQ(messageOf(value.takeError()),
            "x.json:1:7: invalid JSON: expected , or } after object property");
}

} // namespace
