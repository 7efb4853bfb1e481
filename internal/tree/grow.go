package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// hashed is a file of which what comes behind it is hashed alone.
type hashed struct {
	sum  string
	hash hash.Hash // that has had what it is the sum of
}

// maxHashes bounds the files, and the units, of which that is known: some 250 bytes each.
const maxHashes = 4096

// keepHash notes how a log was hashed that was written. The caller holds mu.
func (t *Tree) keepHash(w want) {
	if _, grows := t.c.Layout.(layouts.Grower); !grows || w.hash == nil || !isLog(w.Path) {
		return
	}
	if len(t.hashes) >= maxHashes {
		clear(t.hashes) // each is rendered once more
	}
	t.hashes[w.Path] = hashed{w.sum, w.hash}
}

// known is what a layout knew of a unit as of an offset.
type known struct {
	at events.Offset
	of any
}

// keepKnown notes what is known of a unit. The caller holds mu.
func (t *Tree) keepKnown(sub events.Subject, k known) {
	if len(t.knowns) >= maxHashes {
		clear(t.knowns)
	}
	t.knowns[sub] = k
}

// isLog reports whether a file is one that grows at its end.
func isLog(p string) bool { return strings.HasSuffix(p, ".jsonl") }

// grown finds out of which units the files only grow, and by what; the rest is to be rendered.
// Everything up to the offset was applied. The caller holds mu.
func (t *Tree) grown(ctx context.Context, list []events.Subject, at events.Offset) (grown map[events.Subject][]want, rest []events.Subject) {
	g, is := t.c.Layout.(layouts.Grower)
	grown = make(map[events.Subject][]want)
	for _, sub := range list {
		if d, applied := t.dirty[sub]; is && applied && !d.whole && !t.redo[sub] && t.stuck[sub] == nil && t.units[sub].at != 0 && t.units[sub].path != "" {
			if more, ok := t.additions(ctx, g, sub, at); ok {
				growth(t, sub, at, more)
				grown[sub] = more
				continue
			}
		}
		rest = append(rest, sub)
	}
	return grown, rest
}

// additions returns the files of a unit that grow, with what they grow by. It is false if that
// is not known.
func (t *Tree) additions(ctx context.Context, g layouts.Grower, sub events.Subject, at events.Offset) ([]want, bool) {
	u, before := t.units[sub], t.knowns[sub]
	if before.at != u.at {
		before.of = nil
	}
	more, ok, err := g.Growth(ctx, t.as(at), t.c.Root, sub, u.path, u.at, t.dirty[sub].others, before.of)
	if err != nil || !ok { // what is wrong, the rendering says
		return nil, false
	}
	t.keepKnown(sub, known{at, more.Known})
	var list []want
	for _, a := range more.Added {
		w := want{File: layouts.File{Path: a.Path, Mode: a.Mode}, unit: sub, at: at, size: int64(len(a.Data)), hash: sha256.New()}
		have := t.files[a.Path]
		switch {
		case have != nil && have.unit != sub, have == nil && !a.New:
			return nil, false
		case a.New:
			w.Write = func(out io.Writer) error { _, err := out.Write(a.Data); return err }
			w.data = append([]byte{}, a.Data...)
		case len(a.Data) == 0:
			continue
		default:
			if w.hash, ok = t.hashOf(a.Path, have.sum); !ok {
				return nil, false
			}
			w.Mode, w.Write, w.size = have.mode, t.rendering(ctx, sub, a.Path, at), have.size+w.size
			w.grew, w.tail = true, a.Data
		}
		w.hash.Write(a.Data)
		if w.sum = hex.EncodeToString(w.hash.Sum(nil)); have == nil || have.sum != w.sum || layouts.ModeOf(have.mode) != layouts.ModeOf(w.Mode) {
			list = append(list, w)
		}
	}
	return list, true
}

// hashOf returns what has hashed a file, to go on with. It is false if that is not kept.
func (t *Tree) hashOf(p, sum string) (hash.Hash, bool) {
	kept := t.hashes[p]
	c, ok := kept.hash.(hash.Cloner)
	if !ok || kept.sum != sum {
		return nil, false
	}
	h, err := c.Clone()
	return h, err == nil
}

// rendering writes all of a file, where what it grew by cannot be put behind it.
func (t *Tree) rendering(ctx context.Context, sub events.Subject, p string, at events.Offset) func(io.Writer) error {
	return func(w io.Writer) error {
		for f, err := range t.unitFiles(ctx, sub, at, t.units[sub].path) {
			if err != nil {
				return err
			}
			if f.Path == p {
				return f.Write(w)
			}
		}
		return &fs.PathError{Op: "render", Path: p, Err: fs.ErrNotExist}
	}
}
