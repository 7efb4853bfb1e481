package storecopy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

func mustStart(t *testing.T, dir string, isCopy bool) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: dir, Private: true, Copy: isCopy, SegmentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

func mustClose(t *testing.T, s *embedded.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// fill appends a random history: turns, rewinds, stale turns, forks, appends to several subjects, personal events.
func fill(t *testing.T, l *log.Log, r *rand.Rand, n int) {
	t.Helper()
	ctx := t.Context()
	var sessions []events.Subject
	last := make(map[events.Subject]events.Offset)
	event := func(sub events.Subject, p events.Payload) events.Event {
		e, err := events.New("urn:test:copy", sub, p)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	turn := func(sub events.Subject) events.Event {
		text := fmt.Sprintf(`{"role":"user","content":"%s %s"}`, sub.ID, strings.Repeat("x", r.IntN(400)))
		return event(sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(text)}}})
	}
	put := func(sub events.Subject, expect log.Expect, e events.Event) {
		ack, err := l.AppendBuffered(ctx, sub, expect, e)
		if err != nil {
			t.Fatal(err)
		}
		last[sub] = ack.Last
	}
	for i := range n {
		if len(sessions) < 6 || r.IntN(60) == 0 {
			sub := events.Session("", fmt.Sprint("s", len(sessions)))
			made := &events.SessionCreated{Kind: "conversation", CreatedAt: events.TimestampOf(time.Now())}
			if len(sessions) > 3 && r.IntN(2) == 0 {
				source := sessions[r.IntN(len(sessions))]
				made.Fork = &events.Fork{Session: source.ID, Offset: last[source]}
			}
			put(sub, log.At(0), event(sub, made))
			sessions = append(sessions, sub)
		}
		sub := sessions[r.IntN(len(sessions))]
		switch r.IntN(14) {
		case 0:
			put(sub, log.Since(last[sub], events.TypeSessionRewound), event(sub, &events.SessionRewound{To: 1 + events.Offset(r.IntN(int(last[sub])))}))
		case 1:
			put(sub, log.Any, turn(sub).WithExtension(events.ExtBasis, events.Offset(r.IntN(i+1)).Padded()))
		case 2:
			other := sessions[(r.IntN(len(sessions)-1)+1)%len(sessions)]
			if other == sub {
				continue
			}
			acks, err := l.AppendAll(ctx, log.Part{Subject: sub, Events: []events.Event{turn(sub), turn(sub)}}, log.Part{Subject: other, Events: []events.Event{turn(other)}})
			if err != nil {
				t.Fatal(err)
			}
			last[sub], last[other] = acks[0].Last, acks[1].Last
		case 3:
			personal := events.Session(events.PersonalNamespace, "canary-personal")
			put(personal, log.Any, turn(personal))
			if r.IntN(3) == 0 {
				if _, err := l.AppendAll(ctx, log.Part{Subject: sub, Events: []events.Event{turn(sub)}}, log.Part{Subject: personal, Events: []events.Event{turn(personal)}}); err != nil {
					t.Fatal(err)
				}
			}
		default:
			put(sub, log.Any, turn(sub))
		}
	}
	put(sessions[0], log.Any, turn(sessions[0]))
	if _, err := l.Append(ctx, sessions[0], log.Any, turn(sessions[0])); err != nil { // durable
		t.Fatal(err)
	}
}

// states returns the state of each session of a log, but for personal ones.
func states(t *testing.T, l *log.Log) map[string]string {
	t.Helper()
	all := make(map[string]string)
	load := &projector.Loader{Source: l}
	for info, err := range l.Subjects(t.Context(), "", events.KindSession) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Subject.Namespace == events.PersonalNamespace {
			continue
		}
		s, err := load.Session(t.Context(), info.Subject, 0)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal([]any{s.Threads, s.History.Live(s.Offset()), s.Ledger})
		if err != nil {
			t.Fatal(err)
		}
		all[info.Subject.Name()] = string(text)
	}
	return all
}

// sameStates compares the states of two logs.
func sameStates(t *testing.T, from, to *log.Log) {
	t.Helper()
	want, have := states(t, from), states(t, to)
	if len(want) != len(have) {
		t.Errorf("the copy has %d sessions, want %d", len(have), len(want))
	}
	for name, text := range want {
		if have[name] != text {
			t.Errorf("%s: the copy has\n%.300s, want\n%.300s", name, have[name], text)
		}
	}
}

// sameRecords compares each record, by itself and not by the code under test.
func sameRecords(t *testing.T, from, to *log.Log, upto events.Offset, leftOut func(events.Subject) bool) {
	t.Helper()
	n := events.Offset(0)
	for rec, err := range to.Read(t.Context(), events.Range{Buffered: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		want, err := from.Record(t.Context(), n)
		switch {
		case err != nil || rec.Offset != n:
			t.Fatalf("%v of the copy for %v: %v", rec.Offset, n, err)
		case leftOut(want.Subject):
			if rec.Subject.Kind != events.KindUnit || string(rec.Data) != `{"events":[]}` {
				t.Fatalf("%v: the copy has a record of %s", n, rec.Subject.Name())
			}
		case want.Subject.Kind == events.KindUnit && bytes.Contains(want.Data, []byte("canary-")) && string(rec.Data) == `{"events":[]}`: // it has events that are left out
		case !rec.Event.Equal(want.Event) || !rec.Recorded.Equal(want.Recorded):
			t.Fatalf("%v: the copy has %+v, want %+v", n, rec, want)
		}
	}
	if n != upto {
		t.Fatalf("the copy ends at %v, want %v", n, upto)
	}
}

func isPersonal(sub events.Subject) bool { return sub.Namespace == events.PersonalNamespace }

// interrupted is an original whose reads fail behind an offset.
type interrupted struct {
	storecopy.Source
	behind events.Offset
}

var errKilled = errors.New("killed")

func (i interrupted) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range i.Source.Read(ctx, r) {
			if rec.Offset > i.behind {
				yield(events.Record{}, errKilled)
				return
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// image copies a folder as it is now: what a kill would leave.
func image(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "image")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the owner has removed a temporary file
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Equal offsets have equal records and states, wherever the copy was interrupted: also in the middle of an append to
// several subjects, and if the process was killed.
func TestCopy(t *testing.T) {
	t.Run("X-24 a copy that is interrupted", func(t *testing.T) {
		from := mustStart(t, t.TempDir(), false).Log()
		r := rand.New(rand.NewPCG(3, 4))
		fill(t, from, r, testkit.Times(1600))
		end, err := from.Durable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var units []events.Offset
		for rec, err := range from.Read(t.Context(), events.Range{Kind: events.KindUnit}) {
			if err != nil {
				t.Fatal(err)
			}
			units = append(units, rec.Offset)
		}
		dir := t.TempDir()
		stops := []events.Offset{1, units[len(units)/3], units[len(units)/2] + 1, end - 1, end}
		for i, stop := range stops {
			to := mustStart(t, dir, true)
			c := storecopy.Copier{From: interrupted{from, stop}, To: to.Log()}
			if _, err := c.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := storedir.MarkCopying(dir, "the original"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Run(t.Context()); stop < end && !errors.Is(err, errKilled) || stop == end && err != nil {
				t.Fatal(err)
			}
			sameRecords(t, from, to.Log(), stop, isPersonal)
			if i%2 == 0 && stop < end {
				dir = image(t, dir)
			}
			if stop == end {
				sameStates(t, from, to.Log())
				v, err := c.Verify(t.Context(), 0, end)
				if err != nil || v.Differ > 0 || v.LostRecords > 0 || v.Personal == 0 || v.Records+v.Personal != int(end) {
					t.Errorf("compared up to %v: %+v, %v", end, v, err)
				}
			}
			mustClose(t, to)
		}
		// Until it is complete, nothing else opens it.
		_, err = embedded.Start(t.Context(), embedded.ServerOptions{Dir: dir, Private: true})
		if copying, is := errors.AsType[*log.CopyingError](err); !is || copying.From != "the original" {
			t.Errorf("an unfinished copy is opened: %v", err)
		}
		if err := storedir.UnmarkCopying(dir); err != nil {
			t.Fatal(err)
		}
		to := mustStart(t, dir, false).Log()
		if head, err := to.Head(t.Context()); head != end || err != nil {
			t.Errorf("the complete copy ends at %v once it is opened, want %v: %v", head, end, err)
		}
		for _, word := range []string{"canary-personal"} {
			if path := findIn(t, dir, word); path != "" {
				t.Errorf("%s has the personal word %s", path, word)
			}
		}
	})
}

// findIn returns a file below a folder that has a word, or "".
func findIn(t *testing.T, dir, word string) (found string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the owner has removed a temporary file
		}
		if bytes.Contains(data, []byte(word)) {
			found = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A target that is not a beginning of the original is refused, and nothing is written there.
func TestOtherLogs(t *testing.T) {
	from := mustStart(t, t.TempDir(), false).Log()
	fill(t, from, rand.New(rand.NewPCG(1, 1)), 60)
	to := mustStart(t, t.TempDir(), true)
	c := storecopy.Copier{From: from, To: to.Log()}
	end, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at, err := c.Begin(t.Context()); at != end || err != nil {
		t.Errorf("a complete copy is continued at %v, want %v: %v", at, end, err)
	}
	sub := events.Session("", "s0")
	if _, err := to.Log().Append(t.Context(), sub, log.Any, events.Event{ID: "there", Source: "urn:test", Type: "x.y"}); err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string]func(){
		"the target is newer": func() {},
		"both went on": func() {
			if _, err := from.Append(t.Context(), sub, log.Any, events.Event{ID: "here", Source: "urn:test", Type: "x.y"}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		before()
		_, err := c.Begin(t.Context())
		if other, is := errors.AsType[*log.OtherLogError](err); !is || other.Offset != end+1 || other.Have != "there" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if head, err := to.Log().Head(t.Context()); head != end+1 || err != nil {
		t.Errorf("the target ends at %v, want %v: %v", head, end+1, err)
	}
}

// A session that is left out is nowhere in the copy, unless a fork of it is to be there.
func TestWithout(t *testing.T) {
	from := mustStart(t, t.TempDir(), false).Log()
	fill(t, from, rand.New(rand.NewPCG(9, 9)), 80)
	secret := events.Session("", "canary-secret")
	made := events.Event{ID: "made", Source: "urn:test", Type: "x.y", Data: []byte(`"canary-text"`)}
	if _, err := from.AppendAll(t.Context(), log.Part{Subject: secret, Events: []events.Event{made}},
		log.Part{Subject: events.Session("", "s1"), Events: []events.Event{{ID: "beside", Source: "urn:test", Type: "x.y"}}}); err != nil {
		t.Fatal(err)
	}
	at, err := from.Last(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := storecopy.Copier{From: from, To: mustStart(t, dir, true).Log(), Without: []events.Subject{secret}}
	if err := c.Survey(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	end, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sameRecords(t, from, c.To, end, func(sub events.Subject) bool { return isPersonal(sub) || sub == secret })
	if v, err := c.Verify(t.Context(), 0, end); err != nil || v.Differ > 0 || v.Without != 2 {
		t.Errorf("compared: %+v, %v", v, err)
	}
	for _, word := range []string{"canary-secret", "canary-text", "canary-personal"} {
		if path := findIn(t, dir, word); path != "" {
			t.Errorf("%s has the word %s", path, word)
		}
	}
	fork := events.Session("", "fork")
	e, err := events.New("urn:test", fork, &events.SessionCreated{Kind: "conversation", CreatedAt: events.TimestampOf(time.Now()), Fork: &events.Fork{Session: secret.ID, Offset: at.Offset}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Append(t.Context(), fork, log.At(0), e); err != nil {
		t.Fatal(err)
	}
	if forks, is := errors.AsType[*storecopy.ForkError](c.Survey(t.Context(), end)); !is || forks.Session != secret || forks.Fork != fork {
		t.Errorf("a fork of a session that is left out: %v", forks)
	}
	if at, err := c.Run(t.Context()); !errors.As(err, new(*storecopy.ForkError)) || at != end {
		t.Errorf("the copy goes on up to %v: %v", at, err)
	}
	c.Without = append(c.Without, fork)
	if _, err := c.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// altered is an original that returns other records than it has.
type altered struct {
	storecopy.Source
	change func(*events.Record) error
}

func (a altered) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range a.Source.Read(ctx, r) {
			if err == nil {
				if err = a.change(&rec); err != nil {
					rec = events.Record{}
				}
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// The comparison finds each record that differs, and names those that the original has lost.
func TestVerify(t *testing.T) {
	from := mustStart(t, t.TempDir(), false).Log()
	fill(t, from, rand.New(rand.NewPCG(5, 5)), 40)
	const at = 7
	on := func(change func(*events.Record)) func(*events.Record) error {
		return func(rec *events.Record) error {
			if rec.Offset == at {
				change(rec)
			}
			return nil
		}
	}
	lose := func(rec *events.Record) error {
		if rec.Offset == at {
			return &events.DamageError{Offset: at}
		}
		return nil
	}
	for name, test := range map[string]struct {
		copied, compared func(*events.Record) error // changes of the original, when it is copied and when it is compared
		differ, lost     int
	}{
		"equal":              {nil, nil, 0, 0},
		"other data":         {on(func(rec *events.Record) { rec.Data = []byte("x") }), nil, 1, 0},
		"recorded later":     {on(func(rec *events.Record) { rec.Recorded = rec.Recorded.Add(time.Millisecond) }), nil, 1, 0},
		"not copied":         {on(func(rec *events.Record) { rec.Event = events.Event{} }), nil, 1, 0},
		"lost":               {lose, lose, 0, 1},
		"lost when compared": {nil, lose, 0, 1},
		"lost when copied":   {lose, nil, 1, 0},
	} {
		change := func(f func(*events.Record) error) storecopy.Source {
			if f == nil {
				return from
			}
			return altered{from, f}
		}
		c := storecopy.Copier{From: change(test.copied), To: mustStart(t, t.TempDir(), true).Log()}
		end, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.From = change(test.compared)
		v, err := c.Verify(t.Context(), 0, end)
		if err != nil || v.Differ != test.differ || v.LostRecords != test.lost || test.differ > 0 && v.Differences[0].Offset != at || test.lost > 0 && v.Lost[0] != at {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

// A backup is copied from its contents, with the records that it lacks.
func TestBackup(t *testing.T) {
	dir := t.TempDir()
	srv := mustStart(t, dir, false)
	from := srv.Log()
	fill(t, from, rand.New(rand.NewPCG(2, 6)), testkit.Times(3200))
	folder := filepath.Join(t.TempDir(), "backups")
	image, err := storedir.ImageOf(dir, func() (events.Offset, error) { return from.Durable(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	files := make([]backup.Source, len(image.Files))
	for i, f := range image.Files {
		files[i] = backup.Source(f)
	}
	w, err := backup.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.Take(t.Context(), backup.Manifest{Time: time.Now(), Source: dir, Log: image.Log, Servers: image.Servers, Durable: uint64(image.Durable)}, files, func(int64, int64) {})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Append(t.Context(), events.Session("", "s0"), log.Any, events.Event{ID: "later", Source: "urn:test", Type: "x.y"}); err != nil {
		t.Fatal(err)
	}
	b, err := storecopy.OpenBackup(t.Context(), folder, m)
	if err != nil {
		t.Fatal(err)
	}
	to := mustStart(t, t.TempDir(), true)
	for _, source := range []storecopy.Source{interrupted{b, image.Durable / 2}, b} {
		c := storecopy.Copier{From: source, To: to.Log()}
		if _, err := c.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Run(t.Context()); err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
	}
	sameRecords(t, from, to.Log(), image.Durable, isPersonal)
	for _, at := range []events.Offset{0, image.Durable + 1} {
		if _, err := b.Record(t.Context(), at); !errors.Is(err, events.ErrNotFound) {
			t.Errorf("record %v of the backup: %v", at, err)
		}
	}

	// A damaged content: its records are lost, and all others are copied.
	largest := ""
	err = filepath.WalkDir(filepath.Join(folder, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if old, _ := os.Stat(largest); err == nil && (old == nil || info.Size() > old.Size()) {
			largest = path
		}
		return err
	})
	if err == nil {
		err = os.Chmod(largest, 0o600)
	}
	if err == nil {
		err = os.WriteFile(largest, []byte("damaged"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := storecopy.Copier{From: b, To: mustStart(t, t.TempDir(), true).Log()}
	end, err := c.Run(t.Context())
	if err != nil || end != image.Durable {
		t.Fatalf("copied up to %v, want %v: %v", end, image.Durable, err)
	}
	v, err := c.Verify(t.Context(), 0, end)
	if err != nil || v.Differ > 0 || v.LostRecords == 0 || v.LostRecords+v.Records+v.Personal != int(end) {
		t.Errorf("compared: %d lost, %d equal, %v", v.LostRecords, v.Records, err)
	}
}

// A copy that follows has everything up to the durable end when it is stopped.
func TestFollow(t *testing.T) {
	from := mustStart(t, t.TempDir(), false).Log()
	fill(t, from, rand.New(rand.NewPCG(1, 1)), 30)
	c := storecopy.Copier{From: from, To: mustStart(t, t.TempDir(), true).Log()}
	until, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := c.Follow(t.Context(), until, from)
		over <- err
	}()
	for range 60 {
		if _, err := from.AppendAll(t.Context(), log.Part{Subject: events.Session("", "s0"), Events: []events.Event{{Source: "urn:test", Type: "x.y"}}},
			log.Part{Subject: events.Session("", "s1"), Events: []events.Event{{Source: "urn:test", Type: "x.y"}}}); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	end, err := from.Durable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sameRecords(t, from, c.To, end, isPersonal)
}
