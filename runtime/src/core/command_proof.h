//===- command_proof.h - The proof of a program's commands ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_COMMAND_PROOF_H
#define GRT_CORE_COMMAND_PROOF_H

#include "core/manifest.h"
#include "program/reader.h"

#include <string>

namespace grt {

/// The first fault in the commands of a program, which have been checked
/// (checkCommands), with the command that has it; "" if there is none. It is
/// looked for by chunks, whatever the number of ranks and micro-batches. What
/// it finds:
///
///  - a function of a layer that is not called once for its task, before what
///    it needs, or where its buffers are not waited for;
///  - a place in the arena that is begun where another one lives, is written or
///    ended where nothing lives, or still lives when all is done;
///  - temporaries of a function where something lives;
///  - an input, a gradient, gathered parameters or a message that nothing has
///    written before it is read;
///  - gradients that are not summed once, parameters that are not updated once,
///    older ones that are not kept before;
///  - a gather, a function or an exchange that may run beside a sum of
///  gradients
///    with whose group it shares ranks;
///  - a place that does not move with the slots it is in.
std::string wrongCommands(const Manifest &manifest, const ProgramFile &program);

} // namespace grt

#endif // GRT_CORE_COMMAND_PROOF_H
