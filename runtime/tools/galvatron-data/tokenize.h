//===- tokenize.h - Commands of galvatron-data ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DATA_TOKENIZE_H
#define GALVATRON_DATA_TOKENIZE_H

#include "options.h"

namespace grt::data {

/// Text to shards.
void tokenize(const Options &options);
/// Documents of shards to samples of one length.
void pack(const Options &options);
/// Compares shards with their indices.
void check(const Options &options);
/// Prints a document of a shard.
void print(const Options &options);

} // namespace grt::data

#endif // GALVATRON_DATA_TOKENIZE_H
