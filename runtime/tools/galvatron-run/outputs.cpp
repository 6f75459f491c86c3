//===- outputs.cpp - Files that a run writes ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "outputs.h"
#include "grt/checkpoint.h"
#include "grt/data.h"
#include "grt/outputs.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

using namespace grt;

std::string ownFile(const std::string &name, const Processes *processes) {
  std::filesystem::path path(name);
  if (!processes || processes->number() == 0)
    return path;
  return path.replace_extension(std::to_string(processes->number()) +
                                path.extension().string());
}

namespace {

/// Returns the bytes of checkpoints that an earlier run did not complete: they
/// go before one is written.
uint64_t unfinishedBytes(const std::string &folder) {
  uint64_t bytes = 0;
  std::error_code problem;
  for (const auto &entry :
       std::filesystem::recursive_directory_iterator(folder, problem))
    if (entry.path().parent_path().extension() == ".partial" &&
        entry.is_regular_file(problem))
      bytes += entry.file_size(problem);
  return bytes;
}

/// The files that a run reads.
std::vector<Input> inputsOf(const Options &options) {
  std::vector<Input> inputs = {{"the program", options.program}};
  std::error_code missing;
  std::vector<DataFiles> all = options.data.files;
  all.insert(all.end(), options.validationFiles.begin(),
             options.validationFiles.end());
  for (const DataFiles &files : all)
    for (const std::string &path : files.paths) {
      inputs.push_back({"the data", path});
      for (const std::string &index : possibleIndices(path))
        if (std::filesystem::exists(index, missing))
          inputs.push_back({"an index of the data", index});
    }
  if (!options.init.empty())
    for (const std::string &path : weightFiles(options.init))
      inputs.push_back({"--init", path});
  if (!options.adapters.empty())
    for (const std::string &path : weightFiles(options.adapters))
      inputs.push_back({"--adapters", path});
  const std::pair<const char *, const std::string *> others[] = {
      {"--tokenizer", &options.tokenizer},
      {"--prompts", &options.prompts},
      {"--generation-config", &options.generationConfig},
      {"--launch-secret", &options.launchSecret}};
  for (const auto &[option, path] : others)
    if (!path->empty())
      inputs.push_back({option, *path});
  return inputs;
}

/// True if both names are those of one folder, which may not be there yet.
bool isOneFolder(const std::string &a, const std::string &b) {
  auto place = [](const std::string &name) {
    std::error_code failed;
    // "a/" is "a".
    std::filesystem::path path = std::filesystem::weakly_canonical(
        std::filesystem::absolute(name + "/.", failed), failed);
    return path.has_filename() ? path : path.parent_path();
  };
  return place(a) == place(b);
}

} // namespace

Status tryAllOutputs(const Options &options, const Program &program,
                     const Processes *processes, Report &report) {
  // Files of models have the same names.
  if (!options.save.empty() && !options.saveBest.empty() &&
      isOneFolder(options.save, options.saveBest))
    return Status(ExitInvalid, "--save-best='" + options.saveBest +
                                   "': expected a folder of its own, found "
                                   "that of --save");
  ProgramFacts facts = program.facts();
  bool leads = !processes || processes->number() == 0;
  std::vector<Output> outputs;
  auto add = [&](const char *option, const std::string &path,
                 Output::Kind kind) -> Output * {
    if (path.empty() || path == "-")
      return nullptr;
    outputs.push_back({option, path, kind});
    return &outputs.back();
  };
  if (leads) {
    if (Output *save = add("--save", options.save, Output::Folder))
      save->bytes = save->largestFile = facts.modelBytes;
    if (Output *best = add("--save-best", options.saveBest, Output::Folder))
      best->bytes = best->largestFile = facts.modelBytes;
    if (Output *folder =
            add("--checkpoint", options.checkpoint, Output::Folder);
        folder && *options.steps) {
      // One checkpoint more is written than stay, unless so many stand there
      // already.
      uint64_t writes = 1;
      std::error_code missing;
      if (options.checkpointEvery &&
          (!std::filesystem::exists(options.checkpoint, missing) ||
           std::filesystem::is_empty(options.checkpoint, missing)))
        writes = std::min(*options.steps / options.checkpointEvery + 1,
                          options.checkpoints.keep + 1);
      uint64_t bytes = writes * facts.checkpointBytes;
      folder->bytes =
          bytes - std::min(bytes, unfinishedBytes(options.checkpoint));
      folder->largestFile = facts.largestFileBytes;
    }
    add("--log", options.log, Output::Stream);
    add("--summary", options.summary, Output::Stream);
    add("--report", options.report, Output::Stream);
    add("--json", options.json, Output::Stream);
    add("--dump-gradients", options.dumpGradients, Output::Whole);
  }
  if (!options.trace.empty())
    add("--trace", ownFile(options.trace, processes), Output::Whole);
  if (options.flightGiven && !options.flight.empty())
    add("--flight-recorder", ownFile(options.flight, processes), Output::Whole);
  if (Status status = tryOutputs(outputs, inputsOf(options)); !status)
    return status;
  if (options.flightGiven || options.flight.empty())
    return Status();
  // Nobody asked for this file, so that it is not worth the run.
  Output flight{"--flight-recorder", ownFile(options.flight, processes),
                Output::Whole};
  if (Status status = tryOutputs({&flight, 1}); !status)
    report.warn(status.message() +
                "; a run that fails will not say what its ranks did last");
  return Status();
}
