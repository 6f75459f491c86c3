//===- options.cpp - Command line of galvatron-run ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options.h"

#include "core/nearest.h"
#include "grt/parameter_groups.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <glob.h>
#include <map>
#include <set>

namespace {

using grt::Status;

Status wrong(const std::string &option, const std::string &expected,
             const std::string &found) {
  return Status(2, "option '" + option + "': expected " + expected +
                       ", found '" + found + "'");
}

bool parseUnsigned(const std::string &text, uint64_t &value) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
    return false;
  errno = 0;
  value = std::strtoull(text.c_str(), nullptr, 10);
  return errno == 0;
}

bool parseReal(const std::string &text, double &value) {
  // strtod takes hexadecimal numbers, too.
  if (text.empty() || text.find_first_of(" \txX") != std::string::npos)
    return false;
  char *end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return *end == 0 && std::isfinite(value);
}

/// The function that an option calls with its value.
using Action =
    std::function<Status(const std::string &option, const std::string &value)>;

Action integer(uint64_t least, std::function<void(uint64_t)> set,
               uint64_t most = UINT64_MAX) {
  return [=](const std::string &option, const std::string &text) {
    uint64_t value = 0;
    if (!parseUnsigned(text, value) || value < least || value > most)
      return wrong(option,
                   most == UINT64_MAX
                       ? "an integer of at least " + std::to_string(least)
                       : "an integer from " + std::to_string(least) + " to " +
                             std::to_string(most),
                   text);
    set(value);
    return Status();
  };
}

/// A real number; `strict` excludes the lower bound itself.
Action real(double least, bool strict, std::function<void(double)> set) {
  return [=](const std::string &option, const std::string &text) {
    double value = 0;
    if (!parseReal(text, value) || value < least || (strict && value == least))
      return wrong(
          option, strict ? "a number above 0" : "a number of at least 0", text);
    set(value);
    return Status();
  };
}

/// A number of bytes with its unit.
Action size(std::function<void(uint64_t)> set) {
  return [=](const std::string &option, const std::string &text) {
    static const std::pair<const char *, int> units[] = {
        {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    size_t digits = text.find_first_not_of("0123456789.");
    double value = 0;
    if (digits != std::string::npos && parseReal(text.substr(0, digits), value))
      for (auto [unit, shift] : units) {
        // Less than a byte would be none, and numbers have 63 bits.
        double bytes = value * double(uint64_t(1) << shift);
        if (text.compare(digits, std::string::npos, unit) == 0 && bytes >= 1 &&
            bytes < 0x1p63) {
          set(uint64_t(bytes));
          return Status();
        }
      }
    return wrong(option, "a size above 0 in KiB, MiB, GiB or TiB", text);
  };
}

Action text(std::function<void(const std::string &)> set) {
  return [=](const std::string &option, const std::string &value) {
    if (value.empty())
      return wrong(option, "a value", value);
    set(value);
    return Status();
  };
}

Status parseBetas(const std::string &option, const std::string &value,
                  Options &options) {
  size_t comma = value.find(',');
  double first = 0, second = 0;
  if (comma == std::string::npos || !parseReal(value.substr(0, comma), first) ||
      !parseReal(value.substr(comma + 1), second) || first < 0 || first >= 1 ||
      second < 0 || second >= 1)
    return wrong(option, "two numbers from 0 to below 1, as in 0.9,0.999",
                 value);
  options.betas = {first, second};
  return Status();
}

/// Adds the file of that name, or the files that a pattern matches, by name.
Status addFiles(const std::string &option, const std::string &name,
                std::vector<std::string> &paths) {
  std::error_code ignored;
  if (name.find_first_of("*?[") == std::string::npos ||
      std::filesystem::exists(name, ignored)) {
    paths.push_back(name);
    return Status();
  }
  glob_t found{};
  int code = glob(name.c_str(), 0, nullptr, &found);
  paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (code != 0)
    return wrong(option, "a pattern that matches files", name);
  return Status();
}

/// Takes `WEIGHT:` from the front of a list of files, if it is there.
std::optional<double> takeWeight(std::string &list) {
  size_t colon = list.find(':');
  double weight = 0;
  if (colon == std::string::npos || !parseReal(list.substr(0, colon), weight))
    return std::nullopt;
  list.erase(0, colon + 1);
  return weight;
}

/// Reads `[NAME=][WEIGHT:]FILE,..`. The name of a file is that file, commas and
/// all; otherwise several names by commas.
Status parseData(const std::string &option, const std::string &value,
                 std::vector<grt::DataFiles> &files) {
  std::error_code ignored;
  grt::DataFiles given;
  std::string list = value;
  size_t equals = value.find('=');
  bool isName =
      equals != std::string::npos && equals > 0 &&
      std::all_of(value.begin(), value.begin() + long(equals), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
      });
  if (isName && !std::filesystem::exists(value, ignored)) {
    given.name = value.substr(0, equals);
    list = value.substr(equals + 1);
  }
  if (!std::filesystem::exists(list, ignored))
    given.weight = takeWeight(list);
  if (std::filesystem::exists(list, ignored)) {
    given.paths = {list};
    files.push_back(given);
    return Status();
  }
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(',', at), list.size());
    if (end == at)
      return wrong(option, "files separated by commas", value);
    if (Status status =
            addFiles(option, list.substr(at, end - at), given.paths);
        !status)
      return status;
    at = end + 1;
  }
  files.push_back(given);
  return Status();
}

std::map<std::string, Action> valueOptions(Options &o) {
  return {
      {"--data",
       [&](const std::string &option, const std::string &v) {
         return parseData(option, v, o.data.files);
       }},
      {"--evaluate",
       [&](const std::string &option, const std::string &v) {
         o.evaluate = true;
         return parseData(option, v, o.data.files);
       }},
      {"--data-format",
       [&](const std::string &option, const std::string &v) {
         static const std::set<std::string> formats = {"text", "jsonl", "u16",
                                                       "u32",  "bin",   "npy"};
         if (!formats.count(v))
           return wrong(option, "text, jsonl, u16, u32, bin or npy", v);
         o.data.format = v;
         return Status();
       }},
      {"--tokenizer", text([&](const std::string &v) { o.tokenizer = v; })},
      {"--documents",
       [&](const std::string &option, const std::string &v) {
         if (v != "file" && v != "line" && v != "jsonl")
           return wrong(option, "file, line or jsonl", v);
         o.documents = v;
         return Status();
       }},
      {"--text-key", text([&](const std::string &v) { o.textKey = v; })},
      {"--end-token", text([&](const std::string &v) { o.endToken = v; })},
      {"--corrupt",
       [&](const std::string &option, const std::string &v) {
         using Kind = grt::Corruption::Kind;
         if (v != "tokens" && v != "spans")
           return wrong(option, "tokens or spans", v);
         o.data.corruption.kind = v == "tokens" ? Kind::Tokens : Kind::Spans;
         return Status();
       }},
      {"--corrupt-rate",
       [&](const std::string &option, const std::string &v) {
         double value = 0;
         if (!parseReal(v, value) || value <= 0 ||
             value > grt::Corruption::largestRate)
           return wrong(option, "a number above 0, at most 0.9", v);
         o.data.corruption.rate = value;
         return Status();
       }},
      {"--span-length",
       [&](const std::string &option, const std::string &v) {
         double value = 0;
         if (!parseReal(v, value) || value < 1)
           return wrong(option, "a number of at least 1", v);
         o.data.corruption.spanLength = value;
         return Status();
       }},
      {"--mask-token", text([&](const std::string &v) { o.maskToken = v; })},
      {"--first-sentinel",
       text([&](const std::string &v) { o.firstSentinel = v; })},
      {"--steps", integer(0, [&](uint64_t v) { o.steps = v; })},
      {"--max-seconds", real(0, true, [&](double v) { o.maxSeconds = v; })},
      {"--print-every", integer(1, [&](uint64_t v) { o.printEvery = v; })},
      {"--host-memory", size([&](uint64_t v) { o.hostMemory = v; })},
      // A program has at most so many.
      {"--ranks", integer(
                      1, [&](uint64_t v) { o.ranks = int64_t(v); }, 1 << 20)},
      {"--threads-per-rank",
       integer(
           1, [&](uint64_t v) { o.threadsPerRank = int(v); }, 1 << 16)},
      {"--timeout", real(0, false, [&](double v) { o.timeout = v; })},
      {"--on-nan",
       [&](const std::string &option, const std::string &v) {
         if (v != "stop" && v != "skip" && v != "late")
           return wrong(option, "stop, skip or late", v);
         o.onNan = v == "stop"   ? grt::OnNan::Stop
                   : v == "skip" ? grt::OnNan::Skip
                                 : grt::OnNan::Late;
         return Status();
       }},
      {"--save", text([&](const std::string &v) { o.save = v; })},
      {"--checkpoint", text([&](const std::string &v) { o.checkpoint = v; })},
      {"--checkpoint-every",
       integer(1, [&](uint64_t v) { o.checkpointEvery = v; })},
      {"--keep-checkpoints",
       integer(1, [&](uint64_t v) { o.checkpoints.keep = v; })},
      {"--check-replicas",
       integer(1, [&](uint64_t v) { o.checkReplicas = v; })},
      {"--elastic", text([&](const std::string &v) { o.elastic = v; })},
      {"--restarts", integer(1, [&](uint64_t v) { o.restarts = v; })},
      {"--adapters", text([&](const std::string &v) { o.adapters = v; })},
      {"--init", text([&](const std::string &v) { o.init = v; })},
      {"--dump-gradients",
       text([&](const std::string &v) { o.dumpGradients = v; })},
      {"--launch-secret",
       text([&](const std::string &v) { o.launchSecret = v; })},
      {"--listen", text([&](const std::string &v) { o.listen = v; })},
      {"--flight-recorder", text([&](const std::string &v) {
         o.flight = v == "none" ? "" : v;
         o.flightGiven = true;
       })},
      {"--describe",
       [&](const std::string &option, const std::string &v) {
         if (v != "whole" && v != "manifest")
           return wrong(option, "whole or manifest", v);
         o.describe = true;
         o.described = v;
         return Status();
       }},
      {"--report", text([&](const std::string &v) { o.report = v; })},
      {"--trace", text([&](const std::string &v) { o.trace = v; })},
      {"--trace-steps", integer(0, [&](uint64_t v) { o.traceSteps = v; })},
      {"--log", text([&](const std::string &v) { o.log = v; })},
      {"--summary", text([&](const std::string &v) { o.summary = v; })},
      {"--json", text([&](const std::string &v) { o.json = v; })},
      {"--lr", real(0, false, [&](double v) { o.lr = v; })},
      {"--min-lr", real(0, false, [&](double v) { o.minLr = v; })},
      {"--warmup-steps", integer(0, [&](uint64_t v) { o.warmupSteps = v; })},
      {"--lr-schedule",
       [&](const std::string &option, const std::string &v) {
         o.decay = grt::parseDecay(v);
         return o.decay ? Status()
                        : wrong(option, "constant, linear, cosine or wsd", v);
       }},
      {"--decay-steps", integer(1, [&](uint64_t v) { o.decaySteps = v; })},
      {"--accumulate", integer(1, [&](uint64_t v) { o.accumulate = v; })},
      {"--parameter-groups",
       [&](const std::string &option, const std::string &v) {
         if (v == "none") {
           o.groups.emplace();
           return Status();
         }
         Status status = grt::parseParameterGroups(v, o.groups.emplace());
         return status
                    ? status
                    : Status(2, "option '" + option + "': " + status.message());
       }},
      {"--skip-norm", real(0, false, [&](double v) { o.skipNorm = v; })},
      {"--skip-limit", integer(1, [&](uint64_t v) { o.skipLimit = v; })},
      {"--betas",
       [&](const std::string &option, const std::string &v) {
         return parseBetas(option, v, o);
       }},
      {"--eps", real(0, false, [&](double v) { o.eps = v; })},
      {"--weight-decay", real(0, false, [&](double v) { o.weightDecay = v; })},
      {"--momentum", real(0, false, [&](double v) { o.momentum = v; })},
      {"--clip-norm", real(0, true, [&](double v) { o.clipNorm = v; })},
      {"--seed", integer(0, [&](uint64_t v) { o.seed = v; })},
      {"--validation-fraction",
       [&](const std::string &option, const std::string &v) {
         double value = 0;
         if (!parseReal(v, value) || value < 0 || value > 1)
           return wrong(option, "a number from 0 to 1", v);
         o.data.validationFraction = value;
         return Status();
       }},
      {"--validate-every",
       integer(1, [&](uint64_t v) { o.validateEvery = v; })},
      {"--validation-data",
       [&](const std::string &option, const std::string &v) {
         return parseData(option, v, o.validationFiles);
       }},
      {"--save-best", text([&](const std::string &v) { o.saveBest = v; })},
      {"--patience", integer(1, [&](uint64_t v) { o.patience = v; })},
      {"--validation-batches",
       integer(1, [&](uint64_t v) { o.validationBatches = v; })},
      {"--generate", text([&](const std::string &v) { o.generate = v; })},
      {"--prompts", text([&](const std::string &v) { o.prompts = v; })},
      {"--generation-config",
       text([&](const std::string &v) { o.generationConfig = v; })},
      {"--tokens", integer(1, [&](uint64_t v) { o.tokens = v; })},
      {"--temperature",
       real(0, false, [&](double v) { o.sampling.temperature = v; })},
      {"--top-k", integer(1, [&](uint64_t v) { o.sampling.topK = v; })},
      {"--top-p",
       [&](const std::string &option, const std::string &v) {
         double value = 0;
         if (!parseReal(v, value) || value <= 0 || value > 1)
           return wrong(option, "a number above 0, at most 1", v);
         o.sampling.topP = value;
         return Status();
       }},
      {"--sampling-seed", integer(0, [&](uint64_t v) { o.sampling.seed = v; })},
  };
}

std::map<std::string, std::function<void()>> flagOptions(Options &o) {
  return {{"--help", [&] { o.help = true; }},
          {"-h", [&] { o.help = true; }},
          {"--version", [&] { o.version = true; }},
          {"--describe", [&] { o.describe = true; }},
          {"--measure", [&] { o.measure = true; }},
          {"--mask-documents", [&] { o.data.maskDocuments = true; }},
          {"--frame-samples", [&] { o.frameSamples = true; }},
          {"--decay-all", [&] { o.decayAll = true; }},
          {"--check-streams", [&] { o.checkStreams = true; }},
          {"--no-cuda-graph", [&] { o.graphs = false; }},
          {"--share-gpus", [&] { o.shareGpus = true; }},
          {"--any-placement", [&] { o.anyPlacement = true; }},
          {"--no-link-check", [&] { o.linkCheck = false; }},
          {"--check", [&] { o.check = true; }},
          {"--no-write-behind", [&] { o.writeBehind = false; }},
          {"--timestamps", [&] { o.timestamps = true; }},
          {"--merge", [&] { o.merge = true; }},
          {"--resume", [&] { o.resume = true; }},
          {"--accept-new-order", [&] { o.acceptNewOrder = true; }},
          {"--evaluate", [&] { o.evaluate = true; }},
          {"--core-dumps", [&] { o.coreDumps = true; }},
          {"--json", [&] { o.json = "-"; }}};
}

/// The option that was probably meant: close in letters, or a common name of
/// what this tool calls otherwise; empty if none is.
std::string nearestOption(const std::string &name,
                          const std::vector<std::string> &known) {
  static const std::map<std::string, std::string> otherNames = {
      {"--learning-rate", "--lr"},
      {"--output", "--save"},
      {"--out", "--save"},
      {"--threads", "--threads-per-rank"},
      {"--max-steps", "--steps"},
      {"--iterations", "--steps"},
      {"--grad-clip", "--clip-norm"},
      {"--wd", "--weight-decay"},
      {"--prompt", "--generate"}};
  if (auto it = otherNames.find(name); it != otherNames.end())
    return it->second;
  return grt::nearestName(name, known);
}

/// Whether galvatron-compile has the option, whose value is then part of every
/// program.
bool isOfTheProgram(const std::string &name) {
  for (const char *option :
       {"--batch", "--clip", "--cluster", "--dropout", "--dtype", "--memory",
        "--micro-batches", "--optimizer", "--pipeline-degree", "--schedule",
        "--seq-len", "--strategy"})
    if (name == option)
      return true;
  return false;
}

} // namespace

std::vector<std::string> parsedOptions() {
  Options options;
  std::vector<std::string> names;
  for (const auto &[name, set] : valueOptions(options))
    names.push_back(name);
  for (const auto &[name, set] : flagOptions(options))
    names.push_back(name);
  return names;
}

Status parseOptions(int count, char **arguments, Options &options) {
  std::map<std::string, Action> actions = valueOptions(options);
  const std::map<std::string, std::function<void()>> flags =
      flagOptions(options);
  for (int i = 0; i < count; ++i) {
    std::string argument = arguments[i];
    if (argument.size() < 2 || argument[0] != '-') {
      if (!options.program.empty())
        return Status(2, "expected one program, found '" + options.program +
                             "' and '" + argument + "'");
      options.program = argument;
      continue;
    }
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    auto action = actions.find(name);
    auto flag = flags.find(name);
    if (equals == std::string::npos && flag != flags.end()) {
      flag->second();
      options.given[name] = std::nullopt;
    } else if (action != actions.end()) {
      // `--lr=1e-3` or `--lr 1e-3`.
      std::string value;
      if (equals != std::string::npos)
        value = argument.substr(equals + 1);
      else if (i + 1 < count && std::strncmp(arguments[i + 1], "--", 2) != 0)
        value = arguments[++i];
      else
        return Status(2,
                      "option '" + name + "' needs a value: " + name + "=...");
      if (Status status = action->second(name, value); !status)
        return status;
      options.given[name] = value;
    } else if (flag != flags.end()) {
      return Status(2, "option '" + name + "' takes no value");
    } else if (isOfTheProgram(name)) {
      return Status(2, "unknown option '" + name +
                           "'; it is galvatron-compile's, and its value part "
                           "of the program");
    } else {
      return Status(
          2, grt::unknownOption(name, nearestOption(name, parsedOptions())));
    }
  }
  if (options.help || options.version)
    return Status();
  if (options.program.empty())
    return Status(2, options.measure
                         ? "--measure: expected a folder with programs"
                         : "expected a program (.gvx); see --help");
  if (options.describe) {
    for (const auto &[name, value] : options.given)
      if (name != "--describe" && name != "--json")
        return Status(2, "--describe runs nothing: leave " + name + " out");
    return Status();
  }
  // Further options are those of the run that would follow.
  if (options.check)
    return options.measure
               ? Status(2, "--check runs nothing: leave --measure out")
               : Status();
  if (options.measure) {
    static const std::set<std::string> taken = {
        "--measure",          "--steps",         "--ranks",
        "--threads-per-rank", "--host-memory",   "--timeout",
        "--listen",           "--launch-secret", "--flight-recorder",
        "--core-dumps",       "--seed",          "--no-cuda-graph",
        "--share-gpus",       "--any-placement", "--json"};
    for (const auto &[name, value] : options.given)
      if (!taken.count(name))
        return Status(2, "--measure trains nothing: leave " + name + " out");
    if (options.steps && *options.steps == 0)
      return wrong("--steps", "an integer of at least 1", "0");
    return Status();
  }
  for (const char *name : {"--top-k", "--top-p", "--sampling-seed"})
    if (options.given.count(name) && !options.given.count("--temperature"))
      return Status(2, std::string(name) + " is of --temperature=X; without "
                                           "it the likeliest token is taken");
  if (options.generate && !options.prompts.empty())
    return Status(2, "--generate and --prompts: expected one of them");
  for (const char *name : {"--temperature", "--generation-config"})
    if (options.given.count(name) && !options.generates())
      return Status(2, std::string(name) + " is of --generate=TEXT and "
                                           "--prompts=FILE");
  using Kind = grt::Corruption::Kind;
  const Kind corrupted = options.data.corruption.kind;
  if (options.given.count("--corrupt-rate") && corrupted == Kind::None)
    return Status(2, "--corrupt-rate is of --corrupt=tokens or spans");
  for (const char *name : {"--mask-token", "--frame-samples"})
    if (options.given.count(name) && corrupted != Kind::Tokens)
      return Status(2, std::string(name) + " is of --corrupt=tokens");
  for (const char *name : {"--span-length", "--first-sentinel"})
    if (options.given.count(name) && corrupted != Kind::Spans)
      return Status(2, std::string(name) + " is of --corrupt=spans");
  if (options.data.maskDocuments && corrupted != Kind::None)
    return Status(2, "--mask-documents is of next tokens, --corrupt makes "
                     "others: expected one of them");
  if (options.tokenizer.empty())
    for (const char *name : {"--documents", "--text-key", "--end-token"})
      if (options.given.count(name))
        return Status(2, std::string(name) + " is of text that goes through " +
                             "--tokenizer=FILE");
  if (options.evaluate) {
    if (options.steps)
      return Status(2, "--evaluate trains nothing: leave --steps out");
    if (options.maxSeconds > 0)
      return Status(2, "--evaluate trains nothing: leave --max-seconds out");
    if (options.validateEvery)
      return Status(2, "--evaluate and --validate-every: expected one of them");
    if (options.given["--evaluate"] && options.given.count("--data"))
      return Status(2, "--evaluate=FILE names the data: leave --data out");
    if (options.data.files.empty())
      return Status(2, "expected --data=FILE, or --evaluate=FILE");
    options.steps = 0;
    // All samples are read, unless those of a run's validation are asked for.
    if (options.data.validationFraction == 0)
      options.data.validationFraction = 1;
  }
  // A run without data has nothing to train on.
  if (!options.steps && options.generates() && options.data.files.empty())
    options.steps = 0;
  if (!options.steps)
    return Status(2, "expected --steps=N or --evaluate, or --generate=TEXT or "
                     "--prompts=FILE of a program that generates");
  if (*options.steps > 0 && options.data.files.empty())
    return Status(2, "expected --data=FILE");
  if (options.validateEvery && options.data.files.empty())
    return Status(2, "--validate-every needs --data=FILE");
  // A run that goes on may have one.
  if (options.validateEvery && options.data.validationFraction == 0 &&
      options.validationFiles.empty() && !options.resume)
    return Status(2, "--validate-every needs --validation-fraction above 0, or "
                     "--validation-data=FILE");
  if (!options.validationFiles.empty() && options.data.validationFraction > 0)
    return Status(2, "--validation-data and --validation-fraction: expected "
                     "one of them");
  for (const char *name : {"--validation-data", "--save-best", "--patience"})
    if (options.given.count(name) && !options.validateEvery)
      return Status(2, std::string(name) + " needs --validate-every=N");
  if (!options.dumpGradients.empty() && *options.steps == 0)
    return Status(2, "--dump-gradients needs at least one step");
  if (options.warmupSteps.value_or(0) > *options.steps)
    return Status(2, "expected at most " + std::to_string(*options.steps) +
                         " warm-up steps, found " +
                         std::to_string(*options.warmupSteps));
  if (options.traceSteps == 0 && !options.trace.empty())
    return Status(2, "--trace needs at least one step, found --trace-steps=0");
  if (!options.elastic.empty() && !options.restarts)
    return Status(2, "--elastic goes on with fewer ranks after a failure: it "
                     "needs --restarts=N");
  if (options.checkpoint.empty() &&
      (options.resume || options.checkpointEvery || options.restarts))
    return Status(2, std::string(options.resume     ? "--resume"
                                 : options.restarts ? "--restarts"
                                                    : "--checkpoint-every") +
                         " needs --checkpoint=DIR");
  if (!options.checkpoint.empty() && !*options.steps && !options.resume)
    return Status(2, "--checkpoint: a run without steps writes none; expected "
                     "--resume, which reads the newest of the folder, or "
                     "--init=" +
                         options.checkpoint + " for the weights of a folder");
  if (options.merge && options.save.empty())
    return Status(2, "--merge needs --save=DIR");
  if (options.acceptNewOrder && !options.resume)
    return Status(2, "--accept-new-order needs --resume");
  return Status();
}
