package agentstest

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func isPi(name string) bool { return strings.HasSuffix(name, ".jsonl") }

// A piServer is pi as other programs run it.
type piServer struct{ *talker }

// call sends pi a command and returns its data.
func (p *piServer) call(command string, with object) json.RawMessage {
	p.t.Helper()
	p.last++
	id := strconv.Quote(strconv.Itoa(p.last))
	request := object{"id": strconv.Itoa(p.last), "type": command}
	for name, v := range with {
		request[name] = v
	}
	p.send(request)
	m := p.wait(command, func(m message) bool { return m.Type == "response" && string(m.ID) == id })
	if m.Success == nil || !*m.Success {
		p.t.Fatalf("pi refused %s: %s", command, m.Error)
	}
	return m.Data
}

// prompt sends a user's prompt, and waits for the end of the answer.
func (p *piServer) prompt(text string) {
	p.t.Helper()
	p.call("prompt", object{"message": text})
	p.wait("the end of "+text, func(m message) bool { return m.Type == "agent_end" })
}

// piThread is a session in pi's words.
type piThread struct {
	session  string
	messages []string
	tokens   tokens
	usd      float64
}

func (p *piServer) thread() piThread {
	p.t.Helper()
	messages := parsed[struct{ Messages []json.RawMessage }](p.t, string(p.call("get_messages", nil)))
	stats := parsed[struct {
		SessionID string
		Tokens    tokens
		Cost      float64
	}](p.t, string(p.call("get_session_stats", nil)))
	said := piThread{session: "pi/" + stats.SessionID, tokens: stats.Tokens, usd: stats.Cost}
	for _, m := range messages.Messages {
		said.messages = append(said.messages, string(m))
	}
	return said
}

// piMessages are the messages of the turns in effect.
func (m *machine) piMessages(session string, at int64) (list []string) {
	m.t.Helper()
	for _, turn := range m.main(session, at) {
		entry := parsed[struct{ Message json.RawMessage }](m.t, string(turn.Turn))
		list = append(list, string(entry.Message))
	}
	return list
}

// piHome writes a configuration for a model, and returns the folder of pi's sessions.
func (m *machine) piHome(model *model) string {
	m.env = append(m.env, "PI_OFFLINE=1")
	m.write(".pi/agent/models.json", `{"providers": {"fake": {"baseUrl": "`+model.url+`/v1", "api": "openai-completions", "apiKey": "none",
		"models": [{"id": "fake-model", "cost": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}}]}}}`)
	m.write(".pi/agent/sessions/.keep", "")
	return filepath.Join(m.home, ".pi", "agent", "sessions")
}

// leaf is an extension of pi: /leaf ID continues after another entry of the tree.
const leaf = `export default function (pi) {
  pi.registerCommand("leaf", { description: "moves the leaf", handler: async (id, ctx) => { await ctx.navigateTree(id) } })
}
`

// A watch records a session of pi: a run, another one that continues it, and a leaf that is moved to the point after
// the first.
func TestPi(t *testing.T) {
	pi := installed(t, "pi-0.73", "pi")
	m := newMachine(t)
	root := m.piHome(newModel(t))
	m.write("leaf.js", leaf)
	stop := m.watch("pi")

	flags := []string{"--provider", "fake", "--model", "fake-model"}
	m.run(pi, append(flags, "-p", "what is here")...)
	m.run(pi, append(flags, "--continue", "-p", "and now")...)
	p := &piServer{m.talk(pi, append(flags, "--continue", "--mode", "rpc", "--extension", filepath.Join(m.home, "leaf.js"))...)}
	p.prompt("in the same process")
	before := p.thread()
	m.caughtUp(root, isPi)
	main := m.main(before.session, 0)
	was := main[len(main)-1].Offset
	answer := parsed[struct{ ID string }](t, string(main[3].Turn)).ID // the response's id in this file
	p.call("prompt", object{"message": "/leaf " + answer})
	p.prompt("from the first answer on")
	moved := p.thread()
	users := parsed[struct{ Messages []struct{ EntryID string } }](t, string(p.call("get_fork_messages", nil))).Messages
	p.call("fork", object{"entryId": users[len(users)-1].EntryID})
	p.prompt("in a fork")
	fork := p.thread()
	p.close()

	m.caughtUp(root, isPi)
	stop()
	c := m.compare("pi", "pi", root, isPi)
	c.lines()
	c.bytes()
	if len(c.files) != 2 || moved.session != before.session || fork.session == moved.session {
		t.Errorf("got %d files of pi; sessions %s, %s, %s", len(c.files), before.session, moved.session, fork.session)
	}
	m.same(before.session+" before the leaf was moved", m.piMessages(before.session, was), before.messages)
	for _, want := range []piThread{moved, fork} {
		m.same(want.session, m.piMessages(want.session, 0), want.messages)
	}
	got := m.cost(moved.session).OnBranch
	if usd, _ := got.USD.Float64(); got.Tokens != moved.tokens || usd < moved.usd*0.999999 || usd > moved.usd*1.000001 {
		t.Errorf("%s: got %+v, want %+v and %v USD", moved.session, got, moved.tokens, moved.usd)
	}
	rewinds := slices.DeleteFunc(slices.Clone(c.records), func(r record) bool { return r.Event.Type != "tally.session.rewound.v1" })
	if len(rewinds) != 1 || rewinds[0].Event.Data.To != main[3].Offset || rewinds[0].Event.Data.Reason != "source" {
		t.Errorf("got rewinds %+v, want one to @%d", rewinds, main[3].Offset)
	}
}
