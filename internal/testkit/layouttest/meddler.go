package layouttest

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
)

// Meddler is a target with a concurrent writer: it calls Meanwhile once, just before the first append to a subject.
type Meddler struct {
	layouts.Target
	Subject   events.Subject
	Meanwhile func()
	Called    bool
}

func (m *Meddler) meddle(sub events.Subject) {
	if sub == m.Subject && !m.Called {
		m.Called = true
		m.Meanwhile()
	}
}

// Append implements layouts.Target.
func (m *Meddler) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	m.meddle(sub)
	return m.Target.Append(ctx, sub, expect, evs...)
}

// AppendSeries implements layouts.Target.
func (m *Meddler) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	m.meddle(sub)
	return m.Target.AppendSeries(ctx, sub, expect, evs...)
}
