//===- placement.cpp - Which device a process takes -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/placement.h"
#include "base/error.h"
#include "comm/launch.h"

#include <cstdlib>
#include <map>
#include <unistd.h>
#include <vector>

namespace grt {

int chooseDevice(const Launch &launch, int count, bool share) {
  if (count <= 1 || !launch.localRank)
    return 0;
  const LaunchNumber &local = *launch.localRank;
  if (local.value < count)
    return local.value;
  if (share)
    return local.value % count;
  invalid("process " + str(launch.number()) + " is number " + str(local.value) +
          " on its machine (" + local.from + "), where it may use " +
          str(count) + " GPUs, 0 to " + str(count - 1) + ": start at most " +
          str(count) +
          " processes there, or let them share GPUs with --share-gpus");
}

[[noreturn]] static void refuse(const grt_backend &backend,
                                const std::string &why) {
  fail(std::string("backend '") + backend.name + "' does not start: " + why);
}

int deviceCount(const grt_backend &backend) {
  if (!backend.count_devices)
    return 0;
  char message[512] = "";
  int32_t count = 0;
  if (backend.count_devices(&count, message, sizeof(message)))
    refuse(backend, message);
  return count;
}

void placeProcess(const grt_backend &backend, bool share,
                  std::optional<int> device) {
  const char *chosen = std::getenv("GRT_CUDA_DEVICE");
  if (!backend.use_device || (chosen && *chosen))
    return;
  const int count = deviceCount(backend);
  if (device && (*device < 0 || (count && *device >= count)))
    invalid("device " + str(*device) + ": expected one of the " + str(count) +
            " that this process may use");
  char message[512] = "";
  if (backend.use_device(
          device ? *device : chooseDevice(launchOfEnvironment(), count, share),
          message, sizeof(message)))
    refuse(backend, message);
}

RankPlace ownPlace(const grt_backend &backend) {
  RankPlace place;
  gethostname(place.host, sizeof(place.host) - 1);
  char message[512] = "";
  if (backend.device_identity(place.device, sizeof(place.device) - 1, message,
                              sizeof(message)))
    refuse(backend, message);
  return place;
}

std::string sharedDevice(std::span<const RankPlace> places) {
  std::map<std::string, std::vector<size_t>> ranks;
  for (size_t rank = 0; rank < places.size(); ++rank)
    ranks[places[rank].device].push_back(rank);
  const std::vector<size_t> *first = nullptr;
  for (const auto &[device, sharing] : ranks)
    if (sharing.size() > 1 && (!first || sharing.front() < first->front()))
      first = &sharing;
  if (!first)
    return "";
  std::string list;
  for (size_t i = 0; i < first->size(); ++i)
    list += (i == 0                   ? ""
             : i + 1 == first->size() ? " and "
                                      : ", ") +
            str((*first)[i]);
  const RankPlace &place = places[first->front()];
  return "ranks " + list + " are on one GPU, " + place.device + " of '" +
         place.host +
         "': start one process for each GPU, whose number on its machine "
         "(LOCAL_RANK) says which it takes, or let ranks share GPUs with "
         "--share-gpus";
}

} // namespace grt
