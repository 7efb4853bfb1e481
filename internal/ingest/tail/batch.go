package tail

import (
	"fmt"
	"time"
)

// A File says which file something is about.
type File struct {
	Root   string // the ID of its root
	Rel    string // its path below the root, with slashes; the bytes of the name, whatever they are
	Stem   string // its name without .zst and without what follows the last dot then; it stays when a file is moved or compressed
	Packed bool   // it is compressed: offsets are of its content
}

// A Kind says what a batch is.
type Kind int

const (
	// Lines are lines that follow those delivered before.
	Lines Kind = iota
	// Rewritten are lines of a file whose content is another than what was delivered of it,
	// from its beginning. First is set for the first batch of them and Last for the one that
	// reaches the end; either may be without lines. How far it got is remembered only when
	// the last one is acknowledged: after a crash before that the file is Rewritten again.
	Rewritten
	// Moved says that a file has another name, From being the one before, or is there again
	// that was gone. Reading goes on where it was.
	Moved
	// Gone says that a file that was read from is not there any more.
	Gone
	// Unreadable says that a file or folder cannot be read, once for each reason. It is tried
	// again; Status lists it meanwhile.
	Unreadable
)

func (k Kind) String() string {
	names := [...]string{"lines", "rewritten", "moved", "gone", "unreadable"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// A Batch is what Next returns. It belongs to the caller.
type Batch struct {
	Kind  Kind
	File  File
	Lines []Line
	First bool // of Rewritten
	Last  bool // of Rewritten
	From  File // of Moved
	// End says that the file was read to its end, of which Changed is the time.
	End     bool
	Changed time.Time
	Err     error // of Unreadable
	// Note is what the caller says of the file before it acknowledges the batch: the state
	// keeps it, and Gone has what was said last.
	Note string

	file  *file
	turn  int   // of the file, when this was read
	to    mark  // behind the last line
	bytes int64 // of the lines
	acked bool
}

// Ack says that a batch is durable. Batches of a file may be acknowledged in any order: what
// counts is up to which one all are.
func (t *Tailer) Ack(b *Batch) {
	t.mail.put(func() { t.mail.acks = append(t.mail.acks, b) })
}

// takeAcks does what acknowledgements say.
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

// acknowledged takes the batches off a file's list that are acknowledged with all before
// them, and lets it be read on.
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

// give hands a batch of a file out.
func (t *Tailer) give(f *file, b *Batch) *Batch {
	b.file, b.turn = f, f.turn
	f.out = append(f.out, b)
	f.outLines += len(b.Lines)
	f.outBytes += b.bytes
	t.ready.bytes += b.bytes
	return b
}
