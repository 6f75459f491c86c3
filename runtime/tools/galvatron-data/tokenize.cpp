//===- tokenize.cpp - Text to shards --------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tokenize.h"
#include "base/error.h"
#include "base/text.h"
#include "shards.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <unistd.h>

namespace grt::data {
namespace {

/// A line on a terminal that says how far it is.
class Progress {
public:
  explicit Progress(uint64_t bytes) : bytes(bytes), shown(isatty(2) != 0) {}
  ~Progress() {
    if (shown && hasLine)
      std::fputc('\n', stderr);
  }
  void update(uint64_t done, uint64_t tokens) {
    auto now = std::chrono::steady_clock::now();
    constexpr std::chrono::milliseconds between(200);
    if (!shown || now - last < between)
      return;
    last = now;
    hasLine = true;
    double seconds = std::chrono::duration<double>(now - begin).count();
    double rate = double(done) / std::max(seconds, 1e-3);
    std::fprintf(stderr,
                 "\r%s of %s, %.4g million tokens, %s/s, %.0f s left   ",
                 bytesText(done).c_str(), bytesText(bytes).c_str(),
                 double(tokens) / 1e6, bytesText(uint64_t(rate)).c_str(),
                 double(bytes - done) / std::max(rate, 1.0));
    std::fflush(stderr);
  }

private:
  uint64_t bytes;
  bool shown, hasLine = false;
  std::chrono::steady_clock::time_point begin =
      std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last = begin;
};

uint32_t widthOf(const Options &options, const Tokenizer &tokenizer) {
  bool fits = tokenizer.vocabularySize() <= 65536;
  if (options.width == 2 && !fits)
    invalid("--format=u16: expected a vocabulary of at most 65536 tokens, "
            "found " +
            str(tokenizer.vocabularySize()));
  return options.width ? options.width : fits ? 2 : 4;
}

uint64_t bytesOf(const std::vector<std::string> &paths) {
  uint64_t bytes = 0;
  for (const std::string &path : paths) {
    std::error_code missing;
    uintmax_t size = std::filesystem::file_size(path, missing);
    bytes += missing ? 0 : size;
  }
  return bytes;
}

/// The sink writes encoded tokens into shards.
class ShardSink : public text::TokenSink {
public:
  ShardSink(const Options &options, const Tokenizer &tokenizer)
      : writer({options.output, widthOf(options, tokenizer),
                options.shardTokens, options.tokenizer, tokenizer.hash(),
                tokenizer.vocabularySize(), !options.corpus.labelsKey.empty()}),
        line(bytesOf(options.inputs)) {}

  void add(std::span<const uint32_t> ids,
           std::span<const uint8_t> labels) override {
    // Documents with labels come whole.
    isDropped = !labels.empty() &&
                std::find(labels.begin(), labels.end(), 1) == labels.end();
    if (!isDropped)
      writer.add(ids, labels);
  }
  void endDocument() override {
    if (isDropped)
      ++dropped;
    else
      writer.endDocument();
    isDropped = false;
  }
  void progress(uint64_t bytes) override {
    line.update(bytes, writer.tokens());
  }

  ShardWriter writer;
  uint64_t dropped = 0; ///< documents in which no token is a label

private:
  Progress line;
  bool isDropped = false; ///< the current document
};

} // namespace

void tokenize(const Options &options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (Status status = Tokenizer::open(options.tokenizer, tokenizer); !status)
    fail(ExitCode(status.exitCode()), status.message());
  uint64_t tokens = 0, documents = 0, labels = 0, dropped = 0;
  size_t shards = 0;
  {
    ShardSink sink(options, *tokenizer);
    text::encodeFiles(*tokenizer, options.inputs, options.corpus, sink);
    if (sink.dropped && !sink.writer.documents())
      invalid("expected a document with a token that counts as a label, found "
              "none among " +
              str(sink.dropped) +
              "; a conversation without an answer has none");
    sink.writer.finish();
    tokens = sink.writer.tokens();
    documents = sink.writer.documents();
    shards = sink.writer.shards();
    labels = sink.writer.labels();
    dropped = sink.dropped;
  }
  std::printf("%s: %llu tokens of %llu documents in %zu shard%s",
              options.output.c_str(), (unsigned long long)tokens,
              (unsigned long long)documents, shards, shards == 1 ? "" : "s");
  if (!options.corpus.labelsKey.empty())
    std::printf(", %.3g%% of the tokens count as labels",
                100 * double(labels) / double(tokens));
  if (dropped)
    std::printf("; %llu document%s without a label dropped",
                (unsigned long long)dropped, dropped == 1 ? "" : "s");
  std::printf("\n");
}

} // namespace grt::data
