package events

import (
	"slices"

	"github.com/tallylog/tally/internal/rawjson"
)

// EraseTurns returns the event without the content of some of its turns: of its entries (TypeTurnAppended), or of its
// items (TypeThreadReplaced), by their index from 0. The items of a replacement are counted over all its threads, in the
// order in which the data have them, and an item with keep counts, too. Everything else remains. If no other turn has
// content, EraseTurns is [Event.Erase]. A turn that is erased already remains as it is.
//
// The error is an *InvalidError as from Erase, or if the event has no such turn.
func (e Event) EraseTurns(receipt string, turns []int) (Event, error) {
	if err := checkReceipt(receipt); err != nil {
		return e, err
	}
	name, isTurns := map[string]string{TypeTurnAppended: "entries", TypeThreadReplaced: "threads"}[e.Type]
	if !isTurns {
		return e, invalid("type", "%s has no turns", e.Type)
	}
	members, err := rawjson.Object(e.Data)
	if err != nil {
		return e, dataError("data", err)
	}
	value, _ := members.Get(name)
	x := turnEraser{turns: turns}
	if e.Type == TypeTurnAppended {
		value, err = x.list(value)
	} else {
		value, err = x.threads(value)
	}
	switch {
	case err != nil:
		return e, dataError("data."+name, err)
	case slices.ContainsFunc(turns, func(i int) bool { return i < 0 || i >= x.seen }):
		return e, invalid("data."+name, "%v: %q has %d", turns, e.ID, x.seen)
	case !x.isChanged:
		return e, nil
	case !x.hasContent:
		return e.Erase(receipt)
	}
	data, err := rawjson.SetMember(e.Data, name, value)
	if err != nil {
		return e, dataError("data", err)
	}
	out := e.WithExtension(ExtErased, receipt)
	out.ContentType, out.Data = "", data
	return out, e.checkRoom(out)
}

// turnEraser erases turns of an array or of several.
type turnEraser struct {
	turns      []int
	seen       int
	isChanged  bool
	hasContent bool // a turn that is not erased has content
}

// threads erases items in the threads of a replacement.
func (x *turnEraser) threads(value Raw) (Raw, error) {
	threads, err := rawjson.Object(value)
	for i := 0; i < len(threads) && err == nil; i++ {
		var members rawjson.Members
		if members, err = rawjson.Object(threads[i].Value); err != nil {
			break
		}
		items, ok := members.Get("items")
		if !ok {
			continue
		}
		if items, err = x.list(items); err == nil {
			threads[i].Value, err = rawjson.SetMember(threads[i].Value, "items", items)
		}
	}
	if err != nil {
		return nil, err
	}
	out := Raw("{")
	for _, t := range threads {
		out = appendTo(out, t.Name, t.Value)
	}
	return append(out, '}'), nil
}

// list erases entries or items of an array.
func (x *turnEraser) list(value Raw) (Raw, error) {
	elems, err := rawjson.Array(value)
	if err != nil {
		return nil, err
	}
	for i, v := range elems {
		without := entryStructure(v)
		switch {
		case slices.Contains(x.turns, x.seen):
			x.isChanged = x.isChanged || string(without) != string(v)
			elems[i] = without
		default:
			x.hasContent = x.hasContent || string(without) != string(v)
		}
		x.seen++
	}
	return rawjson.AppendArray(nil, elems), nil
}

// EventTurn is a turn of an event, in the order in which [Event.EraseTurns] counts.
type EventTurn struct {
	Thread string
	Turn   Raw    // the producer's JSON
	Bytes  []byte // instead of Turn, if it is not JSON
	Keeps  bool   // the item keeps turns of earlier events, and has none itself
}

// Turns returns the turns of a valid event of TypeTurnAppended or TypeThreadReplaced, and nil for other events.
func (e Event) Turns() (list []EventTurn) {
	p, err := Decode(e.Type, e.Data)
	if err != nil {
		return nil
	}
	switch p := p.(type) {
	case *TurnAppended:
		for _, x := range p.Entries {
			list = append(list, EventTurn{x.Thread, x.Turn, x.Bytes, false})
		}
	case *ThreadReplaced:
		data, _ := rawjson.Object(e.Data)
		for _, thread := range data.Object("threads") {
			for _, x := range p.Threads[thread.Name].Items {
				list = append(list, EventTurn{thread.Name, x.Turn, x.Bytes, x.Keep != nil})
			}
		}
	}
	return list
}
