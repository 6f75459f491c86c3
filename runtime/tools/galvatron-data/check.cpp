//===- check.cpp - Looks at shards ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/sha256.h"
#include "grt/tokenizer.h"
#include "shard_file.h"
#include "tokenize.h"

#include <cstdio>

namespace grt::data {
namespace {

/// Signs around what counts as a label in a text that is printed.
const std::string labelBegin = "[[", labelEnd = "]]";

/// Throws unless the labels of a shard are what its index says.
void checkLabels(const ShardFile &shard) {
  const ShardIndex::Labels &facts = *shard.index.labels;
  uint64_t counted = 0;
  for (uint64_t i = 0; i < shard.labels().size(); ++i) {
    auto label = uint8_t(shard.labels()[i]);
    if (label > 1)
      invalid("shard '" + shard.name() + "': expected a label of 0 or 1 at " +
              "position " + str(i) + ", found " + str(label));
    counted += label;
  }
  if (counted != facts.counted)
    invalid("shard '" + shard.name() + "': expected " + str(facts.counted) +
            " tokens that count as labels, found " + str(counted));
  if (sha256(shard.labels()) != facts.hash ||
      edgeHashOf(shard.labels()) != facts.edgeHash)
    invalid("shard '" + shard.name() +
            "': the hash of its labels is not that of its index");
}

} // namespace

void check(const Options &options) {
  for (const std::string &path : options.inputs) {
    ShardFile shard(path);
    std::string_view bytes = shard.bytes();
    uint64_t largest = 0;
    for (uint64_t i = 0; i < shard.index.tokens; ++i)
      largest = std::max<uint64_t>(largest, shard.token(i));
    if (largest != shard.index.largest)
      invalid("shard '" + path + "': expected " + str(shard.index.largest) +
              " as the largest token, found " + str(largest));
    if (sha256(bytes) != shard.index.hash ||
        edgeHashOf(bytes) != shard.index.edgeHash)
      invalid("shard '" + path + "': its hash is not that of its index");
    if (shard.index.labels)
      checkLabels(shard);
    std::printf("%s: %llu tokens of %llu documents, the largest %llu",
                path.c_str(), (unsigned long long)shard.index.tokens,
                (unsigned long long)shard.index.documents,
                (unsigned long long)shard.index.largest);
    if (shard.index.labels)
      std::printf(", %llu count as labels",
                  (unsigned long long)shard.index.labels->counted);
    if (shard.index.sampleTokens)
      std::printf(", packed for samples of %llu",
                  (unsigned long long)shard.index.sampleTokens);
    std::printf("\n");
  }
}

void print(const Options &options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (Status status = Tokenizer::open(options.tokenizer, tokenizer); !status)
    fail(ExitCode(status.exitCode()), status.message());
  if (options.inputs.size() != 1)
    invalid("print: expected one shard, found " + str(options.inputs.size()));
  ShardFile shard(options.inputs.front());
  std::string_view hash(
      reinterpret_cast<const char *>(shard.index.tokenizer.data()),
      shard.index.tokenizer.size());
  if (hexadecimal(hash) != tokenizer->hash())
    invalid("shard '" + options.inputs.front() +
            "' was made by another tokenizer than '" + options.tokenizer + "'");
  if (options.document >= shard.documents())
    invalid("--document: expected less than " + str(shard.documents()) +
            ", found " + str(options.document));
  std::string text;
  std::vector<uint32_t> run;
  auto flush = [&](bool isLabel) {
    std::string part = tokenizer->decode(run, /*skipSpecial=*/false);
    run.clear();
    bool isMarked = options.showLabels && isLabel;
    text += isMarked ? labelBegin + part + labelEnd : part;
  };
  for (uint64_t i = shard.begin(options.document);
       i < shard.end(options.document); ++i) {
    // Tokens may mean less alone: only where labels begin or end they are cut.
    if (options.showLabels && !run.empty() &&
        shard.counts(i) != shard.counts(i - 1))
      flush(shard.counts(i - 1));
    run.push_back(shard.token(i));
  }
  if (!run.empty())
    flush(shard.counts(shard.end(options.document) - 1));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

} // namespace grt::data
