package erasure

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/statefile"
)

func plan() Plan {
	a, fork := events.Session("default", "a"), events.Session("other", "fork \xff")
	unit := events.Subject{Namespace: "default", Kind: events.KindUnit, ID: "log"}
	return Plan{
		Receipt: "r7k2p9", Namespace: "default", By: "anna", Reason: "asked", Scope: "session/a", At: time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC),
		Records: []Record{
			{Offset: 3, Subject: a, Bytes: 20, Remains: []byte(" ")},
			{Offset: 5, Subject: unit, Bytes: 7, Copies: []Copy{{Index: 0}, {Index: 2, Turns: []int{1}, Remains: []byte("{}")}}},
			{Offset: 9, Subject: a, Bytes: 2, Turns: []int{0, 4}},
		},
		Subjects: []events.Subject{a, fork}, Unreached: []string{"the agent's own file"},
	}
}

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	if _, ok, err := Load(dir); ok || err != nil {
		t.Fatalf("no file: %v, %v", ok, err)
	}
	want := plan()
	if err := want.Begin(dir); err != nil {
		t.Fatal(err)
	}
	got, ok, err := Load(dir)
	if !ok || err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, %v, want %+v", got, ok, err, want)
	}
	if r, ok := got.Find(5); !ok || r.Offset != 5 || len(r.Copies) != 2 {
		t.Errorf("at 5: %+v, %v", r, ok)
	}
	if _, ok := got.Find(4); ok {
		t.Error("the plan has a record at 4")
	}
	path := filepath.Join(dir, JournalFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"", string(text[:len(text)/2]), strings.Replace(string(text), "anna", "emma", 1), `{"version":1,"names":[],"subjects":1}`, `{"version":1,"records":[{"subject":1}]}`} {
		if err := os.WriteFile(path, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := Load(dir); ok || !isDamaged(err) {
			t.Errorf("%.40q: %v, %v, want damage", wrong, ok, err)
		}
	}
	for range 2 {
		if err := End(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := Load(dir); ok || err != nil {
		t.Errorf("ended: %v, %v", ok, err)
	}
}

func isDamaged(err error) bool {
	_, is := errors.AsType[*statefile.DamageError](err)
	return is
}

func TestValidate(t *testing.T) {
	if err := plan().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(p *Plan){
		"receipt":          func(p *Plan) { p.Receipt = "R7" },
		"receipt ":         func(p *Plan) { p.Receipt = "" },
		"at":               func(p *Plan) { p.At = time.Time{} },
		"records":          func(p *Plan) { p.Records = nil },
		"namespace":        func(p *Plan) { p.Namespace = "a b" },
		"bytes":            func(p *Plan) { p.Reason = strings.Repeat("x", MaxText+1) },
		"ascending":        func(p *Plan) { p.Records[1].Offset = 3 },
		"subjects[1]":      func(p *Plan) { p.Subjects[1] = p.Subjects[0] },
		"lacks":            func(p *Plan) { p.Subjects = p.Subjects[1:] },
		"do not agree":     func(p *Plan) { p.Records[1].Turns = []int{1} },
		"copy 0":           func(p *Plan) { p.Records[1].Copies[1].Index = 0 },
		"there are 0":      func(p *Plan) { p.Records[2].Turns = []int{} },
		"turn 0 follows 4": func(p *Plan) { p.Records[2].Turns = []int{4, 0} },
	} {
		p := plan()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
