//===- fuzz_manifest.cpp - Manifests of programs --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/pieces.h"
#include "core/layout.h"
#include "parsers.h"

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  expectParsesOrRefuses([&] {
    Manifest manifest = parseManifest(fuzzText(data, size));
    checkWiring(manifest);
    // What a session derives from it at load must not fault either. Real
    // programs are bounded by the memory they need; this one need not be.
    if (manifest.world > 64)
      return;
    (void)tensorPlaces(manifest, true);
    for (const Exchange &exchange : manifest.exchanges)
      (void)exchangeTables(exchange, {0, int(manifest.world)});
    for (const Role &role : manifest.roles)
      for (const Layer &layer : role.layers)
        for (const LayerTensor &tensor : layer.tensors) {
          if (tensor.localElements() > 1 << 16)
            continue;
          uint64_t held = uint64_t(layer.groups[0].shardElements +
                                   layer.groups[1].shardElements);
          for (size_t rank = 0; rank < role.devices.size(); ++rank)
            forEachRun(layer, tensor, int(rank), [&](const TensorRun &run) {
              int64_t all = manifest.parameters[tensor.parameter].elements();
              if (run.global < 0 || run.global + run.count > all ||
                  run.held < 0 || uint64_t(run.held + run.count) > held)
                std::abort();
            });
        }
  });
  return 0;
}
