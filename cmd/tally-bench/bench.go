package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/team"
	"github.com/tallylog/tally/internal/layouts/redis"
	"github.com/tallylog/tally/internal/render"
)

// benched is the output of -o json.
type benched struct {
	Directory  string             `json:"directory"`
	FileSystem string             `json:"fileSystem"`
	TurnBytes  int                `json:"turnBytes"`
	Results    []measured         `json:"results"`
	Ratios     map[string]float64 `json:"ratios"` // of this run; above 1: tally is faster
}

// measured is the result of one way to write, with a number of producers that each wait for their acknowledgement.
type measured struct {
	What      string  `json:"what"`
	Producers int     `json:"producers"`
	PerSecond float64 `json:"perSecond"`
	P50       int64   `json:"p50Micros"`
	P99       int64   `json:"p99Micros"`
	P999      int64   `json:"p999Micros"`
	Appends   int     `json:"appends"`
	Parts     []part  `json:"parts,omitempty"` // the steps, if there are several
}

// part is the duration of one step.
type part struct {
	What string `json:"what"`
	P50  int64  `json:"p50Micros"`
	P99  int64  `json:"p99Micros"`
	P999 int64  `json:"p999Micros"`
}

func newBench(a *cmdutil.App) *cobra.Command {
	b := &bencher{app: a}
	cmd := &cobra.Command{
		Use: "tally-bench", Short: "Measure appends on this disk, and the server and the disk alone", Args: cobra.NoArgs,
		Long: `Measure durable and buffered appends of 512-byte turns and, in the same run, the server and
the disk alone: JetStream with and without a sync of every message, SQLite with a row in each
commit, and single writes with fdatasync. Then 64 producers beside one that appends a hundred
events at a time, and 16 producers beside the copy of a large file.

--documents measures documents instead: updates, and transactions over three of them, in a
store with its views; beside it SQLite and a key-value bucket of JetStream, both with a sync
of each update. Then reads of the newest revision of one and of ten thousand, a page of a
hundred thousand documents, and the time until a watcher sees a change.

--queue measures queues instead: workers add, claim and finish items of 512 bytes, and each
step is durable; beside it rows of SQLite and a work queue of JetStream, both with a sync of
each step. Then the time from the acknowledgement of an item until tally queue work has
started a process for it, also while a thousand other sessions get a turn a second. -o json
includes the time of each step.

--views measures tally append instead, as processes use it: 512 events in flight, in a store
with all its views; beside it rows of SQLite with the same unique keys and a full-text index,
512 in each durable transaction. --sessions sets the numbers of sessions, --each the events
of each, --order the order of the sessions: in turn, one after the other, or at random. The
ids of the events are random, or with --ids named a session and a number. Each number runs in a process of its own. The CPU of
an event counts all work until the views have caught up. Then follow the lag of each view at
the last acknowledgement, and the CPU of the minute after it. --cpu adds a profile: the CPU
of an event by its owner, such as a view or the server.

--redis adds a stream and a list of a Redis server, with appendfsync always and everysec. The
server's settings are restored. An append-only file that the run created stays. --postgres,
or PGHOST in the environment, adds a PostgreSQL server that commits each row; its tables are
dropped at the end. All other files are in a new folder below --dir, which is removed at the
end.

The ratios compare figures of one run. Use medians of several runs on an idle machine.`,
		Example: cmdutil.Examples("tally-bench", "tally-bench --seconds 60 -o json", "tally-bench --dir /srv --producers 1,16", "tally-bench --documents --producers 1,16,64",
			"tally-bench --views --sessions 50,100000 --cpu", "tally-bench --queue --producers 1,16,64 --redis redis://127.0.0.1:6379"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	cmd.Flags().IntVar(&b.seconds, "seconds", 20, "approximate duration of the run")
	cmd.Flags().IntSliceVar(&b.producers, "producers", []int{1, 16, 64, 256}, "numbers of producers")
	cmd.Flags().StringVar(&b.dir, "dir", ".", "directory on the disk to measure")
	cmd.Flags().BoolVar(&b.documents, "documents", false, "measure documents instead of turns")
	cmd.Flags().BoolVar(&b.queue, "queue", false, "measure work queues instead of turns")
	cmd.Flags().StringVar(&b.redis, "redis", "", "URL of a Redis server on the same disk, to compare queues with; its settings are changed meanwhile")
	cmd.Flags().StringVar(&b.postgres, "postgres", "", "URL of a PostgreSQL server on the same disk, to compare with")
	cmd.Flags().BoolVar(&b.views, "views", false, "measure tally append with all views, and many sessions")
	cmd.Flags().IntSliceVar(&b.many.sizes, "sessions", []int{50, 100_000, 1_000_000}, "numbers of sessions, with --views")
	cmd.Flags().IntVar(&b.many.Each, "each", 0, "events of a session, with --views (default 100,000 events in all, at least 2 a session)")
	cmd.Flags().StringVar(&b.many.Order, "order", inTurn, "order of the sessions, with --views: turn, seq or random")
	cmd.Flags().StringVar(&b.many.IDs, "ids", freshIDs, "ids of the events, with --views: fresh or named")
	cmd.Flags().DurationVar(&b.many.rest, "rest", time.Minute, "with --views, how long to measure the CPU after the last acknowledgement")
	cmd.Flags().BoolVar(&b.many.split, "cpu", false, "with --views, split the CPU of an event by owner")
	cmd.AddCommand(worker(a), sessionCommand(a))
	return cmd
}

// worker returns the command queue of tally. startWork runs queue work in a process of its own.
func worker(a *cmdutil.App) *cobra.Command {
	verbs := team.Commands(a)
	work := verbs[slices.IndexFunc(verbs, func(verb *cobra.Command) bool { return verb.Name() == workNoun })]
	work.Hidden = true
	return work
}

type bencher struct {
	app       *cmdutil.App
	seconds   int
	producers []int
	dir       string
	postgres  string
	redis     string
	documents bool
	queue     bool
	views     bool
	many      sessionBench
}

func (b *bencher) run(ctx context.Context) (err error) {
	if b.seconds < 1 || slices.ContainsFunc(b.producers, func(n int) bool { return n < 1 || n > 4096 }) || len(b.producers) == 0 {
		return cli.Usagef("want --seconds of at least 1, and --producers from 1 to 4096")
	}
	if b.documents && b.queue || b.views && (b.documents || b.queue) {
		return cli.Usagef("use one of --documents, --queue and --views")
	}
	if b.redis != "" && !b.queue {
		return cli.Usagef("--redis needs --queue")
	}
	if err := redis.CheckURL(b.redis); b.redis != "" && err != nil {
		return cli.Usagef("--redis: %w", err)
	}
	if err := b.many.check(); err != nil {
		return err
	}
	cmdutil.CollectLess() // as serve does
	dir, err := os.MkdirTemp(b.dir, ".tally-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if b.views {
		return b.runSessions(ctx, dir)
	}
	doc := benched{Directory: b.dir, FileSystem: fileSystem(dir), TurnBytes: benchTurn, Ratios: make(map[string]float64)}
	steps := b.steps(dir)
	switch {
	case b.documents:
		steps = b.documentSteps(dir)
	case b.queue:
		steps = b.queueSteps(dir)
	}
	each := time.Duration(b.seconds) * time.Second / time.Duration(len(steps))
	progress := cli.NewProgress(b.app.Err, b.app.Progress, "measuring")
	for i, s := range steps {
		progress.At(int64(i+1), int64(len(steps)), s.what)
		found, err := s.run(ctx, each)
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		doc.Results = append(doc.Results, found...)
	}
	progress.Done(int64(len(steps)), "")
	doc.compare()
	if b.app.Format != cli.Text {
		return cli.WriteJSON(b.app.Out, b.app.Format, doc)
	}
	return b.table(doc)
}

// step is a part of the benchmark.
type step struct {
	what string
	run  func(ctx context.Context, d time.Duration) ([]measured, error)
}

// one returns a step with one measurement.
func one(what string, producers int, run func(context.Context, time.Duration) (measured, error)) step {
	return step{what, func(ctx context.Context, d time.Duration) ([]measured, error) {
		m, err := run(ctx, d)
		m.What, m.Producers = what, producers
		return []measured{m}, err
	}}
}

func (b *bencher) steps(dir string) []step {
	steps := []step{one(whatDisk, 1, func(ctx context.Context, d time.Duration) (measured, error) { return writeAndSync(ctx, dir, d) })}
	for _, n := range b.producers {
		for _, way := range ways {
			steps = append(steps, one(way.what, n, func(ctx context.Context, d time.Duration) (measured, error) { return way.run(ctx, dir, n, d) }))
		}
		if b.postgres != "" || os.Getenv("PGHOST") != "" {
			steps = append(steps, one(whatPostgres, n, func(ctx context.Context, d time.Duration) (measured, error) {
				return postgresCommits(ctx, b.postgres, n, d)
			}))
		}
	}
	return append(steps,
		step{whatBatching, func(ctx context.Context, d time.Duration) ([]measured, error) { return besideBatches(ctx, dir, d) }},
		step{whatBesideCopy, func(ctx context.Context, d time.Duration) ([]measured, error) { return besideCopy(ctx, dir, d) }})
}

// compare computes the ratios.
func (d *benched) compare() {
	rate := make(map[string]float64)
	for _, m := range d.Results {
		rate[fmt.Sprintf("%s/%d", m.What, m.Producers)] = m.PerSecond
	}
	for _, m := range d.Results {
		other := map[string]string{whatDurable: whatSyncAlways, whatBuffered: whatAsync}[m.What]
		if raw := rate[fmt.Sprintf("%s/%d", other, m.Producers)]; raw > 0 {
			d.Ratios[fmt.Sprintf("%s / %s, %d", m.What, other, m.Producers)] = m.PerSecond / raw
		}
		for _, peer := range []string{whatSQLiteUpdates, whatPostgresUpdates, whatBucketUpdates, whatTransactions} {
			if of := rate[fmt.Sprintf("%s/%d", peer, m.Producers)]; m.What == whatUpdates && of > 0 {
				d.Ratios[fmt.Sprintf("%s / %s, %d", m.What, peer, m.Producers)] = m.PerSecond / of
			}
		}
		for _, peer := range itemPeers {
			if of := rate[fmt.Sprintf("%s/%d", peer, m.Producers)]; m.What == whatItems && of > 0 {
				d.Ratios[fmt.Sprintf("%s / %s, %d", m.What, peer, m.Producers)] = m.PerSecond / of
			}
		}
		if of := rate[whatNewestOfMany+"/1"]; m.What == whatNewestOfOne && of > 0 {
			d.Ratios[whatNewestOfOne+" / "+whatNewestOfMany] = m.PerSecond / of
		}
		for _, rows := range []string{whatPostgres, whatSQLite} {
			if raw := rate[fmt.Sprintf("%s/%d", rows, m.Producers)]; m.What == whatDurable && raw > 0 {
				d.Ratios[fmt.Sprintf("%s / %s, %d", m.What, rows, m.Producers)] = m.PerSecond / raw
			}
		}
		if m.What == whatDurable && m.Producers == 1 && rate[whatDisk+"/1"] > 0 {
			d.Ratios[whatDurable+" / "+whatDisk+", 1"] = m.PerSecond / rate[whatDisk+"/1"]
		}
	}
}

func (b *bencher) table(d benched) error {
	slices.SortStableFunc(d.Results, func(x, y measured) int { return cmp.Compare(x.What, y.What) })
	rates := render.Table{Head: []string{"WHAT", "PRODUCERS", "PER SECOND", "P50", "P99", "P99.9"}, Right: []int{1, 2, 3, 4, 5}, Cut: []int{0}, Drop: []int{5, 3, 4}}
	for _, m := range d.Results {
		rates.Rows = append(rates.Rows, []string{m.What, strconv.Itoa(m.Producers), fmt.Sprintf("%.0f", m.PerSecond), micros(m.P50), micros(m.P99), micros(m.P999)})
	}
	return errors.Join(b.app.Say("%s, %s, turns of %d bytes\n", d.Directory, d.FileSystem, d.TurnBytes), b.app.Table(rates), b.app.Say(""), b.app.Table(ratioTable(d.Ratios)))
}

func ratioTable(ratios map[string]float64) render.Table {
	t := render.Table{Head: []string{"RATIO", "OF"}, Right: []int{0}, Cut: []int{1}}
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%.2f", ratios[name]), name})
	}
	return t
}

func micros(n int64) string { return (time.Duration(n) * time.Microsecond).String() }
