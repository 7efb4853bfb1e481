package tavern_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
)

// After any sequence of sets and clears, by handles without caches, a person's settings equal a map by path, a map by
// agent and a list, even if keys collide.
func TestPersonalModel(t *testing.T) {
	testkit.NotUnderRace(t)
	st := storetest.Memory(t, tally.Config{})
	rapid.Check(t, func(r *rapid.T) {
		first := tavern.PersonalOf(st)
		if err := errors.Join(first.ClearSessions(t.Context()), first.ClearAgents(t.Context())); err != nil {
			r.Fatal(err)
		}
		projects, sessions, agents := map[string]string{}, map[string]string{}, []string{}
		path := rapid.SampledFrom([]string{"/a/b", "/a_b", "/a-b", "/a b", "a/b", "/a/b/"})
		id := rapid.SampledFrom([]string{"1", "2", "3"})
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			p := tavern.PersonalOf(st)
			var err error
			switch path, id := path.Draw(r, "path"), id.Draw(r, "id"); rapid.IntRange(0, 6).Draw(r, "step") {
			case 0, 1:
				err = p.SetProjectSession(t.Context(), path, id)
				projects[path] = id
			case 2:
				err = p.ClearProjectSession(t.Context(), path)
				delete(projects, path)
			case 3:
				err = p.SetAgentSession(t.Context(), id, path)
				sessions[id] = path
			case 4, 5:
				err = p.AddAgent(t.Context(), tavern.PersistedAgent{ID: id, Name: path})
				if i := slices.IndexFunc(agents, func(s string) bool { return strings.HasPrefix(s, id) }); i >= 0 {
					agents[i] = id + path
				} else {
					agents = append(agents, id+path)
				}
			default:
				err = p.RemoveAgent(t.Context(), id)
				if i := slices.IndexFunc(agents, func(s string) bool { return strings.HasPrefix(s, id) }); i >= 0 {
					agents = slices.Delete(agents, i, i+1)
					delete(sessions, id)
				} else if errors.Is(err, tally.ErrNotFound) {
					err = nil
				}
			}
			if err != nil {
				r.Fatal(err)
			}
			personalAgrees(t, r, p, projects, sessions, agents)
		}
	})
}

// personalAgrees compares the settings with a model.
func personalAgrees(t *testing.T, r *rapid.T, p *tavern.Personal, projects, sessions map[string]string, agents []string) {
	kept := map[string]string{}
	for _, s := range need(p.ProjectSessions(t.Context())) {
		kept[s.Path] = s.Session
	}
	var listed []string
	for _, a := range need(p.PersistedAgents(t.Context())) {
		listed = append(listed, a.ID+a.Name)
	}
	if !maps.Equal(kept, projects) || !slices.Equal(listed, agents) {
		r.Fatalf("the settings are %q and %q, want %q and %q", kept, listed, projects, agents)
	}
	for _, id := range []string{"1", "2", "3"} {
		got, err := p.AgentSession(t.Context(), id)
		if want, there := sessions[id]; got != want || there != (err == nil) {
			r.Fatalf("agent %s has %q, %v, want %q", id, got, err, want)
		}
	}
}
