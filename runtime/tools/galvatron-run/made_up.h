//===- made_up.h - Data for steps that are only timed -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_MADE_UP_H
#define GALVATRON_RUN_MADE_UP_H

#include "grt/session.h"

/// A batch of the program: real values in (-1, 1), integers below their bound.
/// Numbers depend on the place alone, so that all processes make the same.
grt::DataBatch madeUpBatch(const grt::Program &program);

#endif // GALVATRON_RUN_MADE_UP_H
