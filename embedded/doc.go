// Package embedded opens stores. [Open] is what programs call: it finds out which store
// is meant, and returns it.
//
//	st, err := embedded.Open(ctx, embedded.Options{})           // as the configuration says
//	st, err := embedded.Open(ctx, embedded.Options{Store: dir}) // that directory
//
// A store in a directory of this machine has its server inside a process: one process
// owns the directory for as long as it lives ([Start]), others use the owner's server
// ([Attach]). Open does whichever fits, and dials where the configuration names a
// server that others run. What is acknowledged as durable is on disk.
//
// A directory that another process holds, while it starts, stops or does not answer, is a
// [*OwnedError] in the end. When the disk is full, appends are
// refused with a *log.FullError and reads go on; appends work again when there is room.
//
// A program that imports this package links nats-server. One that is only a client need
// not: it opens a log by its connection with log.Open, and a store of it with
// tally.Open.
package embedded
