package team

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newWork(a *cmdutil.App) *cobra.Command {
	w := &worker{app: a}
	cmd := &cobra.Command{
		Use: "work QUEUE -- COMMAND [ARGUMENT]...", Short: "Run a command for each item of a work queue", Args: cobra.MinimumNArgs(2),
		Long: `Run a command for each item of a work queue, as they become free, until interrupted.
The command gets the item on its standard input, as it was put in. In its environment
are

  TALLY_QUEUE     the queue
  TALLY_ITEM      the item's id
  TALLY_ATTEMPT   which attempt it is, from 1
  TALLY_FENCE     a number that is higher for each later claim of the item: what it
                  writes elsewhere can refuse one that is lower than it has seen

Exit code 0 says that the item is done, with what was printed as its result (up to 1
MiB; JSON if it is JSON). With another one, or when a signal ended the command, it
failed, and is handed out again until its attempts are used up; the error is the last
line of its standard error. An item that the command cannot be started for fails too. Who has the item keeps it as long as the command runs. If
tally itself is killed, or stands still for longer than the queue's lease, the item
goes to another worker; what comes of it here is then kept as late, without effect,
and the command is told to end.

Nothing of an item is ever run: the command is what stands behind --, and reads the
item from its standard input. A script that puts the item into a command line lets
its producer choose that program's options. When tally is interrupted, commands are told to end, have 5 seconds, and their items are given back.
With --until-empty it ends when nothing can be handed out, and prints what the queue
tells a worker then.`,
		Example: cmdutil.Examples("tally work build -- ./build-one", "tally work build --jobs 4 --until-empty -o jsonl -- python3 build.py",
			"tally work review --once --worker kettle -- claude -p 'Review what stands on the standard input.'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := behindDash(cmd, 1); err != nil {
				return err
			}
			if w.jobs < 1 {
				return cli.Usagef("--jobs %d: want a number from 1", w.jobs)
			}
			w.queue, w.command = args[0], args[1:]
			return w.work(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&w.jobs, "jobs", 1, "how many items at a time")
	f.BoolVar(&w.once, "once", false, "do one item, waiting for it if there is none, and end: with code 1 if it failed")
	f.BoolVar(&w.untilEmpty, "until-empty", false, "end when nothing can be handed out, rather than to wait for more")
	f.StringVar(&w.name, "worker", "", "name of the worker (default this machine's name and the process)")
	return cmd
}

// worker has a command do the items of a queue.
type worker struct {
	app              *cmdutil.App
	queue, name      string
	command          []string
	jobs             int
	once, untilEmpty bool

	store    *store
	stop     context.CancelFunc // has everything end
	done     chan worked        // of items that are under way, which are running of them
	running  int
	failed   bool
	printing sync.Mutex // guards what is printed
}

// worked is what became of an item: a line of work with -o json.
type worked struct {
	Queue   string        `json:"queue"`
	ID      string        `json:"id"`
	Attempt int           `json:"attempt"`
	Fence   events.Offset `json:"fence"`
	Outcome string        `json:"outcome"` // completed, failed, released, lost or late
	Exit    int           `json:"exit"`
	Signal  string        `json:"signal,omitempty"`
	Error   string        `json:"error,omitempty"`
	Late    events.Offset `json:"late,omitempty"` // where what came too late is kept
	Seconds float64       `json:"seconds"`

	err error // what ends the command
}

// nothing is the last line of work --until-empty with -o json.
type nothing struct {
	Queue   string           `json:"queue"`
	Empty   bool             `json:"empty"`
	OnEmpty string           `json:"onEmpty,omitempty"`
	Claimed int              `json:"claimed"`
	Waiting int              `json:"waiting"`
	Dead    int              `json:"dead"`
	Next    events.Timestamp `json:"next,omitempty"`
}

func (w *worker) work(ctx context.Context) (err error) {
	if err := check(w.command); err != nil {
		return err
	}
	if w.name == "" {
		host, _ := os.Hostname() // "" is as good
		w.name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if w.store, err = openStore(ctx, w.app); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.store.Close()) }()
	w.done = make(chan worked, w.jobs)
	life, stop := context.WithCancel(ctx)
	defer stop()
	w.stop = stop
	err = w.hand(life)
	stop() // after an error, those under way are told to end too
	for w.running > 0 {
		err = errors.Join(err, w.took(<-w.done))
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && w.once && w.failed:
		return cli.Silent(cli.Failed)
	}
	return err
}

// hand hands items to commands until there are no more, or ctx is done.
func (w *worker) hand(ctx context.Context) error {
	for {
		for w.running == w.jobs {
			if err := w.took(<-w.done); err != nil {
				return err
			}
		}
		c, err := w.next(ctx)
		if none, ok := errors.AsType[*tavern.EmptyError](err); ok {
			if w.running == 0 {
				return w.empty(none)
			}
			if err := w.took(<-w.done); err != nil { // which may have made others free
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return w.giveBack(ctx, c)
		}
		if !w.store.isStored(err) {
			return err
		}
		w.running++
		go w.do(ctx, &held{w: w, item: c.Item, fence: c.Fence, until: c.Until, attempt: c.Attempt, st: w.store.now(), claim: c})
		if w.once {
			return w.took(<-w.done)
		}
	}
}

// next claims an item.
func (w *worker) next(ctx context.Context) (c *tavern.Claim, err error) {
	err = w.store.do(ctx, func(st *tally.Store) error {
		q := tavern.QueueOf(st, w.queue)
		if w.untilEmpty {
			c, err = q.TryClaim(ctx, w.name)
		} else {
			c, err = q.Next(ctx, w.name)
		}
		return err
	})
	return c, err
}

// giveBack gives back an item that was claimed when the command was told to end.
func (w *worker) giveBack(ctx context.Context, c *tavern.Claim) error {
	if c == nil {
		return nil
	}
	last, cancel := lastWord(ctx)
	defer cancel()
	return c.Release(last)
}

// took notes that an item is not under way any more.
func (w *worker) took(row worked) error {
	w.running--
	w.failed = row.Outcome != "completed"
	return row.err
}

// say prints what became of an item.
func (w *worker) say(row worked) error {
	row.Queue, row.ID = cli.ID(w.queue), cli.ID(row.ID)
	w.printing.Lock()
	defer w.printing.Unlock()
	if w.app.Format != cli.Text {
		return cli.WriteJSON(w.app.Out, cli.JSONL, row)
	}
	text := fmt.Sprintf("%s %s, attempt %d, %s", row.ID, row.Outcome, row.Attempt, time.Duration(row.Seconds*1e9).Round(time.Millisecond))
	if row.Error != "" {
		text += ": " + row.Error
	}
	_, err := fmt.Fprintln(w.app.Out, plain.Printable(text))
	return err
}

// empty says that there is nothing to hand out, and what the queue tells a worker then.
func (w *worker) empty(e *tavern.EmptyError) error {
	row := nothing{Queue: cli.ID(w.queue), Empty: true, OnEmpty: e.OnEmpty, Claimed: e.Claimed, Waiting: e.Waiting, Dead: e.Dead, Next: stamp(e.Next)}
	if w.app.Format != cli.Text {
		return cli.WriteJSON(w.app.Out, cli.JSONL, row)
	}
	if e.Claimed+e.Waiting+e.Dead > 0 {
		fmt.Fprintf(w.app.Err, "nothing to hand out: %d claimed, %d waiting, %d dead\n", e.Claimed, e.Waiting, e.Dead)
	}
	if e.OnEmpty == "" {
		return nil
	}
	_, err := fmt.Fprintln(w.app.Out, plain.Printable(e.OnEmpty))
	return err
}
