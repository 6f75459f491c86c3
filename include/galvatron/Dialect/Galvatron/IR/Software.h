//===- Software.h - A plan of other software on a module --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_SOFTWARE_H
#define GALVATRON_DIALECT_GALVATRON_IR_SOFTWARE_H

#include "llvm/ADT/StringRef.h"

namespace galvatron {

/// The attribute of a module that other software's file was imported to: a
/// string of JSON with the sizes and the configuration that the file says, as
/// Software/Document.h reads it. This runtime plans the module without it.
inline constexpr llvm::StringLiteral kSoftwareAttr = "galvatron.software";

} // namespace galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_SOFTWARE_H
