//===- json_node.h - JSON values that know their place ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_JSON_NODE_H
#define GRT_TEXT_JSON_NODE_H

#include "base/error.h"
#include "text/unicode.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace grt::text {

/// A value of a JSON file that is read strictly: another type, or a key that
/// nobody knows, is an error that names the place, as in "model.merges[3]".
class JsonNode {
public:
  /// `file`: what errors begin with.
  JsonNode(const nlohmann::json &value, std::string file)
      : value(&value), file(std::move(file)) {}

  [[noreturn]] void error(const std::string &what) const {
    invalid(file + (path.empty() ? "" : ", " + path) + ": " + what);
  }
  [[noreturn]] void unknown(const char *kind, const std::string &found) const {
    error(std::string("the ") + kind + " '" + found + "' is not implemented");
  }
  /// Runs `make`, whose errors are of this place.
  template <typename Make> auto checked(Make make) const {
    try {
      return make();
    } catch (const Error &failure) {
      error(failure.what());
    }
  }

  bool isArray() const { return value->is_array(); }
  /// The value of a key; nothing if there is none, or null.
  std::optional<JsonNode> find(const std::string &key) const {
    expect(value->is_object(), "an object");
    auto found = value->find(key);
    if (found == value->end() || found->is_null())
      return std::nullopt;
    return child(*found, (path.empty() ? "" : path + ".") + key);
  }
  JsonNode at(const std::string &key) const {
    std::optional<JsonNode> found = find(key);
    if (!found)
      error("expected the key '" + key + "'");
    return *found;
  }
  /// Throws if an object has other keys.
  void expectKeys(std::initializer_list<std::string_view> keys) const {
    expect(value->is_object(), "an object");
    for (const auto &[key, ignored] : value->items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        error("the key '" + key + "' is not known");
  }
  std::vector<JsonNode> array() const {
    expect(value->is_array(), "a list");
    std::vector<JsonNode> result;
    result.reserve(value->size());
    for (size_t i = 0; i < value->size(); ++i)
      result.push_back(child((*value)[i], path + "[" + str(i) + "]"));
    return result;
  }
  std::vector<std::pair<std::string, JsonNode>> members() const {
    expect(value->is_object(), "an object");
    std::vector<std::pair<std::string, JsonNode>> result;
    for (const auto &[key, each] : value->items())
      result.emplace_back(key, child(each, path + "['" + key + "']"));
    return result;
  }

  std::string string() const {
    expect(value->is_string(), "a text");
    return value->get<std::string>();
  }
  /// A text of one character.
  std::string character() const {
    std::string text = string();
    size_t end = 0;
    if (!text.empty())
      takeCodePoint(text, end);
    if (text.empty() || end != text.size())
      error("expected one character, found " + found());
    return text;
  }
  std::string string(const std::string &key, const char *otherwise) const {
    std::optional<JsonNode> found = find(key);
    return found ? found->string() : otherwise;
  }
  bool boolean() const {
    expect(value->is_boolean(), "true or false");
    return value->get<bool>();
  }
  bool boolean(const std::string &key, bool otherwise) const {
    std::optional<JsonNode> found = find(key);
    return found ? found->boolean() : otherwise;
  }
  double number() const {
    expect(value->is_number(), "a number");
    return value->get<double>();
  }
  /// A whole number from 0 to `most`.
  uint64_t integer(uint64_t most) const {
    if (!value->is_number_unsigned() || value->get<uint64_t>() > most)
      error("expected a whole number of at most " + str(most) + ", found " +
            found());
    return value->get<uint64_t>();
  }
  /// The bytes of a text of base64.
  std::string base64() const {
    std::string result;
    uint32_t bits = 0;
    int count = 0;
    std::string text = string();
    while (text.ends_with('='))
      text.pop_back();
    for (size_t i = 0; i < text.size(); ++i) {
      static constexpr std::string_view digits =
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
      size_t digit = digits.find(text[i]);
      if (digit == std::string_view::npos)
        error("letter " + str(i) + ": expected base64");
      bits = bits << 6 | uint32_t(digit);
      if ((count += 6) >= 8)
        result += char(bits >> (count -= 8) & 0xff);
    }
    return result;
  }

private:
  JsonNode child(const nlohmann::json &of, std::string place) const {
    JsonNode result(of, file);
    result.path = std::move(place);
    return result;
  }
  void expect(bool isSo, const char *what) const {
    if (!isSo)
      error(std::string("expected ") + what + ", found " + found());
  }
  std::string found() const {
    constexpr size_t shown = 40;
    std::string text =
        value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return text.size() > shown ? text.substr(0, shown) + ".." : text;
  }

  const nlohmann::json *value;
  std::string file, path;
};

} // namespace grt::text

#endif // GRT_TEXT_JSON_NODE_H
