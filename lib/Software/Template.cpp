//===- Template.cpp - A plan's keys in a present file ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <map>

using namespace llvm;

namespace galvatron {
namespace {

/// A text whose values are replaced in place: everything else stays byte for
/// byte. Kinds of files differ in how places are found and made.
class EditedText {
public:
  virtual ~EditedText() = default;

  /// Whether the text has keys of this kind of file at all.
  virtual bool isEmpty() const = 0;
  /// Whether a key at the top, or one in it, is there.
  virtual bool has(StringRef key) const = 0;
  /// The value that stands there, without quotes; none: the key is missing. Of
  /// a flag without a value it is empty.
  virtual std::optional<std::string> find(StringRef key) const = 0;
  /// Sets a key that is there or not. Error: there is no place for it.
  virtual Error set(StringRef key, StringRef value) = 0;
  /// Takes a key out that is there. Error: this kind of file cannot.
  virtual Error erase(StringRef key) = 0;
  /// Adds a line in front of a key's.
  virtual Error addBeside(StringRef key, StringRef line) {
    return makeError("'" + key + "': no place for '" + line + "'");
  }

  const std::string &str() const { return text; }

protected:
  explicit EditedText(StringRef text) : text(text.str()) {}
  std::string text;
};

/// Whether a table of places has a key, or one in it.
template <typename Table> bool hasTop(const Table &table, StringRef key) {
  return any_of(table, [&](const auto &entry) {
    StringRef name = entry.first;
    return name == key || (name.consume_front(key) && name.starts_with("."));
  });
}

/// A part of a text.
struct Span {
  size_t begin = 0, end = 0;
};

std::string withoutQuotes(StringRef value) {
  value = value.trim();
  if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
      value.back() == value.front())
    value = value.drop_front().drop_back();
  return value.str();
}

/// The parent's path, empty at the top, and the last name.
std::pair<StringRef, StringRef> splitKey(StringRef key) {
  return key.contains('.') ? key.rsplit('.')
                           : std::pair<StringRef, StringRef>("", key);
}

/// Whether a value is no text: a number, a truth value.
bool isBare(StringRef value) {
  double number = 0;
  return value == "true" || value == "false" || !value.getAsDouble(number);
}

/// JSON by the places of its values and objects.
class JsonText final : public EditedText {
public:
  explicit JsonText(StringRef text) : EditedText(text) { scan(); }

  bool isEmpty() const override { return values.empty(); }
  bool has(StringRef key) const override {
    return hasTop(values, key) || hasTop(objects, key);
  }

  std::optional<std::string> find(StringRef key) const override {
    auto entry = values.find(key.str());
    if (entry == values.end())
      return std::nullopt;
    return withoutQuotes(
        StringRef(text).slice(entry->second.begin, entry->second.end));
  }
  Error set(StringRef key, StringRef value) override {
    std::string written =
        isBare(value) ? value.str() : "\"" + value.str() + "\"";
    if (auto entry = values.find(key.str()); entry != values.end()) {
      text.replace(entry->second.begin, entry->second.end - entry->second.begin,
                   written);
      scan();
      return Error::success();
    }
    auto [parent, name] = splitKey(key);
    std::string member = "\"" + name.str() + "\": " + written;
    while (!objects.count(parent.str())) {
      if (values.count(parent.str()))
        return makeError("'" + parent + "': expected an object, found '" +
                         *find(parent) + "'");
      if (parent.empty())
        return makeError("expected an object of keys and values");
      auto [above, own] = splitKey(parent);
      member = "\"" + own.str() + "\": {" + member + "}";
      parent = above;
    }
    Span object = objects.at(parent.str());
    StringRef inside = StringRef(text).slice(object.begin, object.end);
    // Behind the last member, with the white space in front of the first.
    size_t indent = inside.find_first_not_of(" \t\r\n");
    std::string space =
        indent == StringRef::npos ? "" : inside.take_front(indent).str();
    size_t last = StringRef(text).take_front(object.end).rtrim().size();
    text.insert(last,
                (indent == StringRef::npos ? "" : ",") +
                    (space.empty() && indent != StringRef::npos ? " " : space) +
                    member);
    scan();
    return Error::success();
  }
  Error erase(StringRef key) override {
    return makeError("'" + key + "' cannot be taken out of JSON");
  }

private:
  void scan() {
    values.clear();
    objects.clear();
    size_t place = 0;
    scanValue(place, "");
  }
  void skipSpace(size_t &place) const {
    while (place < text.size() && isSpace(text[place]))
      ++place;
  }
  std::string scanString(size_t &place) const {
    size_t begin = ++place;
    while (place < text.size() && text[place] != '"')
      place += text[place] == '\\' ? 2 : 1;
    return text.substr(begin, place++ - begin);
  }
  void scanValue(size_t &place, const std::string &path) {
    skipSpace(place);
    size_t begin = place;
    if (place < text.size() && text[place] == '{') {
      ++place;
      size_t inside = place;
      while (skipSpace(place), place < text.size() && text[place] == '"') {
        std::string name = scanString(place);
        skipSpace(place);
        ++place; // the colon
        scanValue(place, path.empty() ? name : path + "." + name);
        skipSpace(place);
        if (place < text.size() && text[place] == ',')
          ++place;
      }
      objects[path] = {inside, place};
      ++place;
      return;
    }
    if (place < text.size() && text[place] == '"') {
      scanString(place);
    } else {
      int depth = 0;
      for (; place < text.size(); ++place) {
        char c = text[place];
        if (c == '"') {
          scanString(place);
          --place;
          continue;
        }
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (depth < 0 || (depth == 0 && (c == ',' || isSpace(c))))
          break;
      }
    }
    values[path] = {begin, place};
  }

  std::map<std::string, Span> values, objects;
};

/// YAML by its lines, a key on each.
class YamlText final : public EditedText {
public:
  explicit YamlText(StringRef text) : EditedText(text) { scan(); }

  bool isEmpty() const override { return values.empty(); }
  bool has(StringRef key) const override {
    return hasTop(values, key) || hasTop(mappings, key);
  }

  std::optional<std::string> find(StringRef key) const override {
    auto entry = values.find(key.str());
    if (entry == values.end())
      return std::nullopt;
    return withoutQuotes(
        StringRef(text).slice(entry->second.begin, entry->second.end));
  }
  Error set(StringRef key, StringRef value) override {
    if (auto entry = values.find(key.str()); entry != values.end()) {
      text.replace(entry->second.begin, entry->second.end - entry->second.begin,
                   value.str());
      scan();
      return Error::success();
    }
    auto [parent, name] = splitKey(key);
    if (!parent.empty() && !mappings.count(parent.str()) &&
        values.count(parent.str()))
      return makeError("'" + parent + "': expected a key a line below it");
    if (!parent.empty() && !mappings.count(parent.str())) {
      endWithLine();
      text += parent.str() + ":\n  " + name.str() + ": " + value.str() + "\n";
    } else if (parent.empty()) {
      endWithLine();
      text += name.str() + ": " + value.str() + "\n";
    } else {
      auto [behind, indent] = mappings.at(parent.str());
      text.insert(behind, std::string(indent, ' ') + name.str() + ": " +
                              value.str() + "\n");
    }
    scan();
    return Error::success();
  }
  Error erase(StringRef key) override {
    return makeError("'" + key + "' cannot be taken out of YAML");
  }

private:
  void endWithLine() {
    if (!text.empty() && text.back() != '\n')
      text += '\n';
  }
  void scan() {
    values.clear();
    mappings.clear();
    std::vector<std::pair<size_t, std::string>> open; // indents and paths
    for (size_t begin = 0; begin < text.size();) {
      size_t end = std::min(text.find('\n', begin), text.size());
      StringRef line = StringRef(text).slice(begin, end);
      size_t next = end + 1;
      size_t indent = line.find_first_not_of(' ');
      StringRef rest = indent == StringRef::npos ? "" : line.drop_front(indent);
      size_t colon = rest.find(':');
      bool isKey = !rest.empty() && rest[0] != '#' && rest[0] != '-' &&
                   colon != StringRef::npos &&
                   (colon + 1 == rest.size() || isSpace(rest[colon + 1]));
      if (isKey) {
        while (!open.empty() && open.back().first >= indent)
          open.pop_back();
        std::string path = open.empty() ? "" : open.back().second + ".";
        path += withoutQuotes(rest.take_front(colon));
        // A key stands in its parent's mapping, whose first one it may be.
        if (!open.empty())
          mappings.insert({open.back().second, {begin, indent}});
        StringRef value = rest.drop_front(colon + 1);
        size_t comment = value.find(" #");
        value = value.take_front(comment).trim();
        if (value.empty() || value[0] == '#') {
          open.push_back({indent, path});
        } else {
          size_t at = size_t(value.data() - text.data());
          values[path] = {at, at + value.size()};
        }
      }
      begin = next;
    }
  }

  std::map<std::string, Span> values;
  /// The place of a mapping's first key, and its indent.
  std::map<std::string, std::pair<size_t, size_t>> mappings;
};

/// Assignments of a Python function.
class FunctionText final : public EditedText {
public:
  explicit FunctionText(StringRef text) : EditedText(text) {}

  /// A function that sets nothing has the values of its base.
  bool isEmpty() const override { return true; }
  bool has(StringRef key) const override {
    return StringRef(text).contains(("config." + key).str());
  }

  std::optional<std::string> find(StringRef key) const override {
    std::optional<Span> span = valueOf(key);
    if (!span)
      return std::nullopt;
    return withoutQuotes(StringRef(text).slice(span->begin, span->end));
  }
  Error set(StringRef key, StringRef value) override {
    if (std::optional<Span> span = valueOf(key)) {
      text.replace(span->begin, span->end - span->begin, value.str());
      return Error::success();
    }
    size_t place = text.find("\n    return ");
    if (place == std::string::npos)
      return makeError(
          Twine("expected a function that ends with 'return'") +
          (StringRef(text).ltrim().starts_with("[")
               ? ", found sections of TOML, which are read and not filled"
               : ""));
    text.insert(place, ("\n    config." + key + " = " + value).str());
    return Error::success();
  }
  Error addBeside(StringRef key, StringRef line) override {
    size_t begin = text.rfind('\n', valueOf(key)->begin) + 1;
    text.insert(begin, ("    " + line + "\n").str());
    return Error::success();
  }
  Error erase(StringRef key) override {
    std::optional<Span> span = valueOf(key);
    if (!span)
      return Error::success();
    size_t begin = text.rfind('\n', span->begin) + 1;
    size_t end = text.find('\n', span->end);
    text.erase(begin, end == std::string::npos ? end : end + 1 - begin);
    return Error::success();
  }

private:
  std::optional<Span> valueOf(StringRef key) const {
    std::string left = ("config." + key).str();
    for (size_t place = text.find(left); place != std::string::npos;
         place = text.find(left, place + 1)) {
      size_t line = text.rfind('\n', place) + 1;
      StringRef rest = StringRef(text).drop_front(place + left.size());
      StringRef behind = rest.ltrim(' ');
      if (StringRef(text).slice(line, place).trim().empty() &&
          behind.consume_front("=") && !behind.starts_with("=")) {
        StringRef value =
            behind.take_front(behind.find('\n')).split(" #").first.trim();
        size_t at = size_t(value.data() - text.data());
        return Span{at, at + value.size()};
      }
    }
    return std::nullopt;
  }
};

/// Flags among the words of a script.
class FlagText final : public EditedText {
public:
  FlagText(StringRef text, ArrayRef<PlanKey> keys) : EditedText(text) {
    for (const PlanKey &key : keys)
      if (key.isSwitch)
        switches.push_back(key.name);
    scan();
  }

  bool isEmpty() const override { return flags.empty(); }
  bool has(StringRef key) const override { return flags.count(key.str()); }
  std::optional<std::string> find(StringRef key) const override {
    auto entry = flags.find(key.str());
    if (entry == flags.end())
      return std::nullopt;
    return withoutQuotes(StringRef(text).slice(entry->second.value.begin,
                                               entry->second.value.end));
  }
  Error set(StringRef key, StringRef given) override {
    // What the shell would take for its own.
    const std::string value = given.find_first_of("|*()&;<>") == StringRef::npos
                                  ? given.str()
                                  : "'" + given.str() + "'";
    if (auto entry = flags.find(key.str()); entry != flags.end()) {
      Span span = entry->second.value;
      text.replace(span.begin, span.end - span.begin, value);
    } else if (flags.empty()) {
      return makeError("expected flags, found none");
    } else {
      // Behind the flag that says the model, which every script has.
      auto last = flags.find("micro-batch-size");
      if (last == flags.end())
        last = flags.begin();
      text.insert(last->second.value.end,
                  (" --" + key + (value.empty() ? "" : " ") + value).str());
    }
    scan();
    return Error::success();
  }
  Error erase(StringRef key) override {
    auto entry = flags.find(key.str());
    if (entry == flags.end())
      return Error::success();
    size_t begin = entry->second.begin, end = entry->second.value.end;
    // With the blanks behind it; a line that is empty then goes whole.
    while (end < text.size() && text[end] == ' ')
      ++end;
    size_t line = text.rfind('\n', begin) + 1;
    size_t stop = std::min(text.find('\n', end), text.size());
    StringRef around = StringRef(text).slice(end, stop).trim();
    if (StringRef(text).slice(line, begin).trim().empty() &&
        (around.empty() || around == "\\")) {
      begin = line;
      end = std::min(stop + 1, text.size());
    }
    text.erase(begin, end - begin);
    scan();
    return Error::success();
  }

private:
  struct Flag {
    size_t begin = 0;
    Span value; ///< empty behind the flag where it has none
  };
  void scan() {
    flags.clear();
    Flag *open = nullptr;
    for (size_t place = 0; place < text.size();) {
      char c = text[place];
      if (isSpace(c) || c == '(' || c == ')' || c == ';' || c == '\\') {
        // A value is on the flag's line, or on one that goes on.
        if (c != '\\' && c != ' ' && c != '\t' &&
            (place == 0 || text[place - 1] != '\\'))
          open = nullptr;
        ++place;
        continue;
      }
      if (c == '#') {
        place = std::min(text.find('\n', place), text.size());
        continue;
      }
      size_t begin = place;
      char quote = 0;
      for (; place < text.size(); ++place) {
        char at = text[place];
        // An integer expression has blanks and parentheses.
        if (!quote && StringRef(text).substr(place).starts_with("$((")) {
          place = std::min(text.find("))", place), text.size() - 2) + 1;
          continue;
        }
        if (quote) {
          quote = at == quote ? 0 : quote;
        } else if (at == '"' || at == '\'') {
          quote = at;
        } else if (isSpace(at) || at == '(' || at == ')' || at == ';') {
          break;
        }
      }
      StringRef word = StringRef(text).slice(begin, place);
      if (word.starts_with("--")) {
        StringRef name = word.drop_front(2).split('=').first;
        std::string key = name.str();
        std::replace(key.begin(), key.end(), '_', '-');
        open = &flags[key];
        bool inside = word.contains('=');
        *open = {begin, {inside ? begin + name.size() + 3 : place, place}};
        if (inside || is_contained(switches, key))
          open = nullptr;
      } else if (open) {
        open->value = {begin, place};
        open = nullptr;
      }
    }
  }

  std::vector<std::string> switches;
  std::map<std::string, Flag> flags;
};

/// Without quotes, as two spellings of one value compare.
std::string plain(StringRef value) {
  std::string text = withoutQuotes(value);
  double number = 0;
  if (!StringRef(text).getAsDouble(number))
    return std::to_string(number);
  return StringRef(text).lower();
}

std::unique_ptr<EditedText> edit(const Target &target, StringRef text) {
  switch (target.fileKind()) {
  case FileKind::Nested:
    if (text.ltrim().starts_with("{"))
      return std::make_unique<JsonText>(text);
    return std::make_unique<YamlText>(text);
  case FileKind::Function:
    return std::make_unique<FunctionText>(text);
  case FileKind::Flags:
    return std::make_unique<FlagText>(text, target.planKeys());
  }
  llvm_unreachable("unknown kind of file");
}

} // namespace

/// Whether a file has any of the target's keys, or what they are in. Nodes and
/// their devices are the launcher's.
static bool isOfTarget(const EditedText &text, ArrayRef<PlanKey> keys) {
  return any_of(keys, [&](const PlanKey &key) {
    return key.name != "nproc-per-node" && key.name != "nnodes" &&
           text.has(StringRef(key.name).split('.').first);
  });
}

Expected<std::string> fillTemplate(const Target &target, StringRef text,
                                   StringRef fileName, StringRef written,
                                   std::vector<std::string> *changed) {
  const std::vector<PlanKey> keys = target.planKeys();
  if (keys.empty())
    return makeError("'" + target.name() + "' fills no present files");
  std::unique_ptr<EditedText> result = edit(target, text),
                              wanted = edit(target, written);
  auto fail = [&](Error error) {
    return makeError(fileName + ": " + toString(std::move(error)));
  };
  if (!result->isEmpty() && !isOfTarget(*result, keys))
    return makeError(fileName + ": expected a file of '" + target.name() +
                     "', found none of its keys that say a plan");
  auto note = [&](const Twine &text) {
    if (changed)
      changed->push_back(text.str());
  };
  for (const PlanKey &key : keys) {
    std::optional<std::string> value = wanted->find(key.name),
                               found = result->find(key.name);
    if (!value && key.absent.empty()) {
      if (!found)
        continue;
      if (Error error = result->erase(key.name))
        return fail(std::move(error));
      note(key.name + " taken out");
      continue;
    }
    std::string set = value ? *value : key.absent;
    if (found ? plain(*found) == plain(set)
              : !key.absent.empty() && plain(set) == plain(key.absent))
      continue;
    // A function has strings in quotes, as they are written.
    if (target.fileKind() == FileKind::Function && value && !isBare(set) &&
        written.contains("\"" + set + "\""))
      set = "\"" + set + "\"";
    std::string shown = set.empty() ? "" : " " + set;
    note(found && !found->empty() ? key.name + " " + *found + " ->" + shown
                                  : key.name + shown + " added");
    if (Error error = result->set(key.name, set))
      return fail(std::move(error));
    if (!key.beside.empty() && set != "None" &&
        !StringRef(result->str()).contains(key.beside))
      if (Error error = result->addBeside(key.name, key.beside))
        return fail(std::move(error));
  }
  for (const PlanKey &key : keys) {
    std::string value = wanted->find(key.name).value_or(key.absent);
    std::string found = result->find(key.name).value_or(key.absent);
    if (plain(value) != plain(found))
      return makeError(fileName + ": '" + key.name + "' cannot be set to '" +
                       value + "'");
  }
  return result->str();
}

} // namespace galvatron
