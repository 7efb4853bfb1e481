package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
)

// What a step of a conversation costs the tree that shows it, as the conversation gets long.
func TestTreeLines(t *testing.T) {
	testkit.OnlySoak(t)
	k := newKept(t)
	for _, e := range k.env {
		if name, value, _ := strings.Cut(e, "="); name == "XDG_STATE_HOME" || name == "HOME" {
			t.Setenv(name, value)
		}
	}
	toml := "namespace = \"project\"\n\n[[tree]]\nlayout = \"tallydir\"\ndir = \"talk\"\nmode = \"sync\"\nbulk = \"never\"\n"
	if err := os.MkdirAll(k.project, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.project, "tally.toml"), []byte(toml), 0o644); err != nil {
		t.Fatal(err)
	}
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: k.project, Store: k.store, Trees: app.LiveLayout})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := st.Session("long")
	n := 0
	steps := func(count int) []json.RawMessage {
		var list []json.RawMessage
		for range count {
			n++
			list = append(list, json.RawMessage(fmt.Sprintf(`{"role":"assistant","n":%d,"content":"%400d"}`, n, n)))
		}
		return list
	}
	for _, upto := range []int{1_000, 10_000, 100_000} {
		for n < upto-100 {
			if _, err := s.AppendTurns(t.Context(), "main", steps(min(1000, upto-100-n))...); err != nil {
				t.Fatal(err)
			}
		}
		var list []time.Duration
		for range 100 {
			began := time.Now()
			if _, err := s.AppendTurns(t.Context(), "main", steps(1)...); err != nil {
				t.Fatal(err)
			}
			list = append(list, time.Since(began))
		}
		slices.Sort(list)
		for info, err := range st.Subjects(t.Context(), "conflict") {
			t.Fatalf("nobody wrote to the folder, and there is %v, %v", info.Subject, err)
		}
		t.Logf("%d lines: a step p50 %v p99 %v", upto, list[50], list[98])
	}
}
