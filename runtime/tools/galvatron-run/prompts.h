//===- prompts.h - The texts that are to be continued ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_PROMPTS_H
#define GALVATRON_RUN_PROMPTS_H

#include "corruption.h"
#include "generation.h"
#include "text.h"

#include <string>
#include <vector>

/// The prompts for a program that keeps keys, with their continuations. Prompts
/// that an encoder reads are no part of what is written.
struct KeptPrompts {
  std::vector<std::string> texts;
  std::vector<BegunText> prompts;
  std::vector<std::vector<int32_t>> continuations; ///< in tokens
  GenerationRules rules;
};

/// The file that says how to generate; "" if there is none.
std::string generationConfigPath(const Options &options);

/// Makes of a text the tokens that an encoder reads: those that the tokenizer
/// puts around it, or else the end that it was trained with, are among them.
/// ExitInvalid, with `place` in front, where it has none or too many.
grt::Status encodeSource(const std::string &place, const grt::Program &program,
                         const TextCoding &text, const DecoderTokens &around,
                         const std::string &source,
                         std::vector<int32_t> &tokens);

/// Reads the texts of the options, and the rules of them and of a
/// generation_config.json (`eos_token_id`, a number or a list; `do_sample` with
/// `temperature`, `top_k` and `top_p`; `forced_bos_token_id` of a decoder
/// behind an encoder). ExitInvalid where a text does not fit.
grt::Status readPrompts(const Options &options, const grt::Program &program,
                        const TextCoding &text, KeptPrompts &result);

/// The characters that a text gains by the tokens behind its own: these may
/// mean less alone than behind others.
std::string continuationText(const TextCoding &text,
                             const std::vector<int32_t> &prompt,
                             const std::vector<int32_t> &tokens);

#endif // GALVATRON_RUN_PROMPTS_H
