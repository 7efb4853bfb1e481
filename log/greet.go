package log

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// greet says to a server who this is and where its answers shall go, <inbox>.<anything>,
// and returns when the server has agreed.
func greet(login Login, in *bufio.Reader, name, inbox string, wait time.Duration) error {
	if err := login.Conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := in.ReadSlice('\n'); err != nil { // INFO {...}
		return err
	}
	hello, err := json.Marshal(map[string]any{
		"verbose": false, "pedantic": false, "lang": "go", "version": serviceVersion, "name": name, "protocol": 1,
		"user": login.User, "pass": login.Password, "headers": true, "no_responders": true, "echo": false,
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(login.Conn, "CONNECT %s\r\nSUB %s.* 1\r\nPING\r\n", hello, inbox); err != nil {
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case bytes.HasPrefix(line, []byte("PONG")):
			return login.Conn.SetDeadline(time.Time{})
		case bytes.HasPrefix(line, []byte("-ERR")):
			return fmt.Errorf("the server says %s", bytes.TrimSpace(line[4:]))
		}
	}
}
