//===- image.h - What a program's shared object asks of the loader --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The payload of a `.gvx` is native code. Nothing of it may run, and nothing
// else may come with it, before its table and manifest have been checked: this
// reads the ELF file as the dynamic loader would and refuses what the compiler
// never emits. It is no sandbox: functions that pass can do whatever code can
// do once they are called.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_IMAGE_H
#define GRT_CORE_IMAGE_H

#include <string_view>

namespace grt {

/// Checks an ELF shared object of this processor:
///
///  1. Segments lie in the file, are in ascending order and do not overlap, and
///     none is both writable and executable. No interpreter, no thread-local
///     data.
///  2. The dynamic section lies in a segment, and has the entries of symbols,
///     strings, hashes and relocations only: no needed libraries (DT_NEEDED,
///     filters), no constructors or destructors (DT_INIT, DT_INIT_ARRAY,
///     DT_PREINIT_ARRAY, DT_FINI, DT_FINI_ARRAY), no text relocations.
///  3. Undefined symbols are named `grt_...`; no symbol is an indirect function
///     (IFUNC), which the loader would call, or thread-local. Hash tables name
///     no symbols that were not looked at.
///  4. Relocations write into writable segments, and are addresses of this
///     object and of its symbols. None changes what was looked at: tables are
///     in segments that are not writable.
///
/// Throws Error (2) that names what was found.
void checkImage(std::string_view file);

} // namespace grt

#endif // GRT_CORE_IMAGE_H
