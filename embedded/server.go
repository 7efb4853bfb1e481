package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
)

// DefaultSegment is how many bytes of the log are in one piece if nobody says it.
const DefaultSegment = 256 << 20

// ServerOptions of Start and Attach. Dir is required; the rest may be zero.
type ServerOptions struct {
	Dir    string       // of the store; made if need be, for this user alone
	Logger *slog.Logger // default: discard

	// NoSync acknowledges what a power cut may take away (log.Buffered): for tests.
	NoSync bool

	// SyncEach syncs each message by itself, also where one sync for many is known
	// to be enough: to compare, or for a disk that lies about one and not the other.
	SyncEach bool

	// SegmentBytes and SegmentSubjects bound a stream of the log: behind them the next
	// is begun, so that a start after a crash reads a bounded part of the log.
	// Default: 256 MiB and 500,000.
	SegmentBytes    uint64
	SegmentSubjects uint64

	// RereadBytes bounds what a crash makes the server read again of full segments. It
	// costs a pause of the appends, now and then while much is written. Default: two
	// segments.
	RereadBytes uint64

	// VetBytes is how much of what the server does not read when it starts is looked
	// through for damage before; the rest is afterwards, while the store is in use.
	// Default: 32 MiB, which takes a fraction of a second.
	VetBytes uint64

	Observer log.Observer // of the log; default: nobody

	// MinDurability refuses, with a *log.DurabilityError, a store whose acknowledgements
	// are worth less.
	MinDurability log.Durability

	// Reserve is the room in bytes that is left free on the disk: below it appends are
	// refused with *log.FullError. Default: 64 MiB.
	Reserve uint64

	// Listen has the server listen there, too. Default: on this machine only, for those
	// who can read the directory.
	Listen *Listen

	// Private keeps the server inside this process: nothing listens, and Attach
	// finds no owner.
	Private bool

	// Progress is called about once a second while a start takes long, as it does
	// for a large log after a crash, and for one of a million subjects. Default: nothing.
	Progress func(elapsed time.Duration)

	refused error         // why nothing is appended; nil: it is
	trees   *keeper.Trees // of the store; nil: this process keeps no trees
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, DefaultSegment)
	o.Reserve = cmp.Or(o.Reserve, Reserve)
	o.RereadBytes = cmp.Or(o.RereadBytes, 2*o.SegmentBytes)
	o.SegmentSubjects = cmp.Or(o.SegmentSubjects, 500_000)
	o.VetBytes = cmp.Or(o.VetBytes, 32<<20)
	return o
}

// Server owns a store directory and runs its server in this process.
type Server struct {
	dir      string
	logger   *slog.Logger
	secret   string // of this process
	token    string // of those who attach
	nats     *server.Server
	stored   server.JetStreamConfig // how the server keeps streams
	bridge   *bridge
	accounts *accounts      // of those who connect
	strays   *strays        // that the doors did not let in
	local    *door          // for processes of this user; nil: the server is private
	outside  *outside       // for everybody else; nil: nobody else reaches it
	opening  sync.WaitGroup // held while the server opens its streams
	unmarked atomic.Bool    // the mark does not say yet that this process is at work
	conns    []*nats.Conn
	events   *log.Log
	blocks   *blockSync // nil: the server syncs for itself
	durable  *watermark
	seen     events.Offset   // the highest offset that was ever given
	holes    []log.Hole      // what the store had lost when it was opened
	found    *findings       // and since
	unvetted []examined      // blocks that nobody has looked at yet
	unread   []events.Offset // records of the others that the server cannot read
	sync     bool            // what is acknowledged is on disk
	group    bool            // because one sync covers many appends; else the server syncs each message
	known    bool            // the layout of the server's files is
	servers  []string        // versions of those that wrote to the store
	prove    func() error    // that the server of this build keeps its files as this program knows them, or errOtherLayout

	health   *health
	meter    *quota.Meter
	unwatch  context.CancelFunc
	watching sync.WaitGroup

	closing sync.Once
	ends    []func() error // what Close does, the last one first
	err     error          // of Close
}

// Start takes the directory's lock and starts its server. It waits for what a
// crash left to be read again, bounded by ctx alone.
//
// Errors: *OwnedError if another process owns the directory (attach to it);
// *LostStreamError if a part of the log that should be there is not; *LayoutError if
// nothing of a part of it can be read; *OwnershipError if the directory is not this user's
// alone; *events.PersonalError if it is to listen and has something personal; *ReadOnlyError if nothing can be written there; *ForeignError if it holds other
// things than a store; *NewerError if a newer version of tally wrote it; anything else is
// the system's or the server's. Nothing is left running after an error.
func Start(ctx context.Context, o ServerOptions) (*Server, error) {
	o = o.withDefaults()
	s := &Server{dir: o.Dir, logger: o.Logger, sync: !o.NoSync}
	if err := s.start(ctx, o); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o ServerOptions) error {
	expected, err := s.takeOver(o)
	if err != nil {
		return err
	}
	s.secret, s.token = rand.Text(), rand.Text()
	s.health = newHealth(&room{dir: s.dir, reserve: o.Reserve, refused: o.refused})
	s.meter = quota.New(s.dir, 0)
	if err := s.run(ctx, o); err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	if err := s.inspect(expected); err != nil {
		return err
	}
	if err := s.openLog(ctx, o); err != nil {
		return err
	}
	// The mark names streams that are on disk only: the log began with a sync of all there was,
	// and none is being begun meanwhile.
	if err := s.events.AtRest(ctx, s.markDirty); err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	if o.Private {
		return nil
	}
	if err := s.removeConsumers(ctx, expected); err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	desk, err := openDesk(s.conns[1])
	if err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	s.atEnd(desk.close)
	serves, err := log.Serve(s.conns[1], s.events)
	if err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	s.atEnd(serves.Close)
	if o.trees != nil && o.trees.Layout != nil { // before other processes can find the owner
		serves.Show(o.trees.Shows)
		end, err := o.trees.Serve(s.conns[1])
		if err != nil {
			return fmt.Errorf("embedded: start %s: %w", s.dir, err)
		}
		s.atEnd(end)
	}
	if o.Listen != nil && o.Listen.Ready != nil {
		o.Listen.Ready(s.outside.url())
	}
	s.atEnd(func() error { return storedir.RemoveOwner(s.dir) })
	err = storedir.WriteOwner(s.dir, storedir.Owner{PID: os.Getpid(), URL: s.URL(), User: userAttached, Token: s.token, Durability: s.events.Durability().String()})
	if isFull(err) {
		// Who attaches does so through this file: until this process ends, nobody does.
		s.logger.Warn("the disk is full: other processes cannot use the store", "dir", s.dir, "error", err)
		return nil
	}
	return err
}

// wholeTree is syncTree; a variable for tests.
var wholeTree = syncTree

// run starts the server and waits until it serves.
func (s *Server) run(ctx context.Context, o ServerOptions) error {
	if o.Listen != nil {
		if err := o.Listen.Check(); err != nil {
			return err
		}
	}
	var err error
	if s.accounts, err = newAccounts(s.secret); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName:             ownerServer + rand.Text()[:8],
		DontListen:             true, // see door
		NoSigs:                 true,
		NoLog:                  true,
		JetStream:              true,
		StoreDir:               s.dir,
		JetStreamMaxStore:      unlimited,
		JetStreamMaxMemory:     64 << 20,
		DisableJetStreamBanner: true,
		JetStreamLimits:        server.JSLimitOpts{DefaultMaxConsumers: -1},
		SyncAlways:             s.sync && !s.group,
		SyncInterval:           time.Second,
		MaxPayload:             16 << 20,
		MaxPending:             128 << 20,
		MaxClosedClients:       1, // that it remembers, which nobody asks for; 10,000 take 80 KB
	}
	opts.Accounts, opts.CustomClientAuthentication = []*server.Account{s.accounts.own}, s.accounts
	ns, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.accounts.serve(ns)
	s.stored = server.JetStreamConfig{StoreDir: opts.StoreDir, SyncInterval: opts.SyncInterval, SyncAlways: opts.SyncAlways, MaxMemory: opts.JetStreamMaxMemory, MaxStore: opts.JetStreamMaxStore, Strict: true}
	s.nats, s.bridge = ns, newBridge(s.logger, s.health.heard)
	s.atEnd(s.stopServer)
	ns.SetLoggerV2(s.bridge, false, false, false)
	go ns.Start()
	if err := s.await(ctx, func(d time.Duration) bool { return listens(ns, d) }, nil); err != nil {
		return err
	}
	if !ns.JetStreamEnabled() {
		return errors.New("the server runs without JetStream")
	}
	_ = ns.SystemAccount().SetServiceExportResponseThreshold(serverAPI, forgetAnswers) // an error: it is remembered for longer
	if err := s.openAccount(ctx, o.Progress); err != nil {
		return err
	}
	if o.Private {
		return nil
	}
	return s.openDoors(o.Listen)
}

// serverAPI is the service by which the server's own interface answers to other accounts.
// A timer of it, which nobody can stop, keeps a server that was stopped in memory until
// forgetAnswers after the last request: by then nobody waits for the answer. A variable
// for tests.
const serverAPI = "$JS.API.>"

var forgetAnswers = mostWait

// openAccount has the server open the streams of this process's account, which it reads
// after an unclean stop. With several accounts it does so only when it is told.
func (s *Server) openAccount(ctx context.Context, progress func(elapsed time.Duration)) error {
	opened := make(chan error, 1)
	s.opening.Go(func() {
		tasks := make(chan func()) // of several streams at a time
		defer close(tasks)
		for range runtime.GOMAXPROCS(0) {
			go func() {
				for task := range tasks {
					task()
				}
			}()
		}
		opened <- s.nats.GlobalAccount().EnableJetStream(nil, tasks)
	})
	var err error
	over := func(wait time.Duration) bool {
		select {
		case err = <-opened:
			return true
		case <-time.After(wait):
			return false
		}
	}
	if waitErr := s.await(ctx, over, progress); waitErr != nil {
		return waitErr
	}
	return err
}

// listens reports whether a server takes connections, and waits for that for so long. The
// server's own wait looks every 25 ms; it is ready within one. A short one looks without a
// pause, and keeps the server from starting by its lock.
func listens(ns *server.Server, wait time.Duration) bool {
	const look, pause = 20 * time.Microsecond, time.Millisecond / 2
	for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(pause) {
		if ns.ReadyForConnections(look) {
			return true
		}
	}
	return false
}

// await waits until the server is ready, and tells about once a second that it is not.
func (s *Server) await(ctx context.Context, ready func(time.Duration) bool, progress func(elapsed time.Duration)) error {
	began, told := time.Now(), 0
	for !ready(50 * time.Millisecond) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case fatal := <-s.bridge.fatal:
			return fatal
		default:
		}
		if elapsed := time.Since(began); int(elapsed.Seconds()) > told {
			told = int(elapsed.Seconds())
			s.logger.Info("the store is being read", "dir", s.dir, "elapsed", elapsed.Round(time.Second))
			if progress != nil {
				progress(elapsed)
			}
		}
	}
	select {
	case fatal := <-s.bridge.fatal:
		return fatal
	default:
		return nil
	}
}

// login makes a connection of the owner's to the server.
func (s *Server) login() (log.Login, error) {
	conn, err := s.nats.InProcessConn()
	return log.Login{Conn: conn, User: userOwner, Password: s.secret}, err
}

func (s *Server) openLog(ctx context.Context, o ServerOptions) error {
	for range 2 { // one for appends, one for the rest
		nc, err := nats.Connect("", nats.InProcessServer(s.nats), nats.UserInfo(userOwner, s.secret), nats.Name("tally owner"), nats.ReconnectBufSize(-1))
		if err != nil {
			return fmt.Errorf("embedded: start %s: %w", s.dir, err)
		}
		s.conns = append(s.conns, nc)
		s.atEnd(func() error { nc.Close(); return nil })
	}
	if err := s.nameLost(ctx); err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	appends, err := s.login()
	if err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	c := log.Config{Logger: s.logger, Observer: o.Observer, MinDurability: o.MinDurability, Host: log.Host{
		Reads: s.conns[1], Scans: s.login, Appends: appends, Room: s.health.check, Admit: s.meter.Admit, Owner: true, Shared: o.Listen != nil,
		Segments: log.Segments{Bytes: o.SegmentBytes, Subjects: o.SegmentSubjects, Dir: storedir.SegmentsDir(s.dir), Blocks: blocksOf(s.dir, s.known),
			AtRest: func() error { return s.atRest(o.RereadBytes) }, Above: s.seen},
		Holes: s.holes, Found: s.found.add, Settled: s.durable.get(), Mark: s.durable.set,
	}}
	// What an earlier owner wrote may still be in memory only. The log begins with a sync,
	// which is of the whole directory either way: from then on nothing that was there can be
	// lost, and every ack covers its own event.
	switch {
	case s.group:
		s.blocks = newBlockSync(s.dir, wholeTree)
		s.atEnd(func() error { s.blocks.close(); return nil })
		c.Host.Sync = func(stream string) error {
			err := s.blocks.sync(stream)
			if err != nil {
				s.health.fail(err)
			}
			return err
		}
	case s.sync:
		left := sync.OnceValue(func() error { return wholeTree(s.dir) })
		c.Host.Sync = func(string) error { return left() }
	}
	if s.events, err = log.Open(ctx, s.conns[0], c); err != nil {
		return err
	}
	if err := s.refusePersonal(ctx); err != nil {
		return errors.Join(fmt.Errorf("embedded: start %s: %w", s.dir, err), s.events.Close())
	}
	s.meet(ctx, s.unread)
	s.meter.Watch(s.events)
	s.atEnd(s.events.Close)
	var watching context.Context
	watching, s.unwatch = context.WithCancel(context.Background())
	s.atEnd(func() error { s.unwatch(); s.watching.Wait(); return nil })
	s.watching.Go(func() { s.watch(watching) })
	s.watching.Go(func() { s.scrub(watching, s.unvetted) })
	return nil
}

// Log is the log of the directory. It is closed with the server.
func (s *Server) Log() *log.Log { return s.events }

// URL is where the server listens for other processes of this user, on this machine
// only; "" if it is private.
func (s *Server) URL() string {
	if s.local == nil {
		return ""
	}
	return "nats://" + s.local.listener.Addr().String()
}

// Dir is the store directory, as an absolute path.
func (s *Server) Dir() string { return s.dir }

// Lost lists the records that were known to be lost when the store was opened, since
// whenever that was.
func (s *Server) Lost() []log.Hole { return s.holes }

// Close waits for the appends under way, stops the server, makes everything
// durable and gives the directory up. Nothing is left running.
func (s *Server) Close() error {
	s.closing.Do(s.stop)
	return s.err
}

// atEnd has stop call a function, before those that it was to call so far.
func (s *Server) atEnd(f func() error) { s.ends = append(s.ends, f) }

// stop undoes as much of start as was done.
func (s *Server) stop() {
	for _, end := range slices.Backward(s.ends) {
		s.err = errors.Join(s.err, end())
	}
	if s.err != nil {
		s.err = fmt.Errorf("embedded: close %s: %w", s.dir, s.err)
	}
}

// stopServer stops the server, and marks the store as closed if nothing went wrong so far.
func (s *Server) stopServer() error {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
	s.opening.Wait()                             // a start that was given up
	s.nats.SetLoggerV2(nil, false, false, false) // it stays in memory for a while: see serverAPI
	// A clean stop of the server leaves its last writes in memory.
	if s.sync {
		if err := wholeTree(s.dir); err != nil {
			return err
		}
	}
	if s.events == nil || s.err != nil {
		return nil
	}
	err := s.writeMark(true)
	if isFull(err) { // the next start looks through more than it would have to
		s.logger.Warn("the disk is full: the store is not marked as closed", "dir", s.dir, "error", err)
		return nil
	}
	return err
}
