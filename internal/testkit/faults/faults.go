// Package faults puts faults into the code on purpose, one at a time, and reports whether the test that is meant to
// detect the fault fails.
//
// A fault is a file testdata/faults/NAME.patch beside the package whose test notices: a header,
// and a unified diff with paths from the module's root.
//
//	The rule that the fault breaks, in a sentence.
//
//	Red: [KEY=value ...] [./package] TestName[/subtest ...] [-flag ...]
//
//	diff --git a/log/queue.go b/log/queue.go
//	...
//
// Each line Red names one test that must fail. Its package is by default the one that has the
// testdata, and each part of its name is a regular expression for the whole part. A line
// "Panic: counts" lets a test fail by a panic.
package faults

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Fault is a change that breaks a rule, with the tests that must notice.
type Fault struct {
	Name   string // the package's path from the module's root, and the file's name without .patch
	Rule   string // the broken rule
	Runs   []Run
	Panics bool // a test may notice by a panic

	root  string // of the module
	files []file
}

// A Run names a test that must fail, and how to run it.
type Run struct {
	Env     []string // beside that of the process
	Package string   // as go test takes it, from the module's root
	Test    string   // the test's whole name, as a regular expression
	Args    []string // further ones of go test
}

// String returns the arguments of go test.
func (r Run) String() string {
	return strings.Join(slices.Concat(r.Env, []string{r.Package, r.Test}, r.Args), " ")
}

// All reads the faults below a module's root, sorted by name.
func All(root string) (list []*Fault, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !isFault(filepath.ToSlash(name)):
			return nil
		}
		f, err := Read(root, name)
		list = append(list, f)
		return err
	})
	return list, err
}

func isFault(name string) bool {
	match, err := path.Match("testdata/faults/*.patch", path.Join(path.Base(path.Dir(path.Dir(name))), path.Base(path.Dir(name)), path.Base(name)))
	return match && err == nil
}

// Read reads the fault in a file.
func Read(root, name string) (*Fault, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return nil, err
	}
	rel = filepath.ToSlash(rel)
	pkg := path.Dir(path.Dir(path.Dir(rel)))
	f := &Fault{Name: path.Join(pkg, strings.TrimSuffix(path.Base(rel), ".patch")), root: root}
	head, diff := split(string(text))
	if err := f.readHead(head, "./"+pkg); err != nil {
		return nil, fmt.Errorf("%s: %w", rel, err)
	}
	if f.files, err = parse(diff); err != nil {
		return nil, fmt.Errorf("%s: %w", rel, err)
	}
	return f, nil
}

// split separates the header of a patch from its diff.
func split(text string) (head, diff string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "diff --git ") || strings.HasPrefix(line, "--- ") {
			break
		}
		head += line
	}
	return head, text[len(head):]
}

func (f *Fault) readHead(head, pkg string) error {
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if line == "Panic: counts" {
			f.Panics = true
		} else if text, isRun := strings.CutPrefix(line, "Red:"); isRun {
			r, err := readRun(text, pkg)
			if err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			f.Runs = append(f.Runs, r)
		} else {
			f.Rule = strings.TrimSpace(f.Rule + " " + line)
		}
	}
	if f.Rule == "" || len(f.Runs) == 0 {
		return fmt.Errorf("the header needs a sentence with the rule, and a line Red: TestName")
	}
	return nil
}

// variable begins a word that is an environment variable with its value.
var variable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`)

func readRun(text, pkg string) (Run, error) {
	r := Run{Package: pkg}
	for _, word := range strings.Fields(text) {
		switch {
		case strings.HasPrefix(word, "-"):
			r.Args = append(r.Args, word)
		case strings.HasPrefix(word, "./"):
			r.Package = word
		case variable.MatchString(word):
			r.Env = append(r.Env, word)
		case r.Test != "":
			return r, fmt.Errorf("two tests, %s and %s: each has a line of its own", r.Test, word)
		default:
			r.Test = word
		}
	}
	if !strings.HasPrefix(r.Test, "Test") {
		return r, fmt.Errorf("%q is not the name of a test", r.Test)
	}
	_, err := regexp.Compile(r.Test)
	return r, err
}

// Apply returns the changed files, by their paths from the module's root; the content of a removed file is nil. Go
// files must parse.
func (f *Fault) Apply() (map[string][]byte, error) {
	patched := make(map[string][]byte)
	for _, d := range f.files {
		old, err := os.ReadFile(filepath.Join(f.root, filepath.FromSlash(d.name)))
		if err != nil && !(d.isNew && os.IsNotExist(err)) {
			return nil, err
		}
		text, err := d.apply(string(old))
		if err != nil {
			return nil, fmt.Errorf("the patch no longer applies: %s: %w", d.name, err)
		}
		if patched[d.name] = []byte(text); d.isGone {
			patched[d.name] = nil
		} else if path.Ext(d.name) == ".go" {
			if _, err := parser.ParseFile(token.NewFileSet(), d.name, text, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
		}
	}
	return patched, nil
}

// Overlay writes the changed files into a folder, and returns the path of an overlay file for go build.
func (f *Fault) Overlay(dir string) (string, error) {
	patched, err := f.Apply()
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for name, text := range patched {
		at := filepath.Join(f.root, filepath.FromSlash(name))
		if replace[at] = ""; text == nil {
			continue
		}
		replace[at] = filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), path.Base(name)))
		if err := os.WriteFile(replace[at], text, 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o600)
}
