package cmd_test

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallylog/tally/internal/testkit"
)

// certificate writes a certificate for this machine, which is its own authority, and its key: certificate cert key
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: certificate cert key")
	}
	ts.Check(testkit.WriteCertificate(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
}

// freePort sets a variable to an unused port: freeport VAR
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeport VAR")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(errors.Join(err, l.Close()))
	ts.Setenv(args[0], port)
}

// natsPayload is the largest message of a server, unless a script sets another.
const natsPayload = 16 << 20

// natsServer runs a NATS server until the script ends, and sets a variable to its URL: natsserver VAR [max_payload]
func natsServer(ts *testscript.TestScript, neg bool, args []string) {
	maxPayload := natsPayload
	if len(args) == 2 {
		_, err := fmt.Sscan(args[1], &maxPayload)
		ts.Check(err)
	}
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: natsserver VAR [max_payload]")
	}
	s, err := startNATS(ts.MkAbs("nats"), maxPayload)
	ts.Check(err)
	ts.Defer(func() { stopNATS(s) })
	ts.Setenv(args[0], s.ClientURL())
}

// startNATS runs a NATS server, as another operator would.
func startNATS(dir string, maxPayload int) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir,
		MaxPayload: int32(maxPayload), NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: -1}})
	if err != nil {
		return nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		stopNATS(s)
		return nil, errors.New("the server does not start")
	}
	return s, nil
}

func stopNATS(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}
