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

// hashed is the hash state of a file, so that only appended data need hashing.
type hashed struct {
	sum  string
	hash hash.Hash // has hashed the whole content
}

// maxHashes bounds the hash states and the known entries, at about 250 bytes each.
const maxHashes = 4096

// keepHash keeps the hash state of a written log file. The caller holds mu.
func (t *Tree) keepHash(w wantedFile) {
	if _, grows := t.c.Layout.(layouts.Grower); !grows || w.hash == nil || !isLog(w.Path) {
		return
	}
	if len(t.hashes) >= maxHashes {
		clear(t.hashes) // each file is rendered once more
	}
	t.hashes[w.Path] = hashed{w.sum, w.hash}
}

// knownEntry is a layout's cached knowledge of an entry at an offset.
type knownEntry struct {
	at events.Offset
	of any
}

// keepKnown caches the knowledge of an entry. The caller holds mu.
func (t *Tree) keepKnown(sub events.Subject, k knownEntry) {
	if len(t.knowns) >= maxHashes {
		clear(t.knowns)
	}
	t.knowns[sub] = k
}

// isLog reports whether a file grows at its end.
func isLog(p string) bool { return strings.HasSuffix(p, ".jsonl") }

// grown returns the entries whose files only grow, with the additions. The entries in rest must be rendered. All records up
// to the offset were applied. The caller holds mu.
func (t *Tree) grown(ctx context.Context, list []events.Subject, at events.Offset) (grown map[events.Subject][]wantedFile, rest []events.Subject) {
	g, is := t.c.Layout.(layouts.Grower)
	grown = make(map[events.Subject][]wantedFile)
	for _, sub := range list {
		if d, applied := t.dirty[sub]; is && applied && !d.whole && !t.redo[sub] && t.stuck[sub] == nil && t.entries[sub].at != 0 && t.entries[sub].path != "" {
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

// additions returns the growing files of an entry with their additions. It returns false if they are unknown.
func (t *Tree) additions(ctx context.Context, g layouts.Grower, sub events.Subject, at events.Offset) ([]wantedFile, bool) {
	u, before := t.entries[sub], t.knowns[sub]
	if before.at != u.at {
		before.of = nil
	}
	more, ok, err := g.Growth(ctx, t.as(at), t.c.Root, sub, u.path, u.at, t.dirty[sub].others, before.of)
	if err != nil || !ok { // rendering reports the error
		return nil, false
	}
	t.keepKnown(sub, knownEntry{at, more.Known})
	var list []wantedFile
	for _, a := range more.Added {
		w := wantedFile{File: layouts.File{Path: a.Path, Mode: a.Mode}, entry: sub, at: at, size: int64(len(a.Data)), hash: sha256.New()}
		have := t.files[a.Path]
		switch {
		case have != nil && have.entry != sub, have == nil && !a.New:
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

// hashOf returns a copy of the hash state of a file. It returns false if it was not kept.
func (t *Tree) hashOf(p, sum string) (hash.Hash, bool) {
	kept := t.hashes[p]
	c, ok := kept.hash.(hash.Cloner)
	if !ok || kept.sum != sum {
		return nil, false
	}
	h, err := c.Clone()
	return h, err == nil
}

// rendering writes a whole file, for the case that the addition cannot be appended.
func (t *Tree) rendering(ctx context.Context, sub events.Subject, p string, at events.Offset) func(io.Writer) error {
	return func(w io.Writer) error {
		for f, err := range t.entryFiles(ctx, sub, at, t.entries[sub].path) {
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
