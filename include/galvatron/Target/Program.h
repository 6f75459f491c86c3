//===- Program.h - From a module to a loadable program ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program (`.gvx`) is an ELF shared object, host code only, that exports
// `grt_program` and imports only `grt_*` functions, followed by a trailer of 48
// bytes: the magic "GVXEND01", the length of the shared object (8 bytes, little
// endian) and its SHA-256. The loader of the operating system ignores what
// follows a shared object; the runtime checks the trailer before it loads.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TARGET_PROGRAM_H
#define GALVATRON_TARGET_PROGRAM_H

#include "galvatron/Target/Manifest.h"

#include <string>

namespace mlir::galvatron {

struct EmitOptions {
  ManifestOptions manifest;
  /// 0 or 1: programs are calls and branches, there is nothing more to gain.
  unsigned optLevel = 0;
  /// The linker to run; empty: the ld.lld of the LLVM this was built with, or
  /// else one on the path.
  std::string linker;
};

/// Writes the program of `module` to `outputPath`, atomically: the file is
/// there in full or not at all; into a device or a pipe it is written as into
/// any other. The module must have gone through
/// galvatron-allocate-arena; it stays as it is. Fails with a diagnostic.
LogicalResult emitProgram(ModuleOp module, StringRef outputPath,
                          const EmitOptions &options = {});

/// The object file of `module` (an ELF relocatable), without linking.
FailureOr<std::string> emitObject(ModuleOp module,
                                  const EmitOptions &options = {});

/// The 48 bytes that follow a shared object in a program.
std::string programTrailer(StringRef payload);

} // namespace mlir::galvatron

#endif // GALVATRON_TARGET_PROGRAM_H
