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

/// The tokens around the text of a model with an encoder and a decoder.
struct DecoderTokens {
  int32_t start;   ///< the first that the decoder reads
  int32_t end;     ///< behind what the encoder reads and the decoder writes
  int32_t padding; ///< fills up what the encoder reads
};

/// Reads them from the configuration that the program was compiled from. A
/// token that it does not name is refused, as `option` needs it.
grt::Status findDecoderTokens(const std::string &option,
                              const grt::Program &program,
                              const TextCoding &text, DecoderTokens &tokens);

#endif // GALVATRON_RUN_CORRUPTION_H
