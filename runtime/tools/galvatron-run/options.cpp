//===- options.cpp - Command line of galvatron-run ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <glob.h>
#include <map>

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
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0])))
    return false;
  char *end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return *end == 0 && std::isfinite(value);
}

/// What an option does with its value.
using Action =
    std::function<Status(const std::string &option, const std::string &value)>;

Action integer(uint64_t least, std::function<void(uint64_t)> set) {
  return [=](const std::string &option, const std::string &text) {
    uint64_t value = 0;
    if (!parseUnsigned(text, value) || value < least)
      return wrong(option, "an integer of at least " + std::to_string(least),
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
      for (auto [unit, shift] : units)
        if (text.compare(digits, std::string::npos, unit) == 0 && value > 0) {
          set(uint64_t(value * double(uint64_t(1) << shift)));
          return Status();
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

/// Reads `FILE,..` or `NAME=FILE,..`. The name of a file is that file, commas
/// and all; otherwise several names by commas.
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
         if (v != "text" && v != "u16" && v != "u32" && v != "npy")
           return wrong(option, "text, u16, u32 or npy", v);
         o.data.format = v;
         return Status();
       }},
      {"--steps", integer(0, [&](uint64_t v) { o.steps = v; })},
      {"--max-seconds", real(0, true, [&](double v) { o.maxSeconds = v; })},
      {"--print-every", integer(1, [&](uint64_t v) { o.printEvery = v; })},
      {"--host-memory", size([&](uint64_t v) { o.hostMemory = v; })},
      {"--ranks", integer(1, [&](uint64_t v) { o.ranks = int64_t(v); })},
      {"--threads-per-rank",
       integer(1, [&](uint64_t v) { o.threadsPerRank = int(v); })},
      {"--timeout", real(0, false, [&](double v) { o.timeout = v; })},
      {"--on-nan",
       [&](const std::string &option, const std::string &v) {
         if (v != "stop" && v != "skip")
           return wrong(option, "stop or skip", v);
         o.onNan = v == "stop" ? grt::OnNan::Stop : grt::OnNan::Skip;
         return Status();
       }},
      {"--save", text([&](const std::string &v) { o.save = v; })},
      {"--checkpoint", text([&](const std::string &v) { o.checkpoint = v; })},
      {"--checkpoint-every",
       integer(1, [&](uint64_t v) { o.checkpointEvery = v; })},
      {"--keep-checkpoints",
       integer(1, [&](uint64_t v) { o.checkpoints.keep = v; })},
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
      {"--trace", text([&](const std::string &v) { o.trace = v; })},
      {"--trace-steps", integer(0, [&](uint64_t v) { o.traceSteps = v; })},
      {"--log", text([&](const std::string &v) { o.log = v; })},
      {"--summary", text([&](const std::string &v) { o.summary = v; })},
      {"--json", text([&](const std::string &v) { o.json = v; })},
      {"--lr", real(0, false, [&](double v) { o.lr = v; })},
      {"--min-lr", real(0, false, [&](double v) { o.minLr = v; })},
      {"--warmup-steps", integer(0, [&](uint64_t v) { o.warmupSteps = v; })},
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
      {"--validation-batches",
       integer(1, [&](uint64_t v) { o.validationBatches = v; })},
      {"--generate", text([&](const std::string &v) { o.generate = v; })},
      {"--tokens", integer(1, [&](uint64_t v) { o.tokens = v; })},
  };
}

/// Edits (insert, remove, replace a letter) from one text to the other.
size_t editDistance(const std::string &from, const std::string &to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min(
          {above + 1, row[j - 1] + 1, diagonal + (from[i - 1] != to[j - 1])});
      diagonal = above;
    }
  }
  return row[to.size()];
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
  std::string nearest;
  // A third of the letters may be wrong.
  size_t least = name.size() / 3 + 1;
  for (const std::string &option : known)
    if (size_t distance = editDistance(name, option); distance < least) {
      least = distance;
      nearest = option;
    }
  return nearest;
}

} // namespace

Status parseOptions(int count, char **arguments, Options &options) {
  std::map<std::string, Action> actions = valueOptions(options);
  const std::map<std::string, std::function<void()>> flags = {
      {"--help", [&] { options.help = true; }},
      {"-h", [&] { options.help = true; }},
      {"--version", [&] { options.version = true; }},
      {"--decay-all", [&] { options.decayAll = true; }},
      {"--check-streams", [&] { options.checkStreams = true; }},
      {"--no-cuda-graph", [&] { options.graphs = false; }},
      {"--resume", [&] { options.resume = true; }},
      {"--evaluate", [&] { options.evaluate = true; }},
      {"--core-dumps", [&] { options.coreDumps = true; }},
      {"--json", [&] { options.json = "-"; }},
  };
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
    } else {
      std::vector<std::string> known;
      for (const auto &[option, set] : actions)
        known.push_back(option);
      for (const auto &[option, set] : flags)
        known.push_back(option);
      std::string nearest = nearestOption(name, known);
      return Status(2, "unknown option '" + name + "'" +
                           (nearest.empty()
                                ? "; see --help"
                                : "; did you mean '" + nearest + "'?"));
    }
  }
  if (options.help || options.version)
    return Status();
  if (options.program.empty())
    return Status(2, "expected a program (.gvx); see --help");
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
    // All samples, unless those of a run's validation are asked for.
    if (options.data.validationFraction == 0)
      options.data.validationFraction = 1;
  }
  if (!options.steps)
    return Status(2, "expected --steps=N, or --evaluate");
  if (*options.steps > 0 && options.data.files.empty())
    return Status(2, "expected --data=FILE");
  if (options.validateEvery && options.data.files.empty())
    return Status(2, "--validate-every needs --data=FILE");
  if (options.validateEvery && options.data.validationFraction == 0)
    return Status(2, "--validate-every needs --validation-fraction above 0");
  if (!options.dumpGradients.empty() && *options.steps == 0)
    return Status(2, "--dump-gradients needs at least one step");
  if (options.warmupSteps.value_or(0) > *options.steps)
    return Status(2, "expected at most " + std::to_string(*options.steps) +
                         " warm-up steps, found " +
                         std::to_string(*options.warmupSteps));
  if (options.traceSteps == 0 && !options.trace.empty())
    return Status(2, "--trace needs at least one step, found --trace-steps=0");
  if (options.checkpoint.empty() && (options.resume || options.checkpointEvery))
    return Status(
        2, std::string(options.resume ? "--resume" : "--checkpoint-every") +
               " needs --checkpoint=DIR");
  return Status();
}

const char *helpText() {
  return "usage: galvatron-run PROGRAM.gvx --data=FILE --steps=N [options]\n"
         "\n"
         "Runs a compiled training program. Ranks are threads of this "
         "process; under\n"
         "mpirun, srun or torchrun each process has one rank, or --ranks.\n"
         "\n"
         "data\n"
         "  --data=[NAME=]FILE[,FILE..]\n"
         "                            files of one of the program's data "
         "(without NAME: of\n"
         "                            its tokens, else of its first); may be "
         "repeated. The\n"
         "                            name of a file is that file, even with "
         "commas; else\n"
         "                            patterns (*?[]) are the files that "
         "match, "
         "by name\n"
         "  --data-format=FORMAT      text (bytes), u16, u32 or npy; default: "
         "by suffix\n"
         "  --validation-fraction=F   part of the samples, at the end, kept "
         "for "
         "validation\n"
         "  --validate-every=N        validation loss every N steps and at the "
         "end\n"
         "  --validation-batches=N    at most N batches each time (default: "
         "all)\n"
         "  --evaluate[=[NAME=]FILE]  loss and perplexity over these files, or "
         "over --data\n"
         "                            (or its validation part); trains "
         "nothing\n"
         "run\n"
         "  --steps=N                 training steps; 0 trains nothing\n"
         "  --max-seconds=N           ends the run by itself, in time, after "
         "saving\n"
         "  --ranks=N                 must match the program; under mpirun or "
         "srun: of each\n"
         "                            process (default 1)\n"
         "  --launch-secret=FILE      what only the processes of this run "
         "know, "
         "mode 0600\n"
         "                            (default: GALVATRON_LAUNCH_SECRET); "
         "needed "
         "on several\n"
         "                            machines without MPI\n"
         "  --listen=WHERE            addresses or interfaces where this "
         "process "
         "is reached,\n"
         "                            or any (default: as MASTER_ADDR says)\n"
         "  --threads-per-rank=N      default: cores / ranks, at least 1\n"
         "  --seed=N                  of weights, dropout and sample order "
         "(default 0)\n"
         "  --host-memory=SIZE        what all ranks of this machine may take "
         "(12GiB); default:\n"
         "                            what is available\n"
         "  --timeout=SECONDS         a rank without progress for so long ends "
         "the run\n"
         "                            (default 600; 0: never)\n"
         "  --check-streams           run on a model of a device that checks "
         "how the program\n"
         "                            uses streams and memory; slow, needs no "
         "GPU\n"
         "  --no-cuda-graph           give a GPU one call after the other "
         "instead of whole\n"
         "                            steps\n"
         "  --flight-recorder=FILE    where the last operations of each rank "
         "go "
         "when a run\n"
         "                            fails (default galvatron-flight.json; "
         "none: nowhere)\n"
         "  --core-dumps              a crash leaves a core\n"
         "  --on-nan=stop|skip        when a loss or gradient norm is not "
         "finite: stop\n"
         "                            and name the layer, or leave the step's "
         "update out\n"
         "  --init=FILE|DIR           weights to start from: safetensors with "
         "Hugging\n"
         "                            Face names, or a folder with them\n"
         "checkpoints\n"
         "  --checkpoint=DIR          writes one at the end, on SIGINT, "
         "SIGTERM "
         "and\n"
         "                            SIGHUP; on SIGUSR1, and goes on\n"
         "  --checkpoint-every=N      and every N steps\n"
         "  --keep-checkpoints=N      the newest that stay (default 2)\n"
         "  --resume                  goes on from the newest in DIR, if there "
         "is one;\n"
         "                            options that are not given are taken "
         "from it\n"
         "optimizer\n"
         "  --lr=X                    learning rate (default 1e-3)\n"
         "  --min-lr=X                end of the cosine (default: --lr, no "
         "decay)\n"
         "  --warmup-steps=N          linear warm-up (default 0)\n"
         "  --betas=B1,B2             default 0.9,0.999\n"
         "  --eps=X                   default 1e-8\n"
         "  --weight-decay=X          default 0.01 for adamw, else 0\n"
         "  --decay-all               decay on vectors too\n"
         "  --momentum=X              of sgd (default 0.9)\n"
         "  --clip-norm=X             largest gradient norm (default 1)\n"
         "output\n"
         "  --save=DIR                writes model.safetensors and "
         "config.json, at the\n"
         "                            end and on SIGINT, SIGTERM and SIGHUP\n"
         "  --print-every=N           lines of every N-th step (default: all; "
         "on a terminal\n"
         "                            one a second)\n"
         "  --log=FILE                one JSON object per step\n"
         "  --summary=FILE            one JSON object at the end\n"
         "  --json[=FILE]             the summary on standard output, or in "
         "FILE\n"
         "  --trace=FILE              Chrome trace of the last steps, measured "
         "and predicted\n"
         "  --trace-steps=N           how many (default 3); the summary's "
         "shares "
         "are theirs;\n"
         "                            0: no step is recorded\n"
         "  --dump-gradients=FILE     gradients of step 1 as safetensors\n"
         "  --generate=TEXT           prints a greedy continuation of TEXT\n"
         "  --tokens=N                its length (default 64)\n"
         "  --version, --help\n"
         "\n"
         "Options are --NAME=VALUE or --NAME VALUE. All outputs are tried "
         "before the\n"
         "first step; docs/operations.md says what ends a run and what is "
         "written then.\n"
         "\n"
         "exit codes: 0 done, 1 failed otherwise, 2 wrong usage or invalid "
         "input,\n"
         "3 a value that is not finite, 4 a process or rank is lost or stuck, "
         "5 storage,\n"
         "6 memory; ended before all steps, after saving: 130 by SIGINT, 143 "
         "by SIGTERM,\n"
         "129 by SIGHUP, 141 by a closed pipe, 124 by --max-seconds\n";
}
