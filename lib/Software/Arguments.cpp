//===- Arguments.cpp - Flags of a launch script ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"

#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {
namespace {

/// The words of a script: comments and continued lines go, quotes come off,
/// parentheses of arrays stand alone.
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

} // namespace

Expected<Arguments> Arguments::parse(StringRef text, StringRef fileName,
                                     ArrayRef<FlagName> known) {
  Arguments arguments;
  arguments.fileName = fileName.str();
  std::vector<std::string> words = wordsOf(text);
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
      std::vector<std::string> names;
      for (const FlagName &other : known)
        names.push_back(other.name);
      return makeError(fileName + ": flag --" + flag +
                       " is not known: whether it changes time or memory "
                       "cannot be told" +
                       didYouMean(flag, names));
    }
    if (entry->takesValue && !inside) {
      if (i + 1 == words.size() || StringRef(words[i + 1]).starts_with("--"))
        return makeError(fileName + ": flag --" + flag + ": expected a value");
      value = words[++i];
    } else if (!entry->takesValue && inside) {
      return makeError(fileName + ": flag --" + flag +
                       ": expected no value, found '" + value + "'");
    }
    auto [place, isNew] = arguments.values.insert({flag, value.str()});
    if (!isNew && place->second != value)
      return makeError(fileName + ": flag --" + flag + ": given as '" +
                       place->second + "' and as '" + value + "'");
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
  fail(flag, "expected a number of at least 1, found '" + entry->second + "'");
  return 1;
}

int64_t Arguments::required(StringRef flag) {
  if (!has(flag))
    fail(flag, "missing");
  return count(flag, 1);
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
