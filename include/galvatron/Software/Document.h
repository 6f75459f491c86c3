//===- Document.h - A shape with its configuration as JSON ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A document is a model's shape and, optionally, a configuration for it:
// galvatron-import writes it from another software's files, galvatron-plan
// reads it (docs/formats.md, section "Shapes").
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_DOCUMENT_H
#define GALVATRON_SOFTWARE_DOCUMENT_H

#include "galvatron/Software/Configuration.h"

#include <optional>

namespace galvatron {

struct SoftwareDocument {
  ModelShape shape;
  std::optional<Configuration> configuration;

  llvm::json::Value toJson() const;
  /// Errors name the key.
  static llvm::Expected<SoftwareDocument>
  fromJson(const llvm::json::Value &value, llvm::StringRef name);
};

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_DOCUMENT_H
