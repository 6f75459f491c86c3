//===- program_text.h - Calls and tasks of a program as text ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_PROGRAM_TEXT_H
#define GRT_CORE_PROGRAM_TEXT_H

#include "program/reader.h"

#include <span>
#include <string>

namespace grt {

/// "stash", "grad-in", ..
const char *regionName(uint32_t region);
/// "gemm", "layer-norm", ...
const char *kernelName(uint32_t kernel);
/// "compute", "gather", ..
const char *streamName(uint32_t stream);
/// "prologue", "steady", ..
const char *partName(int part);

/// A call of a layer function: "gemm 'h.mlp.c_fc': a input[0, 4096) f32, b
/// parameter[64, 1088) f32; m 16, n 16", "all-reduce 'h' over tp on compute:
/// output[0, 4096) f32", "record 3 on gather", "begin stash[0, 64) f32".
std::string textOf(const ProgramFile &file, const gvx::Call &call);

/// A task of a role: "forward chunk 0, micro-batch 3, slot 1", "transfer: send
/// activation of micro-batch 3 from chunk 0 to chunk 1".
std::string textOf(const grt_task &task, const grt_schedule &schedule);

/// A procedure: "forward of chunk 1", "swap in parameters of chunk 0 on in",
/// "norm", "older versions".
std::string procedureName(const gvx::Procedure &procedure);

/// A command: "call layer 3, backward", "copy [0, 64) to [128, 192) + 4096
/// slot", "gather layer 0 for forward", "if sums run behind, sum layer 2".
std::string textOf(const gvx::Command &command,
                   std::span<const gvx::Place> places);

/// An end of a message: "send activation of chunk 0 to chunk 1: exchange 2,
/// [0, 64), shared with buffer 0".
std::string textOf(const gvx::Message &message,
                   std::span<const gvx::Place> places);

} // namespace grt

#endif // GRT_CORE_PROGRAM_TEXT_H
