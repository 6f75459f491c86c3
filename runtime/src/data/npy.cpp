//===- npy.cpp - Headers of NumPy's array files ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The header is a Python dictionary with exactly the keys 'descr',
// 'fortran_order' and 'shape', in any order: a literal, so a scanner of a few
// tokens reads all that NumPy writes.
//
//===----------------------------------------------------------------------===//

#include "data/npy.h"
#include "base/error.h"

#include <optional>

namespace grt {
namespace {

/// No array has more dimensions than NumPy allows.
constexpr size_t mostDimensions = 64;
/// Elements of an array, so that products of two numbers below it fit.
constexpr int64_t mostElements = int64_t(1) << 52;

class HeaderScanner {
public:
  HeaderScanner(std::string_view text, uint64_t begin, const std::string &name)
      : text(text), begin(begin), name(name) {}

  NpyHeader run() {
    expect('{');
    while (!take('}')) {
      std::string key = string();
      expect(':');
      if (key == "descr" && !descr)
        descr = string();
      else if (key == "fortran_order" && !fortran)
        fortran = boolean();
      else if (key == "shape" && !shape)
        shape = tuple();
      else
        error("expected each of the keys 'descr', 'fortran_order' and 'shape' "
              "once, found '" +
              key + "'");
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skipSpace();
    if (at != text.size())
      error("expected the end of the header");
    if (!descr || !fortran || !shape)
      error(std::string("expected the key '") +
            (!descr     ? "descr"
             : !fortran ? "fortran_order"
                        : "shape") +
            "'");
    if (*fortran)
      error("expected rows first, found an array in Fortran order");
    NpyHeader header;
    header.shape = *shape;
    readType(header);
    return header;
  }

private:
  [[noreturn]] void error(const std::string &what) const {
    invalid("data file '" + name + "', byte " + str(begin + at) + ": " + what);
  }
  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n'))
      ++at;
  }
  bool take(char wanted) {
    skipSpace();
    if (at == text.size() || text[at] != wanted)
      return false;
    ++at;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted))
      error(std::string("expected '") + wanted + "'" +
            (at < text.size() ? ", found '" + std::string(1, text[at]) + "'"
                              : ", found the end of the header"));
  }
  std::string string() {
    skipSpace();
    char quote = at < text.size() ? text[at] : ' ';
    if (quote != '\'' && quote != '"')
      error("expected a string");
    size_t end = text.find(quote, at + 1);
    if (end == std::string_view::npos)
      error("expected the end of a string");
    std::string result(text.substr(at + 1, end - at - 1));
    at = end + 1;
    return result;
  }
  bool boolean() {
    skipSpace();
    for (const auto &[word, value] :
         {std::pair<std::string_view, bool>("True", true), {"False", false}})
      if (text.substr(at, word.size()) == word) {
        at += word.size();
        return value;
      }
    error("expected True or False");
  }
  int64_t number() {
    skipSpace();
    size_t digits = at;
    int64_t value = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      if ((value = value * 10 + (text[at] - '0')) > mostElements)
        error("expected a dimension of at most " + str(mostElements));
    if (at == digits)
      error("expected a number");
    return value;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> result;
    int64_t elements = 1;
    expect('(');
    while (!take(')')) {
      result.push_back(number());
      if (result.size() > mostDimensions)
        error("expected at most " + str(mostDimensions) + " dimensions");
      if (result.back() > 0 && elements > mostElements / result.back())
        error("expected at most " + str(mostElements) + " elements");
      elements *= std::max<int64_t>(result.back(), 1);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return result;
  }
  /// The element type: byte order, kind and width, as in "<f4".
  void readType(NpyHeader &header) const {
    std::string type = *descr;
    static constexpr std::string_view known[] = {"f4", "f8", "i1", "i2", "i4",
                                                 "i8", "u1", "u2", "u4", "b1"};
    std::string_view plain = std::string_view(type).substr(!type.empty());
    bool isKnown = false;
    for (std::string_view name : known)
      isKnown |= plain == name;
    if (!isKnown || (type[0] != '<' && type[0] != '|' && type[0] != '>'))
      error("expected elements of type f4, f8, i1, i2, i4, i8, u1, u2, u4 or "
            "b1, found '" +
            type + "'");
    if (type[0] == '>')
      error("expected the least significant byte first, found '" + type + "'");
    header.kind = plain[0];
    header.width = uint64_t(plain[1] - '0');
  }

  std::string_view text;
  uint64_t begin;
  const std::string &name;
  size_t at = 0;
  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<int64_t>> shape;
};

} // namespace

NpyHeader parseNpyHeader(std::string_view bytes, const std::string &name) {
  constexpr std::string_view magic("\x93NUMPY", 6);
  constexpr size_t lengthAt = 8;
  if (bytes.substr(0, magic.size()) != magic)
    invalid("data file '" + name +
            "': expected an array file, which begins with \\x93NUMPY");
  auto byte = [&](size_t at) -> uint64_t {
    return at < bytes.size() ? uint8_t(bytes[at]) : 0;
  };
  uint64_t version = byte(magic.size());
  if (bytes.size() > magic.size() && (version < 1 || version > 3))
    invalid("data file '" + name + "': expected version 1, 2 or 3 of the " +
            "format of array files, found " + str(version));
  size_t width = version == 1 ? 2 : 4;
  uint64_t length = 0;
  for (size_t i = 0; i < width; ++i)
    length |= byte(lengthAt + i) << (8 * i);
  uint64_t begin = lengthAt + width;
  if (begin > bytes.size() || length > bytes.size() - begin)
    invalid("data file '" + name + "': the header ends at byte " +
            str(begin + length) + " of a file of " + str(bytes.size()));
  NpyHeader header =
      HeaderScanner(bytes.substr(begin, length), begin, name).run();
  header.dataOffset = begin + length;
  return header;
}

} // namespace grt
