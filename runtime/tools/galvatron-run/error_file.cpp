//===- error_file.cpp - Why a process ended, for its launcher -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "error_file.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <ctime>
#include <fstream>

void writeErrorFile(const grt::Status &status) {
  const char *path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!path || !*path)
    return;
  using Json = nlohmann::ordered_json;
  // torchrun prints the call stack of a message that has one.
  const Json error = {
      {"message",
       {{"message", "galvatron-run: " + status.message()},
        {"errorCode", status.exitCode()},
        {"extraInfo",
         {{"py_callstack", "galvatron-run: error: " + status.message()},
          {"timestamp", std::to_string(std::time(nullptr))}}}}}};
  std::ofstream file(path);
  file << error.dump(-1, ' ', false, Json::error_handler_t::replace);
}
