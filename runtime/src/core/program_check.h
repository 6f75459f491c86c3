//===- program_check.h - What a program is refused for ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_PROGRAM_CHECK_H
#define GRT_CORE_PROGRAM_CHECK_H

#include "core/manifest.h"
#include "grt/session.h"
#include "program/reader.h"

#include <span>
#include <string>
#include <string_view>

namespace grt {

/// The manifest of a program, which its tables agree with: every task names
/// what its role has, and what lies in an arena is apart. Throws Error (2) that
/// says what was expected and found, and begins with `name`.
Manifest checkedManifest(const ProgramFile &program, const std::string &name);

/// The manifest of that text, which so many functions and these schedules, one
/// per role, agree with. Throws Error (2) without a name.
Manifest checkedManifest(std::string_view text, size_t functions,
                         std::span<const grt_schedule> schedules);

/// The first fault in what a program does: a schedule that cannot run
/// (core/schedule_check.h), a function that reads what nothing wrote
/// (core/function_check.h). "" if there is none. The manifest is the program's
/// checked one.
std::string unprovable(const Manifest &manifest, const ProgramFile &program);

/// The same of a program that is loaded, as an error (2) that a session of it
/// would be.
Status proven(const Program &program);

} // namespace grt

#endif // GRT_CORE_PROGRAM_CHECK_H
