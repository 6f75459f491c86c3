//===- generation.h - Texts that a program with kept keys writes ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_GENERATION_H
#define GALVATRON_RUN_GENERATION_H

#include "grt/session.h"
#include "sampling.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

/// The rules of where texts end and how their tokens are chosen.
struct GenerationRules {
  uint64_t mostTokens = 64; ///< behind a prompt
  /// Tokens that end a text; none of them is part of it.
  std::set<int32_t> ends;
  /// The fields of a generation_config.json that choose other tokens and are
  /// not read; "" if there are none.
  std::string unread;
  /// The first token of every text; -1: whichever the model says.
  int32_t forced = -1;
  Sampling sampling;
};

/// The work and time of a generation.
struct GenerationCost {
  uint64_t passes = 0; ///< over the layers
  uint64_t tokens = 0; ///< behind prompts
  /// Passes in which every text had its prompt behind it, and the seconds of
  /// these: what a token costs.
  uint64_t decodePasses = 0;
  double decodeSeconds = 0;
};

/// A text that is to be written.
struct BegunText {
  std::vector<int32_t> tokens; ///< that it begins with
  /// The tokens that an encoder reads; empty for a model without one.
  std::vector<int32_t> source;
  int32_t padding = 0; ///< fills up what the encoder reads
};

/// Tokens that follow each of the prompts, called with its number as it ends.
using TextEnd = std::function<void(size_t, const std::vector<int32_t> &)>;

/// Continues texts whose keys and values the session's program keeps. There may
/// be more of them than rows: one takes the row of another that ended. Every
/// pass computes the next token of each, and with what room is left further
/// ones of their prompts. What an encoder reads it reads as the text gets its
/// row. ExitInvalid for a prompt that is empty or leaves no room behind it.
grt::Status continueTexts(const std::vector<BegunText> &texts,
                          const GenerationRules &rules, grt::Session &session,
                          const TextEnd &ended, GenerationCost &cost);

#endif // GALVATRON_RUN_GENERATION_H
