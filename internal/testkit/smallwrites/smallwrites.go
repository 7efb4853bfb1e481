// Package smallwrites refuses writes of the small files that a program keeps about itself: marks, lists of lost records,
// copies of blocks, descriptions, indexes, states. [Each] plays a test once for each such write and refuses that write,
// as a full or broken disk does. Afterwards nothing that was known may be forgotten, and the error must be reported.
//
// The writes are those of package internal/disk/durable, and of code that calls durable.Refused.
package smallwrites

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/testkit/schedule"
)

// A Kind is a way in which a write fails.
type Kind struct {
	Name    string
	Err     error // the system's
	Lasting bool  // the file cannot be written until Allow
}

// Kinds lists ways in which writes fail: one write on a disk that has an error, and a file on a disk that is full for a
// while.
var Kinds = []Kind{{"once", syscall.EIO, false}, {"for a while", syscall.ENOSPC, true}}

// most bounds how many writes of a file are refused in a phase, each in a run of its own.
const most = 5

// Writes sees the writes of one run, and refuses one of them. It is safe for concurrent use.
type Writes struct {
	kind   Kind
	points *schedule.Points
	said   strings.Builder

	mu      sync.Mutex // guards the fields below, and said
	dir     string
	phase   string
	counts  map[string]int // writes by phase and file
	act     bool           // the present write is the one to refuse
	broken  string         // path that is refused; "": no path
	refused []string       // paths of the refused writes
}

// Each plays a test undisturbed, and then once for each write that the undisturbed run made, which is refused. It is
// not for parallel tests: it sees all writes of the process. play calls Watch first.
func Each(t *testing.T, kind Kind, play func(t *testing.T, w *Writes)) {
	t.Helper()
	schedule.Each(t, func(t *testing.T, points *schedule.Points) {
		w := &Writes{kind: kind, points: points, counts: make(map[string]int)}
		defer durable.Guard(w.ask)()
		points.Do(func() { w.act = true })
		play(t, w)
	})
}

// Watch sets the folder whose files count, and begins a phase of the run, such as "start".
func (w *Writes) Watch(dir, phase string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dir, w.phase = dir, phase
}

// Allow ends the refusals of this run, and the watching until the next call of Watch.
func (w *Writes) Allow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dir, w.broken = "", ""
}

// Refused returns the paths of the writes that were refused so far.
func (w *Writes) Refused() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// ask is called before each write.
func (w *Writes) ask(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dir == "" || !strings.HasPrefix(path, w.dir+string(filepath.Separator)) {
		return nil
	}
	point := w.phase + " " + filepath.Base(path)
	if w.counts[point]++; w.counts[point] <= most {
		w.points.Reached(point)
	}
	if !w.act && path != w.broken {
		return nil
	}
	if w.act && w.kind.Lasting {
		w.broken = path
	}
	w.act = false
	w.refused = append(w.refused, path)
	return &fs.PathError{Op: "write", Path: path, Err: w.kind.Err}
}

// Logger returns a logger for the code under test. Reported reads its warnings and errors.
func (w *Writes) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(sink{w}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type sink struct{ w *Writes }

func (s sink) Write(p []byte) (int, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.said.Write(p)
}

// Said returns the logged warnings and errors.
func (w *Writes) Said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.String()
}

// Reported reports whether one of the errors, or a logged message, names a refusal.
func (w *Writes) Reported(errs ...error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.said.String()
	if err := errors.Join(errs...); err != nil {
		text += err.Error()
	}
	return strings.Contains(text, w.kind.Err.Error())
}
