package tally_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// dialect lists the constructions that comments, pages and help texts avoid, each with the number of lines that may
// still have it. A number may only fall.
var dialect = []struct {
	pattern *regexp.Regexp
	allowed int
}{
	{regexp.MustCompile(`[Ww]hoever`), 0},
	{regexp.MustCompile(`\b(to|for|of|by) who\b`), 0},
	{regexp.MustCompile(`is none\b`), 0},
	{regexp.MustCompile(`\bgives\b`), 0},
	{regexp.MustCompile(`\banew\b`), 0},
	{regexp.MustCompile(`comes? to stand`), 0},
	{regexp.MustCompile(`\b[Ww]hat (is|was|there|has)\b`), 15},
}

// dialectSlack is how far an allowed number may lie above the count before it has to be lowered.
const dialectSlack = 40

// dialectListed bounds the lines that a failure lists.
const dialectListed = 100

// TestProse checks the language of comments, Markdown pages and help texts. It fails if a construction of dialect
// occurs on more lines than allowed.
func TestProse(t *testing.T) {
	hits := make([][]string, len(dialect))
	prose(t, func(path string, line int, text string) {
		for i, d := range dialect {
			if d.pattern.MatchString(text) {
				hits[i] = append(hits[i], path+":"+strconv.Itoa(line)+": "+strings.TrimSpace(text))
			}
		}
	})
	for i, d := range dialect {
		n := len(hits[i])
		if n > d.allowed {
			t.Errorf("%d lines match %s, allowed are %d: rewrite the lines that you added or changed:\n\t%s",
				n, d.pattern, d.allowed, strings.Join(hits[i][:min(n, dialectListed)], "\n\t"))
		}
		if d.allowed > n+dialectSlack {
			t.Errorf("%d lines match %s, allowed are %d: write %d in the table", n, d.pattern, d.allowed, n)
		}
	}
}

// prose calls visit for each line of each comment in a Go file, for each line of a Markdown page, and for each line of
// a string literal in the commands' product code. Folders named testdata are skipped.
func prose(t *testing.T, visit func(path string, line int, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path != "." && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		case filepath.Ext(path) != ".go" && filepath.Ext(path) != ".md":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		if filepath.Ext(path) == ".md" {
			visitLines(path, 1, string(data), visit)
			return nil
		}
		literals := strings.HasPrefix(path, "cmd/internal/") && !strings.HasSuffix(path, "_test.go")
		visitProse(path, data, literals, visit)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// visitProse calls visit for each line of each comment in the Go source data, and of each string literal if literals is
// set.
func visitProse(path string, data []byte, literals bool, visit func(path string, line int, text string)) {
	file := token.NewFileSet().AddFile(path, -1, len(data))
	var s scanner.Scanner
	s.Init(file, data, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return
		case tok == token.COMMENT, tok == token.STRING && literals:
			visitLines(path, file.Line(pos), text, visit)
		}
	}
}

func visitLines(path string, first int, text string, visit func(path string, line int, text string)) {
	for line := range strings.Lines(text) {
		visit(path, first, line)
		first++
	}
}
