package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/tail"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/redact"
)

// Log is where sessions go. It is a *log.Log.
type Log interface {
	Reader
	AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error)
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
	Sources   []Source
	Redactor  *redact.Redactor // nil: lines are stored as they are
	State     string           // file in which is kept how far was read; "": none
	Once      bool             // Run returns when everything that is there is durable

	// Quiet is after which time without a line an agent is asked what follows from that.
	// Default 1 min.
	Quiet time.Duration
	// Tail has the tailer's own settings. Its roots and what it asks of files are set here.
	Tail tail.Options
	// Report is told what somebody should know of, by the goroutine of Run. Default: nobody.
	Report func(Problem)

	now func() time.Time // for tests; default time.Now
}

// Problem is something that is wrong with a file or its session.
type Problem struct {
	Root, File string // as far as it is about one
	Session    string
	Offset     int64 // in the file
	Reason     string
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
	Lines    int   // that were appended
	Events   int   // that were appended, those of lines included
	Redacted int   // places
	Problems int   // that were reported
	Blocked  error // why nothing can be appended now; nil: it can
	Since    time.Time

	held int64 // bytes that are durable and not acknowledged
}

// Ingester appends what agents write. It is made by New.
type Ingester struct {
	o       Options
	tailer  *tail.Tailer
	sources map[string]Source
	cache   cache
	files   map[fileKey]agents.File // whose names do not say everything
	waiting []*tail.Batch           // for what a session continues
	held    map[fileKey]*tail.Batch // durable, and not acknowledged
	owners  map[sum]string          // by file: the root in which it lies
	stuck   map[fileKey]bool        // cannot be appended
	rewrite map[fileKey]int64       // how far the new content was read
	due     map[fileKey]time.Time   // to be told that nothing came
	said    map[string]bool         // differences that were reported

	mu     sync.Mutex // guards status
	status Status
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
	in := &Ingester{o: o, sources: make(map[string]Source), files: make(map[fileKey]agents.File),
		held: make(map[fileKey]*tail.Batch), owners: make(map[sum]string), stuck: make(map[fileKey]bool), rewrite: make(map[fileKey]int64), due: make(map[fileKey]time.Time), said: make(map[string]bool)}
	t := o.Tail
	t.State, t.Once, t.MaxLine, t.Resume, t.Whole = o.State, o.Once, maxLine, in.resume, isWhole
	t.Wants = func(root, rel string) bool { return in.sources[root].Agent.Wants(rel) }
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
	in.tailer, err = tail.Open(t)
	return in, err
}

// Kick has a file looked at before all others.
func (in *Ingester) Kick(path string) { in.tailer.Kick(path) }

// Close ends Run, and gives the state up.
func (in *Ingester) Close() error { return in.tailer.Close() }

// Status returns how far in is. It is safe to be called while Run runs.
func (in *Ingester) Status() Status {
	in.mu.Lock()
	defer in.mu.Unlock()
	s, held := in.status, in.status.held
	s.Status = in.tailer.Status()
	if s.Lag -= held; s.Lag <= 0 {
		s.Lag, s.Behind = 0, 0
	}
	return s
}

func (in *Ingester) count(change func(*Status)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	change(&in.status)
}

func (in *Ingester) report(p Problem) {
	in.count(func(s *Status) { s.Problems++ })
	if in.o.Report != nil {
		in.o.Report(p)
	}
}

// once reports a problem the first time that it is met.
func (in *Ingester) once(p Problem) {
	if key := p.String(); !in.said[key] && len(in.said) < maxSaid {
		in.said[key] = true
		in.report(p)
	}
}

const maxSaid = 10_000

// Run appends what comes until ctx is done or the Ingester is closed, and then returns why;
// with Once, until everything is durable: then it returns nil. It may be called once.
func (in *Ingester) Run(ctx context.Context) error {
	for {
		b, err := in.next(ctx)
		switch {
		case err == nil:
			err = in.take(ctx, b)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && in.o.Once && len(in.stuck) > 0 && len(in.waiting) == 0:
			return errors.Join(in.hushAll(ctx), ErrStuck)
		case errors.Is(err, context.DeadlineExceeded):
			err = in.idle(ctx, len(in.waiting) > 0)
		case errors.Is(err, io.EOF) && len(in.waiting) > 0:
			err = in.idle(ctx, true)
		case errors.Is(err, io.EOF) && len(in.stuck) > 0:
			return errors.Join(in.hushAll(ctx), ErrStuck)
		case errors.Is(err, io.EOF):
			return in.hushAll(ctx)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
	}
}

// patience is how long files wait for what they continue, once nothing else comes.
const patience = 200 * time.Millisecond

// next waits for a batch, no longer than until something is due.
func (in *Ingester) next(ctx context.Context) (*tail.Batch, error) {
	wait := time.Hour
	if len(in.waiting)+len(in.held) > 0 || in.o.Once && len(in.stuck) > 0 {
		wait = patience
	}
	for _, at := range in.due {
		wait = min(wait, max(0, at.Sub(in.o.now())))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return in.tailer.Next(ctx)
}

// take deals with a batch, as often as somebody else's appends make that necessary.
func (in *Ingester) take(ctx context.Context, b *tail.Batch) error {
	if in.stuck[keyOf(b.File)] {
		return nil
	}
	if slices.ContainsFunc(in.waiting, func(w *tail.Batch) bool { return keyOf(w.File) == keyOf(b.File) }) {
		in.waiting = append(in.waiting, b)
		return nil
	}
	err := in.settle(ctx, b, false)
	if errors.Is(err, errAbsent) {
		in.waiting = append(in.waiting, b)
		return nil
	}
	return err
}

// settle deals with a batch and acknowledges it.
func (in *Ingester) settle(ctx context.Context, b *tail.Batch, force bool) error {
	if brokenAck {
		in.tailer.Ack(b)
	}
	for try := 0; ; try++ {
		err := in.deal(ctx, b, force)
		switch {
		case err == nil:
			in.blocked(nil)
			return in.done(ctx, b)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errAgain):
			continue
		case isWait(err):
			in.blocked(err)
		case !isRace(err):
			return err
		case try > maxTries:
			in.stuck[keyOf(b.File)] = true
			in.report(Problem{Root: b.File.Root, File: b.File.Rel, Reason: err.Error() + ": not read on"})
			return nil
		}
		pause(ctx, try)
	}
}

// maxTries bounds deciding again after somebody else wrote.
const maxTries = 10

var (
	errAbsent = errors.New("what the session continues is not in the log")
	errAgain  = errors.New("decide again")
)

// ErrStuck is what Run returns, with Once, if a file could not be appended: it was reported,
// and it is tried again by the next Ingester.
var ErrStuck = errors.New("ingest: some files could not be appended")

// isRace reports whether reading the session and deciding again may help.
func isRace(err error) bool {
	_, partial := errors.AsType[*log.PartialError](err)
	_, other := errors.AsType[*events.InvalidError](err)
	return partial || other || errors.Is(err, log.ErrConflict) || errors.Is(err, log.ErrAborted) || errors.Is(err, log.ErrTooLarge)
}

// deal does what a batch asks for. After an error what is known of its session is forgotten.
func (in *Ingester) deal(ctx context.Context, b *tail.Batch, force bool) error {
	switch b.Kind {
	case tail.Lines, tail.Rewritten:
		return in.lines(ctx, b, force)
	case tail.Moved:
		return in.moved(ctx, b)
	case tail.Gone:
		return in.vanished(ctx, b)
	case tail.Unreadable:
		in.report(Problem{Root: b.File.Root, File: b.File.Rel, Reason: b.Err.Error()})
	}
	return nil
}

// idle does what is to be done when nothing comes: with force, what waits is dealt with,
// that first of which there is what it continues.
func (in *Ingester) idle(ctx context.Context, force bool) error {
	for force && len(in.waiting) > 0 {
		n, err := in.unwait(ctx, false)
		if err == nil && n == 0 {
			_, err = in.unwait(ctx, true)
		}
		if err != nil {
			return err
		}
	}
	// What is held may be what the tailer waits for: a long line is read alone.
	isStuck := len(in.held) > 0 && in.tailer.Status().Lag > in.status.held
	for key, at := range in.due {
		if isStuck && in.held[key] != nil || !at.After(in.o.now()) {
			if err := in.hush(ctx, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// unwait deals with what waits and can be dealt with, and says with how much. With force
// it is one file, that with the least stem.
func (in *Ingester) unwait(ctx context.Context, force bool) (n int, err error) {
	list := in.waiting
	in.waiting = nil
	if force {
		first := slices.MinFunc(list, func(a, b *tail.Batch) int { return compareStems(a.File, b.File) })
		i := slices.Index(list, first)
		list = slices.Concat(list[i:i+1], list[:i], list[i+1:])
	}
	for i, b := range list {
		held := slices.ContainsFunc(in.waiting, func(w *tail.Batch) bool { return keyOf(w.File) == keyOf(b.File) })
		if !held {
			err = in.settle(ctx, b, force && i == 0)
		}
		switch {
		case held || errors.Is(err, errAbsent):
			in.waiting, err = append(in.waiting, b), nil
		case err != nil:
			return n, err
		default:
			n++
		}
	}
	return n, nil
}

func compareStems(a, b tail.File) int {
	switch {
	case a.Stem < b.Stem:
		return -1
	case a.Stem > b.Stem:
		return 1
	}
	return 0
}

// pause waits before another try, longer each time, and not everybody as long.
func pause(ctx context.Context, try int) {
	d := 5 * time.Millisecond << min(try, 10)
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
