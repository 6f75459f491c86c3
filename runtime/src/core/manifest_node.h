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
#include "base/json_tree.h"
#include "core/manifest.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace grt::parsing {

/// Bound on every count and offset, so that sums and products of two of them
/// cannot overflow where they are checked.
inline constexpr int64_t largest = int64_t(1) << 52;

[[noreturn]] inline void bad(const std::string &path, const std::string &what) {
  invalid("manifest: " + (path.empty() ? what : path + ": " + what));
}

/// The JSON of a manifest, and the keys that were looked for in its objects. An
/// object has no others: a key that is misspelt, or means nothing where it
/// stands, would otherwise be a default.
class Document {
public:
  /// Throws Error if `text`, which must outlive the document, is not JSON.
  explicit Document(std::string_view text);

  /// Throws Error for the first key that was not looked for.
  void check() const;

private:
  friend class Node;
  [[noreturn]] void refuse(uint32_t object, uint32_t member) const;

  const JsonTree tree;
  /// Keys that objects may have and did not, and objects with other keys, which
  /// are not looked at.
  std::vector<std::pair<uint32_t, const char *>> absent;
  std::set<uint32_t> free;
};

/// A JSON value and where it stands, for messages.
class Node {
public:
  explicit Node(Document &document) : Node(document, 0) {}

  [[noreturn]] void error(const std::string &what) const {
    bad(tree().pathOf(value), what);
  }
  /// Its keys may be any, and so may be what they name.
  void allowOthers() const { document->free.insert(value); }
  /// Its JSON, which may have any keys.
  std::string_view json() const {
    allowOthers();
    return tree().text(value);
  }

  Node at(const char *key) const {
    if (tree().kind(value) != Kind::Object)
      error("expected an object");
    const auto found = tree().find(value, key);
    if (!found)
      error(std::string("missing key '") + key + "'");
    return Node(*document, *found);
  }
  bool has(const char *key) const {
    if (tree().kind(value) != Kind::Object)
      return false;
    const auto found = tree().find(value, key);
    if (!found)
      document->absent.emplace_back(value, key);
    return found && tree().kind(*found) != Kind::Null;
  }
  bool isList() const { return tree().kind(value) == Kind::List; }
  /// The values of an object by key, which may be any.
  std::vector<std::pair<std::string, Node>> entries() const {
    if (tree().kind(value) != Kind::Object)
      error("expected an object");
    allowOthers();
    std::vector<std::pair<std::string, Node>> nodes;
    forEach([&](uint32_t entry) {
      nodes.emplace_back(tree().key(entry), Node(*document, entry));
    });
    return nodes;
  }
  std::vector<Node> list() const {
    if (!isList())
      error("expected a list");
    std::vector<Node> nodes;
    forEach([&](uint32_t entry) { nodes.push_back(Node(*document, entry)); });
    return nodes;
  }
  int64_t integer(int64_t least = 0, int64_t most = largest) const {
    if (tree().kind(value) != Kind::Integer)
      error("expected an integer");
    const std::optional<int64_t> number = tree().integer(value);
    if (!number)
      error("integer out of range");
    if (*number < least || *number > most)
      error("expected an integer from " + str(least) + " to " + str(most) +
            ", found " + str(*number));
    return *number;
  }
  uint64_t offset() const {
    uint64_t number = uint64_t(integer());
    if (number % GRT_ALIGNMENT)
      error("expected a multiple of " + str(GRT_ALIGNMENT) + ", found " +
            str(int64_t(number)));
    return number;
  }
  double number() const {
    const Kind kind = tree().kind(value);
    if (kind != Kind::Integer && kind != Kind::Number)
      error("expected a number");
    const std::optional<double> number = tree().number(value);
    if (!number)
      error("number out of range");
    return *number;
  }
  bool boolean() const {
    const Kind kind = tree().kind(value);
    if (kind != Kind::True && kind != Kind::False)
      error("expected true or false");
    return kind == Kind::True;
  }
  std::string string() const {
    if (tree().kind(value) != Kind::String)
      error("expected a string");
    return std::string(tree().text(value));
  }
  std::vector<int64_t> integers(int64_t least) const {
    if (!isList())
      error("expected a list");
    std::vector<int64_t> numbers;
    forEach([&](uint32_t entry) {
      numbers.push_back(Node(*document, entry).integer(least));
    });
    return numbers;
  }

private:
  using Kind = JsonTree::Kind;
  Node(Document &document, uint32_t value)
      : document(&document), value(value) {}
  const JsonTree &tree() const { return document->tree; }
  /// Calls `visit` with what is in a list or an object.
  template <class F> void forEach(F visit) const {
    for (uint32_t entry = value + 1; entry < tree().end(value);
         entry = tree().end(entry))
      visit(entry);
  }

  Document *document;
  uint32_t value;
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
