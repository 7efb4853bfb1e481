package log

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// recentIDs remembers the identities that this Log stored, or tried to store, in the last two minutes. Where nobody
// else stores, it says exactly whether a young id needs a look-up. The server need not recognise the id by itself.
type recentIDs struct {
	max int // ids of a part

	mu    sync.Mutex     // guards the field below
	parts []recentIDPart // oldest first
}

// recentIDPart holds the hashes of the identities of one time.
type recentIDPart struct {
	begun time.Time
	ids   map[uint64]struct{}
}

// The memory has recentParts parts, and begins another one after partTime. So all but the newest part cover the time for
// which the id of a producer with a fast clock stays young.
const (
	recentParts  = 4
	partTime     = (youngID + clockSlack) / (recentParts - 1)
	maxRecentIDs = 1 << 20 // of a part: about 20 MB
)

func newRecentIDs(now time.Time, max int) *recentIDs {
	return &recentIDs{max: max, parts: []recentIDPart{{now, make(map[uint64]struct{})}}}
}

// add notes an identity, before it is sent.
func (r *recentIDs) add(hash uint64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := &r.parts[len(r.parts)-1]
	if now.Sub(newest.begun) >= partTime || len(newest.ids) >= r.max {
		r.parts = append(r.parts, recentIDPart{now, make(map[uint64]struct{}, len(newest.ids))})
		r.parts = r.parts[max(0, len(r.parts)-recentParts):]
		newest = &r.parts[len(r.parts)-1]
	}
	newest.ids[hash] = struct{}{}
}

// covers reports whether the memory has every identity that was stored since a time. At the moment at which the memory
// begins, another owner may still have stored.
func (r *recentIDs) covers(since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return since.After(r.parts[0].begun)
}

// mayHave reports whether an identity may have been added. False is certain for the time that covers names.
func (r *recentIDs) mayHave(hash uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts {
		if _, there := p.ids[hash]; there {
			return true
		}
	}
	return false
}

// recognise decides whether an append with young ids needs a look-up, from the memory of this Log. It then notes the
// append's ids. Only the append whose turn it is calls it, once.
func (l *Log) recognise(ctx context.Context, p *appending) error {
	if l.recent == nil || p.noted {
		return nil
	}
	p.noted = true
	if !p.look && !p.youngUntil.IsZero() {
		if err := l.lookIfKnown(ctx, p); err != nil {
			return err
		}
	}
	if p.young {
		now := l.config.Now()
		for _, e := range p.events {
			l.recent.add(l.ids.hash(e), now)
		}
	}
	return nil
}

// lookIfKnown sets p.look if one of the append's young ids may be stored.
func (l *Log) lookIfKnown(ctx context.Context, p *appending) (err error) {
	mayHave := l.recent.mayHave
	if !l.recent.covers(p.youngUntil.Add(-youngID - clockSlack)) {
		ids := l.ids.known(p.sub)
		if ids == nil || !ids.whole || ids.from > 0 || !l.alone() {
			p.look, err = l.storedLately(ctx, p)
			return err
		}
		mayHave = func(hash uint64) bool { _, there := ids.offsets.find(hash); return there }
	}
	for _, e := range p.events {
		p.look = p.look || mayHave(l.ids.hash(e))
	}
	return nil
}

// storedLately reports whether the subject has a record that may be as young as the append's young ids.
func (l *Log) storedLately(ctx context.Context, p *appending) (bool, error) {
	if isNew, err := l.isNew(ctx, p.name); isNew || err != nil {
		return false, err
	}
	newest, err := l.backend.Last(ctx, p.name)
	switch {
	case isNotFound(err):
		return true, nil // or the backend cannot read it
	case err != nil:
		return false, fmt.Errorf("append to %s: %w", p.sub.Name(), err)
	}
	return !newest.Time.Before(p.youngUntil.Add(-youngID - clockSlack)), nil
}

// clockSlack is how far a producer's clock may be ahead of this one's.
const clockSlack = 90 * time.Second
