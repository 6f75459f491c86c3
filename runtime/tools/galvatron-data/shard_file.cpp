//===- shard_file.cpp - A shard that is read whole ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "shard_file.h"
#include "base/error.h"

namespace grt::data {

ShardFile::ShardFile(const std::string &path) : file(path) {
  index = readShardIndex(path + std::string(ShardIndex::suffix), ends);
  if (index.tokens != bytes().size() / index.width ||
      bytes().size() % index.width)
    invalid("shard '" + path + "': expected " + str(index.tokens) +
            " tokens of " + str(index.width) + " bytes, found " +
            str(bytes().size()) + " bytes");
  if (!index.labels)
    return;
  std::string labels = path + std::string(ShardIndex::labelSuffix);
  labelFile.emplace(labels);
  if (labelFile->text().size() != index.tokens)
    invalid("file of labels '" + labels + "': expected a byte for each of " +
            str(index.tokens) + " tokens, found " +
            str(labelFile->text().size()) + " bytes");
}

uint32_t ShardFile::token(uint64_t position) const {
  uint32_t value = 0;
  for (uint32_t i = 0; i < index.width; ++i)
    value |= uint32_t(uint8_t(bytes()[position * index.width + i])) << (8 * i);
  return value;
}

bool ShardFile::counts(uint64_t position) const {
  return !labelFile || labelFile->text()[position] != 0;
}

} // namespace grt::data
