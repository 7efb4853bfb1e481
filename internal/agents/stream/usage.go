package stream

import (
	"bytes"

	"github.com/tallylog/tally/events"
)

// maxSpent is the maximal number of remembered responses; the lines of one response are close together.
const maxSpent = 64

// spend adds a usage each time it changes for a response. Only one of these costs counts.
func (f *fold) spend(s *saying, key, model, response string, t events.Tokens, raw events.Raw) {
	if response != "" {
		if was, known := f.spent[response]; known && was == t {
			return
		} else if !known {
			f.remember(response)
		}
		f.spent[response] = t
	}
	f.cost(s, key, &events.CostAccrued{Model: model, Tokens: &t, Response: response, Raw: raw})
}

func (f *fold) remember(response string) {
	if len(f.last) == maxSpent {
		delete(f.spent, f.last[0])
		f.last = f.last[1:]
	}
	f.last = append(f.last, response)
}

// pay is spend for a usage with a price.
func (f *fold) pay(s *saying, model, response string, t events.Tokens, usd events.Amount, raw events.Raw) {
	f.cost(s, "", &events.CostAccrued{Model: model, Tokens: &t, USD: usd, Response: response, Raw: raw})
}

// cost adds a cost, unless it is empty.
func (f *fold) cost(s *saying, key string, p *events.CostAccrued) {
	if *p.Tokens == (events.Tokens{}) && p.USD == "" {
		return
	}
	p.Purpose, p.Source = "run", "reported"
	if len(p.Response) > events.MaxResponse {
		p.Response = ""
	}
	if f.run.ID != "" {
		ref := f.run.RunRef
		p.Run = &ref
	}
	if p.Validate() == nil {
		s.after("cost"+key, p)
	}
}

// clone returns a copy that outlives the line.
func clone(raw []byte) events.Raw { return bytes.Clone(raw) }
