package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/tallylog/tally/events"
)

// linesOf returns the subjects and ids of all lines of a traffic.
func linesOf(t *testing.T, of traffic) (subjects, ids []string) {
	t.Helper()
	m := newLineMaker(of)
	for line := m.line(); line != nil; line = m.line() {
		e, err := events.ParseJSON("default", bytes.TrimSuffix(line, []byte("\n")))
		if err == nil {
			err = e.Validate()
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		subjects, ids = append(subjects, e.Subject.ID), append(ids, e.ID)
	}
	return subjects, ids
}

func TestTrafficOrders(t *testing.T) {
	for order, want := range map[string]string{inTurn: "s0 s1 s2 s0 s1 s2", inSeries: "s0 s0 s1 s1 s2 s2"} {
		subjects, _ := linesOf(t, traffic{Sessions: 3, Each: 2, Order: order, IDs: namedIDs})
		if got := strings.Join(subjects, " "); got != want {
			t.Errorf("%s: got sessions %s, want %s", order, got, want)
		}
	}
	random := traffic{Sessions: 10, Each: 50, Order: atRandom, IDs: namedIDs}
	subjects, ids := linesOf(t, random)
	again, _ := linesOf(t, random)
	if !slices.Equal(subjects, again) {
		t.Error("two runs have other sessions")
	}
	count := make(map[string]int)
	for _, s := range subjects {
		count[s]++
	}
	if len(subjects) != 500 || len(count) != 10 || slices.Min(slices.Collect(maps.Values(count))) < 25 {
		t.Errorf("got %d events of sessions %v, want 500 of 10 sessions", len(subjects), count)
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 500 {
		t.Error("ids are not unique")
	}
}

func TestTrafficIDs(t *testing.T) {
	_, named := linesOf(t, traffic{Sessions: 2, Each: 2, Order: inTurn, IDs: namedIDs})
	if got, want := strings.Join(named, " "), "s0-0 s1-1 s0-2 s1-3"; got != want {
		t.Errorf("got ids %s, want %s", got, want)
	}
	one := traffic{Sessions: 2, Each: 20, Order: inTurn, IDs: freshIDs}
	_, fresh := linesOf(t, one)
	_, again := linesOf(t, one)
	all := append(fresh, again...)
	if slices.Sort(all); len(slices.Compact(all)) != 80 || len(all[0]) != 36 {
		t.Errorf("fresh ids repeat, or are no UUIDs, such as %s", all[0])
	}
}

func TestTrafficDefaults(t *testing.T) {
	for _, tc := range []struct{ sessions, each, want int }{{50, 0, 100_000}, {100_000, 0, 200_000}, {1_000_000, 0, 2_000_000}, {50, 3, 150}} {
		if got := (traffic{Sessions: tc.sessions, Each: tc.each}).withDefaults().events(); got != tc.want {
			t.Errorf("%d sessions, --each %d: got %d events, want %d", tc.sessions, tc.each, got, tc.want)
		}
	}
}

func TestDelays(t *testing.T) {
	var d delays
	if got := d.quantile(0.5); got != 0 {
		t.Errorf("without delays: got %d, want 0", got)
	}
	for n := range int64(100_000) {
		d.add(time.Duration(n) * time.Microsecond)
	}
	for _, share := range []float64{0.001, 0.5, 0.99, 1} {
		want := min(int64(share*100_000), 99_999)
		if got := d.quantile(share); got > want || float64(got) < float64(want)*(1-1.0/64) {
			t.Errorf("quantile %v: got %d, want at most 1/64 below %d", share, got, want)
		}
	}
	for n := int64(1); n < 1<<40; n = n*3/2 + 1 {
		if low, next := least(bucket(n)), least(bucket(n)+1); n < low || n >= next {
			t.Fatalf("%d is in the bucket from %d to %d", n, low, next)
		}
	}
	d.add(1 << 62)
	d.add(-1)
}

// A feed measures each line until its acknowledgement, and refuses acknowledgements of nothing.
func TestFeed(t *testing.T) {
	var began int
	var last string
	f := &feed{lines: newLineMaker(traffic{Sessions: 2, Each: 1, Order: inTurn, IDs: namedIDs}), rested: make(chan struct{}),
		begin: func() { began++ }, end: func(line []byte) { last = string(line) }}
	if _, err := io.WriteString(f, "early\n"); err == nil {
		t.Error("an acknowledgement without a line is accepted")
	}
	close(f.rested)
	all, err := io.ReadAll(iotestSmall{f})
	if err != nil || bytes.Count(all, []byte("\n")) != 2 || began != 1 {
		t.Fatalf("got %q, began %d times, %v; want two lines", all, began, err)
	}
	io.WriteString(f, "first\n")
	if last != "" {
		t.Error("ended before the last acknowledgement")
	}
	io.WriteString(f, "second\n")
	if _, err := io.WriteString(f, "third\n"); err == nil || last != "second\n" || f.delays.all != 2 {
		t.Errorf("got last %q, %d delays, %v; want the second of two, and an error", last, f.delays.all, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	f.fail = cancel
	fmt.Fprintln(f.complaints(), "line 1: refused")
	if err := context.Cause(ctx); err == nil || err.Error() != "line 1: refused" {
		t.Errorf("got %v, want the complaint", err)
	}
}

// iotestSmall reads seven bytes at a time.
type iotestSmall struct{ r io.Reader }

func (s iotestSmall) Read(p []byte) (int, error) { return s.r.Read(p[:min(7, len(p))]) }

func TestSessionRatios(t *testing.T) {
	got := sessionRatios([]sessionRun{
		{What: whatSessionAppends, Sessions: 50, CPU: 30, PerSecond: 100},
		{What: whatSQLiteSessions, Sessions: 50, CPU: 10, PerSecond: 200},
		{What: whatPostgresSessions, Sessions: 50, PerSecond: 50},
		{What: whatSessionAppends, Sessions: 1000, CPU: 60, PerSecond: 40},
		{What: whatSQLiteSessions, Sessions: 1000, CPU: 20, PerSecond: 80},
	})
	want := map[string]float64{
		"CPU, tally append, all views / SQLite rows, 512 a commit, 50 sessions":      3,
		"CPU, tally append, all views / SQLite rows, 512 a commit, 1000 sessions":    3,
		"rate, tally append, all views / SQLite rows, 512 a commit, 50 sessions":     0.5,
		"rate, tally append, all views / SQLite rows, 512 a commit, 1000 sessions":   0.5,
		"rate, tally append, all views / PostgreSQL rows, 512 a commit, 50 sessions": 2,
		"CPU, 1000 sessions / 50": 2,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOwners(t *testing.T) {
	const module = "github.com/tallylog/tally/"
	for _, tc := range []struct {
		want  string
		stack []string // the innermost call first
	}{
		{"collector", []string{"runtime.scanobject", "runtime.gcAssistAlloc1", "runtime.gcAssistAlloc", module + "log.(*Log).put"}},
		{"collector", []string{"runtime.gcBgMarkWorker.func2"}},
		{"view catalog", []string{"modernc.org/sqlite/lib.Xsqlite3_step", module + "internal/catalog.(*Catalog).Commit", module + "projector.(*Runner).commit"}},
		{"view search", []string{module + "internal/catalog.(*Search).Apply", module + "projector.(*Runner).apply"}},
		{"view work", []string{module + "internal/catalog.(*Work).Wants"}},
		{"supply of views", []string{module + "events.DecodeBinary", module + "log.(*Log).Follow.func1", module + "projector.(*Runner).decode"}},
		{"snapshots", []string{module + "log.(*Log).Follow.func1", module + "projector.(*Snapshotter).Run"}},
		{"server", []string{"syscall.pwrite", "github.com/nats-io/nats-server/v2/server.(*stream).internalLoop"}},
		{"committer", []string{module + "log.(*committer).run"}},
		{"append", []string{module + "log.(*Log).AppendAsync", module + "cmd/internal/edit.(*appender).take"}},
		{"command", []string{module + "events.ParseJSON", module + "cmd/internal/edit.(*appender).event"}},
		{"measuring", []string{"main.(*feed).Read", module + "cmd/internal/edit.(*appender).lines.func1"}},
		{"client", []string{"github.com/nats-io/nats.go.(*Conn).readLoop"}},
		{otherOwner, []string{"runtime.findRunnable", "runtime.mcall"}},
	} {
		if got := ownerOf(tc.stack); got != tc.want {
			t.Errorf("%v: got owner %s, want %s", tc.stack, got, tc.want)
		}
	}
	sample := func(nanos int64, functions ...string) *profile.Sample {
		s := &profile.Sample{Value: []int64{1, nanos}}
		for _, f := range functions {
			s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: f}}}})
		}
		return s
	}
	got := splitOf(&profile.Profile{Sample: []*profile.Sample{sample(20_000, "runtime.gcBgMarkWorker"), sample(10_000, "runtime.gcBgMarkWorker"), sample(5_000, "main.main")}}, 10)
	if want := (map[string]float64{"collector": 3, otherOwner: 0.5}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v microseconds an event, want %v", got, want)
	}
}

func TestSessionOutput(t *testing.T) {
	text, err := json.Marshal(sessionRun{What: "x", Views: []viewLag{{View: "v", Events: 3, CaughtUp: 7}}})
	if want := `{"what":"x","sessions":0,"events":0,"perSecond":0,"p50Micros":0,"p99Micros":0,"views":[{"view":"v","lagEvents":3,"caughtUpMillis":7}]}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v; want %s", text, err, want)
	}
}
