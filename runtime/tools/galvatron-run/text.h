//===- text.h - Text as tokens of a run -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_TEXT_H
#define GALVATRON_RUN_TEXT_H

#include "options.h"

#include <memory>
#include <optional>
#include <string>

/// The tokens that text is to a model: its bytes, or what a tokenizer makes of
/// them.
class TextCoding {
public:
  virtual ~TextCoding();
  /// The tokens of a text that is to be continued; ExitInvalid where it has
  /// none.
  virtual grt::Status encode(const std::string &text,
                             std::vector<int32_t> &tokens) const = 0;
  virtual std::string decode(const std::vector<int32_t> &tokens) const = 0;
  /// The token that ends a text; -1: none does.
  virtual int32_t end() const { return -1; }
  /// The token of that text; none: there is none, or texts have no names.
  virtual std::optional<int32_t> find(const std::string &) const {
    return std::nullopt;
  }
  /// Returns how many tokens there are; 0: as many as the program has.
  virtual int64_t vocabulary() const { return 0; }
  virtual bool isSpecial(int32_t) const { return false; }
  /// The tokens that a text has around it.
  virtual void frame(std::vector<int32_t> & /*before*/,
                     std::vector<int32_t> & /*behind*/) const {}
  /// SHA-256 of the tokenizer's file, as hexadecimal digits; empty: there is
  /// none.
  virtual std::string tokenizerHash() const { return ""; }
  /// Makes tokens of files of text; empty: their bytes are theirs.
  virtual grt::TextEncoder fileEncoder() const { return nullptr; }
};

/// The coding that the options ask for. A tokenizer with more tokens than the
/// model is refused.
grt::Status openTextCoding(const Options &options, const grt::Program &program,
                           std::unique_ptr<TextCoding> &result);

#endif // GALVATRON_RUN_TEXT_H
