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

// wish is what the call says of all places.
type wish struct {
	routing  config.Routing
	redact   bool
	explicit bool // redact counts whatever a file says
	patient  bool // folders need not be there yet: they are waited for
}

// place is where sessions of an agent are looked for, and where they go.
type place struct {
	cmdutil.AgentFiles
	namespace string
	isFixed   bool // all sessions go to the namespace, whatever their project says
	isNamed   bool // by whoever calls: its sessions are taken, of whatever project they are
	redact    bool
	except    []string // names below the root that are other places' own
	isMissing bool     // the folder is not there yet
	isAwaited bool     // and whoever called is to know that
}

// id names a place in the state of a watch. A part of a folder has one of its own: what lies
// outside of it is not taken for gone.
func (p place) id() string {
	id := p.Root
	if p.Below != "" {
		id += "//" + p.Below
	}
	for _, name := range p.except {
		id += "//-" + name
	}
	return id
}

// has reports whether a file belongs to the place.
func (p place) has(name string) bool {
	isOther := func(other string) bool { return name == other || strings.HasPrefix(name, other+"/") }
	return p.Has(name) && !slices.ContainsFunc(p.except, isOther)
}

// source is the place as package ingest has it.
func (p place) source() ingest.Source {
	s := ingest.Source{Agent: p.Agent, Root: p.Root, ID: p.id()}
	if p.Below != "" || len(p.except) > 0 {
		s.Agent = some{p.Agent, p}
	}
	return s
}

// route says where a session goes that works in a folder; false: it is left alone. After an
// error it goes where those go whose project says nothing.
func (p place) route(r config.Routing, cwd string) (namespace string, taken bool, err error) {
	if p.isFixed {
		return p.namespace, true, nil
	}
	if p.isNamed {
		r.Only = ""
	}
	return r.Of(cwd)
}

// some is an agent of which only some files are read.
type some struct {
	agents.Agent
	place place
}

// Unwrap implements agents.Wrapper.
func (s some) Unwrap() agents.Agent { return s.Agent }

// Wants implements agents.Agent.
func (s some) Wants(name string) bool { return s.place.has(name) && s.Agent.Wants(name) }

// enters reports whether a folder has to be looked at.
func (p place) enters(folder string) bool {
	return p.has(folder) || strings.HasPrefix(p.Below, folder+"/")
}

// String says what is followed.
func (p place) String() string {
	return tilde(filepath.Join(p.Root, filepath.FromSlash(p.Below)))
}

// placesOf returns the places that arguments name: agents, folders, files. Without any it is
// those of every agent, and those that the configuration lists.
func placesOf(args []string, c config.Config, w wish, env func(string) string) ([]place, error) {
	if len(args) == 0 {
		return everywhere(c, w, env)
	}
	var list []place
	for _, arg := range args {
		more, err := named(arg, w, env)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return distinct(list), nil
}

// named returns the places that one argument names.
func named(arg string, w wish, env func(string) string) ([]place, error) {
	like := place{namespace: w.routing.Namespace, redact: w.redact}
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
		return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no sessions of an agent that is known: %s", arg, cmdutil.Or(cmdutil.AgentNames()))}
	}
	like.AgentFiles, like.isNamed = files, true
	return []place{like}, nil
}

// rootsOf returns the roots of agents, how many of them are there, and where was looked.
func rootsOf(of []agents.Agent, like place, env func(string) string) (list []place, there int, looked []string) {
	for _, agent := range of {
		for _, root := range agent.Roots(env) {
			looked = append(looked, tilde(root))
			info, err := os.Stat(root)
			like.isMissing = err != nil || !info.IsDir()
			if real, err := filepath.EvalSymlinks(root); err == nil { // as FindAgentFiles spells it
				root = real
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

// awaited says of folders that are not there yet that they are waited for.
func awaited(list []place) []place {
	for i := range list {
		list[i].isAwaited = list[i].isMissing
	}
	return list
}

// nowhere is the error of having found nothing.
func nowhere(looked []string) error {
	if len(looked) == 0 {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("that agent has no folder of its own"), Hint: "Name the folder: tally watch PATH."}
	}
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("no agent has sessions here: there is no %s", cmdutil.Or(looked)),
		Hint: "Name the folder, if it is elsewhere: tally watch PATH."}
}

// everywhere returns the places of all agents, those included that are not there yet, and
// those of the configuration. A folder that the configuration lists goes where that says, and
// nowhere else.
func everywhere(c config.Config, w wish, env func(string) string) ([]place, error) {
	var listed []place
	for _, entry := range c.Watch {
		p, err := configured(entry, w, env)
		if err != nil {
			return nil, err
		}
		listed = append(listed, p)
	}
	found, there, looked := rootsOf(cmdutil.Agents, place{namespace: w.routing.Namespace, redact: w.redact}, env)
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

// configured returns a place that the configuration lists. It need not be there yet if its
// agent is said.
func configured(entry config.Watch, w wish, env func(string) string) (place, error) {
	wrong := func(field, format string, args ...any) (place, error) {
		return place{}, &config.Error{File: entry.Origin.Name, Line: entry.Origin.Line, Field: "watch." + field, Reason: fmt.Sprintf(format, args...)}
	}
	p := place{namespace: cmp.Or(entry.Namespace, w.routing.Namespace), isFixed: entry.Namespace != "", isNamed: true, redact: w.redact}
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

// distinct leaves out what is there twice, or is a part of another that goes the same way.
func distinct(list []place) (out []place) {
	for i, p := range list {
		isPart := false
		for j, q := range list {
			same := q.Root == p.Root && q.Agent.Name() == p.Agent.Name() && q.namespace == p.namespace && q.isFixed == p.isFixed && q.redact == p.redact
			isPart = isPart || j != i && same && q.Has(p.Below) && (q.Below != p.Below || j < i)
		}
		if !isPart {
			p.isNamed = slices.ContainsFunc(list, func(q place) bool { return q.isNamed && q.id() == p.id() })
			out = append(out, p)
		}
	}
	return out
}

// held is what lies in a place.
type held struct {
	files   []onDisk
	unnamed int // of them, those whose names do not say whose they are
	bytes   int64
	changed time.Time // at the latest
	left    int       // files that were not changed since some time
}

// onDisk is a file that lies in a place.
type onDisk struct {
	agents.File // of one whose name does not say more, only the name
	size        int64
	packed      bool // its size is not that of its content
}

// look lists what lies in a place. It opens no file.
func (p place) look(since time.Time) held {
	var h held
	want := p.source().Agent
	_ = filepath.WalkDir(p.Root, func(path string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(p.Root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil || relErr != nil:
			return nil // what cannot be looked at, whoever reads it says
		case d.IsDir() && name != "." && !p.enters(name):
			return filepath.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || !want.Wants(name):
			return nil
		}
		if info, err := d.Info(); err == nil {
			h.add(p, name, info, since)
		}
		return nil
	})
	return h
}

func (h *held) add(p place, name string, info fs.FileInfo, since time.Time) {
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

// bySession are the files by the session of which they are, as far as that is known.
func (h *held) bySession() map[string][]onDisk {
	sessions := make(map[string][]onDisk)
	for _, f := range h.files {
		if f.Session != "" {
			sessions[f.Session] = append(sessions[f.Session], f)
		}
	}
	return sessions
}

// read opens the files whose names do not say whose they are.
func (h *held) read(p place) {
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

// beginning returns what a file begins with.
func beginning(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil // as if it were empty: whoever reads it says why
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 1<<20))
	return text
}

// group are places whose sessions go the same way.
type group struct {
	namespace string
	redact    bool
	places    []place
}

// grouped puts places together whose sessions go the same way.
func grouped(places []place) (groups []*group) {
	for _, p := range places {
		i := slices.IndexFunc(groups, func(g *group) bool { return g.namespace == p.namespace && g.redact == p.redact })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{namespace: p.namespace, redact: p.redact})
		}
		groups[i].places = append(groups[i].places, p)
	}
	return groups
}

// tilde spells a path as people do.
func tilde(path string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "" {
		if rel, err := filepath.Rel(home, path); err == nil && filepath.IsLocal(rel) {
			path = filepath.Join("~", rel)
		}
	}
	return plain.Printable(path)
}
