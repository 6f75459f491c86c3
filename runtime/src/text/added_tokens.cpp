//===- added_tokens.cpp - Tokens that are found before all others ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text/added_tokens.h"
#include "text/unicode.h"

#include <algorithm>

namespace grt::text {

void AddedTokens::add(AddedToken token) {
  if (token.content.empty())
    return;
  int first = uint8_t(token.content[0]);
  onlyFirst = tokens.empty() || onlyFirst == first ? first : -1;
  most = std::max(most, token.content.size());
  std::vector<uint32_t> &list = byFirst[size_t(first)];
  tokens.push_back(std::move(token));
  list.push_back(uint32_t(tokens.size() - 1));
  std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
    return tokens[a].content.size() > tokens[b].content.size();
  });
}

size_t AddedTokens::nextFirst(std::string_view text, size_t at) const {
  if (onlyFirst >= 0)
    return std::min(text.find(char(onlyFirst), at), text.size());
  while (at < text.size() && byFirst[uint8_t(text[at])].empty())
    ++at;
  return at;
}

const AddedToken *AddedTokens::longestAt(std::string_view text,
                                         size_t at) const {
  for (uint32_t index : byFirst[uint8_t(text[at])])
    if (text.substr(at).starts_with(tokens[index].content))
      return &tokens[index];
  return nullptr;
}

AddedTokens::Match AddedTokens::next(std::string_view text, size_t from) const {
  for (size_t at = from; (at = nextFirst(text, at)) < text.size();) {
    const AddedToken *token = longestAt(text, at);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->singleWord) {
      size_t inner = end;
      if (end < text.size() && isWord(takeCodePoint(text, inner)))
        continue;
      inner = begin > 0 ? codePointBefore(text, begin) : 0;
      if (begin > 0 && isWord(takeCodePoint(text, inner)))
        continue;
    }
    while (token->stripLeft && begin > from) {
      size_t before = codePointBefore(text, begin), inner = before;
      if (!isWhitespace(takeCodePoint(text, inner)))
        break;
      begin = before;
    }
    while (token->stripRight && end < text.size()) {
      size_t inner = end;
      if (!isWhitespace(takeCodePoint(text, inner)))
        break;
      end = inner;
    }
    return {begin, end, token};
  }
  return {text.size(), text.size(), nullptr};
}

} // namespace grt::text
