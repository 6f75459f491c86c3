//===- GRTAttrs.cpp - Attributes of the grt dialect -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The numbers in the comments are those of the constraints in GRTAttrs.td.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/GRT.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::grt;

using EmitError = llvm::function_ref<InFlightDiagnostic()>;

#define GET_ATTRDEF_CLASSES
#include "galvatron/Dialect/GRT/IR/GRTAttrs.cpp.inc"

void GRTDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "galvatron/Dialect/GRT/IR/GRTAttrs.cpp.inc"
      >();
}

LogicalResult ExtentAttr::verify(EmitError emitError, int64_t offset,
                                 int64_t bytes) {
  // (C1)
  if (offset < 0 || bytes < 0)
    return emitError() << "expected an extent without negative numbers, found "
                       << bytes << " bytes at " << offset;
  return success();
}

LogicalResult
ArenaAttr::verify(EmitError emitError, ExtentAttr, ExtentAttr, ExtentAttr,
                  ExtentAttr, ExtentAttr, ExtentAttr, ExtentAttr, ExtentAttr,
                  ExtentAttr, ArrayAttr copies, int64_t homeBytes,
                  ExtentAttr residentParameters, ExtentAttr residentGradients,
                  ExtentAttr residentOptimizer, ExtentAttr received,
                  ExtentAttr sent, DenseI64ArrayAttr window, ExtentAttr,
                  ExtentAttr homeSlots, ExtentAttr awaySlot, ExtentAttr packs,
                  int64_t homeSlotBytes, ArrayAttr frames) {
  // (C1)
  if (copies)
    for (Attribute row : copies)
      if (auto numbers = dyn_cast<DenseI64ArrayAttr>(row);
          !numbers || numbers.size() != 3)
        return emitError()
               << "expected a datum, an offset and a number of bytes as a row "
                  "of 'copies', found "
               << row;
  if (window && window.size() != 3)
    return emitError() << "expected 3 numbers as 'window', found "
                       << window.size();
  // (C2)
  bool hasHome = homeBytes > 0;
  if (homeBytes < 0 || bool(residentParameters) != hasHome ||
      bool(residentGradients) != hasHome)
    return emitError() << "expected resident regions exactly where states have "
                          "their home on the host, found 'home_bytes' "
                       << homeBytes;
  if (residentOptimizer && !hasHome)
    return emitError() << "expected 'resident_optimizer' only where states of "
                          "other layers have their home on the host, found it "
                          "without such states";
  if (homeSlots && !hasHome)
    return emitError()
           << "expected 'home_slots' only where states have their home "
              "on the host, found them without such states";
  if (awaySlot && !homeSlots)
    return emitError()
           << "expected 'away_slot' only with 'home_slots', found it alone";
  // (C3)
  if (received && !sent)
    return emitError()
           << "expected 'received' only with 'sent', found it alone";
  // (C4)
  if (homeSlotBytes < 0)
    return emitError() << "expected slots at home of no negative size, found "
                       << homeSlotBytes;
  // (C5)
  if (bool(packs) != bool(frames))
    return emitError() << "expected 'frames' exactly with 'packs', found one "
                          "without the other";
  if (frames)
    for (Attribute row : frames)
      if (auto numbers = dyn_cast<DenseI64ArrayAttr>(row);
          !numbers || numbers.size() != 7 ||
          llvm::any_of(numbers.asArrayRef(), [](int64_t n) { return n < 0; }))
        return emitError() << "expected seven numbers that are not negative as "
                              "a row of 'frames', found "
                           << row;
  return success();
}

LogicalResult LedgerAttr::verify(EmitError emitError, int64_t parameters,
                                 int64_t gradients, int64_t optimizer,
                                 int64_t activations, int64_t backward,
                                 int64_t communication, int64_t workspace,
                                 int64_t runtime) {
  // (C1)
  for (int64_t bytes : {parameters, gradients, optimizer, activations, backward,
                        communication, workspace, runtime})
    if (bytes < 0)
      return emitError() << "expected no negative bytes in a ledger, found "
                         << bytes;
  return success();
}

LogicalResult ModelAttr::verify(EmitError emitError, StringAttr, ArrayAttr data,
                                StringAttr) {
  // (C1)
  for (Attribute datum : data)
    if (!isa<mlir::galvatron::DataAttr>(datum))
      return emitError() << "expected #galvatron.data as the data of a model, "
                            "found "
                         << datum;
  return success();
}
