//===- main.cpp - galvatron-data: makes files of tokens -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/files.h"
#include "options.h"
#include "tokenize.h"

#include <cstdio>

int main(int argc, char **argv) {
  using namespace grt;
  openStandardDescriptors();
  data::Options options;
  Status status = data::parseOptions(argc - 1, argv + 1, options);
  if (status)
    status = guarded([&] {
      if (options.help)
        writeStandardOutput(data::helpText());
      else if (options.version)
        writeStandardOutput(std::string("galvatron-data ") + version() + "\n");
      else if (options.command == "tokenize")
        data::tokenize(options);
      else if (options.command == "pack")
        data::pack(options);
      else if (options.command == "check")
        data::check(options);
      else
        data::print(options);
    });
  if (status && std::fflush(stdout) != 0)
    status = Status(ExitStorage, "cannot write standard output");
  if (!status)
    std::fprintf(stderr, "galvatron-data: error: %s\n",
                 status.message().c_str());
  return status.exitCode();
}
