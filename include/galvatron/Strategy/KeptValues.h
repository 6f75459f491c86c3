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

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <compare>
#include <cstdint>
#include <optional>
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
  /// The values in the model's words, for people; empty if these are not known.
  std::vector<std::string> names;
  /// The names of what backward needs and computes again.
  std::vector<std::string> remade;

  /// Names do not count.
  bool operator==(const KeptValues &other) const {
    return body == other.body && values == other.values;
  }
  /// "keeps self_attn.attention, mlp.up_proj; computes mlp.gate_proj again";
  /// empty without names.
  std::string text() const;
  /// {"body": "0123456789abcdef", "values": ["3", "9:1"], "names": [..],
  /// "remade": [..]}, the last two if they are known.
  llvm::json::Value toJson() const;
  /// Reads what toJson() writes; the error says what `path` must be.
  static llvm::Expected<KeptValues> fromJson(const llvm::json::Value &value,
                                             const std::string &path);
};

/// A value of a layer's body in the model's words.
struct NamedValue {
  KeptValue value;
  std::string name;
  bool needed = false; ///< backward reads it
  /// Modules of recomputeModules() that it belongs to.
  std::vector<std::string> modules;
};

/// A part of a layer that other software recomputes by name.
struct RecomputeModule {
  llvm::StringLiteral name; ///< Megatron's
  llvm::StringLiteral text; ///< which values belong to it
  /// Whether any layer of ours has such a part.
  bool known;
};
llvm::ArrayRef<RecomputeModule> recomputeModules();

/// The values that a list of words means, of those that a layer has, ascending.
/// A word is a value's name, the beginning of several names up to a dot, or a
/// module of recomputeModules(); with '-' in front it takes its values away.
/// A list that begins so begins with all that backward needs. Nothing if the
/// layer has no value of any word that is not taken away, or of any at all.
std::optional<std::vector<KeptValue>>
selectValues(llvm::ArrayRef<NamedValue> values,
             llvm::ArrayRef<std::string> words);

/// Error: the values do not ascend.
llvm::Error checkAscending(const std::vector<KeptValue> &values);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_KEPTVALUES_H
