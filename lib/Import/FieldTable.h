//===- FieldTable.h - What fields of configurations say ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Families spell the same thing in different ways, and files carry fields of
// other families, of older versions and of other tools. The tables behind these
// functions are data: which spellings mean the same, what a family does anyway
// though no field of its own says so, and which names say nothing of a model.
// `ConfigReader` judges by them every field that a family did not ask for.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_FIELDTABLE_H
#define GALVATRON_LIB_IMPORT_FIELDTABLE_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

#include <optional>

namespace galvatron {

/// The meaning of a field, under the name that most families have for it.
struct FieldMeaning {
  llvm::StringRef name;
  bool negated = false; ///< true says false
};

/// The meaning of a field that the table of some family reads; none for all
/// others. Underscores in front of a name do not count.
std::optional<FieldMeaning> meaningOf(llvm::StringRef field);

/// All fields that say a meaning, its own name first, without those that say
/// the opposite.
llvm::SmallVector<llvm::StringRef, 8> spellingsOf(llvm::StringRef meaning);

/// The values that a family has in effect for a meaning without any field of
/// its own: by what kind of model it is, else what nearly all families do.
/// Empty if nothing is known.
llvm::SmallVector<llvm::json::Value, 2> fixedEffects(llvm::StringRef modelType,
                                                     llvm::StringRef meaning);

/// Whether two values of a field mean the same: numbers by value, names of
/// activations by the function.
bool sameValue(const llvm::json::Value &a, const llvm::json::Value &b);

/// null, or a list, object or string without content.
bool isEmptyValue(const llvm::json::Value &value);

/// Fields that the library writes for every family: how a checkpoint was stored
/// or how it is run. They change neither the model nor its training.
bool isLibraryNote(llvm::StringRef field);

/// Fields that the library writes for every family in whole dumps: they pass
/// without a word where they are off.
bool isQuietWhenOff(llvm::StringRef field);

/// Notes of converters, of serving and of other tools.
bool isForeignNote(llvm::StringRef field, const llvm::json::Value &value);

/// Whether 0 under this name switches something off: a dropout's probability or
/// the coefficient of a loss.
bool isOffAtZero(llvm::StringRef field);

/// More layers than any model has: each is an operation of its own.
constexpr int64_t kMostLayers = 65536;

/// Whether a field says how many layers there are, of which `kMostLayers` are
/// taken.
bool isLayerCount(llvm::StringRef field);

/// The field that switches `field` off where it is false or 0; "" if none.
llvm::StringRef switchOf(llvm::StringRef field);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_FIELDTABLE_H
