package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/snapshot"
)

// Follower is the log as a projector that runs sees it: catch-up, then live.
type Follower interface {
	Source
	Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Head(ctx context.Context) (events.Offset, error)
}

// Policy says when a session's head is written, and the chunks before it. The zero
// value of a field is its default; a negative one switches it off.
type Policy struct {
	Records int           // after so many records since the last; default 200
	Bytes   int64         // or so many bytes of data; default 1 MiB
	Age     time.Duration // or so long after the last record, if anything changed; default 10 min
	Keep    int           // newest snapshots kept of a session; default 3, negative: all
	Leave   time.Duration // how long a projector that stops may still write; default 1 s
}

func (p Policy) withDefaults() Policy {
	p.Records = cmp.Or(p.Records, 200)
	p.Bytes = cmp.Or(p.Bytes, 1<<20)
	p.Age = cmp.Or(p.Age, 10*time.Minute)
	p.Keep = cmp.Or(p.Keep, 3)
	p.Leave = cmp.Or(p.Leave, time.Second)
	if p.Keep < 0 {
		p.Keep = math.MaxInt
	}
	return p
}

// Snapshotter is the projector of snapshots: it follows the log and writes the state
// of a session whenever the policy says so, at each target of a rewind or fork,
// and when it stops. What is stored of documents their readers write; when one is purged
// the keeper removes it.
type Snapshotter struct {
	Log       Follower
	Snapshots snapshot.Store
	Policy    Policy
	Cursor    string           // file that says how far the keeper has got; "": start at the head of the log
	Pace      Pace             // default: none
	Logger    *slog.Logger     // default: discard
	MaxValue  int64            // largest value kept by reference, in bytes; default events.MaxValue
	Now       func() time.Time // default: time.Now

	loader      *Loader
	reached     events.Offset
	reachedID   string
	news        bool // since the cursor was read
	changed     map[events.Subject]*change
	aged        time.Time // nothing that changed is of age before; zero: nothing comes of age
	quarantined map[events.Subject]bool
	heads       map[events.Subject]int64 // bytes of the heads written last, if they are large
	sizes       sizes
	limit       int // of changed; default mostChanged
}

// change counts what came to a session since its last snapshot.
type change struct {
	records int
	bytes   int64
	last    events.Offset
	at      time.Time // when the keeper saw the last record
	seen    bool      // by this keeper: else by an earlier one

	// kept is the offset of a snapshot that is ahead of the keeper: records up to
	// there do not count. So a keeper that begins anew writes each state once.
	kept events.Offset
}

// Run keeps snapshots until ctx is done. Then it catches up with the log for
// Policy.Leave at most, writes what changed, and returns nil. Any other end is
// an error.
func (k *Snapshotter) Run(ctx context.Context) error {
	k.Policy = k.Policy.withDefaults()
	k.Logger = cmp.Or(k.Logger, slog.New(slog.DiscardHandler))
	if k.Now == nil {
		k.Now = time.Now
	}
	k.loader = &Loader{Source: k.Log, Snapshots: k.Snapshots, Logger: k.Logger, MaxValue: k.MaxValue, sizes: k.sizes}
	k.changed, k.quarantined, k.heads = make(map[events.Subject]*change), make(map[events.Subject]bool), make(map[events.Subject]int64)
	// A process may be told to stop before this has begun: what it appended is still
	// counted, by what goes on below.
	if err := k.resume(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	err := k.follow(ctx)
	if ctx.Err() == nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.Policy.Leave)
	defer cancel()
	return k.leave(last)
}

// follow takes records as they come, and writes between them what is of age.
func (k *Snapshotter) follow(ctx context.Context) error {
	for {
		for rec, err := range k.Log.Read(ctx, events.Range{After: k.reached}) {
			if err := k.take(ctx, rec, err); err != nil {
				return err
			}
		}
		if err := k.await(ctx); err != nil {
			return err
		}
	}
}

// await returns when there are records to be read, and writes what is of age until
// then.
func (k *Snapshotter) await(ctx context.Context) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	came := make(chan error, 1)
	go func() { came <- k.Pace.await(waiting, k.Log, k.reached) }()
	age := time.NewTimer(k.untilAged())
	defer age.Stop()
	for {
		select {
		case err := <-came:
			return err
		case <-age.C:
			k.writeAged(ctx)
			age.Reset(k.untilAged())
		}
	}
}

// untilAged is how long nothing comes of age.
func (k *Snapshotter) untilAged() time.Duration {
	if k.aged.IsZero() {
		return math.MaxInt64
	}
	return k.aged.Sub(k.Now())
}

// ages notes that something comes of age that was changed at a time.
func (k *Snapshotter) ages(at time.Time) {
	if of := at.Add(k.Policy.Age); k.Policy.Age >= 0 && (k.aged.IsZero() || of.Before(k.aged)) {
		k.aged = of
	}
}

// take counts one record and writes what is due.
func (k *Snapshotter) take(ctx context.Context, rec events.Record, err error) error {
	if events.IsDamage(err) {
		return nil // the cursor stays at a record that can be recognised
	}
	if err != nil {
		return err
	}
	k.count(rec)
	k.forgetPurged(ctx, rec)
	if len(k.changed) > cmp.Or(k.limit, maxChanged) {
		k.overlook()
	}
	k.keepTargets(ctx, rec)
	if k.due(rec.Subject) {
		k.write(ctx, rec.Subject)
	}
	return nil
}

// maxChanged bounds the sessions of which a keeper knows that they changed; about 150
// bytes each.
const maxChanged = 1 << 16

// overlook forgets an eighth of the sessions that changed, those that did not for the
// maxWait. What a load of one of them folds is less than what a head is due after.
func (k *Snapshotter) overlook() {
	last := make([]events.Offset, 0, len(k.changed))
	for _, c := range k.changed {
		last = append(last, max(c.last, c.kept))
	}
	slices.Sort(last)
	upto := last[len(last)/8]
	maps.DeleteFunc(k.changed, func(_ events.Subject, c *change) bool { return max(c.last, c.kept) <= upto })
}

// due reports whether so much of a session is new that its head is written.
func (k *Snapshotter) due(sub events.Subject) bool {
	c := k.changed[sub]
	return c != nil && (due(int64(c.records), int64(k.Policy.Records)) || due(c.bytes, k.Policy.Bytes)) && k.worthwhile(sub, largeWhenBusy)
}

// worthwhile reports whether what is new is in proportion to the head that would be
// written, if that has large bytes or more. A head has no turns but the newest. It is
// large where the ledger is, or where turns were pinned and replaced one by one; and
// then the records that it would spare a load are fewer bytes than it has itself.
func (k *Snapshotter) worthwhile(sub events.Subject, large int64) bool {
	size := k.heads[sub]
	return size < large || k.changed[sub].bytes >= size/4
}

// From these sizes on, in bytes, it matters how often a head is written: while records
// come, and when they do not. The second is more than records that fill no chunk yet
// account for.
const (
	largeWhenBusy = 256 << 10
	largeWhenIdle = 2 << 20
)

func due(n, limit int64) bool { return limit > 0 && n >= limit }

func (k *Snapshotter) count(rec events.Record) {
	k.reached, k.reachedID, k.news = rec.Offset, rec.ID, true
	if !rec.Subject.IsSession() || strings.HasPrefix(rec.Subject.ID, events.KindItem+"/") {
		return // the life of an item is a few records, and nobody goes on with it once that is over
	}
	c := k.changed[rec.Subject]
	if c == nil {
		c = &change{}
		k.changed[rec.Subject] = c
	}
	if rec.Offset <= c.kept {
		if rec.Offset == c.kept {
			delete(k.changed, rec.Subject)
		}
		return
	}
	c.records++
	c.bytes += int64(len(rec.Data))
	c.last, c.at, c.seen = rec.Offset, k.Now(), true
	k.ages(c.at)
}

// keepTargets writes the states that a rewind and a fork go back to: somebody is
// about to look at them.
func (k *Snapshotter) keepTargets(ctx context.Context, rec events.Record) {
	if rec.Type != events.TypeSessionRewound && rec.Type != events.TypeSessionCreated {
		return
	}
	switch p := Decode(rec).Payload.(type) {
	case *events.SessionRewound:
		if p.To < rec.Offset {
			k.writeAt(ctx, rec.Subject, p.To, "rewind target")
		}
	case *events.SessionCreated:
		if p.Fork != nil && p.Fork.Offset < rec.Offset {
			k.writeAt(ctx, events.Session(rec.Subject.Namespace, p.Fork.Session), p.Fork.Offset, "fork target")
		}
	}
}

// forgetPurged removes what readers have stored of a document that is purged.
func (k *Snapshotter) forgetPurged(ctx context.Context, rec events.Record) {
	if !rec.Subject.IsSession() && isPurge(rec) {
		k.loader.forgetRevisions(ctx, rec.Subject, rec.Offset)
	}
}

// writeAged writes what is of age. The next time is not at once, so that what comes of age
// within a moment is looked for once. What is not worthwhile waits for another record.
func (k *Snapshotter) writeAged(ctx context.Context) {
	now := k.Now()
	k.aged = time.Time{}
	for sub, c := range k.changed {
		switch {
		case c.records == 0:
		case now.Sub(c.at) < k.Policy.Age:
			k.ages(c.at)
		case k.worthwhile(sub, largeWhenIdle):
			k.write(ctx, sub)
		}
	}
	if soon := k.Now().Add(min(time.Second, k.Policy.Age)); !k.aged.IsZero() && k.aged.Before(soon) {
		k.aged = soon
	}
}

// write stores the session's state at head and forgets what changed.
func (k *Snapshotter) write(ctx context.Context, sub events.Subject) {
	k.news = true
	switch at, settled := k.writeAt(ctx, sub, 0, ""); {
	case at > k.reached:
		k.changed[sub] = &change{kept: at}
	case settled:
		delete(k.changed, sub)
	}
}

// writeAt stores one state. It returns its offset, 0 if none was stored, and whether
// the subject is settled. A session that cannot be folded is quarantined: named
// once, and left alone from then on.
func (k *Snapshotter) writeAt(ctx context.Context, sub events.Subject, at events.Offset, kept string) (events.Offset, bool) {
	if k.quarantined[sub] {
		return 0, true
	}
	size := 0
	st := storing{l: k.loader}
	snap, err := k.loader.head(ctx, sub, at, kept, st.put)
	if err == nil {
		size = len(snap.Data)
		err = k.put(ctx, snap)
	}
	if errors.Is(err, ErrNotFound) {
		return 0, true
	}
	if ctx.Err() != nil {
		return 0, false
	}
	if full, ok := errors.AsType[*storeError](err); ok {
		k.Logger.Warn("snapshot cannot be written", "subject", sub, "err", full)
		return snap.Offset, true
	}
	if err != nil {
		k.quarantined[sub] = true
		k.Logger.Warn("no snapshots of this session", "subject", sub, "err", err)
		return 0, true
	}
	if k.heads[sub] = int64(size); size < largeWhenBusy {
		delete(k.heads, sub)
	}
	return snap.Offset, true
}

// put stores a head and takes older ones away. What is kept for a reason
// keeps its reason.
func (k *Snapshotter) put(ctx context.Context, snap snapshot.Snapshot) error {
	metas, err := k.Snapshots.List(ctx, snap.Subject, SessionFold)
	if err != nil {
		return &storeError{err}
	}
	for _, m := range metas {
		if m.Offset == snap.Offset && m.Version == snap.Version {
			snap.Kept = cmp.Or(snap.Kept, m.Kept)
		}
	}
	if err := k.loader.put(ctx, snap); err != nil {
		return err
	}
	if err := Prune(ctx, k.Snapshots, snap.Subject, k.Policy.Keep); err != nil {
		return &storeError{err}
	}
	return nil
}

// Prune leaves the newest snapshots of a session, and those with a reason of
// their own.
func Prune(ctx context.Context, st snapshot.Store, sub events.Subject, keep int) error {
	metas, err := st.List(ctx, sub, SessionFold)
	if err != nil {
		return err
	}
	for i, m := range metas {
		if i < keep || m.Kept != "" {
			continue
		}
		if err := st.Delete(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// leave catches up with the log, writes the sessions that changed most, and says
// in the cursor how far it got. What there is no time for, and what an earlier keeper
// left, is written when it is of age or changes again: a process that only looks at
// something is not to write for others.
func (k *Snapshotter) leave(ctx context.Context) error {
	for rec, err := range events.Readable(k.Log.Read(ctx, events.Range{After: k.reached})) {
		if err != nil {
			break
		}
		k.count(rec)
		k.forgetPurged(ctx, rec)
		k.keepTargets(ctx, rec)
	}
	var subjects []events.Subject
	for sub, c := range k.changed {
		if c.seen && k.worthwhile(sub, largeWhenIdle) {
			subjects = append(subjects, sub)
		}
	}
	slices.SortFunc(subjects, func(a, b events.Subject) int {
		return cmp.Or(cmp.Compare(k.changed[b].records, k.changed[a].records), cmp.Compare(k.changed[a].last, k.changed[b].last))
	})
	for _, sub := range subjects {
		if ctx.Err() != nil {
			break
		}
		k.write(ctx, sub)
	}
	return k.save()
}

// cursorState is the stored form of a keeper's progress.
type cursorState struct {
	Offset  uint64          `json:"offset"`
	EventID string          `json:"eventId"`
	Changed []changedRecord `json:"changed,omitempty"`
}

type changedRecord struct {
	Subject string `json:"subject"`
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
	Last    uint64 `json:"last"`
}

func (k *Snapshotter) save() error {
	if k.Cursor == "" || !k.news {
		return nil
	}
	st := cursorState{Offset: uint64(k.reached), EventID: k.reachedID}
	for sub, c := range k.changed {
		if c.records == 0 {
			continue
		}
		st.Changed = append(st.Changed, changedRecord{sub.NATS(), c.records, c.bytes, uint64(c.last)})
	}
	slices.SortFunc(st.Changed, func(a, b changedRecord) int { return cmp.Compare(a.Last, b.Last) })
	err := os.MkdirAll(filepath.Dir(k.Cursor), 0o700)
	if err == nil {
		err = statefile.Write(k.Cursor, st, durable.NoSync)
	}
	if err != nil {
		return fmt.Errorf("projector: save the cursor: %w", err)
	}
	return nil
}

// resume goes on where the last keeper stopped. A cursor that cannot be read, or
// is of another log, is as good as none: the log is counted from its beginning.
func (k *Snapshotter) resume(ctx context.Context) error {
	if k.Cursor == "" {
		head, err := k.Log.Head(ctx)
		k.reached = head
		return err
	}
	var st cursorState
	err := statefile.Read(k.Cursor, 0, &st)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && st.Offset > 0 {
		var rec events.Record
		if rec, err = k.Log.Record(ctx, events.Offset(st.Offset)); err == nil && rec.ID != st.EventID {
			err = fmt.Errorf("record %d is not the one it was written at", st.Offset)
		}
	}
	if err != nil {
		k.Logger.Warn("cursor of the snapshots discarded", "reason", err.Error())
		return nil
	}
	k.reached, k.reachedID = events.Offset(st.Offset), st.EventID
	now := k.Now()
	for _, c := range st.Changed {
		if sub, err := events.ParseNATS(c.Subject); err == nil {
			k.changed[sub] = &change{records: c.Records, bytes: c.Bytes, last: events.Offset(c.Last), at: now}
			k.ages(now)
		}
	}
	return nil
}
