package embedded

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// unknown returns the offsets from..before-1 that are not in the list of lost records.
func unknown(known []log.Hole, from, before events.Offset) (news []log.Hole) {
	for at := from; at < before; at++ {
		_, old := slices.BinarySearchFunc(known, at, func(h log.Hole, at events.Offset) int { return cmp.Compare(h.Offset, at) })
		if !old {
			news = append(news, log.Hole{Offset: at})
		}
	}
	return news
}

// findings collects lost records that reads find while the store is open. It soon looks up their subjects, tells the
// log, and adds the records to the stored list: after its next start the server may no longer know of them.
type findings struct {
	dir   string
	known bool             // the layout of the server's files is known
	tell  func([]log.Hole) // adds holes to the log

	mu    sync.Mutex // guards the fields below
	fresh []events.Offset
	later *time.Timer // nil: no write is pending
	err   error
}

// soon is how long a finding waits for more, so that they are written together.
const soon = 50 * time.Millisecond

func (f *findings) add(at events.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh = append(f.fresh, at)
	if f.later == nil {
		f.later = time.AfterFunc(soon, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.settle()
		})
	}
}

// now settles the pending findings at once. When it returns, reads know the subjects of the lost records.
func (f *findings) now() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.later != nil {
		f.later.Stop()
		f.settle()
	}
}

// settle tells the log about the findings and stores them. If they cannot be stored, it tries again with the next
// finding and in close. The caller holds mu.
func (f *findings) settle() {
	f.later = nil
	if len(f.fresh) == 0 {
		return
	}
	var subjects map[events.Offset]string
	if f.known {
		subjects = subjectsAt(f.dir, f.fresh)
	}
	lost := make([]log.Hole, len(f.fresh))
	for i, at := range f.fresh {
		lost[i] = log.Hole{Offset: at, Subject: subjects[at]}
	}
	f.tell(lost)
	if f.err = storedir.AddHoles(f.dir, lost); f.err == nil {
		f.fresh = nil
	}
}

// close stores the remaining findings.
func (f *findings) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.later != nil {
		f.later.Stop()
	}
	f.settle()
	return f.err
}

// subjectsAt reads the subjects of damaged records from the blocks, unless the server has discarded them.
func subjectsAt(dir string, offsets []events.Offset) map[events.Offset]string {
	found := make(map[events.Offset]string)
	names, err := storedir.StreamFolders(dir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		first, err := natsfile.FirstSequence(dir, name)
		if err != nil || events.Offset(first) > slices.Max(offsets) {
			continue
		}
		x, stream := &examination{dir: dir}, examined{name: name, msgs: natsfile.Messages(dir, name)}
		blocks, _ := natsfile.Numbers(stream.msgs) // unreadable blocks yield no subjects
		for _, number := range blocks {
			b, _ := stream.beside(number)
			for _, g := range b.gaps {
				if subject := b.subjectOf(g); subject != "" {
					found[x.firstLost(&b, g)] = subject
				}
			}
		}
	}
	return found
}
