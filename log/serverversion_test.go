package log_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/log"
)

// oldServer runs a server that sends the INFO of a NATS server of a version, answers PING, and ignores all else. It
// returns the address.
func oldServer(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, `INFO {"server_id":"OLD","version":%q,"proto":1,"headers":true,"max_payload":1048576,"jetstream":true}`+"\r\n", version)
				for in := bufio.NewScanner(c); in.Scan(); {
					if strings.HasPrefix(in.Text(), "PING") {
						fmt.Fprint(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Open refuses a server that is too old before it sends a request. The error has the server's version.
func TestServerVersion(t *testing.T) {
	for _, version := range []string{"2.9.10", "2.11.9", "2.0.0", "1.4.1", "0.8.0", "v2.10.3", "2.11.0-RC.1"} {
		t.Run("B-26 nats-server "+version, func(t *testing.T) {
			nc, err := nats.Connect(oldServer(t, version), nats.Timeout(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_, err = log.Open(t.Context(), nc, log.Config{})
			if want := "nats-server " + version + " is too old: 2.12 or newer is needed"; err == nil || err.Error() != want {
				t.Errorf("got error %v, want %s", err, want)
			}
			if old, ok := errors.AsType[*log.ServerVersionError](err); !ok || old.Have != version {
				t.Errorf("got error %#v, want a *ServerVersionError", err)
			}
		})
	}
	t.Run("B-26 versions that do", func(t *testing.T) {
		for _, version := range []string{"2.12.0", "2.12.0-RC.1", "2.14.3", "3.0.0", "dev", "", "2", "2.x.1"} {
			if err := log.CheckServer(version); err != nil {
				t.Errorf("%q: %v", version, err)
			}
		}
	})
}
