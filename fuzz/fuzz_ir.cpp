//===- fuzz_ir.cpp - Modules, as text -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/InitAllDialects.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static mlir::MLIRContext &context = *[] {
    mlir::DialectRegistry registry;
    galvatron::registerAllDialects(registry);
    auto *context =
        new mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    return context;
  }();
  std::string error;
  mlir::ScopedDiagnosticHandler handler(&context,
                                        [&](mlir::Diagnostic &diagnostic) {
                                          error += diagnostic.str();
                                          return mlir::success();
                                        });
  // As files are read: the lexer looks for a zero behind the text.
  std::string text(reinterpret_cast<const char *>(data), size);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) {
    if (error.empty())
      std::abort();
    return 0;
  }
  // What is accepted is printed so that it is accepted again.
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  module->print(stream);
  // An empty name of upstream's operations, or a reference to one, which is no
  // name of ours, is printed as what no parser takes.
  if (printed.find("<<INVALID EMPTY SYMBOL>>") != std::string::npos)
    return 0;
  if (!mlir::parseSourceString<mlir::ModuleOp>(printed, &context))
    std::abort();
  return 0;
}
