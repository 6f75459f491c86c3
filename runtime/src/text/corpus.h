//===- corpus.h - Documents of text files, encoded by threads ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TEXT_CORPUS_H
#define GRT_TEXT_CORPUS_H

#include "grt/tokenizer.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace grt::text {

/// A file, mapped.
class TextFile {
public:
  explicit TextFile(const std::string &path);
  ~TextFile();
  TextFile(const TextFile &) = delete;
  TextFile &operator=(const TextFile &) = delete;

  const std::string &name() const { return path; }
  std::string_view text() const { return {data, bytes}; }

private:
  std::string path;
  const char *data = nullptr;
  size_t bytes = 0;
};

/// The unit of a file of text that is one document.
enum class Documents { BySuffix, File, Line, JsonLines };

struct CorpusOptions {
  Documents documents = Documents::BySuffix;
  std::string key = "text"; ///< of a line of JSON
  std::string end;          ///< a token behind every document; empty: none
  bool special = false;     ///< the tokens of the tokenizer's template
  /// The key of labels in a line of JSON: a list of [begin, end), bytes of its
  /// text whose tokens count as labels. Empty: all tokens do.
  std::string labelsKey;
  unsigned threads = 0; ///< 0: as many as cores
};

/// Takes the tokens of documents, in the order of the text, from one thread.
class TokenSink {
public:
  virtual ~TokenSink();
  /// More tokens of the current document. `labels`: for each token 1 if it
  /// counts as a label, else 0; empty: all do.
  virtual void add(std::span<const uint32_t> ids,
                   std::span<const uint8_t> labels) = 0;
  virtual void endDocument() = 0;
  /// Called when so many bytes of all files have been encoded.
  virtual void progress(uint64_t bytes) = 0;
};

/// Encodes the documents of files. What is wrong throws, with file and
/// position.
void encodeFiles(const Tokenizer &tokenizer,
                 const std::vector<std::string> &paths,
                 const CorpusOptions &options, TokenSink &sink);

/// The names of --documents=.
bool parseDocuments(std::string_view name, Documents &documents);

} // namespace grt::text

#endif // GRT_TEXT_CORPUS_H
