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

// Routing says where sessions go that nobody names one by one, as a watch finds them: to the
// namespace of their project.
type Routing struct {
	// Namespace is that of sessions whose project names none. It is none that the nearest
	// tally.toml names: that one is of its project.
	Namespace string
	// Only is the directory of a project: if its file says which store it is, only sessions
	// of the project are taken. So nobody's sessions end in the store of whoever wrote the
	// file of a repository that they happen to stand in. "": all are taken.
	Only string

	fixed bool // the namespace was said in the call: it is that of all
}

// Routing returns where sessions go, as the configuration says it.
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

// isProjects reports whether a file is that of the project.
func (c Config) isProjects(path string) bool {
	return c.Project != "" && path == filepath.Join(c.Project, FileName)
}

// Of returns where a session goes that works in a directory, "" if it does not say in which;
// false: it is left alone. After an error, which is a file of a project that cannot be read,
// it goes where sessions of no project do.
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

// isElsewhere reports whether a directory, which a line of a session names, is none of this
// machine's: to ask for it could tell another machine who asks.
func isElsewhere(dir string) bool {
	return !filepath.IsAbs(dir) || strings.HasPrefix(filepath.ToSlash(dir), "//") || strings.ContainsRune(dir, 0)
}

// isWithin reports whether a directory is a project's, or lies in it, links followed.
func isWithin(project, dir string) bool {
	if dir == "" {
		return false
	}
	rel, err := filepath.Rel(project, realPath(dir))
	return err == nil && filepath.IsLocal(rel)
}

// realPath follows the links of a path, as far as it is there.
func realPath(path string) string {
	path = filepath.Clean(path)
	for above := range upward(path) {
		if real, err := filepath.EvalSymlinks(above); err == nil {
			return filepath.Join(real, strings.TrimPrefix(path, above))
		}
	}
	return path
}

// notPersonal says why a project's file does not name the namespace of a person's own settings:
// whoever wrote the file of a repository shall not have others put their work there, or read
// from there.
const notPersonal = events.PersonalNamespace + " is for one person, and not for a project: only your own config.toml may name it, or the call"

// maxProject is how long a project's file may be.
const maxProject = 1 << 20

// namespaceIn returns the namespace that the nearest tally.toml at or above a directory
// names, "" if there is none or it names none.
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

// readRegular reads a file of which whoever made it decides what it is: nobody shall wait for
// a pipe.
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
		return nil, errors.New("is no file")
	case info.Size() > maxProject:
		return nil, fmt.Errorf("is longer than %d bytes", maxProject)
	}
	return io.ReadAll(io.LimitReader(f, maxProject))
}
