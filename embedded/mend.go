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

// mend flips back the bits of damaged records whose hash shows which bit was flipped.
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
	return x.write(b)
}

// straighten rewrites each damaged stretch of a block as records with the sequences that belong there. The server then
// treats them as damaged records and reads the records around them. Otherwise it would discard the rest of the block,
// or allocate memory without bound for a sequence far ahead.
func (x *examination) straighten(b *examined) error {
	changed := false
	for _, g := range b.gaps {
		from, upto, framed := x.span(b, g)
		if framed {
			continue
		}
		if !changed {
			if err := x.vouch(b); err != nil {
				return err
			}
		}
		before := len(x.lost)
		x.note(b, nil, g, from, upto) // it is lost, also if the block cannot be changed
		if !changed {
			if err := x.keep(b); err != nil {
				return err
			}
		}
		if natsfile.Frame(b.data[g.Begin:g.End], uint64(from), uint64(upto)) {
			changed = true
		} else {
			x.lost = x.lost[:before]
		}
	}
	if !changed {
		return nil
	}
	if err := x.store(); err != nil {
		return err
	}
	return x.write(b)
}

// span returns the offsets that a damaged stretch occupies. framed reports that the server can derive them from the
// stretch itself. At the end of the log framed is always true, as the record there may be incomplete.
func (x *examination) span(b *examined, g natsfile.Gap) (from, upto events.Offset, framed bool) {
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

// write replaces a block's file by its changed data.
func (x *examination) write(b *examined) error {
	path := natsfile.Path(b.msgs, b.number)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	// The server compares the modification times of the index and the block, so the block keeps its time.
	staged, err := durable.Stage(path, b.data, info.Mode().Perm(), durable.WithSync, info.ModTime())
	if err != nil {
		return err
	}
	if err := x.close(); err != nil {
		staged.Drop()
		return err
	}
	if err := staged.Commit(); err != nil {
		return err
	}
	b.records, b.gaps = natsfile.Scan(b.name, b.number, b.data)
	return nil
}

// cut truncates a block, as the server would do on reading the damaged record. It also removes the index, so that the
// server reads the stream again.
func (b *examined) cut(at int) error {
	if err := os.Truncate(natsfile.Path(b.msgs, b.number), int64(at)); err != nil {
		return err
	}
	b.isCut = true
	return b.forgetIndex()
}

// forgetIndex removes the index of the block's stream, so that the server reads the stream again.
func (b *examined) forgetIndex() error {
	if err := os.Remove(filepath.Join(b.msgs, natsfile.IndexFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
