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

func newEnqueue(a *cmdutil.App) *cobra.Command {
	q := &enqueuer{app: a}
	cmd := &cobra.Command{
		Use: "enqueue QUEUE [FILE|-]", Short: "Put items into a work queue, one a line", Args: cobra.RangeArgs(1, 2),
		Long: `Put items into a work queue: each line of a file, or of standard input, is one, JSON
or text, and comes to its worker as it was written; lines that are empty are left
out. With --whole the input is one item. A queue that is not there is made.

An item has an id within its queue: its own, if --id gives one, else a fresh one that
-o jsonl shows. Of several lines, --id build gives build:1, build:2 and so on, by the
number of the line. The same item again is one, so repeating an input with --id is
safe; another item of an id that is there is refused, exit code 6.

Items go out by priority, then in their order, once they are due (--due) and those
that they come after are done (--after). One that nobody has by its --expires is dead.

With --configure nothing is read: settings of the queue that flags name are changed,
and the queue is made if it is not there. --serial is for the making alone.`,
		Example: cmdutil.Examples("printf 'docs\\nbinaries\\n' | tally enqueue build --id v1",
			"tally enqueue build release.json --whole --id release --after v1:1 --after v1:2 --priority 9",
			"tally enqueue build --configure --max-attempts 3 --lease 10m --on-empty hibernate", "jq -c '.[]' jobs.json | tally enqueue jobs --due 2h -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.says = cmd.Flags().Changed
			if err := q.check(args); err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.Open, func(s *store) error {
				if q.store, q.queue = s, args[0]; q.configure {
					return q.settle(cmd.Context())
				}
				return q.enqueue(cmd.Context(), args[1:])
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.due, "due", "", "not handed out before: how long from now, such as 90m, 24h or 7d, or a time")
	f.StringVar(&q.expires, "expires", "", "not handed out from then on: how long from now, or a time")
	f.StringArrayVar(&q.item.After, "after", nil, "id of an item that must be done first; may be repeated")
	f.IntVar(&q.item.Priority, "priority", 0, "0 to 9: the highest goes first")
	f.StringVar(&q.item.ID, "id", "", "id of the item; of several lines its beginning")
	f.StringVar(&q.item.Owner, "owner", "", "whose it is; with --configure, whose the queue is")
	f.BoolVar(&q.whole, "whole", false, "the whole input is one item")
	f.BoolVar(&q.configure, "configure", false, "change the queue's settings rather than to put items in:")
	f.DurationVar(&q.settings.Lease, "lease", 0, "how long an item is its worker's, unless that renews it (default 2m)")
	f.IntVar(&q.settings.MaxAttempts, "max-attempts", 0, "how often an item is tried, then it is dead (default 5)")
	f.BoolVar(&q.settings.Serial, "serial", false, "one item at a time, in the order of the log")
	f.StringVar(&q.settings.OnEmpty, "on-empty", "", "what a worker is told that finds nothing to do")
	f.Var(cli.OneOf(&q.settings.Dead, "dead", "hold", "pass"), "dead", "what a dead item is to those that come after it: hold (they wait) or pass")
	f.StringVar(&q.settings.Title, "title", "", "title of the queue")
	return cmd
}

// enqueuer puts items into a queue, or changes its settings.
type enqueuer struct {
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
func (q *enqueuer) check(args []string) error {
	for _, flag := range []string{"lease", "max-attempts", "serial", "on-empty", "dead", "title"} {
		if q.says(flag) && !q.configure {
			return cli.Usagef("--%s is a setting of the queue: it goes with --configure", flag)
		}
	}
	for _, flag := range []string{"due", "expires", "after", "priority", "id", "whole"} {
		if q.says(flag) && q.configure {
			return cli.Usagef("--%s is of items, and --configure puts none in", flag)
		}
	}
	if q.configure && len(args) > 1 {
		return cli.Usagef("--configure reads nothing: leave %q out", args[1])
	}
	if q.item.Priority < 0 || q.item.Priority > 9 {
		return cli.Usagef("--priority %d: want 0 to 9", q.item.Priority)
	}
	return nil
}

// queued is a line of enqueue with -o json.
type queued struct {
	Queue      string        `json:"queue"`
	ID         string        `json:"id"`
	Offset     events.Offset `json:"offset"`
	Durability string        `json:"durability"`
}

func (q *enqueuer) enqueue(ctx context.Context, args []string) (err error) {
	if q.item.DueAt, err = until(ctx, q.store, "due", q.due); err == nil {
		q.item.ExpiresAt, err = until(ctx, q.store, "expires", q.expires)
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
		err = q.app.Say("%s put into %s, each %s.", plain.Count(q.count, "item"), plain.Printable(cli.ID(q.queue)), q.store.now().Log.Durability())
	}
	if err == nil && q.bad > 0 {
		err = &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("%s did not go in", plain.Count(q.bad, "line"))}
	}
	return err
}

// refused says what became of an item that did not go in.
func (q *enqueuer) refused(err error) error {
	if exists, ok := errors.AsType[*tavern.ItemExistsError](err); ok {
		return &cli.CodeError{Code: cli.Conflict, Err: exists, Hint: fmt.Sprintf("%s queue%s %s %s shows it. %s went in before it.", cmdutil.Program(), q.app.StoreFlags(),
			cmdutil.Quoted(cli.ID(exists.Queue)), cmdutil.Quoted(cli.ID(exists.ID)), plain.Count(q.count, "item"))}
	}
	return err
}

// lines puts in an item for each line.
func (q *enqueuer) lines(ctx context.Context, args []string) error {
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

func (q *enqueuer) put(ctx context.Context, item tavern.Item) error {
	if item.ID == "" {
		item.ID = q.store.now().Log.NewID() // put in again it is one item
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
	return cli.WriteJSON(q.app.Out, format, queued{cli.ID(q.queue), cli.ID(item.ID), item.Offset, q.store.now().Log.Durability().String()})
}

// settle changes the settings that flags name, or makes the queue with them.
func (q *enqueuer) settle(ctx context.Context) error {
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

func (q *enqueuer) setOn(ctx context.Context, queue *tavern.Queue) error {
	for {
		have, err := queue.Settings(ctx)
		switch {
		case errors.Is(err, events.ErrNotFound):
			if err = queue.Create(ctx, q.settings); errors.Is(err, tally.ErrExists) {
				continue // it was made meanwhile
			}
			return err
		case err != nil:
			return err
		case q.says("serial") && q.settings.Serial != have.Serial:
			return cli.Usagef("the queue %q is serial or not from its beginning, and it is %s", cli.ID(q.queue), kindOf(have.Serial))
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

// over returns settings with what flags name taken from them.
func (q *enqueuer) over(have tavern.QueueSettings) tavern.QueueSettings {
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

// settingsRow is a queue's settings with -o json.
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

func (q *enqueuer) tell(s tavern.QueueSettings) error {
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
