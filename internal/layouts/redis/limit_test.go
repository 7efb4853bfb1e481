package redis

import (
	"io"
	"strings"
	"testing"
)

// No way of writing content creates an object larger than a server accepts. A server would close the connection.
func TestLimit(t *testing.T) {
	piece := strings.Repeat("x", 1000)
	for name, write := range map[string]func(w io.Writer) (int64, error){
		"bytes":  func(w io.Writer) (int64, error) { n, err := w.Write([]byte(piece)); return int64(n), err },
		"text":   func(w io.Writer) (int64, error) { n, err := io.WriteString(w, piece); return int64(n), err },
		"copied": func(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{strings.NewReader(piece)}) },
	} {
		b := &limited{limit: len(piece) - 1}
		if _, err := write(b); err == nil || len(b.content) > b.limit {
			t.Errorf("%s: the object has %d bytes, error %v", name, len(b.content), err)
		}
	}
}
