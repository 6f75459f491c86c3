//===- decoder.cpp - From tokens to text ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text/pipeline.h"

#include <cstdlib>

namespace grt::text {
namespace {

constexpr std::string_view replacementCharacter = "\xef\xbf\xbd";

/// The number of bytes at `at` that are one wrong sequence: a beginning that
/// breaks off is replaced as a whole.
size_t wrongBytes(std::string_view text, size_t at) {
  auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  unsigned lead = byte(at), low = 0x80, high = 0xbf;
  size_t wanted = lead >= 0xc2 && lead <= 0xdf   ? 1
                  : lead >= 0xe0 && lead <= 0xef ? 2
                  : lead >= 0xf0 && lead <= 0xf4 ? 3
                                                 : 0;
  if (lead == 0xe0)
    low = 0xa0;
  else if (lead == 0xed)
    high = 0x9f;
  else if (lead == 0xf0)
    low = 0x90;
  else if (lead == 0xf4)
    high = 0x8f;
  size_t count = 1;
  for (; count <= wanted && byte(at + count) >= low && byte(at + count) <= high;
       ++count) {
    low = 0x80;
    high = 0xbf;
  }
  return count;
}

/// UTF-8, with a replacement character for what is none.
std::string repaired(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    size_t good = firstInvalidByte(text);
    result += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty())
      break;
    result += replacementCharacter;
    text.remove_prefix(std::min(wrongBytes(text, 0), text.size()));
  }
  return result;
}

std::string joined(const std::vector<std::string> &tokens) {
  std::string result;
  for (const std::string &token : tokens)
    result += token;
  return result;
}

/// The byte of a token such as <0x0A>; -1 for others.
int byteOfToken(const std::string &token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
    return -1;
  char *end = nullptr;
  std::string digits = token.substr(3, 2);
  long value = std::strtol(digits.c_str(), &end, 16);
  return *end || digits[0] == '+' || digits[0] == '-' || digits[0] == ' '
             ? -1
             : int(value);
}

void replaceAll(std::string &text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
}

} // namespace

Decoder makeByteLevelDecoder() {
  return [](std::vector<std::string> &tokens) {
    std::string bytes;
    for (const std::string &token : tokens)
      bytes += bytesOfCharacters(token).value_or(token);
    tokens = {repaired(bytes)};
  };
}

Decoder makeByteFallbackDecoder() {
  return [](std::vector<std::string> &tokens) {
    std::vector<std::string> result;
    std::string bytes;
    auto flush = [&] {
      if (bytes.empty())
        return;
      if (firstInvalidByte(bytes) == bytes.size())
        result.push_back(bytes);
      else
        result.insert(result.end(), bytes.size(),
                      std::string(replacementCharacter));
      bytes.clear();
    };
    for (std::string &token : tokens) {
      if (int byte = byteOfToken(token); byte >= 0) {
        bytes += char(byte);
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    tokens = std::move(result);
  };
}

Decoder makeFuse() {
  return [](std::vector<std::string> &tokens) { tokens = {joined(tokens)}; };
}

Decoder makeReplaceDecoder(Normalizer replace) {
  return [=](std::vector<std::string> &tokens) {
    for (std::string &token : tokens)
      token = replace(token);
  };
}

Decoder makeStripDecoder(std::string character, uint64_t start, uint64_t stop) {
  return [=](std::vector<std::string> &tokens) {
    for (std::string &token : tokens) {
      for (uint64_t i = 0; i < start && token.starts_with(character); ++i)
        token.erase(0, character.size());
      for (uint64_t i = 0; i < stop && token.ends_with(character); ++i)
        token.erase(token.size() - character.size());
    }
  };
}

Decoder makeMetaspaceDecoder(std::string replacement, bool dropsFirst) {
  return [=](std::vector<std::string> &tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      replaceAll(tokens[i], replacement, i == 0 && dropsFirst ? "" : " ");
  };
}

Decoder makeWordPieceDecoder(std::string prefix, bool cleanup) {
  return [=](std::vector<std::string> &tokens) {
    static constexpr std::pair<std::string_view, std::string_view> spaces[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string &token = tokens[i];
      if (i > 0 && token.starts_with(prefix))
        token.erase(0, prefix.size());
      else if (i > 0)
        token.insert(0, " ");
      for (const auto &[from, to] : spaces)
        if (cleanup)
          replaceAll(token, from, to);
    }
  };
}

Decoder makeBpeDecoder(std::string suffix) {
  return [=](std::vector<std::string> &tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      replaceAll(tokens[i], suffix, i + 1 < tokens.size() ? " " : "");
  };
}

} // namespace grt::text
