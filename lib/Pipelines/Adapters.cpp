//===- Adapters.cpp - The option --adapters -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringSet.h"

#include <cmath>

using namespace galvatron;

llvm::Expected<AdapterOptions> AdapterOptions::parse(llvm::StringRef text) {
  AdapterOptions options;
  auto refuse = [&](const llvm::Twine &what) {
    return makeError("option --adapters: expected "
                     "rank=R,alpha=A,layers='NAME;..' or from=DIR, " +
                     what);
  };
  llvm::SmallVector<llvm::StringRef> settings;
  text.split(settings, ',', -1, /*KeepEmpty=*/false);
  bool hasAlpha = false;
  llvm::StringSet<> keys;
  for (llvm::StringRef setting : settings) {
    auto [key, value] = setting.split('=');
    if (!keys.insert(key).second)
      return refuse("found '" + key + "' twice");
    bool isGood = !value.empty();
    if (key == "rank") {
      isGood = !value.getAsInteger(10, options.rank) && options.rank >= 1;
    } else if (key == "alpha") {
      hasAlpha = true;
      isGood = !value.getAsDouble(options.alpha) &&
               std::isfinite(options.alpha) && options.alpha > 0;
    } else if (key == "from" && settings.size() == 1) {
      options.from = value.str();
    } else if (key == "layers") {
      options.layers = value.trim('\'').str();
    } else {
      return refuse("found '" + setting + "'");
    }
    if (!isGood)
      return refuse("found the " + key + " '" + value + "'");
  }
  if (!hasAlpha)
    options.alpha = 2.0 * double(options.rank);
  if (options.layers.empty() && options.from.empty())
    return refuse("found no layers");
  return options;
}
