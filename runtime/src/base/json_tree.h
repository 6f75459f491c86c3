//===- json_tree.h - JSON that is read once ---------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A manifest has a value for every number of every tensor of every layer, and
// is read from front to back once. So its values are rows of one table in the
// order of the text, which they refer to: reading it allocates nothing for each
// of them. Source: RFC 8259.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_JSON_TREE_H
#define GRT_BASE_JSON_TREE_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

class JsonTree {
public:
  enum class Kind : uint8_t {
    Null,
    False,
    True,
    Integer, ///< a number without fraction and exponent, of any length
    Number,
    String,
    List,
    Object
  };

  /// Parses a text, which must outlive the tree; none if it is not JSON, or not
  /// below 2 GiB. Values are numbered in the order of the text; the outermost
  /// one is 0. Of two members with one name `find` knows the first.
  static std::optional<JsonTree> parse(std::string_view text);

  uint32_t size() const { return uint32_t(values.size()); }
  Kind kind(uint32_t value) const { return values[value].kind; }
  bool isContainer(uint32_t value) const { return kind(value) >= Kind::List; }

  /// The first value that is in neither `value` nor in front of it. What is in
  /// a list or an object has the numbers between the two: the first value is
  /// `value` + 1, and each one behind that is the end of the one before.
  uint32_t end(uint32_t value) const { return values[value].end; }
  /// Whether a value is one of an object's.
  bool isMember(uint32_t value) const { return values[value].isMember; }
  /// The name of an object's value.
  std::string_view key(uint32_t value) const {
    return slice(values[value].key);
  }
  /// The characters of a string; the JSON of any other value.
  std::string_view text(uint32_t value) const {
    return slice(values[value].text);
  }
  /// A number as a double; none if it is too large for one.
  std::optional<double> number(uint32_t value) const;
  /// An integer; none if it does not fit into 64 bits.
  std::optional<int64_t> integer(uint32_t value) const;

  /// The member of an object, which becomes one that was asked for; none if
  /// there is none.
  std::optional<uint32_t> find(uint32_t object, std::string_view key) const;
  bool wasAskedFor(uint32_t value) const { return values[value].wasAskedFor; }

  /// The path of a value, as `roles[0].layers`; "" for the outermost one.
  std::string pathOf(uint32_t value) const;

private:
  friend class JsonParser;

  /// Bytes of the text, or of those that were escaped in it, which are behind.
  struct Slice {
    uint32_t begin = 0, bytes = 0;
  };
  struct Value {
    Slice key, text;
    uint32_t end = 0;
    /// The member of an object at which the next search begins: members are
    /// mostly asked for in the order of the text.
    mutable uint32_t next = 0;
    Kind kind = Kind::Null;
    bool isMember = false;
    mutable bool wasAskedFor = false;
  };

  std::string_view slice(Slice of) const {
    return of.begin < whole.size() ? whole.substr(of.begin, of.bytes)
                                   : std::string_view(escaped).substr(
                                         of.begin - whole.size(), of.bytes);
  }

  std::string_view whole;
  std::string escaped;
  std::vector<Value> values;
};

} // namespace grt

#endif // GRT_BASE_JSON_TREE_H
