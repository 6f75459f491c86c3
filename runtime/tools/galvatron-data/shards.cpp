//===- shards.cpp - Writes files of tokens --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "shards.h"
#include "base/error.h"
#include "base/sha256.h"
#include "grt/outputs.h"
#include "text/corpus.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <unistd.h>

namespace grt::data {

/// The name of a shard that is not finished.
static constexpr const char *unfinished = ".partial";

/// The file of labels of a shard.
static std::string labelsOf(const std::string &shard) {
  return shard + std::string(ShardIndex::labelSuffix);
}

ShardWriter::ShardWriter(Plan given) : plan(std::move(given)) {
  std::error_code ignored;
  if (std::filesystem::exists(plan.folder, ignored) &&
      (!std::filesystem::is_directory(plan.folder, ignored) ||
       !std::filesystem::is_empty(plan.folder, ignored)))
    invalid("-o: expected a new folder or an empty one, found '" + plan.folder +
            "'");
  // A name that cannot be a folder's is the user's mistake here; later a
  // failure is the storage's.
  Output output{"-o", plan.folder, Output::Folder};
  if (Status status = tryOutputs({&output, 1}); !status)
    throw Error(status.exitCode(), status.message());
  std::filesystem::path folder =
      std::filesystem::absolute(plan.folder, ignored).lexically_normal();
  for (; !folder.empty() && !std::filesystem::exists(folder, ignored);
       folder = folder.parent_path())
    made.insert(made.begin(), folder.string());
  makeDirectory(plan.folder);
}

ShardWriter::~ShardWriter() {
  if (isFinished)
    return;
  std::error_code ignored;
  const std::string path = pathOf(shardList.size());
  std::filesystem::remove(path + unfinished, ignored);
  std::filesystem::remove(labelsOf(path) + unfinished, ignored);
  // A folder that is not empty stays.
  for (; !made.empty(); made.pop_back())
    ::rmdir(made.back().c_str());
}

std::string ShardWriter::pathOf(size_t shard) const {
  char name[32];
  std::snprintf(name, sizeof(name), "%05zu.%s", shard,
                plan.width == 2 ? "u16" : "u32");
  return (std::filesystem::path(plan.folder) / name).string();
}

void ShardWriter::open() {
  index = ShardIndex();
  index.width = plan.width;
  for (size_t i = 0; i < index.tokenizer.size(); ++i)
    index.tokenizer[i] =
        uint8_t(std::stoi(plan.tokenizerHash.substr(2 * i, 2), nullptr, 16));
  ends.clear();
  std::string path = pathOf(shardList.size());
  file.emplace(File::create(path + unfinished));
  if (!plan.hasLabels)
    return;
  index.labels.emplace();
  index.sampleTokens = plan.sampleTokens;
  labelFile.emplace(File::create(labelsOf(path) + unfinished));
}

void ShardWriter::flush() {
  file->write(buffer);
  buffer.clear();
  if (labelFile)
    labelFile->write(labelBuffer);
  labelBuffer.clear();
}

void ShardWriter::add(std::span<const uint32_t> ids,
                      std::span<const uint8_t> labels) {
  if (!file)
    open();
  for (uint32_t id : ids) {
    index.largest = std::max<uint64_t>(index.largest, id);
    for (uint32_t byte = 0; byte < plan.width; ++byte)
      buffer += char(id >> (8 * byte) & 0xff);
  }
  index.tokens += ids.size();
  for (uint8_t label : labels.first(index.labels ? labels.size() : 0)) {
    labelBuffer += char(label);
    index.labels->counted += label;
  }
  // One call of the system copies this many bytes: its own cost is small beside
  // them.
  constexpr size_t atOnce = 1 << 20;
  if (buffer.size() >= atOnce)
    flush();
}

void ShardWriter::endDocument() {
  if (!file)
    open();
  ends.push_back(index.tokens);
  if (index.tokens >= plan.shardTokens)
    endShard();
}

void ShardWriter::endShard() {
  if (!file)
    return;
  std::string path = pathOf(shardList.size());
  flush();
  file->flush();
  file.reset();
  if (labelFile)
    labelFile->flush();
  labelFile.reset();
  // A shard without a token cannot be mapped, and nobody needs it.
  if (index.tokens == 0) {
    removePath(path + unfinished);
    if (index.labels)
      removePath(labelsOf(path) + unfinished);
    index = ShardIndex();
    return;
  }
  {
    text::TextFile written(path + unfinished);
    index.hash = sha256(written.text());
    index.edgeHash = edgeHashOf(written.text());
  }
  if (index.labels) {
    text::TextFile written(labelsOf(path) + unfinished);
    index.labels->hash = sha256(written.text());
    index.labels->edgeHash = edgeHashOf(written.text());
  }
  index.documents = ends.size();
  writeShardIndex(path + std::string(ShardIndex::suffix), index, ends);
  if (index.labels)
    renamePath(labelsOf(path) + unfinished, labelsOf(path));
  renamePath(path + unfinished, path);
  std::string_view hash(reinterpret_cast<const char *>(index.hash.data()),
                        index.hash.size());
  shardList.push_back(
      {{"file", std::filesystem::path(path).filename().string()},
       {"tokens", index.tokens},
       {"documents", index.documents},
       {"largest-token", index.largest},
       {"hash", hexadecimal(hash)}});
  if (index.labels)
    shardList.back()["labels"] = index.labels->counted;
  allLabels += index.labels ? index.labels->counted : 0;
  allTokens += index.tokens;
  allDocuments += ends.size();
  index = ShardIndex();
  ends.clear();
}

void ShardWriter::finish(const nlohmann::ordered_json &facts) {
  endShard();
  if (shardList.empty())
    invalid("the text has no tokens");
  nlohmann::ordered_json json = {{"version", 1},
                                 {"tokenizer", plan.tokenizer},
                                 {"tokenizer-hash", plan.tokenizerHash},
                                 {"vocabulary-size", plan.vocabularySize},
                                 {"format", plan.width == 2 ? "u16" : "u32"},
                                 {"tokens", allTokens},
                                 {"documents", allDocuments}};
  if (plan.hasLabels)
    json["labels"] = allLabels;
  if (plan.sampleTokens)
    json["sample-tokens"] = plan.sampleTokens;
  for (const auto &[name, value] : facts.items())
    json[name] = value;
  json["shards"] = shardList;
  AtomicFile summary(
      (std::filesystem::path(plan.folder) / "shards.json").string());
  summary.write(json.dump(2) + "\n");
  summary.commit();
  isFinished = true;
}

} // namespace grt::data
