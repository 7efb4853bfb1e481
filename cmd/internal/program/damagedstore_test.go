package program_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/ailoop"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/tavern"
)

// bob is the agent in the store with all kinds of records.
const bob = "0199a3f0-5d3c-7000-8000-2b1c6f1d9a3e"

// evalsRun is the run of its conversation.
const evalsRun = "run-1769171838912-5790h4t"

// fillAll appends records of every kind that the five stores and the commands know.
func fillAll(t *testing.T, st *tally.Store) {
	t.Helper()
	ctx := t.Context()
	for i, fill := range []func(context.Context, *tally.Store) error{fillSession, fillDocuments, fillEvals, fillErrata, fillAiloop, fillPerstack, fillAgent, fillQueue, fillFlow, fillPersonal} {
		if err := fill(ctx, st); err != nil {
			t.Fatalf("part %d: %v", i, err)
		}
	}
}

func fillSession(ctx context.Context, st *tally.Store) error {
	s := st.Session("trip")
	run := events.RunRef{Kind: "expert", ID: "r1"}
	turn := func(role, text string) events.Raw {
		return events.Raw(fmt.Sprintf(`{"role":%q,"content":%q}`, role, text))
	}
	ack, err := s.Create(ctx, events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-02T03:04:05Z", Title: "A trip", Project: "p"})
	for _, p := range []events.Payload{
		&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: turn("user", "Where to, plum?")}}},
		&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: turn("assistant", "To the lighthouse.")}}},
		&events.RunCreated{Run: run, Models: []string{"m"}},
		&events.RunStarted{Run: run, Worker: "w"},
		&events.RunProgressed{Run: run, Kind: "note", Note: "half way", Thread: "main"},
		&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"goal":"sea"}`)},
		&events.CostAccrued{Model: "m", Purpose: "other", Source: "reported", USD: "1.5"},
		&events.CheckpointSaved{Kind: "step", ID: "c1", Prompt: "Where to?", At: 1},
		&events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"A long trip"`)}}, Reason: "known now"},
		&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: turn("user", "And back?")}}},
	} {
		if err == nil {
			ack, err = s.Append(ctx, log.At(ack.Last), p)
		}
	}
	if err != nil {
		return err
	}
	if err := move(ctx, s, func() (*tally.Move, error) { return s.PlanRewind(ctx, "#2", "try again") }); err != nil {
		return err
	}
	if _, err := s.AppendTurns(ctx, "main", json.RawMessage(turn("user", "Stay there."))); err != nil {
		return err
	}
	_, _, err = s.Fork(ctx, "#1", "trip-fork")
	if err == nil {
		_, err = st.Session("trip-fork").AppendTurns(ctx, "main", json.RawMessage(turn("assistant", "Elsewhere.")))
	}
	return err
}

func move(ctx context.Context, s *tally.Session, plan func() (*tally.Move, error)) error {
	m, err := plan()
	if err == nil {
		_, err = s.Move(ctx, m)
	}
	return err
}

func fillDocuments(ctx context.Context, st *tally.Store) error {
	d := st.Documents()
	var err error
	write := func(id, text string, links ...events.Link) {
		if err == nil {
			_, err = d.Save(ctx, "doc", id, tally.Write{Data: []byte(text), Title: "T " + id, Links: links})
		}
	}
	write("a", "one\n")
	write("a", "one\ntwo\n")
	write("a", "one\ntwo\nthree\n")
	write("b", "once\n")
	write("gone", "was there\n")
	write("old", "named so\n")
	write("linked", "to a\n", events.Link{Rel: "see", To: "document/doc/a"}, events.Link{Rel: "parent", To: "document/doc/b"})
	write("void", "x\n")
	if err == nil {
		_, err = d.Delete(ctx, "doc", "gone", 0, "not needed")
	}
	if err == nil {
		_, err = d.Rename(ctx, "doc", "old", 0, "new")
	}
	if err == nil {
		_, err = d.Lease(ctx, "doc", "b", "ann", 1000*time.Hour)
	}
	if err == nil {
		_, err = st.PutBlob(ctx, []byte("a blob"))
	}
	if err == nil {
		err = st.SetLimit(ctx, "store", 1<<30)
	}
	return err
}

func fillEvals(ctx context.Context, st *tally.Store) error {
	step, err := evals.NewStep(0, events.Raw(`{"role":"user","content":"Hello"}`), events.Raw(`{"role":"assistant","content":"Hi"}`))
	if err != nil {
		return err
	}
	c, _, err := evals.Save(ctx, st, "conv", &evals.Data{ID: "conv", Metadata: events.Raw(`{"k":1}`), Steps: []evals.Step{step}})
	if err != nil {
		return err
	}
	r := c.Run(evals.TallyRun, evalsRun)
	_, err = r.Save(ctx, events.Raw(`{"schemaVersion":1,"runId":"`+evalsRun+`","createdAt":"2026-01-23T12:37:18.912Z","defs":{"metrics":{},"evals":{},"scorers":{}},"result":{"stepCount":1,"singleTurn":{},"multiTurn":{},"scorers":{}}}`))
	if err == nil {
		_, err = c.Run(evals.TrajectoryRun, "run-1769171838913-aaaaaaa").Save(ctx, events.Raw(`{"completed":true}`))
	}
	if err == nil {
		_, err = c.SaveTrajectoryMetaRaw(ctx, events.Raw(`{"version":1,"trajectoryId":"t","createdAt":"2026-01-01T00:00:00Z","goal":"g","persona":{"description":"p"}}`))
	}
	return err
}

func fillErrata(ctx context.Context, st *tally.Store) error {
	p := errata.Of(st, "ses_1")
	answer := []errata.Response{{ModelID: "m1", Text: "Red.", StopReason: "end"}, {ModelID: "m2", Text: "Blue."}}
	err := p.SaveInitialMeta(ctx, errata.Metadata{ID: "ses_1", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Models: []string{"m1", "m2"}})
	if err != nil {
		return err
	}
	saver := p.SaveCheckpoint("run0", "Which colour?", []string{"m1", "m2"}, false)
	if err := saver.Update(ctx, answer[0]); err != nil {
		return err
	}
	before, err := p.AppendHistories(ctx, []string{"m1", "m2"}, answer, "Which colour?")
	if err != nil {
		return err
	}
	_, err = p.PushRewindEntry(ctx, errata.RewindEntry{At: before.At, Prompt: "Which colour?", HistoryLengths: before.Lengths})
	if err == nil {
		_, err = p.PersistRunState(ctx, errata.Run{ID: "r1", Prompt: "Which colour?", Responses: answer})
	}
	if err == nil {
		err = p.UpdateLastRunNote(ctx, "a note")
	}
	if err == nil {
		err = p.RecordSelection(ctx, errata.SelectionParams{Prompt: "Which colour?", SelectedModelID: "m1", Responses: answer})
	}
	if err == nil {
		err = p.AccumulateCost(ctx, tally.Cost{Model: "m1", USD: "0.5", Purpose: "other"})
	}
	if err == nil {
		_, err = errata.PromptsOf(st).Record(ctx, "Which colour?")
	}
	if err == nil {
		_, err = errata.RecipesOf(st).Put(ctx, []byte("name: r\n"))
	}
	return err
}

func fillAiloop(ctx context.Context, st *tally.Store) error {
	h := ailoop.Of(st, "chat")
	chat, _, err := h.Load(ctx)
	for _, m := range []ailoop.Message{ailoop.UserMessage("My order is late."), ailoop.AssistantMessage("Which one?"), ailoop.UserMessage("Number 17.")} {
		if err == nil {
			chat = chat.Append(m)
			err = h.Save(ctx, chat)
		}
	}
	if err == nil {
		err = h.Overwrite(ctx, chat.Pin(0, true))
	}
	return err
}

func fillPerstack(ctx context.Context, st *tally.Store) error {
	h := perstack.JobOf(st, "j1")
	if _, err := h.Create(ctx, perstack.CreateInitialJob("j1", "expert", 7)); err != nil {
		return err
	}
	usage := `{"inputTokens":1,"outputTokens":1,"reasoningTokens":0,"totalTokens":2,"cachedInputTokens":0}`
	for _, raw := range []string{
		`{"type":"startRun","id":"e1","expertKey":"e","timestamp":1754000000001,"jobId":"j1","runId":"r","stepNumber":1,"inputMessages":[]}`,
		`{"type":"startGeneration","id":"e2","expertKey":"e","timestamp":1754000000002,"jobId":"j1","runId":"r","stepNumber":1}`,
	} {
		if _, err := h.RecordRaw(ctx, events.Raw(raw)); err != nil {
			return err
		}
	}
	_, err := h.SaveCheckpointRaw(ctx, events.Raw(`{"id":"c1","jobId":"j1","runId":"r","status":"completed","stepNumber":1,"messages":[{"type":"userMessage","id":"m","contents":[{"type":"textPart","id":"p","text":"hello"}]}],"expert":{"key":"e","name":"e","version":"1"},"usage":`+usage+`}`))
	if err == nil {
		_, err = h.SaveSettingRaw(ctx, events.Raw(`{"jobId":"j1","runId":"r","model":"m","providerConfig":{},"expertKey":"e","input":{"text":"x"},"experts":{},"startedAt":1754000000001,"updatedAt":1754000000002}`))
	}
	if err == nil {
		_, err = h.Update(ctx, func(j *perstack.Job) error { j.TotalSteps = 3; return nil })
	}
	return err
}

func fillAgent(ctx context.Context, st *tally.Store) error {
	a, err := tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: bob, Name: "Bob", Assignment: "Boil water."})
	if err != nil {
		return err
	}
	c, err := a.Commit(ctx, "The tests pass", "true")
	if err == nil {
		err = a.Verify(ctx, c.ID)
	}
	if err == nil {
		err = a.SetState(ctx, "working", "begins")
	}
	if err == nil {
		_, err = a.Lease(ctx, "ann", 1000*time.Hour)
	}
	in := tavern.InboxOf(st, bob)
	var first tavern.Message
	for i := range 3 {
		if err != nil {
			return err
		}
		var m tavern.Message
		m, err = in.Send(ctx, tavern.Message{Key: fmt.Sprint("k", i), From: tavern.User, Type: "note", Thread: "work", Body: tavern.Text(fmt.Sprint("message ", i))})
		if i == 0 {
			first = m
		}
	}
	if err == nil {
		err = in.Seen(ctx, first.Offset)
	}
	if err == nil {
		_, err = tavern.InboxOf(st, tavern.User).Send(ctx, tavern.Message{Key: "u", From: bob, Type: "note", Thread: "work", Body: tavern.Text("for the user")})
	}
	if err == nil {
		err = tavern.LifecycleOf(st, "agent/"+bob, nil).Bind(ctx, events.Binding{Vendor: "claude-code", ID: "5c1a7e3e"}, "begins")
	}
	return err
}

func fillQueue(ctx context.Context, st *tally.Store) error {
	q := tavern.QueueOf(st, "build")
	if err := q.Create(ctx, tavern.QueueSettings{Title: "Builds", Lease: 1000 * time.Hour, MaxAttempts: 2}); err != nil {
		return err
	}
	for _, id := range []string{"v1", "v2", "v3", "v4"} {
		if _, err := q.Enqueue(ctx, tavern.Item{ID: id, Body: []byte("build " + id)}); err != nil {
			return err
		}
	}
	c, err := q.TryClaim(ctx, "w1") // v1 is done
	if err == nil {
		err = c.Finish(ctx, []byte(`"built"`))
	}
	if err == nil {
		c, err = q.TryClaim(ctx, "w1") // v2 is dead
	}
	if err == nil {
		err = c.Fail(ctx, "no compiler", false)
	}
	if err == nil {
		_, err = q.TryClaim(ctx, "w1") // v3 is claimed
	}
	return err
}

const release = `{"initial": "build", "recovery": "restart", "states": {"build": {"to": ["test"]}, "test": {"to": ["build", "shipped"]}, "shipped": {"end": true}}}`

func fillFlow(ctx context.Context, st *tally.Store) error {
	w := tavern.WorkflowsOf(st)
	if _, err := w.Create(ctx, "release", []byte(release)); err != nil {
		return err
	}
	f, err := w.Start(ctx, "release", tavern.FlowOptions{ID: "seven", Owner: "agent/" + bob, Input: events.Raw(`{"n":1}`)})
	if err == nil {
		err = f.Move(ctx, "test")
	}
	return err
}

func fillPersonal(ctx context.Context, st *tally.Store) error {
	p := tavern.PersonalOf(st)
	err := p.AddAgent(ctx, tavern.PersistedAgent{ID: "x", Name: "X"})
	if err == nil {
		err = p.SetPermissionMode(ctx, "plan")
	}
	if err == nil {
		err = p.SetSetting(ctx, "theme", events.Raw(`"dark"`))
	}
	if err == nil {
		err = p.SetProjectSession(ctx, "/p", "trip")
	}
	if err == nil {
		_, err = tavern.OverlayOf(st, bob).Write(ctx, "a", tally.Write{Data: []byte("over\n")})
	}
	return err
}

// An allStore is a store with all kinds of records that was stopped cleanly.
type allStore struct {
	dir     string
	records []natsfile.Record // of its one block, the file at path
	path    string            // relative to dir
	types   map[events.Offset]string
}

func newAllStore(t *testing.T) *allStore {
	t.Helper()
	s := &allStore{dir: filepath.Join(t.TempDir(), "store"), types: make(map[events.Offset]string)}
	st, err := embedded.Open(t.Context(), embedded.Options{Store: s.dir, Backend: "local", Source: "urn:test", Kinds: tavern.Kinds()})
	if err != nil {
		t.Fatal(err)
	}
	fillAll(t, st)
	for rec, err := range st.Log.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		s.types[rec.Offset] = rec.Subject.Kind + " " + strings.TrimPrefix(rec.Type, "tally.")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	block := natsfile.Path(natsfile.Messages(s.dir, "TALLY_1"), 1)
	data, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	records, gaps := natsfile.Scan("TALLY_1", 1, data)
	if len(gaps) > 0 || len(records) != len(s.types) {
		t.Fatalf("got %d records and %d gaps in the block, %d records in the log", len(records), len(gaps), len(s.types))
	}
	s.records, s.path = records, strings.TrimPrefix(block, s.dir+"/")
	return s
}

// damaged returns a copy of the store with three flipped bits in the payload of a record.
func (s *allStore) damaged(t *testing.T, r natsfile.Record) string {
	t.Helper()
	dir := s.copy(t)
	flip(t, filepath.Join(dir, s.path), func(data []byte) {
		for _, at := range []int{r.End - 12, r.End - 15, r.End - 19} { // the hash follows the payload
			data[at] ^= 1 << (at % 7)
		}
	})
	return dir
}

func (s *allStore) copy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := copyWithTimes(dir, s.dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyWithTimes copies a store with the times of its files, which the server compares with its index.
func copyWithTimes(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		return errors.Join(os.Chmod(target, info.Mode()), os.Chtimes(target, info.ModTime(), info.ModTime()))
	})
}

// flip changes a file like a failing disk: the time of the file stays.
func flip(t *testing.T, path string, change func([]byte)) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err == nil {
		change(data)
		err = errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// passing matches output that differs between two runs of one command.
var passing = regexp.MustCompile(`20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?|\d+(\.\d+)? (ms|s|min|h|d|B|KB|MB|GB)\b|/tmp/\S+|"(freeBytes|bytes|logBytes|lagSeconds|pid|snapshots|lagEvents|offset)": ?[\d.]+|process \d+|nats://\S+`)

func settled(text string) string { return passing.ReplaceAllString(text, "~") }

// named returns a function that reports whether a text names an offset.
func named(at events.Offset) func(string) bool {
	return regexp.MustCompile(`@` + strconv.FormatUint(uint64(at), 10) + `\b`).MatchString
}
