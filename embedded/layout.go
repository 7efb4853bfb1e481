package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// A program chooses the version of nats-server that it links, and another version may have written to the store.
// Apparent damage may be a file layout that this program does not know. So tally interprets or changes the server's
// files only if all versions that wrote there are known. If a stream with apparent damage has no intact record, tally
// first lets the server of this build write a stream of its own, and compares the layout.

// serverVersion is the version of the server in this build. It is a variable for tests.
var serverVersion = server.VERSION

// LayoutError reports that this program can read no record in a file of the server's, nor in any other block of the
// stream. The file was not changed.
type LayoutError struct {
	Dir  string
	File string
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("embedded: start %s: %s holds nothing that this program can read, nor does another block of its stream: keep a copy of the directory; if a newer program wrote it, use that; if the disk damaged it, move the file away, and what it held is reported as lost", e.Dir, e.File)
}

// Unwrap returns log.ErrUnavailable.
func (e *LayoutError) Unwrap() error { return log.ErrUnavailable }

// errOtherLayout reports that package natsfile cannot read the files that the server of this build writes.
var errOtherLayout = errors.New("nats-server " + serverVersion + " has another layout of files than this program knows")

// recognise adds the version of this build's server to the mark, and reports whether all versions in the mark are
// known. The mark is written before the server runs, so the next start knows every version that may have left files.
// Marks of older stores have no versions; known versions wrote to them.
func (s *Server) recognise(m storedir.Mark) (known bool, err error) {
	s.servers = m.Servers
	if !slices.Contains(s.servers, serverVersion) {
		s.servers = append(slices.Clone(s.servers), serverVersion)
		m.Servers = s.servers
		err = storedir.WriteMark(s.dir, m)
	}
	return areKnown(s.servers), err
}

func areKnown(servers []string) bool {
	return !slices.ContainsFunc(servers, func(v string) bool { return !natsfile.Known(v) })
}

// knownTo reports whether all server versions of a store are known: those in the mark, and the version that serves it.
func knownTo(dir, version string) bool {
	m, err := storedir.LoadMark(dir)
	return err == nil && areKnown(append(m.Servers, version))
}

// blocksOf returns the folder from which a log reads blocks itself. "" means that it asks the server.
func blocksOf(dir string, known bool) string {
	if !known {
		return ""
	}
	return natsfile.Streams(dir)
}

// unfamiliar leaves the files to the server alone, and logs the reason.
func (s *Server) unfamiliar(why string) {
	s.logger.Warn("the server's files are not known to this program: they are neither checked nor repaired nor read, and each message is synced separately",
		"dir", s.dir, "why", why)
	s.known, s.unvetted, s.seen = false, nil, s.durable.get()
}

// prove lets a server of this build write a stream in a temporary folder. If natsfile cannot read it back, prove
// returns errOtherLayout.
func prove() (err error) {
	dir, err := os.MkdirTemp("", "tally-proof-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		JetStreamMaxStore: 1 << 20, JetStreamMaxMemory: 1 << 20, DisableJetStreamBanner: true})
	if err != nil {
		return err
	}
	go ns.Start()
	err = errors.New("it does not start")
	if listens(ns, 10*time.Second) {
		err = writeProof(ns)
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	switch {
	case err != nil:
		return fmt.Errorf("write a sample store: %w", err)
	case !readProof(dir):
		return errOtherLayout
	}
	return nil
}

const proofStream, proofFirst, proofHeader, proofData = "PROOF", 1000, "Proof", "of the layout"

func writeProof(ns *server.Server) error {
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: proofStream, Subjects: []string{proofStream}, FirstSeq: proofFirst}); err != nil {
		return err
	}
	_, err = js.PublishMsg(ctx, &nats.Msg{Subject: proofStream, Header: nats.Header{proofHeader: {proofStream}}, Data: []byte(proofData)})
	return err
}

func readProof(dir string) bool {
	stream := filepath.Join(natsfile.Streams(dir), proofStream)
	meta, err := os.ReadFile(filepath.Join(stream, natsfile.MetaFile))
	if err != nil {
		return false
	}
	sum, err := os.ReadFile(filepath.Join(stream, natsfile.SumFile))
	if err != nil || string(sum) != natsfile.Checksum(proofStream, meta) {
		return false
	}
	if first, err := natsfile.FirstSequence(dir, proofStream); err != nil || first != proofFirst {
		return false
	}
	r, err := natsfile.NewReader(natsfile.Messages(dir, proofStream), proofStream, proofFirst, proofFirst, nil)
	if err != nil {
		return false
	}
	defer r.Close()
	m, err := r.Next()
	return err == nil && m.Subject == proofStream && strings.Contains(m.Header, proofHeader) && string(m.Data) == proofData
}
