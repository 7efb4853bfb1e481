package agents

import "github.com/tallylog/tally/events"

// Whole is the value of Fact.Had for a thread that is replaced completely: the payload keeps no turns.
const Whole = -1

// Fit returns the payload of a fact that replaces a thread, adapted to a log in which the thread has live turns. A
// fold counts only the turns of its own file. If another file of the session added turns before, the log has more;
// they stay in front. If a user rewound the session in the log, it has fewer; the missing turns are not kept. Other
// payloads are returned as they are.
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
