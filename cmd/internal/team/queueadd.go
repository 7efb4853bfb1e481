package team

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/lines"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

func newQueueAdd(a *cmdutil.App) *cobra.Command {
	q := &adder{app: a}
	cmd := &cobra.Command{
		Use: "add QUEUE [FILE|-]", Short: "Add items to a work queue, one for each line", Args: cobra.RangeArgs(1, 2),
		Long: `Add items to a work queue, one for each line of a file or of standard input. A line is
JSON or text, and its worker gets the same bytes. Empty lines are ignored. With --whole
the whole input is one item. If the queue does not exist, it is created.

Each item has an id within its queue. Without --id the id is new, and -o jsonl prints it.
With --id build, the items of several lines are build:1, build:2 and so on, by line number.
If an item with the same id and content exists, nothing is added, so it is safe to repeat
an input with --id. Other content under an existing id is refused with exit code 6.

A worker gets the item of the highest priority first, then the oldest. An item waits until
it is due (--due) and until the items that it names with --after are done. If no worker has
claimed it before --expires, it is dead.

--configure reads no input: it changes the settings of the queue that flags name, and
creates the queue if needed. --serial can only be set when a queue is created.`,
		Example: cmdutil.Examples("printf 'docs\\nbinaries\\n' | tally queue add build --id v1",
			"tally queue add build release.json --whole --id release --after v1:1 --after v1:2 --priority 9",
			"tally queue add build --configure --max-attempts 3 --lease 10m --on-empty hibernate", "jq -c '.[]' jobs.json | tally queue add jobs --due 2h -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.says = cmd.Flags().Changed
			if err := q.check(args); err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.Open, func(s *store) error {
				if q.store, q.queue = s, args[0]; q.configure {
					return q.settle(cmd.Context())
				}
				return q.add(cmd.Context(), args[1:])
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.due, "due", "", "not before: a duration from now, such as 90m, 24h or 7d, or a time")
	f.StringVar(&q.expires, "expires", "", "dead if unclaimed by then: a duration from now, or a time")
	f.StringArrayVar(&q.item.After, "after", nil, "id of an item that must be done first; may be repeated")
	f.IntVar(&q.item.Priority, "priority", 0, "0 to 9: the highest goes first")
	f.StringVar(&q.item.ID, "id", "", "id of the item; with several lines, the part before the line number")
	f.StringVar(&q.item.Owner, "owner", "", "owner of the item; with --configure, of the queue")
	f.BoolVar(&q.whole, "whole", false, "the whole input is one item")
	f.BoolVar(&q.configure, "configure", false, "change the settings of the queue instead of adding items:")
	f.DurationVar(&q.settings.Lease, "lease", 0, "how long a claim lasts if the worker does not renew it (default 2m)")
	f.IntVar(&q.settings.MaxAttempts, "max-attempts", 0, "number of failed attempts after which an item is dead (default 5)")
	f.BoolVar(&q.settings.Serial, "serial", false, "one item at a time, in the order of the log")
	f.StringVar(&q.settings.OnEmpty, "on-empty", "", "text that a worker gets when the queue is empty")
	f.Var(cli.OneOf(&q.settings.Dead, "dead", "hold", "pass"), "dead", "effect of a dead item on items that name it with --after: hold (they wait) or pass")
	f.StringVar(&q.settings.Title, "title", "", "title of the queue")
	return cmd
}

// adder adds items to a queue, or changes its settings.
type adder struct {
	app              *cmdutil.App
	due, expires     string
	item             tavern.Item
	whole, configure bool
	settings         tavern.QueueSettings
	says             func(flag string) bool

	store *store
	queue string
	count int
	bad   int
}

// check reads the flags.
func (q *adder) check(args []string) error {
	for _, flag := range []string{"lease", "max-attempts", "serial", "on-empty", "dead", "title"} {
		if q.says(flag) && !q.configure {
			return cli.Usagef("--%s is a setting of the queue: use it with --configure", flag)
		}
	}
	for _, flag := range []string{"due", "expires", "after", "priority", "id", "whole"} {
		if q.says(flag) && q.configure {
			return cli.Usagef("--%s applies to items, and --configure adds no items", flag)
		}
	}
	if q.configure && len(args) > 1 {
		return cli.Usagef("--configure reads no input: leave %q out", args[1])
	}
	if q.item.Priority < 0 || q.item.Priority > 9 {
		return cli.Usagef("--priority %d: want 0 to 9", q.item.Priority)
	}
	return nil
}

// addedRow is a row of queue add, with -o json.
type addedRow struct {
	Queue      string        `json:"queue"`
	ID         string        `json:"id"`
	Offset     events.Offset `json:"offset"`
	Durability string        `json:"durability"`
}

func (q *adder) add(ctx context.Context, args []string) (err error) {
	if q.item.DueAt, err = timeFrom(ctx, q.store, "due", q.due); err == nil {
		q.item.ExpiresAt, err = timeFrom(ctx, q.store, "expires", q.expires)
	}
	if err != nil {
		return err
	}
	if q.whole {
		if q.item.Body, err = q.app.Content(args); err == nil {
			err = q.put(ctx, q.item)
		}
	} else {
		err = q.lines(ctx, args)
	}
	if err != nil {
		return q.refused(err)
	}
	if q.app.Format == cli.Text {
		err = q.app.Say("Added %s to %s, each %s.", plain.Count(q.count, "item"), plain.Printable(cli.ID(q.queue)), q.store.Store().Log.Durability())
	}
	if err == nil && q.bad > 0 {
		err = &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("%s could not be added", plain.Count(q.bad, "line"))}
	}
	return err
}

// refused adds to the error for an existing id how to see that item, and how many items were added before it.
func (q *adder) refused(err error) error {
	if exists, ok := errors.AsType[*tavern.ItemExistsError](err); ok {
		return &cli.CodeError{Code: cli.Conflict, Err: exists, Hint: fmt.Sprintf("%s queue show%s %s %s shows it. Added before it: %s.", cmdutil.Program(), q.app.StoreFlags(),
			cmdutil.Quoted(cli.ID(exists.Queue)), cmdutil.Quoted(cli.ID(exists.ID)), plain.Count(q.count, "item"))}
	}
	return err
}

// lines adds an item for each line.
func (q *adder) lines(ctx context.Context, args []string) error {
	from, err := q.app.Input(args)
	if err != nil {
		return err
	}
	defer from.Close()
	in := lines.NewReader(from, events.MaxValue)
	for ctx.Err() == nil {
		line, err := in.Next()
		switch {
		case errors.Is(err, lines.ErrEnd):
			return nil
		case cli.Is[*lines.TooLongError](err):
			q.bad++
			fmt.Fprintf(q.app.Err, "line %d: %s\n", in.Line(), plain.Printable(err.Error()))
			continue
		case err != nil:
			return fmt.Errorf("line %d: %w", in.Line(), err)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		item := q.item
		item.Body = bytes.TrimRight(bytes.Clone(line), "\r\n")
		if item.ID != "" {
			item.ID += ":" + strconv.Itoa(in.Line())
		}
		if err := q.put(ctx, item); err != nil {
			return fmt.Errorf("line %d: %w", in.Line(), err)
		}
	}
	return context.Cause(ctx)
}

func (q *adder) put(ctx context.Context, item tavern.Item) error {
	if item.ID == "" {
		item.ID = q.store.Store().Log.NewID() // the id makes a repeated append idempotent
	}
	err := q.store.do(ctx, func(st *tally.Store) (err error) {
		item, err = tavern.QueueOf(st, q.queue).Enqueue(ctx, item)
		return err
	})
	if err != nil {
		return err
	}
	q.count++
	if q.app.Format == cli.Text {
		return nil
	}
	format := cli.JSONL
	if q.whole {
		format = q.app.Format
	}
	return cli.WriteJSON(q.app.Out, format, addedRow{cli.ID(q.queue), cli.ID(item.ID), item.Offset, q.store.Store().Log.Durability().String()})
}

// settle changes the settings that flags name, or creates the queue with them.
func (q *adder) settle(ctx context.Context) error {
	q.settings.Owner = q.item.Owner
	var have tavern.QueueSettings
	err := q.store.do(ctx, func(st *tally.Store) (err error) {
		queue := tavern.QueueOf(st, q.queue)
		if err := q.setOn(ctx, queue); !q.store.isStored(err) {
			return err
		}
		have, err = queue.Settings(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return q.tell(have)
}

func (q *adder) setOn(ctx context.Context, queue *tavern.Queue) error {
	for {
		have, err := queue.Settings(ctx)
		switch {
		case errors.Is(err, events.ErrNotFound):
			if err = queue.Create(ctx, q.settings); errors.Is(err, tally.ErrExists) {
				continue // another process has created it
			}
			return err
		case err != nil:
			return err
		case q.says("serial") && q.settings.Serial != have.Serial:
			return cli.Usagef("--serial is fixed when a queue is created, and %q is %s", cli.ID(q.queue), kindOf(have.Serial))
		}
		return queue.Configure(ctx, q.over(have))
	}
}

func kindOf(serial bool) string {
	if serial {
		return "serial"
	}
	return "not serial"
}

// over returns have, with the settings that flags name replaced.
func (q *adder) over(have tavern.QueueSettings) tavern.QueueSettings {
	for flag, take := range map[string]func(){
		"lease":        func() { have.Lease = q.settings.Lease },
		"max-attempts": func() { have.MaxAttempts = q.settings.MaxAttempts },
		"on-empty":     func() { have.OnEmpty = q.settings.OnEmpty },
		"dead":         func() { have.Dead = q.settings.Dead },
		"title":        func() { have.Title = q.settings.Title },
		"owner":        func() { have.Owner = q.settings.Owner },
	} {
		if q.says(flag) {
			take()
		}
	}
	return have
}

// settingsRow has the settings of a queue, with -o json.
type settingsRow struct {
	Queue       string  `json:"queue"`
	Title       string  `json:"title,omitempty"`
	Owner       string  `json:"owner,omitempty"`
	Lease       float64 `json:"lease"` // seconds
	MaxAttempts int     `json:"maxAttempts"`
	Serial      bool    `json:"serial"`
	Dead        string  `json:"dead"`
	OnEmpty     string  `json:"onEmpty,omitempty"`
}

func settingsOf(queue string, s tavern.QueueSettings) settingsRow {
	return settingsRow{cli.ID(queue), s.Title, cli.ID(s.Owner), s.Lease.Seconds(), s.MaxAttempts, s.Serial, s.Dead, s.OnEmpty}
}

func (q *adder) tell(s tavern.QueueSettings) error {
	row := settingsOf(q.queue, s)
	if q.app.Format != cli.Text {
		return cli.WriteJSON(q.app.Out, q.app.Format, row)
	}
	return q.app.Say("%s: a lease of %v, %s, %s, a dead item: %s.%s", plain.Printable(row.Queue), s.Lease.Round(time.Millisecond), plain.Count(s.MaxAttempts, "attempt"),
		kindOf(s.Serial), s.Dead, plain.Printable(onEmptyText(s.OnEmpty)))
}

func onEmptyText(onEmpty string) string {
	if onEmpty == "" {
		return ""
	}
	return " When it is empty: " + onEmpty
}
