package erratadir_test

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// These types are the files as their writer declares them, so that encoding/json writes its bytes.

type metadata struct {
	ID           string    `json:"id"`
	CreatedAt    time.Time `json:"created_at"`
	LastActiveAt time.Time `json:"last_active_at"`
	Models       []string  `json:"models,omitempty"`
	FirstPrompt  string    `json:"first_prompt,omitempty"`
	LastPrompt   string    `json:"last_prompt,omitempty"`
	PromptCount  int       `json:"prompt_count"`
	ConfigHash   string    `json:"config_hash,omitempty"`
	Runs         []summary `json:"runs"`
}

type summary struct {
	Timestamp           time.Time                 `json:"timestamp"`
	PromptHash          string                    `json:"prompt_hash"`
	PromptPreview       string                    `json:"prompt_preview"`
	Models              []string                  `json:"models"`
	Selected            string                    `json:"selected,omitempty"`
	Rating              string                    `json:"rating,omitempty"`
	Type                string                    `json:"type,omitempty"`
	LatenciesMS         map[string]int64          `json:"latencies_ms,omitempty"`
	CostsUSD            map[string]float64        `json:"costs_usd,omitempty"`
	InputTokens         map[string]int64          `json:"input_tokens,omitempty"`
	OutputTokens        map[string]int64          `json:"output_tokens,omitempty"`
	ToolCalls           map[string]map[string]int `json:"tool_calls,omitempty"`
	ProposedWritesCount map[string]int            `json:"proposed_writes_count,omitempty"`
	AppliedFiles        []string                  `json:"applied_files,omitempty"`
	ConfigHash          string                    `json:"config_hash,omitempty"`
	Note                string                    `json:"note,omitempty"`
}

type originalContent struct {
	SessionID string                    `json:"session_id,omitempty"`
	Runs      []originalRun             `json:"runs"`
	Histories map[string][]originalTurn `json:"histories,omitempty"`
}

type originalRun struct {
	Prompt     string  `json:"prompt"`
	PromptHash string  `json:"prompt_hash,omitempty"`
	Models     []model `json:"models"`
}

type model struct {
	ModelID         string  `json:"model_id"`
	Text            string  `json:"text"`
	ProposedWrites  []write `json:"proposed_writes,omitempty"`
	Events          []event `json:"events"`
	StopReason      string  `json:"stop_reason,omitempty"`
	Steps           int     `json:"steps,omitempty"`
	ReasoningTokens int64   `json:"reasoning_tokens,omitempty"`
}

type write struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Delete  bool   `json:"delete,omitempty"`
}

type event struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

type originalTurn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type oldTurn struct{ Role, Content string }

type checkpoint struct {
	Prompt     string     `json:"prompt"`
	Timestamp  time.Time  `json:"timestamp"`
	AdapterIDs []string   `json:"adapter_ids"`
	Responses  []response `json:"responses"`
	Verbose    bool       `json:"verbose"`
}

type response struct {
	ModelID         string         `json:"model_id"`
	Text            string         `json:"text,omitempty"`
	LatencyMS       int64          `json:"latency_ms"`
	InputTokens     int64          `json:"input_tokens"`
	OutputTokens    int64          `json:"output_tokens"`
	ReasoningTokens int64          `json:"reasoning_tokens,omitempty"`
	CostUSD         float64        `json:"cost_usd"`
	ProposedWrites  []write        `json:"proposed_writes,omitempty"`
	ToolCalls       map[string]int `json:"tool_calls,omitempty"`
	Error           string         `json:"error,omitempty"`
	Interrupted     bool           `json:"interrupted"`
	Completed       bool           `json:"completed"`
}

func hashOf(prompt string) string { return fmt.Sprintf("ph_%x", sha256.Sum256([]byte(prompt))) }

// at returns a time in the zone of a writer who travels.
func at(minute int) time.Time {
	zone := time.FixedZone("", (minute%5-2)*3600+minute%2*1800)
	return time.Date(2026, 3, 1, 9, minute, 7, minute*1234567, time.UTC).In(zone)
}

// session is a session in the memory of its writer.
type session struct {
	meta    metadata
	content originalContent
	minute  int
}

func newSession(id string, models ...string) *session {
	return &session{meta: metadata{ID: id, CreatedAt: at(0), LastActiveAt: at(0), Models: models}}
}

// ask runs a prompt on models that answer with these texts; "" is an error.
func (s *session) ask(prompt string, answers ...string) *session {
	s.minute++
	sum := summary{Timestamp: at(s.minute), PromptHash: hashOf(prompt), PromptPreview: prompt[:min(len(prompt), 120)], Models: s.meta.Models,
		LatenciesMS: map[string]int64{}, CostsUSD: map[string]float64{}, InputTokens: map[string]int64{}, OutputTokens: map[string]int64{},
		ToolCalls: map[string]map[string]int{}, ProposedWritesCount: map[string]int{}}
	r := originalRun{Prompt: prompt, PromptHash: hashOf(prompt)}
	for i, answer := range answers {
		id := s.meta.Models[i]
		sum.LatenciesMS[id], sum.CostsUSD[id] = int64(100*i+s.minute), 0.000125*float64(i+1)
		sum.InputTokens[id], sum.OutputTokens[id] = int64(10+i), int64(20+i)
		sum.ToolCalls[id], sum.ProposedWritesCount[id] = nil, i
		m := model{ModelID: id, Text: answer, Events: []event{}, StopReason: "complete", Steps: 1}
		if answer == "" {
			m.StopReason = "error"
		} else {
			if s.content.Histories == nil {
				s.content.Histories = make(map[string][]originalTurn)
			}
			s.content.Histories[id] = append(s.content.Histories[id], originalTurn{"user", prompt}, originalTurn{"assistant", answer})
		}
		r.Models = append(r.Models, m)
	}
	s.meta.Runs, s.content.Runs = append(s.meta.Runs, sum), append(s.content.Runs, r)
	if s.meta.FirstPrompt == "" {
		s.meta.FirstPrompt = cut(prompt)
	}
	s.meta.LastPrompt, s.meta.LastActiveAt, s.content.SessionID = cut(prompt), sum.Timestamp.Add(time.Microsecond), s.meta.ID
	s.meta.PromptCount++
	return s
}

func cut(prompt string) string {
	if r := []rune(prompt); len(r) > 120 {
		return string(r[:120])
	}
	return prompt
}

// last changes the summary of the last run.
func (s *session) last(change func(*summary)) *session {
	change(&s.meta.Runs[len(s.meta.Runs)-1])
	return s
}

// rewind rewinds the last run as the original does: it removes the turns, adds a marker, and keeps the content.
func (s *session) rewind() *session {
	s.minute++
	last := len(s.content.Runs) - 1
	for _, m := range s.content.Runs[last].Models {
		if h := s.content.Histories[m.ModelID]; m.Text != "" && len(h) > 2 {
			s.content.Histories[m.ModelID] = h[:len(h)-2]
		} else {
			delete(s.content.Histories, m.ModelID)
		}
	}
	s.meta.Runs = append(s.meta.Runs, summary{Timestamp: at(s.minute), PromptHash: s.content.Runs[last].PromptHash, Type: "rewind"})
	return s
}

// files returns the session's folder.
func (s *session) files() map[string]string {
	dir := "sessions/" + s.meta.ID + "/"
	files := map[string]string{dir + "session_metadata.json": marshal(s.meta)}
	if s.content.Runs != nil || s.content.Histories != nil {
		files[dir+"session_content.json"] = marshal(s.content)
	}
	return files
}
