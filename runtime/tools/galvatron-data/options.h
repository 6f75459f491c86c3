//===- options.h - Command line of galvatron-data -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DATA_OPTIONS_H
#define GALVATRON_DATA_OPTIONS_H

#include "text/corpus.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace grt::data {

/// The treatment of documents that are longer than a sample.
enum class LongDocuments { Refuse, Drop, Cut };

struct Options {
  bool help = false, version = false;
  std::string command; ///< "tokenize", "pack", "check" or "print"
  std::vector<std::string> inputs;
  std::string tokenizer, output;
  text::CorpusOptions corpus;
  uint32_t width = 0; ///< bytes of a token; 0: as the vocabulary needs
  uint64_t shardTokens = uint64_t(1) << 28;
  uint64_t document = 0;
  bool showLabels = false;
  uint64_t sampleTokens = 0;       ///< of pack
  uint64_t documentsPerSample = 1; ///< at most; 0: as many as fit
  LongDocuments longDocuments = LongDocuments::Refuse;
  uint32_t padToken = 0;
};

/// Parses the arguments after the program's name. Errors have exit code 2.
Status parseOptions(int count, char **arguments, Options &options);

const char *helpText();

} // namespace grt::data

#endif // GALVATRON_DATA_OPTIONS_H
