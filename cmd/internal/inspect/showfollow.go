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
	Number int    `json:"number,omitempty"` // in its thread, from 1; none if it is not in effect
	projector.Turn
	State string `json:"state,omitempty"` // late or void: it is not in effect
}

// followedMove is a change of what is in effect in show -f -o jsonl.
type followedMove struct {
	Offset  events.Offset  `json:"offset"`
	Type    string         `json:"type"`
	Undoes  events.Offset  `json:"undoes,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Lengths map[string]int `json:"lengths"` // turns of each thread from now on
}

// follower shows what happens to a session.
type follower struct {
	*viewer
	st      *tally.Store
	subject events.Subject
	text    *show.Page // nil: JSON
	items   *cli.List  // of JSON
	main    bool       // what stands beside a transcript's conversation is not shown
}

// showFollowed shows a session, and then each turn as it comes and each move of what is in
// effect, until ctx is done.
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
		f.items = cli.NewList(v.App.Out, cli.JSONL) // an array has an end
		for _, name := range v.Names(s) {
			for i, t := range s.Threads.Turns(name) {
				if err := f.items.Add(followedTurn{Thread: name, Number: v.Before[name] + i + 1, Turn: t}); err != nil {
					return err
				}
			}
		}
	}
	_ = v.App.WarnDamaged(s) // the code is that of the interruption
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

// show shows what a record changes.
func (f *follower) show(ctx context.Context, fact projector.Fact) error {
	o, err := f.st.Loader().Outline(ctx, f.subject, fact.Offset)
	err = projector.Tolerate(err)
	if err != nil {
		return err
	}
	state := ""
	switch l := o.Ledger(); {
	case slices.Contains(o.Late(), fact.Offset):
		state = "late"
	case slices.ContainsFunc(l.Void, func(v projector.Void) bool { return v.Offset == fact.Offset }):
		state = "void"
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

// brought shows the turns that a record brought.
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
				continue // it was there before
			}
			if err := f.turn(followedTurn{name, first + i, t, state}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Turn shows a turn.
func (f *follower) turn(t followedTurn) error {
	if t.State != "" {
		t.Number = 0
	}
	if f.text == nil {
		return f.items.Add(t)
	}
	label := place(t.Thread, t.Number)
	if t.State != "" {
		label = t.Thread + ", " + t.State + ", not in effect"
	}
	f.text.Turn(label, t.Thread, t.Turn)
	return f.text.Err
}

// move shows where the threads end from now on.
func (f *follower) move(o *projector.Outline, m followedMove) error {
	m.Lengths = make(map[string]int)
	var ends []string
	for _, name := range o.Names() {
		m.Lengths[name] = o.Len(name)
		if (f.Thread == "" || name == f.Thread) && (!f.main || name == events.MainThread) {
			ends = append(ends, place(name, o.Len(name)))
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

// place spells a position: #3 of main, gpt-5#3 of another thread.
func place(thread string, number int) string {
	if thread == events.MainThread {
		thread = ""
	}
	return fmt.Sprintf("%s#%d", thread, number)
}
