//===- nccl_log.cpp - What NCCL chose -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl_log.h"

#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

namespace {

/// The file of the log, once it is captured; -1 before.
int logFile = -1;

/// Returns what follows `mark` in the line; empty if it is not there.
std::string_view behind(std::string_view line, std::string_view mark) {
  const size_t at = line.find(mark);
  return at == std::string_view::npos ? std::string_view()
                                      : line.substr(at + mark.size());
}

std::string wordOf(std::string_view text, const char *ends) {
  return std::string(text.substr(0, text.find_first_of(ends)));
}

/// "Bootstrap: Using eth0:10.0.0.1<0>", "Bootstrap : Using [0]eth0:..".
void readInterface(std::string_view line, NcclChoice &choice) {
  std::string_view rest = behind(line, "Bootstrap: Using ");
  if (rest.empty())
    rest = behind(line, "Bootstrap : Using ");
  if (rest.starts_with("["))
    rest = behind(rest, "]");
  if (const std::string name = wordOf(rest, ": "); !name.empty())
    choice.interfaces.insert(name);
}

/// "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Channel 01/0 : 3[1] -> 1[1]
/// [send] via NET/IB/2/GDRDMA".
void readConnection(std::string_view line, NcclChoice &choice) {
  if (line.find("Channel ") == std::string_view::npos)
    return;
  const std::string_view way = behind(line, "] via ");
  const std::string_view sent = behind(line, "[send] via ");
  const std::string_view received = behind(line, "[receive] via ");
  const std::string_view rest = !sent.empty()       ? sent
                                : !received.empty() ? received
                                                    : way;
  const std::string name = wordOf(rest, "/ ");
  if (name.empty())
    return;
  choice.ways.insert(name);
  if (name != "NET")
    return;
  (rest.find("GDRDMA") == std::string_view::npos ? choice.throughHost
                                                 : choice.gpuDirect) = true;
  if (const std::string network = wordOf(behind(rest, "/"), "/ ");
      !network.empty())
    choice.networks.insert(network);
}

/// "InfiniBand" and others, as people call them.
std::string nameOfNetwork(const std::string &network) {
  return network.starts_with("IB") ? "InfiniBand"
         : network == "Socket"     ? "TCP sockets"
                                   : network;
}

std::string joined(const std::set<std::string> &names, const char *between) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : between) + name;
  return text;
}

constexpr char fieldEnd = '|';

} // namespace

NcclChoice readNcclLog(std::string_view log) {
  NcclChoice choice;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    readInterface(line, choice);
    readConnection(line, choice);
    if (const std::string_view rest = behind(line, "Using network ");
        !rest.empty())
      choice.networks.insert(std::string(rest));
    choice.nvls |=
        line.find("NVLS multicast support is available") != line.npos;
    choice.noNvls |=
        line.find("NVLS multicast support is not available") != line.npos;
  }
  return choice;
}

std::string textOf(const NcclChoice &choice) {
  std::string text;
  auto add = [&](const std::string &part) {
    if (!part.empty())
      text += (text.empty() ? "" : "; ") + part;
  };
  std::set<std::string> inside, networks;
  for (const std::string &way : choice.ways)
    if (way != "NET")
      inside.insert(way == "SHM" ? "shared memory" : way);
  for (const std::string &network : choice.networks)
    networks.insert(nameOfNetwork(network));
  if (!inside.empty())
    add(joined(inside, " and ") + " inside hosts" +
        (choice.nvls && !choice.noNvls ? ", NVLS" : ", no NVLS"));
  if (choice.ways.count("NET"))
    add(joined(networks, " and ") +
        (!choice.gpuDirect     ? " without GPU-direct"
         : !choice.throughHost ? " with GPU-direct"
                               : " with GPU-direct on some links") +
        " between hosts");
  if (!choice.interfaces.empty())
    add("ranks found each other over " + joined(choice.interfaces, " and "));
  return text;
}

std::string encode(const NcclChoice &choice) {
  std::string text;
  for (const auto *set : {&choice.interfaces, &choice.networks, &choice.ways})
    text += joined(*set, ",") + fieldEnd;
  for (bool flag :
       {choice.gpuDirect, choice.throughHost, choice.nvls, choice.noNvls})
    text += flag ? '1' : '0';
  return text;
}

NcclChoice decodeChoice(std::string_view text) {
  NcclChoice choice;
  for (auto *set : {&choice.interfaces, &choice.networks, &choice.ways}) {
    const size_t end = text.find(fieldEnd);
    if (end == std::string_view::npos)
      return {};
    for (std::string_view field = text.substr(0, end); !field.empty();) {
      const std::string_view one = field.substr(0, field.find(','));
      set->insert(std::string(one));
      field.remove_prefix(std::min(field.size(), one.size() + 1));
    }
    text.remove_prefix(end + 1);
  }
  if (text.size() < 4)
    return {};
  choice.gpuDirect = text[0] == '1';
  choice.throughHost = text[1] == '1';
  choice.nvls = text[2] == '1';
  choice.noNvls = text[3] == '1';
  return choice;
}

NcclChoice joinChoices(const std::vector<NcclChoice> &all) {
  NcclChoice result;
  for (const NcclChoice &one : all) {
    result.interfaces.insert(one.interfaces.begin(), one.interfaces.end());
    result.networks.insert(one.networks.begin(), one.networks.end());
    result.ways.insert(one.ways.begin(), one.ways.end());
    result.gpuDirect |= one.gpuDirect;
    result.throughHost |= one.throughHost;
    result.nvls |= one.nvls;
    result.noNvls |= one.noNvls;
  }
  return result;
}

void NcclLog::capture() {
  const char *level = std::getenv("NCCL_DEBUG");
  const char *file = std::getenv("NCCL_DEBUG_FILE");
  if (logFile >= 0 || (level && *level) || (file && *file))
    return;
  logFile = memfd_create("nccl-log", MFD_CLOEXEC);
  if (logFile < 0)
    return;
  setenv("NCCL_DEBUG", "INFO", /*overwrite=*/1);
  setenv("NCCL_DEBUG_FILE",
         ("/proc/self/fd/" + std::to_string(logFile)).c_str(),
         /*overwrite=*/1);
}

std::string NcclLog::text() {
  std::string text;
  char part[65536];
  for (ssize_t got; logFile >= 0 && (got = pread(logFile, part, sizeof(part),
                                                 off_t(text.size()))) > 0;)
    text.append(part, size_t(got));
  return text;
}
