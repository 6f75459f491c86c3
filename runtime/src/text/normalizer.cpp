//===- normalizer.cpp - Rewriting text before it is cut -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "text/model.h"
#include "text/pieces.h"

#include <cstring>

namespace grt::text {
namespace {

/// The text with every code point replaced by what `rewrite` appends.
template <typename Rewrite>
std::string rewritten(std::string_view text, Rewrite rewrite) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();)
    rewrite(result, takeCodePoint(text, at));
  return result;
}

std::string lowercase(std::string_view text) {
  return rewritten(text, appendLowercase);
}

/// Ideographs that BERT sets apart: those of China, Japan and Korea, without
/// syllabaries. The bounds are those of BERT's own code and what follows it.
bool isIdeograph(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string cleaned(std::string_view text) {
  return rewritten(text, [](std::string &to, char32_t c) {
    if (c == '\t' || c == '\n' || c == '\r')
      to += ' ';
    else if (c == 0 || c == 0xfffd || isOther(c))
      return;
    else if (isWhitespace(c))
      to += ' ';
    else
      append(to, c);
  });
}

/// SentencePiece's table: a double array (Aoe 1989) over UTF-8 that leads to
/// places in a text of replacements, each ended by a zero.
class Precompiled {
public:
  explicit Precompiled(std::string given) : table(std::move(given)) {
    uint32_t bytes = 0;
    if (table.size() >= sizeof(bytes))
      std::memcpy(&bytes, table.data(), sizeof(bytes));
    if (bytes == 0 || bytes % sizeof(uint32_t) ||
        bytes > table.size() - sizeof(bytes) || table.back() != 0)
      invalid("expected the length of a double array, "
              "the array and texts, found " +
              str(table.size()) + " bytes");
    units = bytes / sizeof(uint32_t);
    texts = std::string_view(table).substr(sizeof(bytes) + bytes);
    if (texts.empty())
      invalid("expected texts behind the double array");
  }

  std::string apply(std::string_view text) const {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      size_t end = graphemeEnd(text, at);
      // A cluster as a whole if it is short, else its code points.
      constexpr size_t shortCluster = 6;
      std::string_view cluster = text.substr(at, end - at);
      if (cluster.size() >= shortCluster || !replace(cluster, result))
        for (size_t inner = at; inner < end;) {
          size_t begin = inner;
          takeCodePoint(text, inner);
          std::string_view point = text.substr(begin, inner - begin);
          if (!replace(point, result))
            result += point;
        }
      at = end;
    }
    return result;
  }

private:
  uint32_t unit(size_t index) const {
    if (index >= units)
      return 0;
    uint32_t value;
    std::memcpy(&value, table.data() + sizeof(value) * (index + 1),
                sizeof(value));
    return value;
  }
  static size_t offsetOf(uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
  }
  /// Appends the replacement of the shortest beginning of `key` that has one.
  bool replace(std::string_view key, std::string &to) const {
    uint32_t current = unit(0);
    size_t position = offsetOf(current);
    for (char c : key) {
      auto byte = static_cast<unsigned char>(c);
      if (byte == 0)
        return false;
      position ^= byte;
      current = unit(position);
      if ((current & ((1u << 31) | 0xff)) != byte)
        return false;
      position ^= offsetOf(current);
      if ((current >> 8 & 1) == 0)
        continue;
      // A place in the texts is marked by the highest bit.
      constexpr uint32_t mark = 1u << 31;
      uint32_t place = unit(position);
      if (!(place & mark) || (place ^ mark) >= texts.size())
        return false;
      to += texts.data() + (place ^ mark);
      return true;
    }
    return false;
  }

  std::string table;
  size_t units = 0;
  std::string_view texts;
};

} // namespace

Normalizer makeNormalForm(NormalForm form) {
  return [form](std::string_view text) { return normalize(text, form); };
}

Normalizer makeLowercase() { return lowercase; }

Normalizer makeStrip(bool left, bool right) {
  return [=](std::string_view text) {
    size_t begin = 0, end = text.size();
    while (left && begin < end) {
      size_t next = begin;
      if (!isWhitespace(takeCodePoint(text, next)))
        break;
      begin = next;
    }
    while (right && begin < end) {
      size_t before = codePointBefore(text, end), at = before;
      if (!isWhitespace(takeCodePoint(text, at)))
        break;
      end = before;
    }
    return std::string(text.substr(begin, end - begin));
  };
}

Normalizer makeStripAccents() {
  return [](std::string_view text) {
    return rewritten(text, [](std::string &to, char32_t c) {
      if (!isMark(c))
        append(to, c);
    });
  };
}

Normalizer makePrepend(std::string prefix) {
  return [=](std::string_view text) {
    return text.empty() ? std::string() : prefix + std::string(text);
  };
}

Normalizer makeReplace(std::string literal, std::string content) {
  // The empty text stands before every character and at the end.
  if (literal.empty())
    return makeRegexReplace("", content);
  return [=](std::string_view text) {
    std::string result;
    size_t at = 0;
    for (size_t found;
         (found = text.find(literal, at)) != std::string_view::npos;
         at = found + literal.size()) {
      result += text.substr(at, found - at);
      result += content;
    }
    return result += text.substr(at);
  };
}

Normalizer makeRegexReplace(std::string pattern, std::string content) {
  auto regex = std::make_shared<const Regex>(pattern);
  return [=](std::string_view text) {
    std::string result;
    size_t at = 0;
    regex->forEachMatch(text, [&](Regex::Match match) {
      result += text.substr(at, match.begin - at);
      result += content;
      at = match.end;
    });
    return result += text.substr(at);
  };
}

Normalizer makeNmt() {
  return [](std::string_view text) {
    return rewritten(text, [](std::string &to, char32_t c) {
      bool isControl = (c >= 0x1 && c <= 0x8) || c == 0xb ||
                       (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
                       c == 0x9f;
      bool isSpace = c == '\t' || c == '\n' || c == '\f' || c == '\r' ||
                     c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
                     c == 0xfffd;
      if (!isControl)
        append(to, isSpace ? U' ' : c);
    });
  };
}

Normalizer makeByteCharacters() {
  return [](std::string_view text) {
    std::string result;
    for (char byte : text)
      append(result, characterOfByte(uint8_t(byte)));
    return result;
  };
}

Normalizer makeBertNormalizer(BertNormalizerOptions options) {
  return [=](std::string_view text) {
    std::string result(text);
    if (options.cleanText)
      result = cleaned(result);
    if (options.spaceIdeographs)
      result = rewritten(result, [](std::string &to, char32_t c) {
        if (isIdeograph(c))
          to += ' ';
        append(to, c);
        if (isIdeograph(c))
          to += ' ';
      });
    if (options.stripAccents)
      result = rewritten(normalize(result, NormalForm::D),
                         [](std::string &to, char32_t c) {
                           if (!isNonspacingMark(c))
                             append(to, c);
                         });
    if (options.lowercase)
      result = lowercase(result);
    return result;
  };
}

Normalizer makePrecompiled(std::string table) {
  auto precompiled = std::make_shared<const Precompiled>(std::move(table));
  return [=](std::string_view text) { return precompiled->apply(text); };
}

} // namespace grt::text
