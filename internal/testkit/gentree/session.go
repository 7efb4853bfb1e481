package gentree

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// session is one conversation being written.
type session struct {
	*generator
	id      string
	dir     string
	created time.Time
	turns   int
}

var words = []string{
	"flight", "hotel", "please", "the", "a", "and", "could", "you", "find", "a < b && c > d", "transfer", "account", "balance", "today",
	"\u2028", "caf\u00e9", "\U0001f600", "\"quoted\"", "back\\slash", "line\nbreak", "budget", "of", "to", "in", "for", "error", "retry", "done",
}

func (g *generator) word(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[g.IntN(len(letters))]
	}
	return string(b)
}

// prose returns about n bytes of text.
func (g *generator) prose(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[g.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

func (s *session) at(turn int) string {
	return s.created.Add(time.Duration(turn) * 4321 * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
}

// step contains the data of a turn, from which its line and its trace are made.
type step struct {
	index                                       int
	input, output, timestamp, selection, stepID value
	end                                         value // nil: none
}

func (s *session) step(i int) step {
	size := s.o.TurnBytes
	st := step{index: i, timestamp: s.at(i), stepID: raw("null"), end: nil}
	st.input = object{{"role", "user"}, {"content", s.prose(size / 8)}}
	answer := object{{"role", "assistant"}, {"content", s.prose(size / 2)}}
	if s.once(3) {
		call := "call_" + s.word(12)
		answer = object{{"role", "assistant"}, {"content", array{
			object{{"type", "text"}, {"text", s.prose(size / 4)}},
			object{{"type", "tool-call"}, {"toolCallId", call}, {"toolName", "search"}, {"input", object{{"query", s.prose(20)}, {"limit", raw(strconv.Itoa(s.IntN(50)))}}}},
		}}}
		st.output = array{answer, object{{"role", "tool"}, {"content", array{object{{"type", "tool-result"}, {"toolCallId", call}, {"toolName", "search"},
			{"output", object{{"type", "json"}, {"value", object{{"score", raw(strconv.FormatFloat(s.Float64(), 'g', -1, 64))}, {"items", array{}}}}}}}}}}}
	} else {
		st.output = array{answer}
	}
	st.selection = object{{"method", "none"}, {"candidates", array{}}}
	if s.once(2) {
		st.stepID = "step-" + strconv.Itoa(i)
		st.selection = object{{"method", "preconditions-ordered"}, {"candidates", array{object{{"stepId", st.stepID}, {"score", raw("1")}, {"reasons", array{"next"}}}}}}
	}
	if i == s.turns-1 {
		st.end = object{{"isFinal", raw("true")}, {"reason", "goal-reached"}, {"completed", raw("true")}}
	}
	return st
}

func (st step) line(id string) object {
	metadata := object{{"originalTurnIndex", raw(strconv.Itoa(st.index))}, {"stepId", st.stepID}, {"selection", st.selection}}
	if st.end != nil {
		metadata = append(metadata, member{"end", st.end})
	}
	return object{{"stepIndex", raw(strconv.Itoa(st.index))}, {"input", st.input}, {"output", st.output}, {"timestamp", st.timestamp},
		{"metadata", metadata}, {"conversationId", id}}
}

func (st step) trace() object {
	o := object{{"turnIndex", raw(strconv.Itoa(st.index))}, {"userMessage", st.input}, {"agentMessages", st.output}, {"timestamp", st.timestamp},
		{"stepId", st.stepID}, {"selection", st.selection}}
	if st.end != nil {
		o = append(o, member{"end", st.end})
	}
	return o
}

// writePlain writes a conversation as its own writer does. One in three is simulated and has traces.
func (s *session) writePlain() error {
	if err := s.json("meta.json", object{{"id", s.id}, {"createdAt", s.at(0)}}); err != nil {
		return err
	}
	simulated := s.once(3)
	if err := s.steps(simulated); err != nil {
		return err
	}
	if simulated {
		if err := s.json("trajectory.meta.json", s.trajectory()); err != nil {
			return err
		}
	}
	for range s.IntN(3) {
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

// steps writes conversation.jsonl and the traces beside it, step by step.
func (s *session) steps(traces bool) error {
	write := func(lines, array *output) {
		for i := range s.turns {
			st := s.step(i)
			if i > 0 {
				lines.text("\n")
			}
			lines.text(spell(st.line(s.id), 0, ""))
			s.stats.Turns++
			if array == nil {
				continue
			}
			array.text(map[bool]string{true: "[\n  ", false: ",\n  "}[i == 0])
			array.text(spell(st.trace(), 1, "  "))
		}
		if array != nil {
			array.text("\n]")
		}
	}
	name := filepath.Join(s.dir, "conversation.jsonl")
	if !traces {
		return s.file(name, func(w *output) { write(w, nil) })
	}
	var inner error
	err := s.file(name, func(lines *output) {
		inner = s.file(filepath.Join(s.dir, "stepTraces.json"), func(array *output) { write(lines, array) })
	})
	return errors.Join(err, inner)
}

func (s *session) trajectory() object {
	return object{{"version", raw("1")}, {"trajectoryId", s.id}, {"createdAt", s.at(0)}, {"goal", s.prose(80)},
		{"persona", object{{"name", s.word(6)}, {"description", s.prose(100)}, {"guardrails", array{}}}}, {"maxTurns", raw("25")}}
}

// json writes a file in the original's layout.
func (s *session) json(name string, v value) error {
	return s.file(filepath.Join(s.dir, filepath.FromSlash(name)), func(w *output) {
		w.text(spell(v, 0, "  "))
	})
}

// run writes the result of an evaluation or of a simulation.
func (s *session) run() error {
	ms := s.created.UnixMilli() + s.Int64N(1e9)
	id := fmt.Sprintf("run-%d-%s", ms, s.word(7))
	at := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	if s.once(3) {
		return s.json("runs/trajectory/"+id+".json", object{{"runId", id}, {"conversationId", s.id}, {"timestamp", at}, {"goal", s.prose(40)},
			{"persona", object{{"description", s.prose(40)}}}, {"completed", raw("false")}, {"reason", "max-turns"}, {"totalTurns", raw(strconv.Itoa(s.turns))}})
	}
	var series array
	for i := range min(s.turns, 50) {
		series = append(series, object{{"evalRef", "relevance"}, {"measurement", object{{"metricRef", "relevance"}, {"score", raw("0.9200000000000003")},
			{"rawValue", raw(strconv.Itoa(i % 6))}, {"reasoning", s.prose(60)}}}, {"outcome", object{{"verdict", "pass"}, {"policy", object{{"kind", "none"}}}}}})
	}
	return s.json("runs/tally/"+id+".json", object{{"schemaVersion", raw("1")}, {"runId", id}, {"createdAt", at},
		{"defs", object{{"metrics", object{}}, {"evals", object{}}, {"scorers", object{}}}},
		{"result", object{{"stepCount", raw(strconv.Itoa(s.turns))}, {"singleTurn", object{{"relevance", object{{"byStepIndex", series}}}}}}}})
}
