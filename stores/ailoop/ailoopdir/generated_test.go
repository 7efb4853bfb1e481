package ailoopdir_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/ailoop/ailoopdir"
)

// generator draws snapshot files as their writers make them, and as people edit them.
type generator struct{ *rapid.T }

func (g generator) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.T, label)
}

func (g generator) text() string {
	return `"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "Grüße ", "<&>", `\"`, `\\`, `\n`, `\u0001`, "\u2028", "\U0001f600", "/", `\t`, "  ", ": ", "{", "]", ","}), 0, 8).Draw(g.T, "text"), "") + `"`
}

func (g generator) value(depth int) string {
	kind := rapid.IntRange(0, 9).Draw(g.T, "kind")
	switch {
	case kind < 2 && depth > 0:
		var members []string
		for i := range rapid.IntRange(0, 4).Draw(g.T, "members") {
			members = append(members, fmt.Sprintf(`"%s%d":%s`, g.pick("key", "z", "a", "10", "é", ""), i, g.value(depth-1)))
		}
		return "{" + strings.Join(members, ",") + "}"
	case kind < 4 && depth > 0:
		var elements []string
		for range rapid.IntRange(0, 4).Draw(g.T, "elements") {
			elements = append(elements, g.value(depth-1))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case kind < 6:
		return g.text()
	}
	return g.pick("scalar", "1.0", "0.1", "1e-7", "1e21", "-0.0", "18446744073709551615", "-9223372036854775808", "1", "123456789012345678901234567890", "1E400", "0.9200000000000003", "true", "null", `"\ud83d"`)
}

func (g generator) source() string {
	return g.pick("source", `{"type":"url","url":"https://x/?a&b"}`, `{"type":"base64","media_type":"image/png","data":"AA=="}`, `{"type":"file_id","id":"f"}`, `{"type":"url","url":"u","data":5}`)
}

func (g generator) content(old bool) string {
	if old && rapid.Bool().Draw(g.T, "old") {
		return g.pick("old", `{"Text":`, `{"Error":`) + g.text() + "}"
	}
	end := g.pick("error", "", "", `,"is_error":true`, `,"is_error":false`)
	return `{"blocks":[{"type":"text","text":` + g.text() + `},{"type":"image","source":` + g.source() + `}]` + end + "}"
}

func (g generator) block(user, old bool) string {
	if kind := rapid.IntRange(0, 3).Draw(g.T, "block"); user {
		switch kind {
		case 0:
			return `{"ToolResult":{"call_id":` + g.text() + `,"content":` + g.content(old) + `}}`
		case 1:
			return `{"` + g.pick("media", "Image", "Document") + `":{"source":` + g.source() + `}}`
		}
	} else {
		switch kind {
		case 0:
			return `{"ToolCall":{"id":` + g.text() + `,"name":"f","args":` + g.value(4) + `}}`
		case 1:
			return `{"Reasoning":{"text":` + g.text() + g.pick("signature", "", `,"signature":null`, `,"signature":"s=="`) + `}}`
		case 2:
			return `{"RedactedReasoning":{"data":` + g.text() + `}}`
		}
	}
	if old {
		return `{"Text":` + g.text() + `}`
	}
	return `{"Text":{"text":` + g.text() + g.pick("hint", "", "", `,"cache_control":{"type":"ephemeral"}`) + `}}`
}

func (g generator) snapshot() string {
	old := rapid.IntRange(0, 9).Draw(g.T, "old writer") == 0
	var messages, pinned []string
	for range rapid.IntRange(0, 6).Draw(g.T, "messages") {
		user := rapid.Bool().Draw(g.T, "user")
		var blocks []string
		for range rapid.IntRange(0, 3).Draw(g.T, "blocks") {
			blocks = append(blocks, g.block(user, old))
		}
		role := map[bool]string{true: "User", false: "Assistant"}[user]
		messages = append(messages, `{"`+role+`":{"blocks":[`+strings.Join(blocks, ",")+`]}}`)
		pinned = append(pinned, fmt.Sprint(rapid.Bool().Draw(g.T, "pinned")))
	}
	unknown := ""
	if rapid.IntRange(0, 4).Draw(g.T, "unknown") == 0 {
		unknown = `,"x":` + g.value(3) + `,"y":1.50`
	}
	compact := `{"version":1,"messages":[` + strings.Join(messages, ",") + `],"pinned":[` + strings.Join(pinned, ",") + `]` + unknown + `}`
	return g.layout(compact)
}

// layout is usually the original's.
func (g generator) layout(compact string) string {
	switch rapid.IntRange(0, 9).Draw(g.T, "layout") {
	case 0:
		return compact
	case 1:
		return layouttest.Indent(compact) + g.pick("end", "\n", "\r\n", "\n\n", " ")
	case 2:
		return "\ufeff" + layouttest.Indent(compact)
	case 3:
		return strings.ReplaceAll(layouttest.Indent(compact), ": ", " : ")
	}
	return layouttest.Indent(compact)
}

// A thousand generated snapshots are written again byte for byte, and a second import adds nothing. Then each is
// changed into another, with the same result.
func TestGenerated(t *testing.T) {
	testkit.Long(t)
	total := 0
	t.Run("H-08 generated snapshots", rapid.MakeCheck(func(rt *rapid.T) {
		g, st, dir := generator{rt}, openStore(t), t.TempDir()
		want := make(map[string]string)
		check := func() {
			for name, content := range want {
				path := filepath.Join(dir, name)
				rewrite(t, path, content)
				if r := mustImport(t, st, path, layouts.ImportOptions{}); len(r.Problems) > 0 {
					rt.Fatalf("%v\n%s", r.Problems, content)
				}
				if r, err := (ailoopdir.Layout{}).Import(t.Context(), st, path, layouts.ImportOptions{}); err != nil || r.Events != 0 {
					rt.Fatalf("a second import: %+v, error %v\n%s", r, err, content)
				}
			}
			files, r := exported(t, st)
			if len(r.Problems) > 0 || len(files) != len(want) {
				rt.Fatalf("exported %d of %d files, problems %v", len(files), len(want), r.Problems)
			}
			for name, content := range want {
				if files[name] != content {
					rt.Fatalf("got %q\nwant %q", files[name], content)
				}
			}
		}
		for i := range 10 {
			want[fmt.Sprintf("chat-%d.json", i)] = g.snapshot()
			total++
		}
		check()
		for name := range want {
			want[name] = g.snapshot()
			break
		}
		check()
	}))
	if total < 1000 && !t.Failed() {
		t.Errorf("generated only %d snapshots", total)
	}
}
