package agents

import "github.com/tallylog/tally/events"

// Whole is what Fact.Had is if a thread is replaced whatever it has: nothing of it is kept.
const Whole = -1

// Fit returns the payload of a fact that replaces a thread, for a log in which the thread
// has so many live turns. A fold counts by its own file. The log has more turns if another
// file of the session brought some before, which then stay in front of it; it has fewer if
// somebody rewound the session in the log, and then what is gone is not kept. What is no
// such fact is returned as it is.
func (f Fact) Fit(live int) events.Payload {
	p, ok := f.Payload.(*events.ThreadReplaced)
	if !ok || f.Had == Whole || f.Had == live {
		return f.Payload
	}
	fit := *p
	fit.Threads = make(map[string]events.Replacement, len(p.Threads))
	for name, r := range p.Threads {
		r.Items = fitItems(r.Items, live-f.Had)
		fit.Threads[name] = r
	}
	return &fit
}

func fitItems(items []events.Item, by int) []events.Item {
	var list []events.Item
	if by > 0 {
		list = append(list, events.Item{Keep: &[2]int{0, by}})
	}
	for _, it := range items {
		if it.Keep == nil {
			list = append(list, it)
			continue
		}
		from, to := max(it.Keep[0]+by, 0), max(it.Keep[1]+by, 0)
		if last := len(list) - 1; last >= 0 && list[last].Keep != nil && list[last].Keep[1] == from {
			list[last].Keep = &[2]int{list[last].Keep[0], to}
		} else if from < to {
			list = append(list, events.Item{Keep: &[2]int{from, to}})
		}
	}
	return list
}
