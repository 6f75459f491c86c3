//===- documents.cpp - Where documents of tokens end ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/documents.h"
#include "base/error.h"
#include "grt/data.h"

#include <filesystem>

namespace grt {

DocumentEnds::~DocumentEnds() = default;

uint64_t DocumentEnds::firstAt(uint64_t position) const {
  uint64_t low = 0, high = documents();
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (end(middle) < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

namespace {

/// A number of `width` bytes at `at`, the least significant first.
uint64_t numberAt(std::string_view bytes, uint64_t at, unsigned width) {
  uint64_t value = 0;
  for (unsigned i = 0; i < width; ++i)
    value |= uint64_t(uint8_t(bytes[at + i])) << (8 * i);
  return value;
}

class EndsInMemory : public DocumentEnds {
public:
  explicit EndsInMemory(std::vector<uint64_t> ends) : ends(std::move(ends)) {}
  uint64_t documents() const override { return ends.size(); }
  uint64_t end(uint64_t document) const override { return ends[document]; }

private:
  std::vector<uint64_t> ends;
};

class EndsOfShard : public DocumentEnds {
public:
  EndsOfShard(std::unique_ptr<MappedFile> given, const ShardIndex &index)
      : file(std::move(given)), begin(index.headerBytes()),
        count(index.documents) {}
  uint64_t documents() const override { return count; }
  uint64_t end(uint64_t document) const override {
    return numberAt(file->bytes(), begin + document * 8, 8);
  }

private:
  std::unique_ptr<MappedFile> file;
  uint64_t begin; ///< byte of the first document's end
  uint64_t count;
};

/// Ends of documents in an index of Megatron-LM: behind the header are the
/// lengths of sequences (32 bit), where they begin in bytes (64 bit), and the
/// first sequence of every document (64 bit), closed by the number of
/// sequences.
class EndsOfMegatron : public DocumentEnds {
public:
  EndsOfMegatron(std::unique_ptr<MappedFile> given, MegatronIndex facts,
                 std::string given_name, uint64_t binBytes)
      : file(std::move(given)), facts(facts), name(std::move(given_name)),
        binBytes(binBytes) {}

  uint64_t documents() const override { return facts.documents - 1; }
  uint64_t end(uint64_t document) const override {
    uint64_t sequence = numberAt(file->bytes(),
                                 MegatronIndex::headerBytes +
                                     facts.sequences * 12 + (document + 1) * 8,
                                 8);
    if (sequence > facts.sequences)
      invalid("index '" + name + "': document " + str(document) +
              " ends before sequence " + str(sequence) + " of " +
              str(facts.sequences));
    return begin(sequence) / facts.width;
  }
  /// The byte at which a sequence begins; for the number behind the last, the
  /// byte at which that one ends.
  uint64_t begin(uint64_t sequence) const {
    if (sequence == facts.sequences)
      return binBytes;
    return numberAt(
        file->bytes(),
        MegatronIndex::headerBytes + facts.sequences * 4 + sequence * 8, 8);
  }
  uint64_t length(uint64_t sequence) const {
    return numberAt(file->bytes(), MegatronIndex::headerBytes + sequence * 4,
                    4);
  }

private:
  std::unique_ptr<MappedFile> file;
  MegatronIndex facts;
  std::string name;
  uint64_t binBytes;
};

} // namespace

std::unique_ptr<DocumentEnds> documentEndsOf(std::vector<uint64_t> ends) {
  return std::make_unique<EndsInMemory>(std::move(ends));
}

namespace {

/// Megatron-LM's index of `NAME.bin`.
std::string megatronIndexOf(const std::string &bin) {
  return bin.substr(0, bin.size() - 4) + ".idx";
}

std::string shardIndexOf(const std::string &shard) {
  return shard + std::string(ShardIndex::suffix);
}

/// Opens the file of labels of a shard; throws if it is not what the index
/// says.
std::unique_ptr<MappedFile> openLabels(const std::string &shard,
                                       const ShardIndex::Labels &facts,
                                       uint64_t tokens) {
  std::string path = shard + std::string(ShardIndex::labelSuffix);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    invalid("data file '" + shard +
            "': its index says which tokens are labels, expected them in '" +
            path + "'");
  auto file = std::make_unique<MappedFile>(path, "file of labels");
  if (file->bytes().size() != tokens)
    invalid("file of labels '" + path + "': expected a byte for each of " +
            str(tokens) + " tokens, found " + str(file->bytes().size()) +
            " bytes");
  if (edgeHashOf(file->bytes()) != facts.edgeHash)
    invalid("file of labels '" + path +
            "' is not what its index says: its beginning or end changed since");
  return file;
}

} // namespace

std::vector<std::string> possibleIndices(const std::string &file) {
  std::vector<std::string> indices = {shardIndexOf(file)};
  if (file.ends_with(".bin"))
    indices.push_back(megatronIndexOf(file));
  return indices;
}

std::optional<IndexedShard> openShardIndex(const std::string &shard,
                                           std::string_view tokens,
                                           uint64_t width) {
  std::string path = shardIndexOf(shard);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    const std::string labels = shard + std::string(ShardIndex::labelSuffix);
    if (std::filesystem::exists(labels, ignored))
      invalid("data file '" + shard + "': which tokens are labels lies in '" +
              labels + "', expected the index '" + path + "' beside it");
    return std::nullopt;
  }
  auto file = std::make_unique<MappedFile>(path, "index");
  IndexedShard result;
  result.facts = parseShardIndex(file->bytes(), file->bytes().size(), path);
  auto expect = [&](bool isSo, const std::string &what) {
    if (!isSo)
      invalid("data file '" + shard + "' is not what its index says: " + what);
  };
  expect(result.facts.width == width, "expected tokens of " +
                                          str(result.facts.width) +
                                          " bytes, found " + str(width));
  expect(result.facts.tokens == tokens.size() / width,
         "expected " + str(result.facts.tokens) + " tokens, found " +
             str(tokens.size() / width));
  expect(result.facts.edgeHash == edgeHashOf(tokens),
         "its beginning or end changed since");
  if (const auto &labels = result.facts.labels)
    result.labels = openLabels(shard, *labels, result.facts.tokens);
  result.ends = std::make_unique<EndsOfShard>(std::move(file), result.facts);
  return result;
}

MegatronIndex parseMegatronIndex(std::string_view bytes, uint64_t fileBytes,
                                 const std::string &name) {
  constexpr std::string_view magic("MMIDIDX\0\0", 9);
  // The widths of Megatron-LM's codes of types; 0: floating ones.
  constexpr uint64_t widths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
  std::string file = "index '" + name + "'";
  if (bytes.substr(0, magic.size()) != magic)
    invalid(file + ": expected an index of Megatron-LM, which begins with " +
            "MMIDIDX");
  if (bytes.size() < MegatronIndex::headerBytes)
    invalid(file + ": expected at least " + str(MegatronIndex::headerBytes) +
            " bytes, found " + str(bytes.size()));
  if (uint64_t version = numberAt(bytes, 9, 8); version != 1)
    invalid(file + ", byte 9: expected version 1, found " + str(version));
  MegatronIndex index;
  uint64_t type = numberAt(bytes, 17, 1);
  index.width = type < std::size(widths) ? widths[type] : 0;
  if (index.width == 0)
    invalid(file + ", byte 17: expected a type of integers (1 to 5, or 8), " +
            "found " + str(type));
  index.sequences = numberAt(bytes, 18, 8);
  index.documents = numberAt(bytes, 26, 8);
  if (index.sequences > fileBytes / 12 || index.documents > fileBytes / 8 ||
      index.bytes() != fileBytes)
    invalid(file + ", byte 18: " + str(index.sequences) + " sequences and " +
            str(index.documents) + " bounds of documents do not fit an index " +
            "of " + str(fileBytes) + " bytes");
  if (index.sequences == 0 || index.documents == 0)
    invalid(file + ", byte 18: expected at least one sequence and document");
  return index;
}

std::unique_ptr<DocumentEnds> openMegatronIndex(const std::string &bin,
                                                uint64_t binBytes,
                                                MegatronIndex &index) {
  std::string path = megatronIndexOf(bin);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    invalid("data file '" + bin +
            "': expected Megatron-LM's index beside it, '" + path + "'");
  auto file = std::make_unique<MappedFile>(path, "index");
  index = parseMegatronIndex(file->bytes(), file->bytes().size(), path);
  auto ends =
      std::make_unique<EndsOfMegatron>(std::move(file), index, path, binBytes);
  // Sequences follow each other without a gap; the first and the last say
  // whether this is the file's index.
  uint64_t last = index.sequences - 1;
  uint64_t expected = ends->begin(last) + ends->length(last) * index.width;
  if (ends->begin(0) != 0 || expected != binBytes)
    invalid("data file '" + bin + "' is not what its index says: expected " +
            "sequences from byte 0 to " + str(expected) + ", found " +
            str(binBytes) + " bytes, the first sequence at byte " +
            str(ends->begin(0)));
  if (binBytes % index.width)
    invalid("data file '" + bin + "': " + str(binBytes) +
            " bytes are not a whole number of tokens of " + str(index.width));
  return ends;
}

} // namespace grt
