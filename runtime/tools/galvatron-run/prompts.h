//===- prompts.h - The texts that are to be continued ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_PROMPTS_H
#define GALVATRON_RUN_PROMPTS_H

#include "generation.h"
#include "text.h"

#include <string>
#include <vector>

/// The prompts for a program that keeps keys, with their continuations.
struct KeptPrompts {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> prompts, continuations; ///< in tokens
  GenerationRules rules;
};

/// Reads the texts of the options, and the rules of them and of a
/// generation_config.json (`eos_token_id`, a number or a list; `do_sample` with
/// `temperature`, `top_k` and `top_p`). ExitInvalid where a text does not fit.
grt::Status readPrompts(const Options &options, const grt::Program &program,
                        const TextCoding &text, KeptPrompts &result);

/// The characters that a text gains by the tokens behind its own: these may
/// mean less alone than behind others.
std::string continuationText(const TextCoding &text,
                             const std::vector<int32_t> &prompt,
                             const std::vector<int32_t> &tokens);

#endif // GALVATRON_RUN_PROMPTS_H
