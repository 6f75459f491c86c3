//===- Tool.cpp - A tool's messages and files -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/ToolOptions.h"

#include "galvatron/Support/CommandLine.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/OutputFile.h"
#include "galvatron/Support/Units.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;

char ClosedPipe::ID = 0;

Tool::Tool(llvm::StringRef name) : name(name.str()), options("Galvatron") {
  // LLVM's libraries have an option of that name, for tools of its own.
  auto &known = llvm::cl::getRegisteredOptions();
  if (auto found = known.find("threads"); found != known.end())
    found->second->removeArgument();
}

std::optional<int> Tool::parse(int argc, char **argv, llvm::StringRef usage,
                               llvm::StringRef overview) {
  return parseCommandLine({name, usage, overview,
                           "0 done, 1 infeasible or failed, 2 wrong usage or "
                           "invalid input, 130 ended by Ctrl-C"},
                          options, argc, argv);
}

int Tool::report(llvm::Error error) const {
  if (error.isA<ClosedPipe>()) {
    llvm::consumeError(std::move(error));
    return kExitClosedPipe;
  }
  int exitCode = error.isA<CompileError>() ? kExitFailed : kExitInvalid;
  return report(llvm::toString(std::move(error)), exitCode);
}

int Tool::report(llvm::StringRef message, int exitCode) const {
  llvm::errs() << name << ": error: " << message << "\n";
  return exitCode;
}

void Tool::tell(const ImportNotes &notes, llvm::StringRef fileName) const {
  llvm::errs() << notes.str(name + ": ", fileName);
}

llvm::Expected<std::string> galvatron::readInput(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer)
    return makeError(path + ": " + buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

llvm::Expected<Plan> galvatron::readPlanFile(llvm::StringRef path) {
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return content.takeError();
  llvm::Expected<llvm::json::Value> value = parseJson(*content, path);
  if (!value)
    return value.takeError();
  if (const llvm::json::Object *object = value->getAsObject();
      object && object->get("infeasible"))
    return makeError(path +
                     ": expected a plan, found the reasons why there is none");
  llvm::Expected<Plan> plan = Plan::fromJson(*value);
  if (!plan)
    return makeError(path + ": " + llvm::toString(plan.takeError()));
  return plan;
}

std::string galvatron::modelFile(llvm::StringRef path) {
  llvm::SmallString<128> file(path);
  if (llvm::sys::fs::is_directory(path))
    llvm::sys::path::append(file, "config.json");
  return file.str().str();
}

/// "-": standard output.
static std::string cannotWriteText(llvm::StringRef path, std::error_code code) {
  return ("cannot write " +
          (path == "-" ? "standard output" : "'" + path + "'") + ": " +
          code.message())
      .str();
}

static llvm::Error cannotWrite(llvm::StringRef path, std::error_code code) {
  if (path == "-" && code == std::errc::broken_pipe)
    return llvm::make_error<ClosedPipe>();
  return llvm::make_error<CompileError>(cannotWriteText(path, code));
}

llvm::Error galvatron::writeOutput(llvm::StringRef path,
                                   llvm::StringRef content) {
  if (std::error_code code = writeWhole(path, content))
    return cannotWrite(path, code);
  return llvm::Error::success();
}

llvm::Error galvatron::flushStandardOutput() {
  llvm::outs().flush();
  std::error_code code = llvm::outs().error();
  if (!code)
    return llvm::Error::success();
  // Or the stream's destructor ends the process with words of its own.
  llvm::outs().clear_error();
  return cannotWrite("-", code);
}

llvm::Error galvatron::checkOutput(llvm::StringRef path) {
  std::error_code code = tryOutput(path);
  if (!code)
    return llvm::Error::success();
  return isWrongPath(code) ? makeError(cannotWriteText(path, code))
                           : cannotWrite(path, code);
}

void ToolFiles::reads(llvm::StringRef option, llvm::StringRef path) {
  if (llvm::sys::fs::exists(path))
    uses.push_back({option.str(), path.str()});
}

llvm::Error ToolFiles::writes(llvm::StringRef option, llvm::StringRef path) {
  if (llvm::Error error = checkOutput(path))
    return error;
  if (path.empty() || path == "-")
    return llvm::Error::success();
  for (const Use &use : uses)
    if (isSameFile(use.path, path))
      return makeError("option " + option +
                       ": expected a file of its own, "
                       "found that of " +
                       use.option + ", '" + use.path + "'");
  uses.push_back({option.str(), path.str()});
  return llvm::Error::success();
}
