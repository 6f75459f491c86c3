//===- random.h - Random bytes of the system ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BASE_RANDOM_H
#define GRT_BASE_RANDOM_H

#include "base/error.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/random.h>

namespace grt {

/// Bytes that nobody can foresee, for names and keys. Nothing that a run
/// computes depends on them.
inline std::string randomBytes(size_t count) {
  std::string bytes(count, 0);
  for (size_t done = 0; done < count;) {
    ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR)
      fail("cannot make random numbers: " + std::string(strerror(errno)));
    done += got > 0 ? size_t(got) : 0;
  }
  return bytes;
}

} // namespace grt

#endif // GRT_BASE_RANDOM_H
