package cmdutil

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

// DaemonsOf returns a function that creates the named daemons for a store, with the settings of a configuration.
// The daemon that forgets old sessions runs only if [retain] has an age.
func DaemonsOf(c config.Config, names []string) func(*tally.Store) ([]daemon.Daemon, error) {
	return func(st *tally.Store) (list []daemon.Daemon, err error) {
		others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == runner.RetainDaemon })
		if len(others) > 0 {
			d := c.Daemons
			list, err = tavern.Daemons(st, tavern.DaemonOptions{Agents: tavern.AgentWindows{Archive: d.Archive, Purge: d.Purge}, Orphans: d.Orphans}, others...)
		}
		if err == nil && len(others) < len(names) && len(c.Retain) > 0 {
			list = append(list, runner.Retain(st, RetentionOf(c.Retain)))
		}
		return list, err
	}
}

// DaemonNames returns the names of all daemons.
func DaemonNames() []string { return append(tavern.DaemonNames(), runner.RetainDaemon) }

// RetentionOf returns the rules of [retain], ordered by namespace.
func RetentionOf(c map[string]config.Retain) (rules []tally.Retention) {
	for _, namespace := range slices.Sorted(maps.Keys(c)) {
		rules = append(rules, tally.Retention{Namespace: namespace, Sessions: c[namespace].Sessions, Jobs: c[namespace].Jobs})
	}
	return rules
}

// DaemonStatus is the printed status of a daemon.
type DaemonStatus struct {
	PID     int    `json:"pid,omitempty"` // 0: this process
	Daemon  string `json:"daemon"`
	Waits   string `json:"waits,omitempty"`
	Next    string `json:"next,omitempty"`    // time of the next look, by the log's time
	Subject string `json:"subject,omitempty"` // of its last decision
	What    string `json:"what,omitempty"`
	At      string `json:"at,omitempty"` // time of the last decision
	Made    int    `json:"made"`
	Refused int    `json:"refused"`
	Errors  int    `json:"errors"`
	Error   string `json:"error,omitempty"`
	Warning string `json:"warning,omitempty"`
}

// DaemonStatusOf returns the printed status of a daemon.
func DaemonStatusOf(d runner.Status) DaemonStatus {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	return DaemonStatus{d.PID, d.Daemon, d.Waits, at(d.Next), d.Subject, d.What, at(d.At), d.Made, d.Refused, d.Errors, d.Error, d.Warning}
}

// DaemonsAt lists the daemons that processes of this machine run on a store.
func DaemonsAt(c config.Config) ([]DaemonStatus, error) {
	list := []DaemonStatus{}
	if c.Backend != config.Local {
		return list, nil
	}
	said, err := runner.StatusOf(c.Store)
	for _, d := range said {
		if Alive(d.PID) {
			list = append(list, DaemonStatusOf(d))
		}
	}
	return list, err
}

// String returns the state of a daemon and its last decision as a sentence.
func (d DaemonStatus) String() string {
	text := fmt.Sprintf("process %d, waits for %s", d.PID, d.Waits)
	if d.Next != "" {
		text += ", due " + d.Next
	}
	if d.At != "" {
		text += fmt.Sprintf("; last %s: %s, %s", d.At, plain.Printable(cli.SubjectName(d.Subject)), plain.Printable(d.What))
	}
	for _, n := range []struct {
		count int
		what  string
	}{{d.Made, "decision"}, {d.Refused, "refusal"}, {d.Errors, "error"}} {
		if n.count > 0 {
			text += "; " + plain.Count(n.count, n.what)
		}
	}
	if d.Error != "" {
		text += ": " + plain.Printable(d.Error)
	}
	return text
}
