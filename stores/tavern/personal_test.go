package tavern_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/metrics"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

const personalAgent = "6F9619FF-8B86-D011-B42D-00C04FC964FF"

// A store on a server that others run has nothing personal. The tests of settings are for other stores.
func TestPersonal(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		p := tavern.PersonalOf(st)
		if st.Log.Shared() {
			t.Run("D-66 a server of others", func(t *testing.T) { personalRefused(t, st) })
			return
		}
		t.Run("D-24 sessions by project and agent", func(t *testing.T) {
			must(t, p.SetProjectSession(t.Context(), "/srv/bakery", "one"))
			must(t, p.SetAgentSession(t.Context(), personalAgent, "two"))
			must(t, p.SetAgentSession(t.Context(), "another", "three"))
			must(t, p.SetProjectSession(t.Context(), "/srv/bakery", "four"))
			again := tavern.PersonalOf(need(st.In("elsewhere"))) // settings belong to a person, not to a namespace
			if got := need(again.ProjectSession(t.Context(), "/srv/bakery")); got != "four" {
				t.Errorf("the setting of the project is %q", got)
			}
			if got := need(again.AgentSession(t.Context(), personalAgent)); got != "two" {
				t.Errorf("the setting of the agent is %q", got)
			}
			must(t, p.ClearAgentSession(t.Context(), personalAgent))
			must(t, p.ClearAgentSession(t.Context(), personalAgent))
			if _, err := p.AgentSession(t.Context(), personalAgent); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("get a cleared setting: %v", err)
			}
			must(t, p.ClearSessions(t.Context()))
			if _, err := p.AgentSession(t.Context(), "another"); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("get after clearing all settings: %v", err)
			}
			if list := need(p.ProjectSessions(t.Context())); len(list) != 0 {
				t.Errorf("the remaining settings are %+v", list)
			}
		})
		t.Run("D-37 the list of agents", func(t *testing.T) { personalAgents(t, p) })
		t.Run("D-37 windows, modes, models, settings", func(t *testing.T) { personalSettings(t, p) })
		t.Run("D-37 it is in no other namespace", func(t *testing.T) {
			for info, err := range st.Log.Subjects(t.Context(), "", "") {
				must(t, err)
				if ns := info.Subject.Namespace; ns != "_personal" && info.Subject.Kind != events.KindUnit {
					t.Errorf("%s is in %s", info.Subject, ns)
				}
			}
		})
	})
}

func personalAgents(t *testing.T, p *tavern.Personal) {
	ctx := t.Context()
	if list := need(p.PersistedAgents(ctx)); len(list) != 0 {
		t.Errorf("the list at first is %+v", list)
	}
	kept := events.Fields{{Name: "color", Value: events.Raw(`"red"`)}}
	must(t, p.AddAgent(ctx, tavern.PersistedAgent{ID: "a", Name: "Ann", SessionID: "s", ChatDescription: "bakes", Unknown: kept}))
	must(t, p.AddAgent(ctx, tavern.PersistedAgent{ID: "b", Name: "Bob"}))
	name := "Anna"
	must(t, p.UpdateAgent(ctx, "a", tavern.AgentChange{Name: &name}))
	a := need(p.PersistedAgent(ctx, "a"))
	if a.Name != "Anna" || a.SessionID != "s" || a.ChatDescription != "bakes" || len(a.Unknown) != 1 {
		t.Errorf("a nil field changed the agent: %+v", a)
	}
	must(t, p.AddAgent(ctx, tavern.PersistedAgent{ID: "a", Name: "Other"}))
	list := need(p.PersistedAgents(ctx))
	if len(list) != 2 || list[0].Name != "Other" || list[0].SessionID != "" {
		t.Errorf("a replaced agent lost its place: %+v", list)
	}
	must(t, p.SetAgentSession(ctx, "a", "s"))
	must(t, p.RemoveAgent(ctx, "a"))
	if _, err := p.AgentSession(ctx, "a"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("the session of a removed agent: %v", err)
	}
	for what, err := range map[string]error{"remove": p.RemoveAgent(ctx, "a"), "update": p.UpdateAgent(ctx, "a", tavern.AgentChange{})} {
		if !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s of a missing agent: %v", what, err)
		}
	}
	var adding sync.WaitGroup
	for i := range 8 { // the original lost all but one of them
		adding.Go(func() {
			if err := p.AddAgent(ctx, tavern.PersistedAgent{ID: fmt.Sprint(i), Name: "n"}); err != nil {
				t.Error(err)
			}
		})
	}
	adding.Wait()
	if list := need(p.PersistedAgents(ctx)); len(list) != 9 {
		t.Errorf("got %d of nine agents", len(list))
	}
	must(t, p.ClearAgents(ctx))
	if list := need(p.PersistedAgents(ctx)); len(list) != 0 {
		t.Errorf("the list after clearing is %+v", list)
	}
}

func personalSettings(t *testing.T, p *tavern.Personal) {
	ctx := t.Context()
	must(t, p.SetWindow(ctx, "main", tavern.Window{X: -10, Y: 20.5, Width: 800, Height: 600}))
	if w := need(p.Window(ctx, "main")); w.X != -10 || w.Y != 20.5 || w.Width != 800 || w.Height != 600 {
		t.Errorf("the window is %+v", w)
	}
	must(t, p.SetPermissionMode(ctx, "plan"))
	if _, ok := errors.AsType[*events.InvalidError](p.SetPermissionMode(ctx, "everything")); !ok {
		t.Error("an unknown mode was accepted")
	}
	if got := need(p.PermissionMode(ctx)); got != "plan" {
		t.Errorf("the mode is %q", got)
	}
	must(t, p.SetModels(ctx, tavern.Models{Model: "opus", ThinkingBudget: 4000, EffortLevel: "high"}))
	if m := need(p.Models(ctx)); m.Model != "opus" || m.ThinkingBudget != 4000 || m.EffortLevel != "high" {
		t.Errorf("the models are %+v", m)
	}
	must(t, p.SetSetting(ctx, "theme/é", events.Raw(`{"b": 1, "a":2}`)))
	if raw := need(p.Setting(ctx, "theme/é")); string(raw) != `{"b": 1, "a":2}` {
		t.Errorf("the setting is %s", raw)
	}
	if keys := need(p.Keys(ctx)); !slices.Contains(keys, "theme/é") {
		t.Errorf("the keys are %q", keys)
	}
	must(t, p.ClearSetting(ctx, "theme/é"))
	if _, err := p.Setting(ctx, "theme/é"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("get a cleared setting: %v", err)
	}
	for what, err := range map[string]error{"a reserved key": p.SetSetting(ctx, "com.tavern.agents", events.Raw("[]")), "no JSON": p.SetSetting(ctx, "x", events.Raw("{")), "no key": p.SetSetting(ctx, "", events.Raw("1"))} {
		if _, ok := errors.AsType[*events.InvalidError](err); !ok {
			t.Errorf("%s: got the error %v", what, err)
		}
	}
}

// personalRefused checks that a store refuses everything personal, in every way.
func personalRefused(t *testing.T, st *tally.Store) {
	t.Helper()
	ctx, p := t.Context(), tavern.PersonalOf(st)
	inside := need(st.In(events.PersonalNamespace))
	_, reading := p.ProjectSession(ctx, "/srv/bakery")
	_, session := inside.Session("x").AppendTurns(ctx, events.MainThread, []byte(`"mine"`))
	_, document := inside.Documents().Create(ctx, "setting", "x", tally.Write{Data: []byte("mine")})
	e := need(events.New("urn:x", events.Session(events.PersonalNamespace, "x"), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: []byte("1")}}}))
	other := need(events.New("urn:x", events.Session("", "x"), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: []byte("1")}}}))
	_, several := st.Log.AppendAll(ctx, log.Part{Subject: other.Subject, Expect: log.Any, Events: []events.Event{other}}, log.Part{Subject: e.Subject, Expect: log.Any, Events: []events.Event{e}})
	for what, err := range map[string]error{"a session id": p.SetProjectSession(ctx, "/srv/bakery", "one"), "an agent": p.AddAgent(ctx, tavern.PersistedAgent{ID: "a"}), "reading": reading,
		"a turn": session, "a document": document, "several parts": several, "a large value": func() error { _, err := inside.PutBlob(ctx, []byte("mine")); return err }()} {
		if _, ok := errors.AsType[*events.PersonalError](err); !ok {
			t.Errorf("%s: got the error %v", what, err)
		}
	}
	for info, err := range st.Log.Subjects(ctx, "", "") {
		must(t, err)
		t.Errorf("%s was written", info.Subject)
	}
}

// personalCanary is a word that occurs only in a person's settings.
func personalCanary(n int) string { return fmt.Sprintf("CaNaRy%02dzq", n) }

// D-66: personal settings stay in their store, also after a restart of the process.
func TestPersonalStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var logged bytes.Buffer
	open := func() *tally.Store {
		return need(embedded.Open(t.Context(), embedded.Options{Store: dir, Own: true, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))}))
	}
	st := open()
	p := tavern.PersonalOf(st)
	for n := 0; n < 40; n += 4 {
		must(t, p.SetProjectSession(t.Context(), "/home/"+personalCanary(n), personalCanary(n+1)))
		must(t, p.AddAgent(t.Context(), tavern.PersistedAgent{ID: personalCanary(n + 2), Name: personalCanary(n + 3)}))
	}
	must1(st.Session("talk").AppendTurns(t.Context(), events.MainThread, []byte(`{"role":"user","content":"hi"}`)))
	must1(st.Documents().Create(t.Context(), "doc", "plan", tally.Write{Data: []byte("bread")}))

	t.Run("D-66 not in an export", func(t *testing.T) {
		out := need(layouts.OpenDir(t.TempDir()))
		defer out.Close()
		personal := need(st.In(events.PersonalNamespace))
		_, err := layouts.Export(t.Context(), personal, lifeForm{}, out, layouts.ExportOptions{All: true, Any: true})
		if refused, ok := errors.AsType[*events.PersonalError](err); !ok || refused.Where != "an export" {
			t.Errorf("export of the personal namespace: %v", err)
		}
		if report, err := layouts.Export(t.Context(), st, lifeForm{}, out, layouts.ExportOptions{All: true, Any: true}); err != nil || report.Sessions != 1 {
			t.Errorf("export of the project: %+v, error %v", report, err)
		}
	})
	t.Run("D-66 not in metrics", func(t *testing.T) {
		m := metrics.New()
		m.Watch(st, func() (int64, uint64, error) { return 0, 0, nil })
		answer := httptest.NewRecorder()
		m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		if text := need(io.ReadAll(answer.Body)); len(text) < 100 || bytes.Contains(text, []byte("CaNaRy")) {
			t.Errorf("the metrics are\n%s", text)
		}
	})
	must(t, st.Close())
	st = open()
	t.Run("D-24 after a restart", func(t *testing.T) {
		if got := need(tavern.PersonalOf(st).ProjectSession(t.Context(), "/home/"+personalCanary(8))); got != personalCanary(9) {
			t.Errorf("the setting is %q", got)
		}
	})
	must(t, st.Close())
	t.Run("D-66 not in the process's own log", func(t *testing.T) {
		lg := slog.New(slog.NewTextHandler(&logged, nil))
		lg.Warn("subject is quarantined", "subject", events.Document(events.PersonalNamespace, "setting", personalCanary(1)))
		if text := logged.String(); !strings.Contains(text, "subject=_personal") || strings.Contains(text, "CaNaRy") {
			t.Errorf("the log is\n%s", text)
		}
	})
	t.Run("D-66 a store that has something personal does not listen", func(t *testing.T) {
		_, err := embedded.Open(t.Context(), personalListening(dir))
		if refused, ok := errors.AsType[*events.PersonalError](err); !ok || refused.Subjects != 11 {
			t.Errorf("open a listening store: %v", err)
		}
		st := open() // the store is unchanged
		must(t, st.Close())
	})
}

// must1 is need without the value.
func must1[T any](v T, err error) { need(v, err) }

func personalListening(dir string) embedded.Options {
	return embedded.Options{Store: dir, Own: true, Listen: &embedded.Listen{Address: "127.0.0.1:0", Users: []embedded.Account{{Name: "ann", Password: "secret"}}}}
}

// D-66: a store that listens refuses everything personal: from its owner, from other processes of the user, and from
// the network.
func TestPersonalOfListeners(t *testing.T) {
	dir, url := filepath.Join(t.TempDir(), "store"), ""
	o := personalListening(dir)
	o.Listen.Ready = func(at string) { url = at }
	owner := need(embedded.Open(t.Context(), o))
	defer owner.Close()
	t.Run("D-66 its owner", func(t *testing.T) { personalRefused(t, owner) })
	t.Run("D-66 a process that attaches", func(t *testing.T) {
		st := need(embedded.Open(t.Context(), embedded.Options{Store: dir}))
		defer st.Close()
		if _, ok := errors.AsType[*events.PersonalError](tavern.PersonalOf(st).SetAgentSession(t.Context(), "a", "one")); !ok {
			t.Error("a personal setting was accepted")
		}
	})
	t.Run("D-66 who comes over the network", func(t *testing.T) {
		t.Setenv("NATS_USER", "ann")
		t.Setenv("NATS_PASSWORD", "secret")
		st := need(embedded.Open(t.Context(), embedded.Options{ConfigDir: t.TempDir(), Backend: "nats", URL: url}))
		defer st.Close()
		personalRefused(t, st)
	})
}
