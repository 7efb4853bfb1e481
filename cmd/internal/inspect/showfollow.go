package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// followedTurn is a turn in show -f -o jsonl.
type followedTurn struct {
	Thread string `json:"thread"`
	Number int    `json:"number,omitempty"` // number in its thread, from 1; absent if the turn is not in effect
	projector.Turn
	State string `json:"state,omitempty"` // stale or rejected if the turn is not in effect
}

// followedMove is a rewind, a truncation or a replacement in show -f -o jsonl.
type followedMove struct {
	Offset  events.Offset  `json:"offset"`
	Type    string         `json:"type"`
	Undoes  events.Offset  `json:"undoes,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Lengths map[string]int `json:"lengths"` // new number of turns by thread
}

// follower prints changes of a session.
type follower struct {
	*viewer
	st      *tally.Store
	subject events.Subject
	text    *show.Page // nil for JSON
	items   *cli.List  // JSON output
	main    bool       // only the main thread of an agent's session is shown
}

// showFollowed prints a session, and then each new turn and each move, until ctx is done.
func (v *viewer) showFollowed(ctx context.Context, s *projector.Session) error {
	f := &follower{viewer: v, st: v.Handle.Store(), subject: s.Subject}
	if v.App.Format == cli.Text {
		f.text = show.NewPage(&v.View)
		f.main = s.Ledger.Kind == events.KindTranscript && v.Thread == ""
		f.text.Folds = s.Ledger.Kind == events.KindTranscript && v.Tools != show.ToolsFull
		if err := v.writeText(s, nil); err != nil {
			return err
		}
	} else {
		f.items = cli.NewList(v.App.Out, cli.JSONL) // lines, because a JSON array would have to end
		for _, name := range v.Names(s) {
			for i, t := range s.Threads.Turns(name) {
				if err := f.items.Add(followedTurn{Thread: name, Number: v.Before[name] + i + 1, Turn: t}); err != nil {
					return err
				}
			}
		}
	}
	_ = v.App.WarnDamaged(s) // the exit code is that of the interruption
	for rec, err := range f.st.Log.Follow(ctx, events.Range{Subject: s.Subject, After: v.End}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			fmt.Fprintln(v.App.Err, plain.Printable(damage.Error()))
			continue
		}
		if err == nil {
			rec, err = projector.Resolve(ctx, f.st.Log, rec, events.MaxValue)
		}
		if err == nil {
			err = f.show(ctx, projector.Decode(rec))
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// show prints the changes by a record.
func (f *follower) show(ctx context.Context, fact projector.Fact) error {
	o, err := f.st.Loader().Outline(ctx, f.subject, fact.Offset)
	err = projector.Tolerate(err)
	if err != nil {
		return err
	}
	state := ""
	switch l := o.Ledger(); {
	case slices.Contains(o.Stale(), fact.Offset):
		state = "stale"
	case slices.ContainsFunc(l.Rejected, func(v projector.Rejected) bool { return v.Offset == fact.Offset }):
		state = "rejected"
	}
	switch p := fact.Payload.(type) {
	case *events.SessionRewound:
		if state == "" {
			return f.move(o, followedMove{Offset: fact.Offset, Type: fact.Type, Undoes: p.Undoes, Reason: p.Reason})
		}
	case *events.ThreadTruncated:
		if state == "" {
			return f.move(o, followedMove{Offset: fact.Offset, Type: fact.Type, Reason: p.Reason})
		}
	case *events.ThreadReplaced:
		if state == "" {
			if err := f.move(o, followedMove{Offset: fact.Offset, Type: fact.Type, Reason: p.Reason}); err != nil {
				return err
			}
		}
	}
	return f.brought(ctx, o, fact, state)
}

// brought prints the turns that a record brought.
func (f *follower) brought(ctx context.Context, o *projector.Outline, fact projector.Fact, state string) error {
	threads := fact.Brings()
	for _, name := range threads.Names() {
		if f.Thread != "" && name != f.Thread || f.main && name != events.MainThread {
			continue
		}
		turns, length := threads.Turns(name), o.Len(name)
		first := length - len(turns) + 1
		if _, replaced := fact.Payload.(*events.ThreadReplaced); replaced && state == "" {
			all, err := o.Turns(ctx, name, 0, length)
			if err != nil {
				return err
			}
			turns, first = all, 1
		}
		for i, t := range turns {
			if t.Offset != fact.Offset {
				continue // the turn is older
			}
			if err := f.turn(followedTurn{name, first + i, t, state}); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn prints a turn.
func (f *follower) turn(t followedTurn) error {
	if t.State != "" {
		t.Number = 0
	}
	if f.text == nil {
		return f.items.Add(t)
	}
	label := turnPosition(t.Thread, t.Number)
	if t.State != "" {
		label = t.Thread + ", " + t.State + ", not in effect"
	}
	f.text.Turn(label, t.Thread, t.Turn)
	return f.text.Err
}

// move prints the new ends of the threads.
func (f *follower) move(o *projector.Outline, m followedMove) error {
	m.Lengths = make(map[string]int)
	var ends []string
	for _, name := range o.Names() {
		m.Lengths[name] = o.Len(name)
		if (f.Thread == "" || name == f.Thread) && (!f.main || name == events.MainThread) {
			ends = append(ends, turnPosition(name, o.Len(name)))
		}
	}
	if f.text == nil {
		return f.items.Add(m)
	}
	what := map[string]string{events.TypeSessionRewound: "rewound to ", events.TypeThreadTruncated: "cut to ", events.TypeThreadReplaced: "replaced, to "}[m.Type]
	if m.Undoes != 0 {
		what = "rewind " + m.Undoes.String() + " taken back, to "
	}
	text := what + strings.Join(ends, " ") + "  " + m.Offset.String()
	if m.Reason != "" {
		text += "  " + m.Reason
	}
	f.text.Printf("\n%s\n", f.text.Style.Yellow(render.Cut(text, f.text.Width)))
	return f.text.Err
}

// turnPosition formats a position: #3 for the main thread, gpt-5#3 for another one.
func turnPosition(thread string, number int) string {
	if thread == events.MainThread {
		thread = ""
	}
	return fmt.Sprintf("%s#%d", thread, number)
}
