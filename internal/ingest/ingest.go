package ingest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/log"
)

// Log is the destination of sessions: the log of a store (tally.Log). If AppendSeries returns a *events.TreeError, the
// events are stored.
type Log interface {
	Reader
	AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error)
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
	Stamp(events.Event) events.Event
	Now() time.Time
}

// Reader is the source of stored sessions.
type Reader interface {
	Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Record(ctx context.Context, at events.Offset) (events.Record, error)
}

// Source is a folder in which an agent keeps sessions.
type Source struct {
	Agent agents.Agent
	Root  string // the folder; it may not exist yet
	ID    string // name in the state; default: Root
}

// Options select the sources and the destination. Log and Sources are required.
type Options struct {
	Log       Log
	Namespace string // of the sessions; default events.DefaultNamespace
	// Route returns the namespace for sessions of a source in a folder; "" means Namespace. If it returns false, these
	// sessions are not stored. It is called for a session before its first append, with the first cwd in its lines, or
	// "" without one. Calls are concurrent. nil: all sessions go to Namespace.
	Route func(source, cwd string) (namespace string, taken bool)

	// Sessions lists the ids of the sessions in Namespace, to find sessions whose folder was renamed. nil: disabled.
	Sessions func(ctx context.Context) iter.Seq2[string, error]

	Sources  []Source
	Redactor *redact.Redactor // nil: lines are stored unchanged
	State    string           // file with the read positions; "": none, and with Once all is read
	Once     bool             // Run returns when all existing lines are durable

	// Quiet is the time without a line that counts as silence. Default 1 min.
	Quiet time.Duration
	// Tail holds the tailer's own settings. Its roots and callbacks are set here.
	Tail tail.Options
	// Report is called with problems, never concurrently. It must not call the Ingester. Default: no reports.
	Report func(Problem)
	// Blocked is called when the log starts or stops to refuse appends, possibly concurrently. The Ingester's Blocked
	// method returns the state. Default: no calls.
	Blocked func()

	now func() time.Time // for tests; default time.Now
}

// Problem is a problem with a file or its session.
type Problem struct {
	Root, File string // if it concerns a file
	Session    string
	Offset     int64 // in the file
	Reason     string
	Taken      bool // all lines were stored nevertheless
}

// String returns the problem as one line, unescaped.
func (p Problem) String() string {
	at := p.File
	if at == "" {
		at = p.Session
	}
	if p.Offset > 0 {
		at = fmt.Sprintf("%s at byte %d", at, p.Offset)
	}
	return at + ": " + p.Reason
}

// Status is the progress of an Ingester.
type Status struct {
	tail.Status
	Lines    int            // number of appended lines
	Bytes    int64          // of them, as read
	Events   int            // number of appended events, including lines
	Redacted int            // number of redactions
	Rules    map[string]int // redactions by rule
	Problems int            // number of reports
	Alone    int            // number of declined sessions, including earlier ones
	Blocked  error          // why appends are impossible now; nil: possible
	Since    time.Time

	held      int64 // bytes that are durable but not acknowledged
	undecided int64 // bytes of sessions with undecided namespace
	refused   int   // number of refused appends that are tried again
}

// Ingester appends the files of agents. New creates it.
type Ingester struct {
	o       Options
	tailer  *tail.Tailer
	sources map[string]Source
	pool    pool
	workers *workers

	mu      sync.Mutex // guards the fields below
	files   map[fileKey]agents.File
	waiting map[fileKey]*waitingFile // files that wait for the session they continue
	held    map[fileKey]heldBatch    // durable but not acknowledged
	owners  map[textSum]fileKey      // by file of a session: where it is read
	stuck   map[fileKey]bool         // files that cannot be appended
	rewrite map[fileKey]int64        // how far the new content was read
	due     map[fileKey]time.Time    // time of the next silence
	dueFrom time.Time                // lower bound of these times
	said    map[string]bool          // problems that were reported
	homes   map[textSum]string       // by session: its namespace; with Route
	status  Status

	undecided map[string]*undecided // by session

	renamed renamed

	reporting sync.Mutex
}

// fileKey identifies a source file.
type fileKey struct{ root, rel string }

func keyOf(f tail.File) fileKey { return fileKey{f.Root, f.Rel} }

// New starts to follow the sources. If another process uses the same state, the error is lockfile.ErrLocked.
func New(o Options) (*Ingester, error) {
	if o.Namespace == "" {
		o.Namespace = events.DefaultNamespace
	}
	if o.Quiet == 0 {
		o.Quiet = time.Minute
	}
	if o.now == nil {
		o.now = time.Now
	}
	in := &Ingester{o: o, sources: make(map[string]Source), files: make(map[fileKey]agents.File), waiting: make(map[fileKey]*waitingFile),
		held: make(map[fileKey]heldBatch), owners: make(map[textSum]fileKey), stuck: make(map[fileKey]bool), rewrite: make(map[fileKey]int64),
		due: make(map[fileKey]time.Time), said: make(map[string]bool), homes: make(map[textSum]string), undecided: make(map[string]*undecided)}
	in.pool.init()
	t := o.Tail
	t.State, t.Once, t.MaxLine, t.Whole = o.State, o.Once, maxLine, isWhole
	if o.State != "" || !o.Once { // otherwise all is read, and each line is compared with the log
		t.Resume = in.resume
	}
	t.Follows = in.follows
	t.Order = in.order
	t.Wants = in.wants
	t.Roots = nil
	for _, s := range o.Sources {
		if s.ID == "" {
			s.ID = s.Root
		}
		if _, twice := in.sources[s.ID]; twice {
			return nil, fmt.Errorf("ingest: two sources have the name %q", s.ID)
		}
		in.sources[s.ID] = s
		t.Roots = append(t.Roots, tail.Root{Path: s.Root, ID: s.ID})
	}
	var err error
	if in.tailer, err = tail.Open(t); err != nil {
		return nil, err
	}
	if o.Route != nil {
		in.remember()
	}
	return in, nil
}

// Kick moves a file ahead of all others.
func (in *Ingester) Kick(path string) { in.tailer.Kick(path) }

// Close ends Run, and releases the state.
func (in *Ingester) Close() error { return in.tailer.Close() }

// Status returns the progress. It is safe to call while Run runs.
func (in *Ingester) Status() Status {
	files := in.tailer.Status()
	in.mu.Lock()
	defer in.mu.Unlock()
	s, held := in.status, in.status.held
	s.Rules = maps.Clone(s.Rules)
	s.Status = files
	if s.Lag -= held; s.Lag <= 0 {
		s.Lag, s.Behind = 0, 0
	}
	return s
}

// Blocked returns why appends are impossible now, or nil. It costs less than Status.
func (in *Ingester) Blocked() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.status.Blocked
}

// redactedOf counts the redactions of a line.
func (s *Status) redactedOf(found []redact.Found) {
	for _, f := range found {
		if s.Rules == nil {
			s.Rules = make(map[string]int)
		}
		s.Redacted += f.Count
		s.Rules[f.Rule] += f.Count
	}
}

func (in *Ingester) count(change func(*Status)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	change(&in.status)
}

func (in *Ingester) report(p Problem) {
	in.count(func(s *Status) { s.Problems++ })
	if in.o.Report != nil {
		in.reporting.Lock()
		defer in.reporting.Unlock()
		in.o.Report(p)
	}
}

// once reports a problem unless it was reported before.
func (in *Ingester) once(p Problem) { in.onceBy(p.String(), p) }

// onceBy reports the first problem of a key.
func (in *Ingester) onceBy(key string, p Problem) {
	in.mu.Lock()
	isNew := !in.said[key] && len(in.said) < maxSaid
	in.said[key] = in.said[key] || isNew
	in.mu.Unlock()
	if isNew {
		in.report(p)
	}
}

const maxSaid = 10_000
