//===- fuzz_tokenizer.cpp - Tokenizers of Hugging Face --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A file is a tokenizer.json, a zero, and a text that it encodes.

#include "grt/tokenizer.h"
#include "parsers.h"

#include <cstdio>

using namespace grt;

[[noreturn]] static void stop(const std::string &why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view input = fuzzText(data, size);
  std::string_view json = input.substr(0, input.find('\0'));
  std::string_view text = input.substr(std::min(json.size() + 1, input.size()));
  auto expectInvalid = [](const Status &status) {
    if (!status &&
        (status.exitCode() != ExitInvalid || status.message().empty()))
      stop(status.message());
    return bool(status);
  };
  std::unique_ptr<Tokenizer> tokenizer;
  if (!expectInvalid(Tokenizer::parse(json, "fuzzed", tokenizer)))
    return 0;
  Encoder encoder(*tokenizer);
  std::vector<uint32_t> ids;
  if (!expectInvalid(encoder.encode(text, true, ids)))
    return 0;
  for (uint32_t id : ids)
    if (id >= tokenizer->vocabularySize())
      stop("a token that does not exist");
  (void)tokenizer->decode(ids, true);
  if (!tokenizer->hasParts())
    return 0;
  // Parts are those of the whole.
  ids.clear();
  std::vector<uint32_t> parts;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    bool ends = false;
    end = begin;
    while (!ends && end < text.size()) {
      end = nextCut(text, end + 1);
      if (!encoder.encodePart(text, begin, end, parts, ends))
        return 0;
    }
  }
  if (encoder.encode(text, false, ids) && ids != parts)
    stop("parts are not those of the whole");
  return 0;
}
