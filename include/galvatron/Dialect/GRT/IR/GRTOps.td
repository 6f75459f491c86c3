//===- GRTOps.td - Operations of the grt dialect -----------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GRT_IR_GRTOPS_TD
#define GALVATRON_DIALECT_GRT_IR_GRTOPS_TD

include "galvatron/Dialect/GRT/IR/GRTAttrs.td"
include "galvatron/Dialect/GRT/IR/GRTDialect.td"
include "galvatron/Dialect/GRT/IR/GRTEnums.td"
include "galvatron/Dialect/Galvatron/IR/GalvatronAttrs.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/CommonAttrConstraints.td"
include "mlir/IR/CommonTypeConstraints.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ViewLikeInterface.td"

class GRT_Op<string mnemonic, list<Trait> traits = []>
    : Op<GRT_Dialect, mnemonic, traits>;

/// Row-major, contiguous, of known size; see isBufferType().
def GRT_Buffer : Type<
    CPred<"::mlir::grt::isBufferType($_self)">,
    "static row-major memref of f32, f64, bf16, i32 or i8", "::mlir::MemRefType">;

/// I64Attr read as a signed number.
def GRT_Int : TypedSignlessIntegerAttrBase<I64, "int64_t", "64-bit integer">;
def GRT_Bytes : ConfinedAttr<GRT_Int, [IntNonNegative]>;

//===----------------------------------------------------------------------===//
// Layer functions
//===----------------------------------------------------------------------===//

def GRT_FuncOp : GRT_Op<"func", [
    Symbol, IsolatedFromAbove, NoRegionArguments,
    SingleBlockImplicitTerminator<"ReturnOp">]> {
  let summary = "One layer in one direction under one strategy";
  let description = [{
    A straight sequence of kernels, collectives and lifetime marks on buffers.
    It has no arguments: everything that differs between two layers that share
    it is bound to regions by the executor before the call.

    `transient_bytes` (set by `galvatron-allocate-arena`), `stash_bytes`,
    `input_bytes`, `output_bytes` and `gathered_bytes` are the sizes of the
    regions of that name that the function needs. `gathered` holds sharded
    parameters in full, the owned ones and behind them the borrowed ones: where
    there are streams the executor gathers them before the call.

    Constraints:
    - (C1) a transient buffer that is used is begun once and ended once, and
      all its uses lie between.
    - (C2) a stash buffer is begun at most once and ended at most once, its
      uses lie after the begin and before the end.
    - (C3) buffers of the regions transient, stash, input, output and gathered
      end within the function's bytes for that region, where those are given.
    - (C4) an event is recorded once, then waited for, and only on other
      streams.
    - (C5) events order what must not run at the same time: uses of the same
      bytes on two streams, unless both read; lifetime marks, which stand on
      `compute`, and uses of the buffer elsewhere; collectives over one axis.
    - (C6) another stream's first operation comes after the function's start,
      and its last before the function's end, on `compute`.
    - (C7) nothing writes to gathered parameters.
    - (C8) the name is not empty.

    ```mlir
    grt.func @block.tp2.b4.forward attributes {stash_bytes = 0 : i64} {
      %x = grt.buffer input at 0 : memref<4x64x768xf32>
      %y = grt.buffer output at 0 : memref<4x64x768xf32>
      grt.kernel gelu(%x, %y) ints [196608, 1] : memref<4x64x768xf32>, memref<4x64x768xf32>
      grt.return
    }
    ```
  }];
  let arguments = (ins
    Galvatron_NameAttr:$sym_name,
    OptionalAttr<StrAttr>:$sym_visibility,
    OptionalAttr<GRT_Bytes>:$transient_bytes,
    OptionalAttr<GRT_Bytes>:$stash_bytes,
    OptionalAttr<GRT_Bytes>:$input_bytes,
    OptionalAttr<GRT_Bytes>:$output_bytes,
    OptionalAttr<GRT_Bytes>:$gathered_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name)>];
  let hasRegionVerifier = 1;
}

def GRT_ReturnOp : GRT_Op<"return", [Terminator, HasParent<"FuncOp">]> {
  let summary = "End of a layer function";
  let assemblyFormat = "attr-dict";
}

def GRT_BufferOp : GRT_Op<"buffer", [
    HasParent<"FuncOp">,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Names a buffer in a region";
  let description = [{
    `at N` is the byte offset from the region's base. It may be missing on
    transient buffers until `galvatron-allocate-arena` gives it.

    Constraints:
    - (C1) every region but transient needs an offset.
    - (C2) the offset is not negative and a multiple of 64.

    ```mlir
    %w = grt.buffer parameter at 4096 : memref<768x3x384xf32>
    %t = grt.buffer transient : memref<4x64x768xf32>
    ```
  }];
  let arguments = (ins GRT_RegionAttr:$region, OptionalAttr<GRT_Int>:$offset);
  let results = (outs GRT_Buffer:$result);
  let assemblyFormat = [{
    $region (`at` $offset^)? attr-dict `:` type($result)
  }];
  let builders = [OpBuilder<(ins "::mlir::MemRefType":$type, "MemoryRegion":$region,
                                 "std::optional<int64_t>":$offset)>];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Bytes of the buffer, not rounded up.
    int64_t getByteSize();
  }];
}

def GRT_ViewOp : GRT_Op<"view", [
    Pure, HasParent<"FuncOp">, DeclareOpInterfaceMethods<ViewLikeOpInterface>]> {
  let summary = "A part of another buffer";
  let description = [{
    `offset` is in bytes from the start of the source. Columns of a packed
    buffer are viewed this way too: the view then starts inside a row, and the
    kernel is told the row stride.

    Constraints:
    - (C1) the view lies inside its source.
    - (C2) the offset is a multiple of the element size.

    ```mlir
    %k = grt.view %qkv at 1536 : memref<4x64x3x384xf32> to memref<4x64x384xf32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$source, GRT_Int:$offset);
  let results = (outs GRT_Buffer:$result);
  let assemblyFormat = [{
    $source `at` $offset attr-dict `:` type($source) `to` type($result)
  }];
  let hasVerifier = 1;
}

class GRT_LifetimeOp<string mnemonic> : GRT_Op<mnemonic, [
    HasParent<"FuncOp">, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let arguments = (ins GRT_Buffer:$buffer);
  let assemblyFormat = "$buffer attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

def GRT_BeginOp : GRT_LifetimeOp<"begin"> {
  let summary = "The buffer's bytes are live from here";
  let description = [{
    Drives the placement of transient buffers and the runtime's count of live
    bytes.

    Constraints:
    - (C1) the operand is the result of a `grt.buffer` of region stash or
      transient.
  }];
}

def GRT_EndOp : GRT_LifetimeOp<"end"> {
  let summary = "The buffer's bytes are dead from here";
  let description = [{
    Constraints:
    - (C1) the operand is the result of a `grt.buffer` of region stash or
      transient.
  }];
}

def GRT_KernelOp : GRT_Op<"kernel", [
    HasParent<"FuncOp">, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "One call of a runtime kernel";
  let description = [{
    Operands, integers and reals are those that the runtime's list of kernels,
    `runtime/include/grt/kernels.def`, has of the kernel, in its order. What is
    checked here is checked again when a program is loaded.

    Constraints:
    - (C1) as many buffers as the kernel takes.
    - (C2) as many integers and reals as the kernel takes.
    - (C3) element types: one compute type in all buffers that the list says so
      of, its accumulators f64 with f64 and else f32; tokens, labels and masks
      i32, the loss f64, scratch that a call may lack i8.
    - (C4) every buffer has the elements that the integers imply, no more and no
      less, and rows that end where they say (scratch: at least what the
      backend asks for).
    - (C5) integers are in the list's ranges: sizes are not negative, flags are
      0 or 1 (`acc`: 0, 1 or 2).
    - (C6) the kernel's rules in the list hold.

    ```mlir
    grt.kernel layer_norm(%x, %g, %b, %y, %s) ints [256, 768] reals [1.0e-5]
      {label = "ln_1"} : memref<4x64x768xf32>, memref<768xf32>, memref<768xf32>,
                         memref<4x64x768xf32>, memref<4x64x2xf32>
    ```
  }];
  let arguments = (ins
    GRT_KernelAttr:$kernel,
    Variadic<GRT_Buffer>:$buffers,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$ints,
    DefaultValuedAttr<DenseF64ArrayAttr, "{}">:$reals,
    OptionalAttr<StrAttr>:$label);
  let assemblyFormat = [{
    $kernel `(` $buffers `)` (`ints` $ints^)? (`reals` custom<Reals>($reals)^)? attr-dict
    `:` type($buffers)
  }];
  let builders = [OpBuilder<(ins "Kernel":$kernel, "::mlir::ValueRange":$buffers,
                                 "::llvm::ArrayRef<int64_t>":$ints,
                                 "::llvm::ArrayRef<double>":$reals,
                                 CArg<"::llvm::StringRef", "{}">:$label)>];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Collectives of a layer's strategy
//===----------------------------------------------------------------------===//

/// The queue that the work is put on; see grt.record.
def GRT_OnStream : DefaultValuedAttr<GRT_StreamAttr, "Stream::Compute">;

class GRT_CollectiveOp<string mnemonic> : GRT_Op<mnemonic, [
    HasParent<"FuncOp">, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let hasVerifier = 1;
}

def GRT_AllReduceOp : GRT_CollectiveOp<"all_reduce"> {
  let summary = "Sums a buffer over the group of an axis, in place";
  let description = [{
    Constraints:
    - (C1) the elements are floating point.

    ```mlir
    grt.all_reduce %t over tp {label = "c_proj"} : memref<4x64x768xf32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$buffer, GRT_AxisAttr:$axis,
                       OptionalAttr<StrAttr>:$label, GRT_OnStream:$stream);
  let assemblyFormat = [{
    $buffer `over` $axis (`on` $stream^)? attr-dict `:` type($buffer)
  }];
}

def GRT_AllGatherOp : GRT_CollectiveOp<"all_gather"> {
  let summary = "Concatenates the members' buffers by their index on the axis";
  let description = [{
    Constraints:
    - (C1) both buffers have one element type.
    - (C2) the destination holds a whole number (>= 2) of sources.

    ```mlir
    grt.all_gather %shard to %full over sdp : memref<1024xf32> to memref<4096xf32>
    grt.all_gather %shard to %full over sdp on gather : memref<1024xf32> to memref<4096xf32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$source, GRT_Buffer:$destination,
                       GRT_AxisAttr:$axis, OptionalAttr<StrAttr>:$label,
                       GRT_OnStream:$stream);
  let assemblyFormat = [{
    $source `to` $destination `over` $axis (`on` $stream^)? attr-dict
    `:` type($source) `to` type($destination)
  }];
}

def GRT_ReduceScatterOp : GRT_CollectiveOp<"reduce_scatter"> {
  let summary = "Sums over the group; each member keeps its slice";
  let description = [{
    `acc` says what happens to values already in the destination: 0 overwrite,
    1 add, 2 overwrite on the first micro-batch of a step and add on later ones.
    Unless it is 0 the member's own slice of the source may be overwritten.

    Constraints:
    - (C1) both buffers have one floating-point element type.
    - (C2) the source holds a whole number (>= 2) of destinations.
    - (C3) acc is 0, 1 or 2.

    ```mlir
    grt.reduce_scatter %full to %shard over sdp acc 2 : memref<4096xf32> to memref<1024xf32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$source, GRT_Buffer:$destination,
                       GRT_AxisAttr:$axis,
                       DefaultValuedAttr<GRT_Int, "0">:$acc,
                       OptionalAttr<StrAttr>:$label, GRT_OnStream:$stream);
  let assemblyFormat = [{
    $source `to` $destination `over` $axis (`acc` $acc^)? (`on` $stream^)?
    attr-dict
    `:` type($source) `to` type($destination)
  }];
}

def GRT_AllToAllOp : GRT_CollectiveOp<"all_to_all"> {
  let summary = "Exchanges equal blocks between the members of an axis";
  let description = [{
    The source is as many equal blocks as the axis has members, the destination
    too: block `j` of member `i`'s source becomes block `i` of member `j`'s
    destination.

    Constraints:
    - (C1) both buffers have one element type and one number of elements.

    ```mlir
    grt.all_to_all %rows to %heads over cp : memref<4x64x64xf32> to memref<256x64xf32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$source, GRT_Buffer:$destination,
                       GRT_AxisAttr:$axis, OptionalAttr<StrAttr>:$label,
                       GRT_OnStream:$stream);
  let assemblyFormat = [{
    $source `to` $destination `over` $axis (`on` $stream^)? attr-dict
    `:` type($source) `to` type($destination)
  }];
}

def GRT_AllReduceMaxOp : GRT_CollectiveOp<"all_reduce_max"> {
  let summary = "Takes the largest of a buffer over the group, in place";
  let description = [{
    Every element becomes the largest of the members', the same bits on all.
    Elements are floating point or integers.

    ```mlir
    grt.all_reduce_max %t over tp {label = "scale"} : memref<64xf32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$buffer, GRT_AxisAttr:$axis,
                       OptionalAttr<StrAttr>:$label, GRT_OnStream:$stream);
  let assemblyFormat = [{
    $buffer `over` $axis (`on` $stream^)? attr-dict `:` type($buffer)
  }];
  let hasVerifier = 0;
}

def GRT_AllToAllCountsOp : GRT_CollectiveOp<"all_to_all_counts"> {
  let summary = "Exchanges blocks of counted units between the members of an axis";
  let description = [{
    As `grt.all_to_all`, with blocks of their own sizes: member `i` sends
    `counts[i][j]` units of `unit` bytes, 0 or more, to member `j`. Blocks stand
    one behind the other in both buffers, which have the sizes that they may need
    at most. The counts are the same on all members, and the host reads them at
    the call.

    Constraints:
    - (C1) both buffers have one element type.
    - (C2) `unit` is a positive number of whole elements.
    - (C3) the counts are i32, a square of at least 2 members.

    ```mlir
    grt.all_to_all_counts %rows to %owned by %counts units 256 over tp
      : memref<64x64xf32> to memref<128x64xf32> by memref<4x4xi32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$source, GRT_Buffer:$destination,
                       GRT_Buffer:$counts, GRT_Int:$unit, GRT_AxisAttr:$axis,
                       OptionalAttr<StrAttr>:$label, GRT_OnStream:$stream);
  let assemblyFormat = [{
    $source `to` $destination `by` $counts `units` $unit `over` $axis
    (`on` $stream^)? attr-dict
    `:` type($source) `to` type($destination) `by` type($counts)
  }];
}

def GRT_ShiftOp : GRT_CollectiveOp<"shift"> {
  let summary = "Passes a buffer on to a member of an axis, around it";
  let description = [{
    The destination becomes the source of the member whose index on the axis is
    `distance` below, around the axis.

    Constraints:
    - (C1) both buffers have one element type and one number of elements.
    - (C2) the distance is positive.

    ```mlir
    grt.shift %k to %k2 by 1 over cp : memref<64x64xf32> to memref<64x64xf32>
    ```
  }];
  let arguments = (ins GRT_Buffer:$source, GRT_Buffer:$destination,
                       GRT_Int:$distance, GRT_AxisAttr:$axis,
                       OptionalAttr<StrAttr>:$label, GRT_OnStream:$stream);
  let assemblyFormat = [{
    $source `to` $destination `by` $distance `over` $axis (`on` $stream^)?
    attr-dict `:` type($source) `to` type($destination)
  }];
}

//===----------------------------------------------------------------------===//
// Order between streams
//===----------------------------------------------------------------------===//

class GRT_EventOp<string mnemonic> : GRT_Op<mnemonic, [
    HasParent<"FuncOp">, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let arguments = (ins GRT_Int:$event, GRT_StreamAttr:$stream);
  let assemblyFormat = "$event `on` $stream attr-dict";
  let hasVerifier = 1;
}

def GRT_RecordOp : GRT_EventOp<"record"> {
  let summary = "Marks a point of a stream's queue";
  let description = [{
    Operations stand in the order in which they are put on their streams. A
    stream works its queue off in order; between two streams nothing is ordered
    but by events: what follows a `grt.wait` on its stream runs after what stood
    on the recording stream before the `grt.record`. Events are numbered per
    function.

    Constraints:
    - (C1) the number is 0 to 63.

    ```mlir
    grt.record 0 on compute
    grt.wait 0 on gather
    grt.all_gather %shard to %full over sdp on gather : memref<1024xf32> to memref<4096xf32>
    grt.record 1 on gather
    grt.wait 1 on compute
    ```
  }];
}

def GRT_WaitOp : GRT_EventOp<"wait"> {
  let summary = "What follows on the stream runs after the event";
  let description = [{
    Constraints:
    - (C1) the number is 0 to 63.
  }];
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

def GRT_ExchangeOp : GRT_Op<"exchange", [Symbol]> {
  let summary = "A fixed set of transfers between ranks";
  let description = [{
    Materialises one reshard plan. A transfer is
    `[source rank, destination rank, source unit, destination unit, units]`;
    ranks are global, a unit is one sample of the boundary tensor
    (`bytes_per_unit` bytes), counted in the rank's local buffer. A transfer
    whose ranks are equal is a local copy.

    Of several tensors that move together `tensors` has a row each, `[bytes of a
    sample, offset in the source's set, offset in the destination's set]`;
    `bytes_per_unit` is then the sum of their bytes.

    Constraints:
    - (C1) a transfer has five numbers, none negative.
    - (C2) units are at least 1.
    - (C3) no unit of a destination is written twice.
    - (C4) the name is not empty.
    - (C5) a row of `tensors` has three numbers, none negative, and their bytes
      add up to `bytes_per_unit`.

    ```mlir
    grt.exchange @reshard.0 bytes_per_unit 196608 transfers [[0, 1, 0, 0, 2]]
    ```
  }];
  let arguments = (ins Galvatron_NameAttr:$sym_name, GRT_Bytes:$bytes_per_unit,
                       DenseI64ArrayAttr:$transfers,
                       OptionalAttr<DenseI64ArrayAttr>:$tensors);
  let assemblyFormat = [{
    $sym_name `bytes_per_unit` $bytes_per_unit
    `transfers` custom<Transfers>($transfers) attr-dict
  }];
  let hasVerifier = 1;
}

def GRT_RoleOp : GRT_Op<"role", [
    Symbol, NoTerminator, SingleBlock, NoRegionArguments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "What the ranks of one pipeline stage hold";
  let description = [{
    `devices` are global ranks; the position in the list is the local rank.
    `slots` is the number of stash slots, that is of micro-batches in flight.
    The layers are one chunk, of the stage's number, and the exchanges are its
    own; or every run of layers that is a chunk has a `grt.chunk` in front, which
    names its exchanges and slots, and `slots` is their sum.
    `arena` and `ledger` are set by `galvatron-allocate-arena`: the byte ranges
    `[offset, bytes]` of the arena's regions, and the arena's bytes by purpose.
    With `waiting_places` its chunks are packs (`#galvatron.plan`): a message that
    comes waits in one of so many places.
    A `window` in `arena`, `[offset, bytes, stride]`, is memory mapped once
    behind every slot (docs/manifest.md).

    Constraints:
    - (C1) at least one device, none twice, none negative.
    - (C2) at least one slot, or it has `waiting_places`.
    - (C3) holds `grt.layer` and `grt.chunk` ops only, at least one layer, with
      ascending indices; those of chunks that run forward only ascend by
      themselves.
    - (C4) every exchange named is a `grt.exchange`.
    - (C5) the name is not empty.
    - (C6) with chunks: the first operation is one, each has a layer, their
      numbers ascend, their slots add up to `slots`, and the role itself names
      no exchange.
  }];
  let arguments = (ins
    Galvatron_NameAttr:$sym_name, GRT_Int:$stage, DenseI64ArrayAttr:$devices,
    GRT_Int:$slots,
    OptionalAttr<FlatSymbolRefAttr>:$send_activation,
    OptionalAttr<FlatSymbolRefAttr>:$recv_activation,
    OptionalAttr<FlatSymbolRefAttr>:$send_gradient,
    OptionalAttr<FlatSymbolRefAttr>:$recv_gradient,
    OptionalAttr<GRT_Bytes>:$arena_bytes,
    OptionalAttr<GRT_Bytes>:$slot_bytes,
    OptionalAttr<GRT_ArenaAttr>:$arena,
    OptionalAttr<GRT_LedgerAttr>:$ledger,
    OptionalAttr<GRT_Int>:$waiting_places);
  let regions = (region SizedRegion<1>:$layers);
  let assemblyFormat = [{
    $sym_name `stage` $stage `devices` $devices `slots` $slots
    attr-dict-with-keyword $layers
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def GRT_ChunkOp : GRT_Op<"chunk", [
    HasParent<"RoleOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Begins a run of layers that a role runs as one";
  let description = [{
    The chunk's layers stand behind it, up to the next one. Its number counts
    the chunks of all roles in the order of the model: its neighbours there,
    which are other roles' chunks, share its exchanges.
    Of packs those that run `forward_only` have the first numbers, and layers
    that others run backward. A chunk that recomputes gets what goes into it from
    the chunk `stash_from`, by the exchange `recv_stash`, and has a slot at home
    for every micro-batch; other packs have none.

    Constraints:
    - (C1) the number is 0 to 65535, and there is at least one slot, or the role
      has `waiting_places`.
    - (C2) every exchange named is a `grt.exchange`.
    - (C3) `stash_from` and `recv_stash` are there together, and not on one that
      runs `forward_only`.

    ```mlir
    grt.chunk 3 slots 2 {recv_activation = @cut2.activation, send_gradient = @cut2.gradient}
    ```
  }];
  let arguments = (ins
    GRT_Int:$number, GRT_Int:$slots,
    OptionalAttr<FlatSymbolRefAttr>:$send_activation,
    OptionalAttr<FlatSymbolRefAttr>:$recv_activation,
    OptionalAttr<FlatSymbolRefAttr>:$send_gradient,
    OptionalAttr<FlatSymbolRefAttr>:$recv_gradient,
    UnitAttr:$forward_only, OptionalAttr<GRT_Int>:$stash_from,
    OptionalAttr<FlatSymbolRefAttr>:$recv_stash);
  let assemblyFormat = "$number `slots` $slots attr-dict";
  let hasVerifier = 1;
}

def GRT_LayerOp : GRT_Op<"layer", [
    HasParent<"RoleOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "One layer of a role";
  let description = [{
    Names the layer functions and says what the layer holds on one rank.

    - `index`: the layer's number in the model.
    - `dropout_key`: the number that masks of dropout are keyed by, where it is
      not `index`.
    - `samples`: local samples of one micro-batch.
    - `tensors`: a `#galvatron.flat_tensor` for every parameter of its functions. Group 1 holds
      tensors borrowed from the layer that owns them.
    - `groups`: the two `#galvatron.flat_group`, owned and borrowed, and behind
      them, if any are, the two of parameters that are not trained.
    - `data`: the names of the model's data that the layer reads, in the order
      in which its functions number them.
    - `forward_reshard` runs after forward and fills the next layer's input;
      `backward_reshard` runs after backward and fills the previous layer's
      incoming gradient.
    - `forward_ahead`: what the forward function has in `gathered` is gathered
      while the layer in front runs forward, on the stream `gather`;
      `backward_ahead`: what recompute and backward have there, while the layer
      behind runs backward. Without, the gather comes between the two.
    - `gather_awaits_sums`, `backward_awaits_sums`, `reshard_awaits_sums`: where
      gradients are reduced behind backward passes, that gather, the backward
      functions, or `backward_reshard`, wait for the reductions begun so far.
    - `input_bytes`: what it holds first of the tensors alive in front of it: all
      of them where it begins the role or has another layout than the layer in
      front, else those that that layer makes.
    - `front_bytes`, `behind_bytes`: of all tensors alive in front of it and
      behind it, in its layout; without, `input_bytes` and `output_bytes`. A set
      has the results of the layer in front first, then what passes it, each at
      a multiple of 64 bytes.
    - `inputs`: where its functions find their inputs, a row each: the layer
      of the role that holds the tensor, the offset there, the offset in the set
      in front, bytes. Without, they are all that it holds, in order.
    - `passes`: the tensors in both sets, a row each: holder, offset there,
      offset in front, offset behind, bytes, and 1 if it is an operand too.
    - `outputs`: bytes of each of its results, of several.
    - `weight`: the weight part of a backward pass that is split; `backward` is
      then its input part.
    - `placement` is set by `galvatron-allocate-arena`.

    Constraints:
    - (C1) at least one sample.
    - (C2) `data` are names of the `data` of the module's `grt.model`, where it
      has one.
    - (C3) forward, recompute, backward, weight, update and norm name a
      `grt.func`, reshards a `grt.exchange`.
    - (C4) `recompute` is there only if the strategy checkpoints.
    - (C5) two groups, and every tensor lies inside its group.
    - (C6) the strategy covers as many devices as the role has.
    - (C7) a row of `inputs` has four numbers, one of `passes` six, none
      negative; holders are the layer itself or stand in front of it; rows end
      within `front_bytes` and `behind_bytes`.
    - (C8) `weight` is there only without `recompute`.
    - (C9) every tensor names a `galvatron.parameter` of the module and is
      looked at as so many elements.
    - (C10) segments of kernel calls in the update and norm functions are
      tensors that the layer owns.
  }];
  let arguments = (ins
    StrAttr:$layer_name, GRT_Int:$index, Galvatron_StrategyAttr:$strategy, GRT_Int:$samples,
    FlatSymbolRefAttr:$forward,
    OptionalAttr<FlatSymbolRefAttr>:$recompute,
    FlatSymbolRefAttr:$backward,
    OptionalAttr<FlatSymbolRefAttr>:$weight,
    OptionalAttr<FlatSymbolRefAttr>:$update,
    OptionalAttr<FlatSymbolRefAttr>:$norm,
    Galvatron_FlatTensorsAttr:$tensors,
    Galvatron_FlatGroupsAttr:$groups,
    GRT_Bytes:$input_bytes, GRT_Bytes:$output_bytes, GRT_Bytes:$stash_bytes,
    DefaultValuedAttr<GRT_Bytes, "0">:$recompute_stash_bytes,
    OptionalAttr<GRT_Bytes>:$front_bytes, OptionalAttr<GRT_Bytes>:$behind_bytes,
    OptionalAttr<DenseI64ArrayAttr>:$inputs,
    OptionalAttr<DenseI64ArrayAttr>:$passes,
    OptionalAttr<DenseI64ArrayAttr>:$outputs,
    OptionalAttr<StrArrayAttr>:$data,
    OptionalAttr<FlatSymbolRefAttr>:$forward_reshard,
    OptionalAttr<FlatSymbolRefAttr>:$backward_reshard,
    UnitAttr:$forward_ahead, UnitAttr:$backward_ahead,
    UnitAttr:$gather_awaits_sums, UnitAttr:$backward_awaits_sums,
    UnitAttr:$reshard_awaits_sums,
    OptionalAttr<GRT_PlacementAttr>:$placement,
    OptionalAttr<GRT_Int>:$dropout_key);
  let assemblyFormat = "$layer_name attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Bytes of all tensors alive in front of the layer, or behind it.
    int64_t getFront() { return getFrontBytes().value_or(getInputBytes()); }
    int64_t getBehind() { return getBehindBytes().value_or(getOutputBytes()); }
    /// The rows of `inputs` and `passes`.
    static constexpr size_t kInputRow = 4, kPassRow = 6;
    ::llvm::ArrayRef<int64_t> getInputRows() {
      return getInputs() ? *getInputs() : ::llvm::ArrayRef<int64_t>();
    }
    ::llvm::ArrayRef<int64_t> getPassRows() {
      return getPasses() ? *getPasses() : ::llvm::ArrayRef<int64_t>();
    }
  }];
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

def GRT_ScheduleOp : GRT_Op<"schedule", [
    Symbol, NoTerminator, SingleBlock, NoRegionArguments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The tasks of a role, part by part";
  let description = [{
    Constraints:
    - (C1) `role` names a `grt.role`.
    - (C2) holds `grt.part` ops only, each part at most once, in the order of
      the C ABI.
    - (C3) a task's slot is one of the role's slots, and the chunks that it
      names are the role's.
    - (C4) the name is not empty.
  }];
  let arguments = (ins Galvatron_NameAttr:$sym_name, FlatSymbolRefAttr:$role);
  let regions = (region SizedRegion<1>:$parts);
  let assemblyFormat = "$sym_name `role` $role attr-dict-with-keyword $parts";
  let hasRegionVerifier = 1;
}

def GRT_PartOp : GRT_Op<"part", [
    HasParent<"ScheduleOp">, NoTerminator, SingleBlock, NoRegionArguments]> {
  let summary = "One part of a schedule";
  let description = [{
    Constraints:
    - (C1) holds `grt.task` ops only.
  }];
  let arguments = (ins GRT_PartAttr:$part);
  let regions = (region SizedRegion<1>:$tasks);
  let assemblyFormat = "$part attr-dict-with-keyword $tasks";
  let hasRegionVerifier = 1;
}

def GRT_TaskOp : GRT_Op<"task", [HasParent<"PartOp">]> {
  let summary = "One task of a role";
  let description = [{
    A transfer is one grouped operation of up to four messages; the numbers are
    micro-batches, `slot` is the stash slot of the received activation. Where the
    role has several chunks, `chunk` is the one that a task runs, and a transfer
    has `chunks`: those of its messages, in the order sent activation, sent
    gradient, received activation, received gradient, sent stash, received
    stash. Where chunks are packs `peers` are those at the other ends; without,
    they are the neighbours. A stash's `slot` is the receiver's at home, and that
    of another message or pass of packs the place in which it waits.
    Micro-batches are those of
    the batch that the part is run for; a forward task of a later one says by its
    `generation` how many batches behind it that is, a transfer by `generations`,
    one for every message. With `sync_behind` the all-reduce of a layer's
    gradients over its dp axis starts behind the layer's backward function, on
    the stream `gradient`, and `sync_gradients` only waits for it. A backward
    pass that is split is `backward_input` and `backward_weight`; the former
    runs the layers' `backward` functions, the latter their `weight` functions.
    A swap brings parameters, or a sum of gradients that goes on, of a chunk from
    their home on the host to where its functions find them, or with `out`
    gradients home; `activations` are what forward keeps of a micro-batch, whose
    `slot` is then the one at home. Of a pack that is updated on the device
    `optimizer` state comes, and goes home with the parameters. On devices with memory of their own a swap
    is `on` a stream, `in` or `out`; before a task its stream waits for the events
    `after`, and `records` one behind it (Schedule/SwapOrder.h).

    Constraints:
    - (C1) tasks that run layers have a micro-batch and a slot.
    - (C2) a transfer has at least one message.
    - (C3) only a transfer sends or receives.
    - (C4) a received activation or stash has a slot.
    - (C5) no number is negative; the slot is below 65536.
    - (C6) only backward and backward_weight have `sync_behind`.
    - (C7) only tasks that run layers, sync_gradients, update and swap have a
      `chunk`, and only a transfer has `chunks` and `peers`: one for every
      message.
    - (C9) only a swap has `out`, `parameters`, `gradients`, `activations` and
      `optimizer`; with `out` it has `gradients` alone, `activations` alone, or
      `parameters` and `optimizer`, else `activations` alone, `optimizer` alone,
      or one of the others at least. With `activations` it has a micro-batch and
      a slot.
    - (C8) only forward has a `generation`, and only a transfer `generations`:
      one for every message. They are from 0 to 255.
    - (C10) only a swap is `on` a stream, `in` or with `out` the stream `out`;
      events are from 1 to 32, and a task waits for three of them at most.

    ```mlir
    grt.task forward micro_batch 0 slot 0
    grt.task transfer send_activation 0 recv_gradient 0
    grt.task forward chunk 2 micro_batch 1 slot 0
    grt.task transfer send_activation 1 recv_activation 0 slot 0 chunks [0, 2]
    grt.task forward micro_batch 0 slot 1 generation 1
    grt.task transfer send_activation 0 recv_gradient 3 generations [1, 0]
    grt.task swap chunk 2 parameters
    grt.task swap chunk 2 out gradients
    grt.task swap chunk 2 out gradients on out after [1] records 2
    grt.task swap chunk 2 micro_batch 1 slot 1 out activations
    grt.task swap chunk 2 out parameters optimizer
    grt.task transfer send_activation 0 recv_gradient 1 slot 2 chunks [0, 5] peers [1, 6]
    grt.task transfer recv_stash 0 slot 0 chunks [5] peers [0]
    ```
  }];
  let arguments = (ins
    GRT_TaskKindAttr:$kind, OptionalAttr<GRT_Int>:$chunk,
    OptionalAttr<GRT_Int>:$micro_batch,
    OptionalAttr<GRT_Int>:$send_activation,
    OptionalAttr<GRT_Int>:$recv_activation,
    OptionalAttr<GRT_Int>:$send_gradient,
    OptionalAttr<GRT_Int>:$recv_gradient,
    OptionalAttr<GRT_Int>:$slot, OptionalAttr<DenseI64ArrayAttr>:$chunks,
    OptionalAttr<GRT_Int>:$generation,
    OptionalAttr<DenseI64ArrayAttr>:$generations, UnitAttr:$sync_behind,
    UnitAttr:$out, UnitAttr:$parameters, UnitAttr:$gradients,
    UnitAttr:$activations, UnitAttr:$optimizer,
    OptionalAttr<GRT_Int>:$send_stash, OptionalAttr<GRT_Int>:$recv_stash,
    OptionalAttr<DenseI64ArrayAttr>:$peers,
    OptionalAttr<GRT_StreamAttr>:$stream,
    OptionalAttr<DenseI64ArrayAttr>:$after, OptionalAttr<GRT_Int>:$records);
  let assemblyFormat = [{
    $kind (`chunk` $chunk^)? (`micro_batch` $micro_batch^)?
    (`send_activation` $send_activation^)?
    (`recv_activation` $recv_activation^)?
    (`send_gradient` $send_gradient^)?
    (`recv_gradient` $recv_gradient^)?
    (`send_stash` $send_stash^)? (`recv_stash` $recv_stash^)?
    (`slot` $slot^)? (`chunks` $chunks^)? (`peers` $peers^)? (`generation` $generation^)?
    (`generations` $generations^)? (`sync_behind` $sync_behind^)?
    (`out` $out^)? (`parameters` $parameters^)? (`gradients` $gradients^)?
    (`activations` $activations^)? (`optimizer` $optimizer^)? (`on` $stream^)? (`after` $after^)?
    (`records` $records^)? attr-dict
  }];
  let hasVerifier = 1;
}

#endif // GALVATRON_DIALECT_GRT_IR_GRTOPS_TD
