//===- corruption.h - Which tokens stand for masks and spans ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_CORRUPTION_H
#define GALVATRON_RUN_CORRUPTION_H

#include "text.h"

/// Completes a corruption by the tokens that it needs: those of the options, of
/// the tokenizer, and of the configuration that the program was compiled from.
/// What none of them says is refused.
grt::Status findCorruptionTokens(const Options &options,
                                 const grt::Program &program,
                                 const TextCoding &text,
                                 grt::Corruption &corruption);

#endif // GALVATRON_RUN_CORRUPTION_H
