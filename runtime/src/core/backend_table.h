//===- backend_table.h - A backend's tables, as large as we know ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A backend may be older or newer than this runtime, its tables shorter or
// longer than ours. They are copied into tables of our size once, so that
// nobody else has to ask how long a table is.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_BACKEND_TABLE_H
#define GRT_CORE_BACKEND_TABLE_H

#include "base/error.h"
#include "grt/backend.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>

namespace grt {

/// A copy of a backend's tables with every member and kernel that this runtime
/// knows; null where the backend's are shorter. Members may be replaced, by
/// tracing and by tests; copies point to their own tables.
class BackendTable {
public:
  /// Throws Error where `given` is of another ABI, or lacks what every backend
  /// has to have.
  explicit BackendTable(const grt_backend &given) { take(given); }
  BackendTable(const BackendTable &other) { take(other.table); }
  BackendTable &operator=(const BackendTable &other) {
    if (this != &other)
      take(other.table);
    return *this;
  }

  const grt_backend &operator*() const { return table; }
  const grt_backend *operator->() const { return &table; }

  grt_backend table{};
  std::array<grt_kernel_function, GRT_KERNEL_COUNT> kernels{};
  /// What the members of these names point to, where they are not null.
  grt_device device{};
  grt_device_collectives collectives{}, localCollectives{};

private:
  const char *name = nullptr;
  void take(const grt_backend &given);
  void takeCollectives(const grt_device_collectives *given, const char *what,
                       grt_device_collectives &own,
                       const grt_device_collectives *&member);
  [[noreturn]] void refuse(const std::string &what) const {
    fail("backend '" + std::string(name ? name : "") + "' " + what);
  }
  void expect(bool holds, const char *member) const {
    if (!holds)
      refuse(std::string("lacks '") + member + "'");
  }
  /// Copies what both know of a structure; its members up to `least` bytes are
  /// those that every backend's has.
  template <typename Structure>
  void copy(const Structure &given, Structure &own, size_t least,
            const char *what) const {
    if (given.bytes < least)
      refuse(std::string("has a table '") + what + "' of " + str(given.bytes) +
             " bytes, expected at least " + str(least) +
             ": compile it again with this runtime's grt/backend.h");
    own = {};
    std::memcpy(static_cast<void *>(&own), &given,
                std::min<size_t>(given.bytes, sizeof(Structure)));
    own.bytes = sizeof(Structure);
  }
};

inline void BackendTable::take(const grt_backend &given) {
  name = given.name;
  if (given.abi_version != GRT_ABI_VERSION)
    refuse("has ABI version " + str(given.abi_version) + ", this runtime has " +
           str(GRT_ABI_VERSION));
  copy(given, table, offsetof(grt_backend, map_arena), "backend");
  expect(name, "name");
  expect(table.kernels || !table.kernel_count, "kernels");
  expect(table.create_rank, "create_rank");
  expect(table.destroy_rank, "destroy_rank");
  expect(table.allocate, "allocate");
  expect(table.release, "release");
  if (!table.choose || !table.choices)
    table.choose = nullptr, table.choices = nullptr;
  if (!table.count_devices || !table.use_device || !table.device_identity)
    table.count_devices = nullptr, table.use_device = nullptr,
    table.device_identity = nullptr;
  kernels = {};
  std::copy_n(table.kernels,
              std::min<size_t>(table.kernel_count, kernels.size()),
              kernels.begin());
  table.kernels = kernels.data();
  table.kernel_count = uint32_t(kernels.size());
  device = {};
  if (!table.device)
    return;
  copy(*table.device, device, offsetof(grt_device, begin_graph), "device");
  table.device = &device;
  expect(device.allocate_host, "allocate_host");
  expect(device.release_host, "release_host");
  expect(device.fill, "fill");
  expect(device.copy, "copy");
  expect(device.record, "record");
  expect(device.wait, "wait");
  expect(device.synchronise, "synchronise");
  if (!device.add_results || !device.decide_update)
    device.add_results = nullptr, device.decide_update = nullptr;
  if (!device.record_for_host || !device.await)
    device.record_for_host = nullptr, device.await = nullptr;
  takeCollectives(device.collectives, "collectives", collectives,
                  device.collectives);
  takeCollectives(device.local_collectives, "local collectives",
                  localCollectives, device.local_collectives);
}

inline void
BackendTable::takeCollectives(const grt_device_collectives *given,
                              const char *what, grt_device_collectives &own,
                              const grt_device_collectives *&member) {
  own = {};
  if (!given)
    return;
  copy(*given, own,
       offsetof(grt_device_collectives, abort) + sizeof(given->abort), what);
  member = &own;
}

} // namespace grt

#endif // GRT_CORE_BACKEND_TABLE_H
