package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/web"
)

func newToken(a *cmdutil.App) *cobra.Command {
	f := &tokenFile{app: a}
	cmd := &cobra.Command{
		Use: "token", Short: "Make, list and remove tokens of the HTTP server",
		Long: `Make, list and remove tokens of the HTTP server, tally serve --http. A token is the right
to use one namespace. Its scopes say how: read; append; move, which is to rewind, undo,
redo and fork; admin, which is to delete documents; metrics.

The file has the hashes of the tokens alone, and nobody else can read it. The server
reads it again within a second after each change.`,
		Example: cmdutil.Examples("tally token new ci --scope append", "tally token new dashboard --scope read --namespace team --for 30d", "tally token ls", "tally token rm ci"),
	}
	cmd.AddCommand(newTokenNew(f), newTokenLs(f), newTokenRm(f))
	for _, verb := range cmd.Commands() {
		verb.Flags().StringVar(&f.path, "tokens", "", "file of tokens (default tokens in the folder of settings)")
	}
	return cmdutil.Noun(cmd)
}

// tokenFile is the file that the commands change.
type tokenFile struct {
	app  *cmdutil.App
	path string
}

// name returns the path of the file.
func (f *tokenFile) name() (string, error) {
	if f.path != "" {
		return f.path, nil
	}
	if path := tokensFile(); path != "" {
		return path, nil
	}
	return "", cli.Usagef("the home directory is unknown: name the file with --tokens")
}

// change replaces the lines of the file by those that edit returns. Two changes at a time follow each other.
func (f *tokenFile) change(ctx context.Context, edit func(list []web.Token, lines []string) ([]string, error)) error {
	path, err := f.name()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lock, err := locked(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	list, err := web.ReadTokens(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.Usagef("%w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines, err := edit(list, slices.Collect(strings.Lines(string(text))))
	if err != nil {
		return err
	}
	return durable.Replace(path, []byte(strings.Join(lines, "")), 0o600, durable.WithSync)
}

// locked takes a lock, and waits for it while another process has it.
func locked(ctx context.Context, path string) (*os.File, error) {
	for {
		lock, err := lockfile.Take(path)
		if !errors.Is(err, lockfile.ErrLocked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func newTokenNew(f *tokenFile) *cobra.Command {
	var scopes []string
	var lasts string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make a token and print it once", Args: cobra.ExactArgs(1),
		Long: `Make a token and print it. It is printed only now: the file has its hash. Events that
are appended with the token have its name as their actor.`,
		Example: cmdutil.Examples("tally token new ci --scope append", "tally token new dashboard --scope read,metrics --for 30d -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.app.Config()
			if err != nil {
				return err
			}
			text := web.NewText()
			t := web.Token{Name: args[0], Hash: web.HashOf(text), Namespace: c.Namespace}
			for _, s := range scopes {
				t.Scopes = append(t.Scopes, web.Scope(s))
			}
			if lasts != "" {
				now := time.Now()
				ago, err := cmdutil.When("for", lasts, now)
				if err != nil || !ago.Before(now) {
					return cli.Usagef("--for %q: want a time span such as 90m, 36h or 30d", lasts)
				}
				t.Expires = now.Add(now.Sub(ago)).Truncate(time.Second)
			}
			if err := web.CheckToken(t); err != nil {
				return cli.Usagef("%w", err)
			}
			if t.Name == "local" {
				return cli.Usagef("the name local is that of the token in the store's own directory")
			}
			err = f.change(cmd.Context(), func(list []web.Token, lines []string) ([]string, error) {
				if slices.ContainsFunc(list, func(o web.Token) bool { return o.Name == t.Name }) {
					return nil, &cli.CodeError{Code: cli.Conflict, Err: fmt.Errorf("there is a token %s", t.Name), Hint: "Remove it first: tally token rm " + t.Name}
				}
				if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
					lines[n-1] += "\n"
				}
				return append(lines, t.Line()+"\n"), nil
			})
			if err != nil {
				return err
			}
			if f.app.Format != cli.Text {
				row := rowOf(t)
				row.Token = text
				return cli.WriteJSON(f.app.Out, f.app.Format, row)
			}
			_, err = fmt.Fprintln(f.app.Out, text)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "rights of the token: read, append, move, admin and metrics, with commas between them")
	cmd.Flags().StringVar(&lasts, "for", "", "time span after which the token expires, such as 30d (default: never)")
	return cmd
}

// tokenRow is a token in the output.
type tokenRow struct {
	Name      string      `json:"name"`
	Namespace string      `json:"namespace"`
	Scopes    []web.Scope `json:"scopes"`
	Expires   string      `json:"expires,omitempty"`
	Token     string      `json:"token,omitempty"` // only when it is made
}

func rowOf(t web.Token) tokenRow {
	row := tokenRow{Name: t.Name, Namespace: t.Namespace, Scopes: t.Scopes}
	if !t.Expires.IsZero() {
		row.Expires = t.Expires.UTC().Format(time.RFC3339)
	}
	return row
}

func newTokenLs(f *tokenFile) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List tokens, without their texts", Args: cobra.NoArgs,
		Long:    `List the tokens of the file: names, namespaces, scopes, and when they expire.`,
		Example: cmdutil.Examples("tally token ls", "tally token ls -o json"),
		RunE: func(*cobra.Command, []string) error {
			path, err := f.name()
			if err != nil {
				return err
			}
			list, err := web.ReadTokens(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return cli.Usagef("%w", err)
			}
			rows := make([]tokenRow, len(list))
			table := render.Table{Head: []string{"NAME", "NAMESPACE", "SCOPES", "EXPIRES"}}
			for i, t := range list {
				rows[i] = rowOf(t)
				table.Rows = append(table.Rows, []string{t.Name, t.Namespace, strings.Trim(fmt.Sprint(t.Scopes), "[]"), rows[i].Expires})
			}
			if f.app.Format != cli.Text {
				return cli.WriteList(f.app.Out, f.app.Format, rows)
			}
			return f.app.Table(table)
		},
	}
}

func newTokenRm(f *tokenFile) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Remove a token, and end its streams", Args: cobra.ExactArgs(1),
		Long: `Remove a token from the file. A running server refuses it within a second, and ends its
streams.`,
		Example: cmdutil.Examples("tally token rm ci"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.change(cmd.Context(), func(list []web.Token, lines []string) ([]string, error) {
				if !slices.ContainsFunc(list, func(o web.Token) bool { return o.Name == args[0] }) {
					return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no token %s", args[0])}
				}
				return slices.DeleteFunc(lines, func(line string) bool {
					fields := strings.Fields(line)
					return len(fields) > 0 && fields[0] == args[0]
				}), nil
			})
		},
	}
}
