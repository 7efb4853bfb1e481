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

// KindConflict is the kind of documents that hold what somebody wrote to a file and the log
// could not take.
const KindConflict = "conflict"

// Attributes of such a document, beside the link of rel "of" to what the file belongs to.
const (
	attrTree   = "tree"
	attrPath   = "path"   // of the file
	attrCopy   = "copy"   // of the file beside it
	attrReason = "reason" // why it was not taken
)

// Conflict is a text that was written to a file and not taken.
type Conflict struct {
	ID      string        // of the document that holds it, of kind conflict
	Path    string        // of the file
	Copy    string        // of the file that has it
	Subject string        // that the file belongs to; "": nobody knows
	Base    events.Offset // the log as of which it was an edit of the file; 0: of nothing
	Reason  string
	Size    int64
	At      events.Offset // of the record
}

// keeping is a text that is about to be kept.
type keeping struct {
	path   string
	unit   events.Subject
	base   events.Offset
	sum    string
	reason string
	read   func() (io.ReadCloser, error)
	held   bool // nobody has decided on it: the tree does not take it in, and is not its actor
}

// keep stores a text as a conflict. The file beside is written when the log has it. The caller
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
		return fmt.Errorf("%s: it is larger than %d bytes", k.path, t.c.MaxFile)
	}
	id := t.keptAs(k)
	doc := events.Document(t.c.Target.Namespace(), KindConflict, id)
	meta := events.DocMeta{Base: k.base, Attributes: map[string]string{attrTree: t.c.Name, attrPath: filename.Key(k.path),
		attrCopy: filename.Key(copyPath(k.path, k.base, id)), attrReason: k.reason}}
	if k.unit.ID != "" {
		meta.Links = []events.Link{{Rel: "of", To: k.unit.String()}}
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
		return nil // it was kept before, and perhaps resolved since
	}
	return err
}

// keptAs is the id of the document that keeps a text. The same text of the same file is the same
// document.
func (t *Tree) keptAs(k keeping) string {
	sum := sha256.Sum256([]byte(events.DerivedID("tree", t.c.Name, k.path, k.base.String(), k.sum)))
	return hex.EncodeToString(sum[:12])
}

// eventSource is the CloudEvents source of what a tree appends itself.
const eventSource = "urn:tally:tree"

// copyPath is the path of the file that has the other text, beside the one that it was
// written to.
func copyPath(p string, base events.Offset, id string) string {
	dir, name := path.Split(p)
	ext := path.Ext(name)
	if ext == name {
		ext = ""
	}
	stem := strings.TrimSuffix(name, ext)
	return dir + stem[:min(len(stem), 150)] + fmt.Sprintf(".conflict-%d-%.6s", base, id) + ext
}

// isCopy reports whether a name is one of a conflict's file.
func isCopy(p string) bool { return strings.Contains(path.Base(p), ".conflict-") }

func (t *Tree) conflictPlace(ctx context.Context, src layouts.Source, sub events.Subject) (layouts.Location, error) {
	doc, err := src.Loader().Document(ctx, sub, 0)
	if err != nil {
		return layouts.Location{}, err
	}
	meta := doc.Last().Meta
	name := filename.Unescape(meta.Attributes[attrCopy])
	if meta.Attributes[attrTree] != t.c.Name || t.holding[sub.ID] || t.files[name] == nil && t.isIgnored(name) ||
		name != copyPath(filename.Unescape(meta.Attributes[attrPath]), meta.Base, sub.ID) { // whoever may write documents shall not choose a name
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

// Conflicts lists what was written to files of the tree and not taken, oldest first. What is
// about to be kept when it is called is in the list: who sees that a file has gone finds its text.
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

// Resolve closes a conflict: its file goes. One that there is not is projector.ErrNotFound.
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
