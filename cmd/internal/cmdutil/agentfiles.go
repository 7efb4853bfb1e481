package cmdutil

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/agents"
)

// AgentFiles are all files in a folder of an agent's sessions, or some of them.
type AgentFiles struct {
	Agent agents.Agent
	Root  string          // absolute path of the folder; names are relative to it
	Below string          // only this file, or the files in this folder, with slashes; "": all
	Names map[string]bool // only these files; nil: all
}

// Has reports whether a file, by its name below the root, is one of them.
func (f AgentFiles) Has(name string) bool {
	return (f.Below == "" || name == f.Below || strings.HasPrefix(name, f.Below+"/")) && (f.Names == nil || f.Names[name])
}

// Only returns an agent that wants these files only. It wants the files in Names whatever their names look like.
func (f AgentFiles) Only() agents.Agent { return only{f.Agent, f} }

type only struct {
	agents.Agent
	files AgentFiles
}

// Unwrap implements agents.Wrapper.
func (o only) Unwrap() agents.Agent { return o.Agent }

// Wants implements agents.Agent.
func (o only) Wants(name string) bool {
	return o.files.Has(name) && (o.files.Names != nil || o.Agent.Wants(name))
}

// File implements agents.Agent.
func (o only) File(name string, first []byte) (agents.File, bool) {
	return agents.Named(o.Agent, name, first)
}

// FindAgentFiles returns the agent files that a path holds. The path may be a folder of an agent's sessions, a folder
// above or below it, a copy of one, or a file. It recognises an agent's own folder by its path and any other by the
// lines of its files. With among, it looks for files of these agents only, without reading lines. It returns false if
// there are no files, or if they belong to several folders of sessions.
func FindAgentFiles(path string, env func(string) string, among ...agents.Agent) (AgentFiles, bool) {
	found := SurveyAgentFiles(path, env, among...)
	if len(found.Files) != 1 {
		return AgentFiles{}, false
	}
	f := found.Files[0]
	f.Names = nil
	return f, true
}

// AgentSurvey lists the agent files in a folder, or the one file.
type AgentSurvey struct {
	Files  []AgentFiles // for each agent and folder of sessions
	Others []string     // absolute paths of files with lines of an unknown agent
	Links  []string     // absolute paths of folders that are links and are not followed
	IsCut  bool         // some files were not looked at
}

// SurveyAgentFiles returns the agent files that a path holds, also of several agents. The other arguments are those of
// FindAgentFiles.
func SurveyAgentFiles(path string, env func(string) string, among ...agents.Agent) AgentSurvey {
	path, err := filepath.Abs(path)
	if err != nil {
		return AgentSurvey{}
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	info, err := os.Stat(path)
	if err != nil {
		return AgentSurvey{}
	}
	s := &survey{among: among, env: env}
	if len(among) == 0 {
		s.among = Agents
	}
	switch {
	case s.own(path, info.IsDir()):
	case info.IsDir():
		s.folder(path)
		if len(among) == 1 && len(s.Files) == 0 {
			s.takeNamed(among[0], path)
		}
	case info.Mode().IsRegular():
		s.file(path, len(among) > 0)
	}
	return s.AgentSurvey
}

// inRootOf reports whether a path is an agent's own root, is in it, or is its parent.
func inRootOf(a agents.Agent, path string, env func(string) string) (AgentFiles, bool) {
	for _, root := range a.Roots(env) {
		root = filepath.FromSlash(root)
		if resolved, err := filepath.EvalSymlinks(root); err == nil {
			root = resolved
		}
		if name, ok := nameBelow(root, path); ok {
			return AgentFiles{Agent: a, Root: root, Below: name}, true
		}
		if name, ok := nameBelow(path, root); ok && isAgentFolder(filepath.Base(path)) && strings.Count(name, "/") < 2 {
			return AgentFiles{Agent: a, Root: root}, true
		}
	}
	return AgentFiles{}, false
}

// isAgentFolder reports whether a folder above a root can belong to an agent, such as .claude, and not to a person,
// such as a home folder.
func isAgentFolder(folder string) bool { return strings.HasPrefix(folder, ".") && folder != ".config" }

// nameBelow returns the name of a path relative to a folder, with slashes; "" for the folder itself.
func nameBelow(folder, path string) (string, bool) {
	name, err := filepath.Rel(folder, path)
	if err != nil || name == ".." || strings.HasPrefix(name, ".."+string(filepath.Separator)) {
		return "", false
	}
	if name == "." {
		name = ""
	}
	return filepath.ToSlash(name), true
}

// survey is an AgentSurvey in progress.
type survey struct {
	AgentSurvey
	among []agents.Agent
	env   func(string) string
	files int
}

// own takes the files of a path that is an agent's own folder, is above or below it, or is in it, and reports whether
// there are any. Other files that the agent keeps there are not reported as unknown.
func (s *survey) own(path string, isFolder bool) bool {
	isOwn := false
	for _, a := range s.among {
		f, ok := inRootOf(a, path, s.env)
		if !ok || !isFolder && !a.Wants(f.Below) {
			continue
		}
		isOwn = true
		if info, err := os.Stat(f.Root); err == nil && info.IsDir() {
			s.Files = append(s.Files, f)
			s.Links = append(s.Links, LinksIn(filepath.Join(f.Root, filepath.FromSlash(f.Below)))...)
		}
	}
	return isOwn
}

// file adds a file to its agent. A file that the user chose together with an agent belongs to that agent, unless its
// lines are those of another one.
func (s *survey) file(path string, isChosen bool) {
	owner := ownerOf(path, s.among)
	if isChosen && len(s.among) == 1 && owner == nil && ownerOf(path, recognisers()) == nil {
		owner = s.among[0]
	}
	if owner != nil {
		s.add(owner, path, path)
	}
}

// recognisers returns the agents that recognise their files by the lines.
func recognisers() (list []agents.Agent) {
	for _, a := range Agents {
		if _, ok := a.(agents.Recogniser); ok {
			list = append(list, a)
		}
	}
	return list
}

// add adds a file of an agent that was found in a folder, or named by the user.
func (s *survey) add(a agents.Agent, path, in string) {
	name, _ := a.Below(filepath.ToSlash(path))
	if name == "" {
		name = filepath.Base(path)
	}
	f := AgentFiles{Agent: a, Root: rootAbove(path, name)}
	f.Below, _ = nameBelow(f.Root, in)
	for _, have := range s.Files {
		if have.Root == f.Root && have.Agent.Name() == a.Name() {
			have.Names[name] = true
			return
		}
	}
	f.Names = map[string]bool{name: true}
	s.Files = append(s.Files, f)
}

// ownerOf returns the agent that recognises the lines of a file, else the one agent that uses such file names, or nil.
func ownerOf(path string, among []agents.Agent) agents.Agent {
	for _, most := range []int64{lookBytes / 16, lookBytes} {
		text := beginning(path, most)
		for _, a := range among {
			if r, ok := a.(agents.Recogniser); ok && r.Recognises(text) {
				return a
			}
		}
		if int64(len(text)) < most || !strings.HasSuffix(path, ".jsonl") {
			break
		}
	}
	name := filepath.ToSlash(path)
	for _, a := range among {
		if _, ok := a.Below(name); ok && a.Name() != generic {
			return a
		}
	}
	return nil
}

// generic is the agent whose file names others use too.
const generic = "claude"

// rootAbove returns the part of a path before a name.
func rootAbove(path, name string) string {
	for range strings.Count(name, "/") + 1 {
		path = filepath.Dir(path)
	}
	return path
}

// Limits for looking at the files of a folder.
const (
	lookFolders = 5_000
	lookFiles   = 20_000
	lookBytes   = 1 << 20
)

// folder adds the files of a folder to their agents. Files that look like lines of an unknown agent go to the others.
func (s *survey) folder(dir string) {
	folders := []string{dir}
	for n := 0; n < len(folders); n++ {
		entries, err := os.ReadDir(folders[n])
		if s.IsCut = s.IsCut || n == lookFolders || s.files >= lookFiles; s.IsCut {
			return
		}
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(folders[n], e.Name())
			switch {
			case e.IsDir() && s.own(path, true):
			case e.IsDir():
				folders = append(folders, path)
			case isLinkedFolder(path, e):
				s.Links = append(s.Links, path)
			case e.Type().IsRegular():
				s.fileIn(dir, path)
			}
		}
	}
}

func (s *survey) fileIn(dir, path string) {
	if ext := filepath.Ext(strings.TrimSuffix(path, ".zst")); !slices.Contains([]string{".jsonl", ".json", ".lines"}, ext) {
		return
	}
	s.files++
	switch a := ownerOf(path, s.among); {
	case a != nil:
		s.add(a, path, dir)
	case strings.HasSuffix(path, ".jsonl") && !slices.Contains(besides, filepath.Base(path)):
		s.Others = append(s.Others, path)
	}
}

// LinkReason explains that a link to a folder is not followed, and how to import its files.
func LinkReason(link string) string {
	to, err := filepath.EvalSymlinks(link)
	if err != nil {
		to = link
	}
	return fmt.Sprintf("is a link to %[1]s and is not followed: import %[1]s, or follow it with [[watch]] in config.toml, root = %[1]q", to)
}

// takeNamed moves files from the others to an agent that uses such file names. The user has chosen the agent, and the
// folder has no better evidence.
func (s *survey) takeNamed(a agents.Agent, dir string) {
	s.Others = slices.DeleteFunc(s.Others, func(path string) bool {
		_, ok := a.Below(filepath.ToSlash(path))
		if ok {
			s.add(a, path, dir)
		}
		return ok
	})
}

// besides are files that agents keep beside their sessions.
var besides = []string{"history.jsonl", "session_index.jsonl"}

// isLinkedFolder reports whether a name in a folder is a link to a folder.
func isLinkedFolder(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// LinksIn lists links to folders below a folder of sessions, up to a limit.
func LinksIn(dir string) (list []string) {
	n := 0
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if n++; n > lookFiles {
			return filepath.SkipAll
		}
		if err == nil && isLinkedFolder(path, e) {
			list = append(list, path)
		}
		return nil // the reader of the files reports unreadable folders
	})
	return list
}

// beginning returns the first bytes of a file, nil if it is unreadable or compressed.
func beginning(path string, most int64) []byte {
	if strings.HasSuffix(path, ".zst") {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil
	}
	return text
}
