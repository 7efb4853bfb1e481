package nodefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

const id = "8F14E45F-CEEA-467F-A0E6-6C1B1B1F1B1F"

// original is a file as the original writes it.
const original = `---
createdAt: "2026-08-22T10:00:00Z"
id: ` + id + `
state: verifying
title: Kettle
updatedAt: "2026-08-22T11:00:00Z"
---

## Assignment

Boil the water.

Gently.

## Commitments

- ⏳ **It boils**
  - Assertion: ` + "`test -e steam`" + `
- 🔄 **It is hot**
  - Assertion: ` + "`a ` b`" + `
- ✅ **It is water**
  - Assertion: ` + "``" + `
- ❌ **Nobody is burnt**
  - Assertion: ` + "`make check`" + `
  - Failed: exit status 2
`

func parsed(t testing.TB, text string) nodefile.Node {
	t.Helper()
	n, err := nodefile.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return n
}

func edited(t testing.TB, text string, n nodefile.Node) string {
	t.Helper()
	out, err := nodefile.Edit([]byte(text), n)
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return string(out)
}

func TestParse(t *testing.T) {
	t.Run("D-12 a file of the original", func(t *testing.T) {
		want := nodefile.Node{ID: id, Name: "Kettle", State: "verifying", CreatedAt: "2026-08-22T10:00:00Z", UpdatedAt: "2026-08-22T11:00:00Z", Assignment: "Boil the water.\n\nGently.",
			Commitments: []nodefile.Commitment{
				{Description: "It boils", Assertion: "test -e steam", Status: "pending"},
				{Description: "It is hot", Assertion: "a ` b", Status: "verifying"},
				{Description: "It is water", Status: "passed"},
				{Description: "Nobody is burnt", Assertion: "make check", Status: "failed", Failure: "exit status 2"},
			}}
		have := parsed(t, original)
		if diff := cmp.Diff(want, have, cmpopts.IgnoreFields(nodefile.Commitment{}, "ID")); diff != "" {
			t.Error(diff)
		}
		ids := map[string]bool{}
		for i, c := range have.Commitments {
			if again := parsed(t, original).Commitments[i].ID; c.ID != again || len(c.ID) != 36 || ids[c.ID] {
				t.Errorf("the commitment has the id %q, and after another parse %q", c.ID, again)
			}
			ids[c.ID] = true
		}
	})
	t.Run("D-12 the same commitment twice", func(t *testing.T) {
		item := "- ⏳ **A**\n  - Assertion: `a`\n"
		list := parsed(t, "---\nid: "+id+"\ntitle: K\nstate: idle\n---\n## Commitments\n"+item+item+item+"  - Id: x\n"+item+"  - Id: x\n").Commitments
		seen := map[string]bool{}
		for _, c := range list {
			seen[c.ID] = true
		}
		if len(list) != 4 || len(seen) != 4 || list[2].ID != "x" {
			t.Errorf("got %+v", list)
		}
	})
	t.Run("D-12 what is a commitment", func(t *testing.T) {
		text := "---\nid: " + id + "\ntitle: K\nstate: idle\n---\n## Commitments \n" +
			"- ⏳ **no assertion**\n- plain\n* ✅ **b**\n - **no sign**\n - Assertion: `x` y `z`\n   - Failed:\n- ❌ ** spaced ** ⏳\n\t- Assertion: `q`\n- ❓ **sign behind** ✅\n  - Assertion: `r`\n- **open\n - Assertion: `s`\n## Notes\n- ✅ **not here**\n  - Assertion: `t`\n"
		var have []string
		for _, c := range parsed(t, text).Commitments {
			have = append(have, c.Description+"|"+c.Assertion+"|"+c.Status+"|"+c.Failure)
		}
		if diff := cmp.Diff([]string{"no sign|x` y `z|pending|", " spaced |q|failed|", "sign behind|r|passed|"}, have); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("D-32 a servitor", func(t *testing.T) {
		text := "---\nname: \"Fix: \\\"it\\\"\"\nid: " + id + "\nassignment: \"a\\nb \\\\ c\"\nsession_id: s\nsession_mode: plan\ncreated_at: 2026-08-22T10:00:00Z\nupdated_at: 2026-08-22T11:00:00Z\n---\n"
		want := nodefile.Node{ID: id, Name: `Fix: "it"`, State: "idle", CreatedAt: "2026-08-22T10:00:00Z", UpdatedAt: "2026-08-22T11:00:00Z", Assignment: "a\nb \\ c", Servitor: true}
		if diff := cmp.Diff(want, parsed(t, text)); diff != "" {
			t.Error(diff)
		}
		want.State, want.Assignment = "stopped:reaped", "c\nd: \\"
		if diff := cmp.Diff(want, parsed(t, edited(t, text, want))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestParseErrors(t *testing.T) {
	for field, text := range map[string]string{
		"id":    "---\ntitle: K\nstate: idle\n---\n",
		"title": "---\nid: " + id + "\nstate: idle\n---\n",
		"state": "---\nid: " + id + "\ntitle: K\n---\n",
	} {
		t.Run("D-13 without "+field, func(t *testing.T) {
			_, err := nodefile.Parse([]byte(text))
			if e, ok := errors.AsType[*nodefile.Error](err); !ok || e.Field != field {
				t.Errorf("got the error %v", err)
			}
		})
	}
	for _, bad := range []string{"", "text", "---\nid: 7\ntitle: K\nstate: idle\n---\n", "---\nid: {" + id + "}\ntitle: K\nstate: idle\n---\n"} {
		_, err := nodefile.Parse([]byte(bad))
		if e, ok := errors.AsType[*nodefile.Error](err); !ok || e.Field != "id" {
			t.Errorf("%q: got the error %v", bad, err)
		}
	}
}

// New writes the file that the original would write, plus the lines with ids.
func TestNew(t *testing.T) {
	n := parsed(t, original)
	text, err := nodefile.New(n)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != original {
		t.Errorf("got %s", text)
	}
	n.Commitments[1].ID = "2"
	if text, err = nodefile.New(n); err != nil || strings.Replace(string(text), "  - Id: 2\n", "", 1) != original {
		t.Errorf("got %s, error %v", text, err)
	}
	n.Assignment, n.Commitments = "", nil
	if text, err = nodefile.New(n); err != nil || !strings.HasSuffix(string(text), "---\n\n") {
		t.Errorf("got %q, error %v", text, err)
	}
}

func TestEditRefuses(t *testing.T) {
	for name, change := range map[string]func(*nodefile.Node){
		"another agent":             func(n *nodefile.Node) { n.ID = strings.ToLower(id) },
		"a name of two lines":       func(n *nodefile.Node) { n.Name = "a\nb" },
		"a section":                 func(n *nodefile.Node) { n.Assignment = "a\n## Commitments\n" },
		"a description of two":      func(n *nodefile.Node) { n.Commitments[0].Description = "a\nb" },
		"bold":                      func(n *nodefile.Node) { n.Commitments[0].Description = "a **b**" },
		"a star at the end":         func(n *nodefile.Node) { n.Commitments[0].Description = "*a*" },
		"nothing":                   func(n *nodefile.Node) { n.Commitments[0].Description = "" },
		"a status of another kind":  func(n *nodefile.Node) { n.Commitments[0].Status = "done" },
		"an assertion of two lines": func(n *nodefile.Node) { n.Commitments[0].Assertion = "a\nb" },
		"another order": func(n *nodefile.Node) {
			n.Commitments[0], n.Commitments[1] = n.Commitments[1], n.Commitments[0]
		},
	} {
		n := parsed(t, original)
		change(&n)
		_, err := nodefile.Edit([]byte(original), n)
		if e, ok := errors.AsType[*nodefile.Error](err); !ok || e.Reason == "" {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}

func TestEdit(t *testing.T) {
	front := "---\nid: " + id + "\ntitle: K\nstate: idle\n---\n"
	for name, c := range map[string]struct {
		text   string
		change func(*nodefile.Node)
		want   string
	}{
		"the first commitment": {front, func(n *nodefile.Node) {
			n.Commitments = []nodefile.Commitment{{ID: "1", Description: "A", Assertion: "a", Status: "pending"}}
		}, front + "\n## Commitments\n\n- ⏳ **A**\n  - Assertion: `a`\n  - Id: 1\n"},
		"behind a remark": {front + "## Commitments\n\nmine\n\n## Notes\n", func(n *nodefile.Node) {
			n.Commitments = []nodefile.Commitment{{ID: "1", Description: "A", Status: "passed"}}
		}, front + "## Commitments\n\nmine\n\n- ✅ **A**\n  - Assertion: ``\n  - Id: 1\n\n## Notes\n"},
		"at the end of a text that does not end": {front + "x", func(n *nodefile.Node) {
			n.Commitments = []nodefile.Commitment{{ID: "1", Description: "A", Status: "failed", Failure: "b \r\n\n c\n"}}
		}, front + "x\n\n## Commitments\n\n- ❌ **A**\n  - Assertion: ``\n  - Failed: b\n    |\n    |  c\n  - Id: 1\n"},
		"an assignment":                  {front + "x", func(n *nodefile.Node) { n.Assignment = "do\r\nit \n" }, front + "x\n\n## Assignment\n\ndo\nit\n"},
		"an assignment before a section": {front + "x\n## Notes", func(n *nodefile.Node) { n.Assignment = "do" }, front + "x\n\n## Assignment\n\ndo\n\n## Notes"},
		"an empty one":                   {front + "## Assignment", func(n *nodefile.Node) { n.Assignment = "do" }, front + "## Assignment\n\ndo\n"},
		"a new id for what is said otherwise": {front + "## Commitments\n- ⏳ **A**\n  - Assertion: `a`", func(n *nodefile.Node) { n.Commitments[0].Description = "B" },
			front + "## Commitments\n- ⏳ **B**\n  - Assertion: `a`\n  - Id: ID\n"},
	} {
		n := parsed(t, c.text)
		change := n
		c.change(&change)
		want := c.want
		if len(n.Commitments) > 0 {
			want = strings.ReplaceAll(want, "Id: ID", "Id: "+n.Commitments[0].ID)
		}
		if have := edited(t, c.text, change); have != want {
			t.Errorf("%s: got\n%q\nwant\n%q", name, have, want)
		}
	}
}

// odd returns a file that a person has edited, with the given state.
func odd(eol, state, updated string, statuses, failures []string) string {
	signs := map[string]string{"pending": "⏳", "verifying": "🔄", "passed": "✅", "failed": "❌"}
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(fmt.Sprintf(format, args...) + eol) }
	line("---")
	line("# mine: do not touch ")
	line("zebra :  \"9\"  ")
	line("state:\t%s \t", state)
	line("")
	line("  id: %s", id)
	line("title:   \"Kettle: one\"")
	line("updatedAt: %s", updated)
	line("no colon here")
	line("---")
	line("")
	line("")
	line("Intro with **bold** and state: idle.")
	line("- ✅ **a list of mine**")
	line("## Assignment")
	line("\t Boil.  ")
	line("")
	line("# Remarks")
	line("## Commitments")
	line("<!-- promise less -->")
	for i, s := range statuses {
		line(" -  %s  **C%d** (said twice) ", signs[s], i)
		line("    why: because")
		line("\t- Assertion: run `c %d` now", i)
		if failures[i] != "" {
			line("  - Failed: %s", strings.ReplaceAll(failures[i], "\n", eol+"    | "))
		}
		line("")
		line("  - [ ] a step")
	}
	line("## Notes ✅")
	line("- ❌ **not mine**")
	line("  - Assertion: `rm -rf`")
	b.WriteString("no end \x00\xff")
	return b.String()
}

// After a thousand changes of state, the file is the person's text with only the state's own tokens changed.
func TestInPlace(t *testing.T) {
	for _, eol := range []string{"\n", "\r\n"} {
		t.Run(fmt.Sprintf("D-68 a thousand changes, lines end in %q", eol), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			state, updated, statuses, failures := "idle", "1", []string{"pending", "failed", "passed"}, []string{"", "x", ""}
			text := odd(eol, state, updated, statuses, failures)
			for i := range 1000 {
				n := parsed(t, text)
				state, updated = []string{"idle", "working", "waiting", "verifying", "done", "error"}[r.IntN(6)], fmt.Sprint("2026-", i)
				at := r.IntN(len(statuses))
				statuses[at], failures[at] = []string{"pending", "verifying", "passed", "failed"}[r.IntN(4)], ""
				if statuses[at] == "failed" {
					failures[at] = []string{"", "because", "two\nlines", "- ✅ **odd**"}[r.IntN(4)]
				}
				n.State, n.UpdatedAt, n.Commitments[at].Status, n.Commitments[at].Failure = state, updated, statuses[at], failures[at]
				text = edited(t, text, n)
				if diff := cmp.Diff(odd(eol, state, updated, statuses, failures), text); diff != "" {
					t.Fatalf("change %d: %s", i, diff)
				}
			}
		})
	}
}

// After any change of a node, its file has the node's contents, and keeps other text in its order.
func TestEditLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nodefile.Node{ID: id, Name: "Kettle: one", State: "idle", UpdatedAt: "1", Assignment: "Boil.  \n\n# Remarks"}
		text := odd(rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "eol"), "idle", "1", []string{"pending", "failed"}, []string{"", "x"})
		if rapid.Bool().Draw(t, "new") {
			made, err := nodefile.New(n)
			if err != nil {
				t.Fatal(err)
			}
			text = string(made)
		}
		parse := func() nodefile.Node {
			n, err := nodefile.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		frame := []string{"# mine: do not touch ", "no colon here", "Intro with **bold** and state: idle.", "<!-- promise less -->", "why: because", "- [ ] a step", "## Notes ✅", "no end \x00\xff"}
		framed := strings.Contains(text, frame[0])
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				rest := text
				for _, word := range frame {
					_, after, ok := strings.Cut(rest, word)
					if framed && !ok {
						t.Fatalf("the word %q is missing or moved in %q", word, text)
					}
					rest = after
				}
			},
			"change": func(t *rapid.T) {
				want := parse()
				switch rapid.IntRange(0, 5).Draw(t, "what") {
				case 0:
					want.Assignment = strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"do", "it", "# x", "- y", ""}), 0, 4).Draw(t, "assignment"), "\n")
				case 1:
					next++
					want.Commitments = append(want.Commitments, nodefile.Commitment{ID: fmt.Sprint("n", next), Description: "C0", Assertion: rapid.SampledFrom([]string{"", "`", "c 0", " x "}).Draw(t, "assertion"), Status: "pending"})
				case 2:
					if k := len(want.Commitments); k > 0 {
						i := rapid.IntRange(0, k-1).Draw(t, "gone")
						want.Commitments = append(want.Commitments[:i:i], want.Commitments[i+1:]...)
					}
				default:
					if k := len(want.Commitments); k > 0 {
						c := &want.Commitments[rapid.IntRange(0, k-1).Draw(t, "which")]
						c.Status = rapid.SampledFrom([]string{"pending", "verifying", "passed", "failed"}).Draw(t, "status")
						c.Failure = rapid.SampledFrom([]string{"", "a", "a\n\n b", "- Id: x\n- Assertion: `y`"}).Draw(t, "failure")
						c.Description = rapid.SampledFrom([]string{c.Description, "C1", "⏳ later"}).Draw(t, "description")
					}
				}
				out, err := nodefile.Edit([]byte(text), want)
				if err != nil {
					t.Fatalf("%v\n%q\n%+v", err, text, want)
				}
				text = string(out)
				want.Assignment = strings.TrimSpace(want.Assignment)
				if diff := cmp.Diff(want, parse(), cmpopts.EquateEmpty()); diff != "" {
					t.Fatal(diff)
				}
			},
		})
	})
}

func FuzzEdit(f *testing.F) {
	for _, eol := range []string{"\n", "\r\n"} {
		f.Add([]byte(odd(eol, "idle", "1", []string{"pending", "failed"}, []string{"", "x\ny"})), "done", "D", "why")
	}
	f.Add([]byte(original), "working", "", "a\n b")
	f.Add([]byte(strings.Replace(odd("\r\n", "idle", "1", []string{"failed"}, []string{"x"}), "Failed: x", "Failed: x\rise \r", 1)), "done", "\xb4", "why")
	f.Add([]byte("\ufeff"+original), "error", "*", "\x00\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, text []byte, state, description, failure string) {
		n, err := nodefile.Parse(text)
		if err != nil {
			if _, ok := errors.AsType[*nodefile.Error](err); !ok {
				t.Fatalf("got the error %T", err)
			}
			return
		}
		if same, err := nodefile.Edit(text, n); err != nil || !bytes.Equal(same, text) {
			t.Fatalf("an empty change turned %q into %q, error %v", text, same, err)
		}
		n.State = state
		n.Commitments = append(n.Commitments, nodefile.Commitment{ID: "n", Description: description, Status: "failed", Failure: failure})
		out, err := nodefile.Edit(text, n)
		if err != nil {
			return // it is refused, and nothing is written
		}
		again, err := nodefile.Parse(out)
		if err != nil || again.State != state || len(again.Commitments) != len(n.Commitments) {
			t.Fatalf("%q is read as %+v, error %v", out, again, err)
		}
	})
}

// A file of many megabytes and a hundred thousand commitments is read and edited quickly.
func TestLarge(t *testing.T) {
	var b strings.Builder
	b.WriteString("---\nid: " + id + "\ntitle: K\nstate: idle\n---\n## Commitments\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "- ⏳ **C**\n  - Assertion: `%d`\n", i%100)
	}
	b.WriteString("## Notes\n" + strings.Repeat("x", 1<<20) + strings.Repeat("- **", 1<<18))
	begun := time.Now()
	n := parsed(t, b.String())
	n.State, n.Commitments[9999].Status = "working", "passed"
	if again := parsed(t, edited(t, b.String(), n)); again.Commitments[9999].Status != "passed" {
		t.Error("the file was not edited")
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the edit took %v", took)
	}
}
