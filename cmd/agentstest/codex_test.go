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

// rolloutLine is a line of a rollout, as far as the comparisons ask.
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

// rollouts is a comparison with Codex' files.
type rollouts struct {
	*comparison
	byID  map[string]file // by what other rollouts call them
	calls bool            // Codex says what it called
}

func (m *machine) compareCodex(root string) *rollouts {
	m.t.Helper()
	c := &rollouts{m.compare("codex", "codex", root, isRollout), make(map[string]file), true}
	for _, f := range c.files {
		c.byID[idOf(f)] = f
	}
	return c
}

// idOf is what other rollouts call a file.
func idOf(f file) string {
	name := strings.TrimSuffix(f.base(), ".jsonl")
	return name[len(name)-36:]
}

// threads are the files in the order in which they were begun, by the threads that they
// are of.
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

// endsAt is the event of the last line that is whole at a place of a file; 0 if none is.
func (c *rollouts) endsAt(id string, end int64) int64 {
	f := c.byID[id]
	last := bytes.LastIndexByte(f.content[:end], '\n')
	if last < 0 {
		return 0
	}
	begin := bytes.LastIndexByte(f.content[:last], '\n') + 1
	return c.at[f.base()+":"+strconv.Itoa(begin)].Offset
}

// places compares where sessions fork and go back with where Codex says so.
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
					c.t.Errorf("%s goes back to %v, want first %d", session, went, at)
					return forks, reverts
				}
				went = went[1:]
			case at != 0:
				forks++
				if want := (place{"codex/" + meta.ForkedFrom, at}); created.Fork == nil || *created.Fork != want {
					c.t.Errorf("%s is a fork of %+v, want %+v", session, created.Fork, want)
				}
			case meta.ForkedFrom != "":
				if created.Fork != nil || created.Parent == nil || created.Parent.Session != "codex/"+meta.ForkedFrom {
					c.t.Errorf("%s has the parent %+v, want %s", session, created.Parent, meta.ForkedFrom)
				}
			}
		}
	}
	return forks, reverts
}

// began is the event with which a session began.
func (c *rollouts) began(session string) record {
	c.t.Helper()
	i := slices.IndexFunc(c.records, func(r record) bool {
		return r.session() == session && r.Event.Type == "tally.session.created.v1"
	})
	if i < 0 {
		c.t.Fatalf("%s never began", session)
	}
	return c.records[i]
}

// first is the first event that a session has, what it inherits included.
func (c *rollouts) first(session string) int64 {
	c.t.Helper()
	began := c.began(session)
	if fork := began.Event.Data.Fork; fork != nil {
		return c.first(fork.Session)
	}
	return began.Offset
}

// went is where the agent went back to, in its order.
func (c *rollouts) went(session string) (to []int64) {
	for _, r := range c.records {
		if r.session() == session && r.Event.Type == "tally.session.rewound.v1" && r.Event.Data.Reason == "source" {
			to = append(to, r.Event.Data.To)
		}
	}
	return to
}

// costs compares the costs of sessions with Codex' own sums. Newer files count the turns in effect, with inherited
// ones, which are not the session's own. Older files have a last sum that includes undone turns and the beginning of a
// copy.
func (c *rollouts) costs() {
	c.t.Helper()
	for thread, list := range c.threads() {
		if parsed[rolloutLine](c.t, list[0].lines()[0]).Payload.Parent != "" {
			continue // what a sub-agent says that it took, its parent may have said
		}
		last := list[len(list)-1]
		got := c.cost("codex/" + thread)
		if want, ok := c.inEffect(thread, idOf(last), int64(len(last.content))); ok {
			if got.OnBranch.Tokens != want {
				c.t.Errorf("%s took %+v on its branch, want %+v", thread, got.OnBranch.Tokens, want)
			}
		} else if want := c.counted(thread, last); got.Spent.Tokens != want {
			c.t.Errorf("%s took %+v, want %+v", thread, got.Spent.Tokens, want)
		}
		c.t.Logf("%s: %+v, on its branch %+v", thread, got.Spent.Tokens, got.OnBranch.Tokens)
	}
}

// inEffect is what the records up to a place say that the thread took, without what it
// inherited; false: there are none.
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

// usageAt is what the last record before a place of a file says, and the file's first line.
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

// counted is what a file without records says that its thread took.
func (c *rollouts) counted(thread string, f file) tokens {
	var counts, copied usage
	for _, line := range f.lines() {
		l := parsed[rolloutLine](c.t, line).Payload
		switch {
		case l.Info != nil:
			counts = l.Info.Total
		case l.Type == "task_complete" && l.Turn < thread: // ids tell the time
			copied = counts
		}
	}
	return counts.tokens().minus(copied.tokens())
}

// shown is who says what in a session, and that a tool is called, as of an offset.
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

// is compares a session with what Codex said that the thread is, when the last turn of that
// had ended. That may be before the thread began: then it is what it began with.
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
		c.t.Errorf("%s begins at @%d, and its turn %s ends at @%d", session, own, last, ended)
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

// run of codex exec: which thread it says it began.
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
	m.t.Fatalf("codex exec began no thread:\n%s", out)
	return ""
}
