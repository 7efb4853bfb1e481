package live

import (
	"fmt"
	"strings"
	"sync"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/ingest"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/log"
)

// teller says what a watch does.
type teller struct {
	app  *app.App
	once bool

	mu       sync.Mutex
	touched  map[events.Subject]bool
	problems int
}

func newTeller(a *app.App, once bool) *teller {
	return &teller{app: a, once: once, touched: make(map[events.Subject]bool)}
}

// begin says what is followed.
func (t *teller) begin(c config.Config, places []place) error {
	if t.app.Format != cli.Text || t.once {
		return nil
	}
	var list []string
	for _, p := range places {
		list = append(list, fmt.Sprintf("%s (%s)", p.agent.Name(), tilde(p.root)))
	}
	return t.app.Say("Watching %s. Stop it with Ctrl-C.", strings.Join(list, ", "))
}

// problem names what could not be taken.
func (t *teller) problem(p ingest.Problem) {
	fmt.Fprintf(t.app.Err, "%s\n", plain.Printable(p.String()))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems++
}

// seen notes what was appended.
func (t *teller) seen(sub events.Subject, _ []events.Event, _ log.Ack, added int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if added > 0 {
		t.touched[sub] = true
	}
}

// follow says what changes, until it is stopped.
func (t *teller) follow(*ingest.Ingester) (stop func()) { return func() {} }

// watched is what watch prints at its end.
type watched struct {
	Sessions int `json:"sessions"` // that something was added to
	Lines    int `json:"lines"`
	Events   int `json:"events"`
	Redacted int `json:"redacted"` // places
	Problems int `json:"problems"`
}

// end says what the command came to.
func (t *teller) end(in *ingest.Ingester) error {
	s := in.Status()
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := watched{len(t.touched), s.Lines, s.Events, s.Redacted, t.problems}
	if t.app.Format != cli.Text {
		if err := cli.WriteJSON(t.app.Out, t.app.Format, sum); err != nil {
			return err
		}
	} else if err := t.app.Say("%s: %s, %s added, %s redacted.", plain.Count(sum.Sessions, "session"), plain.Count(sum.Lines, "line"),
		plain.Count(sum.Events, "event"), plain.Count(sum.Redacted, "place")); err != nil {
		return err
	}
	if t.once && sum.Problems > 0 {
		return cli.Silent(cli.Partial)
	}
	return nil
}
