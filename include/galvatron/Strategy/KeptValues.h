//===- KeptValues.h - What a layer keeps for backward -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A layer whose strategy has a point keeps a set of its body's values between
// forward and backward, and backward computes again what else it needs from
// these and the layer's inputs. Plans hold the set itself: the number of a
// point is chosen by prices, which change with cluster and version.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_KEPTVALUES_H
#define GALVATRON_STRATEGY_KEPTVALUES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace galvatron {

/// A result of an operation of a body, both numbered from 0 on.
struct KeptValue {
  int64_t operation = 0, result = 0;

  auto operator<=>(const KeptValue &other) const = default;
  /// "7", or "7:1" of another result than the first.
  std::string str() const;
  static llvm::Expected<KeptValue> parse(llvm::StringRef text);
};

struct KeptValues {
  std::string body;              ///< hash of the body that has the values
  std::vector<KeptValue> values; ///< ascending

  bool operator==(const KeptValues &other) const = default;
  /// {"body": "0123456789abcdef", "values": ["3", "9:1"]}.
  llvm::json::Value toJson() const;
  /// Reads what toJson() writes; the error says what `path` must be.
  static llvm::Expected<KeptValues> fromJson(const llvm::json::Value &value,
                                             const std::string &path);
};

/// Error: the values do not ascend.
llvm::Error checkAscending(const std::vector<KeptValue> &values);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_KEPTVALUES_H
