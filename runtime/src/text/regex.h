//===- regex.h - Regular expressions of tokenizers --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hugging Face's tokenizers are written for Oniguruma; here PCRE2 runs them,
// compiled to machine code where it can. The two agree on what such patterns
// use but for white space, which PCRE2 takes to have one code point more: \s
// is written out before a pattern is compiled.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_REGEX_H
#define GRT_TEXT_REGEX_H

#include "text/unicode.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace grt::text {

class Regex {
public:
  /// Throws if the pattern is none, with the byte where it is wrong.
  explicit Regex(const std::string &pattern);
  ~Regex();

  /// True if a match depends on what is before it.
  bool looksBehind() const;

  struct Match {
    size_t begin = 0, end = 0;
  };

  /// A search through one text. Of one thread.
  class Search {
  public:
    Search(const Regex &regex, std::string_view text);
    ~Search();
    /// The first match at `from` or behind, false if there is none.
    bool next(size_t from, Match &match);

  private:
    struct State;
    std::unique_ptr<State> state;
  };

  /// Calls `use` with every match in `text`, from left to right. An empty match
  /// where the last one ends is none, and an empty text has none: so the
  /// package `tokenizers` goes through a text.
  template <typename Use>
  void forEachMatch(std::string_view text, Use use) const {
    Search search(*this, text);
    Match match;
    std::optional<size_t> last;
    for (size_t from = 0; !text.empty() && search.next(from, match);) {
      if (match.begin < match.end || match.end != last) {
        use(match);
        last = from = match.end;
        continue;
      }
      if (from == text.size())
        return;
      takeCodePoint(text, from);
    }
  }

  /// The pattern without what the two libraries read differently; public for
  /// tests.
  static std::string translated(const std::string &pattern);

private:
  struct Code;
  std::unique_ptr<Code> code;
};

} // namespace grt::text

#endif // GRT_TEXT_REGEX_H
