//===- pack.cpp - Documents as samples of one length ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "best_fit.h"
#include "shard_file.h"
#include "shards.h"
#include "tokenize.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

namespace grt::data {

namespace {

/// Tokens [begin, end) of a shard that stand in one sample.
struct Piece {
  uint64_t begin, end;
  uint64_t length() const { return end - begin; }
};

/// Packs shards one after the other.
class Packer {
public:
  Packer(const Options &options, const ShardFile &first)
      : options(options), length(options.sampleTokens),
        writer(planOf(options, first)) {}

  /// Writes the documents of a shard as a shard of samples.
  void add(const ShardFile &shard) {
    std::vector<Piece> pieces = piecesOf(shard);
    std::vector<uint64_t> lengths;
    for (const Piece &piece : pieces) {
      lengths.push_back(piece.length());
      filled += piece.length();
      squares += double(piece.length()) * double(piece.length());
    }
    for (const PackedSample &sample :
         packByBestFit(lengths, length, options.documentsPerSample)) {
      uint64_t room = length;
      for (uint64_t number : sample) {
        write(shard, pieces[number]);
        room -= pieces[number].length();
      }
      pad(room);
      ++samples;
    }
    // The last sample's last token has a next one too, which does not count.
    if (!pieces.empty())
      pad(1);
    writer.endShard();
  }

  void finish() {
    if (!samples)
      invalid("pack: no document is left");
    writer.finish({{"samples", samples},
                   {"filled-tokens", filled},
                   {"squared-document-lengths", squares}});
    std::printf("%s: %llu samples of %llu tokens, %.3g%% full, in %zu shard%s",
                options.output.c_str(), (unsigned long long)samples,
                (unsigned long long)length,
                100 * double(filled) / double(samples * length),
                writer.shards(), writer.shards() == 1 ? "" : "s");
    auto count = [](uint64_t number, const char *what) {
      if (number)
        std::printf("; %llu document%s %s", (unsigned long long)number,
                    number == 1 ? "" : "s", what);
    };
    count(cut, "longer than a sample cut");
    count(dropped, "longer than a sample dropped");
    count(withoutLabel, "without a label dropped");
    std::printf("\n");
    if (options.documentsPerSample != 1)
      std::printf("for a program that keeps them apart: galvatron-compile "
                  "--documents=attention --document-length=%llu\n",
                  (unsigned long long)std::llround(squares / double(filled)));
  }

private:
  static ShardWriter::Plan planOf(const Options &options,
                                  const ShardFile &first) {
    ShardWriter::Plan plan;
    plan.folder = options.output;
    plan.width = first.index.width;
    plan.shardTokens = ~uint64_t(0);
    plan.tokenizerHash = hashOf(first);
    plan.vocabularySize = uint32_t(first.index.largest + 1);
    // The folder's summary alone knows these, where there is one.
    std::ifstream file(std::filesystem::path(first.name()).parent_path() /
                       "shards.json");
    nlohmann::json summary = nlohmann::json::parse(file, nullptr, false);
    if (summary.is_object()) {
      plan.tokenizer = summary.value("tokenizer", std::string());
      plan.vocabularySize =
          summary.value("vocabulary-size", plan.vocabularySize);
      if (options.padToken >= plan.vocabularySize)
        invalid(
            "option --pad-token: expected a token of the vocabulary, below " +
            std::to_string(plan.vocabularySize) + ", found " +
            std::to_string(options.padToken));
    }
    plan.hasLabels = true;
    plan.sampleTokens = options.sampleTokens;
    return plan;
  }
  static std::string hashOf(const ShardFile &shard) {
    const auto &hash = shard.index.tokenizer;
    return hexadecimal(
        {reinterpret_cast<const char *>(hash.data()), hash.size()});
  }

  /// Whether a token of a piece is a label: none stands before its first.
  static bool counts(const ShardFile &shard, const Piece &piece,
                     uint64_t position) {
    return position != piece.begin && shard.counts(position);
  }

  void refuseLong(const ShardFile &shard) const {
    uint64_t number = 0, longest = 0;
    for (uint64_t i = 0; i < shard.documents(); ++i) {
      uint64_t tokens = shard.end(i) - shard.begin(i);
      number += tokens > length;
      longest = std::max(longest, tokens);
    }
    if (number)
      invalid("--seq-len: expected no document longer than a sample of " +
              str(length) + " tokens, found " + str(number) + " of " +
              str(shard.documents()) + ", the longest of " + str(longest) +
              "; --long-documents=drop or cut allows for it");
  }

  std::vector<Piece> piecesOf(const ShardFile &shard) {
    std::vector<Piece> pieces;
    if (options.longDocuments == LongDocuments::Refuse)
      refuseLong(shard);
    for (uint64_t i = 0; i < shard.documents(); ++i) {
      uint64_t begin = shard.begin(i), end = shard.end(i);
      bool isLong = end - begin > length;
      if (isLong && options.longDocuments == LongDocuments::Drop) {
        ++dropped;
        continue;
      }
      cut += isLong;
      size_t before = pieces.size();
      for (; begin < end; begin += length) {
        Piece piece{begin, std::min(end, begin + length)};
        uint64_t at = begin;
        while (at < piece.end && !counts(shard, piece, at))
          ++at;
        if (at < piece.end)
          pieces.push_back(piece);
      }
      withoutLabel += pieces.size() == before;
    }
    return pieces;
  }

  void write(const ShardFile &shard, const Piece &piece) {
    std::vector<uint32_t> ids;
    std::vector<uint8_t> labels;
    for (uint64_t at = piece.begin; at < piece.end; ++at) {
      ids.push_back(shard.token(at));
      labels.push_back(counts(shard, piece, at));
    }
    writer.add(ids, labels);
    writer.endDocument();
  }

  /// Tokens that do not count, as a document of their own.
  void pad(uint64_t tokens) {
    if (!tokens)
      return;
    writer.add(std::vector<uint32_t>(tokens, options.padToken),
               std::vector<uint8_t>(tokens, 0));
    writer.endDocument();
  }

  const Options &options;
  const uint64_t length;
  ShardWriter writer;
  uint64_t samples = 0, filled = 0;
  uint64_t cut = 0, dropped = 0, withoutLabel = 0; ///< documents
  double squares = 0;
};

} // namespace

void pack(const Options &options) {
  std::optional<Packer> packer;
  std::optional<ShardIndex> first;
  for (const std::string &path : options.inputs) {
    ShardFile shard(path);
    if (shard.index.sampleTokens)
      invalid("shard '" + path + "' is packed already, for samples of " +
              str(shard.index.sampleTokens) + " tokens");
    if (!packer) {
      first = shard.index;
      packer.emplace(options, shard);
    }
    if (shard.index.tokenizer != first->tokenizer ||
        shard.index.width != first->width)
      invalid("shards '" + options.inputs.front() + "' and '" + path +
              "' were made by different tokenizers");
    packer->add(shard);
  }
  packer->finish();
}

} // namespace grt::data
