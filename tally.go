package tally

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// Config has the settings of a store. The zero value works.
type Config struct {
	Namespace string          // of sessions and documents; default events.DefaultNamespace
	Source    string          // CloudEvents source of the events that this program makes; default "urn:tally:go"
	Actor     string          // user, agent or program id that appends; default: none
	Base      string          // folder that paths of conversations are relative to; default ".tally"
	MaxValue  int64           // largest value kept by reference, in bytes; default events.MaxValue
	Kinds     map[string]Kind // rules for documents of a kind, by its name; documents of other kinds have no rules
	Snapshots snapshot.Store  // states kept between loads; default: none, every load folds the log
	Logger    *slog.Logger    // default: discard

	// Host is what the process that opens the store provides. Package embedded sets it.
	// The zero value suits a program that only reads and appends.
	Host Host
}

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, events.DefaultNamespace)
	c.Source = cmp.Or(c.Source, "urn:tally:go")
	c.Base = cmp.Or(c.Base, ".tally")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.MaxValue = cmp.Or(c.MaxValue, events.MaxValue)
	return c
}

// Errors that callers branch on besides those of package log.
var (
	ErrNotFound = events.ErrNotFound // no such session, document or position
	ErrExists   = errors.New("exists already")
	ErrNoLimits = projector.ErrNoLimits // limits are set where the store is owned
	ErrNoTrees  = errors.New("the store keeps no such tree of files")
)

// Store is a log with its loader, snapshots and views. It is safe for concurrent use.
type Store struct {
	Log    *Log
	config Config
	loader *projector.Loader
	bases  *bases
	clock  *logClock
	tail   *tail
	kept   *kept

	stop    context.CancelFunc
	running sync.WaitGroup
	runners []*projector.Runner
}

// Open opens a store on a log. The store owns the log from then on and closes it.
func Open(ctx context.Context, l *log.Log, c Config) (*Store, error) {
	c = c.withDefaults()
	if err := events.ValidateNamespace(c.Namespace); err != nil {
		return nil, err
	}
	st := &Store{Log: &Log{raw: l, shows: c.Host.Shows}, config: c, bases: new(bases), clock: new(logClock), tail: &tail{src: l}, kept: &kept{of: make(map[reflect.Type]closer)}, loader: &projector.Loader{Source: l, Snapshots: c.Snapshots, Logger: c.Logger, MaxValue: c.MaxValue}}
	st.loader.Now = st.LogTime
	st.Log.refer = st.ByReference
	life, stop := context.WithCancel(log.NoteDamage(context.WithoutCancel(ctx), nil)) // projectors run until Close
	st.stop = stop
	if c.Host.Keep {
		st.project(life)
	}
	if c.Host.Beside != nil {
		st.running.Go(func() { c.Host.Beside(life, st) })
	}
	return st, nil
}

// project runs the projectors until life ends.
func (st *Store) project(life context.Context) {
	c := st.config
	if c.Snapshots != nil {
		k := &projector.Snapshotter{Log: st.Log, Snapshots: c.Snapshots, Policy: c.Host.Policy, Cursor: c.Host.Cursor, Pace: projector.Patient, Logger: c.Logger, MaxValue: c.MaxValue}
		st.running.Go(func() {
			if err := k.Run(life); err != nil {
				c.Logger.Warn("snapshots are not written any more", "err", err)
			}
		})
	}
	run := func(v projector.View, p projector.Pace) {
		r := &projector.Runner{Log: st.Log, View: v, Pace: p, Room: c.Host.Room, Logger: c.Logger, MaxValue: c.MaxValue}
		st.runners = append(st.runners, r)
		r.Start(life, &st.running)
	}
	for _, v := range c.Host.Views {
		run(v, 0)
	}
	for _, v := range c.Host.PatientViews {
		run(v, projector.Patient)
	}
}

// Close stops the store's goroutines and closes the log. Snapshots of changed sessions are written first, for a second
// at most; a missing snapshot only makes the next load slower.
func (st *Store) Close() error {
	st.stop()
	st.running.Wait()
	err := st.Log.Close()
	st.tail.wait()
	st.kept.close()
	if st.config.Host.OnClose != nil {
		err = errors.Join(err, st.config.Host.OnClose())
	}
	return err
}

// Namespace returns the namespace of the store's handles.
func (st *Store) Namespace() string { return st.config.Namespace }

// Base returns the folder that paths of conversations are relative to: the place of tally-evals' files. A store writes
// nothing there.
func (st *Store) Base() string { return st.config.Base }

// In returns the same store in another namespace. The caller closes only the original.
func (st *Store) In(namespace string) (*Store, error) {
	if err := events.ValidateNamespace(namespace); err != nil {
		return nil, err
	}
	other := st.twin()
	other.config.Namespace = namespace
	return other, nil
}

// By returns the same store for another producer: the events that it makes have this source and actor. The caller closes
// only the original.
func (st *Store) By(source, actor string) *Store {
	other := st.twin()
	other.config.Source, other.config.Actor = source, actor
	return other
}

// twin returns the same store; closing the original closes both.
func (st *Store) twin() *Store {
	other := &Store{Log: st.Log, config: st.config, loader: st.loader, bases: st.bases, clock: st.clock, tail: st.tail, kept: st.kept, stop: func() {}, runners: st.runners}
	other.config.Host.OnClose = nil
	return other
}

// Source returns the CloudEvents source of the events that this program makes.
func (st *Store) Source() string { return st.config.Source }

// MaxValue returns the size of the largest value kept by reference, in bytes.
func (st *Store) MaxValue() int64 { return st.config.MaxValue }

// Now returns the time by the log's clock.
func (st *Store) Now() time.Time { return st.Log.Now() }

// Loader returns the loader of the store's sessions and documents.
func (st *Store) Loader() *projector.Loader { return st.loader }

// Snapshots returns the states kept between loads, or nil.
func (st *Store) Snapshots() snapshot.Store { return st.config.Snapshots }

// ViewsDir returns the folder of the views' files, or "".
func (st *Store) ViewsDir() string { return st.config.Host.ViewsDir }

// Runners returns the projectors of the views that this process keeps.
func (st *Store) Runners() []*projector.Runner {
	if st.config.Host.Own == nil {
		return st.runners
	}
	return slices.Concat(st.runners, st.config.Host.Own.Runners())
}

// Lag is how far a view is behind the durable end of the log.
type Lag struct {
	Events uint64
	Age    time.Duration // since the first event that the view does not show was recorded
}

// Lag returns the lag of a view that has read up to an offset.
func (st *Store) Lag(ctx context.Context, at events.Offset) (Lag, error) {
	durable, err := st.Log.Durable(ctx)
	if err != nil || durable <= at {
		return Lag{}, err
	}
	lag := Lag{Events: uint64(durable - at)}
	for rec, err := range st.Log.Read(ctx, events.Range{After: at, Limit: 1}) {
		if events.IsDamage(err) {
			break // the record's age is unknown
		}
		if err != nil {
			return lag, err
		}
		lag.Age = max(0, time.Since(rec.Recorded))
	}
	return lag, nil
}

// Wait returns when a view, such as "catalog", shows at least the record at an offset, in this process or another. If
// that record is lost, Wait waits for the last readable record before it. If nobody keeps the view, the error is
// ErrNotFound. If the process that owns the store has ended, it is log.ErrUnavailable: open the store again.
func (st *Store) Wait(ctx context.Context, view string, at events.Offset) error {
	at, err := st.lastReadable(ctx, at)
	if err != nil {
		return err
	}
	for _, r := range st.runners {
		if r.View.Name() == view {
			return r.Wait(ctx, at)
		}
	}
	if own := st.config.Host.Own; own != nil {
		if err := own.Wait(ctx, view, at); !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	if st.config.Host.Shown == nil {
		return fmt.Errorf("view %s: %w", view, ErrNotFound)
	}
	return st.config.Host.Shown(ctx, view, at)
}

// lastReadable returns the offset, or, if its record is lost, that of the last readable record before it, or 0.
func (st *Store) lastReadable(ctx context.Context, at events.Offset) (events.Offset, error) {
	if at == 0 {
		return 0, nil
	}
	ctx = log.NoteDamage(ctx, nil) // no answer rests on this record
	if _, err := st.Log.Record(ctx, at); !events.IsDamage(err) {
		return at, nil // the wait will meet any other error
	}
	for rec, err := range events.Readable(st.Log.ReadBack(ctx, events.Range{Upto: at})) {
		return rec.Offset, err
	}
	return 0, nil
}

// Show waits until the files of trees in mode sync show the subjects as of an offset. Every append does so, except
// those of Unshown. The error is an *events.TreeError.
func (st *Store) Show(ctx context.Context, at events.Offset, subs ...events.Subject) error {
	return st.Log.show(ctx, log.Ack{Last: at}, slices.Clone(subs)...)
}

// KeepFiles keeps a folder and the namespace in sync, as files of a layout such as "errata", in both directions, until
// the process that owns the store closes it. When KeepFiles returns, the folder's content is stored, and from then on
// an append returns when the files show it. If the folder is kept already, it is brought up to date. If this store, or
// its owner, was opened without the layout, the error is ErrNoTrees.
func (st *Store) KeepFiles(ctx context.Context, layout, dir string) error {
	if st.config.Host.KeepFiles == nil {
		return fmt.Errorf("%s: %w", dir, ErrNoTrees)
	}
	return st.config.Host.KeepFiles(ctx, st.Namespace(), layout, dir)
}

// Unshown returns the same store, whose appends do not wait for trees. The process that keeps a tree uses it, and a
// caller that makes a series of appends and calls Show for the last. The caller closes only the original.
func (st *Store) Unshown() *Store {
	other := st.twin()
	other.Log = st.Log.withoutTrees()
	return other
}

// Usage returns how many bytes of documents are readable at head: of the store, then of owners and of kinds, over all
// namespaces, with their limits. If a record of a document is lost that the view does not show, they come with a
// *projector.HoleError.
func (st *Store) Usage(ctx context.Context) ([]projector.Usage, error) {
	if st.config.Host.Usage == nil {
		return nil, fmt.Errorf("usage: %w", ErrNoLimits)
	}
	list, err := st.config.Host.Usage(ctx)
	if err == nil {
		err = st.Lacks(ctx, "catalog", "", isDocument)
	}
	return list, err
}

// SetLimit limits the bytes of documents that are readable at a time: of "store", of "owner:NAME" ("owner:" for
// documents without owner) or of "kind:KIND"; 0 removes the limit. From then on every write that would exceed it is
// refused with a *log.QuotaError; existing documents stay. If another program owns the store elsewhere, the error is
// ErrNoLimits.
func (st *Store) SetLimit(ctx context.Context, scope string, bytes int64) error {
	if st.config.Host.SetLimit == nil {
		return fmt.Errorf("limit of %s: %w", scope, ErrNoLimits)
	}
	return st.config.Host.SetLimit(ctx, scope, bytes)
}

// Stamp sets the id, time, source and actor of an event where they are missing.
func (st *Store) Stamp(e events.Event) events.Event {
	e.Source = cmp.Or(e.Source, st.config.Source)
	if st.config.Actor != "" && e.Extensions[events.ExtActor] == "" {
		e = e.WithExtension(events.ExtActor, st.config.Actor)
	}
	return st.Log.Stamp(e)
}

// Append appends events to one subject: all or none. Large data are kept by reference; the blob is durable before the
// event that refers to it. If no answer comes, Append sends the same events again, a few times; they are stored once.
// Errors besides those of log.Append are *events.InvalidError for data beyond Config.MaxValue, and *events.TreeError together
// with the ack if the events are stored but trees do not show them.
func (st *Store) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ready, err := st.prepare(ctx, sub, evs)
	if err != nil {
		return log.Ack{}, err
	}
	return st.put(ctx, sub, expect, ready)
}

// maxTries bounds how often an append is sent, and maxAborts how often more if it was aborted because of an earlier
// one.
const (
	maxTries  = 8
	maxAborts = 100
)

// put appends prepared events.
func (st *Store) put(ctx context.Context, sub events.Subject, expect log.Expect, ready []events.Event) (ack log.Ack, err error) {
	err = insist(ctx, func() error {
		ack, err = st.Log.Append(ctx, sub, expect, ready...)
		return err
	})
	if !events.IsStored(err) {
		return ack, err
	}
	return st.judged(ctx, sub, ack, err, ready)
}

// judged is Judge for stored events. unshown is the error of their trees.
func (st *Store) judged(ctx context.Context, sub events.Subject, ack log.Ack, unshown error, ready []events.Event) (log.Ack, error) {
	ack, err := st.Judge(ctx, sub, ack, ready...)
	if err != nil {
		return ack, err
	}
	return ack, unshown
}

// insist repeats an append if its outcome is unknown, or if it was aborted because an earlier append to the subject
// failed. With many writers to one subject that may happen several times in a row.
func insist(ctx context.Context, send func() error) error {
	for try, aborts := 1, 0; ; try++ {
		err := send()
		if errors.Is(err, log.ErrAborted) && aborts < maxAborts {
			try, aborts = min(try, maxTries-1), aborts+1
		}
		again := errors.Is(err, log.ErrUnknown) || errors.Is(err, log.ErrAborted)
		if !again || try == maxTries || pause(ctx, try) != nil {
			return err
		}
	}
}

// AppendAll appends to several subjects, all parts or none: see [log.Log.AppendAll]. It keeps large data by reference
// and repeats unanswered sends like Append.
func (st *Store) AppendAll(ctx context.Context, parts ...log.Part) (acks []log.Ack, err error) {
	ready := make([]log.Part, len(parts))
	for i, p := range parts {
		ready[i] = p
		if ready[i].Events, err = st.prepare(ctx, p.Subject, p.Events); err != nil {
			return nil, err
		}
	}
	err = insist(ctx, func() error {
		acks, err = st.Log.AppendAll(ctx, ready...)
		return err
	})
	for i, p := range ready {
		if events.IsStored(err) && len(p.Events) > 0 {
			acks[i], err = st.judged(ctx, p.Subject, acks[i], err, p.Events)
		}
	}
	return acks, err
}

// AppendSeries appends events to one subject one after the other, as [log.Log.AppendSeries] does: after a crash the
// first ones may be stored. Large data are kept by reference as in Append.
func (st *Store) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (ack log.Ack, added int, err error) {
	ready, err := st.prepare(ctx, sub, evs)
	if err != nil {
		return log.Ack{}, 0, err
	}
	ack, added, err = st.Log.AppendSeries(ctx, sub, expect, ready...)
	if !events.IsStored(err) {
		return ack, added, err
	}
	ack, err = st.judged(ctx, sub, ack, err, ready)
	return ack, added, err
}

// prepare stamps events and, once all of them are valid, moves large data into blobs.
func (st *Store) prepare(ctx context.Context, sub events.Subject, evs []events.Event) ([]events.Event, error) {
	ready := make([]events.Event, len(evs))
	for i, e := range evs {
		if e.Subject == (events.Subject{}) {
			e.Subject = sub
		}
		ready[i] = st.Stamp(e)
	}
	if !slices.ContainsFunc(ready, st.isLarge) {
		return ready, nil // Append validates them
	}
	for _, e := range ready {
		if err := e.Validate(); err != nil {
			return nil, err
		}
		if err := st.checkSize(e.Data); err != nil {
			return nil, err
		}
	}
	for i, e := range ready {
		var err error
		if ready[i], err = st.ByReference(ctx, e); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// ByReference returns an event that the log accepts: it stores large data, durable, as a blob and puts a reference in
// their place. Append does so itself; only callers that use the log directly need it. For data beyond Config.MaxValue
// the error is *events.InvalidError.
func (st *Store) ByReference(ctx context.Context, e events.Event) (events.Event, error) {
	if !st.isLarge(e) {
		return e, nil
	}
	ref, err := st.putBlob(ctx, cmp.Or(e.Subject.Namespace, st.config.Namespace), e.Data)
	if err != nil {
		return e, err
	}
	e.Data = nil
	return e.WithExtension(events.ExtDataRef, ref), nil
}

// isLarge reports whether an event's data exceed what the log stores in an event.
func (st *Store) isLarge(e events.Event) bool { return len(e.Data) > st.Log.MaxData() }

// Judge sets Ack.Stale for an append. Only a fold can tell whether events are in effect at their offset; the log
// cannot. Append does so itself; only callers that use the log directly need it.
func (st *Store) Judge(ctx context.Context, sub events.Subject, ack log.Ack, evs ...events.Event) (log.Ack, error) {
	said := false
	for _, e := range evs {
		_, ok := e.Basis()
		said = said || ok
	}
	if !said || !sub.IsSession() {
		return ack, nil
	}
	s, err := st.loader.Outline(ctx, sub, ack.Last)
	if err = projector.Tolerate(err); err != nil {
		return ack, fmt.Errorf("appended at %v, but unknown whether stale: %w", ack.First, err)
	}
	for _, at := range s.Stale() {
		ack.Stale = ack.Stale || at >= ack.First && at <= ack.Last
	}
	return ack, nil
}

// pause waits a little longer each time, so that two writers do not collide again and again.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(time.Millisecond << min(try-1, 6))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Subjects yields the subjects of a kind in the store's namespace with the number of their records, in the order of
// their ids; "" is every kind.
func (st *Store) Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error] {
	return st.Log.Subjects(ctx, st.config.Namespace, kind)
}
