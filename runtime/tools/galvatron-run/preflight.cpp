//===- preflight.cpp - What of a machine will go wrong --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "preflight.h"

#include "base/text.h"
#include "comm/agreement.h"
#include "comm/numbering.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <set>
#include <sstream>

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t leastSharedMemory = uint64_t(1) << 30;
constexpr uint64_t leastOpenFiles = 4096;
constexpr double leastCores = 4;
/// The CUDA whose drivers keep NCCL_LAUNCH_ORDER_IMPLICIT in graphs without
/// putting kernels behind each other.
constexpr int overlapsInGraphs = 12090;

std::string versionText(int cuda) {
  return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

std::vector<std::string> splitAt(const std::string &text, char separator) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, separator);)
    if (!part.empty())
      parts.push_back(part);
  return parts;
}

std::string joined(const std::vector<std::string> &parts) {
  std::string text;
  for (const std::string &part : parts)
    text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string coresText(double cores) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", cores);
  return text;
}

/// NCCL_* that processes have each for itself.
bool isOwnVariable(const std::string &name) {
  return name == "NCCL_HOSTID" || name == "NCCL_DEBUG_FILE";
}

} // namespace

Findings judgeSharedMemory(const MachineFacts &machine) {
  if (!machine.sharedMemoryBytes)
    return {{0, "there is no /dev/shm, where NCCL's processes of one "
                "machine meet"}};
  if (*machine.sharedMemoryBytes >= leastSharedMemory)
    return {};
  return {
      {0, "/dev/shm has " + grt::bytesText(*machine.sharedMemoryBytes) +
              ", where NCCL's processes of one machine meet: expected 1 GiB or "
              "more (docker run --shm-size=1g or --ipc=host; in Kubernetes a "
              "volume emptyDir with medium: Memory)"}};
}

Findings judgeLimits(const MachineFacts &machine, const RunFacts &run) {
  Findings found;
  if (machine.hasInfiniBand && run.severalHosts && machine.lockedBytes)
    found.push_back(
        {0, "memory that can be locked is limited to " +
                grt::bytesText(*machine.lockedBytes) +
                " (ulimit -Hl), and InfiniBand registers what NCCL sends: "
                "expected unlimited"});
  const uint64_t wanted =
      std::max(leastOpenFiles, uint64_t(16) * uint64_t(run.ranks));
  if (machine.openFiles < wanted)
    found.push_back({0, "files that can be open are limited to " +
                            std::to_string(machine.openFiles) +
                            " (ulimit -Hn), and connections of " +
                            std::to_string(run.ranks) +
                            " ranks are among them: expected " +
                            std::to_string(wanted) + " or more"});
  return found;
}

Findings judgeCores(const MachineFacts &machine, const RunFacts &run) {
  // A process that is bound has its cores for itself.
  const bool isBound = machine.allowedCores < machine.machineCores;
  const auto processes = double(std::max(1, run.machineProcesses));
  double each = double(machine.allowedCores) / (isBound ? 1 : processes);
  if (machine.coreQuota > 0)
    each = std::min(each, machine.coreQuota / processes);
  const auto cards = double(std::max<size_t>(1, run.cards.size()));
  each /= cards;
  if (each >= leastCores)
    return {};
  return {
      {0, coresText(each) +
              (each == 1 ? " processor core" : " processor cores") +
              " for each GPU (" + std::to_string(machine.allowedCores) +
              " that a process may run on" +
              (machine.coreQuota > 0
                   ? ", a quota of " + coresText(machine.coreQuota)
                   : std::string()) +
              ", " + std::to_string(int(processes * cards)) +
              (processes * cards == 1 ? " GPU" : " GPUs") +
              " of the run on the machine): expected 4 or more, as "
              "threads that launch, communicate and read data wait for each "
              "other otherwise (srun --cpus-per-task, mpirun --bind-to none)"}};
}

Findings judgeNearness(const MachineFacts &machine, const RunFacts &run) {
  Findings found;
  for (int number : run.cards) {
    if (number < 0 || size_t(number) >= machine.cards.size())
      continue;
    const CardFacts &card = machine.cards[size_t(number)];
    if (card.nearCores.empty() || machine.allowed.empty() ||
        std::any_of(machine.allowed.begin(), machine.allowed.end(),
                    [&](int core) {
                      return std::binary_search(card.nearCores.begin(),
                                                card.nearCores.end(), core);
                    }))
      continue;
    found.push_back({0, "GPU " + std::to_string(number) + " (" + card.name +
                            ") is near cores " +
                            grt::rankRanges(card.nearCores) +
                            ", and its process may run on " +
                            grt::rankRanges(machine.allowed) +
                            " alone: what it copies goes between sockets (srun "
                            "--gpu-bind=closest, mpirun --bind-to none)"});
  }
  return found;
}

std::vector<int> parseCores(const std::string &list) {
  std::set<int> cores;
  for (const std::string &part : splitAt(list, ',')) {
    int first = 0, last = 0, used = 0;
    if (std::sscanf(part.c_str(), "%d-%d%n", &first, &last, &used) < 2) {
      if (std::sscanf(part.c_str(), "%d%n", &first, &used) < 1)
        return {};
      last = first;
    }
    constexpr int most = 1 << 16;
    if (first < 0 || last < first || last >= most ||
        part.find_first_not_of(" \n", size_t(used)) != std::string::npos)
      return {};
    for (int core = first; core <= last; ++core)
      cores.insert(core);
  }
  return {cores.begin(), cores.end()};
}

std::vector<int> coresToTake(const MachineFacts &machine, const RunFacts &run) {
  // Who bound the process has chosen.
  if (run.cards.size() != 1 || run.cards[0] < 0 ||
      size_t(run.cards[0]) >= machine.cards.size() ||
      machine.allowedCores < machine.machineCores)
    return {};
  const std::vector<int> &near = machine.cards[size_t(run.cards[0])].nearCores;
  std::vector<int> cores;
  std::set_intersection(near.begin(), near.end(), machine.allowed.begin(),
                        machine.allowed.end(), std::back_inserter(cores));
  return cores.size() == machine.allowed.size() ? std::vector<int>() : cores;
}

std::vector<InterfaceFacts>
chosenInterfaces(const std::string &value,
                 const std::vector<InterfaceFacts> &interfaces) {
  const bool others = value.starts_with("^");
  std::string list = others ? value.substr(1) : value;
  const bool exact = list.starts_with("=");
  if (exact)
    list = list.substr(1);
  const std::vector<std::string> names = splitAt(list, ',');
  std::vector<InterfaceFacts> chosen;
  for (const InterfaceFacts &one : interfaces) {
    bool named =
        std::any_of(names.begin(), names.end(), [&](const std::string &name) {
          return exact ? one.name == name : one.name.starts_with(name);
        });
    if (named != others)
      chosen.push_back(one);
  }
  return chosen;
}

Findings judgeInterfaces(const MachineFacts &machine, const RunFacts &run) {
  auto at = machine.variables.find("NCCL_SOCKET_IFNAME");
  if (at == machine.variables.end() || at->second.empty() || !run.severalHosts)
    return {};
  const std::string said = "NCCL_SOCKET_IFNAME=" + at->second + " picks ";
  const std::vector<InterfaceFacts> chosen =
      chosenInterfaces(at->second, machine.interfaces);
  std::vector<std::string> all, wrong;
  for (const InterfaceFacts &one : machine.interfaces)
    if (!one.loopback && !one.bridge)
      all.push_back(one.name);
  for (const InterfaceFacts &one : chosen)
    if (one.loopback || one.bridge)
      wrong.push_back(one.name +
                      (one.loopback ? ", the loopback" : ", a bridge"));
  const std::string instead =
      all.empty() ? "" : "; those that may are " + joined(all);
  if (chosen.empty())
    return {{grt::ExitInvalid, said + "no interface that is up" + instead}};
  if (wrong.empty())
    return {};
  return {{wrong.size() == chosen.size() ? int(grt::ExitInvalid) : 0,
           said + joined(wrong) +
               (wrong.size() == 1 ? ", which does" : ", which do") +
               " not reach other hosts" + instead}};
}

bool hasKernels(const std::string &architectures, int major, int minor) {
  for (std::string one : splitAt(architectures, ',')) {
    one.erase(0, one.find_first_not_of(' '));
    const size_t dash = one.find('-');
    std::string number = one.substr(0, dash);
    const std::string kind =
        dash == std::string::npos ? "" : one.substr(dash + 1);
    const bool exactly = !number.empty() && number.back() == 'a';
    if (exactly)
      number.pop_back();
    if (number.empty() ||
        number.find_first_not_of("0123456789") != std::string::npos)
      continue;
    const int built = std::stoi(number);
    const int card = major * 10 + minor;
    if (exactly ? card == built
                : (kind != "virtual" && built / 10 == major && card >= built))
      return true;
    // Code that the driver translates for what comes later.
    if (!exactly && kind != "real" && card >= built)
      return true;
  }
  return false;
}

Findings judgeCards(const MachineFacts &machine, const BuildFacts &build,
                    const RunFacts &run) {
  if (!machine.cardProblem.empty())
    return {{0, "GPUs cannot be looked at: " + machine.cardProblem}};
  Findings found;
  if (build.toolkit && machine.driverCuda &&
      machine.driverCuda / 1000 < build.toolkit / 1000)
    found.push_back(
        {grt::ExitInvalid,
         "the driver " + machine.driver + " is for CUDA up to " +
             versionText(machine.driverCuda) + ", and this build is of CUDA " +
             versionText(build.toolkit) + ": expected a driver for " +
             std::to_string(build.toolkit / 1000) + ".0 or later"});
  if (machine.driverCuda && machine.driverCuda < overlapsInGraphs &&
      run.ranks > 1)
    found.push_back(
        {0, "the driver " + machine.driver + " is for CUDA up to " +
                versionText(machine.driverCuda) +
                ": in a graph, collectives of several communicators run one "
                "after the other; from " +
                versionText(overlapsInGraphs) +
                " on they run beside each other"});
  for (int number : run.cards) {
    if (number < 0 || size_t(number) >= machine.cards.size()) {
      found.push_back(
          {grt::ExitInvalid, "there is no GPU " + std::to_string(number) +
                                 ": the machine has " +
                                 std::to_string(machine.cards.size())});
      continue;
    }
    const CardFacts &card = machine.cards[size_t(number)];
    const std::string name =
        "GPU " + std::to_string(number) + " (" + card.name + ")";
    if (build.toolkit &&
        !hasKernels(build.architectures, card.major, card.minor))
      found.push_back(
          {grt::ExitInvalid,
           name + " has compute capability " + std::to_string(card.major) +
               "." + std::to_string(card.minor) +
               ", and this build has kernels for " + build.architectures +
               ": build with CMAKE_CUDA_ARCHITECTURES=" +
               std::to_string(card.major) + std::to_string(card.minor)});
    std::vector<std::string> others;
    for (int process : card.processes)
      others.push_back(std::to_string(process));
    const std::string who =
        others.empty() ? ""
                       : (others.size() == 1 ? "; process " : "; processes ") +
                             joined(others) +
                             (others.size() == 1 ? " is" : " are") + " on it";
    if (card.freeBytes < run.bytesOfCard)
      found.push_back(
          {grt::ExitMemory, name + " has " + grt::bytesText(card.freeBytes) +
                                " of " + grt::bytesText(card.totalBytes) +
                                " free, and a rank needs " +
                                grt::bytesText(run.bytesOfCard) + who});
    else if (!others.empty())
      found.push_back({0, name + " is not this run's alone" + who});
  }
  return found;
}

std::string gpuText(const MachineFacts &machine, const RunFacts &run) {
  if (run.cards.empty() || run.cards[0] < 0 ||
      size_t(run.cards[0]) >= machine.cards.size())
    return "";
  return machine.cards[size_t(run.cards[0])].name + ", driver " +
         machine.driver + " for CUDA up to " + versionText(machine.driverCuda);
}

std::string slowdownText(uint64_t slowdowns) {
  // Power that software caps is how cards run when all is well.
  const std::pair<uint64_t, const char *> reasons[] = {
      {0x20 | 0x40, "it is too hot"},
      {0x80, "its power supply brakes it"},
      {0x08, "its hardware slows it (too hot, or too little power)"}};
  std::vector<std::string> found;
  for (const auto &[bits, text] : reasons)
    // The last one says what another says better.
    if (slowdowns & bits && (bits != 0x08 || found.empty()))
      found.push_back(text);
  return joined(found);
}

Findings judgeHealth(const MachineFacts &machine, const RunFacts &run) {
  constexpr int nobody = 2, oneProcess = 3;
  Findings found;
  for (int number : run.cards) {
    if (number < 0 || size_t(number) >= machine.cards.size())
      continue;
    const CardFacts &card = machine.cards[size_t(number)];
    const std::string name =
        "GPU " + std::to_string(number) + " (" + card.name + ")";
    const std::string set = "nvidia-smi -i " + std::to_string(number);
    if (card.computeMode == nobody)
      found.push_back({grt::ExitInvalid, name +
                                             " lets no process compute "
                                             "(compute mode): " +
                                             set + " -c 0 allows it"});
    if (card.computeMode == oneProcess && !card.processes.empty())
      found.push_back({grt::ExitInvalid,
                       name +
                           " takes one process (compute mode), and process " +
                           std::to_string(card.processes.front()) +
                           " is on it: end that, or " + set + " -c 0"});
    if (card.divided && run.ranks > 1)
      found.push_back({0, name +
                              " is divided (MIG), so that a process has one "
                              "part, and NCCL connects no parts directly: " +
                              set + " -mig 0"});
    if (card.fabric == CardFacts::Fabric::Waiting ||
        card.fabric == CardFacts::Fabric::Failed)
      found.push_back(
          {grt::ExitInvalid,
           name +
               (card.fabric == CardFacts::Fabric::Waiting
                    ? " waits to be joined to the machine's switches"
                    : " could not be joined to the machine's switches") +
               ": is the fabric manager up (systemctl status "
               "nvidia-fabricmanager)?"});
    if (card.memoryErrors)
      found.push_back(
          {0, name + " had " + std::to_string(card.memoryErrors) +
                  (card.memoryErrors == 1 ? " error" : " errors") +
                  " of its memory that were not corrected since the driver was "
                  "loaded: reset it (" +
                  set + " --gpu-reset), or do without it"});
    if (card.waitsForReset)
      found.push_back({0, name +
                              " waits for a reset to replace rows of its "
                              "memory: " +
                              set + " --gpu-reset"});
    if (std::string why = slowdownText(card.slowdowns); !why.empty())
      found.push_back({0, name + " is slow: " + why});
  }
  return found;
}

Findings judge(const MachineFacts &machine, const BuildFacts &build,
               const RunFacts &run) {
  Findings all;
  auto add = [&](const Findings &found) {
    all.insert(all.end(), found.begin(), found.end());
  };
  if (run.usesCards) {
    add(judgeCards(machine, build, run));
    add(judgeHealth(machine, run));
    add(judgeInterfaces(machine, run));
    add(judgeCores(machine, run));
    add(judgeNearness(machine, run));
  }
  if (run.usesCards || run.machineProcesses > 1)
    add(judgeSharedMemory(machine));
  add(judgeLimits(machine, run));
  return all;
}

std::vector<int> visibleCards(const char *value,
                              const std::vector<CardFacts> &cards) {
  std::vector<int> numbers;
  if (!value) {
    for (size_t i = 0; i < cards.size(); ++i)
      numbers.push_back(int(i));
    return numbers;
  }
  // An entry that is no number ends the list, as CUDA has it.
  for (const std::string &one : splitAt(value, ',')) {
    int number = -1;
    if (one.find_first_not_of("0123456789") == std::string::npos &&
        one.size() < 6)
      number = std::stoi(one);
    else
      for (size_t i = 0; i < cards.size(); ++i)
        if (cards[i].uuid.starts_with(one))
          number = int(i);
    if (number < 0 || size_t(number) >= cards.size())
      break;
    numbers.push_back(number);
  }
  return numbers;
}

std::string encode(const Told &told) {
  Json findings = Json::array();
  for (const Finding &one : told.findings)
    findings.push_back({one.ends, one.text});
  return Json{{"host", told.host},
              {"findings", findings},
              {"variables", told.variables}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Told> decodeTold(const std::string &text) {
  try {
    const Json json = Json::parse(text);
    Told told;
    told.host = json.at("host").get<std::string>();
    for (const Json &one : json.at("findings"))
      told.findings.push_back(
          {one.at(0).get<int>(), one.at(1).get<std::string>()});
    told.variables =
        json.at("variables").get<std::map<std::string, std::string>>();
    return told;
  } catch (const Json::exception &) {
    return std::nullopt;
  }
}

Findings joinTold(const std::vector<Told> &all) {
  std::vector<std::string> hosts;
  std::set<std::string> names;
  for (const Told &one : all) {
    if (std::find(hosts.begin(), hosts.end(), one.host) == hosts.end())
      hosts.push_back(one.host);
    for (const auto &[name, value] : one.variables)
      if (!isOwnVariable(name))
        names.insert(name);
  }
  Findings result;
  std::vector<std::vector<std::string>> where;
  for (const Told &one : all)
    for (const Finding &finding : one.findings) {
      auto at = std::find(result.begin(), result.end(), finding);
      const auto number = size_t(at - result.begin());
      if (at == result.end()) {
        result.push_back(finding);
        where.emplace_back();
      }
      std::vector<std::string> &there = where[number];
      if (std::find(there.begin(), there.end(), one.host) == there.end())
        there.push_back(one.host);
    }
  for (size_t i = 0; i < result.size() && hosts.size() > 1; ++i) {
    std::string text;
    for (size_t j = 0; j < where[i].size(); ++j)
      text += j == 4  ? ", .."
              : j > 4 ? ""
                      : (j ? ", '" : "on '") + where[i][j] + "'";
    if (where[i].size() == hosts.size())
      text = "on every host";
    result[i].text = text + ": " + result[i].text;
  }
  for (const std::string &name : names) {
    std::map<std::string, std::vector<int>> having;
    for (size_t process = 0; process < all.size(); ++process) {
      auto at = all[process].variables.find(name);
      having[at == all[process].variables.end() ? "no value"
                                                : "'" + at->second + "'"]
          .push_back(int(process));
    }
    if (having.size() == 1)
      continue;
    std::string text;
    for (const auto &[value, processes] : having)
      text += (text.empty() ? "" : ", ") + grt::processList(processes) + " " +
              (processes.size() == 1 ? "has " : "have ") + value;
    result.push_back({0, name + " differs: " + text});
  }
  return result;
}
