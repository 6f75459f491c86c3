//===- adapters.h - Files of low-rank adapters ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_ADAPTERS_H
#define GRT_CORE_ADAPTERS_H

#include "core/manifest.h"

#include <span>

namespace grt {

/// The text of PEFT's adapter_config.json, without the line's end.
std::string adapterConfigText(const Adapters &adapters);

/// Checks that such a file, of which `path` is said in messages, describes
/// adapters that scale what they add as these do, by PEFT's rules: a module's
/// rank and alpha may be those of an expression of its name. Throws Error with
/// exit code 2.
void checkAdapterConfig(std::string_view text, const std::string &path,
                        const Adapters &adapters);

/// Adds scale * B A of a module to `weight`, [out, in], or its transpose to one
/// that is [in, out]. `first` is A, [rank, in], `second` B, [out, rank].
void mergeLowRank(const Adapters &adapters, size_t module,
                  std::span<const double> first, std::span<const double> second,
                  std::span<double> weight);

} // namespace grt

#endif // GRT_CORE_ADAPTERS_H
