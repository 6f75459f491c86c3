//===- json_tree.cpp - JSON that is read once -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/json_tree.h"
#include "base/utf8.h"

#include <charconv>
#include <utility>

namespace grt {

/// Reads a text from front to back. Containers that are open stand on a stack
/// of its own, so how deep they nest costs memory in proportion to the text.
class JsonParser {
public:
  JsonParser(std::string_view text, JsonTree &tree) : text(text), tree(tree) {
    tree.whole = text;
    // A value for about every ten bytes, as manifests have.
    tree.values.reserve(text.size() / 10 + 1);
  }

  bool run() {
    JsonTree::Slice key;
    skipSpace();
    do {
      const auto number = uint32_t(tree.values.size());
      JsonTree::Value &value = tree.values.emplace_back();
      value.key = key;
      value.isMember = !open.empty() && isObject(open.back());
      if (!readValue(value))
        return false;
      if (tree.isContainer(number))
        open.push_back(number);
      // The first value of a container that has any follows.
      const bool isEntered = tree.isContainer(number) && !closes();
      if (isEntered ? !beginMember(key) : !readBehind(key))
        return false;
    } while (!open.empty());
    return at == text.size();
  }

private:
  bool isObject(uint32_t value) const {
    return tree.kind(value) == JsonTree::Kind::Object;
  }
  bool has(char letter) const { return at < text.size() && text[at] == letter; }
  bool take(char letter) {
    if (!has(letter))
      return false;
    ++at;
    return true;
  }
  bool hasDigit() const {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  }
  void skipSpace() {
    while (has(' ') || has('\n') || has('\t') || has('\r'))
      ++at;
  }
  JsonTree::Slice since(size_t begin) const {
    return {uint32_t(begin), uint32_t(at - begin)};
  }

  bool closes() {
    skipSpace();
    return has(isObject(open.back()) ? '}' : ']');
  }
  /// The name of a member, where the open container is an object.
  bool beginMember(JsonTree::Slice &key) {
    key = {};
    skipSpace();
    if (!isObject(open.back()))
      return true;
    if (!has('"') || !readString(key))
      return false;
    skipSpace();
    if (!take(':'))
      return false;
    skipSpace();
    return true;
  }
  /// Ends the containers that end behind a value; then the next value follows,
  /// or the text ends.
  bool readBehind(JsonTree::Slice &key) {
    for (skipSpace(); !open.empty(); skipSpace()) {
      if (closes()) {
        ++at;
        JsonTree::Value &container = tree.values[open.back()];
        container.end = tree.size();
        container.text = since(container.text.begin);
        open.pop_back();
        continue;
      }
      return take(',') && beginMember(key);
    }
    return true;
  }

  bool readValue(JsonTree::Value &value) {
    using Kind = JsonTree::Kind;
    const size_t begin = at;
    const char first = at < text.size() ? text[at] : '\0';
    value.end = tree.size();
    value.next = value.end;
    if (first == '{' || first == '[') {
      ++at;
      value.kind = first == '{' ? Kind::Object : Kind::List;
      value.text.begin = uint32_t(begin);
      return true;
    }
    if (first == '"') {
      value.kind = Kind::String;
      return readString(value.text);
    }
    if (first == '-' || hasDigit()) {
      if (!readNumber(value.kind))
        return false;
      value.text = since(begin);
      return true;
    }
    static constexpr std::pair<std::string_view, Kind> words[] = {
        {"null", Kind::Null}, {"true", Kind::True}, {"false", Kind::False}};
    for (const auto &[word, kind] : words)
      if (text.substr(at).starts_with(word)) {
        at += word.size();
        value.kind = kind;
        value.text = since(begin);
        return true;
      }
    return false;
  }

  bool readNumber(JsonTree::Kind &kind) {
    auto digits = [&] {
      const size_t begin = at;
      while (hasDigit())
        ++at;
      return at > begin;
    };
    kind = JsonTree::Kind::Integer;
    take('-');
    if (!take('0') && !digits())
      return false;
    if (take('.')) {
      kind = JsonTree::Kind::Number;
      if (!digits())
        return false;
    }
    if (take('e') || take('E')) {
      kind = JsonTree::Kind::Number;
      if (!take('+'))
        take('-');
      return digits();
    }
    return true;
  }

  /// A string from its first quotation mark on.
  bool readString(JsonTree::Slice &slice) {
    const size_t begin = ++at;
    if (!skipPlain())
      return false;
    slice = since(begin);
    if (take('"'))
      return true;
    // What has escapes is written out behind the text.
    const size_t from = tree.escaped.size();
    tree.escaped += text.substr(begin, at - begin);
    while (!take('"')) {
      if (!readEscape())
        return false;
      const size_t rest = at;
      if (!skipPlain())
        return false;
      tree.escaped += text.substr(rest, at - rest);
    }
    slice = {uint32_t(text.size() + from),
             uint32_t(tree.escaped.size() - from)};
    return true;
  }
  /// Up to a quotation mark or a backslash; false if there is none, or there is
  /// what no string has.
  bool skipPlain() {
    while (at < text.size()) {
      const auto letter = uint8_t(text[at]);
      if (letter == '"' || letter == '\\')
        return true;
      if (letter < 0x20)
        return false;
      const size_t bytes = letter < 0x80 ? 1 : utf8Bytes(text.substr(at));
      if (!bytes)
        return false;
      at += bytes;
    }
    return false;
  }
  /// Four hexadecimal digits; none if they are not.
  std::optional<uint32_t> readUnit() {
    uint32_t unit = 0;
    if (text.size() - at < 4)
      return std::nullopt;
    const char *begin = text.data() + at, *end = begin + 4;
    const auto [behind, error] = std::from_chars(begin, end, unit, 16);
    if (error != std::errc() || behind != end)
      return std::nullopt;
    at += 4;
    return unit;
  }
  bool readEscape() {
    static constexpr std::string_view letters = "\"\\/bfnrt",
                                      meanings = "\"\\/\b\f\n\r\t";
    if (!take('\\') || at == text.size())
      return false;
    if (const size_t known = letters.find(text[at]);
        known != std::string_view::npos) {
      ++at;
      tree.escaped += meanings[known];
      return true;
    }
    if (!take('u'))
      return false;
    const std::optional<uint32_t> unit = readUnit();
    if (!unit || (*unit >= 0xdc00 && *unit < 0xe000))
      return false;
    if (*unit < 0xd800 || *unit >= 0xe000) {
      addCharacter(*unit);
      return true;
    }
    // The first of two units, which are one character.
    if (!take('\\') || !take('u'))
      return false;
    const std::optional<uint32_t> second = readUnit();
    if (!second || *second < 0xdc00 || *second >= 0xe000)
      return false;
    addCharacter(0x10000 + ((*unit - 0xd800) << 10) + (*second - 0xdc00));
    return true;
  }
  void addCharacter(uint32_t code) {
    auto rest = [&](int shift) {
      tree.escaped += char(0x80 | ((code >> shift) & 0x3f));
    };
    if (code < 0x80) {
      tree.escaped += char(code);
    } else if (code < 0x800) {
      tree.escaped += char(0xc0 | (code >> 6));
      rest(0);
    } else if (code < 0x10000) {
      tree.escaped += char(0xe0 | (code >> 12));
      rest(6), rest(0);
    } else {
      tree.escaped += char(0xf0 | (code >> 18));
      rest(12), rest(6), rest(0);
    }
  }

  const std::string_view text;
  JsonTree &tree;
  size_t at = 0;
  std::vector<uint32_t> open; ///< containers that have begun, outermost first
};

std::optional<JsonTree> JsonTree::parse(std::string_view text) {
  JsonTree tree;
  // What is escaped is counted on behind the text.
  if (text.size() >= (uint64_t(1) << 31) || !JsonParser(text, tree).run())
    return std::nullopt;
  return tree;
}

template <class T> static std::optional<T> parsed(std::string_view text) {
  T value{};
  const char *end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || behind != end)
    return std::nullopt;
  return value;
}

std::optional<double> JsonTree::number(uint32_t value) const {
  return parsed<double>(text(value));
}
std::optional<int64_t> JsonTree::integer(uint32_t value) const {
  return parsed<int64_t>(text(value));
}

std::optional<uint32_t> JsonTree::find(uint32_t object,
                                       std::string_view key) const {
  const Value &of = values[object];
  auto search = [&](uint32_t from, uint32_t to) -> std::optional<uint32_t> {
    for (uint32_t member = from; member < to; member = values[member].end)
      if (this->key(member) == key)
        return member;
    return std::nullopt;
  };
  const uint32_t begin = of.next;
  std::optional<uint32_t> found = search(begin, of.end);
  if (!found)
    found = search(object + 1, begin);
  if (found) {
    of.next = values[*found].end;
    values[*found].wasAskedFor = true;
  }
  return found;
}

std::string JsonTree::pathOf(uint32_t value) const {
  std::string path;
  for (uint32_t at = 0; at != value;) {
    uint32_t inner = at + 1, number = 0;
    for (; values[inner].end <= value; inner = values[inner].end)
      ++number;
    if (isMember(inner))
      path += (path.empty() ? "" : ".") + std::string(key(inner));
    else
      path += "[" + std::to_string(number) + "]";
    at = inner;
  }
  return path;
}

} // namespace grt
