package resp

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The answers are those of a Redis 7.0 server.
func TestDo(t *testing.T) {
	const stream = "*1\r\n$2\r\nq1\r\n:2\r\n"
	for _, c := range []struct {
		name, answer string
		want         any
		err          string
	}{
		{"a status", "+OK\r\n", "OK", ""},
		{"a number", ":1\r\n", int64(1), ""},
		{"nothing", "*-1\r\n", nil, ""},
		{"an empty list", "*0\r\n", []any{}, ""},
		{"bytes with ends of lines", "$4\r\na\r\nb\r\n", "a\r\nb", ""},
		{"an entry of a stream", "*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n7-0\r\n*2\r\n$4\r\nbody\r\n$1\r\nx\r\n",
			[]any{[]any{"q", []any{[]any{"7-0", []any{"body", "x"}}}}}, ""},
		{"an error", "-NOAUTH Authentication required.\r\n", nil, "NOAUTH"},
		{"an end too soon", stream[:9], nil, io.ErrUnexpectedEOF.Error()},
		{"another protocol", "HTTP/1.1 400 Bad Request\r\n", nil, "not an answer"},
		{"too much", "$2000000\r\n", nil, "not an answer"},
		{"too deep", strings.Repeat("*1\r\n", 20), nil, "not an answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			here, there := net.Pipe()
			conn := newConn(here)
			defer conn.Close()
			sent := make(chan string, 1)
			go func() {
				defer there.Close()
				request := make([]byte, len("*2\r\n$4\r\nLREM\r\n$1\r\nq\r\n"))
				_, _ = io.ReadFull(bufio.NewReader(there), request)
				sent <- string(request)
				_, _ = io.WriteString(there, c.answer)
			}()
			got, err := conn.Do(t.Context(), "LREM", "q")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if request := <-sent; request != "*2\r\n$4\r\nLREM\r\n$1\r\nq\r\n" {
				t.Errorf("sent %q", request)
			}
		})
	}
}
