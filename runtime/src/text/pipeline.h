//===- pipeline.h - The parts of a tokenizer --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Added tokens are found first, in the text as it is and then, those that want
// it, in the normalized text; what is between them goes through the normalizer,
// the pre-tokenizers and the model.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_PIPELINE_H
#define GRT_TEXT_PIPELINE_H

#include "text/added_tokens.h"
#include "text/model.h"
#include "text/pieces.h"

#include <memory>
#include <string>
#include <vector>

namespace grt::text {

/// Changes the list of tokens' texts on the way to the text.
using Decoder = std::function<void(std::vector<std::string> &tokens)>;

Decoder makeByteLevelDecoder();
Decoder makeByteFallbackDecoder();
Decoder makeFuse();
Decoder makeReplaceDecoder(Normalizer replace);
Decoder makeStripDecoder(std::string character, uint64_t start, uint64_t stop);
Decoder makeMetaspaceDecoder(std::string replacement, bool dropsFirst);
Decoder makeWordPieceDecoder(std::string prefix, bool cleanup);
Decoder makeBpeDecoder(std::string suffix);

class Pipeline {
public:
  std::string kind, hash;
  std::vector<Normalizer> normalizers;
  std::vector<std::unique_ptr<PreTokenizer>> preTokenizers;
  std::unique_ptr<Model> model;
  /// Found in the text as it is, and in the normalized text.
  AddedTokens rawTokens, normalizedTokens;
  /// Added tokens, all of them, by their text.
  Vocabulary added;
  std::vector<uint32_t> before, behind;
  std::vector<Decoder> decoders;
  /// Text of each token, and whether it is special.
  std::vector<std::string> texts;
  std::vector<bool> special;

  std::string normalized(std::string_view text) const;
  bool hasParts() const;
};

/// Reads a tokenizer.json; throws what is wrong with it.
std::unique_ptr<Pipeline> readPipeline(std::string_view json,
                                       const std::string &name);

} // namespace grt::text

#endif // GRT_TEXT_PIPELINE_H
