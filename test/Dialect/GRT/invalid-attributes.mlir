// What a role's arena and its layers' places are told by.

// RUN: galvatron-opt %s -split-input-file -verify-diagnostics

// extent C1
// expected-error @+1 {{expected an extent without negative numbers, found -64 bytes at 0}}
#extent = #grt.extent<0, -64>

// -----
// arena C1
// expected-error @+1 {{expected a datum, an offset and a number of bytes as a row of 'copies', found array<i64: 0, 1>}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, copies = [array<i64: 0, 1>]>

// -----
// arena C1
// expected-error @+1 {{expected 3 numbers as 'window', found 2}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, window = [0, 1]>

// -----
// arena C2
// expected-error @+1 {{expected resident regions exactly where states have their home on the host, found 'home_bytes' 64}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, home_bytes = 64>

// -----
// arena C3
// expected-error @+1 {{expected 'received' only with 'sent'}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, received = <0, 64>>

// -----
// arena C5
// expected-error @+1 {{expected 'frames' exactly with 'packs'}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, packs = <0, 64>>

// -----
// arena C5
// expected-error @+1 {{expected seven numbers that are not negative as a row of 'frames', found array<i64: 0, 0, 0, 0, 0, 0>}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, packs = <0, 64>, frames = [array<i64: 0, 0, 0, 0, 0, 0>]>

// -----
// arena C5
// expected-error @+1 {{expected seven numbers that are not negative as a row of 'frames', found array<i64: 0, 0, 0, 0, 0, 0, -1>}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, packs = <0, 64>, frames = [array<i64: 0, 0, 0, 0, 0, 0, -1>]>

// -----
// ledger C1
// expected-error @+1 {{expected no negative bytes in a ledger, found -1}}
#ledger = #grt.ledger<parameters = 0, gradients = 0, optimizer = 0, activations = 0, backward = 0, communication = 0, workspace = 0, runtime = -1>

// -----
// model C1
// expected-error @+1 {{expected #galvatron.data as the data of a model, found 4}}
#model = #grt.model<name = "m", data = [4]>

// -----
// arena C2
// expected-error @+1 {{expected 'resident_optimizer' only where states of other layers have their home on the host}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, resident_optimizer = <0, 64>>

// -----
// arena C2
// expected-error @+1 {{expected 'home_slots' only where states have their home on the host}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, home_slots = <0, 64>>

// -----
// arena C2
// expected-error @+1 {{expected 'away_slot' only with 'home_slots'}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, home_bytes = 64, resident_parameters = <0, 64>, resident_gradients = <64, 64>, away_slot = <0, 64>>

// -----
// arena C2
// expected-error @+1 {{expected resident regions exactly where states have their home on the host, found 'home_bytes' 0}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, resident_gradients = <64, 64>>

// -----
// arena C2
// expected-error @+1 {{expected resident regions exactly where states have their home on the host, found 'home_bytes' -64}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, home_bytes = -64, resident_parameters = <0, 64>, resident_gradients = <64, 64>>

// -----
// arena C4
// expected-error @+1 {{expected slots at home of no negative size, found -64}}
#arena = #grt.arena<parameters = <0, 0>, gradients = <0, 0>, optimizer = <0, 0>, slots = <0, 0>, transient = <0, 0>, boundary = <0, 0>, data = <0, 0>, loss = <0, 0>, step = <0, 0>, home_slot_bytes = -64>
