// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// expected-error@below {{expected 'nn.factor_units' to be a dictionary}}
func.func private @units_that_are_a_number(tensor<4x16xf32>) attributes {nn.factor_units = 4 : i64}

// -----

// expected-error@below {{expected a positive number of units for factor 'heads', found 0 : i64}}
func.func private @a_factor_of_no_units(tensor<4x16xf32>) attributes {nn.factor_units = {heads = 0 : i64}}

// -----

// expected-error@below {{expected a positive number of units for factor 'heads', found "four"}}
func.func private @a_factor_counted_in_words(tensor<4x16xf32>) attributes {nn.factor_units = {heads = "four"}}

// -----

// expected-error@below {{expected 'nn.uneven' to be an array}}
func.func private @uneven_that_is_a_string(tensor<4x16xf32>) attributes {nn.factor_units = {heads = 4 : i64}, nn.uneven = "heads"}

// -----

// expected-error@below {{expected 'nn.uneven' to name factors of 'nn.factor_units', found "vocab"}}
func.func private @an_uneven_factor_without_units(tensor<4x16xf32>) attributes {nn.factor_units = {heads = 4 : i64}, nn.uneven = ["vocab"]}

// -----

// expected-error@below {{expected 'nn.factors' of argument 0 to name one factor a dimension, found ["heads"]}}
func.func private @too_few_factors(tensor<4x16xf32> {nn.factors = ["heads"]}) attributes {nn.factor_units = {heads = 4 : i64}}

// -----

// expected-error@below {{expected 'nn.factors' of argument 0 to name one factor a dimension, found ["heads"]}}
func.func private @factors_of_no_tensor(index {nn.factors = ["heads"]}) attributes {nn.factor_units = {heads = 4 : i64}}

// -----

// expected-error@below {{expected factor names to be strings, found 1 : i64}}
func.func private @a_factor_that_is_a_number(tensor<4x16xf32> {nn.factors = ["", 1 : i64]}) attributes {nn.factor_units = {heads = 4 : i64}}

// -----

// expected-error@below {{expected factor 'ffn' of argument 0 in 'nn.factor_units', found no entry}}
func.func private @a_factor_without_units(tensor<4x16xf32> {nn.factors = ["", "ffn"]}) attributes {nn.factor_units = {heads = 4 : i64}}

// -----

// expected-error@below {{expected dimension 1 of argument 0 to be a multiple of the 5 units of factor 'heads', found 16}}
func.func private @units_that_do_not_divide(tensor<4x16xf32> {nn.factors = ["", "heads"]}) attributes {nn.factor_units = {heads = 5 : i64}}

// -----

// expected-error@below {{expected at most one factor in 'nn.factors' of argument 0, found ["heads", "ffn"]}}
func.func private @two_factors_of_one_parameter(tensor<4x16xf32> {nn.factors = ["heads", "ffn"]}) attributes {nn.factor_units = {heads = 4 : i64, ffn = 16 : i64}}

// -----

// expected-error@below {{expected 'nn.role' to be a role of a layer function, found "stashed"}}
func.func private @a_role_that_is_none(tensor<4x16xf32> {nn.role = "stashed"})

// -----

// expected-error@below {{expected 'nn.role' to be a role of a layer function, found 1 : i64}}
func.func private @a_result_role_that_is_a_number(tensor<4x16xf32>) -> (tensor<4x16xf32> {nn.role = 1 : i64})

// -----

// expected-error@below {{expected 'nn.shared' to name factors of 'nn.factor_units', found "heads"}}
func.func private @a_shared_factor_without_units(tensor<4x16xf32>) attributes {nn.factor_units = {key_heads = 4 : i64}, nn.shared = ["heads"]}

// -----

// expected-error@below {{expected factor "heads" to be in one of 'nn.uneven' and 'nn.shared'}}
func.func private @a_factor_both_uneven_and_shared(tensor<4x16xf32>) attributes {nn.factor_units = {heads = 4 : i64}, nn.shared = ["heads"], nn.uneven = ["heads"]}

// -----

// expected-error@below {{expected dimension 1 of argument 0 to have the 4 units of factor 'key_heads', which ranks may share, found 16}}
func.func private @shared_units_of_several_elements(tensor<4x16xf32> {nn.factors = ["", "key_heads"]}) attributes {nn.factor_units = {key_heads = 4 : i64}, nn.shared = ["key_heads"]}
