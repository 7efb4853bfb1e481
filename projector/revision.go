package projector

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Revision returns the index of the revision that a position names. list is oldest first. As in a session, #3 is the
// third revision and ~2 is two before the newest. A time selects by the times of the revisions: the state at that time
// ends before the first later revision. If no revision matches, the error is a *PositionError.
func (p Position) Revision(doc events.Subject, list []Revision) (int, error) {
	missing := func(format string, args ...any) (int, error) {
		return 0, &PositionError{doc, p.String(), fmt.Sprintf(format, args...)}
	}
	if p.thread != "" {
		return 0, badPosition(p.text, "a document has no threads")
	}
	n := len(list)
	switch p.kind {
	case atStart:
		return missing("nothing is written there yet")
	case atOffset:
		for n > 0 && list[n-1].Offset > p.offset {
			n--
		}
	case atTurn:
		if p.n > n {
			return missing("it has %d revisions", n)
		}
		n = p.n
	case withoutTurns:
		if p.n >= n {
			return missing("it has %d revisions", n)
		}
		n -= p.n
	case atTime, atAgo:
		return p.revisionThen(list, missing)
	case atEvent:
		return p.revisionNamed(list, missing)
	}
	if n == 0 {
		return missing("its revisions are all later")
	}
	return n - 1, nil
}

// revisionThen returns the last revision before the first that is later than a time. An expired revision does not
// count.
func (p Position) revisionThen(list []Revision, missing func(string, ...any) (int, error)) (int, error) {
	until := p.time
	if p.kind == atAgo {
		latest := time.Time{}
		for _, rev := range list {
			if at, ok := rev.Time.Time(); ok && at.After(latest) {
				latest = at
			}
		}
		until = latest.Add(-p.ago)
	}
	n := 0
	for ; n < len(list); n++ {
		if at, ok := list[n].Time.Time(); ok && at.After(until) {
			break
		}
	}
	switch {
	case n == 0:
		return missing("its revisions are all later")
	case list[n-1].expired(until):
		return missing("it had expired by then")
	}
	return n - 1, nil
}

// revisionNamed returns the revision whose event has an id. The beginning of the id suffices if it is unique.
func (p Position) revisionNamed(list []Revision, missing func(string, ...any) (int, error)) (int, error) {
	match, count := 0, 0
	for i, rev := range list {
		if rev.ID == p.id {
			return i, nil
		}
		if strings.HasPrefix(rev.ID, p.id) {
			match, count = i, count+1
		}
	}
	if count != 1 {
		return missing("the ids of %d events begin like this", count)
	}
	return match, nil
}
