package team

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newTranscript(a *cmdutil.App) *cobra.Command {
	return cmdutil.Noun(&cobra.Command{
		Use: "transcript", Short: "Read the session files of Claude Code directly, without a store",
		Long: `Read the session files of Claude Code directly, in $CLAUDE_CONFIG_DIR or ~/.claude. Nothing
is imported, no store is opened, and nothing is written. Standard error names the file.

To see a session that the store has recorded, use tally show.`,
		Example: cmdutil.Examples("tally transcript ls", "tally transcript show --cwd . last"),
	}, cmdutil.Paged(newTranscriptLs(a), newTranscriptShow(a))...)
}

func newTranscriptLs(a *cmdutil.App) *cobra.Command {
	r := &reader{app: a}
	cmd := &cobra.Command{
		Use: "ls [DIR]", Short: "List the projects of Claude Code, or the sessions of one", Args: cobra.MaximumNArgs(1),
		Long: `List the projects of Claude Code, or the sessions of one, the latest active first. DIR is the
directory of the project, or the name of its folder below ~/.claude/projects.`,
		Example: cmdutil.Examples("tally transcript ls", "tally transcript ls --cwd .", "tally transcript ls ~/shop -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.from = tavern.TranscriptsOf("")
			args, err := r.inProject(args, 1)
			switch {
			case err != nil:
				return err
			case len(args) == 0:
				return r.projects(cmd.Context())
			}
			list, err := r.sessions(cmd.Context(), args[0])
			if err != nil && len(list) == 0 {
				return err
			}
			return errors.Join(r.list(list, args[0]), r.partly(err))
		},
	}
	cmd.Flags().StringVar(&r.cwd, "cwd", "", "the project of this directory")
	return cmd
}

func newTranscriptShow(a *cmdutil.App) *cobra.Command {
	r := &reader{app: a}
	cmd := &cobra.Command{
		Use: "show [DIR] SESSION", Short: "Show the messages of a session of Claude Code", Args: cobra.RangeArgs(1, 2),
		Long: `Show the messages of a session of Claude Code. SESSION is its id, a beginning of the id, or
last for the session of the project that was active last.`,
		Example: cmdutil.Examples("tally transcript show --cwd . last", "tally transcript show ~/shop 5c1a7e3e -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.from = tavern.TranscriptsOf("")
			args, err := r.inProject(args, 2)
			if err == nil && len(args) == 1 {
				err = cli.Usagef("want the project's DIR before the SESSION, or --cwd")
			}
			if err != nil {
				return err
			}
			list, err := r.sessions(cmd.Context(), args[0])
			if err != nil && len(list) == 0 {
				return err
			}
			s, err := sessionNamed(list, args[1])
			if err != nil {
				return err
			}
			return r.show(cmd.Context(), s)
		},
	}
	cmd.Flags().StringVar(&r.cwd, "cwd", "", "the project of this directory")
	return cmd
}

// reader reads the files of the vendor.
type reader struct {
	app  *cmdutil.App
	from *tavern.Transcripts
	cwd  string
}

// inProject returns the arguments with the directory of --cwd in front, which must then be at most n.
func (r *reader) inProject(args []string, n int) ([]string, error) {
	if r.cwd == "" {
		return args, nil
	}
	if len(args) == n {
		return nil, cli.Usagef("--cwd replaces DIR: leave %q out", args[0])
	}
	return append([]string{r.cwd}, args...), nil
}

// partly prints an error after the readable part was shown, and returns exit code 3.
func (r *reader) partly(err error) error {
	if err == nil {
		return nil
	}
	fmt.Fprintln(r.app.Err, plain.Printable(err.Error()))
	return cli.Silent(cli.Partial)
}

// direct prints the file that is shown.
func (r *reader) direct(file string) {
	fmt.Fprintln(r.app.Err, strings.TrimSpace(tavern.DirectFile+" "+plain.Printable(file)))
}

// projectRow is a project in JSON.
type projectRow struct {
	Project  string           `json:"project"`
	Key      string           `json:"key"`
	Guessed  bool             `json:"guessed,omitempty"`
	Sessions int              `json:"sessions"`
	LastAt   events.Timestamp `json:"lastAt,omitempty"`
	From     string           `json:"from"`
}

func (r *reader) projects(ctx context.Context) error {
	list, failed := r.from.Projects(ctx)
	if failed != nil && len(list) == 0 {
		return failed
	}
	rows := make([]projectRow, len(list))
	t := render.Table{Head: []string{"PROJECT", "SESSIONS", "ACTIVE", "FOLDER"}, Right: []int{1}, Cut: []int{3, 0}, Drop: []int{3}}
	for i, p := range list {
		rows[i] = projectRow{cli.ID(p.Path), cli.ID(p.Key), p.Guessed, p.Sessions, stamp(p.LastAt), tavern.DirectFile}
		name := p.Path
		if p.Guessed {
			name += " ?"
		}
		t.Rows = append(t.Rows, []string{name, strconv.Itoa(p.Sessions), cli.Minute(stamp(p.LastAt)), p.Key})
	}
	switch {
	case r.app.Format != cli.Text:
		return errors.Join(cli.WriteList(r.app.Out, r.app.Format, rows), r.partly(failed))
	case len(list) == 0:
		fmt.Fprintln(r.app.Err, "Claude Code has no sessions here.")
		return nil
	}
	r.direct("")
	return errors.Join(r.app.Table(t), r.partly(failed))
}

// sessions lists the sessions of a project, which is named by its directory or by the name of its folder.
func (r *reader) sessions(ctx context.Context, project string) ([]tavern.StoredSession, error) {
	if !strings.ContainsRune(project, os.PathSeparator) {
		if list, err := r.from.SessionsIn(ctx, project); len(list) > 0 || err != nil {
			return list, err
		}
	}
	dir, err := filepath.Abs(project)
	if err != nil {
		return nil, err
	}
	list, err := r.from.Sessions(ctx, dir)
	if len(list) == 0 && err == nil {
		err = &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("no session of %s in the files of Claude Code", dir), Hint: cmdutil.Program() + " transcript ls lists its projects."}
	}
	return list, err
}

// sessionNamed returns the session that a word names.
func sessionNamed(list []tavern.StoredSession, name string) (s tavern.StoredSession, err error) {
	var found []tavern.StoredSession
	for _, s := range list {
		if s.ID == name || name == cmdutil.Last {
			return s, nil
		}
		if strings.HasPrefix(s.ID, name) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return s, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no session %q of that project", name), Hint: cmdutil.Program() + " transcript ls DIR lists its sessions."}
	case 1:
		return found[0], nil
	}
	return s, cli.Usagef("%q names %d sessions", name, len(found))
}

// transcriptRow is a session in JSON.
type transcriptRow struct {
	Session   string           `json:"session"`
	Project   string           `json:"project,omitempty"`
	Key       string           `json:"key"`
	File      string           `json:"file"`
	Summary   string           `json:"summary,omitempty"`
	GitBranch string           `json:"gitBranch,omitempty"`
	CreatedAt events.Timestamp `json:"createdAt,omitempty"`
	LastAt    events.Timestamp `json:"lastAt,omitempty"`
	Messages  int              `json:"messages"`
	Lines     int              `json:"lines"`
	Corrupt   int              `json:"corrupt,omitempty"`
	TooLong   int              `json:"tooLong,omitempty"`
	From      string           `json:"from"`
}

func transcriptRowOf(s tavern.StoredSession) transcriptRow {
	return transcriptRow{cli.ID(s.ID), cli.ID(s.Project), cli.ID(s.Key), cli.ID(s.File), s.Summary, s.GitBranch, stamp(s.CreatedAt), stamp(s.LastAccessedAt), s.Messages, s.Lines, s.Corrupt, s.TooLong, s.From}
}

func (r *reader) list(list []tavern.StoredSession, project string) error {
	if r.app.Format != cli.Text {
		rows := make([]transcriptRow, len(list))
		for i, s := range list {
			rows[i] = transcriptRowOf(s)
		}
		return cli.WriteList(r.app.Out, r.app.Format, rows)
	}
	if len(list) == 0 {
		fmt.Fprintf(r.app.Err, "Claude Code has no sessions of %s.\n", plain.Printable(project))
		return nil
	}
	r.direct(filepath.Dir(list[0].File))
	t := render.Table{Head: []string{"SESSION", "MESSAGES", "ACTIVE", "BRANCH", "SUMMARY"}, Right: []int{1}, Cut: []int{4, 3, 0}, Drop: []int{3, 2}}
	for _, s := range list {
		t.Rows = append(t.Rows, []string{s.ID, strconv.Itoa(s.Messages), cli.Minute(stamp(s.LastAccessedAt)), s.GitBranch, s.Summary})
	}
	return r.app.Table(t)
}

// lineRow is a message of a transcript in JSON.
type lineRow struct {
	ID     string           `json:"id"`
	Parent string           `json:"parent,omitempty"`
	Role   string           `json:"role"`
	Time   events.Timestamp `json:"time,omitempty"`
	Text   string           `json:"text"`
	Raw    events.Raw       `json:"raw"` // the vendor's line
}

func (r *reader) show(ctx context.Context, s tavern.StoredSession) error {
	r.direct(s.File)
	if left := s.Corrupt + s.TooLong; left > 0 {
		fmt.Fprintf(r.app.Err, "lines that cannot be read and are left out: %d\n", left)
	}
	if r.app.Format != cli.Text {
		return r.write(ctx, s)
	}
	p := &agentPage{app: r.app, width: cli.Width(r.app.Out), style: r.app.Style()}
	p.head(s.ID, s.Summary, s.GitBranch, plain.Count(s.Messages, "message"))
	p.field("project", s.Project)
	var calls render.Calls
	for m, err := range r.from.Messages(ctx, s) {
		if err != nil {
			return err
		}
		p.line("")
		p.line(p.style.Dim(render.Cut(m.Role+"  "+string(stamp(m.Timestamp)), p.width)))
		for _, l := range calls.Turn(projector.Turn{Raw: m.Raw}) {
			p.said(l)
		}
	}
	return p.err
}

// said prints one part of a message. The input and the result of a tool take one line each.
func (p *agentPage) said(l render.Line) {
	const indent = 13
	width := render.Beyond(indent, p.width)
	texts := render.Wrap(l.Text, width)
	if l.Role == "call" || l.Role == "result" || l.Thought {
		texts = []string{render.Cut(l.Text, render.Excerpt(width))}
	}
	role := fmt.Sprintf("  %-*s", indent-2, render.Cut(l.Role, indent-3))
	for i, text := range texts {
		if i > 0 {
			role = strings.Repeat(" ", indent)
		}
		p.line(strings.TrimRight(role+text, " "))
	}
}

func (r *reader) write(ctx context.Context, s tavern.StoredSession) error {
	list := cli.NewList(r.app.Out, r.app.Format)
	for m, err := range r.from.Messages(ctx, s) {
		if err == nil {
			err = list.Add(lineRow{m.ID, m.ParentID, m.Role, stamp(m.Timestamp), m.Content, m.Raw})
		}
		if err != nil {
			return err
		}
	}
	return list.Close()
}
