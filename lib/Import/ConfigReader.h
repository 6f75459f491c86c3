//===- ConfigReader.h - Fields of a configuration ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the fields of a Hugging Face `config.json` one by one and remembers
// which were asked for and what is in effect. What nobody asked for is an error
// in the end, unless it says nothing (`FieldTable.h`): a field that is silently
// passed over could have meant another model.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_CONFIGREADER_H
#define GALVATRON_LIB_IMPORT_CONFIGREADER_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace galvatron {

/// Reads one object. The first error sticks; readers go on with a value that
/// does no harm. "Absent" below means that the field is not there; null is a
/// value of its own, taken where a method says so.
class ConfigReader {
public:
  /// Names of a field, the family's own first, then those that the library
  /// takes for it.
  using Names = llvm::ArrayRef<llvm::StringLiteral>;

  /// `ignored` names fields that pass whatever they say, as long as the family
  /// does not read them.
  ConfigReader(const llvm::json::Object &object, llvm::StringRef fileName,
               llvm::StringRef modelType,
               llvm::ArrayRef<std::string> ignored = {})
      : object(object), fileName(fileName), modelType(modelType),
        ignored(ignored.begin(), ignored.end()) {}

  llvm::StringRef getModelType() const { return modelType; }
  llvm::StringRef getFileName() const { return fileName; }

  void fail(llvm::StringRef field, const llvm::Twine &message);

  /// An integer of at least 1 that must be given.
  int64_t positive(llvm::StringRef field);
  /// Reads such an integer under one of several names.
  int64_t positive(Names fields);
  /// Reads such an integer, with a value for where it is absent or null.
  int64_t positiveOr(llvm::StringRef field, int64_t fallback);
  int64_t positiveOr(Names fields, int64_t fallback);
  /// An integer of at least 1, `fallback` where it is absent, none where it is
  /// null.
  std::optional<int64_t> positiveOrNull(llvm::StringRef field,
                                        std::optional<int64_t> fallback);
  /// A list of at least one such integer; `fallback` where it is absent or
  /// null.
  std::vector<int64_t> positivesOr(llvm::StringRef field,
                                   std::vector<int64_t> fallback);
  /// An integer of at least 0; `fallback` where it is absent or null.
  int64_t countOr(llvm::StringRef field, int64_t fallback);
  /// A number in [0, 1); `fallback` where it is absent, as below.
  double probabilityOr(llvm::StringRef field, double fallback);
  double positiveNumberOr(llvm::StringRef field, double fallback);
  /// Reads such a number; none where it is absent or null.
  std::optional<double> positiveNumberOrNull(llvm::StringRef field);
  /// A positive number that must be given.
  double positiveNumber(llvm::StringRef field);
  /// A list of positive numbers that must be given.
  std::vector<double> positiveNumbers(llvm::StringRef field);
  bool booleanOr(llvm::StringRef field, bool fallback);
  std::string stringOr(llvm::StringRef field, llvm::StringRef fallback);
  /// A list of strings; none where it is absent or null.
  std::optional<std::vector<std::string>> strings(llvm::StringRef field);
  /// A list of 0, 1, false and true; none where it is absent or null.
  std::optional<std::vector<bool>> flags(llvm::StringRef field);
  /// An object; null where it is absent or null. Read it with a reader of its
  /// own and hand that to `finishNested`.
  const llvm::json::Object *nested(llvm::StringRef field);
  /// A reader of `nested`, whose errors name fields as `field.name`.
  ConfigReader nestedReader(llvm::StringRef field,
                            const llvm::json::Object &nested) const;
  void finishNested(ConfigReader &reader);

  /// Rows and columns: an integer of at least 1 for both, or a list of two;
  /// `fallback` where it is absent or null.
  std::pair<int64_t, int64_t> sizeOr(llvm::StringRef field, int64_t fallback);
  /// `pad_token_id`, a token of the vocabulary; none where it is null.
  std::optional<int64_t> paddingToken(std::optional<int64_t> fallback,
                                      int64_t vocabulary);
  /// The number of classes: `num_labels`, else the entries of `id2label`, else
  /// 2; at least 2.
  int64_t classes();
  /// Fields that change nothing for this family.
  void passOver(Names fields);
  void passOver(llvm::StringRef field) { get(field); }

  /// Refuses a field that is there with another value than `plain`; `why` says
  /// what is missing. Null is plain.
  void expectPlain(llvm::StringRef field, const llvm::json::Value &plain,
                   const llvm::Twine &why = "unsupported");
  /// Refuses likewise a field that the family does not read and other families
  /// do; it can be ignored by name.
  void expectForeign(llvm::StringRef field, const llvm::json::Value &plain,
                     const llvm::Twine &why);
  /// Says what is in effect though no field was read for it: a field of another
  /// family passes at this value.
  void have(llvm::StringRef meaning, llvm::json::Value value);
  /// The end of a message about what a field must be: ", found 32", or that it
  /// is not given and `value` is its default.
  std::string found(llvm::StringRef field, int64_t value) const;
  /// Refuses an `architectures` whose first entry is none of `names`.
  void expectArchitecture(Names names);

  /// Sets the words for a field that is refused where a model is counted and
  /// not built; they then come before errors of sizes.
  void refuseFirst(llvm::StringRef words) {
    refusal = words.str();
    unknownFirst = true;
  }
  const llvm::json::Object &getObject() const { return object; }

  bool has(llvm::StringRef field) const { return object.get(field) != nullptr; }
  /// Whether a field is there with this value; it does not count as read.
  bool says(llvm::StringRef field, const llvm::json::Value &value) const {
    const llvm::json::Value *given = object.get(field);
    return given && *given == value;
  }

  llvm::Error firstError() const;
  /// The first error; or the first field that was not asked for and could mean
  /// another model. One that is a misspelt name of a field comes before both.
  llvm::Error finish();

  /// After finish(): the fields that were passed over and are worth a line, as
  /// "'name': value", and the names of those that were ignored by name.
  llvm::ArrayRef<std::string> passedFields() const { return passed; }
  llvm::ArrayRef<std::string> droppedFields() const { return dropped; }
  /// The notice about code that comes with the file, or "".
  std::string ownCode() const;

private:
  /// Why a field that was not asked for is refused; "" where it passes.
  std::string judge(llvm::StringRef field, const llvm::json::Value &value);
  /// The values in effect for a meaning.
  llvm::SmallVector<llvm::json::Value, 2>
  effectsOf(llvm::StringRef meaning) const;
  /// The name of the field that was probably meant; "" if none was.
  std::string guess(llvm::StringRef field) const;
  const llvm::json::Value *get(llvm::StringRef field);
  /// The first that is there, else the first. All are asked for: the library
  /// drops the others where two are given.
  llvm::StringRef givenOf(Names fields);
  std::string print(llvm::StringRef field) const;
  int64_t checkPositive(llvm::StringRef field, const llvm::json::Value &value);
  double numberOr(llvm::StringRef field, double fallback);

  const llvm::json::Object &object;
  std::string fileName, modelType;
  std::string prefix; ///< of nested fields' names, with a point behind it
  llvm::StringSet<> asked;
  llvm::StringMap<llvm::SmallVector<llvm::json::Value, 1>> effects;
  std::vector<std::string> ignored, passed, dropped;
  std::string error;
  std::string refusal; ///< empty: of an unknown field
  bool unknownFirst = false;
};

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_CONFIGREADER_H
