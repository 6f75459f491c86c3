// RUN: galvatron-opt %s --split-input-file --verify-diagnostics

// Each is just beyond what a grt.task may be; roundtrip.mlir has what it may.

// numbers of more than 32 bits
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected numbers of 0 to 4294967295, found 4294967296}}
    grt.task forward micro_batch 4294967296 slot 0
  }
}

// -----

// negative numbers
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected numbers of 0 to 4294967295, found -1}}
    grt.task transfer send_activation -1 chunks [0]
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected numbers of 0 to 4294967295, found -1}}
    grt.task transfer recv_stash 0 slot -1 chunks [3] peers [0]
  }
}

// -----

// generations
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a generation of a forward task only, found it on 'backward'}}
    grt.task backward micro_batch 0 slot 0 generation 1
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected generations of messages in a transfer only, found them in 'forward'}}
    grt.task forward micro_batch 0 slot 0 generations [1]
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected generations of 0 to 255, found 256}}
    grt.task forward micro_batch 0 slot 0 generation 256
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected generations of 0 to 255, found -1}}
    grt.task transfer send_activation 0 chunks [0] generations [-1]
  }
}

// -----

// C9: what moves
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected 'out', 'parameters', 'gradients', 'activations' and 'optimizer' on a swap only, found one on 'backward'}}
    grt.task backward micro_batch 0 slot 0 out
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a swap to bring 'parameters', 'gradients' or both, 'activations' or 'optimizer', or to take 'gradients', 'activations' or 'parameters optimizer' out}}
    grt.task swap micro_batch 0 slot 0 gradients activations
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a micro-batch and a slot for 'activations'}}
    grt.task swap micro_batch 0 activations
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a micro-batch and a slot for 'activations'}}
    grt.task swap slot 0 activations
  }
}

// -----

// C10: streams and events
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a swap on 'in' or no stream, found 'swap' on 'out'}}
    grt.task swap parameters on out
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a swap on 'out' or no stream, found 'swap' on 'in'}}
    grt.task swap out gradients on in
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected a swap on 'in' or no stream, found 'forward' on 'in'}}
    grt.task forward micro_batch 0 slot 0 on in
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error-re @+1 {{expected events of 1 to {{[0-9]+}}, found 0}}
    grt.task swap parameters on in records 0
  }
}

// -----

grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error-re @+1 {{expected events of 1 to {{[0-9]+}}, found 1000}}
    grt.task swap parameters on in after [1000]
  }
}

// -----

// Other operations
grt.schedule @s role @nobody {
  grt.part steady {
    // expected-error @+1 {{expected only 'grt.task' in a part}}
    %0 = builtin.unrealized_conversion_cast to i32
  }
}

// -----

grt.schedule @s role @nobody {
  // expected-error @+1 {{expected only 'grt.part' in a schedule}}
  %0 = builtin.unrealized_conversion_cast to i32
}

// -----

grt.role @r stage 0 devices [0] slots 1 {
  // expected-error @+1 {{expected only 'grt.layer' in a role}}
  %0 = builtin.unrealized_conversion_cast to i32
}
