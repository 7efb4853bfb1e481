// Types reads this module as other systems build it, and everything it needs, and fails for what
// a compiler would refuse: go run .ci/types.go GOOS... It compiles nothing, so that it takes
// seconds where nothing is cached. make check compiles.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

func main() {
	var all sync.WaitGroup
	failed := make([]error, len(os.Args)-1)
	for i, system := range os.Args[1:] {
		all.Go(func() { failed[i] = check(system) })
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct {
		Main      bool
		GoVersion string
	}
}

// check reads the packages of this module, in the order in which they need each other.
func check(system string) error {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("%s: go list: %w", system, err)
	}
	known, own := map[string]*types.Package{"unsafe": types.Unsafe}, 0
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		if known[p.ImportPath], err = p.check(known); err != nil {
			return fmt.Errorf("%s: %w", system, err)
		}
		if p.own() {
			own++
		}
	}
	fmt.Printf("ok  %s: %d packages, and %d that they need\n", system, own, len(known)-own)
	return nil
}

func (p *listed) own() bool { return p.Module != nil && p.Module.Main }

// check returns the types of a package. Of one of another module only what it declares counts.
func (p *listed) check(known map[string]*types.Package) (*types.Package, error) {
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	var wrong []error
	c := types.Config{Sizes: types.SizesFor("gc", "amd64"), IgnoreFuncBodies: !p.own(), Error: func(err error) { wrong = append(wrong, err) },
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := p.ImportMap[path]; ok {
				path = mapped
			}
			if have := known[path]; have != nil {
				return have, nil
			}
			return nil, fmt.Errorf("%s is not listed", path)
		})}
	if p.Module != nil && p.Module.GoVersion != "" {
		c.GoVersion = "go" + p.Module.GoVersion
	}
	have, _ := c.Check(p.ImportPath, files, parsed, nil)
	return have, errors.Join(wrong...)
}

type importer func(string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
