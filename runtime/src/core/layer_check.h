//===- layer_check.h - What the functions of a layer have to do -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_LAYER_CHECK_H
#define GRT_CORE_LAYER_CHECK_H

#include "core/manifest.h"
#include "program/reader.h"

#include <string>

namespace grt {

/// The first thing that a program does not do, though its manifest says that it
/// has to; "" if there is none. Calls that do not suit their kernels are left
/// to those who know layers (core/call_checks.h). What it finds:
///
///  - a parameter whose gradient no call of the backward pass writes;
///  - a parameter of the layer's own that is not updated once, or not counted
///    in the norm once, or that decays in one place and not in the other;
///  - an update of another rule, and one or a norm of other bytes than the
///    layer's states;
///  - a collective whose buffers do not fit the ranks of its axis, that sums or
///    gathers over ranks which have other samples what is no parameter, or sums
///    what is a sum over the axis already;
///  - a step without its norm, an evaluation without a micro-batch, layers that
///    are not numbered along the chunks, a borrowed parameter without its tie,
///    an exchange that brings a rank the same units twice;
///  - data that may be larger than a call tells apart.
std::string wrongLayers(const Manifest &manifest, const ProgramFile &program);

/// Returns which of a layer's data a buffer is; null if it is none.
const Datum *datumOf(const Manifest &manifest, const Role &role,
                     const Layer &layer, const grt_buffer &buffer);

} // namespace grt

#endif // GRT_CORE_LAYER_CHECK_H
