package embedded

import (
	"cmp"
	"log/slog"
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

// findings adds lost records to the stored list. It collects those that reads find while the store is open, soon looks
// up their subjects, and tells the log: after its next start the server may no longer know of them. If the list cannot
// be written, findings tries again until the store is closed.
type findings struct {
	dir    string
	known  bool // the layout of the server's files is known
	logger *slog.Logger

	mu    sync.Mutex       // guards the fields below, and the stored list
	tell  func([]log.Hole) // adds holes to the log; nil: it is not open yet
	fresh []events.Offset  // found, and not looked up yet
	owed  []log.Hole       // not stored yet
	later *time.Timer      // nil: nothing is pending
	over  bool             // the log is closed
	err   error            // of the last write
}

// soon is how long a finding waits for more, so that they are written together.
const soon = 50 * time.Millisecond

// storePause is the time between attempts to write the list.
const storePause = time.Second

func (f *findings) add(at events.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh = append(f.fresh, at)
	if f.tell != nil {
		f.settleIn(soon)
	}
}

// open sets the log whose reads report to f. A log may report findings while it opens.
func (f *findings) open(l *log.Log) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell = l.Tell
}

// settleIn settles after a time, unless a settling is pending. The caller holds mu.
func (f *findings) settleIn(pause time.Duration) {
	if f.later != nil || f.over {
		return
	}
	f.later = time.AfterFunc(pause, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.settle()
	})
}

// now settles the pending findings at once. When it returns, reads know the subjects of the lost records.
func (f *findings) now() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settle()
}

// store adds lost records to the stored list, with those that are still owed.
func (f *findings) store(lost []log.Hole) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owed = append(f.owed, lost...)
	return f.settle()
}

// settle tells the log about the findings and stores them. If they cannot be stored, it tries again later. The caller
// holds mu.
func (f *findings) settle() error {
	if f.later != nil {
		f.later.Stop()
		f.later = nil
	}
	f.owed = append(f.owed, f.lookUp()...)
	if len(f.owed) == 0 {
		return nil
	}
	before := f.err
	if f.err = storedir.AddHoles(f.dir, f.owed); f.err == nil {
		f.owed = nil
		return nil
	}
	if before == nil {
		f.logger.Error("the list of lost records cannot be written", "dir", f.dir, "records", len(f.owed), "error", f.err)
	}
	f.settleIn(storePause)
	return f.err
}

// lookUp returns the fresh findings with their subjects, and tells the log. The caller holds mu.
func (f *findings) lookUp() []log.Hole {
	if len(f.fresh) == 0 || f.tell == nil && !f.over {
		return nil
	}
	var subjects map[events.Offset]string
	if f.known {
		subjects = subjectsAt(f.dir, f.fresh)
	}
	lost := make([]log.Hole, len(f.fresh))
	for i, at := range f.fresh {
		lost[i] = log.Hole{Offset: at, Subject: subjects[at]}
	}
	f.fresh = nil
	if f.tell != nil {
		f.tell(lost)
	}
	return lost
}

// close stores the remaining findings. It is called when nobody reads any more.
func (f *findings) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	return f.settle()
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
