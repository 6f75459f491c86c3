//===- text_begins.h - What runs where texts begin --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calls of gvx::CallWhen::TextsBegin compute what an encoder makes of a text.
// In all other passes their results are not there, so nothing else may read
// them but attention that keeps them, which does where a text begins; and they
// may read nothing that is made with every token.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TEXT_BEGINS_H
#define GRT_CORE_TEXT_BEGINS_H

#include "core/manifest.h"
#include "program/reader.h"

#include <string>

namespace grt {

/// The first call that runs in the wrong passes, with its function and layer;
/// "" if there is none. Inputs of a function are taken for what the first call
/// that reads them needs.
std::string wrongTextBegins(const Manifest &manifest,
                            const ProgramFile &program);

} // namespace grt

#endif // GRT_CORE_TEXT_BEGINS_H
