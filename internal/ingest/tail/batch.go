package tail

import (
	"fmt"
	"time"
)

// A File identifies a file.
type File struct {
	Root   string // ID of its root
	Rel    string // path below the root, with slashes; the raw bytes of the name
	Stem   string // name without .zst and the extension; it stays when a file is moved or compressed
	Packed bool   // compressed: offsets refer to its content
}

// A Kind is the kind of a batch.
type Kind int

const (
	// Lines are lines that follow the delivered ones.
	Lines Kind = iota
	// Rewritten are lines from the beginning of a file whose content differs from the delivered content. First is set
	// in the first batch and Last in the batch that reaches the end; either may have no lines. The position is stored
	// only when the last batch is acknowledged: after an earlier crash the file is Rewritten again.
	Rewritten
	// Moved reports that a file has a new name, From being the old one, or that a missing file is back. Reading
	// continues where it was.
	Moved
	// Gone reports that a file with delivered lines is missing.
	Gone
	// Unreadable reports that a file or folder cannot be read, once for each reason. It is retried, and Status lists it
	// meanwhile.
	Unreadable
)

func (k Kind) String() string {
	names := [...]string{"lines", "rewritten", "moved", "gone", "unreadable"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// A Batch is the result of Next. It belongs to the caller.
type Batch struct {
	Kind  Kind
	File  File
	Lines []Line
	First bool // of Rewritten
	Last  bool // of Rewritten
	From  File // of Moved
	// End reports that the file was read to its end. Changed is the time of its last change.
	End     bool
	Changed time.Time
	Err     error // of Unreadable
	// Note is a text that the caller sets before it acknowledges the batch. The state stores it, and a Gone batch has
	// the last one.
	Note string

	file  *file
	turn  int   // turn of the file at the read
	to    mark  // mark behind the last line
	bytes int64 // of the lines
	acked bool
}

// Ack reports that a batch is durable. The batches of a file may be acknowledged in any order: the position advances
// over complete prefixes.
func (t *Tailer) Ack(b *Batch) {
	t.mail.put(func() { t.mail.acks = append(t.mail.acks, b) })
}

// takeAcks processes acknowledgements.
func (t *Tailer) takeAcks() {
	t.mail.Lock()
	acks := t.mail.acks
	t.mail.acks = nil
	t.mail.Unlock()
	for _, b := range acks {
		if b.file != nil && !b.acked {
			b.acked = true
			t.acknowledged(b.file)
		}
	}
}

// acknowledged removes the acknowledged prefix of a file's batches, and allows further reads.
func (t *Tailer) acknowledged(f *file) {
	for len(f.out) > 0 && f.out[0].acked {
		b := f.out[0]
		f.out[0] = nil
		f.out = f.out[1:]
		f.outLines -= len(b.Lines)
		f.outBytes -= b.bytes
		t.ready.bytes -= b.bytes
		if b.Note != "" {
			f.note = b.Note
		}
		switch b.Kind {
		case Gone:
			f.goneAcked = true
		case Moved:
			f.goneAcked, f.at = false, location{b.File.Root, b.File.Rel}
		}
		if b.turn == f.turn && (b.Kind == Lines || b.Last) {
			f.acked, f.ackedTurn = b.to, b.turn
		}
		t.dirty[f] = true
	}
	if f.parked {
		f.parked = false
		t.enqueue(f, f.live)
	}
}

// give delivers a batch of a file.
func (t *Tailer) give(f *file, b *Batch) *Batch {
	b.file, b.turn = f, f.turn
	f.out = append(f.out, b)
	f.outLines += len(b.Lines)
	f.outBytes += b.bytes
	t.ready.bytes += b.bytes
	return b
}
