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

func newQueueWork(a *cmdutil.App) *cobra.Command {
	w := &worker{app: a}
	cmd := &cobra.Command{
		Use: "work QUEUE -- COMMAND [ARGUMENT]...", Short: "Run a command for each item of a work queue", Args: cobra.MinimumNArgs(2),
		Long: `Run a command for each item of a work queue until interrupted. The command reads the
item from its standard input, with the same bytes that were added. Its environment has

  TALLY_QUEUE     the queue
  TALLY_ITEM      the item's id
  TALLY_ATTEMPT   the number of this attempt, from 1
  TALLY_FENCE     a number that grows with each claim of the item; a resource that
                  the command writes to can refuse a lower number than it has seen

If the command exits with code 0, the item is done. Its result is the standard output
(up to 1 MiB; JSON if it is JSON). If the command exits with another code, is ended by a
signal or cannot be started, the attempt failed; the error is the last line of standard
error. A failed item is tried again until its attempts are used up.

The claim is renewed while the command runs. If tally is killed, or pauses for longer than
the queue's lease, another worker gets the item. The command here is then told to end, and
its report is stored as stale, without effect.

The item is only input: tally runs the command after --, and nothing else. A script that
puts an item into a command line lets its producer choose the options of that program.
When tally is interrupted, the commands are told to end and have 5 seconds, and their items
are released. With --until-empty tally ends when no item is ready, and prints the queue's
--on-empty text.`,
		Example: cmdutil.Examples("tally queue work build -- ./build-one", "tally queue work build --jobs 4 --until-empty -o jsonl -- python3 build.py",
			"tally queue work review --once --worker kettle -- claude -p 'Review the text on standard input.'"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDash(cmd); err != nil {
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
	f.IntVar(&w.jobs, "jobs", 1, "number of items at a time")
	f.BoolVar(&w.once, "once", false, "do one item and end, with exit code 1 if it failed; waits for an item if none is ready")
	f.BoolVar(&w.untilEmpty, "until-empty", false, "end when no item is ready, instead of waiting for more")
	f.StringVar(&w.name, "worker", "", "name of the worker (default: the host name and the process id)")
	return cmd
}

// worker runs a command for the items of a queue.
type worker struct {
	app              *cmdutil.App
	queue, name      string
	command          []string
	jobs             int
	once, untilEmpty bool

	store    *store
	stop     context.CancelFunc // ends all commands
	done     chan worked        // one result for each running command
	running  int                // number of running commands
	failed   bool               // the last item was not completed
	printing sync.Mutex         // guards the output
}

// worked is the result of an attempt at an item: a row of queue work, with -o json.
type worked struct {
	Queue   string        `json:"queue"`
	ID      string        `json:"id"`
	Attempt int           `json:"attempt"`
	Fence   events.Offset `json:"fence"`
	Outcome string        `json:"outcome"` // completed, failed, released, lost or stale
	Exit    int           `json:"exit"`
	Signal  string        `json:"signal,omitempty"`
	Error   string        `json:"error,omitempty"`
	Stale   events.Offset `json:"stale,omitempty"` // of the report, if another worker had the item by then
	Seconds float64       `json:"seconds"`

	err error // ends queue work
}

// nothing is the last row of queue work --until-empty, with -o json.
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
		host, _ := os.Hostname() // "" after an error: the name is only shown
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
	stop() // after an error, running commands are told to end too
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

// hand starts a command for each item until no item is left, or ctx is done.
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
			if err := w.took(<-w.done); err != nil { // its end may have made other items ready
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
		go w.do(ctx, &held{w: w, item: c.Item, fence: c.Fence, until: c.Until, attempt: c.Attempt, st: w.store.Store(), claim: c})
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

// giveBack releases a claim that was made when the program was interrupted already. A nil claim is ignored.
func (w *worker) giveBack(ctx context.Context, c *tavern.Claim) error {
	if c == nil {
		return nil
	}
	last, cancel := lastWord(ctx)
	defer cancel()
	return c.Release(last)
}

// took counts a command as ended, and returns its error.
func (w *worker) took(row worked) error {
	w.running--
	w.failed = row.Outcome != "completed"
	return row.err
}

// say prints the result of an attempt.
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

// empty prints the queue's text for workers that find it empty, and how many items are not ready.
func (w *worker) empty(e *tavern.EmptyError) error {
	row := nothing{Queue: cli.ID(w.queue), Empty: true, OnEmpty: e.OnEmpty, Claimed: e.Claimed, Waiting: e.Waiting, Dead: e.Dead, Next: stamp(e.Next)}
	if w.app.Format != cli.Text {
		return cli.WriteJSON(w.app.Out, cli.JSONL, row)
	}
	if e.Claimed+e.Waiting+e.Dead > 0 {
		fmt.Fprintf(w.app.Err, "no item is ready: %d claimed, %d waiting, %d dead\n", e.Claimed, e.Waiting, e.Dead)
	}
	if e.OnEmpty == "" {
		return nil
	}
	_, err := fmt.Fprintln(w.app.Out, plain.Printable(e.OnEmpty))
	return err
}
