//===- fuzz_config.cpp - Hugging Face configurations ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Support/Json.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"

#include <cstdlib>

using namespace galvatron;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static mlir::MLIRContext &context = *[] {
    auto *context =
        new mlir::MLIRContext(mlir::MLIRContext::Threading::DISABLED);
    loadImportDialects(*context);
    return context;
  }();
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  // A model of thousands of layers is valid and takes its time.
  if (llvm::Expected<llvm::json::Value> value = llvm::json::parse(text)) {
    if (const llvm::json::Object *object = value->getAsObject()) {
      for (const auto &[key, number] : *object)
        if (number.getAsNumber().value_or(0) > 64)
          return 0;
      // The same fields as those of a family that is only planned.
      if (isHuggingFaceConfig(*value) && !isImportedFamily(*object))
        if (auto estimate =
                estimateHuggingFaceConfig(*object, "-", "f32", 4, {});
            !estimate && llvm::toString(estimate.takeError()).empty())
          std::abort();
    }
  } else {
    llvm::consumeError(value.takeError());
  }
  auto module = importHuggingFaceConfig(text, "fuzzed", {}, context);
  if (!module) {
    if (llvm::toString(module.takeError()).empty())
      std::abort();
    return 0;
  }
  // What is imported is valid.
  if (mlir::failed(mlir::verify(**module)))
    std::abort();
  return 0;
}
