package inspect

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/cmd/internal/show/job"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/stores/perstack"
)

func newJobs(a *cmdutil.App) *cobra.Command {
	var q catalog.JobQuery
	var status perstack.JobStatus
	cmd := &cobra.Command{
		Use: "jobs", Short: "List jobs of agents, the most recently started first", Args: cobra.NoArgs,
		Long: `List jobs of agents, the most recently started first. The list comes from the catalog, a
view that the owner of the store keeps up to date. If no process owns the store, it is
read without opening the store.

STEPS is the highest step number. TOKENS is the sum over the steps of all runs; if they
have no numbers, the number in the job, or a dash. A job that was never
stored itself, as in folders without job.json, has the status of its checkpoint with
the highest step.`,
		Example: cmdutil.Examples("tally jobs --status running", "tally jobs -o jsonl --limit 50", "tally show job/ID"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("limit") && cli.IsTerminal(a.Out) {
				q.Limit = firstPage
			}
			if q.Limit < 0 {
				return cli.Usagef("--limit %d: want a number from 0", q.Limit)
			}
			askFor(&q, status)
			return a.WithViews(cmd.Context(), []string{"catalog"}, func(c config.Config, v reads.Views) error {
				q.Namespace = c.Namespace
				return listJobs(cmd.Context(), a, v, q)
			})
		},
	}
	f := cmd.Flags()
	f.Var(cli.OneOf(&status, "status", perstack.JobStatuses...), "status", "only jobs with this status: running, completed, stoppedByMaxSteps, stoppedByInteractiveTool or stoppedByError")
	f.IntVar(&q.Limit, "limit", 0, "maximal number of jobs; 0 is all (default 100 on a terminal)")
	f.StringVar(&q.After, "after", "", "continue after a page: its value of next")
	return cmd
}

// askFor restricts a query to jobs with a status. An empty status selects all.
func askFor(q *catalog.JobQuery, status perstack.JobStatus) {
	if status == "" {
		return
	}
	q.Status, q.Stored = status.InSession(), status == perstack.JobRunning
	for _, reached := range append(perstack.CheckpointStatuses, "") {
		if reached.Job() == status {
			q.Reached = append(q.Reached, string(reached))
		}
	}
}

// listedJob is a job in a list.
type listedJob struct {
	Name string `json:"job"`
	catalog.Job
	Next string `json:"next,omitempty"` // only in the last job of a page: the value for --after
}

func listedJobOf(j catalog.Job) listedJob {
	id, _ := perstack.JobOfSession(j.ID)
	j.ID, j.Status = cli.ID(j.ID), jobStatus(j)
	return listedJob{Name: cli.ID(id), Job: j}
}

// jobStatus returns the status of a job: its own, else that of its checkpoints.
func jobStatus(j catalog.Job) string {
	switch {
	case j.Status != "":
		return cmp.Or(string(perstack.JobStatusOf(j.Status)), j.Status)
	case j.Stored:
		return string(perstack.JobRunning)
	}
	return string(perstack.CheckpointStatus(j.Reached).Job())
}

func listJobs(ctx context.Context, a *cmdutil.App, v reads.Views, q catalog.JobQuery) error {
	standing, err := v.Catalog.Standing(ctx)
	if err != nil {
		return err
	}
	found, next, err := v.Catalog.Jobs(ctx, q)
	if err != nil {
		return err
	}
	jobs := make([]listedJob, len(found))
	for i, j := range found {
		jobs[i] = listedJobOf(j)
	}
	if a.Format != cli.Text {
		if len(jobs) > 0 {
			jobs[len(jobs)-1].Next = next
		}
		return cli.WriteList(a.Out, a.Format, jobs)
	}
	if len(jobs) == 0 {
		return noJobs(a, q)
	}
	if err := a.Table(jobTable(jobs, a.Style())); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(a.Err, "there are more: --after %s\n", next)
	}
	a.AsOf(standing.Cursor)
	return nil
}

func noJobs(a *cmdutil.App, q catalog.JobQuery) error {
	if q.Status != "" || q.After != "" {
		fmt.Fprintln(a.Err, "No job matches.")
		return nil
	}
	fmt.Fprintln(a.Err, "There are no jobs yet. Try: tally import PATH, of a folder with perstack/jobs in it")
	return nil
}

func jobTable(jobs []listedJob, style cli.Style) render.Table {
	const name, status, steps, tokens, runs, started, finished = 0, 1, 2, 3, 4, 5, 6
	t := render.Table{
		Head:  []string{"JOB", "STATUS", "STEPS", "TOKENS", "RUNS", "STARTED", "FINISHED"},
		Right: []int{steps, tokens, runs}, Cut: []int{status, name}, Drop: []int{runs, finished, tokens, started, steps},
	}
	for _, j := range jobs {
		t.Rows = append(t.Rows, []string{j.Name, j.Status, strconv.FormatInt(j.Steps, 10), show.Tokens(j.Tokens), strconv.Itoa(j.Runs), cli.Minute(j.StartedAt), cli.Minute(j.FinishedAt)})
	}
	t.Paint = func(row, column int, cell string) string {
		switch column {
		case name:
			return cell
		case status:
			return job.PaintStatus(style, jobs[row].Status, cell)
		}
		return style.Dim(cell)
	}
	return t
}
