//===- LanguagePart.h - The language model of a larger one ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_LANGUAGEPART_H
#define GALVATRON_LIB_IMPORT_LANGUAGEPART_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <optional>

namespace galvatron {

/// Whether a configuration is that of a model for images and text whose
/// language model can be taken by itself.
bool hasLanguagePart(const llvm::json::Object &config);

/// The configuration of its language model, as if that stood alone. Where words
/// are tied is said by the whole model, or by the part; errors where they
/// differ, or where a field of the whole is none of an object.
///
/// Words alone have equal positions along all axes, so that rotation by
/// sections of axes (`mrope_section`) is the plain one.
llvm::Expected<llvm::json::Object>
languagePart(const llvm::json::Object &config, llvm::StringRef fileName);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_LANGUAGEPART_H
