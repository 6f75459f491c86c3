//===- galvatron-judge.cpp - What becomes of changed programs -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// galvatron-judge REFERENCE.gvx: reads paths of programs, a line each, runs
// them in processes of their own and writes a line for each: how far it came
// (`load`, `ranks`, `run`, `end`, `crash`), a tab, and why it went no further,
// or what differs from the reference; nothing if nothing does.
//
//===----------------------------------------------------------------------===//

#include "Runs.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <iostream>

using namespace galvatron::test;

namespace {

std::string contentOf(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    llvm::report_fatal_error(llvm::Twine("cannot read '") + path + "'",
                             /*gen_crash_diag=*/false);
  return (*buffer)->getBuffer().str();
}

std::string judgeProgram(const std::string &bytes, const Figures &reference) {
  std::string why;
  auto packed = inProcess(20, [&] { return runProgram(bytes).pack(); }, why);
  if (!packed)
    return "crash\t" + why;
  Figures figures = Figures::unpack(*packed);
  if (!figures.error.empty())
    return figures.stage + "\t" + figures.error;
  return "end\t" + compare(figures, reference);
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    llvm::errs() << "usage: galvatron-judge REFERENCE.gvx < paths\n";
    return 2;
  }
  std::string why, path;
  auto packed =
      inProcess(60, [&] { return runProgram(contentOf(argv[1])).pack(); }, why);
  Figures reference = packed ? Figures::unpack(*packed) : Figures{why, "", {}};
  if (!reference.error.empty()) {
    llvm::errs() << argv[1] << ": " << reference.error << "\n";
    return 1;
  }
  while (std::getline(std::cin, path)) {
    std::string line = judgeProgram(contentOf(path), reference);
    std::replace(line.begin(), line.end(), '\n', ' ');
    llvm::outs() << line << "\n";
    llvm::outs().flush();
  }
  return 0;
}
