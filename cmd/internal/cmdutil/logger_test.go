package cmdutil

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// With --log-format json, each record of the log is an object on a line of its own.
func TestLogFormat(t *testing.T) {
	logs := func(a *App) *cobra.Command {
		return &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error {
			lg, err := a.Logger()
			if err == nil {
				lg.Info("not this")
				lg.Warn("a view is behind", "view", "two\nlines", "error", errors.New("gone"))
			}
			return err
		}}
	}
	var errw bytes.Buffer
	for form, want := range map[string]string{"text": `msg="a view is behind" view="two\nlines" error=gone`, "json": `"msg":"a view is behind","view":"two\nlines","error":"gone"}`} {
		errw.Reset()
		if err := Run(t.Context(), logs, []string{"--log-format", form}, strings.NewReader(""), io.Discard, &errw); err != nil {
			t.Fatal(err)
		}
		if said := errw.String(); strings.Count(said, "\n") != 1 || !strings.HasSuffix(said, want+"\n") || json.Valid(errw.Bytes()) != (form == "json") {
			t.Errorf("%s: got %q", form, said)
		}
	}
}
