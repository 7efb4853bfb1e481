package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/acp"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/agents/codex"
	"github.com/tallylog/tally/internal/agents/gemini"
	"github.com/tallylog/tally/internal/agents/pi"
	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// A rig is a folder of an agent, and a store that it is ingested into.
type rig struct {
	t        fataler
	agent    agents.Agent
	dir      string // of the agent
	state    string // file
	store    *store
	redactor *redact.Redactor
	problems []Problem
	alone    int           // number of sessions that the last run declined
	blocked  *atomic.Int64 // number of calls of Blocked

	namespace  string // default namespace; "": all
	namespaces func(cwd string) string
	follows    bool // sessions are recognised in a renamed folder
}

func newRig(t fataler, dir string, agent agents.Agent) *rig {
	t.Helper()
	dir, err := os.MkdirTemp(dir, "rig")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &rig{t: t, agent: agent, dir: filepath.Join(dir, "home"), blocked: new(atomic.Int64), state: filepath.Join(dir, "state.db"), store: &store{Backend: memlog.New(memlog.Config{})}}
}

// store is a log that outlives its users, and that can be stopped at a publication. That one is stored or not, and gets
// no answer, like all later ones.
type store struct {
	log.Backend
	mu     sync.Mutex
	upto   int  // number of successful publications; 0: all
	stored bool // the next one is stored
	stop   func()
	err    error // of each publication
	tries  int
}

func (s *store) Close() error { return nil }

func (s *store) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		if s.tries++; s.tries <= 3 {
			return log.Receipt{}, s.err
		}
		s.err = nil
	}
	if s.stop == nil {
		return s.Backend.Publish(ctx, p)
	}
	if s.upto--; s.upto >= 0 {
		return s.Backend.Publish(ctx, p)
	}
	if s.upto == -1 && s.stored {
		s.Backend.Publish(ctx, p)
	}
	s.stop()
	return log.Receipt{}, fmt.Errorf("%w: stopped", log.ErrUnknown)
}

// open opens the log.
func (r *rig) open() *log.Log {
	r.t.Helper()
	l, err := log.OpenOn(context.Background(), r.store, log.Config{})
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return l
}

// run ingests the existing files.
func (r *rig) run() {
	r.t.Helper()
	if err := r.attempt(context.Background()); err != nil {
		r.t.Fatalf("%v", err)
	}
}

func (r *rig) attempt(ctx context.Context) error {
	r.t.Helper()
	l := r.open()
	defer l.Close()
	in, err := New(r.options(l))
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	defer in.Close()
	defer func() { r.alone = in.Status().Alone }()
	return in.Run(ctx)
}

// options returns the options of an import.
func (r *rig) options(l Log) Options {
	return Options{Log: l, Namespace: r.namespace, Route: r.route(), Sessions: r.known(), Sources: []Source{{Agent: r.agent, Root: r.dir, ID: "home"}}, State: r.state, Once: true,
		Redactor: r.redactor, Report: func(p Problem) { r.problems = append(r.problems, p) }, Blocked: func() { r.blocked.Add(1) }, Tail: tail.Options{Grace: time.Nanosecond}}
}

// known lists the sessions of the log, or returns nil if folders are not followed.
func (r *rig) known() func(context.Context) iter.Seq2[string, error] {
	if !r.follows {
		return nil
	}
	return func(context.Context) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for _, id := range r.sessions() {
				if !yield(id, nil) {
					return
				}
			}
		}
	}
}

// stopped runs until a publication at which the process ends. That publication is stored or not. The state is the old
// one, the new one, or lost.
func (r *rig) stopped(upto int, stored bool, state int) {
	r.t.Helper()
	before, _ := os.ReadFile(r.state)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.store.upto, r.store.stored, r.store.stop = upto, stored, cancel
	err := r.attempt(ctx)
	r.store.stop = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		r.t.Fatalf("%v", err)
	}
	switch {
	case state == 1 && before != nil:
		if err := os.WriteFile(r.state, before, 0o600); err != nil {
			r.t.Fatalf("%v", err)
		}
	case state > 0:
		r.lose()
	}
}

// lose deletes the state.
func (r *rig) lose() {
	if err := os.Remove(r.state); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatalf("got the error %v", err)
	}
}

// write writes a file by rename, like an editor.
func (r *rig) write(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+".new", []byte(content), 0o600), os.Rename(path+".new", path)); err != nil {
		r.t.Fatalf("got the error %v", err)
	}
}

// grow appends to a file.
func (r *rig) grow(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatalf("%v", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Close()); err != nil {
		r.t.Fatalf("%v", err)
	}
}

// files returns the files on disk.
func (r *rig) files() map[string]string {
	r.t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(r.dir, path)
		b, err := os.ReadFile(path)
		files[filepath.ToSlash(name)] = string(b)
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatalf("%v", err)
	}
	return files
}

// sessions lists the ids of all sessions in the log.
func (r *rig) sessions() []string {
	ids := make(map[string]bool)
	for _, rec := range r.records() {
		ids[rec.Subject.ID] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

func (r *rig) records() (list []events.Record) {
	r.t.Helper()
	l := r.open()
	defer l.Close()
	for rec, err := range l.Read(context.Background(), events.Range{}) {
		if err != nil {
			r.t.Fatalf("%v", err)
		}
		if r.namespace == "" || rec.Subject.Namespace == r.namespace {
			list = append(list, rec)
		}
	}
	return list
}

// given returns the files restored from the log.
func (r *rig) given() map[string]string {
	r.t.Helper()
	l := r.open()
	defer l.Close()
	files := make(map[string]string)
	for _, id := range r.sessions() {
		list, err := Files(context.Background(), l, r.agent, events.Session(r.namespace, id))
		if err != nil {
			r.t.Fatalf("%v", err)
		}
		for _, f := range list {
			var b bytes.Buffer
			if err := f.Write(context.Background(), &b); err != nil {
				r.t.Fatalf("%v", err)
			}
			files[f.Name] = b.String()
		}
	}
	return files
}

// session loads a session.
func (r *rig) session(id string) *projector.Session {
	r.t.Helper()
	l := r.open()
	defer l.Close()
	s, err := (&projector.Loader{Source: l}).Session(context.Background(), events.Session(r.namespace, id), 0)
	if err != nil {
		r.t.Fatalf("%s: %v", id, err)
	}
	return s
}

// A view is the effective state of a session, which must be equal after an import and for a growing file.
type view struct {
	Turns   map[string][]string
	Fields  map[string]string
	Runs    map[string]string
	Costs   map[string]events.Tokens // by response; the sum of those without one
	Created string
	Fork    bool
	Rewinds int
}

func (r *rig) view(id string) view {
	r.t.Helper()
	s := r.session(id)
	v := view{Turns: make(map[string][]string), Fields: make(map[string]string), Runs: make(map[string]string), Costs: make(map[string]events.Tokens),
		Created: string(s.Ledger.CreatedAt), Fork: s.Ledger.Fork != nil}
	if r.agent == ofACP { // its lines have no times
		v.Created = ""
	}
	for name := range s.Threads {
		for _, t := range s.Threads.Turns(name) {
			if text := string(t.Raw) + string(t.Bytes); strings.TrimSpace(text) != "" {
				v.Turns[name] = append(v.Turns[name], text)
			}
		}
	}
	for _, f := range s.Ledger.Fields {
		if f.Name != fieldGone {
			v.Fields[f.Name] = string(f.Value)
		}
	}
	for _, run := range s.Ledger.Runs {
		outcome := ""
		if last := run.Last(); last != nil {
			outcome = last.Outcome
		}
		v.Runs[run.ID] = outcome
	}
	for _, c := range s.Ledger.Costs {
		sum := v.Costs[c.Response]
		sum.Input, sum.Output, sum.CacheRead, sum.CacheWrite = sum.Input+c.Tokens.Input, sum.Output+c.Tokens.Output, sum.CacheRead+c.Tokens.CacheRead, sum.CacheWrite+c.Tokens.CacheWrite
		v.Costs[c.Response] = sum
	}
	return v
}

// check compares the log with the files. The complete lines are restored byte for byte, no line is stored twice, and
// the state in effect equals that of an import.
func (r *rig) check(dir string) {
	r.t.Helper()
	disk := r.files()
	given := r.given()
	for name, content := range disk {
		if want := whole(content); given[name] != want {
			r.t.Fatalf("the restored file %s is\n%q\nwant\n%q", name, given[name], want)
		}
	}
	other := newRig(r.t, dir, r.agent)
	other.redactor = r.redactor
	for name, content := range disk {
		other.write(name, content)
	}
	other.run()
	for _, id := range other.sessions() {
		if got, want := r.view(id), other.view(id); !reflect.DeepEqual(got, want) {
			a, b := reflect.ValueOf(got), reflect.ValueOf(want)
			for i := range a.NumField() {
				if x, y := a.Field(i).Interface(), b.Field(i).Interface(); !reflect.DeepEqual(x, y) {
					r.t.Fatalf("%s: %s is\n%+v\nafter an import\n%+v", id, a.Type().Field(i).Name, x, y)
				}
			}
		}
	}
	ids := make(map[string]bool)
	for _, rec := range r.records() {
		if key := rec.Subject.ID + "\n" + rec.Source + "\n" + rec.ID; ids[key] {
			r.t.Fatalf("record %s is stored twice", rec.ID)
		} else {
			ids[key] = true
		}
	}
}

// whole returns a file up to its last complete line.
func whole(content string) string {
	end := strings.LastIndexByte(content, '\n') + 1
	if rest := content[end:]; strings.TrimSpace(rest) == "" || isWhole([]byte(rest)) {
		return content
	}
	return content[:end]
}

var (
	ofClaude = claude.Agent{}
	ofCodex  = codex.Agent{}
	ofGemini = gemini.Agent{}
	ofPi     = pi.Agent{}
	ofACP    = acp.Agent{}
)

// route returns the rig's route, or nil. Namespace "!" declines the sessions.
func (r *rig) route() func(source, cwd string) (string, bool) {
	if r.namespaces == nil {
		return nil
	}
	return func(source, cwd string) (string, bool) {
		if source != "home" {
			r.t.Errorf("the route was asked about the source %q", source)
		}
		if cwd == "" {
			return "", true
		}
		namespace := r.namespaces(cwd)
		return namespace, namespace != leftAlone
	}
}
