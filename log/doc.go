// Package log is tally's event log; for logging, see log/slog. Programs that need both call this one tallylog.
//
// A [Log] is one line of records: events at offsets that only grow. Appending is the only way to write. Every append
// names one subject and what it expects of it ([Any], [At], [Since]). It is stored whole or not at all, and appending
// the same events again returns the first answer again.
//
// Reading is a range loop over [Log.Read], [Log.ReadBack] or [Log.Follow], which continues with new records. A record
// that cannot be read is yielded as a *events.DamageError at its position, and the loop continues behind it. Reads end
// at the durable end of the log unless the range says otherwise: no power cut takes back a record that they yielded.
//
// An [Ack] states the durability of an append: [Buffered], [Durable] or [Replicated]. The errors of an append are
// [ErrConflict], [ErrFull], [ErrUnavailable] and others that mean that nothing was written. After [ErrUnknown] the
// caller makes the same append again.
//
// [Open] uses a NATS JetStream server, [OpenOn] any [Backend], such as the one in memory of package log/memlog. Every
// backend keeps the same promises: one suite of tests runs on each of them.
package log
