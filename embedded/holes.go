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

// unknown gives the offsets from one on and before another that are not known to be lost.
func unknown(known []log.Hole, from, before events.Offset) (news []log.Hole) {
	for at := from; at < before; at++ {
		_, old := slices.BinarySearchFunc(known, at, func(h log.Hole, at events.Offset) int { return cmp.Compare(h.Offset, at) })
		if !old {
			news = append(news, log.Hole{Offset: at})
		}
	}
	return news
}

// findings collects what reads find to be lost while the store is open. Whose it was is
// looked up and told soon, and it is written down: the server may forget at its next
// start that it ever had it.
type findings struct {
	dir   string
	known bool             // the layout of the server's files is
	tell  func([]log.Hole) // of a log

	mu    sync.Mutex // guards what follows
	fresh []events.Offset
	later *time.Timer // nil: nothing is to be written
	err   error
}

// soon is how long what was found waits for more.
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

// now is add without the wait for more: when it returns, reads know whose the records were.
func (f *findings) now() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.later != nil {
		f.later.Stop()
		f.settle()
	}
}

// settle says whose the records were, and writes it down. What cannot be written is
// tried again with what is found next, and at the end. The caller holds mu.
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

// close writes down the rest.
func (f *findings) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.later != nil {
		f.later.Stop()
	}
	f.settle()
	return f.err
}

// subjectsAt looks into the blocks for the subjects of records that the server cannot
// read: what it has not thrown away still says whose they were.
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
		blocks, _ := natsfile.Numbers(stream.msgs) // what cannot be read says nothing
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
