//===- agreement.cpp - What the processes of a run must share -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "agreement.h"

#include <cstdio>
#include <set>

using namespace grt;

namespace {

/// Options of which processes may have different ones: how a process takes
/// part, and files that one process alone writes. Data is compared by what it
/// holds.
const std::set<std::string> ownOptions = {
    "--core-dumps",     "--data",   "--data-format",      "--flight-recorder",
    "--host-memory",    "--listen", "--launch-secret",    "--log",
    "--print-every",    "--ranks",  "--threads-per-rank", "--timestamps",
    "--validation-data"};

/// Options that all must have, with paths that may differ: what is read there
/// is compared by what it holds, what is written there one process writes with
/// the help of all.
const std::set<std::string> pathOptions = {
    "--adapters", "--checkpoint", "--dump-gradients", "--elastic",
    "--evaluate", "--init",       "--json",           "--report",
    "--save",     "--save-best",  "--summary",        "--tokenizer",
    "--trace"};

} // namespace

std::vector<Term> termsOfOptions(const Options &options,
                                 const Program *program) {
  std::vector<Term> terms;
  if (program)
    terms.push_back({"program", "program with SHA-256 " +
                                    program->hash().substr(0, 16) + ".."});
  for (const auto &[name, value] : options.given)
    if (pathOptions.count(name))
      terms.push_back({name, name});
    else if (!ownOptions.count(name))
      terms.push_back({name, value ? name + "=" + *value : name});
  return terms;
}

Status termsOfBeginning(const Options &options, const Beginning &beginning,
                        const Dataset *data, std::vector<Term> &terms) {
  auto addWeights = [&](const std::string &name, const std::string &path) {
    std::string identity;
    Status status = identifyWeights(path, identity);
    terms.push_back({name, name + " of " + identity});
    return status;
  };
  if (beginning.checkpoint) {
    if (Status status = addWeights("checkpoint", *beginning.checkpoint);
        !status)
      return status;
  } else {
    if (!options.init.empty())
      if (Status status = addWeights("--init", options.init); !status)
        return status;
    if (!options.adapters.empty())
      if (Status status = addWeights("--adapters", options.adapters); !status)
        return status;
  }
  auto addFiles = [&](const char *what,
                      const std::vector<DataIdentity> &files) {
    for (size_t i = 0; i < files.size(); ++i) {
      std::string name = what + std::to_string(i);
      char hash[17];
      std::snprintf(hash, sizeof(hash), "%016llx",
                    static_cast<unsigned long long>(files[i].hash));
      terms.push_back({name, name + " of " + std::to_string(files[i].tokens) +
                                 " " + files[i].format + " values, hash " +
                                 hash});
    }
  };
  if (data)
    addFiles("data file ", data->identity());
  addFiles("validation file ", beginning.state.validationData);
  return Status();
}
