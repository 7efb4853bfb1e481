package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/events"
)

// Routing decides the namespace of sessions that a watch finds: each goes to the namespace of its project.
type Routing struct {
	// Namespace is the namespace of sessions whose project names none. It never comes from the nearest tally.toml,
	// which only speaks for its own project.
	Namespace string
	// Only is the directory of a project, or "". If it is set, only sessions of this project are taken. It is set if
	// the project's file names the store. Otherwise the file of a repository could direct a user's other sessions to a
	// store of its author.
	Only string

	fixed bool // the namespace comes from a flag or a variable, and holds for all sessions
}

// Routing returns the routing of this configuration.
func (c Config) Routing() Routing {
	r := Routing{Namespace: c.Namespace}
	switch at := c.origin(settingOf("namespace")); {
	case at.Kind == FromFlag || at.Kind == FromVariable:
		r.fixed = true
	case c.isProjects(at.Name):
		r.Namespace = c.outside
	}
	for _, name := range map[string][]string{Local: {"store"}, NATS: {"url", "context"}}[c.Backend] {
		if c.isProjects(c.origin(settingOf(name)).Name) {
			r.Only = c.Project
		}
	}
	return r
}

// isProjects reports whether a file is the project's tally.toml.
func (c Config) isProjects(path string) bool {
	return c.Project != "" && path == filepath.Join(c.Project, FileName)
}

// Of returns the namespace of a session that works in a directory; "" means that the directory is unknown. taken is
// false if the session is not to be stored. If the project's file cannot be read, Of returns the error, together with
// the namespace of sessions without a project.
func (r Routing) Of(dir string) (namespace string, taken bool, err error) {
	if isElsewhere(dir) {
		dir = ""
	}
	if r.Only != "" && !isWithin(r.Only, dir) {
		return "", false, nil
	}
	if r.fixed || dir == "" {
		return r.Namespace, true, nil
	}
	namespace, err = namespaceIn(dir)
	if namespace == "" {
		namespace = r.Namespace
	}
	return namespace, true, err
}

// isElsewhere reports whether a directory in a line of a session is not on this machine. Looking at a network path
// could reveal the user to another machine.
func isElsewhere(dir string) bool {
	return !filepath.IsAbs(dir) || strings.HasPrefix(filepath.ToSlash(dir), "//") || strings.ContainsRune(dir, 0)
}

// isWithin reports whether a directory is the project's or below it, after resolving links.
func isWithin(project, dir string) bool {
	if dir == "" {
		return false
	}
	rel, err := filepath.Rel(project, realPath(dir))
	return err == nil && filepath.IsLocal(rel)
}

// realPath resolves links in the part of a path that exists.
func realPath(path string) string {
	path = filepath.Clean(path)
	for above := range upward(path) {
		if resolved, err := filepath.EvalSymlinks(above); err == nil {
			return filepath.Join(resolved, strings.TrimPrefix(path, above))
		}
	}
	return path
}

// notPersonal is the reason why a project's file cannot name the namespace of personal settings. Otherwise the author
// of a repository could make others store their work there, or read from there.
const notPersonal = events.PersonalNamespace + " is for one person, and not for a project: only your own config.toml may name it, or the call"

// maxProject bounds the size of a project's file, in bytes.
const maxProject = 1 << 20

// namespaceIn returns the namespace in the nearest tally.toml in a directory or above it, or "".
func namespaceIn(dir string) (string, error) {
	path, err := findUp(dir)
	if err != nil || path == "" {
		return "", err
	}
	text, err := readRegular(path)
	if err != nil {
		return "", &Error{File: path, Reason: err.Error()}
	}
	var file struct{ Namespace string }
	if _, err := toml.Decode(string(text), &file); err != nil {
		return "", &Error{File: path, Reason: err.Error()}
	}
	wrong := &Error{File: path, Line: lineOf(string(text), toml.Key{"namespace"}), Field: "namespace"}
	switch {
	case file.Namespace == events.PersonalNamespace:
		wrong.Reason = notPersonal
	case file.Namespace != "" && events.ValidateNamespace(file.Namespace) != nil:
		wrong.Reason = fmt.Sprintf("%q: want 1 to 64 of [A-Za-z0-9_-]", file.Namespace)
	default:
		return file.Namespace, nil
	}
	return "", wrong
}

// readRegular reads a file of unknown type. It does not block on a pipe.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Size() > maxProject:
		return nil, fmt.Errorf("the file is longer than %d bytes", maxProject)
	}
	return io.ReadAll(io.LimitReader(f, maxProject))
}
