//===- manifest_node.h - JSON of a manifest, with its place ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For the files that parse manifests.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_MANIFEST_NODE_H
#define GRT_CORE_MANIFEST_NODE_H

#include "base/error.h"
#include "core/manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

namespace grt::parsing {

using Json = nlohmann::ordered_json;

/// Bound on every count and offset, so that sums and products of two of them
/// cannot overflow where they are checked.
inline constexpr int64_t largest = int64_t(1) << 52;

[[noreturn]] inline void bad(const std::string &path, const std::string &what) {
  invalid("manifest: " + (path.empty() ? what : path + ": " + what));
}

/// The keys that were looked for in each object of a manifest, whether they
/// were there or not. An object has no others: a key that is misspelt, or means
/// nothing where it stands, would otherwise be a default.
class KeysRead {
public:
  /// The object has a key of its own or may have it.
  void add(const Json &object, const char *key) {
    std::vector<const char *> &names = objects[&object].names;
    if (std::find(names.begin(), names.end(), key) == names.end())
      names.push_back(key);
  }
  /// The object has other keys, which are not looked at.
  void allowOthers(const Json &object) { objects[&object].othersToo = true; }
  /// Throws Error for the first key of `value`, or of what is in it, that was
  /// not looked for.
  void check(const Json &value, const std::string &path) const;

private:
  struct Object {
    std::vector<const char *> names;
    bool othersToo = false;
  };
  std::unordered_map<const Json *, Object> objects;
};

/// A JSON value and where it stands, for messages.
class Node {
public:
  Node(const Json &value, std::string path, KeysRead &keys)
      : value(&value), path(std::move(path)), keys(&keys) {}

  [[noreturn]] void error(const std::string &what) const { bad(path, what); }
  /// Its keys may be any, and so may be what they name.
  void allowOthers() const { keys->allowOthers(*value); }
  const Json &json() const {
    allowOthers();
    return *value;
  }

  Node at(const char *key) const {
    if (!value->is_object())
      error("expected an object");
    keys->add(*value, key);
    auto it = value->find(key);
    if (it == value->end())
      error(std::string("missing key '") + key + "'");
    return Node(*it, path.empty() ? key : path + "." + key, *keys);
  }
  bool has(const char *key) const {
    if (!value->is_object())
      return false;
    keys->add(*value, key);
    auto it = value->find(key);
    return it != value->end() && !it->is_null();
  }
  bool isList() const { return value->is_array(); }
  /// The values of an object by key, which may be any.
  std::vector<std::pair<std::string, Node>> entries() const {
    if (!value->is_object())
      error("expected an object");
    std::vector<std::pair<std::string, Node>> nodes;
    for (const auto &[key, entry] : json().items())
      nodes.emplace_back(key, Node(entry, path + "." + key, *keys));
    return nodes;
  }
  std::vector<Node> list() const {
    if (!value->is_array())
      error("expected a list");
    std::vector<Node> nodes;
    nodes.reserve(value->size());
    for (size_t i = 0; i < value->size(); ++i)
      nodes.emplace_back((*value)[i], path + "[" + str(i) + "]", *keys);
    return nodes;
  }
  int64_t integer(int64_t least = 0, int64_t most = largest) const {
    if (!value->is_number_integer())
      error("expected an integer");
    if (value->is_number_unsigned() &&
        value->get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
      error("integer out of range");
    int64_t number = value->get<int64_t>();
    if (number < least || number > most)
      error("expected an integer from " + str(least) + " to " + str(most) +
            ", found " + str(number));
    return number;
  }
  uint64_t offset() const {
    uint64_t number = uint64_t(integer());
    if (number % GRT_ALIGNMENT)
      error("expected a multiple of " + str(GRT_ALIGNMENT) + ", found " +
            str(int64_t(number)));
    return number;
  }
  double number() const {
    if (!value->is_number())
      error("expected a number");
    return value->get<double>();
  }
  bool boolean() const {
    if (!value->is_boolean())
      error("expected true or false");
    return value->get<bool>();
  }
  std::string string() const {
    if (!value->is_string())
      error("expected a string");
    return value->get<std::string>();
  }
  std::vector<int64_t> integers(int64_t least) const {
    std::vector<int64_t> numbers;
    for (const Node &node : list())
      numbers.push_back(node.integer(least));
    return numbers;
  }

private:
  const Json *value;
  std::string path;
  KeysRead *keys;
};

inline int64_t product(const Node &node, const std::vector<int64_t> &shape) {
  int64_t total = 1;
  for (int64_t dim : shape) {
    if (dim > 0 && total > largest / dim)
      node.error("too many elements");
    total *= dim;
  }
  return total;
}

/// An index into a table of `count` entries, or -1 for null or absent.
inline int optionalIndex(const Node &node, const char *key, size_t count) {
  if (!node.has(key))
    return -1;
  return int(node.at(key).integer(0, int64_t(count) - 1));
}

inline Extent parseExtent(const Node &node) {
  std::vector<Node> pair = node.list();
  if (pair.size() != 2)
    node.error("expected [offset, bytes]");
  return Extent{pair[0].offset(), uint64_t(pair[1].integer())};
}

inline bool contains(const Extent &outer, uint64_t offset, uint64_t bytes) {
  return offset >= outer.offset && offset + bytes <= outer.offset + outer.bytes;
}

/// A role with its layers and its arena (manifest_role.cpp); what it names of
/// the manifest is there.
Role parseRole(const Node &node, const Manifest &manifest);

} // namespace grt::parsing

#endif // GRT_CORE_MANIFEST_NODE_H
