//===- TestParadigms.h - Paradigms that only tests have ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef UNITTESTS_TESTPARADIGMS_H
#define UNITTESTS_TESTPARADIGMS_H

#include "galvatron/Strategy/Paradigm.h"

/// Registered once in a process, when first asked for.
struct TestParadigms {
  /// Every rank does the same, on the same samples, and holds everything: for
  /// groups that can divide neither samples nor factors. No other paradigm has
  /// these properties.
  galvatron::Paradigm replicated;
  /// Sharded data parallelism that stands alone, in spaces where executed time
  /// is minimised.
  galvatron::Paradigm sharded;
  /// A sharded optimizer, in no space that does not ask for it.
  galvatron::Paradigm optimizer;
  /// An axis that splits none of the factors that bodies have today, in no
  /// space that does not ask for it.
  galvatron::Paradigm context;

  static const TestParadigms &get() {
    static const TestParadigms paradigms = [] {
      using galvatron::LayerAxis;
      using galvatron::SearchedIn;
      auto add = [](const galvatron::ParadigmDescriptor &descriptor) {
        return llvm::cantFail(galvatron::ParadigmRegistry::add(descriptor));
      };
      return TestParadigms{
          add({"rep", "replicated computation", "replicated computation",
               /*splitsBatch=*/false, /*shardsParameters=*/false,
               /*shardsOptimizer=*/false, LayerAxis::None, /*alone=*/false,
               SearchedIn::Executed}),
          add({"fsd", "parameters in shards", "fully sharded data parallelism",
               /*splitsBatch=*/true, /*shardsParameters=*/true,
               /*shardsOptimizer=*/true, LayerAxis::None, /*alone=*/true,
               SearchedIn::Executed}),
          add({"osd", "sums of gradients", "optimizer states in shards",
               /*splitsBatch=*/true, /*shardsParameters=*/false,
               /*shardsOptimizer=*/true, LayerAxis::None, /*alone=*/true,
               SearchedIn::Request}),
          add({"ctx", "context parallelism", "context parallelism",
               /*splitsBatch=*/false, /*shardsParameters=*/false,
               /*shardsOptimizer=*/false, LayerAxis::Context, /*alone=*/false,
               SearchedIn::Request})};
    }();
    return paradigms;
  }
};

#endif // UNITTESTS_TESTPARADIGMS_H
