//===- mapped.cpp - Files in memory ---------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "data/mapped.h"
#include "base/error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace grt {

MappedFile::MappedFile(const std::string &path, const char *kind)
    : path(path), kind(kind) {
  std::string name = this->kind + " '" + path + "'";
  descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  try {
    struct stat status{};
    if (descriptor < 0 || fstat(descriptor, &status) != 0)
      fail(codeOfPath(errno), "cannot open " + name + ": " + strerror(errno));
    if (!S_ISREG(status.st_mode))
      invalid(name + " is not a regular file");
    size = uint64_t(status.st_size);
    if (size == 0)
      invalid(name + " is empty");
    void *mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
      fail(errno == ENOMEM ? ExitMemory : ExitStorage,
           "cannot map " + name + ": " + strerror(errno));
    data = static_cast<const char *>(mapped);
  } catch (...) {
    if (descriptor >= 0)
      close(descriptor);
    throw;
  }
}

MappedFile::~MappedFile() {
  munmap(const_cast<char *>(data), size);
  close(descriptor);
}

void MappedFile::checkSize() const {
  std::string name = kind + " '" + path + "'";
  struct stat status{};
  if (fstat(descriptor, &status) != 0)
    fail(ExitStorage, "cannot look at " + name + ": " + strerror(errno));
  if (uint64_t(status.st_size) != size)
    fail(ExitStorage, name + " changed while it was used: expected " +
                          str(size) + " bytes, found " + str(status.st_size));
}

} // namespace grt
