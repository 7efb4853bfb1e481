// Package show prints sessions: the page that all of them share, and the interface of a store with a form of its own
// for its sessions. The package of each such store is in a folder below.
package show

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/projector"
)

// A Store prints the sessions of one store in a form of their own.
type Store interface {
	// Show prints what v asks for and reports whether it did. For sessions of other stores, and for requests that have
	// no form of their own, it prints nothing and returns false. It may call v.Add first.
	Show(ctx context.Context, v *View) (bool, error)

	// Runs returns facts about the runs of a session that only the store knows. For sessions of other stores it returns
	// nil.
	Runs(ctx context.Context, handle *tally.Session, o *projector.Outline) ([]TreeRun, error)
}

// A View is one call of show: a session, and what to print of it.
type View struct {
	App    *cmdutil.App
	Handle *tally.Session
	Stores []Store

	At      string // position; "": the head
	Thread  string // "": all threads
	Run     string // id of the run to show, or TYPE/ID
	Step    *int64 // step of the run; nil: all
	Last    int    // turns from the end of each thread; 0: all
	All     bool   // also turns that are not in effect
	Raw     bool
	Traces  bool
	Follow  bool
	Tools   ToolMode
	Before  map[string]int // by thread: turns that Last leaves out
	End     events.Offset  // of the last record that was read
	session *projector.Session
	beside  events.Fields
}

// IsWhole reports whether the whole session is asked for as it is now, or one of its runs: no position, no thread, no
// part of the turns.
func (v *View) IsWhole() bool {
	return v.At == "" && v.Thread == "" && v.Last == 0 && !v.All && !v.Raw && !v.Follow && !v.Traces
}

// Add adds a member to the JSON document, after the session.
func (v *View) Add(name string, value any) error {
	raw, err := rawjson.Marshal(value)
	v.beside = append(v.beside, events.Field{Name: name, Value: raw})
	return err
}

// Session returns the session at the position asked for. With Last, threads have only their last turns. Records that
// cannot be read are in Session.Damaged.
func (v *View) Session(ctx context.Context) (*projector.Session, error) {
	if v.session != nil {
		return v.session, nil
	}
	s, err := v.load(ctx)
	v.session = s
	return s, err
}

func (v *View) load(ctx context.Context) (*projector.Session, error) {
	v.Before = make(map[string]int)
	onlyTurns := v.Raw && v.Run == "" && !v.Traces && !v.All
	if !onlyTurns && (v.Last == 0 || v.At != "") {
		s, err := v.Handle.Load(ctx, v.At)
		err = projector.Tolerate(err)
		if err != nil {
			return nil, err
		}
		v.End = s.Offset()
		for name, th := range s.Threads {
			if v.Last > 0 {
				v.Before[name] = max(0, len(th.Turns)-v.Last)
				th.Turns = th.Turns[v.Before[name]:]
			}
		}
		return s, nil
	}
	o, err := v.Handle.Outline(ctx)
	if projector.Tolerate(err) != nil {
		return nil, err
	}
	past, err := reads.PastAt(ctx, o, err, v.At)
	if projector.Tolerate(err) != nil {
		return nil, err
	}
	v.End = past.Offset()
	s := projector.NewSession(o.Subject())
	if hole, is := errors.AsType[*projector.HoleError](err); is {
		s.Damaged = hole.Damaged
	}
	if v.At == "" {
		s.Ledger = o.Ledger()
	}
	for _, name := range past.Names() {
		th := &projector.Thread{Turns: []projector.Turn{}, Meta: past.Meta(name)}
		if v.Last > 0 {
			v.Before[name] = max(0, past.Len(name)-v.Last)
		}
		if v.Thread == "" || v.Thread == name {
			turns, err := past.Turns(ctx, name, v.Before[name], past.Len(name))
			if err != nil {
				return nil, err
			}
			th.Turns = append(th.Turns, turns...)
		}
		s.Threads[name] = th
	}
	return s, nil
}

// Names lists the threads that were asked for.
func (v *View) Names(s *projector.Session) []string {
	if v.Thread != "" {
		return []string{v.Thread}
	}
	return s.Threads.Names()
}

// goneTurn is a turn that is not in effect, in JSON.
type goneTurn struct {
	Thread string `json:"thread"`
	projector.Turn
}

// Gone returns the turns that are not in effect, if they were asked for. hole is the damage that it met: the list is as
// complete as the log.
func (v *View) Gone(ctx context.Context) (list []projector.TurnAt, hole, err error) {
	if !v.All {
		return nil, nil, nil
	}
	s, err := v.Session(ctx)
	if err != nil {
		return nil, nil, err
	}
	list, hole = v.Handle.Store().Loader().Gone(ctx, s)
	return list, hole, projector.Tolerate(hole)
}

// WriteJSON prints the document of show -o json: session, members that a store added, threads, and with All the turns
// that are not in effect.
func (v *View) WriteJSON(s *projector.Session, gone []projector.TurnAt) error {
	threads := make(map[string]projector.Thread)
	for _, name := range v.Names(s) {
		threads[name] = *s.Threads[name]
	}
	var others []goneTurn
	for _, t := range gone {
		if v.Thread == "" || t.Thread == v.Thread {
			others = append(others, goneTurn{t.Thread, t.Turn})
		}
	}
	doc := append(events.Fields{{Name: "session", Value: mustMarshal(reads.Fields(s.Subject, s.Ledger))}}, v.beside...)
	raw, err := rawjson.Marshal(threads)
	if err != nil {
		return err
	}
	doc = append(doc, events.Field{Name: "threads", Value: raw})
	if len(others) > 0 {
		if raw, err = rawjson.Marshal(others); err != nil {
			return err
		}
		doc = append(doc, events.Field{Name: "notInEffect", Value: raw})
	}
	return cli.WriteJSON(v.App.Out, v.App.Format, doc)
}

func mustMarshal(v any) events.Raw {
	raw, err := rawjson.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("tally: %v", err)) // plain structs of strings and numbers
	}
	return raw
}
