//===- WholeLayers.h - Layers that cannot be divided ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prices and weights (SharedHomes.h) bound a problem of shared homes as if
// layers could be divided among homes. This bound counts them.
//
// Let K layers be of one kind: they have the same options on every home. Take a
// solution that fits and whose longest row is T, n_h of these layers on home h,
// and a row r. In r a layer of the kind on h takes at least
//
//     t_o = min_(c on h) F_r(c) f_o + B_r(c) b_o + S_r(c) g_o + L_r(c) e_o
//
// with an option o, and of the home's memory at least
//
//     m_o = state_o + (slots of h / chunks on h) kept_o,
//
// as the largest chunk keeps no less than their mean. All of them fit, so their
// mean of m is at most E_h / n_h, and their mean of t at least u_hr(E_h / n_h),
// where u_hr is the lower convex hull of the points (m_o, t_o), made monotone.
// The other terms of the row sum up to at least
//
//     d_hr = the times of the model's first and last layer on the chunks that
//            surely have them, of one layer of every other chunk that is not on
//            h, and of the cuts.
//
// So n_h u_hr(E_h / n_h) + d_hr <= T for all r. Let N_h(T) be the largest n_h
// that allows it. It grows with T, and sum_h N_h(T) >= K, so that no T with a
// smaller sum is that of a solution: the least T with a sum of K is a bound.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_WHOLELAYERS_H
#define GALVATRON_SEARCH_WHOLELAYERS_H

#include "galvatron/Search/SharedHomes.h"

namespace galvatron {

/// The bound above, the largest over all kinds, in seconds; at most the limit,
/// at which nothing is known of what takes longer. The problem has passed
/// check().
double boundByWholeLayers(const HomesProblem &problem, double limit);

} // namespace galvatron

#endif // GALVATRON_SEARCH_WHOLELAYERS_H
