package app

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/agents"
)

// AgentFiles are files of an agent: all in a folder of its sessions, or some of them.
type AgentFiles struct {
	Agent agents.Agent
	Root  string // the folder to which names are relative, absolute
	Below string // of them, only this one, or those in this folder, with slashes; "": all
}

// Has reports whether a file is among them, by its name below the root.
func (f AgentFiles) Has(name string) bool {
	return f.Below == "" || name == f.Below || strings.HasPrefix(name, f.Below+"/")
}

// Only is the agent with no other files than these.
func (f AgentFiles) Only() agents.Agent { return only{f.Agent, f} }

type only struct {
	agents.Agent
	files AgentFiles
}

// Wants implements agents.Agent.
func (o only) Wants(name string) bool { return o.files.Has(name) && o.Agent.Wants(name) }

// FindAgentFiles says whose files a folder or file holds: that in which an agent keeps its
// sessions, one above or below it, or a copy of such. An agent's own folder is known by its
// place, any other by what it holds, whatever it is called. With among, only files of those
// agents are meant, and their lines are not looked at. It is false if there are none, or if
// they are of several folders of sessions.
func FindAgentFiles(path string, env func(string) string, among ...agents.Agent) (AgentFiles, bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return AgentFiles{}, false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, err := os.Stat(path)
	if err != nil {
		return AgentFiles{}, false
	}
	chosen := len(among) > 0
	if !chosen {
		among = Agents
	}
	for _, a := range among {
		if f, ok := inRootOf(a, path, env); ok && (info.IsDir() || a.Wants(f.Below)) {
			return f, true
		}
	}
	switch {
	case info.IsDir():
		return agentFolder(path, among, chosen)
	case info.Mode().IsRegular():
		return agentFile(path, among, chosen)
	}
	return AgentFiles{}, false
}

// inRootOf reports whether a path is an agent's own root, or in it, or directly around it.
func inRootOf(a agents.Agent, path string, env func(string) string) (AgentFiles, bool) {
	for _, root := range a.Roots(env) {
		root = filepath.FromSlash(root)
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
		if name, ok := nameBelow(root, path); ok {
			return AgentFiles{a, root, name}, true
		}
		if name, ok := nameBelow(path, root); ok && isOwn(filepath.Base(path)) && strings.Count(name, "/") < 2 {
			return AgentFiles{a, root, ""}, true
		}
	}
	return AgentFiles{}, false
}

// isOwn reports whether a folder above a root may be an agent's own, such as .claude, and
// not the home folder of a person.
func isOwn(folder string) bool { return strings.HasPrefix(folder, ".") && folder != ".config" }

// nameBelow returns the name of a path below a folder, with slashes; "" is the folder.
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

// agentFile says whose a file is.
func agentFile(path string, among []agents.Agent, sure bool) (AgentFiles, bool) {
	for _, a := range byName(among) {
		name, ok := a.Below(filepath.ToSlash(path))
		if ok && (sure || saysSo(a, path)) {
			return AgentFiles{a, rootAbove(path, name), name}, true
		}
	}
	return AgentFiles{}, false
}

// byName puts those agents first whose files are known by their names.
func byName(list []agents.Agent) []agents.Agent {
	isLooked := func(a agents.Agent) int {
		if _, ok := a.(agents.Recogniser); ok {
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(list), func(a, b agents.Agent) int { return isLooked(a) - isLooked(b) })
}

// rootAbove is what stands before a name in a path.
func rootAbove(path, name string) string {
	for range strings.Count(name, "/") + 1 {
		path = filepath.Dir(path)
	}
	return path
}

// How much of a folder is looked at to see whose it is.
const (
	lookFolders = 5_000
	lookFiles   = 200
	lookBytes   = 1 << 20
)

// agentFolder says whose a folder is: all files that are found there have one root.
func agentFolder(dir string, among []agents.Agent, sure bool) (found AgentFiles, ok bool) {
	files := 0
	folders := []string{dir}
	for n := 0; n < len(folders) && n < lookFolders && files < lookFiles; n++ {
		entries, err := os.ReadDir(folders[n])
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(folders[n], e.Name())
			switch {
			case e.IsDir():
				folders = append(folders, path)
				continue
			case !e.Type().IsRegular():
				continue
			}
			f, is := agentFile(path, among, sure)
			if !is {
				continue
			}
			if f.Below, is = nameBelow(f.Root, dir); !is {
				f.Below = ""
			}
			if files++; ok && f != found {
				return AgentFiles{}, false
			}
			found, ok = f, true
		}
	}
	return found, ok
}

// saysSo reports whether a file is an agent's by its first lines, if its name does not say.
func saysSo(a agents.Agent, path string) bool {
	r, ok := a.(agents.Recogniser)
	if !ok {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewReader(io.LimitReader(f, lookBytes))
	for {
		line, err := lines.ReadBytes('\n')
		if r.Recognises(bytes.TrimSpace(line)) {
			return true
		}
		if err != nil {
			return false
		}
	}
}
