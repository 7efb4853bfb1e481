package agentstest

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// isRollout reports whether a file is one of Codex' threads.
func isRollout(name string) bool {
	return strings.HasPrefix(filepath.Base(name), "rollout-") && strings.HasSuffix(name, ".jsonl")
}

// rolloutLine has the members of a rollout's line that the comparisons need.
type rolloutLine struct {
	Type    string
	Payload rolloutPayload
}

type rolloutPayload struct {
	ID, Type, Role string
	Turn           string `json:"turn_id"`
	Content        []struct{ Text string }
	ForkedFrom     string `json:"forked_from_id"`
	Base           *struct {
		File string `json:"thread_id"`
		End  int64  `json:"end_byte_offset"`
	} `json:"history_base"`
	Parent string `json:"parent_thread_id"`
	Thread *usage `json:"thread_token_usage"`
	Info   *struct {
		Total usage `json:"total_token_usage"`
	}
}

type usage struct {
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_input_tokens"`
	Output    int64 `json:"output_tokens"`
	Reasoning int64 `json:"reasoning_output_tokens"`
}

func (u usage) tokens() tokens {
	return tokens{Input: u.Input - u.Cached, CacheRead: u.Cached, Output: u.Output, Reasoning: u.Reasoning}
}

// rollouts compares a store with Codex' files.
type rollouts struct {
	*comparison
	byID  map[string]file // by the id that other rollouts use
	calls bool            // Codex reports its tool calls
}

func (m *machine) compareCodex(root string) *rollouts {
	m.t.Helper()
	c := &rollouts{m.compare("codex", "codex", root, isRollout), make(map[string]file), true}
	for _, f := range c.files {
		c.byID[idOf(f)] = f
	}
	return c
}

// idOf returns the id that other rollouts use for a file.
func idOf(f file) string {
	name := strings.TrimSuffix(f.base(), ".jsonl")
	return name[len(name)-36:]
}

// threads groups the files by thread, in the order in which they were begun.
func (c *rollouts) threads() map[string][]file {
	list := make(map[string][]file)
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		thread := id
		if name := strings.TrimSuffix(c.byID[id].base(), ".jsonl"); strings.Contains(name, "_") {
			thread = name[len(name)-73 : len(name)-37]
		}
		list[thread] = append(list[thread], c.byID[id])
	}
	return list
}

// endsAt returns the event of the last line that ends at or before an offset in a file, or 0.
func (c *rollouts) endsAt(id string, end int64) int64 {
	f := c.byID[id]
	last := bytes.LastIndexByte(f.content[:end], '\n')
	if last < 0 {
		return 0
	}
	begin := bytes.LastIndexByte(f.content[:last], '\n') + 1
	return c.at[f.base()+":"+strconv.Itoa(begin)].Offset
}

// places compares where sessions fork and go back with Codex' own positions.
func (c *rollouts) places() (forks, reverts int) {
	c.t.Helper()
	for thread, list := range c.threads() {
		session := "codex/" + thread
		created, went := c.began(session).Event.Data, c.went(session)
		for i, f := range list {
			meta := parsed[rolloutLine](c.t, f.lines()[0]).Payload
			var at int64
			if meta.Base != nil {
				at = c.endsAt(meta.Base.File, meta.Base.End)
			}
			switch {
			case i > 0:
				reverts++
				if at == 0 {
					at = c.first(session)
				}
				if len(went) == 0 || went[0] != at {
					c.t.Errorf("%s: got rewinds to %v, want first %d", session, went, at)
					return forks, reverts
				}
				went = went[1:]
			case at != 0:
				forks++
				if want := (place{"codex/" + meta.ForkedFrom, at}); created.Fork == nil || *created.Fork != want {
					c.t.Errorf("%s: got fork %+v, want %+v", session, created.Fork, want)
				}
			case meta.ForkedFrom != "":
				if created.Fork != nil || created.Parent == nil || created.Parent.Session != "codex/"+meta.ForkedFrom {
					c.t.Errorf("%s: got parent %+v, want %s", session, created.Parent, meta.ForkedFrom)
				}
			}
		}
	}
	return forks, reverts
}

// began returns the event that created a session.
func (c *rollouts) began(session string) record {
	c.t.Helper()
	i := slices.IndexFunc(c.records, func(r record) bool {
		return r.session() == session && r.Event.Type == "tally.session.created.v1"
	})
	if i < 0 {
		c.t.Fatalf("%s has no first event", session)
	}
	return c.records[i]
}

// first returns the first event of a session, inherited ones included.
func (c *rollouts) first(session string) int64 {
	c.t.Helper()
	began := c.began(session)
	if fork := began.Event.Data.Fork; fork != nil {
		return c.first(fork.Session)
	}
	return began.Offset
}

// went lists the targets of the agent's rewinds, in order.
func (c *rollouts) went(session string) (to []int64) {
	for _, r := range c.records {
		if r.session() == session && r.Event.Type == "tally.session.rewound.v1" && r.Event.Data.Reason == "source" {
			to = append(to, r.Event.Data.To)
		}
	}
	return to
}

// costs compares the costs of sessions with Codex' own sums. Newer files count the turns in effect and inherited
// turns; those do not belong to the session. Older files have a last sum that includes undone turns and the beginning
// of a copy.
func (c *rollouts) costs() {
	c.t.Helper()
	for thread, list := range c.threads() {
		if parsed[rolloutLine](c.t, list[0].lines()[0]).Payload.Parent != "" {
			continue // the parent may have reported the usage of a sub-agent
		}
		last := list[len(list)-1]
		got := c.cost("codex/" + thread)
		if want, ok := c.inEffect(thread, idOf(last), int64(len(last.content))); ok {
			if got.OnBranch.Tokens != want {
				c.t.Errorf("%s: got %+v on its branch, want %+v", thread, got.OnBranch.Tokens, want)
			}
		} else if want := c.counted(thread, last); got.Spent.Tokens != want {
			c.t.Errorf("%s: got %+v, want %+v", thread, got.Spent.Tokens, want)
		}
		c.t.Logf("%s: %+v, on its branch %+v", thread, got.Spent.Tokens, got.OnBranch.Tokens)
	}
}

// inEffect returns the usage of a thread according to the records up to an offset, without inherited usage. The result
// is false if there are no records.
func (c *rollouts) inEffect(thread, id string, end int64) (sum tokens, ok bool) {
	for id != "" {
		own := strings.Contains(c.byID[id].base(), thread)
		meta, used := c.usageAt(id, end)
		switch {
		case used != nil && !own:
			return sum.minus(used.tokens()), ok
		case used != nil && !ok:
			sum, ok = used.tokens(), true
		}
		if id = ""; meta.Base != nil {
			id, end = meta.Base.File, meta.Base.End
		}
	}
	return sum, ok
}

// usageAt returns the last usage record before an offset of a file, and the file's first line.
func (c *rollouts) usageAt(id string, end int64) (meta rolloutPayload, used *usage) {
	for i, line := range (file{content: c.byID[id].content[:end]}).lines() {
		l := parsed[rolloutLine](c.t, line).Payload
		if i == 0 {
			meta = l
		}
		if l.Thread != nil {
			used = l.Thread
		}
	}
	return meta, used
}

// counted returns the usage of a thread according to a file without records.
func (c *rollouts) counted(thread string, f file) tokens {
	var counts, copied usage
	for _, line := range f.lines() {
		l := parsed[rolloutLine](c.t, line).Payload
		switch {
		case l.Info != nil:
			counts = l.Info.Total
		case l.Type == "task_complete" && l.Turn < thread: // ids sort by time
			copied = counts
		}
	}
	return counts.tokens().minus(copied.tokens())
}

// shown lists the speakers and texts of a session, and its tool calls, as of an offset.
func (m *machine) shown(session string, at int64) (list []string) {
	m.t.Helper()
	for _, turn := range m.main(session, at) {
		l := parsed[rolloutLine](m.t, string(turn.Turn))
		switch {
		case l.Payload.Type == "message":
			list = append(list, l.Payload.Role+": "+l.Payload.Content[0].Text)
		case strings.HasSuffix(l.Payload.Type, "_call"):
			list = append(list, "call")
		}
	}
	return list
}

// is compares a session with Codex' description of the thread at the end of its last turn. If that was before the
// thread began, it compares the inherited turns.
func (c *rollouts) is(t thread) {
	c.t.Helper()
	session, last := "codex/"+t.ID, t.last()
	var ended, own int64
	for _, r := range c.records {
		if own == 0 && r.session() == session {
			own = r.Offset
		}
		if r.Event.Type == "tally.run.finished.v1" && r.Event.Data.Run.ID == last {
			ended = r.Offset
		}
	}
	if own == 0 || ended == 0 {
		c.t.Errorf("%s: got begin @%d, but its turn %s ends at @%d", session, own, last, ended)
		return
	}
	at := max(own, ended)
	got := c.shown(session, at)
	if !c.calls {
		got = slices.DeleteFunc(got, func(what string) bool { return what == "call" })
	}
	c.same(session+" after turn "+last, got, t.shown())
}

// codexHome writes a configuration for a model, and returns Codex' home.
func (m *machine) codexHome(model *model) string {
	home := filepath.Join(m.home, ".codex")
	m.write(".codex/config.toml", `model = "fake-model"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.fake]
name = "fake"
base_url = "`+model.url+`/v1"
wire_api = "responses"
[analytics]
enabled = false
`)
	return home
}

// run runs codex exec and returns the id of the thread that it reports.
func (m *machine) codexExec(codex string, args ...string) (thread string) {
	m.t.Helper()
	out := m.run(codex, slices.Concat([]string{"exec", "--json", "--skip-git-repo-check"}, args)...)
	for line := range strings.Lines(out) {
		var began struct {
			Type   string
			Thread string `json:"thread_id"`
		}
		if json.Unmarshal([]byte(line), &began) == nil && began.Type == "thread.started" {
			return began.Thread
		}
	}
	m.t.Fatalf("codex exec reported no thread:\n%s", out)
	return ""
}
