package agentstest

import (
	"encoding/json"
	"fmt"
)

// An appServer is Codex as editors run it.
type appServer struct{ *talker }

func (m *machine) appServer(codex string) *appServer {
	m.t.Helper()
	s := &appServer{m.talk(codex, "app-server")}
	s.call("initialize", object{"clientInfo": object{"name": "tally_test", "title": "tally", "version": "0"}, "capabilities": object{"experimentalApi": true}})
	s.send(object{"method": "initialized"})
	return s
}

// call calls a method, and returns its result.
func (s *appServer) call(method string, params object) json.RawMessage {
	s.t.Helper()
	result, err := s.try(method, params)
	if err != nil {
		s.t.Fatalf("%s: %s", method, err)
	}
	return result
}

func (s *appServer) try(method string, params object) (result json.RawMessage, err error) {
	s.t.Helper()
	s.last++
	s.send(object{"id": s.last, "method": method, "params": params})
	id := fmt.Sprint(s.last)
	m := s.wait(method, func(m message) bool { return m.Method == "" && string(m.ID) == id })
	if m.Error != nil {
		return nil, fmt.Errorf("%s", m.Error)
	}
	return m.Result, nil
}

// thread is a thread in Codex's words.
type thread struct {
	ID    string
	Turns []struct {
		ID    string
		Items []item
	}
}

type item struct {
	Type, Text string
	Content    []struct{ Text string }
}

// last is the id of its last turn.
func (t thread) last() string { return t.Turns[len(t.Turns)-1].ID }

func threadOf(s *appServer, result json.RawMessage) thread {
	s.t.Helper()
	return parsed[struct{ Thread thread }](s.t, string(result)).Thread
}

// start begins a thread.
func (s *appServer) start(dir string) thread {
	s.t.Helper()
	return threadOf(s, s.call("thread/start", object{"cwd": dir}))
}

// turn sends a user's prompt, waits for the end of the turn, and returns its id.
func (s *appServer) turn(thread, text string) string {
	s.t.Helper()
	result := s.call("turn/start", object{"threadId": thread, "input": []any{object{"type": "text", "text": text}}})
	id := parsed[struct{ Turn struct{ ID string } }](s.t, string(result)).Turn.ID
	s.completed(thread, id)
	return id
}

// completed waits for the end of a turn; an empty id means the next one.
func (s *appServer) completed(thread, turn string) {
	s.t.Helper()
	s.wait("turn/completed", func(m message) bool {
		if m.Method != "turn/completed" {
			return false
		}
		p := parsed[struct {
			ThreadID string
			Turn     struct{ ID string }
		}](s.t, string(m.Params))
		return p.ThreadID == thread && (turn == "" || p.Turn.ID == turn)
	})
}

// read returns a thread in Codex's words.
func (s *appServer) read(id string) thread {
	s.t.Helper()
	return threadOf(s, s.call("thread/read", object{"threadId": id, "includeTurns": true}))
}

// shown lists the speakers and texts of a thread, and its tool calls.
func (t thread) shown() (list []string) {
	for _, turn := range t.Turns {
		for _, item := range turn.Items {
			switch item.Type {
			case "userMessage":
				list = append(list, "user: "+item.Content[0].Text)
			case "agentMessage":
				list = append(list, "assistant: "+item.Text)
			case "contextCompaction", "reasoning":
			default:
				list = append(list, "call")
			}
		}
	}
	return list
}
