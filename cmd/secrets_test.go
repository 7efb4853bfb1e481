package cmd_test

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
)

// sealFile writes the content of a sealed document into a file: seal KEYS NAMESPACE ID CLEAR FILE
func sealFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 {
		ts.Fatalf("usage: seal KEYS NAMESPACE ID CLEAR FILE")
	}
	ring, err := sealed.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	content, err := ring.SealDocument(events.Document(args[1], sealed.Kind, args[2]), []byte(args[3]))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[4]), content, 0o600))
}

// openFile wants the clear value of a sealed document in a file: unseal KEYS NAMESPACE ID CLEAR FILE
func openFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 {
		ts.Fatalf("usage: unseal KEYS NAMESPACE ID CLEAR FILE")
	}
	ring, err := sealed.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	plain, err := ring.OpenDocument(events.Document(args[1], sealed.Kind, args[2]), []byte(ts.ReadFile(args[4])))
	ts.Check(err)
	if string(plain) != args[3] {
		ts.Fatalf("%q is sealed, not %q", plain, args[3])
	}
}
