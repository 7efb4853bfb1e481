package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
)

func newSources(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "sources [AGENT|PATH]...", Short: "List the folders of agents, and how much of each is recorded",
		Args: cobra.ArbitraryArgs, ValidArgsFunction: offerAgents,
		Long: `List the folders in which agents keep sessions on this machine, with the number of sessions,
the number of recorded ones, the bytes that are not recorded, and whether a watch runs.
Nothing is changed. tally watch follows the same folders.

A line counts as recorded whether tally watch or tally import stored it.`,
		Example: cmdutil.Examples("tally sources", "tally sources claude", "tally sources -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			locations, err := locationsOf(args, c, wish{routing: c.Routing(), redact: true}, os.Getenv)
			if err != nil {
				return err
			}
			sayLinks(a, locations)
			var list []source
			err = a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				for _, p := range locations {
					if p.isMissing {
						continue
					}
					known, err := knownOf(cmd.Context(), st, c, p)
					if err != nil {
						return err
					}
					s, err := sourceOf(cmd.Context(), st, p, known, c.Routing())
					if err != nil {
						return err
					}
					s.Watched = isWatched(c, p.namespace)
					list = append(list, s)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return saySources(a, list)
		},
	}
}

// source is a row of sources, for one location.
type source struct {
	Agent     string `json:"agent"`
	Root      string `json:"root"`
	Below     string `json:"below,omitempty"` // only this part of the folder
	Namespace string `json:"namespace"`
	Sessions  int    `json:"sessions"`
	Files     int    `json:"files"`
	Bytes     int64  `json:"bytes"`
	Stored    int    `json:"stored"` // sessions with lines in the store
	Whole     int    `json:"whole"`  // sessions with all lines in the store
	Lag       int64  `json:"lag"`    // bytes that are not in the store, without compressed files
	Packed    int    `json:"packed"` // compressed files
	Changed   string `json:"changed,omitempty"`
	Watched   bool   `json:"watched"` // a watch follows it
}

// knownOf returns the progress that watches saved for a location, if it belongs to this store.
func knownOf(ctx context.Context, st *tally.Store, c config.Config, p location) (map[string]tail.Known, error) {
	name := stateName(c, p.namespace)
	lock, err := os.Open(name + ".lock")
	if name == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	a, err := anchored(lock)
	if err != nil {
		return nil, nil // another process holds the lock; the log has the same facts
	}
	holds, err := a.holds(ctx, st.Log)
	if !holds || err != nil {
		return nil, err
	}
	roots, err := tail.ReadState(stateFile(c, &locationGroup{namespace: p.namespace, redact: p.redact}))
	return roots[p.id()], err
}

// sourceOf compares the files of a location with the store.
func sourceOf(ctx context.Context, st *tally.Store, p location, known map[string]tail.Known, routing config.Routing) (source, error) {
	h := p.look(time.Time{})
	s := source{Agent: p.Agent.Name(), Root: p.Root, Below: p.Below, Namespace: p.namespace, Files: len(h.files), Bytes: h.bytes}
	h.read(p)
	s.Sessions = len(h.bySession())
	if !h.changed.IsZero() {
		s.Changed = h.changed.UTC().Format(time.RFC3339)
	}
	for session, files := range h.bySession() {
		ends := make(map[string]int64)
		for _, f := range files { // a file that was read to its end needs no look at the log
			if k, ok := known[f.Name]; ok && k.Offset == f.size && k.Size == f.size {
				ends[f.Stem] = k.Offset
			}
		}
		if len(ends) < len(files) {
			var err error
			if ends, err = endsOf(ctx, st.Log, p, p.subject(session, files, routing), files); err != nil {
				return s, err
			}
			if len(ends) == 0 { // it may be older than its project's namespace
				if ends, err = endsOf(ctx, st.Log, p, events.Session(p.namespace, session), files); err != nil {
					return s, err
				}
			}
		}
		lag := int64(0)
		for _, f := range files {
			if f.packed {
				s.Packed++
				continue
			}
			lag += max(0, f.size-ends[f.Stem])
		}
		s.Lag += lag
		if len(ends) > 0 {
			s.Stored++
			if lag == 0 {
				s.Whole++
			}
		}
	}
	return s, nil
}

// subject returns the subject of a session, by its files.
func (l location) subject(session string, files []onDisk, routing config.Routing) events.Subject {
	namespace := ""
	for _, f := range files {
		if f.packed {
			continue
		}
		cwd := ingest.CWDOf(l.Agent, f.File, beginning(filepath.Join(l.Root, filepath.FromSlash(f.Name))))
		if namespace, _, _ = l.route(routing, cwd); cwd != "" { // the reader of the file reports an error
			break
		}
	}
	return events.Session(cmp.Or(namespace, l.namespace), session)
}

// backReader is a log that can be read backwards.
type backReader interface {
	ingest.Reader
	ReadBack(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
}

// enough is the number of records of a session that are read from its end before the session is read from the
// beginning.
const enough = 200

// endsOf returns the recorded length of each file of a session, by stem. The last records nearly always have it.
func endsOf(ctx context.Context, src backReader, p location, sub events.Subject, files []onDisk) (map[string]int64, error) {
	ends := make(map[string]int64)
	n := 0
	for rec, err := range src.ReadBack(ctx, events.Range{Subject: sub}) {
		if err != nil {
			break // reading from the beginning reports the error
		}
		if name, end, ok := lineAt(rec); ok {
			stem := stemOf(p, name, files)
			if _, known := ends[stem]; !known && stem != "" { // the newest record has the present length
				ends[stem] = end
			}
		}
		if n++; len(ends) == len(files) || n == enough {
			break
		}
	}
	if len(ends) == len(files) || n < enough {
		return ends, nil
	}
	kept, err := ingest.Files(ctx, src, p.Agent, sub)
	for _, k := range kept {
		ends[k.Stem] = k.Size
	}
	return ends, err
}

// lineAt returns the file of a record's line, and the end of the line in it.
func lineAt(rec events.Record) (name string, end int64, ok bool) {
	text := rec.Extensions[extLine]
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return "", 0, false
	}
	from, length, _ := strings.Cut(text[at+1:], "+")
	start, err := strconv.ParseInt(from, 10, 64)
	n, err2 := strconv.ParseInt(length, 10, 64)
	return text[:at], start + n, err == nil && err2 == nil
}

// stemOf returns the stem of a file, which may have had another name when the line was stored; "" if it is unknown.
func stemOf(p location, name string, files []onDisk) string {
	for _, f := range files {
		if f.Name == name {
			return f.Stem
		}
	}
	f, _ := p.Agent.File(name, nil)
	return f.Stem
}

func saySources(a *cmdutil.App, list []source) error {
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, cli.NonNil(list))
	}
	t := render.Table{Head: []string{"AGENT", "FOLDER", "SESSIONS", "BYTES", "IN THE STORE", "TO READ", "CHANGED", "WATCH"},
		Right: []int{2, 3, 4, 5}, Cut: []int{1}, Drop: []int{6, 3}}
	watched := slices.ContainsFunc(list, func(s source) bool { return s.Watched })
	for _, s := range list {
		runs := "-"
		if s.Watched {
			runs = "runs"
		}
		changed, _, _ := strings.Cut(strings.Replace(s.Changed, "T", " ", 1), "Z")
		folder := tilde(filepath.Join(s.Root, filepath.FromSlash(s.Below)))
		t.Rows = append(t.Rows, []string{s.Agent, folder, strconv.Itoa(s.Sessions), plain.Bytes(s.Bytes), strconv.Itoa(s.Stored), plain.Bytes(s.Lag), changed, runs})
	}
	if err := a.Table(t); err != nil || watched {
		return err
	}
	_, err := fmt.Fprintf(a.Out, "\nNext:\n  %s watch%s\n", cmdutil.Program(), a.StoreFlags())
	return err
}
