//===- changed_manifests.h - Manifests of programs, for tests -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of the program that test_program.h makes, with what only the compiler's have
// otherwise.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_CHANGED_MANIFESTS_H
#define GRT_TESTS_CHANGED_MANIFESTS_H

#include "core/manifest.h"
#include "test_program.h"

#include <nlohmann/json.hpp>

namespace grt::test {

using Json = nlohmann::json;

/// Three layers on one rank, two micro-batches.
inline Json oneChunk() {
  return Json::parse(TestProgram(ModelPlan()).manifest());
}

/// The manifest of oneChunk() with states and slots that are offloaded to the
/// host.
inline Json atHome(uint64_t slots) {
  Json m = oneChunk();
  Json &role = m["roles"][0];
  const uint64_t bytes = role["arena"]["bytes"], slotBytes = role["slot-bytes"];
  // States lie as in the arena, and behind them slots.
  role["home"] = {{"bytes", alignUp(bytes) + slots * slotBytes},
                  {"slots", {alignUp(bytes), slots * slotBytes}}};
  for (const char *name : {"parameters", "gradients", "optimizer"})
    role["home"][name] = role["arena"][name];
  m["training"]["clip"] = false;
  return m;
}

/// Gradients are a batch late.
inline Json lateChunk() {
  Json m = oneChunk();
  m["delay"] = 1;
  m["weight-versions"] = 2;
  Json &role = m["roles"][0];
  int64_t end = int64_t(alignUp(role["arena"]["bytes"].get<uint64_t>()));
  for (const char *name : {"parameters", "step"}) {
    auto bytes = 2 * alignUp(role["arena"][name][1].get<uint64_t>());
    role["arena"][name] = {end, bytes};
    end += int64_t(bytes);
  }
  // Copies are relative to the arena: the second batch's are behind them.
  int64_t data = role["arena"]["data"][0], all = role["arena"]["data"][1];
  role["arena"]["data"] = {end, 2 * all};
  for (Json &copy : role["data"])
    copy["extent"][0] = copy["extent"][0].get<int64_t>() - data + end;
  const int64_t parameters = role["arena"]["parameters"][0];
  for (Json &layer : role["layers"])
    layer["parameter"] = layer["parameter"].get<int64_t>() + parameters;
  role["arena"]["bytes"] = end + 2 * all;
  role["ledger"]["all"] = end + 2 * all;
  return m;
}

} // namespace grt::test

#endif // GRT_TESTS_CHANGED_MANIFESTS_H
