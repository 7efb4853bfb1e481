package ailoopdir_test

import (
	"errors"
	"os"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/ailoop"
)

// For any file, an import does not panic. An imported file is written again with its bytes, and a refused file leaves
// no events.
func FuzzImport(f *testing.F) {
	whole := pretty(f, "true,false,false", message1, message2, message3)
	for _, seed := range []string{whole, whole[:100], whole + "\n", "", "{}", `{"version":1,"messages":[],"pinned":[]}`, `{"version":1,"messages":[{"User":{"blocks":[{"Text":"old"}]}}],"pinned":[false]}`,
		"\ufeff{\"version\":1,\"messages\":[],\"pinned\":[]}", `{"version":1,"messages":[{"User":{"blocks":[]}}],"pinned":[true],"x":{"y":1e400}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st, path := openStore(t), writeFile(t, "chat.json", "")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		r := mustImport(t, st, path, layouts.ImportOptions{})
		if len(r.Problems) > 0 {
			if r.Events != 0 {
				t.Errorf("the report is %+v", r)
			}
			return
		}
		wantFile(t, st, "chat.json", string(data))
		if again := mustBeClean(t, st, path); again.Events != 0 {
			t.Errorf("the report of a second import is %+v", again)
		}
	})
}

// Any file is parsed, or refused with a position. The written form of a snapshot parses to the same snapshot. The
// test is here because the tests of the Go side link a server, which takes a minute to build for a fuzzer.
func FuzzConversationSnapshot(f *testing.F) {
	whole := pretty(f, "true,false,false", message1, message2, message3)
	for _, seed := range []string{whole, whole[:200], `{"version":1,"messages":[],"pinned":[]}`, `{"version":2}`, `{"pinned":[true],"version":1,"messages":[{"User":{"blocks":[]}}],"x":1}`, "\ufeff{}", "null", "[", `{"version":1,"messages":[{"User":{"blocks":[{"Text":"old"}]}}],"pinned":[false]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ailoop.ParseSnapshot(data)
		if err != nil {
			if _, known := errors.AsType[*ailoop.SnapshotDecodeError](err); !known || err.Error() == "" {
				t.Errorf("%T %v", err, err)
			}
			return
		}
		for _, m := range s.Messages() {
			_ = m.Text()
		}
		written, err := s.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ailoop.ParseSnapshot(written)
		if err != nil || !again.Equal(s) {
			t.Errorf("%s: got the error %v", written, err)
		}
	})
}
