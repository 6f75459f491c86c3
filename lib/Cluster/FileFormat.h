//===- FileFormat.h - Pieces of cluster files in YAML -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Quantities, links and curves as cluster files and the list of device types
// (DeviceTypes.yaml) spell them, for LLVM's YAML I/O.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CLUSTER_FILEFORMAT_H
#define GALVATRON_CLUSTER_FILEFORMAT_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/YAMLTraits.h"
#include "llvm/Support/raw_ostream.h"

#include <array>
#include <charconv>
#include <map>
#include <string>
#include <vector>

namespace galvatron::file {

/// A quantity as the file has it. Distinct types so that each has its own
/// parser and the error points at the value's line.
struct BytesText {
  int64_t value = 0;
};
struct BandwidthText {
  double value = 0;
};
struct SecondsText {
  double value = 0;
};
struct FlopsText {
  double value = 0;
};

/// A plain number, printed so that it reads back as the same value.
struct NumberText {
  double value = 0;
};

struct LinkText {
  BandwidthText bandwidth;
  SecondsText latency;
};

/// Points of an EfficiencyCurve: [size, fraction].
using CurveText = std::vector<std::vector<NumberText>>;

/// llvm::yaml keeps the StringRef: the message must outlive the call.
inline llvm::StringRef keep(llvm::Error error) {
  static thread_local std::string message;
  message = llvm::toString(std::move(error));
  return message;
}

/// The names that were probably meant by keys that are not known, for those
/// who report errors. The context of an llvm::yaml::Input, or null.
using MeantKeys = std::map<std::string, std::string>;

/// Stands in for the IO of a mapping and takes down its keys.
struct KeyNames {
  std::vector<std::string> names;

  bool outputting() const { return false; }
  template <typename... Rest> void mapRequired(const char *key, Rest &&...) {
    names.push_back(key);
  }
  template <typename... Rest> void mapOptional(const char *key, Rest &&...) {
    names.push_back(key);
  }
};

/// Maps what `visit` maps. llvm::yaml would report a required key as missing
/// and never come to the misspelt one that stands there in its place.
template <typename Visit> void mapKeys(llvm::yaml::IO &io, Visit visit) {
  // An input with an error may have no node with keys.
  if (io.outputting() || io.error())
    return visit(io);
  KeyNames known;
  visit(known);
  bool allKnown = true;
  for (llvm::StringRef key : io.keys()) {
    if (llvm::is_contained(known.names, key))
      continue;
    allKnown = false;
    if (auto *meant = static_cast<MeantKeys *>(io.getContext()))
      (*meant)[key.str()] = didYouMean(key, known.names);
  }
  if (allKnown)
    return visit(io);
  // The end of the mapping then reports what nobody asked for, at its place.
  for (const std::string &key : known.names) {
    bool useDefault = false;
    void *saved = nullptr;
    if (io.preflightKey(key, /*Required=*/false, /*SameAsDefault=*/false,
                        useDefault, saved))
      io.postflightKey(saved);
  }
}

inline Link toLink(const LinkText &text) {
  return {text.bandwidth.value, text.latency.value};
}

inline LinkText toText(const Link &link) {
  return {{link.bandwidth}, {link.latency}};
}

inline llvm::Expected<EfficiencyCurve> toCurve(const CurveText &rows,
                                               const llvm::Twine &where) {
  std::vector<EfficiencyCurve::Point> points;
  for (const std::vector<NumberText> &row : rows) {
    if (row.size() != 2)
      return makeError(where + ": expected [size, fraction], found " +
                       llvm::Twine(row.size()) + " numbers");
    points.push_back({row[0].value, row[1].value});
  }
  return EfficiencyCurve(std::move(points));
}

inline CurveText toText(const EfficiencyCurve &curve) {
  CurveText rows;
  for (const auto &[size, fraction] : curve.points())
    rows.push_back({{size}, {fraction}});
  return rows;
}

} // namespace galvatron::file

namespace llvm::yaml {

template <typename Text, typename Value>
StringRef readQuantity(StringRef scalar, Text &text,
                       Expected<Value> (*parse)(StringRef)) {
  Expected<Value> value = parse(scalar);
  if (!value)
    return galvatron::file::keep(value.takeError());
  text.value = *value;
  return {};
}

#define GALVATRON_QUANTITY(TEXT, PARSE, PRINT)                                 \
  template <> struct ScalarTraits<TEXT> {                                      \
    static void output(const TEXT &text, void *, raw_ostream &os) {            \
      os << PRINT(text.value);                                                 \
    }                                                                          \
    static StringRef input(StringRef scalar, void *, TEXT &text) {             \
      return readQuantity(scalar, text, PARSE);                                \
    }                                                                          \
    static QuotingType mustQuote(StringRef) { return QuotingType::None; }      \
  };
GALVATRON_QUANTITY(galvatron::file::BytesText, galvatron::parseBytes,
                   galvatron::printBytes)
GALVATRON_QUANTITY(galvatron::file::BandwidthText, galvatron::parseBandwidth,
                   galvatron::printBandwidth)
GALVATRON_QUANTITY(galvatron::file::SecondsText, galvatron::parseSeconds,
                   galvatron::printSeconds)
GALVATRON_QUANTITY(galvatron::file::FlopsText, galvatron::parseFlops,
                   galvatron::printFlops)
#undef GALVATRON_QUANTITY

template <> struct ScalarTraits<galvatron::file::NumberText> {
  static void output(const galvatron::file::NumberText &number, void *,
                     raw_ostream &os) {
    std::array<char, 32> text;
    char *end =
        std::to_chars(text.data(), text.data() + text.size(), number.value).ptr;
    os << StringRef(text.data(), end - text.data());
  }
  static StringRef input(StringRef scalar, void *,
                         galvatron::file::NumberText &number) {
    return scalar.getAsDouble(number.value) ? "expected a number" : StringRef();
  }
  static QuotingType mustQuote(StringRef) { return QuotingType::None; }
};

template <> struct MappingTraits<galvatron::file::LinkText> {
  static void mapping(IO &io, galvatron::file::LinkText &link) {
    galvatron::file::mapKeys(io, [&](auto &keys) {
      keys.mapRequired("bandwidth", link.bandwidth);
      keys.mapOptional("latency", link.latency);
    });
  }
  static const bool flow = true;
};

template <>
struct CustomMappingTraits<std::map<std::string, galvatron::file::FlopsText>> {
  static void
  inputOne(IO &io, StringRef key,
           std::map<std::string, galvatron::file::FlopsText> &flops) {
    io.mapRequired(key.str().c_str(), flops[key.str()]);
  }
  static void output(IO &io,
                     std::map<std::string, galvatron::file::FlopsText> &flops) {
    for (auto &[dtype, rate] : flops)
      io.mapRequired(dtype.c_str(), rate);
  }
};

/// Lists inside lists, on one line.
template <typename T> struct FlowSequence {
  static size_t size(IO &, std::vector<T> &row) { return row.size(); }
  static T &element(IO &, std::vector<T> &row, size_t index) {
    if (index >= row.size())
      row.resize(index + 1);
    return row[index];
  }
  static const bool flow = true;
};
template <>
struct SequenceTraits<std::vector<galvatron::file::BandwidthText>>
    : FlowSequence<galvatron::file::BandwidthText> {};
template <>
struct SequenceTraits<std::vector<galvatron::file::NumberText>>
    : FlowSequence<galvatron::file::NumberText> {};
template <>
struct SequenceTraits<std::vector<std::vector<galvatron::file::NumberText>>>
    : FlowSequence<std::vector<galvatron::file::NumberText>> {};
template <>
struct SequenceTraits<std::vector<std::string>> : FlowSequence<std::string> {};
template <>
struct SequenceTraits<std::vector<std::vector<std::string>>>
    : FlowSequence<std::vector<std::string>> {};

} // namespace llvm::yaml

#endif // GALVATRON_CLUSTER_FILEFORMAT_H
