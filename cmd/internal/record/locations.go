package record

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/render/plain"
)

// wish has the settings of the command line for all locations.
type wish struct {
	routing  config.Routing
	redact   bool
	explicit bool // redact is set on the command line and overrides files
	patient  bool // folders that do not exist yet are waited for
}

// location is a folder with sessions of an agent, and the namespace for them.
type location struct {
	cmdutil.AgentFiles
	namespace string
	isFixed   bool // all sessions go to the namespace, whatever their project's file says
	isNamed   bool // named on the command line: sessions of all projects are recorded
	redact    bool
	except    []string // names below the root that belong to other locations
	isMissing bool     // the folder does not exist yet
	isAwaited bool     // the user is told that it is waited for
}

// id returns the name of the location in the state of a watch. A part of a folder has a name of its own, so that files
// outside of it do not count as removed.
func (l location) id() string {
	id := l.Root
	if l.Below != "" {
		id += "//" + l.Below
	}
	for _, name := range l.except {
		id += "//-" + name
	}
	return id
}

// has reports whether a file belongs to the location.
func (l location) has(name string) bool {
	isOther := func(other string) bool { return name == other || strings.HasPrefix(name, other+"/") }
	return l.Has(name) && !slices.ContainsFunc(l.except, isOther)
}

// source returns the location for package ingest.
func (l location) source() ingest.Source {
	s := ingest.Source{Agent: l.Agent, Root: l.Root, ID: l.id()}
	if l.Below != "" || len(l.except) > 0 {
		s.Agent = some{l.Agent, l}
	}
	return s
}

// route returns the namespace for a session that works in a folder, and whether it is recorded. After an error, the
// session goes to the namespace of sessions without a project's file.
func (l location) route(r config.Routing, cwd string) (namespace string, taken bool, err error) {
	if l.isFixed {
		return l.namespace, true, nil
	}
	if l.isNamed {
		r.Only = ""
	}
	return r.Of(cwd)
}

// some is an agent with a part of its files.
type some struct {
	agents.Agent
	location location
}

// Unwrap implements agents.Wrapper.
func (s some) Unwrap() agents.Agent { return s.Agent }

// Wants implements agents.Agent.
func (s some) Wants(name string) bool { return s.location.has(name) && s.Agent.Wants(name) }

// enters reports whether a folder must be read.
func (l location) enters(folder string) bool {
	return l.has(folder) || strings.HasPrefix(l.Below, folder+"/")
}

// String describes the location.
func (l location) String() string {
	return tilde(filepath.Join(l.Root, filepath.FromSlash(l.Below)))
}

// locationsOf returns the locations that arguments name: agents, folders, files. Without arguments it returns those of all
// agents and of the configuration.
func locationsOf(args []string, c config.Config, w wish, env func(string) string) ([]location, error) {
	if len(args) == 0 {
		return everywhere(c, w, env)
	}
	var list []location
	for _, arg := range args {
		more, err := locationsNamed(arg, w, env)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return distinct(list), nil
}

// locationsNamed returns the locations that one argument names.
func locationsNamed(arg string, w wish, env func(string) string) ([]location, error) {
	like := location{namespace: w.routing.Namespace, redact: w.redact}
	if agent, ok := cmdutil.AgentNamed(arg); ok {
		list, there, looked := rootsOf([]agents.Agent{agent}, like, env)
		if there == 0 && (!w.patient || len(looked) == 0) {
			return nil, nowhere(looked)
		}
		return awaited(list), nil
	}
	files, ok := cmdutil.FindAgentFiles(arg, env)
	if !ok {
		if _, err := os.Stat(arg); err != nil {
			return nil, cli.Usagef("%q is neither an agent (%s) nor a folder or file", arg, cmdutil.Or(cmdutil.AgentNames()))
		}
		return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no sessions of a known agent: %s", arg, cmdutil.Or(cmdutil.AgentNames()))}
	}
	like.AgentFiles, like.isNamed = files, true
	return []location{like}, nil
}

// rootsOf returns the roots of agents, the number of existing ones, and the folders that were tried.
func rootsOf(of []agents.Agent, like location, env func(string) string) (list []location, there int, looked []string) {
	for _, agent := range of {
		for _, root := range agent.Roots(env) {
			looked = append(looked, tilde(root))
			info, err := os.Stat(root)
			like.isMissing = err != nil || !info.IsDir()
			if resolved, err := filepath.EvalSymlinks(root); err == nil { // as FindAgentFiles spells it
				root = resolved
			}
			if !like.isMissing {
				there++
			}
			like.AgentFiles = cmdutil.AgentFiles{Agent: agent, Root: filepath.Clean(root)}
			list = append(list, like)
		}
	}
	return distinct(list), there, looked
}

// awaited marks the locations that do not exist yet as awaited.
func awaited(list []location) []location {
	for i := range list {
		list[i].isAwaited = list[i].isMissing
	}
	return list
}

// nowhere returns the error for finding no location.
func nowhere(looked []string) error {
	if len(looked) == 0 {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("that agent has no folder of its own"), Hint: "Name the folder: tally watch PATH."}
	}
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("no agent has sessions here: there is no %s", cmdutil.Or(looked)),
		Hint: "Name the folder, if it is elsewhere: tally watch PATH."}
}

// everywhere returns the locations of all agents, also those that do not exist yet, and those of the configuration.
// Sessions of a folder in the configuration go to the namespace of its entry only.
func everywhere(c config.Config, w wish, env func(string) string) ([]location, error) {
	var listed []location
	for _, entry := range c.Watch {
		p, err := configured(entry, w, env)
		if err != nil {
			return nil, err
		}
		listed = append(listed, p)
	}
	found, there, looked := rootsOf(cmdutil.Agents, location{namespace: w.routing.Namespace, redact: w.redact}, env)
	list := distinct(listed)
	for _, p := range found {
		isListed := false
		for _, l := range listed {
			switch {
			case l.Root != p.Root || l.Agent.Name() != p.Agent.Name():
			case l.Below == "":
				isListed = true
			default:
				p.except = append(p.except, l.Below)
			}
		}
		if !isListed {
			list = append(list, p)
		}
	}
	switch {
	case there+len(listed) > 0:
		return list, nil
	case w.patient:
		return awaited(list), nil
	}
	return nil, nowhere(looked)
}

// configured returns the location of an entry of the configuration. Its folder need not exist yet if the entry names
// the agent.
func configured(entry config.Watch, w wish, env func(string) string) (location, error) {
	wrong := func(field, format string, args ...any) (location, error) {
		return location{}, &config.Error{File: entry.Origin.Name, Line: entry.Origin.Line, Field: "watch." + field, Reason: fmt.Sprintf(format, args...)}
	}
	p := location{namespace: cmp.Or(entry.Namespace, w.routing.Namespace), isFixed: entry.Namespace != "", isNamed: true, redact: w.redact}
	if entry.Redact != nil && !w.explicit {
		p.redact = *entry.Redact
	}
	var among []agents.Agent
	if entry.Agent != "" {
		agent, ok := cmdutil.AgentNamed(entry.Agent)
		if !ok {
			return wrong("agent", "%q: want %s", entry.Agent, cmdutil.Or(cmdutil.AgentNames()))
		}
		among = append(among, agent)
	}
	var ok bool
	switch p.AgentFiles, ok = cmdutil.FindAgentFiles(entry.Root, env, among...); {
	case ok:
	case len(among) > 0:
		p.AgentFiles = cmdutil.AgentFiles{Agent: among[0], Root: entry.Root}
	default:
		return wrong("root", "%s has no sessions by which to know the agent: name it with agent = %s", entry.Root, cmdutil.Or(cmdutil.AgentNames()))
	}
	return p, nil
}

// distinct removes locations that are repeated, or are parts of others with the same destination.
func distinct(list []location) (out []location) {
	for i, p := range list {
		isPart := false
		for j, q := range list {
			same := q.Root == p.Root && q.Agent.Name() == p.Agent.Name() && q.namespace == p.namespace && q.isFixed == p.isFixed && q.redact == p.redact
			isPart = isPart || j != i && same && q.Has(p.Below) && (q.Below != p.Below || j < i)
		}
		if !isPart {
			p.isNamed = slices.ContainsFunc(list, func(q location) bool { return q.isNamed && q.id() == p.id() })
			out = append(out, p)
		}
	}
	return out
}

// heldFiles lists the files of a location.
type heldFiles struct {
	files   []onDisk
	unnamed int // files without the session in their names
	bytes   int64
	changed time.Time // latest change
	left    int       // files unchanged since the backfill time
}

// onDisk is a file of a location.
type onDisk struct {
	agents.File // for a name without a session, only the name
	size        int64
	packed      bool // compressed: the size is not that of its content
}

// look lists the files of a location without opening them.
func (l location) look(since time.Time) heldFiles {
	var h heldFiles
	want := l.source().Agent
	_ = filepath.WalkDir(l.Root, func(path string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(l.Root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil || relErr != nil:
			return nil // the reader of the files reports unreadable folders
		case d.IsDir() && name != "." && !l.enters(name):
			return filepath.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || !want.Wants(name):
			return nil
		}
		if info, err := d.Info(); err == nil {
			h.add(l, name, info, since)
		}
		return nil
	})
	return h
}

func (h *heldFiles) add(p location, name string, info fs.FileInfo, since time.Time) {
	if info.ModTime().Before(since) {
		h.left++
		return
	}
	if info.ModTime().After(h.changed) {
		h.changed = info.ModTime()
	}
	f, ok := p.Agent.File(name, nil)
	if !ok {
		f = agents.File{Name: name}
		h.unnamed++
	}
	h.bytes += info.Size()
	h.files = append(h.files, onDisk{f, info.Size(), strings.HasSuffix(name, ".zst")})
}

// bySession returns the files by their session, as far as it is known.
func (h *heldFiles) bySession() map[string][]onDisk {
	sessions := make(map[string][]onDisk)
	for _, f := range h.files {
		if f.Session != "" {
			sessions[f.Session] = append(sessions[f.Session], f)
		}
	}
	return sessions
}

// read opens the files without the session in their names.
func (h *heldFiles) read(p location) {
	for i := range h.files {
		f := &h.files[i]
		if f.Session != "" {
			continue
		}
		if is, ok := p.Agent.File(f.Name, firstLine(filepath.Join(p.Root, filepath.FromSlash(f.Name)))); ok {
			f.File = is
		}
	}
}

// firstLine returns the first line of a file, or the beginning of a very long one.
func firstLine(path string) []byte {
	line, _, _ := bytes.Cut(beginning(path), []byte("\n"))
	return bytes.TrimSpace(line)
}

// beginning returns the first bytes of a file.
func beginning(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil // the reader of the file reports the error
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 1<<20))
	return text
}

// locationGroup has the locations with the same destination.
type locationGroup struct {
	namespace string
	redact    bool
	locations []location
}

// grouped groups locations by destination.
func grouped(locations []location) (groups []*locationGroup) {
	for _, p := range locations {
		i := slices.IndexFunc(groups, func(g *locationGroup) bool { return g.namespace == p.namespace && g.redact == p.redact })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &locationGroup{namespace: p.namespace, redact: p.redact})
		}
		groups[i].locations = append(groups[i].locations, p)
	}
	return groups
}

// tilde returns a path with ~ for the home folder.
func tilde(path string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "" {
		if rel, err := filepath.Rel(home, path); err == nil && filepath.IsLocal(rel) {
			path = filepath.Join("~", rel)
		}
	}
	return plain.Printable(path)
}
