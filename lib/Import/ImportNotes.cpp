//===- ImportNotes.cpp - What readers of configurations have to tell ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Family.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;
using llvm::StringRef;

llvm::Error galvatron::takeNotes(const ConfigReader &reader,
                                 llvm::ArrayRef<std::string> ignored,
                                 ImportNotes &notes) {
  for (const std::string &name : ignored)
    if (!llvm::is_contained(reader.droppedFields(), name))
      return makeError("option --ignore-field: expected a field of '" +
                       reader.getFileName() + "', found '" + name + "'");
  llvm::append_range(notes.passed, reader.passedFields());
  llvm::append_range(notes.ignored, ignored);
  notes.code = reader.ownCode();
  return llvm::Error::success();
}

std::string ImportNotes::str(StringRef prefix, StringRef fileName) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (!part.empty())
    os << prefix << "note: " << fileName << ": " << part
       << " alone; --save writes it as a model of its own\n";
  if (!passed.empty() || !ignored.empty()) {
    os << prefix << "note: " << fileName << ": ";
    if (!passed.empty()) {
      os << "passed over, for they say nothing of the model: ";
      llvm::interleaveComma(passed, os);
    }
    if (!ignored.empty()) {
      os << (passed.empty() ? "" : "; ") << "ignored, as told: ";
      llvm::interleaveComma(ignored, os,
                            [&](StringRef name) { os << "'" << name << "'"; });
    }
    os << "\n";
  }
  if (!code.empty())
    os << prefix << "warning: " << fileName << ": field 'auto_map': " << code
       << "\n";
  return text;
}

std::vector<std::string> ImportNotes::records() const {
  std::vector<std::string> sentences;
  for (const std::string &name : ignored)
    sentences.push_back("--ignore-field=" + name);
  return sentences;
}
