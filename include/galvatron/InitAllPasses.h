//===- InitAllPasses.h - Registers the passes -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_INITALLPASSES_H
#define GALVATRON_INITALLPASSES_H

namespace galvatron {

/// Every pass of this project, its pipelines, and the upstream clean-ups that
/// go well with them.
void registerAllPasses();

} // namespace galvatron

#endif // GALVATRON_INITALLPASSES_H
