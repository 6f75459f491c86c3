//===- DiagnosticText.h - Errors as text ------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_FOOTPRINT_DIAGNOSTICTEXT_H
#define GALVATRON_LIB_FOOTPRINT_DIAGNOSTICTEXT_H

#include "mlir/IR/Diagnostics.h"

#include <string>

namespace mlir::galvatron {

/// Collects diagnostics instead of printing them.
class DiagnosticText {
public:
  explicit DiagnosticText(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() == DiagnosticSeverity::Error &&
              text.empty())
            text = diagnostic.str();
          return success();
        }) {}
  std::string text;

private:
  ScopedDiagnosticHandler handler;
};

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_FOOTPRINT_DIAGNOSTICTEXT_H
