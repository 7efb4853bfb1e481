package program_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/ailoop"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/tavern"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// An answered question: the result or the output, and the end.
type answered struct {
	text string // result
	err  string // error, or standard error
	code int    // exit code
}

func (a answered) String() string { return fmt.Sprintf("code %d: %s%s", a.code, a.text, a.err) }

// A question is a command, or a call of an exported function, on a store.
type question struct {
	name     string
	ask      func(ctx context.Context, st *tally.Store) answered
	decides  bool // it writes: only its end is compared, not its result
	commands bool
}

// patience is the time limit of a question: a longer wait is a fault.
const patience = 8 * time.Second

// readingCommands read one subject, or list.
var readingCommands = []string{
	"ls", "ls -o json --all", "search plum", "search message --all", "cost", "cost trip", "cost --by model", "stats", "stats trip", "stats --by model", "runs trip", "runs ses_1", "runs job/j1 --tree", "runs conv", "jobs",
	"show trip", "show trip --all -o json", "show trip --at #1", "show trip-fork", "show trip --run r1", "show conv --traces", "show ses_1", "show job/j1", "show job/j1 --run r", "show history/chat", "show agent/" + bob,
	"log trip", "log trip --graph", "log trip-fork -o jsonl", "log --all-sessions -o jsonl", "diff trip #1 head", "diff trip @2 @3", "export trip --format markdown", "export ses_1 --format html", "export trip --format jsonl",
	"doc cat doc/a", "doc cat doc/a --at #1", "doc cat doc/a --at ~1", "doc cat doc/b", "doc cat doc/gone", "doc cat doc/old", "doc cat doc/new", "doc cat workflow/release", "doc ls", "doc ls -o json --deleted", "doc log doc/a", "doc log doc/b -o json", "doc log doc/new", "doc log doc/gone",
	"doc diff doc/a", "doc diff doc/a #1 #2", "doc diff doc/a #2 head", "doc links doc/linked", "doc links doc/a --back", "doc watch doc/ --after @0 --limit 5",
	"agent ls", "agent ls -o json", "agent show " + bob, "inbox ls " + bob, "inbox ls " + bob + " --unread", "inbox ls " + bob + " -o jsonl", "inbox ls user", "queue ls", "queue ls build", "queue ls build -o jsonl --state done", "queue show build v1", "queue show build v2", "queue show build v3 -o json", "queue show build v4",
	"flow ls", "flow ls --all -o jsonl", "flow show seven", "flow show seven -o json", "agent orphans", "quota", "status -o json", "sources",
}

// decidingCommands write, depending on records that they read.
var decidingCommands = []string{
	"rewind trip --to #1 -y", "undo trip -y", "redo trip -y", "fork trip --at #1 --as trip-2", "doc put doc/a --create", "doc put doc/b --create", "doc put doc/gone --create", "doc put workflow/release --create", "doc rm doc/b -y --base @999", "doc mv doc/linked moved",
	"doc put agent/" + bob + " --create", "inbox send " + bob + " --from user --type note --thread t", "inbox ack " + bob + " @1", "agent state " + bob + " blocked", "agent commit " + bob + " more", "agent verify " + bob, "agent dismiss " + bob,
	"queue add build --id v1", "queue retry build v2", "queue work build --once -- cat", "inbox run " + bob + " --once -- cat", "flow move seven shipped", "flow recover seven", "flow end seven", "flow start release --id seven", "flow start release --id eight",
}

func command(line string, decides bool) question {
	return question{name: "tally " + line, decides: decides, commands: true, ask: func(ctx context.Context, _ *tally.Store) answered {
		var out, errw bytes.Buffer
		err := cmdutil.Run(ctx, program.Tally, strings.Fields(line), strings.NewReader("text\n"), &out, &errw)
		code := cli.Report(&errw, "tally", err)
		return answered{settled(out.String()), settled(errw.String()), code}
	}}
}

// yielded returns the values of an iterator, and its first error.
func yielded(v reflect.Value) (list []any, err error) {
	yield := reflect.MakeFunc(v.Type().In(0), func(in []reflect.Value) []reflect.Value {
		for _, x := range in {
			switch x := x.Interface().(type) {
			case nil:
			case error:
				err = cmp.Or(err, x)
			default:
				list = append(list, x)
			}
		}
		return []reflect.Value{reflect.ValueOf(len(list) < 1<<16)}
	})
	v.Call([]reflect.Value{yield})
	return list, err
}

// dump formats a value for comparison.
func dump(v reflect.Value) string {
	if v.IsValid() && v.CanInterface() {
		switch x := v.Interface().(type) {
		case error:
			return x.Error()
		case *projector.Outline:
			return fmt.Sprintf("%v damaged %v %v %s", x.Offset(), x.Damaged(), x.Len("main"), dump(reflect.ValueOf(x.Ledger())))
		case *evals.Conversation, *evals.Run, *tally.Store, *tally.Session:
			return "handle"
		}
		if text, err := json.Marshal(v.Interface()); err == nil && string(text) != "{}" {
			return string(text)
		}
	}
	return fmt.Sprintf("%+v", v)
}

// call makes a question of a function with a context and a store.
func call(name string, decides bool, f func(ctx context.Context, st *tally.Store) []any) question {
	return question{name: name, decides: decides, ask: func(ctx context.Context, st *tally.Store) answered {
		var a answered
		for _, v := range f(ctx, st) {
			each, err := []any{v}, error(nil)
			if f := reflect.ValueOf(v); f.Kind() == reflect.Func && !f.IsNil() && f.Type().NumIn() == 1 {
				each, err = yielded(f)
			} else if failed, is := v.(error); is {
				each, err = nil, failed
			}
			if err != nil {
				a.err, a.code = settled(err.Error()), cli.ExitCode(err)
			}
			for _, v := range each {
				a.text += settled(dump(reflect.ValueOf(v))) + "\n"
			}
		}
		return a
	}}
}

// methods makes a question of each method of a handle that takes only a context, except for the named ones, which
// write.
func methods(probe *tally.Store, name string, handle func(*tally.Store) any, writes ...string) (list []question) {
	typ := reflect.TypeOf(handle(probe))
	for i := range typ.NumMethod() {
		m := typ.Method(i)
		if m.Type.NumIn() != 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() || slices.Contains(writes, m.Name) {
			continue
		}
		list = append(list, call(name+"."+m.Name, false, func(ctx context.Context, st *tally.Store) (all []any) {
			for _, v := range reflect.ValueOf(handle(st)).Method(i).Call([]reflect.Value{reflect.ValueOf(ctx)}) {
				if v.Kind() != reflect.Interface || !v.IsNil() {
					all = append(all, v.Interface())
				}
			}
			return all
		}))
	}
	return list
}

func values(list ...any) []any { return slices.DeleteFunc(list, func(v any) bool { return v == nil }) }

// questions returns all questions, the reading ones first.
func questions(probe *tally.Store) []question {
	var list []question
	for _, line := range readingCommands {
		list = append(list, command(line, false))
	}
	reads := func(name string, f func(ctx context.Context, st *tally.Store) []any) {
		list = append(list, call(name, false, f))
	}
	for name, handle := range map[string]func(*tally.Store) any{
		"Session(trip)": func(st *tally.Store) any { return st.Session("trip") }, "Session(trip-fork)": func(st *tally.Store) any { return st.Session("trip-fork") },
		"evals.Conversation": func(st *tally.Store) any { return evals.Of(st, "conv") },
		"evals.Run":          func(st *tally.Store) any { return evals.Of(st, "conv").Run(evals.TallyRun, evalsRun) },
		"errata.Session":     func(st *tally.Store) any { return errata.Of(st, "ses_1") }, "errata.Prompts": func(st *tally.Store) any { return errata.PromptsOf(st) },
		"errata.Recipes": func(st *tally.Store) any { return errata.RecipesOf(st) }, "ailoop.History": func(st *tally.Store) any { return ailoop.Of(st, "chat") },
		"perstack.Handle": func(st *tally.Store) any { return perstack.JobOf(st, "j1") }, "tavern.Agent": func(st *tally.Store) any { return tavern.AgentOf(st, bob) },
		"tavern.Inbox": func(st *tally.Store) any { return tavern.InboxOf(st, bob) }, "tavern.Queue": func(st *tally.Store) any { return tavern.QueueOf(st, "build") },
		"tavern.Flow": func(st *tally.Store) any { return tavern.FlowOf(st, "seven") }, "tavern.Personal": func(st *tally.Store) any { return tavern.PersonalOf(st) },
		"tavern.Overlay": func(st *tally.Store) any { return tavern.OverlayOf(st, bob) }, "tavern.Lifecycle": func(st *tally.Store) any { return tavern.LifecycleOf(st, "agent/"+bob, nil) },
	} {
		list = append(list, methods(probe, name, handle, "ClearCheckpoint", "ClearHistories", "ClearAgents", "ClearSessions", "Recover", "Flush", "PlanUndo", "PlanRedo", "Restore", "RestoreAsOriginal")...)
	}
	slices.SortStableFunc(list, func(a, b question) int { return strings.Compare(a.name, b.name) })
	for _, id := range []string{"a", "b", "gone", "new", "old", "linked"} {
		reads("Documents.Read "+id, func(ctx context.Context, st *tally.Store) []any {
			d, err := st.Documents().Read(ctx, "doc", id)
			return values(d, err)
		})
		reads("Documents.ReadAt "+id, func(ctx context.Context, st *tally.Store) []any {
			d, err := st.Documents().ReadAt(ctx, "doc", id, "#1")
			return values(d, err)
		})
		reads("Documents.History "+id, func(ctx context.Context, st *tally.Store) []any {
			d, err := st.Documents().History(ctx, "doc", id, 0, 0)
			return values(d, err)
		})
		reads("Documents.Holder "+id, func(ctx context.Context, st *tally.Store) []any {
			d, err := st.Documents().Holder(ctx, "doc", id)
			return values(d, err)
		})
		reads("Documents.Links "+id, func(ctx context.Context, st *tally.Store) []any {
			d, err := st.Documents().Links(ctx, "doc", id)
			return values(d, err)
		})
		reads("Loader.Revisions "+id, func(ctx context.Context, st *tally.Store) (all []any) {
			for r, err := range st.Loader().Revisions(ctx, events.Document(st.Namespace(), "doc", id), 0) {
				all = append(all, r, err)
			}
			return values(all...)
		})
	}
	reads("Session.Load", func(ctx context.Context, st *tally.Store) []any {
		s, err := st.Session("trip").Load(ctx, "")
		if err != nil {
			return values(err)
		}
		return values(s.Threads, s.Ledger, s.Damaged)
	})
	reads("evals.Get", func(ctx context.Context, st *tally.Store) []any {
		_, found, err := evals.Get(ctx, st, "conv")
		return values(found, err)
	})
	reads("evals.Summaries", func(ctx context.Context, st *tally.Store) []any {
		l, err := evals.Summaries(ctx, st)
		return values(l, err)
	})
	reads("errata.List", func(ctx context.Context, st *tally.Store) []any {
		l, err := errata.List(ctx, st)
		return values(l, err)
	})
	reads("errata.Latest", func(ctx context.Context, st *tally.Store) []any {
		l, err := errata.Latest(ctx, st)
		return values(l, err)
	})
	reads("errata.StatsOf", func(ctx context.Context, st *tally.Store) []any {
		l, err := errata.StatsOf(ctx, st, errata.Filter{})
		return values(l, err)
	})
	reads("ailoop.LoadAt", func(ctx context.Context, st *tally.Store) []any {
		l, found, err := ailoop.Of(st, "chat").LoadAt(ctx, "#1")
		return values(l, found, err)
	})
	reads("perstack.Checkpoint", func(ctx context.Context, st *tally.Store) []any {
		l, err := perstack.JobOf(st, "j1").Checkpoint(ctx, "c1")
		return values(l, err)
	})
	reads("perstack.Events", func(ctx context.Context, st *tally.Store) []any {
		l, err := perstack.JobOf(st, "j1").Events(ctx, "r", 0)
		return values(l, err)
	})
	reads("perstack.EventList", func(ctx context.Context, st *tally.Store) []any {
		l, err := perstack.JobOf(st, "j1").EventList(ctx, "r")
		return values(l, err)
	})
	reads("perstack.Setting", func(ctx context.Context, st *tally.Store) []any {
		l, err := perstack.JobOf(st, "j1").Setting(ctx, "r")
		return values(l, err)
	})
	reads("perstack.Streams", func(ctx context.Context, st *tally.Store) []any {
		l, err := perstack.JobOf(st, "j1").Streams(ctx, "r")
		return values(l, err)
	})
	reads("perstack.GetAllRuns", func(ctx context.Context, st *tally.Store) []any {
		l, err := perstack.GetAllRuns(ctx, st)
		return values(l, err)
	})
	reads("perstack.RetrieveJob", func(ctx context.Context, st *tally.Store) []any {
		l, err := perstack.RetrieveJob(ctx, st, "j1")
		return values(l, err)
	})
	reads("tavern.Inbox.List", func(ctx context.Context, st *tally.Store) []any {
		l, next, err := tavern.InboxOf(st, bob).List(ctx, tavern.Page{})
		return values(l, next, err)
	})
	for _, id := range []string{"v1", "v2", "v3", "v4"} {
		reads("tavern.Queue.Get "+id, func(ctx context.Context, st *tally.Store) []any {
			l, err := tavern.QueueOf(st, "build").Get(ctx, id)
			return values(l, err)
		})
	}
	reads("tavern.Queue.List", func(ctx context.Context, st *tally.Store) []any {
		l, next, err := tavern.QueueOf(st, "build").List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemDone, tavern.ItemDead, tavern.ItemReady}})
		return values(l, next, err)
	})
	reads("tavern.Workflows.Read", func(ctx context.Context, st *tally.Store) []any {
		l, err := tavern.WorkflowsOf(st).Read(ctx, "release")
		return values(l, err)
	})
	reads("tavern.Personal.Setting", func(ctx context.Context, st *tally.Store) []any {
		l, err := tavern.PersonalOf(st).Setting(ctx, "theme")
		return values(l, err)
	})
	reads("tavern.Personal.ProjectSession", func(ctx context.Context, st *tally.Store) []any {
		l, err := tavern.PersonalOf(st).ProjectSession(ctx, "/p")
		return values(l, err)
	})
	reads("tavern.Overlay.Read", func(ctx context.Context, st *tally.Store) []any {
		l, err := tavern.OverlayOf(st, bob).Read(ctx, "a")
		return values(l, err)
	})
	reads("tavern.Agents", func(ctx context.Context, st *tally.Store) (all []any) {
		for l, err := range tavern.Agents(ctx, st, tavern.AgentFilter{}) {
			all = append(all, l, err)
		}
		return values(all...)
	})
	for _, line := range decidingCommands {
		list = append(list, command(line, true))
	}
	return list
}

// answersOf asks all questions of a store, which this process owns meanwhile. A question without an end is answered by
// the time limit.
func answersOf(t *testing.T, dir string, list []question) []answered {
	t.Helper()
	if len(list) == 0 {
		return nil
	}
	t.Setenv("TALLY_STORE", dir)
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Backend: "local", Source: "urn:test", Kinds: tavern.Kinds(), Own: true})
	if err != nil { // the error answers all questions
		return slices.Repeat([]answered{{err: settled(err.Error()), code: cli.ExitCode(err)}}, len(list))
	}
	defer st.Close()
	if os.Getenv("TALLY_SHOW") != "" {
		t.Logf("lost are %v", st.Log.Holes())
	}
	all := make([]answered, len(list))
	for i, q := range list {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		done := make(chan answered, 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					done <- answered{err: fmt.Sprint("panic: ", p), code: -1}
				}
			}()
			done <- q.ask(ctx, st)
		}()
		select {
		case all[i] = <-done:
		case <-time.After(patience + 5*time.Second):
			all[i] = answered{err: "it did not end", code: -1}
		}
		stop()
	}
	return all
}

// tallied counts the answers of damaged stores.
type tallied struct{ damages, equal, named, silent int }

func (c *tallied) String() string {
	return fmt.Sprintf("%d damages, %d answers: %d as before, %d errors that name the place and end with 5, %d silent", c.damages, c.equal+c.named+c.silent, c.equal, c.named, c.silent)
}

// listed finds an offset in the list of damaged records of status.
var listed = regexp.MustCompile(`\n {4}(\d+)\b`)

// judge counts an answer of a damaged store and returns its fault, or "". The answer is right if it is the one before
// the damage, or an error with code 5 that names the place.
func (c *tallied) judge(q question, before, now answered, names func(string) bool) string {
	switch same := now.code == before.code && (q.decides || now.text == before.text); {
	case same && now.code >= 0:
		c.equal++
		return ""
	case now.code == cli.Integrity && (names(now.err) || names(listed.ReplaceAllString(now.text, "@$1"))):
		c.named++
		return ""
	case now.code == cli.Integrity:
		c.silent++
		return "the place is not named"
	}
	c.silent++
	return "another answer, and the code is not 5"
}

// Each record of a store with all kinds of records is damaged in turn. Every reading command and call answers as
// before, or names the record and ends with code 5. Snapshots and views may have the contents of the record, so the
// test also runs without them.
func TestDamagedRecords(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	quietHome(t)
	s := newAllStore(t)
	probe, err := embedded.Open(t.Context(), embedded.Options{Backend: "memory"})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	list := questions(probe)
	t.Run("B-02 every record of every kind, every command and call", func(t *testing.T) {
		s.damageEach(t, list, func(*testing.T, string) {})
	})
	t.Run("B-02 every record of every kind, without snapshots and views", func(t *testing.T) {
		testkit.OnlyFull(t, "the subtest before asks the same with snapshots and views")
		s.damageEach(t, list, forget)
	})
}

// damageEach damages each of the chosen records in a copy of the store, and asks all questions.
func (s *allStore) damageEach(t *testing.T, list []question, prepare func(*testing.T, string)) {
	t.Helper()
	healthy := s.copy(t)
	prepare(t, healthy)
	before := answersOf(t, healthy, list)
	for i, a := range before {
		if a.code < 0 || strings.Contains(a.err, "panic") {
			t.Errorf("%s: %v", list[i].name, a)
		}
		if os.Getenv("TALLY_SHOW") != "" {
			t.Logf("%s: code %d, %.300s %.300s", list[i].name, a.code, a.text, a.err)
		}
	}
	var sum tallied
	for _, r := range s.chosen() {
		at := events.Offset(r.Seq)
		dir := s.damaged(t, r)
		sum.damages++
		prepare(t, dir)
		for j, now := range answersOf(t, dir, list) {
			if fault := sum.judge(list[j], before[j], now, named(at)); fault != "" {
				t.Errorf("damage of %v (%s): %s: %s\n   before: %.300s\n   now:    %.300s", at, s.types[at], list[j].name, fault, strings.ReplaceAll(before[j].String(), "\n", "⏎"), strings.ReplaceAll(now.String(), "\n", "⏎"))
			}
		}
		if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
			t.Error(err)
		}
	}
	t.Log(&sum)
}

// forget removes snapshots and views, which a store can build again.
func forget(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.db*"))
	for _, name := range append(names, filepath.Join(dir, "snapshots")) {
		err = errors.Join(err, os.RemoveAll(name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// chosen returns the records to damage: all in a long campaign, else the last of some types.
func (s *allStore) chosen() (list []natsfile.Record) {
	if only := os.Getenv("TALLY_ONLY"); only != "" {
		for _, r := range s.records {
			if fmt.Sprint(r.Seq) == only {
				return []natsfile.Record{r}
			}
		}
	}
	if testkit.Soak() {
		return s.records
	}
	for _, typ := range []string{"session turn.appended.v1", "doc document.written.v1", "agent document.written.v1"} {
		for _, r := range slices.Backward(s.records) {
			if s.types[events.Offset(r.Seq)] == typ {
				list = append(list, r)
				break
			}
		}
	}
	return list
}

// quietHome keeps the test away from the user's own files.
func quietHome(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, home)
	}
	t.Setenv("TALLY_NAMESPACE", "default")
	t.Chdir(home)
}
