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

// serving is the JSON output of serve, printed when other processes can attach.
type serving struct {
	Store   string   `json:"store"`
	Owner   bool     `json:"owner"`
	Daemons []string `json:"daemons"`
	Trees   []string `json:"trees,omitempty"`
	Listen  string   `json:"listen,omitempty"`
	Metrics string   `json:"metrics,omitempty"`
	HTTP    string   `json:"http,omitempty"`
}

// listening holds the flags for connections from other machines.
type listening struct {
	address, cert, key, authorities, users string
}

func (l *listening) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.address, "listen", "", "HOST:PORT for clients on other machines (default: none)")
	f.StringVar(&l.cert, "tls-cert", "", "file of the certificate for --listen and --http, PEM")
	f.StringVar(&l.key, "tls-key", "", "file of its key, PEM")
	f.StringVar(&l.authorities, "tls-ca", "", "file of authorities, PEM; clients need a certificate of one of them (default: clients need none)")
	f.StringVar(&l.users, "users", "", "file of users for --listen: lines name:password, where the password may be a bcrypt hash; only its owner may read it")
}

// options converts the flags, or returns nil if other machines cannot connect. An HTTP server may have the certificate
// alone.
func (l *listening) options(http bool) (*embedded.Listen, error) {
	if l.address == "" {
		if l.authorities+l.users != "" || l.cert+l.key != "" && !http {
			return nil, cli.Usagef("--tls-cert, --tls-key, --tls-ca and --users need --listen")
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
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: errors.New("--listen needs --users: without users nobody can connect"),
			Hint: "Give --users a file with a line name:password for each user. Processes of this user on this machine need no --listen: they use the store directory."}
	}
	return o, nil
}

func newServe(a *cmdutil.App) *cobra.Command {
	var address string
	var watch bool
	var others listening
	var overHTTP webbing
	cmd := &cobra.Command{
		Use: "serve", Short: "Keep the store open for other processes, until interrupted", Args: overHTTP.args,
		Long: `Keep the store open for other processes, until SIGINT or SIGTERM. This process owns
the store: other commands find it and use the store through it, and need not start a
server of their own. By default it only accepts processes of the same user on this
machine.

With --listen, other machines connect with --server tls://HOST:PORT, as one of --users.
They can read, and append through this process. --listen needs --users, and TLS unless
the address is of this machine. These users can read everything, so --listen is refused
for a store with personal settings (namespace _personal), and such settings are refused
while it is on.

If another process owns the store already, this one waits, and takes over when that one
is gone.

Serve runs the background workers delivery, dispatch and janitor, or those in [daemons]
run of tally.toml. tally status shows what they do.

With --watch it also records the sessions of agents, like tally watch without arguments.

On SIGHUP it reloads users, certificates and settings. Users that were removed, or have
another password, are disconnected. If the new settings are invalid, it prints why and
keeps the old ones. If the terminal is closed, it stops.

With --http it serves the store over HTTP, to programs in any language: docs/http.md lists
the routes. Each request needs a token, which tally token makes. The token in the store's
file http-token has all rights, and counts only at an address of this machine. Any other
address needs TLS and tokens.

With --metrics it serves metrics for Prometheus at /metrics. An address without a host
is on this machine.`,
		Example: cmdutil.Examples("tally serve", "tally serve --store /srv/tally --log-level info", "tally serve --watch", "tally serve --metrics :9464 -o json", "tally serve --http",
			"tally serve --listen 0.0.0.0:4222 --tls-cert cert.pem --tls-key key.pem --users users.txt"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if c.Backend != config.Local {
				return cli.Usagef("serve needs a store on this machine; the backend is %s", c.Backend)
			}
			listen, err := others.options(overHTTP.address != "")
			if err == nil {
				err = overHTTP.check(&others)
			}
			if err != nil {
				return err
			}
			o := owning{app: a, config: c, others: others, listen: listen, metrics: address, http: overHTTP, watch: watch}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&address, "metrics", "", "address of a Prometheus endpoint, such as :9464 (default: none)")
	cmd.Flags().BoolVar(&watch, "watch", false, "also record the sessions of agents, like tally watch")
	others.flags(cmd)
	overHTTP.flags(cmd)
	return cmd
}

// A renewal reads a file of credentials again on SIGHUP. It returns the function that puts them into effect, which runs
// only if all other files and the settings are valid too.
type renewal func() (use func(), err error)

// owning is a run of serve.
type owning struct {
	app     *cmdutil.App
	config  config.Config
	others  listening
	listen  *embedded.Listen
	metrics string // address of the endpoint; "": none
	http    webbing
	watch   bool

	renewals []renewal // of what changes without opening the store again
	hangups  chan struct{}
	served   bool   // the announcement was printed
	try      string // a command line that asks the HTTP server
}

// run serves until ctx is done. If settings change, it opens the store again.
func (o *owning) run(ctx context.Context) error {
	cmdutil.CollectLess()
	o.hangups = make(chan struct{}, 1)
	cli.OnHangup(ctx, func() {
		select {
		case o.hangups <- struct{}{}:
		default: // a reload is pending already
		}
	})
	for {
		changed, err := o.serve(ctx)
		if err != nil || !changed {
			return err
		}
	}
}

// serve owns the store until ctx is done, or until the settings have changed.
func (o *owning) serve(ctx context.Context) (changed bool, err error) {
	m, c := metrics.New(), o.config
	said := serving{Store: c.Store, Owner: true, Daemons: c.Daemons.Run}
	for _, t := range c.Trees {
		said.Trees = append(said.Trees, t.Name)
	}
	if o.listen != nil {
		o.listen.Ready = func(url string) { said.Listen = url }
	}
	st, err := o.app.Own(ctx, m, o.listen, cmdutil.DaemonsOf(c, c.Daemons.Run))
	if err != nil {
		if ctx.Err() != nil {
			return false, nil // stopped while another process owned the store
		}
		return false, err
	}
	if o.metrics+o.http.address != "" {
		watchDisk(c, st, m)
	}
	if o.metrics != "" {
		web, err := serveMetrics(ctx, o.metrics, m)
		if err != nil {
			return false, errors.Join(err, st.Close())
		}
		defer web.Close()
		said.Metrics = "http://" + web.Addr + "/metrics"
		o.metrics = web.Addr // keep the port after a reload
	}
	if _, at, ok := strings.Cut(said.Listen, "://"); ok {
		o.listen.Address, o.others.address = at, at // keep the port after a reload
	}
	stopHTTP := func() {}
	if o.http.address != "" {
		h, err := o.http.serveHTTP(ctx, o.app, c, st, m)
		if err != nil {
			return false, errors.Join(err, st.Close())
		}
		stopHTTP, said.HTTP, o.try = h.stop, h.url, h.try
		o.http.address = h.server.Addr // keep the port after a reload
		o.renewals = []renewal{h.renew}
	}
	if err := o.announce(said); err != nil {
		stopHTTP()
		return false, errors.Join(err, st.Close())
	}
	changed, err = o.keep(ctx, st)
	stopHTTP()
	// An interrupt is the normal end, not an error.
	return changed, errors.Join(err, st.Close())
}

// keep waits until ctx is done, or until the settings have changed.
func (o *owning) keep(ctx context.Context, st *tally.Store) (changed bool, err error) {
	life, end := context.WithCancel(ctx)
	var followed error
	watching := make(chan struct{}) // closed when the watch has ended
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

// reread reads users, certificates and settings again. It reports whether settings have changed, which requires opening
// the store again. On an error nothing changes.
func (o *owning) reread() (changed bool, err error) {
	c, err := o.app.Config()
	if err != nil {
		return false, err
	}
	if c.Backend != config.Local || c.Store != o.config.Store {
		return false, fmt.Errorf("the store directory has changed: restart the process to use it")
	}
	listen, err := o.others.options(o.http.address != "")
	if err != nil {
		return false, err
	}
	renewed, err := o.renewed()
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
		renewed()
		return true, nil
	}
	if listen != nil {
		if err := o.listen.Renew(*listen); err != nil {
			return false, err
		}
	}
	renewed()
	return false, o.tell("Users and certificates were reloaded.")
}

// renewed reads all files of renewals, and returns the function that puts them into effect.
func (o *owning) renewed() (use func(), err error) {
	uses := make([]func(), len(o.renewals))
	for i, again := range o.renewals {
		if uses[i], err = again(); err != nil {
			return nil, err
		}
	}
	return func() {
		for _, use := range uses {
			use()
		}
	}, nil
}

// sameSettings reports whether two configurations are the same for the owner of a store.
func sameSettings(a, b config.Config) bool {
	of := func(c config.Config) []any {
		return []any{c.Namespace, c.Segment, c.MinDurability, c.Base, c.Watch, c.Redact, c.Daemons, c.Trees}
	}
	return reflect.DeepEqual(of(a), of(b))
}

// complain prints why a reload failed.
func (o *owning) complain(err error) {
	fmt.Fprintf(o.app.Err, "tally: settings were not reloaded: %s\n", plain.Printable(err.Error()))
}

// tell prints a message on standard error. Standard output has only the announcement.
func (o *owning) tell(what string) error {
	fmt.Fprintln(o.app.Err, what)
	return nil
}

// maxScrapers bounds the connections to the metrics endpoint, because each takes a file descriptor from the store.
const maxScrapers = 4

// maxScraperIdle bounds the time for which a silent one holds its connection, because there are few.
const maxScraperIdle = 10 * time.Second

// serveMetrics serves the metrics until the server is closed.
func serveMetrics(ctx context.Context, address string, m *metrics.Metrics) (*http.Server, error) {
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("--metrics: %w", err)}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	web := cmdutil.HTTPServer(ctx, l, mux)
	web.IdleTimeout = maxScraperIdle
	go web.Serve(netutil.LimitListener(l, maxScrapers)) // runs until Close
	return web, nil
}

// announce prints that other processes can attach. After a reload, it prints to standard error instead.
func (o *owning) announce(said serving) error {
	if o.served {
		return o.tell("Settings, users and certificates were reloaded.")
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
	if err == nil && said.HTTP != "" {
		err = o.app.Say("HTTP is at %s. Try:\n  %s", said.HTTP, o.try)
	}
	return err
}
