//===- agreement.h - What the processes of a run must share ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Terms for Processes::agree. Program and options are compared first, before
// anything that follows from them; then what they led to: the checkpoint, the
// weights and the data as each process finds them on its machine.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_AGREEMENT_H
#define GALVATRON_RUN_AGREEMENT_H

#include "grt/processes.h"
#include "options.h"
#include "resume.h"

#include <vector>

/// The program, and every option as it was given but for those that only
/// concern one process. A program that could not be loaded is null.
std::vector<grt::Term> termsOfOptions(const Options &options,
                                      const grt::Program *program);

/// Gathers the terms of where the run begins, and on what data. Fails if the
/// weights cannot be read.
grt::Status termsOfBeginning(const Options &options, const Beginning &beginning,
                             const grt::Dataset *data,
                             std::vector<grt::Term> &terms);

#endif // GALVATRON_RUN_AGREEMENT_H
