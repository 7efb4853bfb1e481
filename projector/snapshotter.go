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

// Follower is the log for a projector that keeps running: Read for existing records, Follow for new ones.
type Follower interface {
	Source
	Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Head(ctx context.Context) (events.Offset, error)
}

// Policy determines when a session's head, and the chunks before it, are written. A zero field means its default; a
// negative value disables it. A session with less than a sixteenth of Records and of Bytes since its last head gets none
// by its age or at a stop: a load folds so little faster than it reads a head.
type Policy struct {
	Records int           // after so many records since the last head; default 200
	Bytes   int64         // or so many bytes of data; default 1 MiB
	Age     time.Duration // or so long after the last record, if there are changes; default 10 min
	Keep    int           // number of newest snapshots kept per session; default 3, negative: all
	Leave   time.Duration // how long a stopping projector may still write; default 1 s
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

// Snapshotter is the projector of snapshots. It follows the log and writes the state of a session when the policy says
// so, at each target of a rewind or fork, and when it stops. Readers write the chunks of documents; when a document is
// purged, the snapshotter removes them.
type Snapshotter struct {
	Log       Follower
	Snapshots snapshot.Store
	Policy    Policy
	Cursor    string           // file with the snapshotter's progress; "": start at the head of the log
	Pace      Pace             // default: none
	Logger    *slog.Logger     // default: discard
	MaxValue  int64            // largest value kept by reference, in bytes; default events.MaxValue
	Now       func() time.Time // default: time.Now

	loader      *Loader
	reached     events.Offset
	reachedID   string
	news        bool // records arrived since the cursor was read
	changed     map[events.Subject]*change
	aged        time.Time // earliest time at which a changed session reaches Policy.Age; zero: none
	quarantined map[events.Subject]bool
	heads       map[events.Subject]int64 // bytes of the last written heads, if they are large
	sizes       sizes
	limit       int // of changed; default maxChanged
}

// change counts a session's records since its last snapshot.
type change struct {
	records int
	bytes   int64
	last    events.Offset
	at      time.Time // when the snapshotter read the last record
	seen    bool      // read by this snapshotter, not an earlier one

	// kept is the offset of a snapshot ahead of the snapshotter. Records up to there do not count, so a restarted
	// snapshotter writes each state once.
	kept events.Offset
}

// Run keeps snapshots until ctx is done. Then it catches up with the log, for at most Policy.Leave, writes the changed
// sessions, and returns nil. Any other end is an error.
func (k *Snapshotter) Run(ctx context.Context) error {
	k.Policy = k.Policy.withDefaults()
	k.Logger = cmp.Or(k.Logger, slog.New(slog.DiscardHandler))
	if k.Now == nil {
		k.Now = time.Now
	}
	k.loader = &Loader{Source: k.Log, Snapshots: k.Snapshots, Logger: k.Logger, MaxValue: k.MaxValue, sizes: k.sizes}
	k.changed, k.quarantined, k.heads = make(map[events.Subject]*change), make(map[events.Subject]bool), make(map[events.Subject]int64)
	// A process may be stopped before this point. The steps below still count the records that it appended.
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

// follow counts records as they arrive, and writes aged sessions in between.
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

// await returns when there are records to read. Until then it writes aged sessions.
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

// untilAged returns the time until the next session reaches Policy.Age.
func (k *Snapshotter) untilAged() time.Duration {
	if k.aged.IsZero() {
		return math.MaxInt64
	}
	return k.aged.Sub(k.Now())
}

// ages notes that a session changed at a time will reach Policy.Age.
func (k *Snapshotter) ages(at time.Time) {
	if of := at.Add(k.Policy.Age); k.Policy.Age >= 0 && (k.aged.IsZero() || of.Before(k.aged)) {
		k.aged = of
	}
}

// take counts one record and writes due sessions.
func (k *Snapshotter) take(ctx context.Context, rec events.Record, err error) error {
	if events.IsDamage(err) {
		return nil // the cursor stays at a recognisable record
	}
	if err != nil {
		return err
	}
	k.count(rec)
	k.forgetPurged(ctx, rec)
	if len(k.changed) > cmp.Or(k.limit, maxChanged) {
		k.overlook()
	}
	k.keepForkTarget(ctx, rec)
	if k.due(rec.Subject) {
		k.write(ctx, rec.Subject)
	}
	return nil
}

// isLittle reports whether a session changed so little that it needs no head.
func (k *Snapshotter) isLittle(c *change) bool {
	return c.records < k.Policy.Records/littlePart && c.bytes < k.Policy.Bytes/littlePart
}

const (
	littlePart = 16 // of the policy's limits
	maxLittle  = 64 // in the cursor: the sessions with few changes that changed last
)

// maxChanged bounds the tracked changed sessions, at about 150 bytes each.
const maxChanged = 1 << 16

// overlook forgets the eighth of the changed sessions that changed the longest ago. A load of such a session folds
// fewer records than make a head due.
func (k *Snapshotter) overlook() {
	last := make([]events.Offset, 0, len(k.changed))
	for _, c := range k.changed {
		last = append(last, max(c.last, c.kept))
	}
	slices.Sort(last)
	upto := last[len(last)/8]
	maps.DeleteFunc(k.changed, func(_ events.Subject, c *change) bool { return max(c.last, c.kept) <= upto })
}

// due reports whether a session has enough new records to write its head.
func (k *Snapshotter) due(sub events.Subject) bool {
	c := k.changed[sub]
	return c != nil && (isDue(int64(c.records), int64(k.Policy.Records)) || isDue(c.bytes, k.Policy.Bytes)) && k.worthwhile(sub, largeWhenBusy)
}

// worthwhile reports whether the new records justify the size of the head, if the head is at least large bytes. A head
// holds only the newest turns. It is large if the ledger is, or if turns were pinned and replaced one by one. Then the
// records that it would spare a load are smaller than the head itself.
func (k *Snapshotter) worthwhile(sub events.Subject, large int64) bool {
	size := k.heads[sub]
	return size < large || k.changed[sub].bytes >= size/4
}

// Head sizes, in bytes, from which the frequency of writes matters: while records arrive, and while idle. The second
// exceeds the size of records that do not fill a chunk yet.
const (
	largeWhenBusy = 256 << 10
	largeWhenIdle = 2 << 20
)

func isDue(n, limit int64) bool { return limit > 0 && n >= limit }

func (k *Snapshotter) count(rec events.Record) {
	k.reached, k.reachedID, k.news = rec.Offset, rec.ID, true
	if !rec.Subject.IsSession() || strings.HasPrefix(rec.Subject.ID, events.KindItem+"/") {
		return // an item's session has few records and is final when the item ends
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
	if !k.isLittle(c) {
		k.ages(c.at)
	}
}

// keepForkTarget writes the state that a fork begins with, because it will be read soon. The target of a rewind needs
// none: the threads there are a beginning of those of the head.
func (k *Snapshotter) keepForkTarget(ctx context.Context, rec events.Record) {
	if rec.Type != events.TypeSessionCreated {
		return
	}
	if p, is := Decode(rec).Payload.(*events.SessionCreated); is && p.Fork != nil && p.Fork.Offset < rec.Offset {
		k.writeAt(ctx, events.Session(rec.Subject.Namespace, p.Fork.Session), p.Fork.Offset, "fork target")
	}
}

// forgetPurged removes the stored chunks of a document that is purged.
func (k *Snapshotter) forgetPurged(ctx context.Context, rec events.Record) {
	if !rec.Subject.IsSession() && isPurge(rec) {
		k.loader.forgetRevisions(ctx, rec.Subject, rec.Offset)
	}
}

// writeAged writes aged sessions. The next call is at least a moment later, so sessions that age at about the same time
// are handled together. A session that is little or not worthwhile waits for another record.
func (k *Snapshotter) writeAged(ctx context.Context) {
	now := k.Now()
	k.aged = time.Time{}
	for sub, c := range k.changed {
		switch {
		case c.records == 0 || k.isLittle(c):
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

// write stores the session's state at its head and resets its change count.
func (k *Snapshotter) write(ctx context.Context, sub events.Subject) {
	k.news = true
	switch at, settled := k.writeAt(ctx, sub, 0, ""); {
	case at > k.reached:
		k.changed[sub] = &change{kept: at}
	case settled:
		delete(k.changed, sub)
	}
}

// writeAt stores one state. It returns the offset of the state, 0 if it stored none, and whether the subject is
// settled. If a session cannot be folded, writeAt quarantines it: it logs the session once and ignores it afterwards.
func (k *Snapshotter) writeAt(ctx context.Context, sub events.Subject, at events.Offset, kept string) (events.Offset, bool) {
	if k.quarantined[sub] {
		return 0, true
	}
	size := 0
	st := storing{l: k.loader, to: k.loader.since()}
	snap, err := k.loader.head(ctx, sub, at, kept, st.put)
	if err == nil {
		size = len(snap.Data)
		err = k.put(ctx, st.to, snap)
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
		k.Logger.Warn("session gets no snapshots", "subject", sub, "err", err)
		return 0, true
	}
	if k.heads[sub] = int64(size); size < largeWhenBusy {
		delete(k.heads, sub)
	}
	return snap.Offset, true
}

// put stores a head and prunes older ones. A head that was kept for a reason keeps its reason.
func (k *Snapshotter) put(ctx context.Context, to snapshot.Store, snap snapshot.Snapshot) error {
	metas, err := k.Snapshots.List(ctx, snap.Subject, SessionFold)
	if err != nil {
		return &storeError{err}
	}
	for _, m := range metas {
		if m.Offset == snap.Offset && m.Version == snap.Version {
			snap.Kept = cmp.Or(snap.Kept, m.Kept)
		}
	}
	if err := putTo(ctx, to, snap); err != nil {
		return err
	}
	if err := prune(ctx, k.Snapshots, snap.Subject, k.Policy.Keep); err != nil {
		return &storeError{err}
	}
	return nil
}

// prune removes all snapshots of a session but the newest ones and those with a reason.
func prune(ctx context.Context, st snapshot.Store, sub events.Subject, keep int) error {
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

// leave catches up with the log, writes the sessions with the most changes, and stores the progress in the cursor.
// Sessions that are left for lack of time, and those of an earlier snapshotter, are written when they age or change
// again. So a process that only reads does not write for others.
func (k *Snapshotter) leave(ctx context.Context) error {
	for rec, err := range events.Readable(k.Log.Read(ctx, events.Range{After: k.reached})) {
		if err != nil {
			break
		}
		k.count(rec)
		k.forgetPurged(ctx, rec)
		k.keepForkTarget(ctx, rec)
	}
	var subjects []events.Subject
	for sub, c := range k.changed {
		if c.seen && !k.isLittle(c) && k.worthwhile(sub, largeWhenIdle) {
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

// cursorState is the stored form of a snapshotter's progress.
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
	st := cursorState{Offset: uint64(k.reached), EventID: k.reachedID, Changed: k.listed()}
	err := os.MkdirAll(filepath.Dir(k.Cursor), 0o700)
	if err == nil {
		err = statefile.Write(k.Cursor, st, durable.NoSync)
	}
	if err != nil {
		return fmt.Errorf("projector: save the cursor: %w", err)
	}
	return nil
}

// listed returns the changed sessions that the cursor lists: all that need a head, and the newest maxLittle others, so
// that a session that grows by a record a process still gets one.
func (k *Snapshotter) listed() []changedRecord {
	var due, little []changedRecord
	for sub, c := range k.changed {
		r := changedRecord{sub.NATS(), c.records, c.bytes, uint64(c.last)}
		switch {
		case c.records == 0:
		case k.isLittle(c):
			little = append(little, r)
		default:
			due = append(due, r)
		}
	}
	byLast := func(a, b changedRecord) int { return cmp.Compare(a.Last, b.Last) }
	slices.SortFunc(little, byLast)
	due = append(due, little[max(0, len(little)-maxLittle):]...)
	slices.SortFunc(due, byLast)
	return due
}

// resume continues from the stored cursor. If the cursor cannot be read or belongs to another log, resume counts the
// log from its beginning.
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
			err = fmt.Errorf("record %d has changed since the cursor was written", st.Offset)
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
			if !k.isLittle(k.changed[sub]) {
				k.ages(now)
			}
		}
	}
	return nil
}
