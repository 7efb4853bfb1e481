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

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// status is the output of status.
type status struct {
	Head       events.Offset          `json:"head"`
	Durable    events.Offset          `json:"durable"`           // records up to here survive a power cut
	Lost       int                    `json:"lost"`              // number of records that are known to be lost
	Damaged    []events.Offset        `json:"damaged,omitempty"` // their offsets, as far as known
	Sessions   int                    `json:"sessions"`
	Documents  int                    `json:"documents"`
	Namespace  string                 `json:"namespace"`
	Backend    string                 `json:"backend"`
	Store      string                 `json:"store,omitempty"`
	Owner      *ownerStatus           `json:"owner,omitempty"` // nil if no other process owns the store
	Bytes      int64                  `json:"bytes,omitempty"`
	LogBytes   int64                  `json:"logBytes,omitempty"`
	FreeBytes  uint64                 `json:"freeBytes,omitempty"`
	Replicas   []replicaStatus        `json:"replicas,omitempty"` // servers of others that keep the log
	Snapshots  int                    `json:"snapshots"`
	Durability string                 `json:"durability"`
	Refused    string                 `json:"refused,omitempty"` // why appends are refused at the moment
	Quota      []usage                `json:"quota"`             // live documents of the store, and of scopes with a limit
	Views      []viewStatus           `json:"views"`
	Trees      []cmdutil.TreeStatus   `json:"trees"`   // trees in the configuration
	Daemons    []cmdutil.DaemonStatus `json:"daemons"` // background workers on this machine
}

type ownerStatus struct {
	PID int    `json:"pid"`
	URL string `json:"url"`
}

// replicaStatus is a server that keeps a copy of the log.
type replicaStatus struct {
	Server      string  `json:"server"`
	Leader      bool    `json:"leader"`
	Current     bool    `json:"current"`
	Offline     bool    `json:"offline"`
	Lag         uint64  `json:"lag"` // operations
	SeenSeconds float64 `json:"seenSeconds"`

	replica log.Replica
}

// viewStatus is how far a view is behind the durable end of the log.
type viewStatus struct {
	View        string             `json:"view"`
	Offset      events.Offset      `json:"offset"`
	Event       string             `json:"event,omitempty"`
	Updated     string             `json:"updated,omitempty"`
	LagEvents   uint64             `json:"lagEvents"`
	LagSeconds  float64            `json:"lagSeconds"`      // age of the first event that the view does not show
	Error       string             `json:"error,omitempty"` // why the view cannot be read
	Quarantined []quarantineStatus `json:"quarantined"`

	// Of views that programs bring.
	Version int  `json:"version,omitempty"`
	Kept    bool `json:"kept,omitempty"`   // a program keeps it
	Keeper  int  `json:"keeper,omitempty"` // its process id
	own     bool
}

type quarantineStatus struct {
	Subject string        `json:"subject"`
	Offset  events.Offset `json:"offset"`
	Reason  string        `json:"reason"`
}

func newStatus(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show where the store is, its content, and how far its views are", Args: cobra.NoArgs,
		Long: `Show where the store is, its content, and how far its views are: the end of the
log and its durable part, the lag of each view, sessions in quarantine, trees, background
workers, and disk space. Nothing is changed. A view that is behind catches up when a
command opens the store. The exit code is 5 if records are lost, 6 if a tree waits for a
decision about a mass change, and 7 if appends are refused, as on a full disk.`,
		Example: cmdutil.Examples("tally status", "tally status -o json", "tally status --namespace other"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			return a.WithStillLook(cmd.Context(), func(st *tally.Store) error {
				s, err := statusOf(cmd.Context(), c, st)
				if err != nil {
					return err
				}
				s.Owner = ownerOf(c)
				if a.Format != cli.Text {
					err = cli.WriteJSON(a.Out, a.Format, s)
				} else {
					_, err = fmt.Fprint(a.Out, s.text(cli.Width(a.Out)))
				}
				if code := codeOf(s.findings()); err == nil && code != cli.OK {
					err = cli.Silent(code)
				}
				return err
			})
		},
	}
}

// findings returns the problems of a status. Doctor reports the same ones.
func (s status) findings() []finding {
	x := &examination{}
	if s.Lost > 0 {
		first := events.Offset(0)
		if len(s.Damaged) > 0 {
			first = s.Damaged[0]
		}
		x.lost(s.Lost, first)
	}
	for _, t := range s.Trees {
		x.tree(t)
	}
	if s.Refused != "" {
		x.bad("appends", cli.Unreachable, s.Refused, "")
	}
	return slices.DeleteFunc(x.findings, func(f finding) bool { return f.Level != problem })
}

// ownerOf returns the process that owns a local store, or nil if it is this one.
func ownerOf(c config.Config) *ownerStatus {
	if c.Backend != config.Local {
		return nil
	}
	pid, url := storedir.OwnerOf(c.Store)
	if pid == 0 || pid == os.Getpid() {
		return nil
	}
	return &ownerStatus{pid, url}
}

// offsets lists a few of many offsets.
func offsets(list []events.Offset) string {
	const limit = 8
	names := make([]string, min(len(list), limit))
	for i := range names {
		names[i] = list[i].String()
	}
	text := strings.Join(names, ", ")
	if len(list) > limit {
		text += ", ..."
	}
	return text + "; tally verify lists all"
}

func statusOf(ctx context.Context, c config.Config, st *tally.Store) (status, error) {
	s := status{Namespace: c.Namespace, Backend: c.Backend, Durability: st.Log.Durability().String(), Lost: st.Log.Lost()}
	for _, h := range st.Log.Holes() {
		s.Damaged = append(s.Damaged, h.Offset)
	}
	var err error
	if s.Head, err = st.Log.Head(ctx); err != nil {
		return s, err
	}
	if s.Durable, err = st.Log.Durable(ctx); err != nil {
		return s, err
	}
	if s.Sessions, s.Documents, err = countSubjects(ctx, c, st, s.Durable); err != nil {
		return s, err
	}
	if s.Quota, err = limitsOf(ctx, st); err != nil {
		return s, err
	}
	if snaps := st.Snapshots(); snaps != nil {
		for m, err := range snaps.All(ctx) {
			if err == nil && m.Fold == projector.SessionFold { // not the chunks of a session
				s.Snapshots++
			}
		}
	}
	if c.Backend == config.Local {
		s.Store, s.Bytes, s.LogBytes = c.Store, cmdutil.DiskUse(c.Store), cmdutil.DiskUse(filepath.Join(c.Store, "jetstream"))
		if place, _ := storedir.Inspect(c.Store); place.State != storedir.Present {
			s.Durability = log.Durable.String() // the durability that the store will have
		}
		if s.FreeBytes, err = storedir.FreeBytes(c.Store); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	replicas, kept, err := st.Log.Replicas(ctx)
	if err != nil {
		return s, err
	}
	s.LogBytes += int64(kept)
	for _, r := range replicas {
		s.Replicas = append(s.Replicas, replicaStatus{r.Server, r.Leader, r.Current, r.Offline, r.Lag, r.Seen.Seconds(), r})
	}
	if refused := cmdutil.Refused(c); refused != nil {
		s.Refused = refused.Error()
	}
	if s.Daemons, err = cmdutil.DaemonsAt(c); err != nil {
		return s, err
	}
	if s.Trees, err = treesOf(ctx, c, st); err != nil {
		return s, err
	}
	s.Views, err = viewsOf(ctx, st, s.Durable)
	return s, err
}

// limitsOf returns the usage of the store, and of each scope with a limit.
func limitsOf(ctx context.Context, st *tally.Store) ([]usage, error) {
	list, err := usageOf(ctx, st)
	err = projector.Tolerate(err) // status reports damage
	return slices.DeleteFunc(list, func(u usage) bool { return u.Scope != "store" && u.Limit == 0 }), err
}

// countSubjects counts the sessions of the namespace, without those of items, and its documents. If the catalog is up to
// date, it has the numbers. Listing the subjects of a large log takes seconds.
func countSubjects(ctx context.Context, c config.Config, st *tally.Store, durable events.Offset) (sessions, documents int, err error) {
	if list, err := catalog.Open(ctx, st.ViewsDir()); err == nil {
		defer list.Close()
		if at, err := list.Standing(ctx); err == nil && at.Cursor.Offset >= durable {
			return list.Count(ctx, c.Namespace)
		}
	}
	for info, err := range st.Log.Subjects(ctx, c.Namespace, "") {
		if err != nil {
			return 0, 0, err
		}
		switch {
		case projector.IsItem(info.Subject): // queues have them
		case info.Subject.IsSession():
			sessions++
		case info.Subject.Kind == events.KindUnit: // internal to the log
		default:
			documents++
		}
	}
	return sessions, documents, nil
}

// viewsOf returns how far the views are, from their files.
func viewsOf(ctx context.Context, st *tally.Store, durable events.Offset) ([]viewStatus, error) {
	list := []viewStatus{}
	if st.ViewsDir() == "" {
		return list, nil
	}
	for _, name := range cmdutil.ViewNames(nil) {
		standing, err := catalog.StandingOf(ctx, st.ViewsDir(), name)
		if durable == 0 { // an empty log has no views
			err = nil
		}
		v, err := viewOf(ctx, st, name, standing, err)
		if err != nil {
			return list, err
		}
		list = append(list, v)
	}
	files, err := catalog.OwnIn(st.ViewsDir())
	if err != nil {
		return list, err
	}
	for _, f := range files {
		standing, err := f.Standing(ctx)
		v, err := viewOf(ctx, st, f.Name, standing, err)
		if err != nil {
			return list, err
		}
		v.own, v.Version, v.Kept, v.Keeper = true, f.Version, f.IsKept, f.Keeper
		list = append(list, v)
	}
	return list, nil
}

// viewOf returns how far a view is. unread is the error of its file.
func viewOf(ctx context.Context, st *tally.Store, name string, s catalog.Standing, unread error) (viewStatus, error) {
	v := viewStatus{View: name, Quarantined: []quarantineStatus{}, Offset: s.Cursor.Offset, Event: s.Cursor.EventID}
	if unread != nil {
		v.Error = unread.Error()
	}
	if !s.Updated.IsZero() {
		v.Updated = s.Updated.Format(time.RFC3339Nano)
	}
	for _, q := range s.Quarantined {
		v.Quarantined = append(v.Quarantined, quarantineStatus{q.Subject.String(), q.Offset, q.Reason})
	}
	lag, err := st.Lag(ctx, v.Offset)
	v.LagEvents, v.LagSeconds = lag.Events, lag.Age.Seconds()
	return v, err
}

// text returns the status as text of the given width.
func (s status) text(width int) string {
	var b strings.Builder
	where := s.Backend
	if s.Store != "" {
		where = s.Store
	}
	line := func(name, format string, args ...any) {
		for _, line := range render.Field(name, fmt.Sprintf(format, args...), width, nil) {
			b.WriteString(line + "\n")
		}
	}
	line("store", "%s", where)
	if s.Owner != nil {
		line("owner", "process %d, serving %s", s.Owner.PID, s.Owner.URL)
	}
	line("namespace", "%s", s.Namespace)
	line("head", "%v, durable up to %v", s.Head, s.Durable)
	if s.Lost > 0 {
		line("damage", "%s lost: %s", plain.Count(s.Lost, "record"), offsets(s.Damaged))
	}
	line("sessions", "%d", s.Sessions)
	line("documents", "%d", s.Documents)
	label := "quota"
	for _, u := range s.Quota {
		if u.Limit > 0 {
			line(label, "%s", u)
			label = ""
		}
	}
	line("snapshots", "%d", s.Snapshots)
	for _, v := range s.Views {
		line(v.View, "%s", v)
		for _, q := range v.Quarantined {
			line("", "quarantined: %s at %v: %s", q.Subject, q.Offset, q.Reason)
		}
	}
	for _, t := range s.Trees {
		line(t.Name, "tree: %s", t)
	}
	for _, d := range s.Daemons {
		line(d.Daemon, "%s", d)
	}
	if i := slices.IndexFunc(s.Daemons, func(d cmdutil.DaemonStatus) bool { return d.Warning != "" }); i >= 0 {
		line("clock", "%s", s.Daemons[i].Warning)
	}
	if s.Store != "" {
		line("size", "%s, of it the log %s; %s free", plain.Bytes(s.Bytes), plain.Bytes(s.LogBytes), plain.Bytes(int64(s.FreeBytes)))
	}
	if len(s.Replicas) > 0 {
		line("size", "the log %s on each of %s", plain.Bytes(s.LogBytes), plain.Count(len(s.Replicas), "server"))
		texts := make([]string, len(s.Replicas))
		for i, r := range s.Replicas {
			texts[i] = plain.Printable(r.replica.String())
		}
		if !s.Replicas[0].Leader {
			texts = append(texts, "no server leads")
		}
		line("servers", "%s", strings.Join(texts, ", "))
	}
	if s.Refused != "" {
		line("appends", "refused: %s", s.Refused)
	} else {
		line("acks are", "%s", s.Durability)
	}
	return b.String()
}

func (v viewStatus) String() string {
	text := "as of " + v.Offset.String()
	switch {
	case v.Error != "":
		text = v.Error
	case v.LagEvents > 0:
		text = fmt.Sprintf("as of %v, %s and %.1f s behind", v.Offset, plain.Count(int(v.LagEvents), "event"), v.LagSeconds)
	}
	return text + v.keeper()
}

// keeper returns which program keeps a view that programs bring.
func (v viewStatus) keeper() string {
	switch {
	case !v.own:
		return ""
	case v.Keeper != 0:
		return fmt.Sprintf(", version %d, kept by process %d", v.Version, v.Keeper)
	case v.Kept:
		return fmt.Sprintf(", version %d, kept by a program", v.Version)
	case v.Updated != "":
		return fmt.Sprintf(", version %d, kept by no program, updated at %s", v.Version, v.Updated)
	}
	return fmt.Sprintf(", version %d, kept by no program", v.Version)
}
