//===- options.cpp - Command line of galvatron-profile --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "options.h"

#include <cmath>
#include <cstdlib>

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

} // namespace

Status parseOptions(int count, char **arguments, Options &options) {
  for (int i = 0; i < count; ++i) {
    std::string argument = arguments[i];
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    bool given = equals != std::string::npos;
    std::string value = given ? argument.substr(equals + 1) : "";
    bool flag = name == "--help" || name == "-h" || name == "--version" ||
                name == "--quick";
    if (flag && given)
      return Status(2, "option '" + name + "' takes no value");
    double parsed = 0;
    std::string suffix;
    if (name == "--help" || name == "-h") {
      options.help = true;
    } else if (name == "--version") {
      options.version = true;
    } else if (name == "--quick") {
      options.quick = true;
    } else if (name == "--ranks") {
      if (!number(value, parsed, suffix) || !suffix.empty() || parsed < 1 ||
          parsed > 1024 || parsed != std::floor(parsed))
        return wrong(name, "a whole number from 1 to 1024", value);
      options.ranks = int(parsed);
    } else if (name == "--seconds") {
      if (!number(value, parsed, suffix) || !suffix.empty() || parsed < 0.1 ||
          parsed > 3600)
        return wrong(name, "a number from 0.1 to 3600", value);
      options.seconds = parsed;
    } else if (name == "--backend") {
      if (value.empty())
        return wrong(name, "a backend such as cuda", value);
      options.backend = value == "cpu" ? "" : value;
    } else if (name == "--largest") {
      if (!number(value, parsed, suffix) || !suffix.empty() || parsed < 16 ||
          parsed > 65536 || parsed != std::floor(parsed))
        return wrong(name, "a whole number from 16 to 65536", value);
      options.largest = int64_t(parsed);
    } else if (name == "--memory") {
      if (!parseBytes(value, options.memory))
        return wrong(name, "a size with its unit such as 4GiB", value);
    } else if (name == "--json") {
      if (given && value.empty())
        return wrong(name, "a file", value);
      options.json = given ? value : "-";
    } else if (name == "-o") {
      if (!given && i + 1 < count) {
        given = true;
        value = arguments[++i];
      }
      if (!given || value.empty())
        return Status(2, "option '-o' needs a file");
      options.output = value;
    } else if (argument[0] == '-' && argument.size() > 1) {
      return Status(2, "unknown option '" + name + "'");
    } else {
      return Status(2, "expected options only, found '" + argument + "'");
    }
  }
  if (options.help || options.version || options.backend.empty())
    return Status();
  if (options.ranks > 1)
    return Status(2, "--backend=" + options.backend +
                         " measures one device: expected no --ranks");
  if (!options.memory)
    return Status(2, "--backend=" + options.backend +
                         " needs the device's --memory");
  return Status();
}

const char *helpText() {
  return "usage: galvatron-profile [--quick] [options]\n"
         "\n"
         "Measures this machine with all ranks running at the same time and "
         "writes a\n"
         "cluster file for galvatron-plan.\n"
         "\n"
         "  --quick          about 2 seconds instead of 60, at fewer sizes\n"
         "  --ranks=N        ranks on this machine (default: one per core); "
         "under mpirun\n"
         "                   or srun: of each process (default 1)\n"
         "  --seconds=X      length of the measurement\n"
         "  --backend=cuda   one GPU instead of CPU ranks, in bf16; needs "
         "--memory\n"
         "  --largest=N      with --backend: products up to N x N x N "
         "(default 8192)\n"
         "  --memory=SIZE    memory of a rank, e.g. 4GiB (default: an equal "
         "share of\n"
         "                   three quarters of the machine's)\n"
         "  -o FILE          where the cluster file goes (default: -, standard "
         "output)\n"
         "  --json[=FILE]    the same as JSON; on standard output it replaces "
         "the\n"
         "                   cluster file unless -o is given\n"
         "  --version, --help\n"
         "\n"
         "exit codes: 0 done, 1 failed, 2 wrong usage\n";
}

} // namespace grt::profile
