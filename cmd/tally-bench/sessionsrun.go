package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/edit"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
)

// sessionRun is the result of one way to store the events of many sessions.
type sessionRun struct {
	What      string  `json:"what"`
	Sessions  int     `json:"sessions"`
	Events    int     `json:"events"`
	PerSecond float64 `json:"perSecond"`
	P50       int64   `json:"p50Micros"`
	P99       int64   `json:"p99Micros"`

	// Zero if not measured.
	CPU      float64            `json:"cpuMicros,omitempty"`     // of the process, for each event, until all views have caught up
	Peak     int64              `json:"peakBytes,omitempty"`     // resident memory
	Rest     int64              `json:"restCPUMillis,omitempty"` // CPU after the last acknowledgement
	Views    []viewLag          `json:"views,omitempty"`
	CPUSplit map[string]float64 `json:"cpuSplitMicros,omitempty"` // CPU for each event, by owner
}

// viewLag is the lag of a view at the last acknowledgement.
type viewLag struct {
	View     string `json:"view"`
	Events   uint64 `json:"lagEvents"`
	CaughtUp int64  `json:"caughtUpMillis"` // after the last acknowledgement
}

// sessionProcess is the run of one way, in a process of its own.
type sessionProcess struct {
	app *cmdutil.App
	traffic
	what     string
	dir      string
	postgres string
	rest     time.Duration
	split    bool
}

// processVerb is the hidden command that runs one way.
const processVerb = "sessions-process"

func sessionCommand(a *cmdutil.App) *cobra.Command {
	p := &sessionProcess{app: a}
	cmd := &cobra.Command{Use: processVerb, Hidden: true, Short: "Measure one way to store the events of many sessions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context()) }}
	f := cmd.Flags()
	f.StringVar(&p.what, "what", "", "way to store them")
	f.StringVar(&p.dir, "dir", "", "empty directory")
	f.StringVar(&p.postgres, "postgres", "", "URL of a PostgreSQL server")
	f.IntVar(&p.Sessions, "sessions", 1, "number of sessions")
	f.IntVar(&p.Each, "each", 1, "events of a session")
	f.StringVar(&p.Order, "order", inTurn, "turn, seq or random")
	f.StringVar(&p.IDs, "ids", freshIDs, "fresh or named")
	f.DurationVar(&p.rest, "rest", 0, "how long to measure after the last acknowledgement")
	f.BoolVar(&p.split, "cpu", false, "profile")
	return cmd
}

// arguments returns the arguments of the process.
func (p *sessionProcess) arguments() []string {
	return []string{processVerb, "--store", filepath.Join(p.dir, "store"), "--what", p.what, "--dir", p.dir, "--postgres", p.postgres, fmt.Sprint("--sessions=", p.Sessions),
		fmt.Sprint("--each=", p.Each), "--order", p.Order, "--ids", p.IDs, fmt.Sprint("--rest=", p.rest), fmt.Sprint("--cpu=", p.split)}
}

func (p *sessionProcess) run(ctx context.Context) error {
	measure := p.peer
	if p.what == whatSessionAppends {
		measure = p.appends
	}
	out := p.app.Out
	m, err := measure(ctx)
	if err != nil {
		return err
	}
	m.What, m.Sessions, m.Events, m.Peak = p.what, p.Sessions, p.events(), peakMemory()
	return cli.WriteJSON(out, cli.JSONL, m)
}

// appends measures the command append, on a store with all its views.
func (p *sessionProcess) appends(ctx context.Context) (m sessionRun, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var profile cpuProfile
	var began, acked time.Time
	var before time.Duration
	last := make(chan []byte, 1)
	f := &feed{lines: newLineMaker(p.traffic), rested: make(chan struct{}), fail: cancel}
	var unprofiled error
	f.begin = func() {
		if p.split {
			unprofiled = profile.start()
		}
		began, before = time.Now(), cpuTime()
	}
	f.end = func(line []byte) {
		acked = time.Now()
		last <- slices.Clone(line)
	}
	go func() {
		defer close(f.rested)
		select {
		case line := <-last:
			m.Views, m.Rest, err = p.watch(ctx, line, acked, func() error {
				m.CPU = float64((cpuTime() - before).Nanoseconds()) / 1e3 / float64(p.events())
				if !p.split {
					return nil
				}
				var err error
				m.CPUSplit, err = profile.split(p.events())
				return err
			})
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}()
	ended := p.append(ctx, f)
	cancel(ended) // of an append that failed, nothing else ends the wait
	<-f.rested
	if err := errors.Join(ended, err, unprofiled); err != nil {
		return m, err
	}
	m.PerSecond = float64(p.events()) / acked.Sub(began).Seconds()
	m.P50, m.P99 = f.delays.quantile(0.5), f.delays.quantile(0.99)
	return m, nil
}

// append runs the command append on the feed.
func (p *sessionProcess) append(ctx context.Context, f *feed) error {
	p.app.In, p.app.Out, p.app.Err, p.app.Format = f, f, f.complaints(), cli.JSONL
	verbs := edit.Sessions(p.app)
	cmd := verbs[slices.IndexFunc(verbs, func(verb *cobra.Command) bool { return verb.Name() == "append" })]
	cmd.SetContext(ctx)
	return cmd.RunE(cmd, nil)
}

// viewPoll is the interval between looks at the views, and viewPatience the time after which a view that does not move
// is an error.
const (
	viewPoll     = 50 * time.Millisecond
	viewPatience = 2 * time.Minute
)

// watch measures the views until all have caught up with the last acknowledgement, calls caughtUp, and measures the
// processor time until the rest is over.
func (p *sessionProcess) watch(ctx context.Context, line []byte, acked time.Time, caughtUp func() error) (list []viewLag, rest int64, err error) {
	before := cpuTime()
	var ack struct{ Offset events.Offset }
	if err := json.Unmarshal(line, &ack); err != nil {
		return nil, 0, fmt.Errorf("the last acknowledgement: %w", err)
	}
	for _, name := range cmdutil.ViewNames(nil) {
		at, err := p.viewAt(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, viewLag{View: name, Events: uint64(ack.Offset - min(at, ack.Offset))})
	}
	if err := p.catchUp(ctx, list, ack.Offset, acked); err != nil {
		return nil, 0, err
	}
	if err := caughtUp(); err != nil {
		return nil, 0, err
	}
	select {
	case <-time.After(time.Until(acked.Add(p.rest))):
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	return list, (cpuTime() - before).Milliseconds(), nil
}

// viewAt returns how far a view is: 0 before its file exists.
func (p *sessionProcess) viewAt(ctx context.Context, name string) (events.Offset, error) {
	s, err := catalog.StandingOf(ctx, filepath.Join(p.dir, "store"), name)
	if errors.Is(err, catalog.ErrNoView) {
		err = nil
	}
	return s.Cursor.Offset, err
}

// catchUp waits until all views are at an offset, and notes when each was.
func (p *sessionProcess) catchUp(ctx context.Context, list []viewLag, at events.Offset, acked time.Time) error {
	reached, moved := make([]events.Offset, len(list)), time.Now()
	for {
		behind := ""
		for i := range list {
			if reached[i] >= at {
				continue
			}
			now, err := p.viewAt(ctx, list[i].View)
			if err != nil {
				return err
			}
			if now > reached[i] {
				reached[i], moved = now, time.Now()
				list[i].CaughtUp = time.Since(acked).Milliseconds()
			}
			if now < at {
				behind = list[i].View
			}
		}
		if behind == "" {
			return nil
		}
		if time.Since(moved) > viewPatience {
			return fmt.Errorf("view %s does not reach %v, and no view has moved for %v", behind, at, viewPatience)
		}
		select {
		case <-time.After(viewPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
