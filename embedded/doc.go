// Package embedded opens stores. Programs call [Open], which finds the store by its options and the configuration.
//
//	st, err := embedded.Open(ctx, embedded.Options{})           // as the configuration says
//	st, err := embedded.Open(ctx, embedded.Options{Store: dir}) // that directory
//
// A store in a directory of this machine has its server inside a process. One process owns the directory as long as it
// lives ([Start]), and other processes use the owner's server ([Attach]). Open chooses between them. If the
// configuration names a server that others run, Open connects to that server. Events acknowledged as durable are on
// disk.
//
// If another process holds the directory but does not answer, Open returns a [*OwnedError] after a while. When the disk
// is full, appends are refused with a *log.FullError and reads go on; appends work again when there is room.
//
// A program that imports this package links nats-server. A client does not need it: it opens a log on its own
// connection with log.Open, and a store on that log with tally.Open.
package embedded
