package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/smallwrites"
	"github.com/tallylog/tally/log"
)

// If a write of one of the store's own files fails, nothing that was known is forgotten. The program starts a damaged
// store, uses it, damages it further and stops it, while each small write is refused in a run of its own.
func TestSmallWritesFail(t *testing.T) {
	testkit.NotUnderRace(t)
	whole := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
	for _, kind := range smallwrites.Kinds {
		t.Run("net D1 what was found is in the list after a write failed "+kind.Name, func(t *testing.T) {
			var undisturbed []log.Hole
			smallwrites.Each(t, kind, func(t *testing.T, w *smallwrites.Writes) {
				if undisturbed != nil {
					testkit.Sample(t, 10)
				}
				r := &damagedRun{t: t, w: w, im: whole, dir: filepath.Join(t.TempDir(), "store"), found: make(map[string][]byte)}
				copyStore(t, r.dir, whole.dir)
				if kind.Lasting {
					r.cutEnd()
				} else {
					r.smearBlock(len(segments(t, r.dir)), -1, false)
				}
				r.play()
				defer func() {
					if t.Failed() {
						t.Log(w.Said())
					}
				}()
				lost := r.last()
				if undisturbed == nil {
					undisturbed = lost
				}
				if len(lost) < 4 || !slices.Equal(lost, undisturbed) {
					t.Errorf("refused were %v: got lost records\n%v, want those of the undisturbed run\n%v", w.Refused(), lost, undisturbed)
				}
			})
		})
	}
}

// damagedRun is a run of a store that is damaged before its start and while it is used.
type damagedRun struct {
	t     *testing.T
	w     *smallwrites.Writes
	im    *storeImage
	dir   string
	found map[string][]byte // content of damaged blocks, by stream
	extra []string          // ids of the appended events
	errs  []error
}

// smearBlock overwrites some bytes of a record of a stream's only block: in its frame, or in its data.
func (r *damagedRun) smearBlock(stream, record int, inFrame bool) {
	r.t.Helper()
	path, data, records := onlyBlock(r.t, r.dir, stream)
	if record < 0 {
		record += len(records)
	}
	at := records[record].End - 60
	if inFrame {
		at = records[record].Begin
	}
	for i := range 6 {
		data[at+i] ^= 0x55
	}
	rewriteInPlace(r.t, path, data)
	r.found[streamOf(path)] = data
}

// cutEnd cuts off the last record of the log.
func (r *damagedRun) cutEnd() {
	r.t.Helper()
	path, data, records := onlyBlock(r.t, r.dir, len(segments(r.t, r.dir)))
	rewriteInPlace(r.t, path, data[:records[len(records)-1].Begin])
}

// flipBit flips a bit of a stream's only block.
func (r *damagedRun) flipBit(stream int) {
	r.t.Helper()
	path, data, records := onlyBlock(r.t, r.dir, stream)
	data[records[10].End-30] ^= 4
	rewriteInPlace(r.t, path, data)
	r.found[streamOf(path)] = data
}

// play starts, uses and stops the store. Its files are watched, and one of the writes is refused.
func (r *damagedRun) play() {
	t := r.t
	r.smearBlock(1, 20, true)
	r.smearBlock(3, 30, false)
	r.flipBit(4)
	r.w.Watch(r.dir, "start")
	s := r.start()
	r.w.Watch(r.dir, "use")
	r.append(s)
	r.smearBlock(2, 30, true)
	embedded.Scrub(t.Context(), t, s)
	if strings.Count(r.w.Said(), "cannot be checked") < 2 {
		r.read(s, events.Range{}) // from a block that could not be repaired, the server reads only a part
	}
	r.mustNotBeClean("in use")
	r.w.Watch(r.dir, "stop")
	err := s.Close()
	r.errs = append(r.errs, err)
	r.w.Allow()
	if !r.isClean() && len(r.w.Refused()) == 0 {
		t.Error("the mark of an undisturbed stop is not clean")
	}
	if err == nil || r.isClean() {
		if lost := r.list(); len(lost) < 4 {
			t.Errorf("after a stop with error %v, clean %v: the list has only %v", err, r.isClean(), lost)
		}
	}
	onlyWatermark := !slices.ContainsFunc(r.w.Refused(), func(path string) bool { return filepath.Base(path) != storedir.WatermarkFile })
	if !onlyWatermark && !r.w.Reported(r.errs...) {
		t.Errorf("%v was refused, and nothing was reported", r.w.Refused())
	}
}

// start starts the store, again if the first start reports the refusal.
func (r *damagedRun) start() *embedded.Server {
	r.t.Helper()
	o := smallSegments(r.dir)
	o.Logger = r.w.Logger()
	o.RereadBytes = 1 << 30 // the server keeps its streams open while the test changes a block
	s, err := embedded.Start(r.t.Context(), o)
	if err != nil && r.w.Reported(err) {
		r.errs = append(r.errs, err)
		r.w.Allow()
		s, err = embedded.Start(r.t.Context(), o)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Close() })
	if lost := r.list(); len(lost) < 3 {
		r.t.Errorf("the store was started, and the list has only %v", lost)
	}
	return s
}

// append appends so much that a segment is begun, and waits for the index of the full one. A store that cannot write its
// mark refuses.
func (r *damagedRun) append(s *embedded.Server) {
	t := r.t
	t.Helper()
	before := len(segments(t, r.dir))
	var evs []events.Event
	for i := range 90 {
		r.extra = append(r.extra, fmt.Sprint("extra-", i))
		evs = append(evs, turn(r.extra[i], strings.Repeat("x", 200)))
	}
	_, err := s.Log().Append(t.Context(), events.Session("", "extra"), log.Any, evs...)
	if err != nil {
		if !errors.Is(err, log.ErrUnavailable) || len(r.w.Refused()) == 0 {
			t.Fatal(err)
		}
		r.errs = append(r.errs, err)
		r.w.Allow()
		eventually(t, func() error {
			_, err = s.Log().Append(t.Context(), events.Session("", "extra"), log.Any, evs...)
			return err
		})
	}
	r.mustNotBeClean("after an append")
	eventually(t, func() error {
		if have, _ := filepath.Glob(filepath.Join(r.dir, "segments", "TALLY_*.index")); len(have) < before && len(r.w.Refused()) == 0 {
			return fmt.Errorf("waiting for the index of segment %d: there are %d", before, len(have))
		}
		return nil
	})
}

// last starts the store without refusals, looks through it and stops it. It returns the list of lost records, and fails
// unless each record is there or in the list.
func (r *damagedRun) last() []log.Hole {
	t := r.t
	t.Helper()
	o := smallSegments(r.dir)
	s := mustStart(t, o)
	embedded.Scrub(t.Context(), t, s)
	r.im.check(t, s, "at last")
	if ids := r.read(s, events.Range{Subject: events.Session("", "extra")}); !slices.Equal(ids, r.extra) {
		t.Errorf("got %d of %d events that were acknowledged", len(ids), len(r.extra))
	}
	mustClose(t, s)
	if !r.isClean() {
		t.Error("the mark of an undisturbed stop is not clean")
	}
	for name, data := range r.found {
		kept, err := filepath.Glob(filepath.Join(storedir.DamagedDir(r.dir), name+"-*.blk*"))
		if err != nil || len(kept) == 0 && name != "TALLY_3" { // its frames are right
			t.Errorf("the damaged block of %s was not kept (%v)", name, err)
		}
		for _, path := range kept {
			if !bytes.Equal(mustReadFile(t, path), data) {
				t.Errorf("%s is not what was found on the disk", path)
			}
		}
	}
	return r.list()
}

// read returns the ids of the records that are there.
func (r *damagedRun) read(s *embedded.Server, of events.Range) (ids []string) {
	r.t.Helper()
	for rec, err := range s.Log().Read(r.t.Context(), of) {
		if _, damaged := errors.AsType[*events.DamageError](err); err != nil && !damaged {
			r.t.Fatal(err)
		}
		if err == nil {
			ids = append(ids, rec.ID)
		}
	}
	return ids
}

func (r *damagedRun) list() []log.Hole {
	r.t.Helper()
	lost, err := storedir.ReadHoles(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return lost
}

func (r *damagedRun) isClean() bool { return isClean(r.t, r.dir) }

func (r *damagedRun) mustNotBeClean(when string) {
	r.t.Helper()
	if r.isClean() {
		r.t.Errorf("%s: the mark says that the store was stopped", when)
	}
}

// If a file of a store cannot be written from open to close, an error or a warning names the failure, and the next owner
// has everything that was acknowledged. The exceptions are files that save only time.
func TestSmallFilesOfAStore(t *testing.T) {
	testkit.NotUnderRace(t)
	play := func(t *testing.T, refused string) (written []string) {
		n := newNoted(t, "")
		var mu sync.Mutex
		var said bytes.Buffer
		seen, isRefused := make(map[string]bool), false
		stop := durable.Guard(func(path string) error {
			rel, err := filepath.Rel(n.dir, path)
			if err != nil || strings.HasPrefix(rel, "..") {
				return nil
			}
			rel = regexp.MustCompile("^(daemons/|trees/notes-).*").ReplaceAllString(filepath.ToSlash(rel), "${1}N") // a process, or a hash
			mu.Lock()
			defer mu.Unlock()
			seen[rel] = true
			if rel == refused {
				isRefused = true
				return syscall.ENOSPC
			}
			return nil
		})
		defer stop()
		d := &lookout{looks: make(chan int, 100)}
		o := embedded.Options{Trees: notesOf, Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &said}, nil)),
			ConfigDir: n.project, Store: n.dir, Daemons: func(*tally.Store) ([]daemon.Daemon, error) { return []daemon.Daemon{d}, nil }}
		st, openErr := embedded.Open(t.Context(), o)
		var putErr, closeErr error
		if openErr == nil {
			<-d.looks
			if putErr = n.put(st, "a", "text"); putErr == nil {
				eventually(t, func() error { _, err := os.Stat(filepath.Join(n.folder, "a")); return err }) // the tree is kept
			}
			eventually(t, func() error {
				mu.Lock()
				defer mu.Unlock()
				if !seen["daemons/N"] {
					return errors.New("waiting for the report about the daemons")
				}
				return nil
			})
			closeErr = st.Close()
		}
		stop()
		mu.Lock()
		text := fmt.Sprint(said.String(), openErr, putErr, closeErr)
		mu.Unlock()
		savesTime := refused == storedir.WatermarkFile || strings.HasSuffix(refused, ".sum") // of views, which are made again
		if refused != "" && !isRefused {
			t.Errorf("%s was not written", refused)
		}
		if isRefused && !savesTime && !strings.Contains(text, syscall.ENOSPC.Error()) {
			t.Errorf("%s was refused, and nothing was reported: %s", refused, text)
		}
		if openErr == nil && putErr == nil {
			doc, err := n.open(embedded.Options{}).Documents().Read(t.Context(), "note", "a")
			if err != nil || string(doc.Data) != "text" {
				t.Errorf("%s was refused: the next owner has %q, %v", refused, doc.Data, err)
			}
		}
		for name := range seen {
			written = append(written, name)
		}
		slices.Sort(written)
		return written
	}
	t.Run("net D3 a file that cannot be written is reported", func(t *testing.T) {
		var names []string
		t.Run("undisturbed", func(t *testing.T) { names = play(t, "") })
		for _, name := range names {
			t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) { play(t, name) })
		}
		if len(names) < 8 {
			t.Errorf("the store writes only %v: the test shows little", names)
		}
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
