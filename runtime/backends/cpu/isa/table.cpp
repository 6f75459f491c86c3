//===- table.cpp - The kernels of one instruction set ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled once per instruction set with GRT_CPU_TABLE naming the result.
//
//===----------------------------------------------------------------------===//

#include "activations.h"
#include "attention.h"
#include "cached.h"
#include "few_rows.h"
#include "loss.h"
#include "patches.h"
#include "positions.h"
#include "products.h"
#include "relative.h"
#include "rms_norm.h"
#include "rotary.h"
#include "rows.h"
#include "update.h"

namespace grt::cpu {
namespace {

template <class T> constexpr KernelTable<T> makeTable() {
  return {gemm<T, Accumulator<T>>,
          gemm<T, T>,
          gemmOfFewRows<T, Accumulator<T>>,
          gemmOfFewRows<T, T>,
          biasAdd<T>,
          biasGrad<T>,
          columnScale<T>,
          columnScaleGrad<T>,
          layerNorm<T>,
          addLayerNorm<T>,
          layerNormGrad<T>,
          rmsNorm<T>,
          rmsNormGrad<T>,
          rotary<T>,
          gatedSilu<T>,
          gatedSiluGrad<T>,
          relu<T>,
          reluGrad<T>,
          gatedGelu<T>,
          gatedGeluGrad<T>,
          softCap<T>,
          softCapGrad<T>,
          round<T>,
          clip<T>,
          clipGrad<T>,
          biasGelu<T>,
          geluGrad<T>,
          attention<T>,
          attentionGrad<T>,
          cachedAttention<T>,
          cachedCrossAttention<T>,
          relativeBias<T>,
          relativeBiasGrad<T>,
          dropout<T>,
          add<T>,
          scale<T>,
          embedding<T>,
          embeddingGrad<T>,
          positionAdd<T>,
          positionGrad<T>,
          patches<T>,
          windows<T>,
          dropPath<T>,
          mean<T>,
          meanGrad<T>,
          transpose<T>,
          softmaxStats<T>,
          crossEntropyGrad<T>,
          optimize<T>,
          sumOfSquares<Accumulator<T>>};
}

} // namespace

const KernelTables GRT_CPU_TABLE = {GRT_CPU_ISA, makeTable<float>(),
                                    makeTable<double>(), makeTable<BF16>()};

} // namespace grt::cpu
