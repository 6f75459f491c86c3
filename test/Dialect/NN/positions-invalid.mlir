// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// One case for every numbered constraint of these operations.

// windows, constraint 1
func.func @windows_of_a_grid_without_rows(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected a grid with positions, found 0 by 5}}
  %r = nn.windows %x {rows = 0 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  return
}

// -----

// windows, constraint 1
func.func @windows_of_another_grid(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected 'x' of shape [?, 20, 8], found [?, 15, 8]}}
  %r = nn.windows %x {rows = 4 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  return
}

// -----

// windows, constraint 1
func.func @windows_of_no_grid(%x: tensor<?x15x2x4xf32>) {
  // expected-error@below {{expected 'x' of rank 3}}
  %r = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x15x2x4xf32>) -> tensor<?x6x4x8xf32>
  return
}

// -----

// windows, constraint 2
func.func @windows_without_positions(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected a positive 'window' and a 'shift' below it, found 0 and 0}}
  %r = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 0 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  return
}

// -----

// windows, constraint 2
func.func @windows_turned_too_far(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected a positive 'window' and a 'shift' below it, found 2 and 2}}
  %r = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  return
}

// -----

// windows, constraint 2
func.func @windows_turned_back(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected a positive 'window' and a 'shift' below it, found 2 and -1}}
  %r = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = -1 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  return
}

// -----

// windows, constraint 3
func.func @windows_too_few(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 6, 4, 8], found [?, 4, 4, 8]}}
  %r = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x4x4x8xf32>
  return
}

// -----

// windows, constraint 3
func.func @windows_not_merged(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 6, 32], found [?, 6, 4, 8]}}
  %r = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, merge} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf32>
  return
}

// -----

// windows, types
func.func @windows_of_another_type(%x: tensor<?x15x8xf32>) {
  // expected-error@below {{expected 'y' of element type 'f32', found 'f64'}}
  %r = nn.windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x15x8xf32>) -> tensor<?x6x4x8xf64>
  return
}

// -----

// join_windows, constraint 1
func.func @join_windows_of_a_grid_without_rows(%x: tensor<?x6x4x8xf32>) {
  // expected-error@below {{expected a grid with positions, found 0 by 5}}
  %r = nn.join_windows %x {rows = 0 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  return
}

// -----

// join_windows, constraint 1
func.func @join_windows_of_another_grid(%x: tensor<?x6x4x8xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 20, 8], found [?, 15, 8]}}
  %r = nn.join_windows %x {rows = 4 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  return
}

// -----

// join_windows, constraint 1
func.func @join_windows_of_no_grid(%x: tensor<?x6x4x8xf32>) {
  // expected-error@below {{expected 'y' of rank 3}}
  %r = nn.join_windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x2x4xf32>
  return
}

// -----

// join_windows, constraint 2
func.func @join_windows_without_positions(%x: tensor<?x6x4x8xf32>) {
  // expected-error@below {{expected a positive 'window' and a 'shift' below it, found 0 and 0}}
  %r = nn.join_windows %x {rows = 3 : i64, columns = 5 : i64, window = 0 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  return
}

// -----

// join_windows, constraint 2
func.func @join_windows_turned_too_far(%x: tensor<?x6x4x8xf32>) {
  // expected-error@below {{expected a positive 'window' and a 'shift' below it, found 2 and 2}}
  %r = nn.join_windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = 2 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  return
}

// -----

// join_windows, constraint 2
func.func @join_windows_turned_back(%x: tensor<?x6x4x8xf32>) {
  // expected-error@below {{expected a positive 'window' and a 'shift' below it, found 2 and -1}}
  %r = nn.join_windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, shift = -1 : i64} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  return
}

// -----

// join_windows, constraint 3
func.func @join_windows_too_few(%x: tensor<?x4x4x8xf32>) {
  // expected-error@below {{expected 'x' of shape [?, 6, 4, 8], found [?, 4, 4, 8]}}
  %r = nn.join_windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x4x4x8xf32>) -> tensor<?x15x8xf32>
  return
}

// -----

// join_windows, constraint 3
func.func @join_windows_not_merged(%x: tensor<?x6x4x8xf32>) {
  // expected-error@below {{expected 'x' of shape [?, 6, 32], found [?, 6, 4, 8]}}
  %r = nn.join_windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64, merge} : (tensor<?x6x4x8xf32>) -> tensor<?x15x8xf32>
  return
}

// -----

// join_windows, types
func.func @join_windows_of_another_type(%x: tensor<?x6x4x8xf64>) {
  // expected-error@below {{expected 'x' of element type 'f32', found 'f64'}}
  %r = nn.join_windows %x {rows = 3 : i64, columns = 5 : i64, window = 2 : i64} : (tensor<?x6x4x8xf64>) -> tensor<?x15x8xf32>
  return
}

// -----

// window_attention, constraint 1
func.func @queries_without_windows(%q: tensor<?x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'q' of rank 5}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 1
func.func @queries_without_windows_backward(%q: tensor<?x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'q' of rank 5}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x4x3x8xf32>, tensor<?x4x3x8xf32>, tensor<?x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 1
func.func @keys_of_another_size(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x9xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'k' of type}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x9xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 1
func.func @keys_of_another_size_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x9xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'k' of type}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x9xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 1
func.func @values_of_another_size(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x9xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'v' of type}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x9xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 1
func.func @values_of_another_size_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x9xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'v' of type}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x9xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 2
func.func @window_that_is_no_square(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'window' to be the side of a square of 4 positions, found 3}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 3 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 2
func.func @window_that_is_no_square_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'window' to be the side of a square of 4 positions, found 3}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 3 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 2
func.func @window_of_nothing(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'window' to be the side of a square of 4 positions, found -2}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = -2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 2
func.func @window_of_nothing_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'window' to be the side of a square of 4 positions, found -2}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = -2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 2
func.func @turned_too_far(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'shift' in [0, 2), found 2}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64, shift = 2 : i64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 2
func.func @turned_too_far_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'shift' in [0, 2), found 2}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64, shift = 2 : i64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 3
func.func @rows_of_other_lengths(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'across' to divide the 6 windows, found 4}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 4 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 3
func.func @rows_of_other_lengths_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'across' to divide the 6 windows, found 4}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 4 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 3
func.func @no_rows(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'across' to divide the 6 windows, found 0}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 0 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 3
func.func @no_rows_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'across' to divide the 6 windows, found 0}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 0 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 4
func.func @table_of_another_window(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<25x3xf32>) {
  // expected-error@below {{expected 'table' of shape [9, 3], found [25, 3]}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<25x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 4
func.func @table_of_another_window_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<25x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'table' of shape [9, 3], found [25, 3]}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<25x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 5
func.func @heads_apart(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'o' of shape [?, 6, 4, 24], found [?, 6, 4, 23]}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x23xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 5
func.func @heads_apart_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x23xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'o' of shape [?, 6, 4, 24], found [?, 6, 4, 23]}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x23xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x23xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 6
func.func @statistics_turned_round(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'lse' of shape [?, 6, 3, 4], found [?, 6, 4, 3]}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x4x3xf32>)
  return
}

// -----

// window_attention_grad, constraint 6
func.func @statistics_turned_round_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x4x3xf32>) {
  // expected-error@below {{expected 'lse' of shape [?, 6, 3, 4], found [?, 6, 4, 3]}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x4x3xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 7
func.func @dropped_for_sure(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'dropout' in [0, 1), found 1}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64, dropout = 1.0 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 7
func.func @dropped_for_sure_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'dropout' in [0, 1), found 1}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64, dropout = 1.0 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, constraint 7
func.func @no_scale(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected a 'scale' other than 0}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.0 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, constraint 7
func.func @no_scale_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected a 'scale' other than 0}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.0 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, types
func.func @table_of_another_type(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf64>) {
  // expected-error@below {{expected 'table' of element type 'f32', found 'f64'}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf64>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>)
  return
}

// -----

// window_attention_grad, types
func.func @table_of_another_type_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf64>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>) {
  // expected-error@below {{expected 'table' of element type 'f32', found 'f64'}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf64>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention, types
func.func @statistics_of_another_type(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>) {
  // expected-error@below {{expected 'lse' of element type 'f32', found 'f64'}}
  %o, %l = nn.window_attention %q, %k, %v, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x24xf32>, tensor<?x6x3x4xf64>)
  return
}

// -----

// window_attention_grad, types
func.func @statistics_of_another_type_backward(%q: tensor<?x6x4x3x8xf32>, %k: tensor<?x6x4x3x8xf32>, %v: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf64>) {
  // expected-error@below {{expected 'lse' of element type 'f32', found 'f64'}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %k, %v, %o, %l, %o, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf64>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention_grad, constraint 5
func.func @gradient_of_another_output(%q: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>, %d: tensor<?x6x4x25xf32>) {
  // expected-error@below {{expected 'dout' of type}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %q, %q, %o, %l, %d, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x25xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention_grad, constraint 8
func.func @gradient_of_other_queries(%q: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>, %d: tensor<?x6x4x24xf32>) {
  // expected-error@below {{expected 'dq' of type}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %q, %q, %o, %l, %d, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x9xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention_grad, constraint 8
func.func @gradient_of_other_keys(%q: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>, %d: tensor<?x6x4x24xf32>) {
  // expected-error@below {{expected 'dk' of type}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %q, %q, %o, %l, %d, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x9xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention_grad, constraint 8
func.func @gradient_of_other_values(%q: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>, %d: tensor<?x6x4x24xf32>) {
  // expected-error@below {{expected 'dv' of type}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %q, %q, %o, %l, %d, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x9xf32>, tensor<9x3xf32>)
  return
}

// -----

// window_attention_grad, constraint 8
func.func @gradient_of_another_table(%q: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>, %d: tensor<?x6x4x24xf32>) {
  // expected-error@below {{expected 'dtable' of shape [9, 3], found [3, 9]}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %q, %q, %o, %l, %d, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<3x9xf32>)
  return
}

// -----

// window_attention_grad, types
func.func @gradient_of_a_rounded_table(%q: tensor<?x6x4x3x8xf32>, %t: tensor<9x3xf32>, %o: tensor<?x6x4x24xf32>, %l: tensor<?x6x3x4xf32>, %d: tensor<?x6x4x24xf32>) {
  // expected-error@below {{expected 'dtable' of element type 'f32', found 'f64'}}
  %dq, %dk, %dv, %dt = nn.window_attention_grad %q, %q, %q, %o, %l, %d, %t {window = 2 : i64, across = 3 : i64, scale = 0.5 : f64} : (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x24xf32>, tensor<?x6x3x4xf32>, tensor<?x6x4x24xf32>, tensor<9x3xf32>) -> (tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<?x6x4x3x8xf32>, tensor<9x3xf64>)
  return
}

// -----

// drop_path, constraint 1
func.func @path_of_another_type(%x: tensor<?x4xf32>) {
  // expected-error@below {{expected 'y' of type}}
  %y = nn.drop_path %x {rate = 0.1 : f64, first_layer = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x5xf32>
  return
}

// -----

// drop_path, constraint 2
func.func @path_dropped_for_sure(%x: tensor<?x4xf32>) {
  // expected-error@below {{expected 'rate' in [0, 1), found 1}}
  %y = nn.drop_path %x {rate = 1.0 : f64, first_layer = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return
}

// -----

// drop_path, constraint 3
func.func @path_of_a_row(%x: tensor<?xf32>) {
  // expected-error@below {{expected 'x' of rank >= 2}}
  %y = nn.drop_path %x {rate = 0.1 : f64, first_layer = 1 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

// drop_path, constraint 4
func.func @path_before_the_model(%x: tensor<?x4xf32>) {
  // expected-error@below {{expected 'first_layer' of at least 0, found -1}}
  %y = nn.drop_path %x {rate = 0.1 : f64, first_layer = -1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return
}

// -----

// mean, constraint 1
func.func @mean_of_rows(%x: tensor<?x4xf32>) {
  // expected-error@below {{expected 'x' of rank 3}}
  %y = nn.mean %x : (tensor<?x4xf32>) -> tensor<4xf32>
  return
}

// -----

// mean, constraint 2
func.func @mean_of_another_width(%x: tensor<?x3x4xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 4], found [?, 5]}}
  %y = nn.mean %x : (tensor<?x3x4xf32>) -> tensor<?x5xf32>
  return
}

// -----

// mean, types
func.func @mean_of_another_type(%x: tensor<?x3x4xf32>) {
  // expected-error@below {{expected 'y' of element type 'f32', found 'f64'}}
  %y = nn.mean %x : (tensor<?x3x4xf32>) -> tensor<?x4xf64>
  return
}

// -----

// mean_grad, constraint 1
func.func @mean_of_rows_backward(%x: tensor<?x4xf32>) {
  // expected-error@below {{expected 'dx' of rank 3}}
  %y = nn.mean_grad %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return
}

// -----

// mean_grad, constraint 2
func.func @mean_of_another_width_backward(%x: tensor<?x5xf32>) {
  // expected-error@below {{expected 'dy' of shape [?, 4], found [?, 5]}}
  %y = nn.mean_grad %x : (tensor<?x5xf32>) -> tensor<?x3x4xf32>
  return
}

// -----

// transpose, constraint 1
func.func @samples_would_be_turned(%x: tensor<?x4xf32>) {
  // expected-error@below {{expected 'x' of rank >= 3}}
  %y = nn.transpose %x : (tensor<?x4xf32>) -> tensor<4x?xf32>
  return
}

// -----

// transpose, constraint 2
func.func @not_turned(%x: tensor<?x3x4xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 4, 3], found [?, 3, 4]}}
  %y = nn.transpose %x : (tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
  return
}

// -----

// transpose, types
func.func @turned_into_another_type(%x: tensor<?x3x4xf32>) {
  // expected-error@below {{expected 'y' of element type 'f32', found 'f64'}}
  %y = nn.transpose %x : (tensor<?x3x4xf32>) -> tensor<?x4x3xf64>
  return
}

// -----

// patches, constraint 2
func.func @padded_patches_without_rows(%x: tensor<?x3x8x8xf32>) {
  // expected-error@below {{expected patches within images of 8 by 8, found 0 by 4}}
  %y = nn.patches %x {rows = 0 : i64, columns = 4 : i64, pad} : (tensor<?x3x8x8xf32>) -> tensor<?x4x12xf32>
  return
}

// -----

// patches, constraint 3
func.func @padded_patches_left_out(%x: tensor<?x3x7x9xf32>) {
  // expected-error@below {{expected 'y' of shape [?, 9, 36], found [?, 4, 36]}}
  %y = nn.patches %x {rows = 3 : i64, columns = 4 : i64, pad} : (tensor<?x3x7x9xf32>) -> tensor<?x4x36xf32>
  return
}

// -----

// own_part, constraint 1
func.func @a_part_of_another_rank(%x: tensor<4x6xf32>) {
  // expected-error@below {{expected 'y' of rank 2, found 'tensor<6xf32>'}}
  %y = nn.own_part %x {dim = 0 : i64} : (tensor<4x6xf32>) -> tensor<6xf32>
  return
}

// -----

// own_part, constraint 1
func.func @a_part_of_no_dimension(%x: tensor<4x6xf32>) {
  // expected-error@below {{expected 'dim' to be a dimension of 'tensor<4x6xf32>', found 2}}
  %y = nn.own_part %x {dim = 2 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// own_part, constraint 2
func.func @parts_of_unequal_size(%x: tensor<4x6xf32>) {
  // expected-error@below {{expected dimension 0 of 'y' to divide the 4 of 'x', found 3}}
  %y = nn.own_part %x {dim = 0 : i64} : (tensor<4x6xf32>) -> tensor<3x6xf32>
  return
}

// -----

// own_part, constraint 2
func.func @a_part_of_two_dimensions(%x: tensor<4x6xf32>) {
  // expected-error@below {{expected 'y' of shape [2, 6], found [2, 3]}}
  %y = nn.own_part %x {dim = 0 : i64} : (tensor<4x6xf32>) -> tensor<2x3xf32>
  return
}

// -----

// own_part, constraint 3
func.func @a_part_of_no_rank(%x: tensor<4x6xf32>) {
  // expected-error@below {{expected 'ranks' to be positive, found 0}}
  %y = nn.own_part %x {dim = 0 : i64, ranks = 0 : i64} : (tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

// own_part, types
func.func @a_part_of_another_type(%x: tensor<4x6xf32>) {
  // expected-error@below {{expected 'y' of element type 'f32', found 'f64'}}
  %y = nn.own_part %x {dim = 0 : i64} : (tensor<4x6xf32>) -> tensor<2x6xf64>
  return
}

// -----

// own_part_grad, constraint 1
func.func @a_gradient_of_no_dimension(%x: tensor<2x6xf32>) {
  // expected-error@below {{expected 'dim' to be a dimension of 'tensor<4x6xf32>', found -1}}
  %y = nn.own_part_grad %x {dim = -1 : i64} : (tensor<2x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// own_part_grad, constraint 2
func.func @a_gradient_larger_than_the_whole(%x: tensor<4x6xf32>) {
  // expected-error@below {{expected dimension 0 of 'dy' to divide the 2 of 'dx', found 4}}
  %y = nn.own_part_grad %x {dim = 0 : i64} : (tensor<4x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

// own_part_grad, constraint 3
func.func @a_gradient_of_no_rank(%x: tensor<2x6xf32>) {
  // expected-error@below {{expected 'ranks' to be positive, found -2}}
  %y = nn.own_part_grad %x {dim = 0 : i64, ranks = -2 : i64} : (tensor<2x6xf32>) -> tensor<4x6xf32>
  return
}
