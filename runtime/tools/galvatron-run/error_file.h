//===- error_file.h - Why a process ended, for its launcher -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_ERROR_FILE_H
#define GALVATRON_RUN_ERROR_FILE_H

#include "grt/session.h"

/// Writes the failure to the file that TORCHELASTIC_ERROR_FILE names, in
/// torchelastic's form, so that torchrun shows it as the cause and by its time
/// finds the process that was first. Nothing without the variable; a file that
/// cannot be written changes nothing.
void writeErrorFile(const grt::Status &status);

#endif // GALVATRON_RUN_ERROR_FILE_H
