package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
)

// odd is a storage that changes the results of some calls.
type odd struct {
	storagetest.Whole
	read   func(p string) (io.ReadCloser, error) // nil, nil: unchanged
	append func(p string, tail []byte) error
}

func (o *odd) Read(ctx context.Context, p string) (io.ReadCloser, error) {
	if o.read != nil {
		if r, err := o.read(p); r != nil || err != nil {
			return r, err
		}
	}
	return o.Whole.Read(ctx, p)
}

func (o *odd) Append(ctx context.Context, p string, tail []byte) error {
	if o.append != nil {
		return o.append(p, tail)
	}
	return o.Whole.Append(ctx, p, tail)
}

func (w *world) written_(id, text string) {
	sub := events.Document(w.st.Namespace(), plainKind, id)
	doc, err := w.st.Loader().Document(context.Background(), sub, 0)
	if err != nil && !isGone(err) {
		w.t.Fatal(err)
	}
	e := events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: []byte(text)}
	need(w.st.Append(context.Background(), sub, log.At(doc.Head), e))
}

// With an unreadable file, a mass change neither passes without a question nor stops the tree without one.
func TestUnreadable(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name  string
		first bool // it exists at the start of the tree
	}{{"from the beginning", true}, {"later", false}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, plainLand{}, nil, false)
			w.touched = true
			w.storage = &odd{Whole: w.storage, read: func(p string) (io.ReadCloser, error) {
				if p == "secret" {
					return nil, &fs.PathError{Op: "read", Path: p, Err: fs.ErrPermission}
				}
				return nil, nil
			}}
			if c.first {
				must(t, w.user.Put("secret", "x"))
			}
			w.start()
			w.tree.c.BulkLimit = 50
			for n := range 100 {
				w.written_(fmt.Sprintf("f%d", n), "text")
			}
			w.project()
			w.pass(5 * time.Second)
			if !c.first {
				must(t, w.user.Put("secret", "x"))
				w.tell()
				w.pass(3 * time.Second)
			}
			head := need(w.st.Log.Durable(ctx))
			for n := range 100 {
				must(t, w.user.Remove(fmt.Sprintf("f%d", n)))
			}
			w.tell()
			w.pass(30 * time.Second)
			if now := need(w.st.Log.Durable(ctx)); now != head || w.tree.Room() == nil {
				t.Errorf("got %d events, and the tree asks: %v", now-head, w.tree.Room())
			}
		})
	}
}

// If the disk gets full in the middle of a line, the tree's own partial write is not a conflict.
func TestTornAppend(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	o, full := &odd{Whole: w.storage}, false
	o.append = func(p string, tail []byte) error {
		if full {
			must(t, o.Whole.Append(context.Background(), p, tail[:len(tail)/2]))
			return errors.New("no space left on device")
		}
		return o.Whole.Append(context.Background(), p, tail)
	}
	w.storage = o
	w.start()
	w.written_("x.jsonl", "1\n")
	w.project()
	w.pass(3 * time.Second)
	w.written_("x.jsonl", "1\n2\n")
	w.project()
	w.pass(3 * time.Second)
	full = true
	w.written_("x.jsonl", "1\n2\n3333\n")
	w.project()
	full = false
	w.pass(30 * time.Second)
	if got := w.user.Files()["x.jsonl"]; got != "1\n2\n3333\n" {
		t.Errorf("the file is %q", got)
	}
	if list := need(w.tree.Conflicts(context.Background())); len(list) > 0 {
		t.Errorf("got conflicts without a user's write: %+v", list)
	}
}

// If a file has disappeared, Conflicts lists its text.
func TestConflictsWhileOneComes(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	o, found := &odd{Whole: w.storage}, make(chan []Conflict, 1)
	w.storage = o
	w.start()
	w.written_("a", "1")
	w.project()
	must(t, w.user.Put("a", "of somebody"))
	w.written_("a", "2")
	tree, asked := w.tree, false
	o.read = func(p string) (io.ReadCloser, error) {
		if w.user.Files()["a"] == "2" && !asked { // theirs was displaced, and is checked
			asked = true
			go func() { found <- need(tree.Conflicts(context.Background())) }()
			time.Sleep(50 * time.Millisecond) // for an answer without waiting
		}
		return nil, nil
	}
	w.project()
	if !asked {
		t.Fatal("no file was displaced")
	}
	if list := heard(t, found, "the list of conflicts"); len(list) != 1 || list[0].Path != "a" {
		t.Errorf("Conflicts returned %+v", list)
	}
}

// Another mode of a conflict's file does not change its text.
func TestCopyMode(t *testing.T) {
	r := newReal(t, -1)
	at := need(r.put("a.fixed", "one", 0))
	must(t, r.shows(at))
	must(t, os.WriteFile(filepath.Join(r.dir, "a.fixed"), []byte("another"), 0o644))
	var c Conflict
	r.until("there is a conflict, and a copy", func() bool {
		list := need(r.tree.Conflicts(t.Context()))
		if len(list) == 0 {
			return false
		}
		c = list[0]
		_, err := os.Stat(filepath.Join(r.dir, c.Copy))
		return err == nil
	})
	must(t, os.Chmod(filepath.Join(r.dir, c.Copy), 0o755))
	r.until("it is as the tree has it", func() bool {
		info, err := os.Stat(filepath.Join(r.dir, c.Copy))
		return err == nil && layouts.ModeOf(info.Mode().Perm()) == 0
	})
	n := 0
	for _, err := range r.st.Log.Read(t.Context(), events.Range{Subject: events.Document(r.st.Namespace(), KindConflict, c.ID)}) {
		must(t, err)
		n++
	}
	if n > 1 {
		t.Errorf("the conflict has %d revisions", n)
	}
}

// A large file that is written further during the import makes no conflict.
func TestLargeEditGoesOn(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	o, reads := &odd{Whole: w.storage}, 0
	w.storage = o
	w.start()
	w.tree.heldEdit = 40
	w.written_("a", "begin")
	w.project()
	w.pass(3 * time.Second)
	o.read = func(p string) (io.ReadCloser, error) {
		if p == "a" {
			if reads++; reads == 2 { // the read of the import
				must(t, w.user.Put("a", strings.Repeat("y", 120)))
			}
		}
		return nil, nil
	}
	must(t, w.user.Put("a", strings.Repeat("x", 100)))
	w.tell()
	w.pass(10 * time.Second)
	if got := w.user.Files()["a"]; got != strings.Repeat("y", 120) {
		t.Errorf("the file is %q", got)
	}
	for _, c := range need(w.tree.Conflicts(context.Background())) {
		t.Errorf("got a conflict: %+v", c)
	}
}

// A document whose name has the form of a temporary file stays.
func TestCalledTemporary(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	w.start()
	w.written_("notes.tally-tmp-x", "text")
	w.project()
	w.pass(5 * time.Second)
	must(t, w.tree.Close())
	w.start()
	w.project()
	w.tell()
	w.pass(20 * time.Second)
	sub := events.Document(w.st.Namespace(), plainKind, "notes.tally-tmp-x")
	if _, err := w.st.Loader().Document(context.Background(), sub, 0); err != nil {
		t.Errorf("the document: %v", err)
	}
	for _, c := range need(w.tree.Conflicts(context.Background())) {
		t.Errorf("got a conflict: %+v", c)
	}
}

// The content of an ignored folder is ignored, even with a notification.
func TestIgnoredFolder(t *testing.T) {
	for _, pattern := range []string{"docs/private", "docs/private/"} {
		w := newWorld(t, plainLand{}, nil, false)
		w.touched = true
		w.start()
		w.tree.c.Ignore = []string{pattern}
		must(t, w.user.Put("docs/private/key", "secret"))
		w.tree.Changed("docs/private/key")
		w.pass(5 * time.Second)
		if n := need(w.st.Log.Durable(context.Background())); n != 0 {
			t.Errorf("%s: the file was imported", pattern)
		}
	}
}

// A displaced file that is too large to be kept is not read repeatedly.
func TestDisplacedLarge(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	o, reads := &odd{Whole: w.storage}, 0
	w.storage = o
	w.start()
	w.tree.c.MaxFile = 100
	w.written_("a", "one")
	w.project()
	w.pass(3 * time.Second)
	must(t, w.user.Put("a", strings.Repeat("x", 1000)))
	w.tell()
	w.pass(3 * time.Second)
	w.written_("a", "two")
	w.project()
	o.read = func(p string) (io.ReadCloser, error) {
		if layouts.IsTemporary(p) {
			reads++
		}
		return nil, nil
	}
	w.pass(10 * time.Minute)
	if reads > 20 {
		t.Errorf("the file was read %d times in ten minutes", reads)
	}
}

// looked is a storage without folders that counts full listings.
type looked struct {
	storagetest.Whole
	lists int
}

func (l *looked) List(ctx context.Context, p string) ([]layouts.FileInfo, error) {
	l.lists++
	return l.Whole.List(ctx, p)
}

func (l *looked) Walk(ctx context.Context, p string) iter.Seq2[layouts.Found, error] {
	return layouts.Walk(ctx, l.Whole, p)
}

// Without folders, the tree does not look for empty ones, because that would list everything.
func TestTidyLooksAtNothing(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	l := &looked{Whole: w.storage}
	w.storage = l
	w.start()
	w.tree.c.Storage = l // a faulty storage has no Walk
	for n := range 30 {
		w.written_("d/a", fmt.Sprint(n))
		w.project()
		w.pass(3 * time.Second)
	}
	if l.lists > 2 {
		t.Errorf("got %d listings of folders for 30 revisions of a file", l.lists)
	}
}

// A conflict's file is beside the original, whatever path the log names.
func TestHostileCopy(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	w.start()
	w.written_("a", "mine")
	w.project()
	for i, p := range []string{".git/config", "a", "../out"} {
		doc := events.Document(w.st.Namespace(), KindConflict, fmt.Sprint("c", i))
		e := events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: doc, ContentType: events.ContentTypeRaw, Data: []byte("evil")}
		meta := events.DocMeta{Attributes: map[string]string{attrTree: "law", attrPath: p, attrCopy: p}}
		need(w.st.Append(context.Background(), doc, log.At(0), e.WithExtension(events.ExtDoc, meta.String())))
	}
	w.project()
	w.pass(5 * time.Second)
	for p, text := range w.files() {
		if text == "evil" && !isCopy(p) {
			t.Errorf("%s: got %q", p, text)
		}
	}
}

// A user with write access to documents cannot write git's settings or programs.
func TestGitsFiles(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	w.start()
	w.written_(".git/hooks/pre-push", "evil")
	w.written_("d/.Git/config", "evil")
	w.written_(".gitignore", "good")
	w.project()
	w.pass(5 * time.Second)
	if got := w.user.Files(); len(got) != 1 || len(w.tree.Status().Stuck) != 2 {
		t.Errorf("the files are %q, stuck are %v", got, w.tree.Status().Stuck)
	}
}

// A tree with way In writes no file, also after a restart.
func TestWayIn(t *testing.T) {
	w := newWorld(t, plainLand{}, nil, false)
	w.touched = true
	w.start()
	w.tree.c.Way = In
	must(t, w.user.Put("a", "mine"))
	w.tell()
	w.pass(3 * time.Second)
	w.written_("a", "of the log")
	w.project()
	w.pass(3 * time.Second)
	must(t, w.tree.Close())
	w.start()
	w.tree.c.Way = In
	w.project()
	w.pass(30 * time.Second)
	if got := w.user.Files(); len(got) != 1 || got["a"] != "mine" {
		t.Errorf("the files are %q", got)
	}
}
