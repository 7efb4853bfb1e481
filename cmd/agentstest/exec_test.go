package agentstest

import (
	"strings"
	"testing"
)

// exec records a command.
func (m *machine) exec(command ...string) []string {
	return append([]string{"exec", "--store", m.store, "--redact", "off", "--quiet", "--"}, command...)
}

// recordedLines returns the stored lines of all sessions whose id begins with a prefix.
func (m *machine) recordedLines(session string) (list []string) {
	m.t.Helper()
	for _, r := range m.records() {
		if r.Event.Line != "" && strings.HasPrefix(r.session(), session) {
			list = append(list, string(r.Event.Data.Entries[0].Turn))
		}
	}
	return list
}

// printed compares a session with the output of a command. The session's first and last lines are tally's, about the
// command.
func (m *machine) printed(session, out string) {
	m.t.Helper()
	lines := m.recordedLines(session)
	if len(lines) < 2 {
		m.t.Fatalf("%s: got %d lines", session, len(lines))
	}
	m.same(session, lines[1:len(lines)-1], strings.Split(strings.TrimSpace(out), "\n"))
}

// The output of Codex and pi is recorded byte for byte.
func TestStreams(t *testing.T) {
	codex, pi := installed(t, "codex-0.169", "codex"), installed(t, "pi-0.73", "pi")
	m, model := newMachine(t), newModel(t)
	m.codexHome(model)
	m.piHome(model)
	m.printed("exec/codex/", m.run(tally, m.exec(codex, "exec", "--json", "--skip-git-repo-check", "what is here")...))
	m.printed("exec/pi/", m.run(tally, m.exec(pi, "--provider", "fake", "--model", "fake-model", "--mode", "json", "what is here")...))
}
