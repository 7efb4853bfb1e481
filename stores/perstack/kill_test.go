package perstack_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/perstack"
)

// killedCalls passes the store, and the first round of calls, to a copy of the test program.
const killedCalls = "TALLY_TEST_PERSTACK_CALLS"

// The process that owns the store is killed at random moments while it makes every kind of write, one after the other:
// everything that was acknowledged is stored, nothing is half stored, and the next process repeats the calls without
// adding records.
func TestKilledInAnyCall(t *testing.T) {
	if text := os.Getenv(killedCalls); text != "" {
		var round int
		var where string
		if _, err := fmt.Sscan(text, &round, &where); err != nil {
			t.Fatal(err)
		}
		callUntilKilled(t.Context(), where, round)
		return
	}
	testkit.Long(t)
	testkit.NotUnderRace(t) // a killed process reports nothing
	withKey(t)              // for the copies too
	kills := 6
	switch {
	case testkit.Soak():
		kills = 500
	case !testkit.Full():
		kills = 2
	}
	dir := t.TempDir()
	t.Run("P-32 killed in any call", func(t *testing.T) {
		killInCalls(t, kills, func(n int) (string, []func()) { return filepath.Join(dir, fmt.Sprint("store", n/killsOfOne)), nil })
	})
}

// killsOfOne is how many kills a store is used for. After each kill, the results of all acknowledged calls are checked.
const killsOfOne = 25

// killInCalls kills copies that make calls. at returns the store of the n-th copy, and actions to take before its kill.
func killInCalls(t *testing.T, kills int, at func(n int) (where string, others []func())) {
	t.Helper()
	random, done, rounds, resumed := testkit.Random(t), made{}, 0, 0
	for n := 0; n < kills || rounds+done.rounds() == 0 && n < kills+40; n++ { // how far a copy gets depends on the machine
		where, others := at(n)
		done = killInCall(t, where, done, random, others...)
		if !done.check(t, where) {
			t.Fatalf("failed at kill %d, after %+v", n, done)
		}
		if n%killsOfOne == killsOfOne-1 {
			rounds, resumed = rounds+done.rounds(), resumed+len(done.resumed)
			t.Logf("%d kills, %d rounds of calls returned, %d resumed", n+1, rounds, resumed)
			done = made{}
		}
	}
	rounds, resumed = rounds+done.rounds(), resumed+len(done.resumed)
	t.Logf("%d rounds of calls returned, %d resumed", rounds, resumed)
	if rounds == 0 {
		t.Error("no copy completed a round of calls")
	}
}

// made counts, for each kind of call, the rounds that are known to have returned.
type made struct {
	job, setting, checkpoint, event, end int
	resumed                              []string // ids of the checkpoints that Resume returned
}

// rounds returns how many rounds are known to be complete.
func (m made) rounds() int { return min(m.job, m.setting, m.checkpoint, m.event, m.end) }

// note notes a line of a copy's output.
func (m *made) note(line string) {
	var call, id string
	round := 0
	if n, _ := fmt.Sscan(line, &call, &round, &id); n < 2 {
		return
	}
	at := map[string]*int{"job": &m.job, "setting": &m.setting, "checkpoint": &m.checkpoint, "event": &m.event, "end": &m.end}[call]
	if at != nil {
		*at = max(*at, round+1)
	}
	if call == "resume" {
		m.resumed = append(m.resumed, id)
	}
}

// The calls of a round. All but Resume have no effect when repeated.
func jobOf(round int) perstack.Job {
	j := perstack.CreateInitialJob("j", "coder")
	j.StartedAt, j.TotalSteps = 1000, int64(round)
	return j
}

func runOf(round int) string { return fmt.Sprint("r", round/7) }

func savedIn(round int) perstack.Checkpoint {
	return checkpoint("j", runOf(round), fmt.Sprint("c", round), int64(round), messages(max(0, round-12), round+1))
}

func eventIn(round int) perstack.Event {
	return event("j", runOf(round), fmt.Sprint("e", round), "callTools", int64(1000+round), int64(round), events.Field{Name: "newMessage", Value: message(10_000 + round)})
}

func endOf(round int) perstack.Event {
	return ending("j", runOf(round), fmt.Sprint("f", round), int64(round), 5)
}

// openAt opens a store by its directory or its server's URL.
func openAt(ctx context.Context, where string) (*tally.Store, error) {
	if strings.HasPrefix(where, "nats://") {
		return embedded.Open(ctx, embedded.Options{Backend: "nats", URL: where})
	}
	return embedded.Open(ctx, embedded.Options{Store: where, Backend: "local"})
}

// callUntilKilled makes round after round of calls, and reports each that returned. A call that fails because the
// server is away is repeated.
func callUntilKilled(ctx context.Context, where string, round int) {
	st := need(openAt(ctx, where))
	h := perstack.JobOf(st, "j")
	say := func(call string, do func() (id string, err error)) {
		id, err := do()
		for errors.Is(err, log.ErrUnavailable) || errors.Is(err, log.ErrUnknown) {
			time.Sleep(time.Millisecond)
			id, err = do()
		}
		if err != nil {
			fmt.Println("failed", call, err)
			os.Exit(1)
		}
		fmt.Println(call, round, id)
	}
	for ; ; round++ {
		say("job", func() (string, error) { return "", perstack.StoreJob(ctx, st, jobOf(round)) })
		say("setting", func() (string, error) {
			return "", perstack.StoreRunSetting(ctx, st, setting("j", runOf(round), "key", 1), nil, nil)
		})
		say("checkpoint", func() (string, error) { return "", perstack.DefaultStoreCheckpoint(ctx, st, savedIn(round)) })
		say("event", func() (string, error) { return "", perstack.DefaultStoreEvent(ctx, st, eventIn(round)) })
		say("end", func() (string, error) { return "", perstack.DefaultStoreEvent(ctx, st, endOf(round)) })
		if round%5 == 4 {
			say("resume", func() (string, error) {
				c, err := h.Resume(ctx, fmt.Sprint("c", round-2))
				return c.ID, err
			})
		}
	}
}

// killInCall runs a copy and kills it some time after one of its calls. Before, it takes each of the other actions some
// time after an earlier call.
func killInCall(t *testing.T, where string, done made, random *rand.Rand, others ...func()) made {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledInAnyCall$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", killedCalls, done.rounds(), where), "TMPDIR="+t.TempDir()) // a killed process leaves its views there
	out := need(cmd.StdoutPipe())
	must(t, cmd.Start())
	strikes := append(slices.Clip(others), func() { _ = cmd.Process.Kill() })
	lines, next := bufio.NewScanner(out), 1+random.IntN(60)
	for n := 0; lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "failed") {
			t.Error(lines.Text())
		}
		done.note(lines.Text()) // also lines that were in the pipe at the kill
		if n++; n == next && len(strikes) > 0 {
			time.Sleep(time.Duration(random.IntN(4000)) * time.Microsecond)
			strikes[0]()
			strikes, next = strikes[1:], n+1+random.IntN(60)
		}
	}
	_ = cmd.Wait() // it was killed
	if len(strikes) > 0 {
		t.Error("the copy ended before its kill")
	}
	return done
}

// check reports whether all acknowledged calls are stored completely, and repeats them.
func (m made) check(t *testing.T, where string) bool {
	t.Helper()
	ctx := t.Context()
	st := need(openAt(ctx, where))
	defer func() { must(t, st.Close()) }()
	h := perstack.JobOf(st, "j")
	if m.job > 0 {
		if j := need(h.Load(ctx)); j.TotalSteps < int64(m.job-1) || j.TotalSteps > int64(m.job) {
			t.Errorf("the job has %d steps, want %d", j.TotalSteps, m.job)
		}
	}
	for round := range m.checkpoint {
		if diff := cmp.Diff(savedIn(round), need(h.Checkpoint(ctx, fmt.Sprint("c", round)))); diff != "" {
			t.Errorf("checkpoint %d: %s", round, diff)
		}
	}
	for _, id := range m.resumed {
		need(h.Checkpoint(ctx, id))
	}
	for round := 0; round < m.setting; round += 7 {
		if s := need(h.Setting(ctx, runOf(round))); s.RunID != runOf(round) {
			t.Errorf("the setting of %s is %+v", runOf(round), s)
		}
	}
	m.whole(t, h)
	m.again(t, st)
	return !t.Failed()
}

// whole fails if an object is half stored: a checkpoint that cannot be read, or an event without effect, stored twice
// or without its cost.
func (m made) whole(t *testing.T, h *perstack.Handle) {
	t.Helper()
	ctx, seen, ends := t.Context(), make(map[string]bool), 0
	if list, whole := need(h.CheckpointList(ctx)), need(h.Checkpoints(ctx)); len(list) != len(whole) {
		t.Errorf("read %d of %d checkpoints", len(whole), len(list))
	}
	for round := 0; round <= max(m.event, m.end); round += 7 {
		for _, e := range need(h.Events(ctx, runOf(round), perstack.AllSteps)) {
			if seen[e.ID] {
				t.Errorf("event %s is stored twice", e.ID)
			}
			if seen[e.ID] = true; e.Type == "continueToNextStep" {
				ends++
			}
		}
	}
	for round := range m.event {
		if !seen[fmt.Sprint("e", round)] {
			t.Errorf("event %d is missing", round)
		}
	}
	for round := range m.end {
		if !seen[fmt.Sprint("f", round)] {
			t.Errorf("the end of step %d is missing", round)
		}
	}
	o, err := h.Session().Store().Loader().Outline(ctx, h.Session().Subject(), 0)
	if errors.Is(err, tally.ErrNotFound) {
		return // killed before the first write
	}
	must(t, err)
	if rejected := o.Ledger().Rejected; len(rejected) > 0 {
		t.Errorf("the records %+v are rejected", rejected)
	}
	if costs := need(h.Totals(ctx)).Said; costs < m.end || costs > ends {
		t.Errorf("got %d ends of steps, %d of them acknowledged, and %d costs", ends, m.end, costs)
	}
}

// again repeats the calls that returned.
func (m made) again(t *testing.T, st *tally.Store) {
	t.Helper()
	ctx, had := t.Context(), records(t, st)
	for round := range m.rounds() {
		must(t, perstack.DefaultStoreCheckpoint(ctx, st, savedIn(round)))
		must(t, perstack.DefaultStoreEvent(ctx, st, eventIn(round)))
		must(t, perstack.DefaultStoreEvent(ctx, st, endOf(round)))
	}
	if m.job > 0 {
		must(t, perstack.StoreJob(ctx, st, need(perstack.JobOf(st, "j").Load(ctx))))
	}
	if n := records(t, st) - had; n > 0 {
		t.Errorf("the repetition of stored calls added %d records", n)
	}
}
