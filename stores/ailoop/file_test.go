package ailoop_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/stores/ailoop"
)

const prettySnapshot = `{
  "version": 1,
  "messages": [
    {
      "User": {
        "blocks": [
          {
            "Text": {
              "text": "Grüße <b> & \"co\"\n"
            }
          }
        ]
      }
    },
    {
      "Assistant": {
        "blocks": [
          {
            "Reasoning": {
              "text": "hm",
              "signature": null
            }
          },
          {
            "ToolCall": {
              "id": "c1",
              "name": "f",
              "args": {
                "z": 1.0,
                "a": 1e-7,
                "n": 18446744073709551615,
                "e": {},
                "l": []
              }
            }
          }
        ]
      }
    }
  ],
  "pinned": [
    true,
    false
  ]
}`

// wantFileError checks the kind of an error, and that its text is the original's.
func wantFileError(t testing.TB, err error, kind ailoop.FileErrorKind) *ailoop.FileError {
	t.Helper()
	e, ok := errors.AsType[*ailoop.FileError](err)
	if !ok || e.Kind != kind {
		t.Fatalf("got %v, want an error of kind %d", err, kind)
	}
	begin := map[ailoop.FileErrorKind]string{ailoop.FileIO: "failed to read/write snapshot file: ", ailoop.FileJSON: "failed to encode/decode snapshot JSON: "}[kind]
	if !strings.HasPrefix(err.Error(), begin) {
		t.Errorf("%q does not begin with %q", err, begin)
	}
	return e
}

// fileWith returns a store on a file with this content.
func fileWith(t testing.TB, content string) *ailoop.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chat.json")
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	return ailoop.NewFile(path)
}

func TestHistoryFile(t *testing.T) {
	t.Run("H-04 missing file, I/O error, decode error", func(t *testing.T) {
		for _, path := range []string{filepath.Join(t.TempDir(), "none.json"), filepath.Join(t.TempDir(), "no", "folder", "none.json")} {
			if _, found, err := ailoop.NewFile(path).Load(t.Context()); found || err != nil {
				t.Errorf("got %v, error %v", found, err)
			}
		}
		_, found, err := ailoop.NewFile(t.TempDir()).Load(t.Context())
		wantFileError(t, err, ailoop.FileIO)
		_, found2, err := fileWith(t, "{").Load(t.Context())
		wantFileError(t, err, ailoop.FileJSON)
		if found || found2 {
			t.Error("Load found a history")
		}
	})
	t.Run("H-05 pretty JSON, a path, nothing done by the constructor", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "chat.json")
		st := ailoop.NewFile(path)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || st.Path() != path {
			t.Errorf("%v, %s", err, st.Path())
		}
		s, err := ailoop.ParseSnapshot([]byte(prettySnapshot))
		if err != nil {
			t.Fatal(err)
		}
		mustSave(t, st, s)
		if have, err := os.ReadFile(path); err != nil || string(have) != prettySnapshot {
			t.Errorf("got %s, error %v", have, err)
		}
		mustSave(t, st, ailoop.Snapshot{})
		if have, err := os.ReadFile(path); err != nil || string(have) != "{\n  \"version\": 1,\n  \"messages\": [],\n  \"pinned\": []\n}" {
			t.Errorf("got %s, error %v", have, err)
		}
	})
	t.Run("H-08 spelling of numbers and order of keys", func(t *testing.T) {
		st := fileWith(t, prettySnapshot)
		mustSave(t, st, mustLoad(t, st))
		if have, err := os.ReadFile(st.Path()); err != nil || string(have) != prettySnapshot {
			t.Errorf("got %s, error %v", have, err)
		}
		unknown := strings.Replace(prettySnapshot, "\n}", ",\n  \"tokens\": {\n    \"used\": 1.50\n  }\n}", 1)
		unknown = strings.Replace(unknown, `"version": 1`, `"version": 1`, 1)
		st = fileWith(t, unknown)
		mustSave(t, st, mustLoad(t, st))
		if have, err := os.ReadFile(st.Path()); err != nil || string(have) != unknown {
			t.Errorf("members of other versions are lost: %s, %v", have, err)
		}
	})
	t.Run("H-15 a save that fails leaves what was there", testFailedSave)
	t.Run("H-16 wrong version, cut off, empty", func(t *testing.T) {
		for content, want := range map[string]string{
			"":                   "",
			"null":               "",
			"[]":                 "",
			prettySnapshot[:300]: "",
			prettySnapshot + "}": "",
			strings.Replace(prettySnapshot, `"version": 1`, `"version": 2`, 1): "unsupported snapshot version 2 (expected 1)",
		} {
			s, found, err := fileWith(t, content).Load(t.Context())
			wantFileError(t, err, ailoop.FileJSON)
			if found || s.Len() != 0 || !strings.Contains(err.Error(), want) {
				t.Errorf("%.20q: got %v, error %v", content, found, err)
			}
		}
	})
	t.Run("H-19 errors wrap their cause", func(t *testing.T) {
		err := ailoop.NewFile(filepath.Join(t.TempDir(), "no", "chat.json")).Save(t.Context(), talk("a"))
		if wantFileError(t, err, ailoop.FileIO); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got the error %v", err)
		}
		err = &ailoop.FileError{Kind: ailoop.FileIO, Err: &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}}
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got the error %v", err)
		}
		_, _, err = fileWith(t, "{\n  \"version\": 1,\n  \"messages\": [],\n  \"pinned\": [tru]\n}").Load(t.Context())
		wantFileError(t, err, ailoop.FileJSON)
		if d, ok := errors.AsType[*ailoop.SnapshotDecodeError](err); !ok || d.Line != 4 || d.Column < 14 || d.Column > 17 {
			t.Errorf("got the error %+v", d)
		}
		_, _, err = fileWith(t, strings.Replace(prettySnapshot, `"hm"`, "7", 1)).Load(t.Context())
		if d, ok := errors.AsType[*ailoop.SnapshotDecodeError](err); !ok || d.Field != "messages[1].Assistant.blocks[0].Reasoning.text" {
			t.Errorf("got the error %+v", d)
		}
	})
}

// A failed save returns an error and leaves the file as it is. The test skips cases that the superuser may do.
func testFailedSave(t *testing.T) {
	st := fileWith(t, prettySnapshot)
	if err := os.Chmod(st.Path(), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := st.Save(t.Context(), talk("a")); os.Geteuid() != 0 {
		if wantFileError(t, err, ailoop.FileIO); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got the error %v", err)
		}
	} else if err != nil {
		t.Errorf("%v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantFileError(t, ailoop.NewFile(filepath.Join(file, "chat.json")).Save(t.Context(), talk("a")), ailoop.FileIO)
	dir := t.TempDir()
	wantFileError(t, ailoop.NewFile(dir).Save(t.Context(), talk("a")), ailoop.FileIO)
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) > 4 {
		t.Errorf("a failed save left files: %v, error %v", entries, err)
	}
}

// A save follows a symbolic link and keeps the permissions of the file.
func TestHistoryFileLink(t *testing.T) {
	st := fileWith(t, prettySnapshot)
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(st.Path(), link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	mustSave(t, ailoop.NewFile(link), talk("a"))
	wantSnapshot(t, mustLoad(t, st), talk("a"))
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the save replaced the link: %v, error %v", info, err)
	}
	if info, err := os.Stat(st.Path()); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, error %v", info.Mode(), err)
	}
}

func TestHistorySnapshot(t *testing.T) {
	t.Run("H-06 version and lengths", func(t *testing.T) {
		_, err := ailoop.NewSnapshot([]ailoop.Message{ailoop.UserMessage("a")}, nil)
		if e, ok := errors.AsType[*ailoop.LengthMismatchError](err); !ok || e.Messages != 1 || e.Pinned != 0 {
			t.Errorf("got the error %v", err)
		}
		_, err = ailoop.ParseSnapshot([]byte(`{"version":1,"messages":[],"pinned":[true]}`))
		if e, ok := errors.AsType[*ailoop.LengthMismatchError](err); !ok || e.Messages != 0 || e.Pinned != 1 {
			t.Errorf("got the error %v", err)
		}
		_, err = ailoop.ParseSnapshot([]byte(`{"version":17,"something":"else"}`))
		if !hasError[*ailoop.SnapshotDecodeError](err) {
			t.Errorf("got the error %v", err)
		}
		_, err = ailoop.ParseSnapshot([]byte(`{"version":17,"messages":{},"pinned":0}`))
		if e, ok := errors.AsType[*ailoop.UnsupportedVersionError](err); !ok || e.Have != 17 || !strings.Contains(err.Error(), "unsupported snapshot version 17 (expected 1)") {
			t.Errorf("got the error %v", err)
		}
	})
	t.Run("H-07 as it is written", func(t *testing.T) {
		s := everyBlock(t)
		have := string(s.Message(1).Raw())
		if want := `{"Assistant":{"blocks":[{"Reasoning":{"text":"hm","signature":null}},{"Reasoning":{"text":"aha","signature":"sig=="}},{"RedactedReasoning":{"data":"zzz"}},` +
			`{"Text":{"text":"I call"}},{"ToolCall":{"id":"c1","name":"f","args":{"z":1.0,"a":1e21}}},{"ToolCall":{"id":"c2","name":"g","args":null}}]}}`; have != want {
			t.Errorf("%s\nwant %s", have, want)
		}
		have = string(s.Message(0).Raw())
		if want := `{"User":{"blocks":[{"Text":{"text":"look"}},{"ToolResult":{"call_id":"c1","content":{"blocks":[{"type":"text","text":"ok"},{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}}},` +
			`{"ToolResult":{"call_id":"c2","content":{"blocks":[{"type":"text","text":"no"}],"is_error":true}}},{"Image":{"source":{"type":"base64","media_type":"image/png","data":"AA=="}}},` +
			`{"Document":{"source":{"type":"file_id","id":"f-1"}}}]}}`; have != want {
			t.Errorf("%s\nwant %s", have, want)
		}
		if m, err := ailoop.NewUserMessage(ailoop.ImageBlock{}); err == nil {
			t.Errorf("a source without a type: %s", m.Raw())
		}
		if m, err := ailoop.NewAssistantMessage(ailoop.ToolCallBlock{Args: json.RawMessage("{")}); err == nil {
			t.Errorf("arguments that are not JSON: %s", m.Raw())
		}
		if m := ailoop.UserMessage("a\xffb"); m.Text() != "a\ufffdb" {
			t.Errorf("got %q", m.Text())
		}
	})
	t.Run("H-07 what is not of this version", func(t *testing.T) {
		for _, text := range []string{
			`{"User":{"blocks":[{"Text":{"text":"a","cache_control":{"type":"ephemeral"}}}],"x":1}}`,
			`{"User":{"blocks":[{"Image":{"source":{"type":"url","url":"u","data":5,"id":null}}}]}}`,
			`{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"blocks":[{"type":"text","text":"t","source":7}],"is_error":false}}}]}}`,
			`{"Assistant":{"blocks":[{"Reasoning":{"text":"a"}}]}}`,
		} {
			m, err := ailoop.ParseMessage([]byte(text))
			if err != nil || string(m.Raw()) != text || len(m.Blocks()) != 1 {
				t.Errorf("%s: got the error %v", text, err)
			}
		}
		for _, text := range []string{``, `{}`, `{"System":{"blocks":[]}}`, `{"User":{"blocks":[]},"Assistant":{"blocks":[]}}`, `{"User":{"blocks":[{"ToolCall":{"id":"","name":"","args":1}}]}}`,
			`{"User":{"blocks":[{"Text":"bare"}]}}`, `{"User":{"blocks":[{"Text":{"text":"\ud800"}}]}}`, `{"User":{"blocks":[{"Image":{"source":{"type":"path"}}}]}}`, `{"User":{}}`} {
			if m, err := ailoop.ParseMessage([]byte(text)); !hasError[*ailoop.SnapshotDecodeError](err) {
				t.Errorf("%s: got %s, error %v", text, m.Raw(), err)
			}
		}
	})
	t.Run("H-20 the names of the original", func(t *testing.T) {
		var (
			_ ailoop.HistoryStore = new(ailoop.InMemory)
			_ ailoop.HistoryStore = ailoop.NewFile("")
			_ error               = new(ailoop.FileError)
		)
		s, err := ailoop.NewSnapshot([]ailoop.Message{ailoop.UserMessage("hi"), ailoop.AssistantMessage("hello")}, []bool{true, false})
		if err != nil || s.Version() != ailoop.SnapshotVersion || s.Message(0).Role() != ailoop.RoleUser || s.Message(1).Role() != ailoop.RoleAssistant {
			t.Errorf("got %v, error %v", s, err)
		}
		var again ailoop.Snapshot
		data, err := json.Marshal(s)
		if err := errors.Join(err, json.Unmarshal(data, &again)); err != nil || !again.Equal(s) {
			t.Errorf("got %s, error %v", data, err)
		}
	})
	t.Run("pins of a tool's call and result", func(t *testing.T) {
		call, err := ailoop.NewAssistantMessage(ailoop.ToolCallBlock{ID: "c1", Name: "f"})
		result, err2 := ailoop.NewUserMessage(ailoop.ToolResultBlock{CallID: "c1"})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		s := talk("a").Append(call, result, ailoop.UserMessage("b"))
		for _, i := range []int{1, 2} {
			if p := s.PinWithToolResult(i).Pinned(); p[0] || !p[1] || !p[2] || p[3] {
				t.Errorf("got %v", p)
			}
		}
	})
}

// When Save returns, the snapshot is on disk: the new file was synced before its rename, and the folder after it.
func TestFileSyncs(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "h.json")
	for _, text := range []string{"a", "b"} {
		var synced []string
		stop := durable.Watch(func(name string) { synced = append(synced, name) })
		err := ailoop.NewFile(path).Save(t.Context(), talk(text))
		stop()
		if err != nil {
			t.Fatal(err)
		}
		if len(synced) != 2 || !durable.IsTemporary(synced[0]) || filepath.Dir(synced[0]) != dir || filepath.Clean(synced[1]) != dir {
			t.Errorf("synced %q, want the new file and its folder", synced)
		}
	}
}
