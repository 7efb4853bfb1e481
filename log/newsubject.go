package log

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/bloom"
)

// newSubjects is a Backend that recognises subjects without messages. Otherwise an append of a named event to a new
// subject reads the subject, by a consumer that finds nothing.
type newSubjects interface {
	// IsNew reports whether a subject has no message. True is certain, also if the backend cannot read some of its
	// messages; false says nothing. The caller ensures that nobody appends to the subject meanwhile.
	IsNew(ctx context.Context, subject string) (bool, error)
}

// isNew reports whether a subject surely has no record. A store with lost records is not believed: the backend may have
// forgotten the subject of such a record.
func (l *Log) isNew(ctx context.Context, subject string) (bool, error) {
	b, ok := l.backend.(newSubjects)
	if !ok || !l.alone() || l.Lost() > 0 {
		return false, nil
	}
	isNew, err := b.IsNew(ctx, subject)
	if err != nil {
		return false, fmt.Errorf("append to %s: %w", nameOfNATS(subject), err)
	}
	return isNew, nil
}

// IsNew implements newSubjects. Full segments answer by their index, the active one by its filter. While the filter is
// incomplete, the server counts the messages, which includes unreadable ones.
func (b *jetStream) IsNew(ctx context.Context, subject string) (bool, error) {
	l := b.line.Load()
	for _, s := range l.segments[:len(l.segments)-1] {
		if _, there, known := s.find(subject); there || !known {
			return false, nil
		}
	}
	s := l.active()
	switch {
	case s.subjects == nil || s.replicated:
		return false, nil
	case s.subjects.isComplete():
		return !s.subjects.mayHave(subject), nil
	}
	n, err := b.count(ctx, s, subject)
	return n == 0 && err == nil, err
}

// count returns the number of a subject's messages in the active segment, including unreadable ones.
func (b *jetStream) count(ctx context.Context, s *segment, subject string) (uint64, error) {
	info, err := s.info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, err
	}
	if !s.subjects.isComplete() && s.subjects.worthListing(info.State.NumSubjects) {
		s.subjects.listed(b.listSubjects(ctx, s))
	}
	return info.State.Subjects[subject], nil
}

// lacks reports whether the segment surely has no message of a subject, by its filter alone.
func (s *segment) lacks(subject string) bool {
	return s.subjects != nil && !s.replicated && s.subjects.isComplete() && !s.subjects.mayHave(subject)
}

// listSubjects adds all subjects of the active segment to its filter.
func (b *jetStream) listSubjects(ctx context.Context, s *segment) error {
	for offset := 0; ; {
		query, err := json.Marshal(map[string]any{"subjects_filter": events.SubjectFilter, "offset": offset})
		if err != nil {
			return err
		}
		page, err := ask(ctx, func(ctx context.Context) (page subjectPage, err error) {
			m, err := b.reads.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+s.name, query)
			if err != nil {
				return page, err
			}
			if err := json.Unmarshal(m.Data, &page); err != nil {
				return page, err
			}
			if page.Error != nil {
				return page, page.Error
			}
			return page, nil
		})
		if err != nil {
			return err
		}
		for subject := range page.State.Subjects {
			s.subjects.add(subject)
		}
		// Subjects that come meanwhile can only move others to later pages, and are added by their publication.
		if offset += len(page.State.Subjects); len(page.State.Subjects) == 0 || offset >= page.Total {
			return nil
		}
	}
}

// subjectPage is a page of the server's list of subjects.
type subjectPage struct {
	Error *jetstream.APIError `json:"error"`
	Total int                 `json:"total"`
	State struct {
		Subjects map[string]uint64 `json:"subjects"`
	} `json:"state"`
}

// expects adds the subjects of a publication to the segment's filter. This comes before the publication is sent.
func (s *segment) expects(p Publication) {
	if s.subjects == nil {
		return
	}
	for _, w := range p.Writes {
		if len(w.Messages) > 0 {
			s.subjects.add(w.Subject)
		}
	}
}

// A subjectFilter holds the subjects of a segment. It never denies one that it holds.
type subjectFilter struct {
	seed maphash.Seed

	mu        sync.Mutex // guards the fields below
	subjects  bloom.Filter
	whole     bool // every subject of the segment was added
	asked     int  // questions that the server had to answer
	isListing bool // a list is under way
}

// costOfListing is the number of subjects that the server lists in the time of one question.
const costOfListing = 64

func newSubjectFilter() *subjectFilter { return &subjectFilter{seed: maphash.MakeSeed()} }

// add adds a subject.
func (f *subjectFilter) add(subject string) {
	h := maphash.String(f.seed, subject)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subjects.Add(h)
}

// mayHave reports whether a subject may have been added. False is certain.
func (f *subjectFilter) mayHave(subject string) bool {
	h := maphash.String(f.seed, subject)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.subjects.Has(h)
}

func (f *subjectFilter) isComplete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.whole
}

// listed notes the outcome of a list. After an error, further questions lead to another list.
func (f *subjectFilter) listed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole, f.isListing, f.asked = err == nil, false, 0
}

// worthListing counts a question to the server, and reports whether the questions so far cost as much as a list of all
// subjects. The caller then calls listed.
func (f *subjectFilter) worthListing(subjects uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.isListing || uint64(f.asked)*costOfListing < subjects {
		return false
	}
	f.isListing = true
	return true
}
