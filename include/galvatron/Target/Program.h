//===- Program.h - From a module to a program -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program (`.gvx`) is data: tables of calls and tasks, and the manifest. Its
// format, and the class that writes it, are the runtime's
// (grt/program_file.h).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TARGET_PROGRAM_H
#define GALVATRON_TARGET_PROGRAM_H

#include "galvatron/Target/Manifest.h"
#include "grt/program_file.h"

#include <string>

namespace mlir::galvatron {

/// Adds the functions and schedules of `module` to a program: functions in
/// module order, roles by stage. Fails, with a diagnostic, on transient buffers
/// without an offset, on a role without a schedule, and on operations that a
/// program has no rows for.
LogicalResult addTables(ModuleOp module, ::grt::gvx::ProgramBuilder &program);

/// The bytes of the program of `module`, which must have gone through
/// galvatron-allocate-arena and stays as it is. Fails, with a diagnostic, where
/// addTables or writeManifest does, and on what is beyond the limits of the
/// format.
FailureOr<std::string> buildProgram(ModuleOp module,
                                    const ManifestOptions &options = {});
/// Builds the program with its rows in `program`, which must be new.
FailureOr<std::string> buildProgram(ModuleOp module,
                                    const ManifestOptions &options,
                                    ::grt::gvx::ProgramBuilder &program);

/// Fails, with a diagnostic on `module`, on a program of it, as buildProgram
/// has made it, that the runtime would refuse when it loads it or makes its
/// ranks: the checks are the runtime's own (grt/program_file.h). `made`: the
/// tables of its builder, whose manifest is not read again.
LogicalResult verifyProgram(ModuleOp module, StringRef program,
                            const ::grt::gvx::Tables *made = nullptr);

/// Writes the program of `module` to `outputPath`, atomically: the file is
/// there in full or not at all; into a device or a pipe it is written as into
/// any other. Fails, with a diagnostic, where buildProgram and verifyProgram
/// do, and where the file cannot be written.
LogicalResult emitProgram(ModuleOp module, StringRef outputPath,
                          const ManifestOptions &options = {});

} // namespace mlir::galvatron

#endif // GALVATRON_TARGET_PROGRAM_H
