package tavern_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

func TestLayers(t *testing.T) {
	storetest.EachWith(t, embedded.Options{Kinds: tavern.Kinds()}, func(t *testing.T, st *tally.Store) {
		ctx, d := t.Context(), st.Documents()
		for kind, layer := range map[string]string{"doc": "", "note": "", "setting": "", "diary": "personal"} {
			must1(d.Create(ctx, kind, "x", tally.Write{Data: []byte("x"), Layer: layer}))
		}
		for id, p := range map[string]events.SessionCreated{"plain": {Kind: "conversation"}, "mine": {Kind: "conversation", Layer: "personal"}, "claude/-a/x": {Kind: "transcript"}, "agent/1": {Kind: "agent"},
			"inbox/ci": {Kind: "inbox"}, "inbox/user": {Kind: "inbox"}} {
			p.CreatedAt = "2026-08-22T10:00:00Z"
			must1(st.Session(id).Create(ctx, p))
			must1(st.Session(id).AppendTurns(ctx, events.MainThread, []byte(`"hi"`)))
		}
		need2(st.Session("mine").Fork(ctx, "", "fork-of-mine"))
		must1(d.Create(ctx, "doc", "gone", tally.Write{Data: []byte("x")}))
		must1(d.Delete(ctx, "doc", "gone", 0, "old"))
		in := func(l tavern.Layer) (ids []string) {
			for info, err := range tavern.LayerOnly(st, l).Subjects(ctx, "") {
				must(t, err)
				ids = append(ids, info.Subject.Kind+"/"+info.Subject.ID)
			}
			slices.Sort(ids)
			return ids
		}
		t.Run("D-23 three layers are kept apart", func(t *testing.T) {
			for l, want := range map[tavern.Layer][]string{
				tavern.LayerProject:  {"doc/x", "note/x", "session/agent/1", "session/inbox/ci", "session/plain"},
				tavern.LayerPersonal: {"diary/x", "session/fork-of-mine", "session/inbox/user", "session/mine", "setting/x"},
				tavern.LayerVendor:   {"session/claude/-a/x"},
			} {
				if got := in(l); !slices.Equal(got, want) {
					t.Errorf("%s has %q", l, got)
				}
			}
		})
		t.Run("D-66 what a personal agent wrote is personal, however its id is spelled", func(t *testing.T) {
			need(st.Session("agent/ab").Create(ctx, events.SessionCreated{Kind: events.KindAgent, CreatedAt: "2026-08-22T10:00:00Z", Layer: "personal"}))
			need(tavern.OverlayOf(st, "AB").Write(ctx, "x", tally.Write{Data: []byte("mine")}))
			need(tavern.OverlayOf(st, "ab").Read(ctx, "x"))
			need(d.Create(ctx, "overlay", "Ab/y", tally.Write{Data: []byte("mine")}))
			for _, id := range []string{"ab/x", "Ab/y"} {
				if in := need(tavern.LayerOnly(st, tavern.LayerProject).Has(ctx, events.Document(st.Namespace(), "overlay", id))); in {
					t.Errorf("overlay/%s is in the project's layer", id)
				}
			}
		})
		t.Run("an id that no agent can have hides nothing", func(t *testing.T) {
			long := need(st.In("long"))
			agent := events.Document("long", "agent", strings.Repeat("x", events.MaxIDLen)) // no handle would write it
			need(long.Append(ctx, agent, log.Any, events.Event{Type: events.TypeDocumentWritten, Subject: agent, ContentType: "text/plain", Data: []byte("x")}))
			need(long.Documents().Create(ctx, "doc", "y", tally.Write{Data: []byte("y")}))
			n := 0
			for _, err := range tavern.LayerOnly(long, tavern.LayerProject).Subjects(ctx, "") {
				must(t, err)
				n++
			}
			if n != 2 {
				t.Errorf("the layer has %d of 2 documents", n)
			}
		})
		t.Run("D-23 the project's part is exported on its own", func(t *testing.T) {
			out := need(layouts.OpenDir(t.TempDir()))
			defer out.Close()
			report := need(layouts.Export(ctx, tavern.LayerOnly(st, tavern.LayerProject), lifeForm{}, out, layouts.ExportOptions{All: true, Any: true}))
			if report.Sessions != 3 {
				t.Errorf("got %+v", report)
			}
		})
		t.Run("D-23 a document of the project does not link to what is personal", func(t *testing.T) {
			for _, to := range []string{"document/setting/x", "document/diary/x", "session/mine"} {
				_, err := d.Create(ctx, "doc", "leak", tally.Write{Links: []events.Link{{Rel: "see", To: to}}})
				if _, ok := errors.AsType[*events.InvalidError](err); !ok {
					t.Errorf("move to %s: %v", to, err)
				}
			}
			must1(d.Create(ctx, "doc", "fine", tally.Write{Links: []events.Link{{Rel: "see", To: "document/doc/x"}}}))
		})
	})
}

// need2 returns the first value of a call that must succeed.
func need2[T, U any](v T, _ U, err error) T { return need(v, err) }
