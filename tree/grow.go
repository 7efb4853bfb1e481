package tree

import (
	"context"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
)

// hashed is a file of which what comes behind it is hashed alone.
type hashed struct {
	sum  string
	hash hash.Hash // that has had what it is the sum of
}

// mostHashes bounds the files of which that is known: some 250 bytes each.
const mostHashes = 4096

// keepHash notes how a log was hashed that was written. The caller holds mu.
func (t *Tree) keepHash(w want) {
	if _, grows := t.c.Layout.(formats.Grower); !grows || w.hash == nil || !isLog(w.Path) {
		return
	}
	if len(t.hashes) >= mostHashes {
		clear(t.hashes) // each is rendered once more
	}
	t.hashes[w.Path] = hashed{w.sum, w.hash}
}

// isLog reports whether a file is one that grows at its end.
func isLog(p string) bool { return strings.HasSuffix(p, ".jsonl") }

// grown finds out of which units the files only grow, and by what; the rest is to be rendered.
// Everything up to the offset was applied. The caller holds mu.
func (t *Tree) grown(ctx context.Context, list []events.Subject, at events.Offset) (grown map[events.Subject][]want, rest []events.Subject) {
	g, is := t.c.Layout.(formats.Grower)
	grown = make(map[events.Subject][]want)
	for _, sub := range list {
		if is && t.dirty[sub] && !t.redo[sub] && t.stuck[sub] == nil && t.units[sub].at != 0 && t.units[sub].path != "" {
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
func (t *Tree) additions(ctx context.Context, g formats.Grower, sub events.Subject, at events.Offset) ([]want, bool) {
	u := t.units[sub]
	added, ok, err := g.Growth(ctx, t.as(at), t.c.Root, sub, u.path, u.at)
	if err != nil || !ok { // what is wrong, the rendering says
		return nil, false
	}
	var list []want
	for _, a := range added {
		if len(a.Data) == 0 {
			continue
		}
		have, before := t.files[a.Path], t.hashes[a.Path]
		if have == nil || have.unit != sub || have.sum != before.sum {
			return nil, false
		}
		c, canClone := before.hash.(hash.Cloner)
		if !canClone {
			return nil, false
		}
		h, err := c.Clone()
		if err != nil {
			return nil, false
		}
		h.Write(a.Data)
		list = append(list, want{File: formats.File{Path: a.Path, Mode: have.mode, Write: t.rendering(ctx, sub, a.Path, at)},
			unit: sub, at: at, sum: hex.EncodeToString(h.Sum(nil)), size: have.size + int64(len(a.Data)), grew: true, tail: a.Data, hash: h})
	}
	return list, true
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
