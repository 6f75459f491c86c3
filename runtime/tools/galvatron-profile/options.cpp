//===- options.cpp - Command line of galvatron-profile --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options.h"

#include "core/nearest.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace grt::profile {
namespace {

Status wrong(const std::string &option, const std::string &expected,
             const std::string &found) {
  return Status(2,
                option + ": expected " + expected + ", found '" + found + "'");
}

/// A number at the start of `text`; the rest goes to `suffix`.
bool number(const std::string &text, double &value, std::string &suffix) {
  if (text.empty() || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.'))
    return false;
  char *end = nullptr;
  value = std::strtod(text.c_str(), &end);
  suffix = end;
  return std::isfinite(value);
}

bool parseBytes(const std::string &text, uint64_t &bytes) {
  struct Unit {
    const char *name;
    double factor;
  };
  static const Unit units[] = {
      {"B", 1},           {"KB", 1e3},           {"MB", 1e6},
      {"GB", 1e9},        {"TB", 1e12},          {"KiB", 1024.0},
      {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
  double value = 0;
  std::string suffix;
  if (!number(text, value, suffix))
    return false;
  for (const Unit &unit : units)
    if (suffix == unit.name && value * unit.factor >= 1 &&
        value * unit.factor < 9e18) {
      bytes = uint64_t(value * unit.factor);
      return true;
    }
  return false;
}

/// Options of galvatron-compile, which reads their values.
constexpr const char *ofModels[] = {"--seq-len", "--decoder-seq-len", "--dtype",
                                    "--optimizer", "--dropout"};

constexpr int64_t leastLargestProduct = 16;
/// The memory that galvatron-solve has without `capacity-bytes`, and the sizes
/// beyond which layers are rarely of use.
constexpr uint64_t defaultLayerMemory = uint64_t(10) << 30;
constexpr int64_t defaultLargestBatch = 32;

/// Refuses what has no meaning with --layers, given the names that were found.
Status completeForLayers(const std::set<std::string> &found, Options &options) {
  if (found.count("--ranks"))
    return Status(2, "--layers measures one rank: expected no --ranks");
  if (!options.backend.empty())
    return Status(2, "--layers measures a CPU rank: expected no --backend=" +
                         options.backend);
  if (!options.json.empty())
    return Status(2, "--layers writes JSON: expected -o, found --json");
  if (!found.count("--memory"))
    options.memory = defaultLayerMemory;
  if (!found.count("--largest"))
    options.largest = defaultLargestBatch;
  return Status();
}

} // namespace

Status parseOptions(int count, char **arguments, Options &options) {
  using Action = std::function<Status(const std::string &value)>;
  auto numberOf = [](const char *name, double least, double most, bool whole,
                     const char *expected, std::function<void(double)> set) {
    return [=](const std::string &value) {
      double parsed = 0;
      std::string suffix;
      if (!number(value, parsed, suffix) || !suffix.empty() || parsed < least ||
          parsed > most || (whole && parsed != std::floor(parsed)))
        return wrong(name, expected, value);
      set(parsed);
      return Status();
    };
  };
  std::map<std::string, Action> actions = {
      {"--ranks", numberOf("--ranks", 1, 1024, /*whole=*/true,
                           "a whole number from 1 to 1024",
                           [&](double v) { options.ranks = int(v); })},
      {"--seconds", numberOf("--seconds", 0.1, 3600, /*whole=*/false,
                             "a number from 0.1 to 3600",
                             [&](double v) { options.seconds = v; })},
      {"--largest", numberOf("--largest", 1, 65536, /*whole=*/true,
                             "a whole number from 1 to 65536",
                             [&](double v) { options.largest = int64_t(v); })},
      {"--layers",
       [&](const std::string &value) {
         options.layers = value;
         return value.empty()
                    ? wrong("--layers", "a model: a config.json, or IR", value)
                    : Status();
       }},
      {"--threads-per-rank",
       numberOf("--threads-per-rank", 1, 1024, /*whole=*/true,
                "a whole number from 1 to 1024",
                [&](double v) { options.threadsPerRank = int(v); })},
      {"--host-memory",
       [&](const std::string &value) {
         return parseBytes(value, options.hostMemory)
                    ? Status()
                    : wrong("--host-memory",
                            "a size with its unit such as 4GiB", value);
       }},
      {"--backend",
       [&](const std::string &value) {
         options.backend = value == "cpu" ? "" : value;
         return value.empty() ? wrong("--backend", "a backend such as cuda", "")
                              : Status();
       }},
      {"--memory",
       [&](const std::string &value) {
         return parseBytes(value, options.memory)
                    ? Status()
                    : wrong("--memory", "a size with its unit such as 4GiB",
                            value);
       }},
      {"--json",
       [&](const std::string &value) {
         options.json = value;
         return value.empty() ? wrong("--json", "a file", value) : Status();
       }},
      {"-o", [&](const std::string &value) {
         options.output = value;
         return value.empty() ? wrong("-o", "a file", value) : Status();
       }}};
  for (const char *name : ofModels)
    actions[name] = [&options, name](const std::string &value) {
      options.compileOptions.push_back(std::string(name) + "=" + value);
      return Status();
    };
  std::set<std::string> found;
  const std::map<std::string, std::function<void()>> flags = {
      {"--help", [&] { options.help = true; }},
      {"-h", [&] { options.help = true; }},
      {"--version", [&] { options.version = true; }},
      {"--quick", [&] { options.quick = true; }},
      {"--json", [&] { options.json = "-"; }}};
  for (int i = 0; i < count; ++i) {
    std::string argument = arguments[i];
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    bool given = equals != std::string::npos;
    found.insert(name);
    auto action = actions.find(name);
    auto flag = flags.find(name);
    if (!given && flag != flags.end()) {
      flag->second();
    } else if (action != actions.end()) {
      // `--ranks=2` or `--ranks 2`.
      if (!given && i + 1 == count)
        return Status(2, "option '" + name + "' needs a value");
      Status status =
          action->second(given ? argument.substr(equals + 1) : arguments[++i]);
      if (!status)
        return status;
    } else if (flag != flags.end()) {
      return Status(2, "option '" + name + "' takes no value");
    } else if (argument.size() > 1 && argument[0] == '-') {
      std::vector<std::string> known;
      for (const auto &[option, set] : actions)
        known.push_back(option);
      for (const auto &[option, set] : flags)
        known.push_back(option);
      return Status(2, unknownOption(name, nearestName(name, known)));
    } else {
      return Status(2, "expected options only, found '" + argument + "'");
    }
  }
  if (options.help || options.version)
    return Status();
  if (!options.layers.empty())
    return completeForLayers(found, options);
  for (const char *name : ofModels)
    if (found.count(name))
      return Status(2, std::string(name) + ": expected with --layers only");
  for (const char *name : {"--threads-per-rank", "--host-memory"})
    if (found.count(name))
      return Status(2, std::string(name) + ": expected with --layers only");
  if (options.largest < leastLargestProduct)
    return wrong("--largest", "a whole number from 16 to 65536",
                 std::to_string(options.largest));
  if (options.backend.empty())
    return Status();
  if (options.ranks > 1)
    return Status(2, "--backend=" + options.backend +
                         " measures a device for each process: expected no "
                         "--ranks");
  if (!options.memory)
    return Status(2, "--backend=" + options.backend +
                         " needs the device's --memory");
  return Status();
}

const char *helpText() {
  return "usage: galvatron-profile [--quick] [options]\n"
         "       galvatron-profile --layers=MODEL [--quick] [options]\n"
         "\n"
         "Measures this machine with all ranks running at the same time and "
         "writes a\n"
         "cluster file for galvatron-plan. With --layers it measures the "
         "layers of a\n"
         "model instead, by micro-batch size, for the problem 'harmony' of\n"
         "galvatron-solve (JSON).\n"
         "\n"
         "  --quick          about 2 seconds instead of 60, at fewer sizes; "
         "with\n"
         "                   --layers: one step of every size\n"
         "  --ranks=N        ranks on this machine (default: one per core); "
         "under mpirun\n"
         "                   or srun: of each process (default 1)\n"
         "  --seconds=X      length of the measurement; with --layers: about "
         "that of its\n"
         "                   steps (default 60), of which there are at least 3 "
         "of each\n"
         "                   size\n"
         "  --backend=cuda   a GPU instead of CPU ranks, in bf16; needs "
         "--memory; under\n"
         "                   mpirun, srun or torchrun one for each process, "
         "and "
         "their\n"
         "                   links\n"
         "  --largest=N      with --backend: products up to N x N x N (default "
         "8192);\n"
         "                   with --layers: micro-batches up to N samples "
         "(default 32)\n"
         "  --memory=SIZE    memory of a rank, e.g. 4GiB (default: an equal "
         "share of\n"
         "                   three quarters of the machine's); with --layers: "
         "what a\n"
         "                   layer may use of a device (default 10GiB)\n"
         "  -o FILE          where the cluster file or profile goes (default: "
         "-, standard\n"
         "                   output)\n"
         "  --json[=FILE]    the cluster file as JSON; on standard output it "
         "replaces the\n"
         "                   cluster file unless -o is given\n"
         "\n"
         "layers of a model, measured on one CPU rank\n"
         "  --layers=MODEL   a config.json, or IR, as galvatron-compile takes "
         "it\n"
         "  --threads-per-rank=N\n"
         "                   of the rank (default: one per core)\n"
         "  --host-memory=SIZE\n"
         "                   what the whole model may take of this machine "
         "(default: what\n"
         "                   is available)\n"
         "  --seq-len=N      this and what follows as galvatron-compile has "
         "it\n"
         "  --decoder-seq-len=N\n"
         "                   tokens of a sample that a decoder reads\n"
         "  --dtype=f32|bf16|f64\n"
         "                   element type\n"
         "  --optimizer=adamw|adam|sgd\n"
         "                   the optimizer\n"
         "  --dropout=model|off\n"
         "                   dropout as the model says, or off\n"
         "\n"
         "  --version, --help\n"
         "\n"
         "Ctrl-C: what is left is measured once, in seconds, and the file is "
         "written;\n"
         "with --layers nothing is written.\n"
         "\n"
         "exit codes: 0 done, 1 failed otherwise, 2 wrong usage or invalid "
         "input,\n"
         "5 storage, 6 memory; ended early: 130 by SIGINT, 143 by SIGTERM\n";
}

} // namespace grt::profile
