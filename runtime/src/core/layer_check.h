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

/// The first thing that functions of a layer do not do, though the manifest
/// says of the layer that they have to; "" if there is none. What it finds:
///
///  - a parameter whose gradient no call of the backward pass writes;
///  - a parameter of the layer's own that is not updated once, or not counted
///    in the norm once, or that decays in one place and not in the other;
///  - an update of another rule, and one or a norm of other bytes than the
///    layer's states;
///  - a collective whose buffers do not fit the ranks of its axis, that sums or
///    gathers over ranks which have other samples what is no parameter, or sums
///    what is a sum over the axis already;
///  - data that may be larger than a call tells apart.
std::string wrongLayers(const Manifest &manifest, const ProgramFile &program);

} // namespace grt

#endif // GRT_CORE_LAYER_CHECK_H
