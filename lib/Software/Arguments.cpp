//===- Arguments.cpp - Flags of a launch script ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

#include <set>

using namespace llvm;

namespace galvatron {
namespace {

/// Variables of a script by their name.
using Variables = std::map<std::string, std::string>;

/// The name and value of an assignment "NAME=VALUE"; none: the word is
/// another one.
std::optional<std::pair<StringRef, StringRef>> assignmentOf(StringRef word) {
  auto [name, value] = word.split('=');
  bool isName = !name.empty() && !isDigit(name[0]) &&
                all_of(name, [](char c) { return isAlnum(c) || c == '_'; });
  if (!word.contains('=') || !isName)
    return std::nullopt;
  return std::pair(name, value);
}

/// The name of the variable that a word is whole: "$N", "${N}", "${N[@]}", with
/// its default, "${N:-8}". Empty: it is none.
std::pair<StringRef, StringRef> variableOf(StringRef word) {
  if (!word.consume_front("$"))
    return {};
  bool braces = word.consume_front("{");
  if (braces && !word.consume_back("}"))
    return {};
  StringRef name =
      word.take_while([](char c) { return isAlnum(c) || c == '_'; });
  StringRef rest = word.drop_front(name.size());
  if (!braces && !rest.empty())
    return {};
  StringRef absent;
  if (rest.consume_front(":-") || rest.consume_front("-"))
    absent = rest;
  return {name, absent};
}

std::string resolved(StringRef word, const Variables &variables, int &left);

/// An integer expression of a shell, "80 / $PP": whole numbers, variables and
/// parentheses with + - * / %.
class Arithmetic {
public:
  /// `factorsLeft`: so many factors are looked at, of this one and of those
  /// that are its variables; a variable may name itself.
  Arithmetic(StringRef text, const Variables &variables, int &factorsLeft)
      : rest(text), variables(variables), factorsLeft(factorsLeft) {}

  /// None: a variable that is not set, or something else.
  std::optional<int64_t> value() {
    std::optional<int64_t> whole = sum();
    return rest.ltrim().empty() ? whole : std::nullopt;
  }

private:
  /// Takes one of the signs off the front; 0: there is none.
  char sign(StringRef signs) {
    rest = rest.ltrim();
    if (rest.empty() || !signs.contains(rest.front()))
      return 0;
    char found = rest.front();
    rest = rest.drop_front();
    return found;
  }

  std::optional<int64_t> sum() {
    std::optional<int64_t> left = product();
    while (left) {
      const char which = sign("+-");
      if (!which)
        break;
      std::optional<int64_t> right = product();
      int64_t both = 0;
      if (!right || (which == '+' ? AddOverflow(*left, *right, both)
                                  : SubOverflow(*left, *right, both)))
        return std::nullopt;
      left = both;
    }
    return left;
  }

  std::optional<int64_t> product() {
    std::optional<int64_t> left = factor();
    while (left) {
      const char which = sign("*/%");
      if (!which)
        break;
      std::optional<int64_t> right = factor();
      int64_t both = 0;
      if (!right ||
          (which == '*' ? MulOverflow(*left, *right, both) != 0 : *right < 1))
        return std::nullopt;
      left = which == '*'   ? both
             : which == '/' ? *left / *right
                            : *left % *right;
    }
    return left;
  }

  std::optional<int64_t> factor() {
    if (--factorsLeft < 0)
      return std::nullopt;
    if (sign("(")) {
      std::optional<int64_t> inside = sum();
      return sign(")") ? inside : std::nullopt;
    }
    // "${N:-8}", "$N", or "N", which is a variable here, too.
    StringRef word =
        rest.take_front(rest.starts_with("${")
                            ? std::min(rest.find('}'), rest.size() - 1) + 1
                            : rest.take_while([](char c) {
                                    return isAlnum(c) || c == '_' || c == '$';
                                  })
                                  .size());
    rest = rest.drop_front(word.size());
    int64_t number = 0;
    if (!word.getAsInteger(10, number))
      return number;
    const std::string name =
        word.starts_with("$") ? word.str() : ("$" + word).str();
    if (!StringRef(resolved(name, variables, factorsLeft))
             .getAsInteger(10, number))
      return number;
    return std::nullopt;
  }

  StringRef rest;
  const Variables &variables;
  int &factorsLeft;
};

/// A word with the value of the variable or of the integer expression that it
/// is, as often as that is one. In its own assignment, TP=${TP:-8}, a variable
/// is what the environment has: it has its default. `factorsLeft`: as
/// Arithmetic has it.
std::string resolved(StringRef word, const Variables &variables,
                     int &factorsLeft) {
  std::string text = word.str();
  std::set<std::string> met;
  while (true) {
    if (StringRef inside = text;
        inside.consume_front("$((") && inside.consume_back("))")) {
      std::optional<int64_t> value =
          Arithmetic(inside, variables, factorsLeft).value();
      return value ? std::to_string(*value) : text;
    }
    auto [name, absent] = variableOf(text);
    auto entry = variables.find(name.str());
    const bool isSet =
        entry != variables.end() && met.insert(name.str()).second;
    if (name.empty() || (!isSet && absent.empty()))
      return text;
    // Both may be parts of the text.
    std::string next = isSet ? entry->second : absent.str();
    text = std::move(next);
  }
}

/// The words of a script: comments and continued lines go, quotes come off,
/// parentheses of arrays stand alone, integer expressions are words.
std::vector<std::string> wordsOf(StringRef text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false; ///< a word has begun
  char quote = 0;
  auto end = [&] {
    if (open)
      words.push_back(std::move(word));
    word.clear();
    open = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quote) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      open = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      if (text[++i] != '\n') {
        word += text[i];
        open = true;
      }
    } else if (text.substr(i).starts_with("$((")) {
      const size_t behind = std::min(text.find("))", i), text.size() - 2) + 2;
      word += text.slice(i, behind);
      open = true;
      i = behind - 1;
    } else if (c == '#' && !open) {
      i = std::min(text.find('\n', i), text.size());
    } else if (isSpace(c) || c == '(' || c == ')' || c == ';') {
      end();
    } else {
      word += c;
      open = true;
    }
  }
  end();
  return words;
}

/// Puts the words of variables in their places, where flags may stand; `unread`
/// gets those that the script does not set. Elements of arrays are words of the
/// script already.
void expandVariables(std::vector<std::string> &words,
                     const Variables &variables, ArrayRef<FlagName> known,
                     std::vector<std::string> &unread) {
  constexpr int kMostExpansions = 100; // a variable may name itself
  bool begun = false; ///< what stands in front of a launcher is the shell's
  int expansions = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    StringRef word = words[i];
    begun |= word.starts_with("--") || word.ends_with("torchrun") ||
             word.ends_with(".py");
    auto [name, absent] = variableOf(word);
    if (!begun || name.empty())
      continue;
    bool isValue = any_of(known, [&](const FlagName &flag) {
      return i > 0 && flag.takesValue && words[i - 1] == "--" + flag.name;
    });
    auto entry = variables.find(name.str());
    if (entry == variables.end() && absent.empty()) {
      if (!isValue)
        unread.push_back(word.str());
      continue;
    }
    StringRef value = entry == variables.end() ? absent : entry->second;
    if (!value.contains("--") || ++expansions > kMostExpansions)
      continue;
    std::vector<std::string> inside = wordsOf(value);
    words.erase(words.begin() + ptrdiff_t(i));
    words.insert(words.begin() + ptrdiff_t(i), inside.begin(), inside.end());
    --i;
  }
}

} // namespace

Expected<Arguments> Arguments::parse(StringRef text, StringRef fileName,
                                     ArrayRef<FlagName> known) {
  Arguments arguments;
  arguments.fileName = fileName.str();
  std::vector<std::string> words = wordsOf(text);
  Variables variables;
  for (StringRef word : words)
    if (auto assigned = assignmentOf(word))
      variables[assigned->first.str()] = assigned->second.str();
  expandVariables(words, variables, known, arguments.notRead);
  for (size_t i = 0; i < words.size(); ++i) {
    StringRef word = words[i];
    if (!word.consume_front("--") || word.empty())
      continue;
    auto [name, value] = word.split('=');
    bool inside = word.contains('=');
    std::string flag = name.str();
    // torchrun takes its own with underscores, too.
    std::replace(flag.begin(), flag.end(), '_', '-');
    auto entry = find_if(
        known, [&](const FlagName &other) { return other.name == flag; });
    if (entry == known.end()) {
      arguments.notRead.push_back("--" + flag);
      continue;
    }
    if (entry->takesValue && !inside) {
      if (i + 1 == words.size() || StringRef(words[i + 1]).starts_with("--"))
        return makeError(fileName + ": flag --" + flag + ": expected a value");
      value = words[++i];
    } else if (!entry->takesValue && inside) {
      return makeError(fileName + ": flag --" + flag +
                       ": expected no value, found '" + value + "'");
    }
    int factors = 500;
    std::string found = resolved(value, variables, factors);
    while (entry->takesMore && i + 1 < words.size() &&
           all_of(words[i + 1], [](char c) { return isAlnum(c) || c == '_'; }))
      found += " " + words[++i];
    auto [place, isNew] = arguments.values.insert({flag, found});
    if (!isNew && place->second != found)
      return makeError(fileName + ": flag --" + flag + ": given as '" +
                       place->second + "' and as '" + found + "'");
  }
  return arguments;
}

void Arguments::fail(StringRef flag, const Twine &message) {
  if (!error)
    error = (fileName + ": flag --" + flag + ": " + message).str();
}

int64_t Arguments::count(StringRef flag, int64_t absent) {
  auto entry = values.find(flag.str());
  if (entry == values.end())
    return absent;
  int64_t number = 0;
  if (!StringRef(entry->second).getAsInteger(10, number) && number >= 1 &&
      number <= (int64_t(1) << 40))
    return number;
  fail(flag, "expected a number of at least 1, found '" + entry->second + "'" +
                 (entry->second.find('$') == std::string::npos
                      ? ""
                      : ", which the file does not set"));
  return 1;
}

int64_t Arguments::required(StringRef flag) {
  if (!has(flag))
    fail(flag, "missing");
  return count(flag, 1);
}

StringRef Arguments::text(StringRef flag) const {
  auto entry = values.find(flag.str());
  return entry == values.end() ? StringRef() : StringRef(entry->second);
}

size_t Arguments::oneOf(StringRef flag, ArrayRef<StringRef> words) {
  auto entry = values.find(flag.str());
  if (entry == values.end())
    return 0;
  for (auto [index, word] : enumerate(words))
    if (word == entry->second)
      return index;
  fail(flag,
       "expected " + join(words, " or ") + ", found '" + entry->second + "'");
  return 0;
}

Error Arguments::finish() {
  if (error)
    return makeError(*error);
  return Error::success();
}

} // namespace galvatron
