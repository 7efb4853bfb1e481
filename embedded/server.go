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
	"github.com/tallylog/tally/internal/registry"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
)

// DefaultSegment is the default size in bytes of a segment of the log.
const DefaultSegment = 256 << 20

// ServerOptions are the options of Start and Attach. Dir is required; the other fields may be zero.
type ServerOptions struct {
	Dir    string       // of the store; created for this user alone if it is missing
	Logger *slog.Logger // default: discard

	// NoSync acknowledges events that a power cut may destroy (log.Buffered). It is for tests.
	NoSync bool

	// SyncEach syncs each message by itself, even on file systems where one sync for many messages is enough. It is for
	// comparisons, and for disks that handle only one kind of sync correctly.
	SyncEach bool

	// SegmentBytes and SegmentSubjects bound a stream of the log. At a bound the next stream begins, so a start after a
	// crash reads a bounded part of the log. Default: 256 MiB and 500,000.
	SegmentBytes    uint64
	SegmentSubjects uint64

	// RereadBytes bounds how many bytes of full segments the server reads again after a crash. For that, appends pause
	// now and then while much is written. Default: two segments.
	RereadBytes uint64

	// VetBytes bounds how many bytes are checked for damage before the server starts, beyond the parts that the server
	// reads. The rest is checked while the store is in use. Default: 32 MiB, which takes a fraction of a second.
	VetBytes uint64

	Observer log.Observer // of the log; default: none

	// MinDurability is the least guarantee of acknowledgements. If the store guarantees less, the error is a
	// *log.DurabilityError.
	MinDurability log.Durability

	// Reserve is the space in bytes to leave free on the disk. With less free space, appends return a *log.FullError.
	// Default: 64 MiB.
	Reserve uint64

	// Listen is an additional address for remote users. Default: the server serves only processes of this machine that
	// can read the directory.
	Listen *Listen

	// Private keeps the server inside this process. It does not listen, and Attach finds no owner.
	Private bool

	// Copy opens the store for log.Mirror, which makes it a copy of another store. Only with Copy an unfinished copy
	// opens; otherwise the error is a *log.CopyingError. The caller appends nothing else.
	Copy bool

	// Merge opens the store for a merge with another one: see log.Host.Merge.
	Merge bool

	// Progress is called about once a second during a long start, such as that of a large log after a crash or of a log
	// with a million subjects. Default: no calls.
	Progress func(elapsed time.Duration)

	refused     error         // the error of appends; nil: appends are allowed
	trees       *keeper.Trees // of the store; nil: this process keeps no trees
	unannounced bool          // other processes find this one when the caller calls Server.announce
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, DefaultSegment)
	o.Reserve = cmp.Or(o.Reserve, Reserve)
	o.RereadBytes = cmp.Or(o.RereadBytes, 2*o.SegmentBytes)
	o.SegmentSubjects = cmp.Or(o.SegmentSubjects, 500_000)
	o.VetBytes = cmp.Or(o.VetBytes, vetted)
	return o
}

// Server owns a store directory and runs its server in this process.
type Server struct {
	dir       string
	logger    *slog.Logger
	secret    string // of this process
	token     string // of those who attach
	nats      *server.Server
	stored    server.JetStreamConfig // how the server keeps streams
	serverLog *serverLog
	accounts  *accounts      // of the clients
	rejected  *rejections    // connections that the proxies rejected
	local     *proxy         // for processes of this user; nil: the server is private
	outside   *outside       // for remote users; nil: there are none
	opening   sync.WaitGroup // held while the server opens its streams
	unmarked  atomic.Bool    // the mark does not yet say that this process is at work
	conns     []*nats.Conn
	events    *log.Log
	blocks    *blockSync // nil: the server syncs by itself
	durable   *watermark
	seen      events.Offset   // the highest offset ever assigned
	copying   bool            // the store is an unfinished copy
	holes     []log.Hole      // records lost before the store was opened
	found     *findings       // records found lost since
	unvetted  []examined      // blocks that are not checked yet
	unread    []events.Offset // unreadable records in the checked blocks
	sync      bool            // acknowledged events are on disk
	group     bool            // one sync covers many appends; otherwise the server syncs each message
	known     bool            // the layout of the server's files is known
	servers   []string        // versions of the servers that wrote to the store
	announce  func() error    // lets other processes find this one; nil: they do
	prove     func() error    // verifies the file layout of this build's server; may return errOtherLayout

	health   *health
	meter    *quota.Meter
	types    *registry.Gate
	unwatch  context.CancelFunc
	watching sync.WaitGroup

	closing sync.Once
	ends    []func() error // what Close does, the last one first
	err     error          // of Close
}

// Start takes the directory's lock and starts its server. It waits for what a
// crash left to be read again, bounded by ctx alone.
//
// Errors: *OwnedError if another process owns the directory (attach to it); *LostStreamError if a part of the log that
// should be there is not; *LayoutError if nothing of a part of it can be read; *OwnershipError if the directory is not
// this user's alone; *events.PersonalError if it is to listen and has something personal; *ReadOnlyError if nothing can
// be written there; *ForeignError if it holds other things than a store; *NewerError if a newer version of tally wrote
// it; anything else is the system's or the server's. Nothing is left running after an error.
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
	if o.refused == nil && !o.Copy {
		o.refused = storedir.Moved(s.dir)
	}
	s.secret, s.token = rand.Text(), rand.Text()
	s.health = newHealth(&room{dir: s.dir, reserve: o.Reserve, refused: o.refused})
	s.meter, s.types = quota.New(s.dir, 0), registry.NewGate()
	if err := s.run(ctx, o); err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	if err := s.inspect(expected); err != nil {
		return err
	}
	if err := s.openLog(ctx, o); err != nil {
		return err
	}
	// The mark may name only streams that are on disk. The log began with a sync of the whole directory, and no stream
	// is created meanwhile.
	if err := s.events.AtRest(ctx, s.markDirty); err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	if o.Private {
		return nil
	}
	if err := s.removeConsumers(ctx, expected); err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	filter, err := openConsumerFilter(s.conns[1])
	if err != nil {
		return fmt.Errorf("embedded: start %s: %w", s.dir, err)
	}
	s.atEnd(filter.close)
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
	if o.unannounced {
		s.announce = func() error { return s.tell(o) }
		return nil
	}
	return s.tell(o)
}

// tell lets other processes find this one.
func (s *Server) tell(o ServerOptions) error {
	if o.Listen != nil && o.Listen.Ready != nil {
		o.Listen.Ready(s.outside.url())
	}
	s.atEnd(func() error { return storedir.RemoveOwner(s.dir) })
	err := storedir.WriteOwner(s.dir, storedir.Owner{PID: os.Getpid(), URL: s.URL(), User: userAttached, Token: s.token, Durability: s.events.Durability().String()})
	if isFull(err) {
		// Other processes attach through this file. Without it they cannot until this process ends.
		s.logger.Warn("the disk is full: other processes cannot use the store", "dir", s.dir, "error", err)
		return nil
	}
	return err
}

// wholeTree is a variable for tests.
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
		DontListen:             true, // see proxy
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
		MaxClosedClients:       1, // remembered connections, which tally never queries; the default of 10,000 takes 80 KB
	}
	opts.Accounts, opts.CustomClientAuthentication = []*server.Account{s.accounts.own}, s.accounts
	ns, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.accounts.serve(ns)
	s.stored = server.JetStreamConfig{StoreDir: opts.StoreDir, SyncInterval: opts.SyncInterval, SyncAlways: opts.SyncAlways, MaxMemory: opts.JetStreamMaxMemory, MaxStore: opts.JetStreamMaxStore, Strict: true}
	s.nats, s.serverLog = ns, newServerLog(s.logger, s.health.heard)
	s.atEnd(s.stopServer)
	ns.SetLoggerV2(s.serverLog, false, false, false)
	go ns.Start()
	if err := s.await(ctx, func(d time.Duration) bool { return listens(ns, d) }, nil); err != nil {
		return err
	}
	if !ns.JetStreamEnabled() {
		return errors.New("the server runs without JetStream")
	}
	_ = ns.SystemAccount().SetServiceExportResponseThreshold(serverAPI, forgetAnswers) // after an error, requests are only remembered for longer
	if err := s.openAccount(ctx, o.Progress); err != nil {
		return err
	}
	if o.Private {
		return nil
	}
	return s.openProxies(o.Listen)
}

// serverAPI is the service through which the server's API answers to other accounts. Its timer, which cannot be
// stopped, keeps a stopped server in memory until forgetAnswers after the last request. No client waits longer for an
// answer. forgetAnswers is a variable for tests.
const serverAPI = "$JS.API.>"

var forgetAnswers = maxWait

// openAccount makes the server open the streams of this process's account, which it reads after an unclean stop. With
// several accounts the server does so only on request.
func (s *Server) openAccount(ctx context.Context, progress func(elapsed time.Duration)) error {
	opened := make(chan error, 1)
	s.opening.Go(func() {
		tasks := make(chan func()) // opens several streams concurrently
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

// listens waits up to a duration for a server to accept connections, and reports whether it does. The server's own wait
// polls every 25 ms, although the server is ready within 1 ms. A very short wait polls without a pause, and its lock
// delays the server's start.
func listens(ns *server.Server, wait time.Duration) bool {
	const look, pause = 20 * time.Microsecond, time.Millisecond / 2
	for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(pause) {
		if ns.ReadyForConnections(look) {
			return true
		}
	}
	return false
}

// await waits until the server is ready. Meanwhile it logs and reports progress about once a second.
func (s *Server) await(ctx context.Context, ready func(time.Duration) bool, progress func(elapsed time.Duration)) error {
	began, told := time.Now(), 0
	for !ready(50 * time.Millisecond) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case fatal := <-s.serverLog.fatal:
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
	case fatal := <-s.serverLog.fatal:
		return fatal
	default:
		return nil
	}
}

// login connects to the server as the owner.
func (s *Server) login() (log.Login, error) {
	conn, err := s.nats.InProcessConn()
	return log.Login{Conn: conn, User: userOwner, Password: s.secret}, err
}

func (s *Server) openLog(ctx context.Context, o ServerOptions) error {
	for range 2 { // one for appends, one for all other requests
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
		Reads: s.conns[1], Scans: s.login, Appends: appends, Room: s.health.check, Admit: both(s.types.Admit, s.meter.Admit), Owner: true, Shared: o.Listen != nil,
		Segments: log.Segments{Bytes: o.SegmentBytes, Subjects: o.SegmentSubjects, Dir: storedir.SegmentsDir(s.dir), Blocks: blocksOf(s.dir, s.known),
			AtRest: func() error { return s.atRest(o.RereadBytes) }, Above: s.seen},
		Holes: s.holes, Found: s.found.add, Settled: s.durable.get(), Mark: s.durable.set, Copy: o.Copy, Merge: o.Merge,
	}}
	if s.copying {
		c.Host.Settled = events.MaxOffset // the end may be in the middle of an append, whose rest is copied next
	}
	// The data of an earlier owner may be in the system's memory only. The log begins with a sync of the whole
	// directory. After that, no existing data can be lost, and every acknowledgement covers its own event.
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
	s.found.open(s.events)
	if err := s.meet(ctx, s.unread); err != nil {
		return errors.Join(fmt.Errorf("embedded: start %s: %w", s.dir, err), s.events.Close())
	}
	s.meter.Watch(s.events)
	s.types.Watch(s.events)
	s.atEnd(s.events.Close)
	var watching context.Context
	watching, s.unwatch = context.WithCancel(context.Background())
	s.atEnd(func() error { s.unwatch(); s.watching.Wait(); return nil })
	s.watching.Go(func() { s.watch(watching) })
	s.watching.Go(func() { s.scrub(watching, s.unvetted) })
	return nil
}

// Log returns the log of the directory. Close closes it.
func (s *Server) Log() *log.Log { return s.events }

// URL returns the URL for other processes of this user on this machine. If the server is private, it returns "".
func (s *Server) URL() string {
	if s.local == nil {
		return ""
	}
	return "nats://" + s.local.listener.Addr().String()
}

// Dir returns the store directory, as an absolute path.
func (s *Server) Dir() string { return s.dir }

// Lost lists the records that were known to be lost when the store was opened.
func (s *Server) Lost() []log.Hole { return s.holes }

// Close waits for the appends under way, stops the server, makes all data durable and releases the directory. It leaves
// no goroutines behind.
func (s *Server) Close() error {
	s.closing.Do(s.stop)
	return s.err
}

// atEnd registers a function for stop, which calls the functions in reverse order.
func (s *Server) atEnd(f func() error) { s.ends = append(s.ends, f) }

// stop undoes the completed steps of start.
func (s *Server) stop() {
	for _, end := range slices.Backward(s.ends) {
		s.err = errors.Join(s.err, end())
	}
	if s.err != nil {
		s.err = fmt.Errorf("embedded: close %s: %w", s.dir, s.err)
	}
}

// stopServer stops the server. If no error occurred so far, it marks the store as closed.
func (s *Server) stopServer() error {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
	s.opening.Wait()                             // a canceled start may still be opening streams
	s.nats.SetLoggerV2(nil, false, false, false) // the server stays in memory for a while: see serverAPI
	// After a clean stop of the server, its last writes may be in the system's memory only.
	if s.sync {
		if err := wholeTree(s.dir); err != nil {
			return err
		}
	}
	if s.events == nil || s.err != nil {
		return nil
	}
	if err := s.found.close(); err != nil {
		return err // the next start looks for what the list lacks
	}
	err := s.writeMark(true)
	if isFull(err) { // the next start only checks more than necessary
		s.logger.Warn("the disk is full: the store is not marked as closed", "dir", s.dir, "error", err)
		return nil
	}
	return err
}
