// RUN: galvatron-opt %s --galvatron-schedule-tasks --verify-diagnostics

// Stages that were written by hand, on a device that will not run them.

func.func private @first(tensor<?x4xi32>) -> tensor<?x4xf32>
func.func private @last(tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
galvatron.model @device_that_is_no_rank(%t: tensor<?x4xi32> is <tokens, below = 16>, %l: tensor<?x4xi32> is <labels, below = 16>) {
  // expected-error @+1 {{the stages have 4 devices, expected 0 to 3, found 4}}
  %0 = galvatron.stage 0 devices [4, 2] -> tensor<?x4xf32> {
    %a = galvatron.layer "a" @first(%t) {stage = 0 : i64} : (tensor<?x4xi32>) -> tensor<?x4xf32>
    galvatron.yield %a : tensor<?x4xf32>
  }
  %1 = galvatron.transfer %0 from 0 to 1 : tensor<?x4xf32>
  %2 = galvatron.stage 1 devices [0, 1] -> tensor<1xf64> {
    %b = galvatron.layer "b" @last(%1, %l) {stage = 1 : i64} : (tensor<?x4xf32>, tensor<?x4xi32>) -> tensor<1xf64>
    galvatron.yield %b : tensor<1xf64>
  }
  galvatron.output %2 : tensor<1xf64>
}
