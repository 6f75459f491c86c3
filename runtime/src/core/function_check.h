//===- function_check.h - The proof of a program's functions --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A function's calls say which bytes they read and write (the list of kernels)
// and on which stream. So before anything runs it is known whether a call reads
// what nothing has written, uses memory whose life has not begun or has ended,
// or runs beside another one that it must not meet.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_FUNCTION_CHECK_H
#define GRT_CORE_FUNCTION_CHECK_H

#include "core/manifest.h"
#include "program/reader.h"

#include <string>

namespace grt {

/// The first fault in the functions that layers of the program call, with the
/// function and the call that has it; "" if there is none. What it finds:
///
///  - a transient buffer that is begun over another one or used outside of its
///    life, and any buffer that is ended without a begin;
///  - a read of transient memory, or of what a layer keeps for backward or
///    hands on, that no call before has written: of a function, and of those
///    that run before it on the same layer and micro-batch;
///  - an output of a forward function, or a gradient of an input of a backward
///    one, that is not written;
///  - a write to gathered parameters;
///  - two calls on different streams that share bytes, one of which writes, and
///    no event that orders them (grt/stream_order.h).
///
/// Calls that do not suit their kernels are left to those who know layers
/// (core/call_checks.h).
std::string wrongFunctions(const Manifest &manifest,
                           const ProgramFile &program);

} // namespace grt

#endif // GRT_CORE_FUNCTION_CHECK_H
