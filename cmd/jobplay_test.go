package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/perstack"
)

// jobPlay is the variable that makes a copy of these tests write jobs until it is killed.
const jobPlay = "TALLY_TEST_JOBS"

// jobScript is the script of such a copy.
type jobScript struct {
	Store    string
	Round    int
	Writers  int
	Buffered bool // calls return before their events are durable
	Early    bool // calls store data before the data that they depend on, which the store must not do
}

// playJobs runs writers on one common job, and each of them on runs and a job of its own, and prints each call that
// has returned. If standard input has the calls that are known to have returned, it checks them instead.
func playJobs(text string) {
	var c jobScript
	ctx := context.Background()
	err := json.Unmarshal([]byte(text), &c)
	var told []byte
	if err == nil {
		told, err = io.ReadAll(os.Stdin)
	}
	switch {
	case err != nil:
	case len(told) > 0:
		if err = c.look(ctx, told); err == nil {
			os.Exit(0)
		}
	default:
		err = c.play(ctx)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (c jobScript) play(ctx context.Context) error {
	// The segments are so small that the messages of a checkpoint are often in an earlier one.
	srv, err := embedded.Start(ctx, embedded.ServerOptions{Dir: c.Store, NoSync: c.Buffered, SegmentBytes: 64 << 10})
	if err != nil {
		return err
	}
	st, err := tally.Open(ctx, srv.Log(), tally.Config{})
	if err != nil {
		return err
	}
	if _, err := perstack.JobOf(st, theJob).Create(ctx, jobAt(theJob, 0)); err != nil && !errors.Is(err, tally.ErrExists) {
		return err
	}
	failed := make(chan error)
	for w := range c.Writers {
		go func() {
			p := &jobPlayer{st: st, sampled: perstack.JobWith(st, theJob, perstack.Options{Deltas: perstack.SampleDeltas})}
			var err error
			for s := (jobStep{c.Round, w, 0}); err == nil; s.N++ {
				err = p.step(ctx, s, c.Early)
			}
			failed <- err
		}()
	}
	return <-failed
}

// theJob is the common job of all writers.
const theJob = "j"

// A jobStep is the n-th step of a writer in a round. Its data follow from these numbers.
type jobStep struct{ Round, Writer, N int }

func (s jobStep) String() string { return fmt.Sprintf("%d.%d.%d", s.Round, s.Writer, s.N) }

func (s jobStep) run() string { return jobStep{s.Round, s.Writer, s.N / 7}.String() }
func (s jobStep) job() string { return fmt.Sprintf("own%d.%d", s.Round, s.Writer) }

func jobAt(id string, steps int) perstack.Job {
	return perstack.Job{ID: id, Status: perstack.JobRunning, CoordinatorExpertKey: "coder", TotalSteps: int64(steps), StartedAt: 1000}
}

// message returns the i-th message of the step's writer.
func (s jobStep) message(i int) events.Raw {
	id := jobStep{s.Round, s.Writer, i}
	return fmt.Appendf(nil, `{"id":"m%v","type":"userMessage","contents":[{"id":"p%v","type":"textPart","text":"%s"}]}`, id, id, strings.Repeat("<é>", 60))
}

func (s jobStep) checkpoint() perstack.Checkpoint {
	c := perstack.Checkpoint{ID: "c" + s.String(), JobID: theJob, RunID: s.run(), Status: perstack.CheckpointProceeding, StepNumber: int64(s.N),
		Expert: perstack.Expert{Key: "coder@1", Name: "coder", Version: "1"}}
	for i := max(0, s.N-12); i <= s.N; i++ {
		c.Messages = append(c.Messages, s.message(i))
	}
	return c
}

func (s jobStep) event(id, typ string, payload ...events.Field) perstack.Event {
	return perstack.Event{Type: typ, ID: id + s.String(), ExpertKey: "coder@1", Timestamp: int64(1000 + s.N), JobID: theJob, RunID: s.run(), StepNumber: int64(s.N), Payload: payload}
}

// called adds a message of its own; ended ends the step with its usage.
func (s jobStep) called() perstack.Event {
	return s.event("e", "callTools", events.Field{Name: "newMessage", Value: s.message(10_000 + s.N)})
}

func (s jobStep) ended() perstack.Event {
	return s.event("f", "continueToNextStep", events.Field{Name: "step", Value: fmt.Appendf(nil, `{"usage":%s}`, usedByStep)})
}

// usedByStep is the usage of each step.
var usedByStep = events.Raw(`{"inputTokens":5,"outputTokens":2,"reasoningTokens":1,"totalTokens":7,"cachedInputTokens":1}`)

// pieces are the parts of a streamed text.
var pieces = []string{"one ", "two ", "three"}

func (s jobStep) piece(i int) perstack.Event {
	return s.event(fmt.Sprint("d", i, "-"), "streamReasoning", events.Field{Name: "delta", Value: fmt.Appendf(nil, "%q", pieces[i])})
}

func (s jobStep) setting() perstack.RunSetting {
	return perstack.RunSetting{Model: "claude-sonnet-4-5", ProviderConfig: events.Raw(`{"providerName":"anthropic","apiKey":"key of ` + s.run() + `"}`), JobID: theJob, RunID: s.run(), ExpertKey: "coder@1",
		Input: events.Raw(`{"text":"hello"}`), Experts: events.Fields{}, StartedAt: 1, UpdatedAt: 1}
}

// jobPlayer makes calls.
type jobPlayer struct {
	st      *tally.Store
	sampled *perstack.Handle // buffers pieces of text
}

// step makes each writing call, and prints each that has returned.
func (p *jobPlayer) step(ctx context.Context, s jobStep, early bool) error {
	if early {
		return storeEarly(ctx, p.st, s)
	}
	h := perstack.JobOf(p.st, theJob)
	made := ""
	for _, c := range []struct {
		name string
		now  bool
		call func() error
	}{
		{"StoreRunSetting", s.N%7 == 0, func() error { return perstack.StoreRunSetting(ctx, p.st, s.setting(), nil, nil) }},
		{"StoreCheckpoint", true, func() error { return perstack.DefaultStoreCheckpoint(ctx, p.st, s.checkpoint()) }},
		{"StoreEvent", true, func() error { return perstack.DefaultStoreEvent(ctx, p.st, s.called()) }},
		{"Flush", true, func() error { return p.stream(ctx, s) }},
		{"StoreEvent of the end", true, func() error { return perstack.DefaultStoreEvent(ctx, p.st, s.ended()) }},
		{"Update", true, func() error {
			_, err := h.Update(ctx, func(j *perstack.Job) error { j.TotalSteps++; return nil })
			return err
		}},
		{"StoreJob", true, func() error { return perstack.StoreJob(ctx, p.st, jobAt(s.job(), s.N)) }},
		{"Resume", s.N%5 == 4, func() error {
			c, err := h.Resume(ctx, jobStep{s.Round, s.Writer, s.N - 2}.checkpoint().ID)
			made = c.ID
			return err
		}},
	} {
		if !c.now {
			continue
		}
		if err := c.call(); err != nil {
			return fmt.Errorf("%s %v: %w", c.name, s, err)
		}
		sayJob(jobSaid{c.name, s, made})
	}
	return nil
}

// stream records a text piece by piece. No piece is known to be stored until all are flushed.
func (p *jobPlayer) stream(ctx context.Context, s jobStep) error {
	for i := range pieces {
		if _, err := p.sampled.Record(ctx, s.piece(i)); err != nil {
			return err
		}
	}
	return p.sampled.Flush(ctx)
}

// storeEarly stores a checkpoint before the messages that it names, and a step's usage before the event that ends the
// step.
func storeEarly(ctx context.Context, st *tally.Store, s jobStep) error {
	c, e, thread := s.checkpoint(), s.ended(), "early/"+s.String()
	run, turns := events.RunRef{Kind: "expert", ID: c.RunID}, &events.TurnAppended{}
	for _, m := range c.Messages {
		turns.Entries = append(turns.Entries, events.Entry{Thread: thread, Turn: m})
	}
	c.Messages, e.Payload = nil, nil
	raw, err := c.Raw()
	if err != nil {
		return err
	}
	for _, p := range []events.Payload{
		&events.CheckpointSaved{ID: c.ID, Kind: events.CheckpointStep, Run: &run, Step: c.StepNumber, Status: string(c.Status), Raw: raw, Lists: events.Lists{"/messages": {{Thread: thread, To: len(turns.Entries)}}}},
		turns,
		&events.CostAccrued{Model: "unknown", Run: &run, Purpose: "run", Source: "reported", Raw: usedByStep},
	} {
		if _, err := perstack.JobOf(st, theJob).Session().Append(ctx, log.Any, p); err != nil {
			return err
		}
	}
	if err := perstack.DefaultStoreEvent(ctx, st, e); err != nil {
		return err
	}
	sayJob(jobSaid{"StoreCheckpoint", s, ""})
	return nil
}

// jobSaid is a call that has returned, with the id that it created, if there is one.
type jobSaid struct {
	Call string
	Step jobStep
	Made string
}

func sayJob(s jobSaid) {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf("%s\n", text)
}

// jobReport is the result of checking a copy of the store.
type jobReport struct {
	Lost  []string // calls that had returned
	Half  []string // data that are stored in part
	Twice []string
	Sum   []string // sums that are wrong
}

func (r jobReport) isClean() bool { return len(r.Lost)+len(r.Half)+len(r.Twice)+len(r.Sum) == 0 }

// jobLook is a check of a store.
type jobLook struct {
	jobReport
	c    jobScript
	st   *tally.Store
	h    *perstack.Handle
	said map[jobSaid]bool
}

// look checks the known calls, repeats those that may not have returned, and checks again.
func (c jobScript) look(ctx context.Context, told []byte) error {
	l := &jobLook{c: c, said: make(map[jobSaid]bool)}
	var said []jobSaid
	if err := json.Unmarshal(told, &said); err != nil {
		return err
	}
	var err error
	if l.st, err = embedded.Open(ctx, embedded.Options{Store: c.Store, Backend: "local"}); err != nil {
		l.Lost = append(l.Lost, err.Error())
		return l.say()
	}
	for _, s := range said {
		l.said[s] = true
	}
	l.h = perstack.JobOf(l.st, theJob)
	for _, check := range []func(context.Context) error{l.jobs, l.checkpoints, l.settings, l.events, l.whole, l.again, l.events, l.whole} {
		if err := check(ctx); err != nil {
			l.half("%v", err)
		}
	}
	return errors.Join(l.say(), l.st.Close())
}

func (r jobReport) say() error {
	text, err := json.Marshal(r)
	if err == nil {
		fmt.Printf("%s\n", text)
	}
	return err
}

// lost adds a call that has returned but has no effect in the store.
func (l *jobLook) lost(s jobSaid, why any) {
	l.Lost = append(l.Lost, fmt.Sprintf("%s %v: %v", s.Call, s.Step, why))
}

func (l *jobLook) half(format string, args ...any) {
	l.Half = append(l.Half, fmt.Sprintf(format, args...))
}

// jobs checks the jobs: those of one writer are as it stored them last. The common job was updated once for each
// printed update, and at most once more for each killed writer.
func (l *jobLook) jobs(ctx context.Context) error {
	all, err := perstack.GetAllJobs(ctx, l.st)
	if err != nil {
		return err
	}
	steps := make(map[string]int64)
	for _, j := range all {
		steps[j.ID] = j.TotalSteps
	}
	updates := int64(0)
	for s := range l.said {
		switch have, there := steps[s.Step.job()]; s.Call {
		case "StoreJob":
			if !there || have < int64(s.Step.N) {
				l.lost(s, fmt.Sprintf("it is there: %v, with %d steps", there, have))
			}
		case "Update":
			updates++
		}
	}
	killed := int64(4 * (l.c.Round + 1)) // at most
	if have := steps[theJob]; have < updates || have > updates+killed {
		l.Sum = append(l.Sum, fmt.Sprintf("%d updates of the job are there, %d returned", have, updates))
	}
	return nil
}

// checkpoints checks each checkpoint, byte for byte, and also those whose call did not return.
func (l *jobLook) checkpoints(ctx context.Context) error {
	for s := range l.said {
		want, from := s.Step.checkpoint(), s.Call
		switch from {
		case "StoreCheckpoint":
		case "Resume":
			want = jobStep{s.Step.Round, s.Step.Writer, s.Step.N - 2}.checkpoint()
			want.ID, want.StepNumber = s.Made, want.StepNumber+1
		default:
			continue
		}
		have, err := perstack.DefaultRetrieveCheckpoint(ctx, l.st, theJob, want.ID)
		if errors.Is(err, tally.ErrNotFound) {
			l.lost(s, err)
		} else if err == nil && !sameRaw(want.Raw, have.Raw) {
			l.lost(s, "it is another one")
		} // unreadable checkpoints are reported below
	}
	list, err := l.h.CheckpointList(ctx)
	if err != nil {
		return err
	}
	for _, c := range list {
		if _, err := l.h.Checkpoint(ctx, c.ID); err != nil {
			l.half("checkpoint %s: %v", c.ID, err)
		}
	}
	if all, err := perstack.GetCheckpointsByJobID(ctx, l.st, theJob); len(l.Half) == 0 && (err != nil || len(all) != len(list)) {
		l.half("%d of %d checkpoints are listed: %v", len(all), len(list), err)
	}
	return nil
}

func sameRaw(a, b func() (events.Raw, error)) bool {
	x, err1 := a()
	y, err2 := b()
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// settings checks the settings, with their secrets.
func (l *jobLook) settings(ctx context.Context) error {
	all, err := perstack.GetAllRuns(ctx, l.st)
	if err != nil {
		return err
	}
	byRun := make(map[string]perstack.RunSetting)
	for _, r := range all {
		if _, twice := byRun[r.RunID]; twice {
			l.Twice = append(l.Twice, "the setting of "+r.RunID)
		}
		byRun[r.RunID] = r
		if strings.Contains(string(r.ProviderConfig), "tally:secret") {
			l.half("the setting of %s has no secrets", r.RunID)
		}
	}
	for s := range l.said {
		if have, there := byRun[s.Step.run()]; s.Call == "StoreRunSetting" && (!there || !sameRaw(s.Step.setting().Raw, have.Raw)) {
			l.lost(s, "it is not there as it was stored")
		}
	}
	return nil
}

// events checks the events of each run, and the usage of the steps.
func (l *jobLook) events(ctx context.Context) error {
	runs, err := l.h.Runs(ctx)
	if err != nil {
		return err
	}
	byID, texts, ends := make(map[string]perstack.Event), make(map[string]string), 0
	for _, r := range runs {
		list, err := perstack.GetEventContents(ctx, l.st, theJob, r.ID)
		if err != nil {
			l.half("the events of %s: %v", r.ID, err)
			continue
		}
		for _, e := range list {
			if _, twice := byID[e.ID]; twice {
				l.Twice = append(l.Twice, "event "+e.ID)
			}
			byID[e.ID] = e
			switch e.Type {
			case "continueToNextStep":
				ends++
			case "streamReasoning":
				texts[e.ID[strings.Index(e.ID, "-")+1:]] += deltaOf(e)
			}
		}
	}
	for s := range l.said {
		l.event(s, byID, texts[s.Step.String()])
	}
	return l.used(ctx, ends)
}

func deltaOf(e perstack.Event) (delta string) {
	text, _ := e.Payload.Get("delta")
	_ = json.Unmarshal(text, &delta) // text that is not JSON leaves delta empty
	return delta
}

// event searches for an event whose call has returned, or for a text.
func (l *jobLook) event(s jobSaid, byID map[string]perstack.Event, text string) {
	want := s.Step.called()
	switch s.Call {
	case "Flush":
		if text != strings.Join(pieces, "") {
			l.lost(s, fmt.Sprintf("of the text %q is there", text))
		}
		return
	case "StoreEvent":
	case "StoreEvent of the end":
		want = s.Step.ended()
	default:
		return
	}
	if have, there := byID[want.ID]; !there || !sameRaw(want.Raw, have.Raw) {
		l.lost(s, "it is not there as it was stored")
	}
}

// used adds up the usage of the ended steps, each counted once. A cost may be missing only if the end's call did not
// return.
func (l *jobLook) used(ctx context.Context, ends int) error {
	said := 0
	for s := range l.said {
		if s.Call == "StoreEvent of the end" {
			said++
		}
	}
	t, err := l.h.Totals(ctx)
	if err == nil && (t.Said < said || t.Said > ends || t.Usage.InputTokens != int64(5*t.Said)) && ends > 0 {
		l.Sum = append(l.Sum, fmt.Sprintf("%d steps ended, %d are known to, and the totals are %+v", ends, said, t))
	}
	return err
}

// whole checks the session: no record is rejected, and no message is stored twice.
func (l *jobLook) whole(ctx context.Context) error {
	o, err := l.st.Loader().Outline(ctx, l.h.Session().Subject(), 0)
	if errors.Is(err, tally.ErrNotFound) {
		return nil // killed before the first event was stored
	}
	if err != nil {
		return err
	}
	for _, v := range o.Ledger().Rejected {
		l.half("void: %+v", v)
	}
	seen := make(map[string]bool)
	for _, thread := range o.Names() {
		turns, err := o.Turns(ctx, thread, 0, o.Len(thread))
		if err != nil {
			return err
		}
		for _, turn := range turns {
			if seen[string(turn.Raw)] {
				l.Twice = append(l.Twice, fmt.Sprintf("%.20s in thread %s", turn.Raw, thread))
			}
			seen[string(turn.Raw)] = true
		}
	}
	return nil
}

// again repeats the last calls of each writer: a call that had returned adds nothing, another one is stored then,
// once. Calls of a text and of Resume are not repeated: a stream ends with its writer, and each Resume is a branch.
func (l *jobLook) again(ctx context.Context) error {
	if !l.isClean() || l.c.Early {
		return nil
	}
	var steps []jobStep
	for w := range l.c.Writers {
		last := 0 // the step that the writer was in, or had just ended
		for s := range l.said {
			if s.Step.Round == l.c.Round && s.Step.Writer == w {
				last = max(last, s.Step.N)
			}
		}
		for n := max(0, last-3); n <= last+1; n++ {
			steps = append(steps, jobStep{l.c.Round, w, n})
		}
	}
	if err := l.grown(ctx, "calls that had returned", func() error { return l.store(ctx, steps, true) }); err != nil {
		return err
	}
	if err := l.store(ctx, steps, false); err != nil {
		return err
	}
	return l.grown(ctx, "calls that were made again", func() error { return l.store(ctx, steps, false) })
}

// grown reports calls that append although they should not.
func (l *jobLook) grown(ctx context.Context, by string, calls func() error) error {
	before, err := l.st.Log.Head(ctx)
	if err == nil {
		err = calls()
	}
	if err != nil {
		return err
	}
	now, err := l.st.Log.Head(ctx)
	if now != before {
		l.Twice = append(l.Twice, fmt.Sprintf("%d records of %s", now-before, by))
	}
	return err
}

// store makes the repeatable calls of steps: all, or those that had returned.
func (l *jobLook) store(ctx context.Context, steps []jobStep, returned bool) error {
	for _, s := range steps {
		for name, call := range map[string]func() error{
			"StoreCheckpoint":       func() error { return perstack.DefaultStoreCheckpoint(ctx, l.st, s.checkpoint()) },
			"StoreEvent":            func() error { return perstack.DefaultStoreEvent(ctx, l.st, s.called()) },
			"StoreEvent of the end": func() error { return perstack.DefaultStoreEvent(ctx, l.st, s.ended()) },
		} {
			if returned && !l.said[jobSaid{name, s, ""}] {
				continue
			}
			if err := call(); err != nil {
				return fmt.Errorf("%s %v again: %w", name, s, err)
			}
		}
	}
	return nil
}
