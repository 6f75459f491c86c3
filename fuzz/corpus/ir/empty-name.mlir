// A model of six"zeros"}
galvatron.parameter @"" : tensor<16x8xf32> {decay,init = "normal", std = 2.0e-2 : f64}
