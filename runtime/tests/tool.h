//===- tool.h - Tools as tests call them ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_TOOL_H
#define GRT_TESTS_TOOL_H

#include "files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace grt::test {

using Json = nlohmann::json;

struct Result {
  int exitCode;
  std::string output;
};

/// True if `text` stands in what the tool printed.
inline bool has(const Result &result, const std::string &text) {
  return result.output.find(text) != std::string::npos;
}

/// A folder of this process, which goes with it.
inline std::string folder() {
  static const struct Folder {
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path =
        testing::TempDir() + "galvatron-run-test-" + std::to_string(getpid());
  } folder;
  return folder.path;
}

inline Result runTool(const std::string &arguments, const char *errors = "2>&1",
                      const char *tool = GALVATRON_RUN) {
  std::string command = std::string(tool) + " " + arguments + " " + errors;
  FILE *pipe = popen(command.c_str(), "r");
  Result result;
  char buffer[4096];
  while (size_t got = fread(buffer, 1, sizeof(buffer), pipe))
    result.output.append(buffer, got);
  int status = pclose(pipe);
  result.exitCode = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

inline std::string program(int ranks) {
  return std::string(TEST_PROGRAMS) + "/bigram" + std::to_string(ranks) +
         ".gvx";
}

inline std::string writeText(const std::string &name, const std::string &text) {
  std::string path = folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string alphabet() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "abcdefgh";
  return writeText("alphabet.txt", text);
}

/// An empty folder for checkpoints.
inline std::string checkpoints(const std::string &name) {
  std::string path = folder() + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

inline double finalLoss(const std::string &summary) {
  return Json::parse(readAll(summary))["final-loss"].get<double>();
}

} // namespace grt::test

#endif // GRT_TESTS_TOOL_H
