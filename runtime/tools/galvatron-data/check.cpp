//===- check.cpp - Looks at shards ----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "core/sha256.h"
#include "data/shard_index.h"
#include "grt/tokenizer.h"
#include "text/corpus.h"
#include "tokenize.h"

#include <cstdio>

namespace grt::data {
namespace {

uint32_t tokenAt(std::string_view bytes, uint64_t position, uint32_t width) {
  uint32_t value = 0;
  for (uint32_t i = 0; i < width; ++i)
    value |= uint32_t(uint8_t(bytes[position * width + i])) << (8 * i);
  return value;
}

/// A shard and its index, of the same length.
struct Shard {
  explicit Shard(const std::string &path) : file(path) {
    index = readShardIndex(path + std::string(ShardIndex::suffix), ends);
    if (index.tokens != file.text().size() / index.width ||
        file.text().size() % index.width)
      invalid("shard '" + path + "': expected " + str(index.tokens) +
              " tokens of " + str(index.width) + " bytes, found " +
              str(file.text().size()) + " bytes");
  }
  text::TextFile file;
  ShardIndex index;
  std::vector<uint64_t> ends;
};

} // namespace

void check(const Options &options) {
  for (const std::string &path : options.inputs) {
    Shard shard(path);
    std::string_view bytes = shard.file.text();
    uint64_t largest = 0;
    for (uint64_t i = 0; i < shard.index.tokens; ++i)
      largest =
          std::max<uint64_t>(largest, tokenAt(bytes, i, shard.index.width));
    if (largest != shard.index.largest)
      invalid("shard '" + path + "': expected " + str(shard.index.largest) +
              " as the largest token, found " + str(largest));
    if (sha256(bytes) != shard.index.hash ||
        edgeHashOf(bytes) != shard.index.edgeHash)
      invalid("shard '" + path + "': its hash is not that of its index");
    std::printf("%s: %llu tokens of %llu documents, the largest %llu\n",
                path.c_str(), (unsigned long long)shard.index.tokens,
                (unsigned long long)shard.index.documents,
                (unsigned long long)shard.index.largest);
  }
}

void print(const Options &options) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (Status status = Tokenizer::open(options.tokenizer, tokenizer); !status)
    fail(ExitCode(status.exitCode()), status.message());
  if (options.inputs.size() != 1)
    invalid("print: expected one shard, found " + str(options.inputs.size()));
  Shard shard(options.inputs.front());
  std::string_view hash(
      reinterpret_cast<const char *>(shard.index.tokenizer.data()),
      shard.index.tokenizer.size());
  if (hexadecimal(hash) != tokenizer->hash())
    invalid("shard '" + options.inputs.front() +
            "' was made by another tokenizer than '" + options.tokenizer + "'");
  if (options.document >= shard.index.documents)
    invalid("--document: expected less than " + str(shard.index.documents) +
            ", found " + str(options.document));
  std::vector<uint32_t> ids;
  for (uint64_t i = options.document ? shard.ends[options.document - 1] : 0;
       i < shard.ends[options.document]; ++i)
    ids.push_back(tokenAt(shard.file.text(), i, shard.index.width));
  std::string text = tokenizer->decode(ids, /*skipSpecial=*/false);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

} // namespace grt::data
