// Package log is tally's event log; for logging, see log/slog. Programs that
// need both call this one tallylog.
//
// A [Log] is one line of records: events at offsets that only grow. Appending is
// the only way to write. Every append names one subject and what it expects of
// it ([Any], [At], [Since]); it is stored whole or not at all, and appending the
// same events again returns the first answer again.
//
// [Open] uses a NATS JetStream server, [OpenOn] any [Backend], such as the one in
// memory of package logtest. Promises are the same on all of them, and the suite
// logtest.Run holds them to it.
package log
