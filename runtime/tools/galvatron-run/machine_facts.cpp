//===- machine_facts.cpp - What a machine is ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one reader of the facts that preflight.cpp judges: /proc, /sys, limits,
// the environment, and NVML, whose functions and structures are those of the
// manual (NVML API Reference, R550).
//
//===----------------------------------------------------------------------===//

#include "preflight.h"

#include "base/cores.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <net/if.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace {

std::string firstLine(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<uint64_t> hardLimit(int resource) {
  rlimit limit{};
  if (getrlimit(__rlimit_resource_t(resource), &limit) != 0 ||
      limit.rlim_max == RLIM_INFINITY)
    return std::nullopt;
  return uint64_t(limit.rlim_max);
}

std::vector<InterfaceFacts> readInterfaces(const std::string &folder) {
  std::vector<InterfaceFacts> interfaces;
  std::error_code problem;
  for (const auto &entry :
       std::filesystem::directory_iterator(folder, problem)) {
    const std::string path = entry.path().string();
    const unsigned long flags =
        std::strtoul(firstLine(path + "/flags").c_str(), nullptr, 16);
    if (!(flags & IFF_UP))
      continue;
    interfaces.push_back({entry.path().filename(), (flags & IFF_LOOPBACK) != 0,
                          std::filesystem::exists(path + "/bridge", problem)});
  }
  std::sort(interfaces.begin(), interfaces.end(),
            [](const InterfaceFacts &a, const InterfaceFacts &b) {
              return a.name < b.name;
            });
  return interfaces;
}

/// "200000 100000" or "max 100000" of control groups of the second version.
double readQuota(const std::string &path) {
  std::ifstream file(path);
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0)
    return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

/// NVML, loaded; its functions return 0 where they did what they say.
class Nvml {
public:
  using Device = void *;
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Bus {
    char oldId[16];
    unsigned domain, bus, device, deviceId, subsystem;
    char id[32];
  };
  struct Process {
    unsigned pid;
    unsigned long long usedBytes;
    unsigned instance, computeInstance;
  };

  /// The result of nvmlDeviceGetGpuFabricInfo.
  struct Fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
  };

  explicit Nvml(std::string &problem) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char *why = dlerror();
      problem = why ? why : "libnvidia-ml.so.1 cannot be loaded";
      return;
    }
    auto *begin = find<int()>("nvmlInit_v2");
    end = find<int()>("nvmlShutdown");
    if (!begin || !end) {
      problem = "libnvidia-ml.so.1 lacks nvmlInit_v2";
      return;
    }
    if (int code = begin()) {
      auto *text = find<const char *(int)>("nvmlErrorString");
      problem = text ? text(code) : "NVML fails with " + std::to_string(code);
      return;
    }
    begun = true;
  }
  ~Nvml() {
    if (begun)
      end();
    // The library stays: it may have threads.
  }
  Nvml(const Nvml &) = delete;
  Nvml &operator=(const Nvml &) = delete;

  template <typename Function> Function *find(const char *name) const {
    return reinterpret_cast<Function *>(dlsym(library, name));
  }
  /// The library's own types are others of the same layout, which a check of
  /// function types takes for wrong ones.
  template <typename... Arguments>
#ifdef __clang__
  __attribute__((no_sanitize("function")))
#endif
  bool call(const char *name, Arguments... arguments) const {
    auto *function = find<int(Arguments...)>(name);
    return function && function(arguments...) == 0;
  }

private:
  void *library = nullptr;
  int (*end)() = nullptr;
  bool begun = false;
};

} // namespace

MachineFacts readMachine(const std::string &root) {
  MachineFacts machine;
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  machine.host = host;
  struct statvfs shared{};
  if (statvfs((root + "/dev/shm").c_str(), &shared) == 0)
    machine.sharedMemoryBytes = uint64_t(shared.f_blocks) * shared.f_frsize;
  machine.lockedBytes = hardLimit(RLIMIT_MEMLOCK);
  machine.openFiles = hardLimit(RLIMIT_NOFILE).value_or(UINT64_MAX);
  std::error_code problem;
  const std::string bands = root + "/sys/class/infiniband";
  machine.hasInfiniBand = std::filesystem::exists(bands, problem) &&
                          !std::filesystem::is_empty(bands, problem);
  machine.machineCores = int(sysconf(_SC_NPROCESSORS_ONLN));
  machine.allowedCores = grt::availableCores();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        machine.allowed.push_back(core);
  machine.coreQuota = readQuota(root + "/sys/fs/cgroup/cpu.max");
  machine.interfaces = readInterfaces(root + "/sys/class/net");
  for (char **entry = environ; *entry; ++entry) {
    const char *equals = std::strchr(*entry, '=');
    if (equals && std::strncmp(*entry, "NCCL_", 5) == 0)
      machine.variables[std::string(*entry, size_t(equals - *entry))] =
          equals + 1;
  }
  return machine;
}

std::vector<int> readNearCores(const std::string &root,
                               const std::string &busId) {
  return parseCores(
      firstLine(root + "/sys/bus/pci/devices/" + busId + "/local_cpulist"));
}

bool runOn(const std::vector<int> &cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores)
    if (core >= 0 && core < CPU_SETSIZE)
      CPU_SET(core, &set);
  return CPU_COUNT(&set) > 0 && sched_setaffinity(0, sizeof(set), &set) == 0;
}

namespace {

/// Reads the facts that `judgeHealth` looks at; what the library does not know
/// stays as it is.
void readHealth(const Nvml &nvml, Nvml::Device device, CardFacts &card) {
  nvml.call("nvmlDeviceGetComputeMode", device, &card.computeMode);
  unsigned divided = 0, later = 0;
  if (nvml.call("nvmlDeviceGetMigMode", device, &divided, &later))
    card.divided = divided == 1;
  enum : unsigned char { NotSupported, NotStarted, InProgress, Completed };
  Nvml::Fabric fabric{};
  if (nvml.call("nvmlDeviceGetGpuFabricInfo", device, &fabric) &&
      fabric.state != NotSupported)
    card.fabric = fabric.state != Completed ? CardFacts::Fabric::Waiting
                  : fabric.status == 0      ? CardFacts::Fabric::Ready
                                            : CardFacts::Fabric::Failed;
  constexpr int uncorrected = 1, sinceLoaded = 0;
  unsigned long long count = 0;
  if (nvml.call("nvmlDeviceGetTotalEccErrors", device, uncorrected, sinceLoaded,
                &count))
    card.memoryErrors = count;
  unsigned corrected = 0, wrong = 0, pending = 0, failed = 0;
  if (nvml.call("nvmlDeviceGetRemappedRows", device, &corrected, &wrong,
                &pending, &failed))
    card.waitsForReset = pending != 0;
  if (nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &count))
    card.slowdowns = count;
}

} // namespace

grt::DeviceClock readClock(int card) {
  static std::string problem;
  static const Nvml nvml(problem);
  grt::DeviceClock clock;
  Nvml::Device device = nullptr;
  if (!problem.empty() || card < 0 ||
      !nvml.call("nvmlDeviceGetHandleByIndex_v2", unsigned(card), &device))
    return clock;
  constexpr int ofMultiprocessors = 1;
  unsigned megahertz = 0;
  if (nvml.call("nvmlDeviceGetClockInfo", device, ofMultiprocessors,
                &megahertz))
    clock.megahertz = megahertz;
  unsigned long long reasons = 0;
  if (nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons))
    clock.slowdowns = reasons;
  return clock;
}

void readCards(MachineFacts &machine, const std::string &root) {
  Nvml nvml(machine.cardProblem);
  if (!machine.cardProblem.empty())
    return;
  char text[128] = "";
  if (nvml.call("nvmlSystemGetDriverVersion", &text[0], unsigned(sizeof(text))))
    machine.driver = text;
  nvml.call("nvmlSystemGetCudaDriverVersion_v2", &machine.driverCuda);
  unsigned count = 0;
  nvml.call("nvmlDeviceGetCount_v2", &count);
  for (unsigned number = 0; number < count; ++number) {
    CardFacts card;
    Nvml::Device device = nullptr;
    if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", number, &device)) {
      // The process may not see this card.
      machine.cards.push_back(card);
      continue;
    }
    if (nvml.call("nvmlDeviceGetName", device, &text[0],
                  unsigned(sizeof(text))))
      card.name = text;
    if (nvml.call("nvmlDeviceGetUUID", device, &text[0],
                  unsigned(sizeof(text))))
      card.uuid = text;
    nvml.call("nvmlDeviceGetCudaComputeCapability", device, &card.major,
              &card.minor);
    Nvml::Memory memory{};
    if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) {
      card.totalBytes = memory.total;
      card.freeBytes = memory.free;
    }
    Nvml::Bus bus{};
    if (nvml.call("nvmlDeviceGetPciInfo_v3", device, &bus)) {
      char id[32];
      std::snprintf(id, sizeof(id), "%04x:%02x:%02x.0", bus.domain, bus.bus,
                    bus.device);
      card.busId = id;
      card.nearCores = readNearCores(root, card.busId);
    }
    readHealth(nvml, device, card);
    Nvml::Process processes[64];
    unsigned known = 64;
    if (nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", device, &known,
                  &processes[0]))
      for (unsigned i = 0; i < known; ++i)
        card.processes.push_back(int(processes[i].pid));
    machine.cards.push_back(card);
  }
}

BuildFacts ownBuildFacts() {
  BuildFacts build;
#ifdef GRT_CUDA_TOOLKIT
  // "13.0.48"
  char *rest = nullptr;
  const long major = std::strtol(GRT_CUDA_TOOLKIT, &rest, 10);
  const long minor = *rest == '.' ? std::strtol(rest + 1, nullptr, 10) : 0;
  build.toolkit = int(major * 1000 + minor * 10);
  build.architectures = GRT_CUDA_ARCHITECTURES;
#endif
  return build;
}
