package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// KindConflict is the kind of documents that hold text from a file that the log could not accept.
const KindConflict = "conflict"

// Attributes of such a document. Its link with rel "of" names the session or document of the file.
const (
	attrTree   = "tree"
	attrPath   = "path"   // of the file
	attrCopy   = "copy"   // path of the conflict's file beside it
	attrReason = "reason" // why it was refused
)

// Conflict is text from a file that was not imported.
type Conflict struct {
	ID      string        // of the document of kind conflict that holds it
	Path    string        // of the file
	Copy    string        // path of the file that shows it
	Subject string        // owner of the file; "": unknown
	Base    events.Offset // offset that the edit was based on; 0: none
	Reason  string
	Size    int64
	At      events.Offset // of the record
}

// keeping is a text to be kept as a conflict.
type keeping struct {
	path   string
	entry  events.Subject
	base   events.Offset
	sum    string
	reason string
	read   func() (io.ReadCloser, error)
	held   bool // no user has decided on it: the tree neither imports it nor is its actor
}

// keep stores a text as a conflict. The file beside the original is written when the log has the conflict. The caller
// holds mu.
func (t *Tree) keep(ctx context.Context, k keeping) error {
	r, err := k.read()
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, t.c.MaxFile+1))
	if err != nil {
		return err
	}
	if int64(len(data)) > t.c.MaxFile {
		return fmt.Errorf("%s: the file is larger than %d bytes", k.path, t.c.MaxFile)
	}
	id := t.keptAs(k)
	doc := events.Document(t.c.Target.Namespace(), KindConflict, id)
	meta := events.DocMeta{Base: k.base, Attributes: map[string]string{attrTree: t.c.Name, attrPath: filename.Key(k.path),
		attrCopy: filename.Key(copyPath(k.path, k.base, id)), attrReason: k.reason}}
	if k.entry.ID != "" {
		meta.Links = []events.Link{{Rel: "of", To: k.entry.String()}}
	}
	contentType := events.ContentTypeRaw
	if utf8.Valid(data) {
		contentType = "text/plain; charset=utf-8"
	}
	e := events.Event{ID: events.DerivedID("tree conflict", id), Source: eventSource, Type: events.TypeDocumentWritten, Subject: doc, ContentType: contentType, Data: data}
	e = e.WithExtension(events.ExtDoc, meta.String())
	if !k.held {
		e = e.WithExtension(events.ExtActor, "tree:"+t.c.Name)
	}
	reached("way back: before append")
	_, err = t.c.Target.Append(ctx, doc, log.At(0), e)
	if errors.Is(err, log.ErrConflict) {
		return nil // kept before, and perhaps resolved since
	}
	return err
}

// keptAs returns the id of the document that keeps a text. The same text of the same file has the same id.
func (t *Tree) keptAs(k keeping) string {
	sum := sha256.Sum256([]byte(events.DerivedID("tree", t.c.Name, k.path, k.base.String(), k.sum)))
	return hex.EncodeToString(sum[:12])
}

// eventSource is the CloudEvents source of events that a tree itself appends.
const eventSource = "urn:tally:tree"

// copyPath returns the path of the file for the refused text, beside the original file.
func copyPath(p string, base events.Offset, id string) string {
	dir, name := path.Split(p)
	ext := path.Ext(name)
	if ext == name {
		ext = ""
	}
	stem := strings.TrimSuffix(name, ext)
	return dir + stem[:min(len(stem), 150)] + fmt.Sprintf(".conflict-%d-%.6s", base, id) + ext
}

// isCopy reports whether a path has the form of a conflict's file.
func isCopy(p string) bool { return strings.Contains(path.Base(p), ".conflict-") }

func (t *Tree) conflictLocation(ctx context.Context, src layouts.Source, sub events.Subject) (layouts.Location, error) {
	doc, err := src.Loader().Document(ctx, sub, 0)
	if err != nil {
		return layouts.Location{}, err
	}
	meta := doc.Last().Meta
	name := filename.Unescape(meta.Attributes[attrCopy])
	if meta.Attributes[attrTree] != t.c.Name || t.holding[sub.ID] || t.files[name] == nil && t.isIgnored(name) ||
		name != copyPath(filename.Unescape(meta.Attributes[attrPath]), meta.Base, sub.ID) { // a user with write access to documents must not choose the name
		return layouts.Location{}, projector.ErrNotFound
	}
	return layouts.Location{Path: name}, nil
}

func conflictFile(ctx context.Context, src layouts.Source, sub events.Subject, name string) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		doc, err := src.Loader().Document(ctx, sub, 0)
		if err != nil {
			yield(layouts.File{Path: name}, err)
			return
		}
		yield(layouts.File{Path: name, Mode: layouts.FileMode(0), Write: func(w io.Writer) error {
			_, err := w.Write(doc.Data)
			return err
		}}, nil)
	}
}

// Conflicts lists the texts of the tree's files that were not imported, oldest first. It includes texts that are just
// being kept: if a file has disappeared, its text is in the list.
func (t *Tree) Conflicts(ctx context.Context) ([]Conflict, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Conflict
	for info, err := range t.c.Target.Subjects(ctx, KindConflict) {
		if err != nil {
			return nil, err
		}
		doc, err := t.c.Target.Loader().Document(ctx, info.Subject, 0)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		meta := doc.Last().Meta
		if meta.Attributes[attrTree] != t.c.Name {
			continue
		}
		c := Conflict{ID: info.Subject.ID, Path: filename.Unescape(meta.Attributes[attrPath]), Copy: filename.Unescape(meta.Attributes[attrCopy]),
			Base: meta.Base, Reason: meta.Attributes[attrReason], Size: int64(len(doc.Data)), At: doc.Last().Offset}
		for _, l := range meta.Links {
			if l.Rel == "of" {
				c.Subject = l.To
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// Resolve closes a conflict and removes its file. If the conflict does not exist, Resolve returns
// projector.ErrNotFound.
func (t *Tree) Resolve(ctx context.Context, id string) error {
	return t.close(ctx, events.Document(t.c.Target.Namespace(), KindConflict, id))
}

func (t *Tree) close(ctx context.Context, doc events.Subject) error {
	d, err := t.c.Target.Loader().Document(ctx, doc, 0)
	if err != nil {
		return err
	}
	e, err := events.New(eventSource, doc, &events.DocumentDeleted{Reason: "resolved"})
	if err != nil {
		return err
	}
	e.ID = events.DerivedID("tree resolved", doc.ID, d.Head.String())
	_, err = t.c.Target.Append(ctx, doc, log.At(d.Head), e.WithExtension(events.ExtActor, "tree:"+t.c.Name))
	return err
}
