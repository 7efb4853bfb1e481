package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/nats/natsfile"
)

// mend flips back the bits that explain the damage.
func (x *examination) mend(b *examined) error {
	flipped := slices.DeleteFunc(slices.Clone(b.gaps), func(g natsfile.Gap) bool { return g.Bit < 0 })
	if len(flipped) == 0 {
		return nil
	}
	if err := x.keep(b); err != nil {
		return err
	}
	for _, g := range flipped {
		b.data[g.Bit/8] ^= 1 << (g.Bit % 8)
	}
	x.mended += len(flipped)
	return b.write()
}

// straighten makes each damaged stretch of a block look like records of the sequences
// that belong to its place. The server then takes them for damaged records and reads
// those around them; else it would throw away what is behind, or take memory without
// bound for a sequence far ahead.
func (x *examination) straighten(b *examined) error {
	changed := false
	for _, g := range b.gaps {
		from, upto, clear := x.place(b, g)
		if clear {
			continue
		}
		if !changed {
			if err := x.vouch(b); err != nil {
				return err
			}
			if err := x.keep(b); err != nil {
				return err
			}
		}
		if natsfile.Frame(b.data[g.Begin:g.End], uint64(from), uint64(upto)) {
			changed = true
			x.note(b, nil, g, from, upto)
		}
	}
	if !changed {
		return nil
	}
	return b.write()
}

// place gives the offsets that a damaged stretch takes, and reports whether the server
// can tell by what is left of it. At the end of the log that is not asked: what stands
// there may never have been whole.
func (x *examination) place(b *examined, g natsfile.Gap) (from, upto events.Offset, clear bool) {
	if g.Taken || b.end && g.End == len(b.data) {
		return 0, 0, true
	}
	from = x.firstLost(b, g)
	upto = from
	if next, known := b.behind(g); known {
		upto = max(from, next-1)
	}
	return from, upto, natsfile.Framed(b.data[g.Begin:g.End], uint64(from), uint64(upto))
}

// write puts a block back that was changed in memory.
func (b *examined) write() error {
	path := natsfile.Path(b.msgs, b.number)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := durable.Replace(path, b.data, info.Mode().Perm(), durable.WithSync); err != nil {
		return err
	}
	// Whether the server's index is older than the block is asked by these times.
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	b.records, b.gaps = natsfile.Scan(b.name, b.number, b.data)
	return nil
}

// cut does what the server would do if it read the block as it should: it throws the
// rest away, from a place on. Without its index it reads the stream anew.
func (b *examined) cut(at int) error {
	if err := os.Truncate(natsfile.Path(b.msgs, b.number), int64(at)); err != nil {
		return err
	}
	return b.forgetIndex()
}

// forgetIndex has the server read the block's stream anew.
func (b *examined) forgetIndex() error {
	if err := os.Remove(filepath.Join(b.msgs, natsfile.IndexFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
