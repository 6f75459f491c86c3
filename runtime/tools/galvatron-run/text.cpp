//===- text.cpp - Text as tokens of a run ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "text.h"

#include "base/error.h"

#ifdef GRT_TEXT
#include "text/corpus.h"
#endif

using namespace grt;

TextCoding::~TextCoding() = default;

namespace {

class Bytes : public TextCoding {
public:
  explicit Bytes(int64_t vocabulary) : vocabulary(vocabulary) {}

  Status encode(const std::string &text,
                std::vector<int32_t> &tokens) const override {
    if (text.empty())
      return Status(ExitInvalid, "the text has no tokens");
    for (size_t i = 0; i < text.size(); ++i) {
      if (int64_t(uint8_t(text[i])) >= vocabulary)
        return Status(ExitInvalid, "byte " + std::to_string(uint8_t(text[i])) +
                                       " at position " + std::to_string(i) +
                                       ", expected less than the vocabulary "
                                       "of " +
                                       std::to_string(vocabulary));
      tokens.push_back(uint8_t(text[i]));
    }
    return Status();
  }
  std::string decode(const std::vector<int32_t> &tokens) const override {
    std::string text;
    for (int32_t token : tokens)
      text += token < 256 ? std::string(1, char(token))
                          : "<" + std::to_string(token) + ">";
    return text;
  }

private:
  int64_t vocabulary;
};

#ifdef GRT_TEXT
/// Keeps the tokens of a file in memory.
class MemorySink : public text::TokenSink {
public:
  explicit MemorySink(EncodedText &result) : result(result) {}
  void add(std::span<const uint32_t> ids, std::span<const uint8_t>) override {
    for (uint32_t id : ids)
      for (uint64_t byte = 0; byte < result.width; ++byte)
        result.tokens += char(id >> (8 * byte) & 0xff);
  }
  void endDocument() override {
    result.ends.push_back(result.tokens.size() / result.width);
  }
  void progress(uint64_t) override {}

private:
  EncodedText &result;
};

class Tokenized : public TextCoding {
public:
  Tokenized(std::unique_ptr<Tokenizer> given, const Options &options)
      : tokenizer(std::move(given)) {
    // The parser knows no other names.
    (void)text::parseDocuments(options.documents, corpus.documents);
    if (!options.textKey.empty())
      corpus.key = options.textKey;
    corpus.end = options.endToken;
    if (std::optional<uint32_t> id = tokenizer->find(corpus.end))
      endId = int32_t(*id);
  }

  Status encode(const std::string &text,
                std::vector<int32_t> &tokens) const override {
    Encoder encoder(*tokenizer);
    std::vector<uint32_t> ids;
    if (Status status = encoder.encode(text, /*addSpecial=*/false, ids);
        !status)
      return status;
    if (ids.empty())
      return Status(ExitInvalid, "the text has no tokens");
    tokens.assign(ids.begin(), ids.end());
    return Status();
  }
  std::string decode(const std::vector<int32_t> &tokens) const override {
    std::vector<uint32_t> ids(tokens.begin(), tokens.end());
    return tokenizer->decode(ids, /*skipSpecial=*/false);
  }
  int32_t end() const override { return endId; }
  std::optional<int32_t> find(const std::string &token) const override {
    std::optional<uint32_t> id = tokenizer->find(token);
    return id ? std::optional(int32_t(*id)) : std::nullopt;
  }
  int64_t vocabulary() const override { return tokenizer->vocabularySize(); }
  bool isSpecial(int32_t token) const override {
    return tokenizer->isSpecial(uint32_t(token));
  }
  void frame(std::vector<int32_t> &before,
             std::vector<int32_t> &behind) const override {
    Encoder encoder(*tokenizer);
    before.assign(encoder.specialBefore().begin(),
                  encoder.specialBefore().end());
    behind.assign(encoder.specialBehind().begin(),
                  encoder.specialBehind().end());
  }
  std::string tokenizerHash() const override { return tokenizer->hash(); }
  TextEncoder fileEncoder() const override {
    return [this](const std::string &path, EncodedText &result) {
      return guarded([&] {
        result.width = tokenizer->vocabularySize() <= 65536 ? 2 : 4;
        MemorySink sink(result);
        text::encodeFiles(*tokenizer, {path}, corpus, sink);
      });
    };
  }

private:
  std::unique_ptr<Tokenizer> tokenizer;
  text::CorpusOptions corpus;
  int32_t endId = -1;
};
#endif // GRT_TEXT

} // namespace

Status openTextCoding(const Options &options, const Program &program,
                      std::unique_ptr<TextCoding> &result) {
  int64_t vocabulary = program.vocabularySize();
  if (options.tokenizer.empty()) {
    // A model with a decoder has tokens for where text ends, beyond bytes.
    if (options.generates() && vocabulary > 256 && !program.decoderLength())
      return Status(ExitInvalid,
                    std::string(options.generate ? "--generate" : "--prompts") +
                        " needs --tokenizer=FILE, or byte tokens, a "
                        "vocabulary of at most 256; the program's is " +
                        std::to_string(vocabulary));
    result = std::make_unique<Bytes>(vocabulary);
    return Status();
  }
#ifdef GRT_TEXT
  std::unique_ptr<Tokenizer> tokenizer;
  if (Status status = Tokenizer::open(options.tokenizer, tokenizer); !status)
    return status;
  if (int64_t(tokenizer->vocabularySize()) > vocabulary)
    return Status(ExitInvalid, "--tokenizer: its vocabulary has " +
                                   std::to_string(tokenizer->vocabularySize()) +
                                   " tokens, expected at most the program's " +
                                   std::to_string(vocabulary));
  if (!options.endToken.empty() && !tokenizer->find(options.endToken))
    return Status(ExitInvalid,
                  "--end-token: expected a token of the tokenizer, found '" +
                      options.endToken + "'");
  result = std::make_unique<Tokenized>(std::move(tokenizer), options);
  return Status();
#else
  return Status(ExitInvalid, "--tokenizer: this build has no tokenizers; it "
                             "was made without libpcre2-8 or libutf8proc");
#endif
}
