//===- added_tokens.h - Tokens that are found before all others -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_ADDED_TOKENS_H
#define GRT_TEXT_ADDED_TOKENS_H

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace grt::text {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  /// Found only where no word goes on; takes the white space beside it.
  bool singleWord = false, stripLeft = false, stripRight = false;
};

/// Finds tokens in a text: the leftmost, of those the longest, none inside
/// another.
class AddedTokens {
public:
  void add(AddedToken token);
  bool empty() const { return tokens.empty(); }
  /// Bytes of the longest one.
  size_t longest() const { return most; }

  struct Match {
    size_t begin, end;
    const AddedToken *token; ///< null: there is none
  };
  /// The first one at `from` or behind, with the white space that it takes, of
  /// which none is before `from`.
  Match next(std::string_view text, size_t from) const;

private:
  /// Position of the next byte that some token begins with.
  size_t nextFirst(std::string_view text, size_t at) const;
  /// The longest token at `at`, or null.
  const AddedToken *longestAt(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens;
  /// The byte that all tokens begin with; -1 if they begin with several.
  int onlyFirst = -1;
  /// Tokens by their first byte, longer ones first.
  std::array<std::vector<uint32_t>, 256> byFirst;
  size_t most = 0;
};

} // namespace grt::text

#endif // GRT_TEXT_ADDED_TOKENS_H
