//===- cuda_driver.cpp - A CUDA driver of tests ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory behind chosen addresses, on pages of the host that are shared as the
// device's are.
//
//===----------------------------------------------------------------------===//

#include "device.h"
#include "fakes.h"

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace grt::fake;

namespace {

constexpr uint64_t granule = uint64_t(2) << 20;

struct Piece {
  int file;
  uint64_t bytes;
  bool isShared = false; ///< NCCL can map it in other processes
};
struct Mapping {
  uint64_t bytes;
  bool accessible = false;
};
std::map<CUdeviceptr, uint64_t> reserved;
std::map<CUdeviceptr, Mapping> mappings;
std::map<uint64_t, Piece> pieces;

template <class Body> CUresult call(const char *function, Body body) {
  return called(
      function, CUDA_SUCCESS, CUDA_ERROR_UNKNOWN,
      [&](Device &device, std::unique_lock<std::mutex> &, bool) -> CUresult {
        device.threadHasDevice(function);
        if (!device.maySkipCapture(function))
          return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        return body(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      });
}

/// The reservation that has all these addresses.
auto reservationOf(CUdeviceptr address, uint64_t bytes) {
  auto found = reserved.upper_bound(address);
  if (found == reserved.begin())
    return reserved.end();
  --found;
  return address + bytes <= found->first + found->second ? found
                                                         : reserved.end();
}

void *host(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

} // namespace

CUresult cuGetErrorString(CUresult, const char **text) {
  *text = "refused by the tests' driver";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}

/// A device of a machine without switches between machines: all but fabric
/// handles.
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice) {
  *value = attribute != CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED;
  return CUDA_SUCCESS;
}

/// The number is in the last byte.
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  *uuid = {};
  uuid->bytes[0] = char(0xab);
  uuid->bytes[15] = char(device);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes,
                             size_t alignment, CUdeviceptr,
                             unsigned long long) {
  return call("cuMemAddressReserve", [&](Device &device) {
    if (!device.expect(bytes && bytes % granule == 0,
                       "addresses are reserved in no multiples of 2 MiB"))
      return false;
    auto base = reinterpret_cast<CUdeviceptr>(
        mmap(nullptr, bytes + alignment, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    *address = (base + alignment - 1) / alignment * alignment;
    reserved[*address] = bytes;
    device.others["reserved addresses"][*address] = true;
    return true;
  });
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return call("cuMemAddressFree", [&](Device &device) {
    auto found = reserved.find(address);
    if (!device.expect(found != reserved.end() && found->second == bytes,
                       "addresses are freed that were not reserved"))
      return false;
    auto mapped = mappings.lower_bound(address);
    device.expect(mapped == mappings.end() || mapped->first >= address + bytes,
                  "addresses are freed while memory is mapped to them");
    reserved.erase(found);
    device.others["reserved addresses"].erase(address);
    return true;
  });
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties,
                     unsigned long long) {
  return call("cuMemCreate", [&](Device &device) {
    device.expect(properties->allocFlags.gpuDirectRDMACapable,
                  "memory is made that network adapters do not reach");
    if (!device.expect(bytes && bytes % granule == 0,
                       "memory is made in no multiples of 2 MiB"))
      return false;
    int file = memfd_create("grt-fake-device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, off_t(bytes)) != 0)
      return false;
    *handle = device.newHandle();
    pieces[*handle] = {file, bytes,
                       properties->requestedHandleTypes ==
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    device.others["pieces of memory"][*handle] = true;
    return true;
  });
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call("cuMemRelease", [&](Device &device) {
    auto found = pieces.find(handle);
    if (!device.expect(found != pieces.end(), "memory is released twice"))
      return false;
    // Mappings keep the pages.
    close(found->second.file);
    pieces.erase(found);
    device.others["pieces of memory"].erase(handle);
    return true;
  });
}
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  return call("cuMemMap", [&](Device &device) {
    auto piece = pieces.find(handle);
    if (!device.expect(piece != pieces.end(), "memory is mapped that is none"))
      return false;
    auto next = mappings.lower_bound(address);
    bool free = next == mappings.end() || next->first >= address + bytes;
    if (next != mappings.begin()) {
      --next;
      free = free && next->first + next->second.bytes <= address;
    }
    if (!device.expect(reservationOf(address, bytes) != reserved.end() && free,
                       "memory is mapped where nothing is reserved, or twice"))
      return false;
    const bool isAlone = reservationOf(address, bytes)->second == bytes;
    device.expect(piece->second.isShared || !isAlone,
                  "memory of one piece that NCCL cannot register");
    device.count(piece->second.isShared ? "registrable piece" : "other piece");
    if (mmap(host(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             piece->second.file, 0) == MAP_FAILED)
      return false;
    mappings[address] = {bytes};
    device.registrable.erase(address);
    if (piece->second.isShared)
      device.registrable[address] = bytes;
    return true;
  });
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes,
                        const CUmemAccessDesc *, size_t) {
  return call("cuMemSetAccess", [&](Device &device) {
    uint64_t at = address;
    for (auto it = mappings.find(address);
         it != mappings.end() && it->first == at && at < address + bytes;
         ++it) {
      at += it->second.bytes;
      it->second.accessible = true;
    }
    if (!device.expect(at == address + bytes,
                       "access is given to addresses without memory"))
      return false;
    mprotect(host(address), bytes, PROT_READ | PROT_WRITE);
    device.addMemory(host(address), bytes, Memory::Device);
    return true;
  });
}
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return call("cuMemUnmap", [&](Device &device) {
    auto found = mappings.find(address);
    if (!device.expect(found != mappings.end() && found->second.bytes == bytes,
                       "memory is unmapped that is not mapped so"))
      return false;
    auto whole = reservationOf(address, bytes);
    // The first piece that goes ends the use of all.
    if (found->second.accessible && whole != reserved.end()) {
      device.removeMemory(host(whole->first), Memory::Device, "cuMemUnmap");
      for (auto &[at, mapping] : mappings)
        if (at >= whole->first && at < whole->first + whole->second)
          mapping.accessible = false;
    }
    mappings.erase(found);
    device.registrable.erase(address);
    mmap(host(address), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return true;
  });
}
