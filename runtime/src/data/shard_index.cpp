//===- shard_index.cpp - What is known of a file of tokens ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/shard_index.h"
#include "base/error.h"
#include "base/files.h"
#include "base/sha256.h"

#include <algorithm>
#include <cstring>

namespace grt {
namespace {

void appendNumber(std::string &bytes, uint64_t value, unsigned width) {
  for (unsigned i = 0; i < width; ++i)
    bytes += char(value >> (8 * i) & 0xff);
}

/// Takes numbers from the front of bytes that are long enough.
class NumberReader {
public:
  explicit NumberReader(std::string_view bytes) : bytes(bytes) {}
  uint64_t number(unsigned width) {
    uint64_t value = 0;
    for (unsigned i = 0; i < width; ++i)
      value |= uint64_t(uint8_t(bytes[at++])) << (8 * i);
    return value;
  }
  std::array<uint8_t, 32> hash() {
    std::array<uint8_t, 32> result{};
    std::memcpy(result.data(), bytes.data() + at, result.size());
    at += result.size();
    return result;
  }
  size_t at = 0;

private:
  std::string_view bytes;
};

std::string_view textOf(const std::array<uint8_t, 32> &hash) {
  return {reinterpret_cast<const char *>(hash.data()), hash.size()};
}

} // namespace

std::string ShardIndex::header() const {
  std::string bytes(magic);
  appendNumber(bytes, version(), 4);
  appendNumber(bytes, width, 4);
  appendNumber(bytes, tokens, 8);
  appendNumber(bytes, documents, 8);
  appendNumber(bytes, largest, 8);
  appendNumber(bytes, edgeHash, 8);
  bytes += textOf(hash);
  bytes += textOf(tokenizer);
  if (labels) {
    appendNumber(bytes, labels->counted, 8);
    appendNumber(bytes, labels->edgeHash, 8);
    appendNumber(bytes, sampleTokens, 8);
    bytes += textOf(labels->hash);
  }
  bytes.resize(headerBytes()); // zeros of version 1
  return bytes;
}

ShardIndex parseShardIndex(std::string_view bytes, uint64_t fileBytes,
                           const std::string &name) {
  std::string file = "index '" + name + "'";
  auto expectBytes = [&](uint64_t least) {
    if (bytes.size() < least)
      invalid(file + ": expected at least " + str(least) + " bytes, found " +
              str(bytes.size()));
  };
  expectBytes(ShardIndex::plainHeaderBytes);
  if (!bytes.starts_with(ShardIndex::magic))
    invalid(file + ": expected an index of tokens, which begins with " +
            std::string(ShardIndex::magic));
  NumberReader reader(bytes);
  reader.at = ShardIndex::magic.size();
  ShardIndex index;
  const uint64_t version = reader.number(4);
  if (version != 1 && version != 2)
    invalid(file + ", byte 8: expected version 1 or 2, found " + str(version));
  index.width = uint32_t(reader.number(4));
  if (index.width != 2 && index.width != 4)
    invalid(file + ", byte 12: expected tokens of 2 or 4 bytes, found " +
            str(index.width));
  index.tokens = reader.number(8);
  index.documents = reader.number(8);
  index.largest = reader.number(8);
  index.edgeHash = reader.number(8);
  index.hash = reader.hash();
  index.tokenizer = reader.hash();
  if (version == 2) {
    expectBytes(ShardIndex::labelHeaderBytes);
    ShardIndex::Labels labels;
    labels.counted = reader.number(8);
    labels.edgeHash = reader.number(8);
    index.sampleTokens = reader.number(8);
    labels.hash = reader.hash();
    if (labels.counted > index.tokens)
      invalid(file + ", byte 112: expected at most " + str(index.tokens) +
              " tokens that count, found " + str(labels.counted));
    index.labels = labels;
  }
  if (index.documents > fileBytes / 8 || index.bytes() != fileBytes)
    invalid(file + ", byte 24: " + str(index.documents) +
            " documents do not fit an index of " + str(fileBytes) + " bytes");
  return index;
}

void writeShardIndex(const std::string &path, const ShardIndex &index,
                     const std::vector<uint64_t> &ends) {
  std::string bytes = index.header();
  bytes.reserve(index.bytes());
  for (uint64_t end : ends)
    appendNumber(bytes, end, 8);
  bytes += textOf(sha256(bytes));
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

ShardIndex readShardIndex(const std::string &path,
                          std::vector<uint64_t> &ends) {
  // 10^11 documents.
  constexpr uint64_t mostBytes = uint64_t(800) << 30;
  std::string bytes = readWholeFile(path, mostBytes);
  ShardIndex index = parseShardIndex(bytes, bytes.size(), path);
  uint64_t hashAt = bytes.size() - 32;
  std::string_view all = bytes;
  if (all.substr(hashAt) != textOf(sha256(all.substr(0, hashAt))))
    invalid("index '" + path + "', byte " + str(hashAt) +
            ": the hash of the index is not that of its bytes");
  NumberReader reader(bytes);
  reader.at = index.headerBytes();
  uint64_t before = 0;
  ends.resize(index.documents);
  for (uint64_t i = 0; i < index.documents; ++i) {
    ends[i] = reader.number(8);
    if (ends[i] < before || ends[i] > index.tokens)
      invalid("index '" + path + "', byte " + str(reader.at - 8) +
              ": document " + str(i) + " ends at token " + str(ends[i]) +
              ", expected " + str(before) + " to " + str(index.tokens));
    before = ends[i];
  }
  if (before != index.tokens)
    invalid("index '" + path + "': the documents end at token " + str(before) +
            ", expected " + str(index.tokens));
  return index;
}

uint64_t edgeHashOf(std::string_view bytes) {
  constexpr size_t edge = 1 << 16;
  uint64_t hash = 0xcbf29ce484222325ull;
  auto add = [&](std::string_view part) {
    for (char c : part)
      hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  };
  add(bytes.substr(0, edge));
  if (bytes.size() > edge)
    add(bytes.substr(std::max(edge, bytes.size() - edge)));
  return hash;
}

} // namespace grt
