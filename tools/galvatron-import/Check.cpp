//===- Check.cpp - What can be had of configurations ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Support/Json.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;

namespace {

/// Text that is printed for a file, and whether it is refused.
struct Answer {
  std::string text;
  bool refused = false;
};

int64_t countParameters(mlir::ModuleOp module) {
  int64_t count = 0;
  for (auto parameter : module.getOps<mlir::galvatron::ParameterOp>())
    count += mlir::cast<mlir::ShapedType>(parameter.getType()).getNumElements();
  return count;
}

llvm::Expected<std::string> answerOf(llvm::StringRef path,
                                     const ImportOptions &options,
                                     ImportNotes &notes) {
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return content.takeError();
  llvm::Expected<llvm::json::Value> value = parseJson(*content, path);
  if (!value)
    return value.takeError();
  const llvm::json::Object *config = value->getAsObject();
  if (config && isHuggingFaceConfig(*value) && !isImportedFamily(*config)) {
    llvm::Expected<int64_t> width = elementBytes(options.dtype);
    if (!width)
      return width.takeError();
    auto estimated = estimateHuggingFaceConfig(*config, path, options.dtype,
                                               *width, options);
    if (!estimated)
      return estimated.takeError();
    notes = std::move(estimated->notes);
    return "planned   " + path.str() + ": " + estimated->notice;
  }
  auto context = createCompilerContext();
  auto module =
      importHuggingFaceConfig(*content, path, options, *context, &notes);
  if (!module)
    return module.takeError();
  return llvm::formatv("executed  {0}: '{1}', {2} parameters", path,
                       config->getString("model_type").value_or(""),
                       countParameters(**module))
      .str();
}

} // namespace

int galvatron::checkFiles(const Tool &tool, llvm::ArrayRef<std::string> files,
                          const ImportOptions &options) {
  bool refused = false;
  for (const std::string &file : files) {
    std::string path = modelFile(file);
    ImportNotes notes;
    llvm::Expected<std::string> answer = answerOf(path, options, notes);
    std::string line;
    if (answer) {
      tool.tell(notes, path);
      line = *answer;
    } else {
      refused = true;
      std::string why = llvm::toString(answer.takeError());
      llvm::StringRef reason = why;
      reason.consume_front(path + ": ");
      line = "refused   " + path + ": " + reason.str();
    }
    if (llvm::Error error = writeOutput("-", line + "\n"))
      return tool.report(std::move(error));
  }
  return refused ? kExitFailed : 0;
}
