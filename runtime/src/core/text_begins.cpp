//===- text_begins.cpp - What runs where texts begin ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/text_begins.h"
#include "core/byte_set.h"
#include "core/layer_check.h"
#include "core/program_text.h"
#include "grt/kernels.h"

#include <map>

namespace grt {
namespace {

/// Bytes of regions.
class Bytes {
public:
  void add(const grt_buffer &buffer) {
    of[buffer.region].add(buffer.offset, buffer.offset + buffer.bytes);
  }
  void remove(const grt_buffer &buffer) {
    of[buffer.region].remove(buffer.offset, buffer.offset + buffer.bytes);
  }
  bool meets(const grt_buffer &buffer) const {
    auto it = of.find(buffer.region);
    return it != of.end() &&
           it->second.meets(buffer.offset, buffer.offset + buffer.bytes);
  }

private:
  std::map<uint32_t, ByteSet> of;
};

/// Follows the calls of one forward function.
class FunctionCheck {
public:
  FunctionCheck(const Manifest &manifest, const ProgramFile &program,
                const Role &role, const Layer &layer)
      : manifest(manifest), program(program), role(role), layer(layer) {}

  std::string run() {
    for (const gvx::Call &call : program.calls(size_t(layer.forward))) {
      follow(call);
      if (!wrong.empty())
        return "function '" + manifest.functions[size_t(layer.forward)] +
               "' of layer '" + layer.name + "': " + textOf(program, call) +
               ": " + wrong;
    }
    return "";
  }

private:
  void follow(const gvx::Call &call) {
    begins = call.when == gvx::CallWhen::TextsBegin;
    readsTokens = readsSource = false;
    if (call.kind == gvx::CallKind::Communicate) {
      const grt_collective_op &op = program.collective(call.index);
      read(op.in);
      write(op.out);
    } else if (call.kind == gvx::CallKind::Launch) {
      const grt_kernel_op &op = program.kernel(call.index);
      const KernelBuffers known = buffersOf(op);
      for (uint32_t i = 0; i < op.buffer_count; ++i)
        if (known[i].access == Access::Read && !isKept(op, i))
          read(op.buffers[i]);
      for (uint32_t i = 0; i < op.buffer_count; ++i)
        if (writes(known[i].access))
          write(op.buffers[i]);
    }
  }

  /// True of what attention reads where a text begins and nowhere else.
  static bool isKept(const grt_kernel_op &op, uint32_t buffer) {
    using K = kernels::CachedCrossAttention;
    return op.kernel == GRT_KERNEL_CACHED_CROSS_ATTENTION &&
           (buffer == K::k || buffer == K::v);
  }

  void read(const grt_buffer &buffer) {
    if (buffer.region == GRT_REGION_DATA)
      return take(isSource(buffer), !isSource(buffer));
    if (buffer.region == GRT_REGION_INPUT) {
      // The first call that reads it knows which it is.
      if (!made.meets(buffer) && !computed.meets(buffer))
        (begins ? made : computed).add(buffer);
    }
    take(made.meets(buffer), computed.meets(buffer));
  }

  void take(bool isMade, bool isComputed) {
    readsTokens |= isComputed;
    readsSource |= isMade;
    if (begins && isComputed)
      wrong = "it runs where texts begin, expected it to read nothing that is "
              "computed with every token";
    else if (!begins && isMade)
      wrong = "it runs with every token, expected it to read nothing that is "
              "made where texts begin alone";
  }

  void write(const grt_buffer &buffer) {
    made.remove(buffer);
    computed.remove(buffer);
    // Values of parameters alone are there for all layers that read them.
    if (begins && !readsSource && buffer.region == GRT_REGION_OUTPUT)
      wrong = "it runs where texts begin, expected it to read what an encoder "
              "reads, as others take what it makes";
    if (begins)
      made.add(buffer);
    else if (readsTokens)
      computed.add(buffer);
  }

  /// True of a datum that an encoder reads.
  bool isSource(const grt_buffer &buffer) const {
    const Datum *datum = datumOf(manifest, role, layer, buffer);
    return datum && (datum == manifest.tokens() || datum->kind == "mask");
  }

  const Manifest &manifest;
  const ProgramFile &program;
  const Role &role;
  const Layer &layer;
  std::string wrong;
  /// Bytes written where texts begin alone, and those computed with each token.
  Bytes made, computed;
  bool begins = false, readsTokens = false,
       readsSource = false; ///< of the call
};

/// True if a function has a call that is to run where texts begin.
bool waits(const ProgramFile &program, int function) {
  if (function < 0)
    return false;
  for (const gvx::Call &call : program.calls(size_t(function)))
    if (call.when != gvx::CallWhen::Always)
      return true;
  return false;
}

} // namespace

std::string wrongTextBegins(const Manifest &manifest,
                            const ProgramFile &program) {
  const bool mayWait = manifest.datumOf("source_rows") != nullptr;
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers) {
      for (int function : {layer.forward, layer.recompute, layer.backward,
                           layer.weight, layer.norm, layer.update})
        if (waits(program, function) && (!mayWait || function != layer.forward))
          return "function '" + manifest.functions[size_t(function)] +
                 "' of layer '" + layer.name +
                 "': expected calls that run in every pass, found one that "
                 "runs where texts begin";
      if (!mayWait || layer.forward < 0)
        continue;
      if (std::string wrong =
              FunctionCheck(manifest, program, role, layer).run();
          !wrong.empty())
        return wrong;
    }
  return "";
}

} // namespace grt
