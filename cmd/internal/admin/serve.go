package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/record"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/metrics"
	"github.com/tallylog/tally/internal/render/plain"
)

// serving is what serve prints with -o json, when others can attach.
type serving struct {
	Store   string   `json:"store"`
	Owner   bool     `json:"owner"`
	Daemons []string `json:"daemons"`
	Trees   []string `json:"trees,omitempty"`
	Listen  string   `json:"listen,omitempty"`
	Metrics string   `json:"metrics,omitempty"`
}

// listening are the flags that say where to listen for other machines.
type listening struct {
	address, cert, key, authorities, users string
}

func (l *listening) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.address, "listen", "", "HOST:PORT for clients that do not read the store directory (default: none)")
	f.StringVar(&l.cert, "tls-cert", "", "file of the certificate for --listen, PEM")
	f.StringVar(&l.key, "tls-key", "", "file of its key, PEM")
	f.StringVar(&l.authorities, "tls-ca", "", "file of the authorities of which every client must have a certificate, PEM (default: clients need none)")
	f.StringVar(&l.users, "users", "", "file of those who may connect to --listen: lines name:password, readable by its owner only; a password may be its bcrypt hash")
}

// options returns what the flags mean, nil if nobody else is to be listened for.
func (l *listening) options() (*embedded.Listen, error) {
	if l.address == "" {
		if l.cert+l.key+l.authorities+l.users != "" {
			return nil, cli.Usagef("--tls-cert, --tls-key, --tls-ca and --users go with --listen")
		}
		return nil, nil
	}
	o := &embedded.Listen{Address: l.address}
	var err error
	if l.cert+l.key+l.authorities != "" {
		if o.TLS, err = embedded.LoadTLS(l.cert, l.key, l.authorities); err != nil {
			return nil, cli.Usagef("--tls-cert, --tls-key, --tls-ca: %w", err)
		}
	}
	if l.users != "" {
		if o.Users, err = embedded.ReadUsers(l.users); err != nil {
			return nil, cli.Usagef("--users: %w", err)
		}
	}
	if err := o.Check(); err != nil {
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: "Give --tls-cert, --tls-key and --users, or listen on 127.0.0.1."}
	}
	if l.users == "" {
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: errors.New("--listen without --users would let nobody in"),
			Hint: "Give --users a file with a line name:password for each who may connect. Processes of this user need no --listen: they find the store by its directory."}
	}
	return o, nil
}

func newServe(a *cmdutil.App) *cobra.Command {
	var address string
	var watch bool
	var others listening
	cmd := &cobra.Command{
		Use: "serve", Short: "Own the store and keep it open for others, until stopped", Args: cobra.NoArgs,
		Long: `Own the store and keep it open for others, until SIGINT or SIGTERM. Commands that
need the store use it through this process then, without being asked, and need
not start a server of their own. It listens on this machine only, for processes
of the same user.

With --listen, others reach it with --server tls://HOST:PORT, as one of --users: they
read, and append through this process. Without --users nobody could, so it is refused;
beyond this machine it listens with TLS only. They may read all of it, so a store with
something personal (namespace _personal) is not for others, and takes no such thing then.

If another process owns the store already, this one waits and takes over when that
one is gone.

It runs the daemons that decide on what is due: delivery, dispatch and janitor, or those
that [daemons] run of tally.toml names. tally status says what they do.

With --watch it follows the sessions of agents too, as tally watch does without arguments.

On SIGHUP it reads users, certificates and settings again. Users that are gone, or have
another password, are cut off. If something is wrong with the new ones, it says so and the
old ones stay. If the terminal is closed, it stops.

With --metrics it answers Prometheus at /metrics; an address without a host is one
of this machine.`,
		Example: cmdutil.Examples("tally serve", "tally serve --store /srv/tally --log-level info", "tally serve --watch", "tally serve --metrics :9464 -o json",
			"tally serve --listen 0.0.0.0:4222 --tls-cert cert.pem --tls-key key.pem --users users.txt"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if c.Backend != config.Local {
				return cli.Usagef("serve keeps a store on this machine open; the backend is %s", c.Backend)
			}
			listen, err := others.options()
			if err != nil {
				return err
			}
			o := owning{app: a, config: c, others: others, listen: listen, metrics: address, watch: watch}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&address, "metrics", "", "address of a Prometheus endpoint, such as :9464 (default: none)")
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the sessions of agents, as tally watch does")
	others.flags(cmd)
	return cmd
}

// owning is one run of serve.
type owning struct {
	app     *cmdutil.App
	config  config.Config
	others  listening
	listen  *embedded.Listen
	metrics string // the address; "": none
	watch   bool

	hangups chan struct{}
	served  bool // and said so
}

// run serves until ctx is done, and begins anew when the settings have changed.
func (o *owning) run(ctx context.Context) error {
	cmdutil.CollectLess()
	o.hangups = make(chan struct{}, 1)
	cli.OnHangup(ctx, func() {
		select {
		case o.hangups <- struct{}{}:
		default: // they will be read
		}
	})
	for {
		changed, err := o.serve(ctx)
		if err != nil || !changed {
			return err
		}
	}
}

// serve owns the store until ctx is done, or the settings have changed.
func (o *owning) serve(ctx context.Context) (changed bool, err error) {
	m, c := metrics.New(), o.config
	said := serving{Store: c.Store, Owner: true, Daemons: c.Daemons.Run}
	for _, t := range c.Trees {
		said.Trees = append(said.Trees, t.Name)
	}
	if o.listen != nil {
		o.listen.Ready = func(url string) { said.Listen = url }
	}
	st, err := o.app.Own(ctx, m, o.listen, cmdutil.DaemonsOf(c.Daemons, c.Daemons.Run))
	if err != nil {
		if ctx.Err() != nil {
			return false, nil // stopped before it was this one's turn
		}
		return false, err
	}
	if o.metrics != "" {
		web, err := serveMetrics(o.metrics, c, st, m)
		if err != nil {
			return false, errors.Join(err, st.Close())
		}
		defer web.Close()
		said.Metrics = "http://" + web.Addr + "/metrics"
		o.metrics = web.Addr // also after the settings have changed
	}
	if _, at, ok := strings.Cut(said.Listen, "://"); ok {
		o.listen.Address, o.others.address = at, at // likewise
	}
	if err := o.announce(said); err != nil {
		return false, errors.Join(err, st.Close())
	}
	changed, err = o.keep(ctx, st)
	// To be told to stop is how this ends.
	return changed, errors.Join(err, st.Close())
}

// keep keeps a store open until ctx is done, or the settings have changed.
func (o *owning) keep(ctx context.Context, st *tally.Store) (changed bool, err error) {
	life, end := context.WithCancel(ctx)
	var followed error
	watching := make(chan struct{}) // until nothing is followed any more
	defer func() {
		end()
		if o.watch {
			<-watching
			err = errors.Join(err, followed)
		}
	}()
	if o.watch {
		go func() {
			defer close(watching)
			if followed = record.Follow(life, o.app, st); followed != nil {
				end()
			}
		}()
	}
	for {
		select {
		case <-life.Done():
			return false, nil
		case <-o.hangups:
			if changed, err := o.reread(); err != nil {
				o.complain(err)
			} else if changed {
				return true, nil
			}
		}
	}
}

// reread takes users and certificates as they are now, and reports whether the settings have
// changed, which takes another start of the store. An error changes nothing.
func (o *owning) reread() (changed bool, err error) {
	c, err := o.app.Config()
	if err != nil {
		return false, err
	}
	if c.Backend != config.Local || c.Store != o.config.Store {
		return false, fmt.Errorf("the store is another one now: that takes another start of the process")
	}
	listen, err := o.others.options()
	if err != nil {
		return false, err
	}
	if changed = !sameSettings(c, o.config); changed {
		if err := o.app.CheckSettings(); err != nil {
			return false, err
		}
		if o.watch {
			if err := record.CheckFollow(o.app); err != nil {
				return false, err
			}
		}
		o.config, o.listen = c, listen
		return true, nil
	}
	if listen != nil {
		if err := o.listen.Renew(*listen); err != nil {
			return false, err
		}
	}
	return false, o.tell("Users and certificates were read again.")
}

// sameSettings reports whether two configurations say the same to the owner of a store.
func sameSettings(a, b config.Config) bool {
	of := func(c config.Config) []any {
		return []any{c.Namespace, c.Segment, c.MinDurability, c.Base, c.Watch, c.Redact, c.Daemons, c.Trees}
	}
	return reflect.DeepEqual(of(a), of(b))
}

// complain says why settings stay as they were.
func (o *owning) complain(err error) {
	fmt.Fprintf(o.app.Err, "tally: settings stay as they were: %s\n", plain.Printable(err.Error()))
}

// tell says on standard error what was done: what is printed ends with the first line.
func (o *owning) tell(what string) error {
	fmt.Fprintln(o.app.Err, what)
	return nil
}

// mostScrapers bounds the connections of those who ask for metrics: each is a descriptor
// that the store does not have.
const mostScrapers = 4

// serveMetrics answers requests for the metrics until it is closed.
func serveMetrics(address string, c config.Config, st *tally.Store, m *metrics.Metrics) (*http.Server, error) {
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("--metrics: %w", err)}
	}
	m.Watch(st, func() (int64, uint64, error) {
		free, err := embedded.FreeBytes(c.Store)
		return cmdutil.DiskUse(c.Store), free, err
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	web := &http.Server{Addr: l.Addr().String(), Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 10 * time.Second}
	go web.Serve(netutil.LimitListener(l, mostScrapers)) // until Close; nobody can act on its error
	return web, nil
}

// announce says that others can attach: once on standard output, and on standard error when
// the settings have changed.
func (o *owning) announce(said serving) error {
	if o.served {
		return o.tell("Settings, users and certificates were read again.")
	}
	o.served = true
	if o.app.Format != cli.Text {
		return cli.WriteJSON(o.app.Out, cli.JSONL, said)
	}
	err := o.app.Say("Serving %s; other commands use it through this process. Stop it with Ctrl-C.", said.Store)
	if err == nil && said.Listen != "" {
		err = o.app.Say("Others reach it at %s.", said.Listen)
	}
	if err == nil && said.Metrics != "" {
		err = o.app.Say("Metrics are at %s.", said.Metrics)
	}
	return err
}
