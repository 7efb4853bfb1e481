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

// Log is where sessions go: the log of a store (tally.Log). A *events.TreeError of AppendSeries
// says that the events are stored.
type Log interface {
	Reader
	AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error)
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
	Stamp(events.Event) events.Event
	Now() time.Time
}

// Reader is where sessions come from.
type Reader interface {
	Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Record(ctx context.Context, at events.Offset) (events.Record, error)
}

// Source is a folder in which an agent keeps sessions.
type Source struct {
	Agent agents.Agent
	Root  string // the folder, which need not be there yet
	ID    string // names it in the state; default: Root
}

// Options say what is read, and where it goes. Log and Sources are required.
type Options struct {
	Log       Log
	Namespace string // of the sessions; default events.DefaultNamespace
	// Route says to which namespace sessions of a source go that work in a folder, "" being
	// Namespace; false: they are left alone. It is asked for a session before anything of it is
	// appended, with the first cwd that its lines say, "" if they say none, by several
	// goroutines. nil: all go to Namespace.
	Route func(source, cwd string) (namespace string, taken bool)

	// Sessions lists the ids of the sessions in Namespace, so that one whose folder was
	// renamed is found. nil: none is looked for.
	Sessions func(ctx context.Context) iter.Seq2[string, error]

	Sources  []Source
	Redactor *redact.Redactor // nil: lines are stored as they are
	State    string           // file in which is kept how far was read; "": none, and with Once all is read
	Once     bool             // Run returns when everything that is there is durable

	// Quiet is after which time without a line an agent is asked what follows from that.
	// Default 1 min.
	Quiet time.Duration
	// Tail has the tailer's own settings. Its roots and what it asks of files are set here.
	Tail tail.Options
	// Report is told what somebody should know of, by one goroutine at a time, and shall not
	// call the Ingester. Default: nobody.
	Report func(Problem)
	// Blocked is told when the log takes nothing any more, and when it does again, perhaps by
	// several goroutines: the Ingester's Blocked says what is so. Default: nobody.
	Blocked func()

	now func() time.Time // for tests; default time.Now
}

// Problem is something that is wrong with a file or its session.
type Problem struct {
	Root, File string // as far as it is about one
	Session    string
	Offset     int64 // in the file
	Reason     string
	Taken      bool // nothing is left out because of it
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

// Status says how far an Ingester is.
type Status struct {
	tail.Status
	Lines    int            // that were appended
	Bytes    int64          // of them, as they were read
	Events   int            // that were appended, those of lines included
	Redacted int            // places
	Rules    map[string]int // of them, by the rule that found them
	Problems int            // that were reported
	Alone    int            // sessions that are left alone, those included that were before
	Blocked  error          // why nothing can be appended now; nil: it can
	Since    time.Time

	held      int64 // bytes that are durable and not acknowledged
	undecided int64 // bytes of sessions of which it is not known where they go
}

// Ingester appends what agents write. It is made by New.
type Ingester struct {
	o       Options
	tailer  *tail.Tailer
	sources map[string]Source
	pool    pool
	workers *workers

	mu      sync.Mutex // guards all below
	files   map[fileKey]agents.File
	waiting map[fileKey]*late     // for what a session continues
	held    map[fileKey]held      // durable, and not acknowledged
	owners  map[sum]string        // by file: the root in which it lies
	stuck   map[fileKey]bool      // cannot be appended
	rewrite map[fileKey]int64     // how far the new content was read
	due     map[fileKey]time.Time // to be told that nothing came
	dueFrom time.Time             // none of them earlier
	said    map[string]bool       // differences that were reported
	homes   map[sum]string        // by session: its namespace; with Route
	status  Status

	undecided map[string]*undecided // by session

	renamed renamed

	reporting sync.Mutex
}

// fileKey names a file that is read.
type fileKey struct{ root, rel string }

func keyOf(f tail.File) fileKey { return fileKey{f.Root, f.Rel} }

// New begins to follow the sources. If another process does with the same state, the error
// is lockfile.ErrLocked.
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
	in := &Ingester{o: o, sources: make(map[string]Source), files: make(map[fileKey]agents.File), waiting: make(map[fileKey]*late),
		held: make(map[fileKey]held), owners: make(map[sum]string), stuck: make(map[fileKey]bool), rewrite: make(map[fileKey]int64),
		due: make(map[fileKey]time.Time), said: make(map[string]bool), homes: make(map[sum]string), undecided: make(map[string]*undecided)}
	in.pool.init()
	t := o.Tail
	t.State, t.Once, t.MaxLine, t.Whole = o.State, o.Once, maxLine, isWhole
	if o.State != "" || !o.Once { // else all is read, and each line compared with the log
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
			return nil, fmt.Errorf("ingest: two sources are called %q", s.ID)
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

// Kick has a file looked at before all others.
func (in *Ingester) Kick(path string) { in.tailer.Kick(path) }

// Close ends Run, and gives the state up.
func (in *Ingester) Close() error { return in.tailer.Close() }

// Status returns how far in is. It is safe to be called while Run runs.
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

// Blocked says why nothing can be appended now, nil if it can. It costs less than Status.
func (in *Ingester) Blocked() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.status.Blocked
}

// redactedOf counts what was taken out of a line.
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

// once reports a problem the first time that it is met.
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
