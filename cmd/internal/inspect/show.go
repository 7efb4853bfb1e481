package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

func newShow(a *cmdutil.App) *cobra.Command {
	v := &viewer{app: a, tools: toolsBrief}
	var step int64
	cmd := &cobra.Command{
		Use: "show SESSION", Short: "Show a session's turns, now or as of a position", Args: cobra.ExactArgs(1),
		Long: `Show the turns of a session, now or as of a position. Calls of tools and their
results are one line each; --tools full shows all of them, --tools none none.

--run shows the result of one run instead: an evaluation as a table of what
passed and failed, a simulation as its goal and how it ended. An id that runs of
several types have is written TYPE/ID. --traces shows how each step of a
simulation was chosen. With both, --raw gives the bytes as they were stored.

The session of a panel of models is shown run by run, the models side by side
where they fit; runs that were rewound are marked. --thread shows the history of
one model.

A job is shown by what it is and took, and by its runs, each below the one that
delegated to it; --thread and --last show its messages. --run shows what steps one of
its runs took; with --step, one of them: the checkpoint it ended with, the messages
that are new in that, with calls of tools and what they answered, and its events.

Of a session of an agent the conversation is shown, as on the agent's own screen:
what the model thought and what the program told it are a line each, but with --tools
full. What the agent logs, and what its sub-agents say, are named with their threads:
--thread log, --thread agent/ID; --all shows them too.

--last shows only the last turns of each thread. Of a long session no others are
read.

--follow goes on with each turn as it comes, and says where a rewind leads, until it
is interrupted. With -o json it prints lines: turns, each with its thread and number,
and moves, with the lengths of the threads from then on.

With -o json the result has two members: session (id, kind and the fields that
were set) and threads (the turns, each with the offset of its event). Nothing in
it would be changed by a rewind that is undone again.`,
		Example: cmdutil.Examples("tally show last", "tally show travel --last 20", "tally show travel --at '#5'", "tally show travel --thread main -o json",
			"tally show order-desk --run run-1785748100000-b4k3ry1", "tally show order-desk --traces", "tally show order-desk --tools full",
			"tally show ses_0198c2 --thread gpt-5", "tally show job/ID", "tally show job/ID --run RUN --step 3", "tally show last --last 3 -f"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if v.last < 0 || v.last > 0 && (v.run != "" || v.traces || v.all) {
				return cli.Usagef("--last wants a number of turns, without --run, --traces and --all")
			}
			if cmd.Flags().Changed("step") {
				if v.run == "" || v.at != "" || v.raw {
					return cli.Usagef("--step shows a step of a run as it is now: give it with --run, without --at and --raw")
				}
				v.step = &step
			}
			if v.run != "" && v.traces || (v.run != "" || v.traces) && (v.thread != "" || v.all) {
				return cli.Usagef("--run and --traces show something else than turns: give one of them, without --thread and --all")
			}
			if v.follow && (v.at != "" || v.run != "" || v.traces || v.all || v.raw) {
				return cli.Usagef("--follow goes on from the head, with turns: give it without --at, --run, --traces, --all and --raw")
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return v.show(cmd.Context(), st, args[0]) })
		},
	}
	cmd.Flags().StringVar(&v.at, "at", "", "position; default head")
	cmd.Flags().StringVar(&v.thread, "thread", "", "only this thread")
	cmd.Flags().IntVar(&v.last, "last", 0, "only so many turns from the end of each thread; default all")
	cmd.Flags().BoolVarP(&v.follow, "follow", "f", false, "go on with what is appended, until interrupted")
	cmd.Flags().BoolVar(&v.all, "all", false, "also turns that are not in effect: rewound, late, replaced")
	cmd.Flags().BoolVar(&v.raw, "raw", false, "only the turns' bytes as the producer gave them, one after the other")
	cmd.Flags().StringVar(&v.run, "run", "", "the result of the run with this id")
	cmd.Flags().Int64Var(&step, "step", 0, "with --run, one step of a run of a job")
	cmd.Flags().BoolVar(&v.traces, "traces", false, "how each step of a simulation was chosen")
	cmd.Flags().Var(cli.OneOf(&v.tools, "how", toolsNone, toolsBrief, toolsFull), "tools", "calls of tools and their results: none, brief or full")
	return cmd
}

// viewer shows one session.
type viewer struct {
	app             *cmdutil.App
	at, thread, run string
	last            int
	all, raw        bool
	traces, follow  bool
	step            *int64 // nil: none is asked for
	tools           toolMode

	before map[string]int // turns of each thread that --last leaves out
	end    events.Offset  // of the last record that was looked at
	print  *printer       // of what is not turns alone
	job    *shownJob      // nil: it is none
}

func (v *viewer) show(ctx context.Context, st *tally.Store, arg string) error {
	handle, err := v.app.Session(ctx, st, arg)
	if err != nil {
		return err
	}
	if v.asJob(handle.ID()) {
		if done, err := v.showJob(ctx, handle); done || err != nil {
			return err
		}
	}
	s, err := v.load(ctx, handle)
	if err != nil {
		return err
	}
	switch {
	case v.step != nil:
		return cli.Usagef("--step shows a step of a run of a job, and %s is not of a job", s.Subject.Name())
	case v.run != "":
		return errors.Join(v.showRun(ctx, st, s), v.app.WarnDamaged(s))
	case v.traces:
		return errors.Join(v.showTraces(s), v.app.WarnDamaged(s))
	}
	if v.thread != "" && s.Threads[v.thread] == nil {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no thread %q there; it has %q", s.Subject, v.thread, s.Threads.Names())}
	}
	if v.follow {
		return v.showFollowed(ctx, handle, s)
	}
	var gone []projector.TurnAt
	var hole error
	if v.all {
		if gone, hole = st.Loader().Gone(ctx, s); projector.Tolerate(hole) != nil {
			return hole
		}
	}
	switch {
	case v.raw:
		err = v.writeRaw(s)
	case v.app.Format != cli.Text:
		err = v.writeJSON(s, gone)
	case s.Ledger.Kind == events.KindPanel && v.thread == "" && v.last == 0:
		err = v.writePanel(ctx, handle, s, gone)
	default:
		err = v.writeText(s, gone)
	}
	return errors.Join(err, hole, v.app.WarnDamaged(s))
}

// load returns the session, with --last without the turns before.
func (v *viewer) load(ctx context.Context, handle *tally.Session) (*projector.Session, error) {
	v.before = make(map[string]int)
	if v.last == 0 || v.at != "" {
		s, err := handle.Load(ctx, v.at)
		err = projector.Tolerate(err)
		if err != nil {
			return nil, err
		}
		v.end = s.Offset()
		for name, th := range s.Threads {
			if v.last > 0 {
				v.before[name] = max(0, len(th.Turns)-v.last)
				th.Turns = th.Turns[v.before[name]:]
			}
		}
		return s, nil
	}
	o, err := handle.Outline(ctx)
	err = projector.Tolerate(err)
	if err != nil {
		return nil, err
	}
	v.end = o.Offset()
	s := projector.NewSession(o.Subject())
	s.Ledger, s.Damaged = o.Ledger(), o.Damaged()
	for _, name := range o.Names() {
		th := &projector.Thread{Turns: []projector.Turn{}, Meta: o.Meta(name)}
		if v.before[name] = max(0, o.Len(name)-v.last); v.thread == "" || v.thread == name {
			turns, err := o.Last(ctx, name, v.last)
			if err != nil {
				return nil, err
			}
			th.Turns = append(th.Turns, turns...)
		}
		s.Threads[name] = th
	}
	return s, nil
}

func (v *viewer) names(s *projector.Session) []string {
	if v.thread != "" {
		return []string{v.thread}
	}
	return s.Threads.Names()
}

func (v *viewer) writeRaw(s *projector.Session) error {
	for _, name := range v.names(s) {
		for _, t := range s.Threads.Turns(name) {
			b := t.Bytes
			if t.Raw != nil {
				b = append(slices.Clip(t.Raw), '\n')
			}
			if _, err := v.app.Bytes().Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// shown is show -o json.
type shown struct {
	Session events.Fields               `json:"session"`
	Job     *shownJob                   `json:"job,omitempty"`
	Threads map[string]projector.Thread `json:"threads"`
	Gone    []goneTurn                  `json:"notInEffect,omitempty"` // with --all
}

// goneTurn is a turn that is not in effect.
type goneTurn struct {
	Thread string `json:"thread"`
	projector.Turn
}

func (v *viewer) writeJSON(s *projector.Session, gone []projector.TurnAt) error {
	doc := shown{Session: sessionFields(s), Job: v.job, Threads: make(map[string]projector.Thread)}
	for _, name := range v.names(s) {
		doc.Threads[name] = *s.Threads[name]
	}
	for _, t := range gone {
		if v.thread == "" || t.Thread == v.thread {
			doc.Gone = append(doc.Gone, goneTurn{t.Thread, t.Turn})
		}
	}
	return cli.WriteJSON(v.app.Out, v.app.Format, doc)
}

// sessionFields is what show says of the session itself.
func sessionFields(s *projector.Session) events.Fields {
	var list events.Fields
	add := func(name, value string) {
		if value != "" {
			list = append(list, events.Field{Name: name, Value: rawjson.AppendString(nil, value)})
		}
	}
	add("id", cli.ID(s.Subject.ID))
	add("namespace", s.Subject.Namespace)
	add("kind", s.Ledger.Kind)
	add("createdAt", string(s.Ledger.CreatedAt))
	if f := s.Ledger.Fork; f != nil {
		list = append(list, events.Field{Name: "fork", Value: mustMarshal(f)})
	}
	if p := s.Ledger.Parent; p != nil {
		list = append(list, events.Field{Name: "parent", Value: mustMarshal(p)})
	}
	for _, f := range s.Ledger.Fields {
		if _, taken := list.Get(f.Name); !taken {
			list = append(list, f)
		}
	}
	return list
}

func mustMarshal(v any) events.Raw {
	raw, err := rawjson.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("tally: %v", err)) // plain structs of strings and numbers
	}
	return raw
}
