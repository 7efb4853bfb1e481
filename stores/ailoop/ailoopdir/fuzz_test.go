package ailoopdir_test

import (
	"os"
	"testing"

	"github.com/tallylog/tally/formats"
)

// Whatever stands in a file, an import never panics; what it takes comes out as
// it was, and what it refuses leaves nothing.
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
		r := mustImport(t, st, path, formats.ImportOptions{})
		if len(r.Problems) > 0 {
			if r.Events != 0 {
				t.Errorf("%+v", r)
			}
			return
		}
		wantFile(t, st, "chat.json", string(data))
		if again := mustBeClean(t, st, path); again.Events != 0 {
			t.Errorf("a second import: %+v", again)
		}
	})
}
