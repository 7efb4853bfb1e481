package erratadir

import (
	"bytes"
	"crypto/sha256"
	"math/big"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// sessionRow is one row of a session: a run, or the marker of a rewind.
type sessionRow struct {
	summary events.Raw // of session_metadata.json; nil: none
	content events.Raw // of session_content.json
	marker  bool
	id      string // of the run
}

// pair combines the summaries of runs with their contents. A marker has no content, so the lists differ in length
// after a rewind: the n-th run has the n-th content. If runs are missing on one side, or the hashes disagree, a
// summary takes the next content with its prompt's hash.
func pair(session string, summaries, contents []events.Raw) []sessionRow {
	var list []sessionRow
	inStep := areInStep(summaries, contents)
	next := 0
	for _, summary := range summaries {
		m := panel.Object(summary)
		e := sessionRow{summary: summary, marker: panel.IsMarker(m)}
		if !e.marker {
			at := 0
			if !inStep {
				at = contentOf(m.Text("prompt_hash"), contents[next:])
			}
			if at >= 0 {
				for _, skipped := range contents[next : next+at] {
					list = append(list, sessionRow{content: skipped})
				}
				e.content = contents[next+at]
				next += at + 1
			}
		}
		list = append(list, e)
	}
	for _, rest := range contents[next:] {
		list = append(list, sessionRow{content: rest})
	}
	nameRuns(session, list)
	return list
}

// areInStep reports whether each run has one content, and no content has another run's hash.
func areInStep(summaries, contents []events.Raw) bool {
	n := 0
	for _, summary := range summaries {
		m := panel.Object(summary)
		if panel.IsMarker(m) {
			continue
		}
		if n == len(contents) {
			return false
		}
		if hash := panel.Object(contents[n]).Text("prompt_hash"); hash != "" && hash != m.Text("prompt_hash") {
			return false
		}
		n++
	}
	return n == len(contents)
}

// contentOf returns the index of the first content with a prompt's hash, or -1.
func contentOf(hash string, contents []events.Raw) int {
	return slices.IndexFunc(contents, func(raw events.Raw) bool { return panel.HashOf(panel.Object(raw)) == hash })
}

// nameRuns sets the id of each run. It follows from time and prompt, so that the same run is recognised later.
func nameRuns(session string, list []sessionRow) {
	seen := make(map[string]int)
	for i := range list {
		e := &list[i]
		if e.marker {
			continue
		}
		key := e.key()
		e.id = runID(e.at(), session, key, strconv.Itoa(seen[key]))
		seen[key]++
	}
}

// key returns the time and the prompt's hash of a run.
func (e sessionRow) key() string {
	if e.summary == nil {
		return "\n" + panel.HashOf(panel.Object(e.content))
	}
	m := panel.Object(e.summary)
	return m.Text("timestamp") + "\n" + m.Text("prompt_hash")
}

// recognise sets the ids of runs that the session has already, under any id.
func recognise(list []sessionRow, have []row) {
	ids := make(map[string][]string)
	for _, r := range have {
		if !r.marker {
			ids[r.key()] = append(ids[r.key()], r.id)
		}
	}
	for i := range list {
		key := list[i].key()
		if known := ids[key]; !list[i].marker && len(known) > 0 {
			list[i].id, ids[key] = known[0], known[1:]
		}
	}
}

// runID returns a UUIDv7 made of facts.
func runID(at events.Timestamp, facts ...string) string {
	h := sha256.Sum256([]byte(events.DerivedID(facts...)))
	var id uuid.UUID
	copy(id[:], h[:])
	if t, ok := at.Time(); ok {
		ms := uint64(max(t.UnixMilli(), 0))
		for i := range 6 {
			id[i] = byte(ms >> (8 * (5 - i)))
		}
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return "run_" + id.String()
}

// result returns the raw result of a run.
func (e sessionRow) result() events.Raw {
	var m rawjson.Members
	if e.summary != nil {
		m = append(m, rawjson.Member{Name: "summary", Value: e.summary})
	}
	if e.content != nil {
		m = append(m, rawjson.Member{Name: "content", Value: e.content})
	}
	return panel.ObjectJSON(m)
}

func (e sessionRow) ref() events.RunRef { return events.RunRef{Kind: panel.Kind, ID: e.id} }

// at returns the time of the run's record.
func (e sessionRow) at() events.Timestamp { return panel.Time(panel.Object(e.summary), "timestamp") }

// outcome returns the outcome of a run: failed if no model answered.
func (e sessionRow) outcome() string {
	models, ok := panel.List(panel.Object(e.content), "models")
	if !ok || len(models) == 0 {
		return "completed"
	}
	for _, raw := range models {
		if reason := panel.Object(raw).Text("stop_reason"); reason != "error" && reason != "cancelled" {
			return "completed"
		}
	}
	return "failed"
}

// annotation returns the user's annotation of a run, or nil. If the file no longer has a value that the session has,
// the annotation removes it.
func (e sessionRow) annotation(have *row) *events.RunAnnotated {
	var had projector.Run
	if have != nil && have.run != nil && e.summary != nil {
		had = *have.run
	}
	m := panel.Object(e.summary)
	p := &events.RunAnnotated{Run: e.ref(), AppliedFiles: panel.Texts(m, "applied_files")}
	said := p.AppliedFiles != nil
	for _, f := range []struct {
		name, had string
		to        **string
	}{{"selected", had.Selected, &p.Selected}, {"rating", had.Rating, &p.Rating}, {"note", had.Note, &p.Note}} {
		if s := m.Text(f.name); s != "" || f.had != "" {
			*f.to, said = &s, true
		}
	}
	if !said {
		return nil
	}
	if selected := m.Text("selected"); m.Text("rating") == "bad" && selected != "" {
		// The original selects a model that is rated bad, as if it had won.
		p.Tags, p.Selected = []string{panel.RatedTag + selected}, new(string)
	}
	return p
}

// costs returns the cost of each model of a run. It omits invalid costs and returns their names.
func (e sessionRow) costs() (list []*events.CostAccrued, bad []string) {
	m := panel.Object(e.summary)
	usd, input, output := m.Object("costs_usd"), m.Object("input_tokens"), m.Object("output_tokens")
	var models []string
	for _, of := range []rawjson.Members{usd, input, output} {
		for _, x := range of {
			models = append(models, x.Name)
		}
	}
	slices.Sort(models)
	ref := e.ref()
	for _, model := range slices.Compact(models) {
		p := &events.CostAccrued{Model: model, Run: &ref, Purpose: "run", Source: "reported"}
		amount, ok := amountOf(usd, model)
		in, ok2 := panel.CountOf(input, model)
		out, ok3 := panel.CountOf(output, model)
		p.USD = amount
		if in != 0 || out != 0 {
			p.Tokens = &events.Tokens{Input: in, Output: out, Reasoning: min(e.reasoning(model), out)}
		}
		if !ok || !ok2 || !ok3 || p.Validate() != nil {
			bad = append(bad, model)
			continue
		}
		if p.USD != "" || p.Tokens != nil {
			list = append(list, p)
		}
	}
	return list, bad
}

// reasoning returns the reasoning tokens of a model, which only the content has.
func (e sessionRow) reasoning(model string) int64 {
	models, _ := panel.List(panel.Object(e.content), "models")
	for _, raw := range models {
		if m := panel.Object(raw); m.Text("model_id") == model {
			n, _ := panel.CountOf(m, "reasoning_tokens")
			return max(n, 0)
		}
	}
	return 0
}

// amountOf returns the exact decimal of a number in any spelling.
func amountOf(m rawjson.Members, name string) (events.Amount, bool) {
	raw, ok := m.Get(name)
	if !ok || string(raw) == "null" {
		return "", true
	}
	if len(raw) > 40 || bytes.ContainsAny(raw, `"{[tf`) {
		return "", false
	}
	if at := bytes.IndexAny(raw, "eE"); at >= 0 {
		if exp, err := strconv.Atoi(string(raw[at+1:])); err != nil || exp > 20 || exp < -40 {
			return "", false
		}
	}
	usd, ok := new(big.Rat).SetString(string(raw))
	if !ok || usd.Sign() < 0 {
		return "", false
	}
	return events.AmountOf(usd), true
}

// answers returns the prompt of a run, and the texts of the models that answered, as their histories have them.
func (e sessionRow) answers() (prompt string, texts map[string]string) {
	m := panel.Object(e.content)
	models, _ := panel.List(m, "models")
	texts = make(map[string]string)
	for _, raw := range models {
		answer := panel.Object(raw)
		if said := answer.Text("text"); said != "" {
			texts[answer.Text("model_id")] = said
		}
	}
	return m.Text("prompt"), texts
}
