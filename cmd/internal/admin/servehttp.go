package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/metrics"
	"github.com/tallylog/tally/internal/spend"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/web"
	"github.com/tallylog/tally/internal/web/api"
)

// defaultHTTP is the address of --http without a value.
const defaultHTTP = "127.0.0.1:4437"

// localToken is the file of a store's directory with the token of this user's own clients.
const localToken = "http-token"

// webbing holds the flags of the HTTP interface.
type webbing struct {
	address, tokens string
	hosts, origins  []string

	tls *tls.Config // nil: none
}

func (w *webbing) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.address, "http", "", "serve HTTP at an address; without a value "+defaultHTTP+" (default: none)")
	f.Lookup("http").NoOptDefVal = defaultHTTP
	f.StringArrayVar(&w.hosts, "http-host", nil, "another name by which clients reach the HTTP server, such as tally.example.org; repeatable")
	f.StringArrayVar(&w.origins, "origin", nil, "origin of web pages that may use the HTTP server, such as https://example.org; repeatable")
	f.StringVar(&w.tokens, "tokens", "", "file of tokens for --http (default tokens in the folder of settings)")
}

// args accepts the address of --http as a word of its own.
func (w *webbing) args(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && w.address == defaultHTTP {
		w.address = args[0]
		return nil
	}
	return cobra.NoArgs(cmd, args)
}

// check refuses settings that would give others more than tokens do. Nothing listens yet.
func (w *webbing) check(l *listening) error {
	if w.address == "" {
		if w.tokens != "" || len(w.hosts)+len(w.origins) > 0 {
			return cli.Usagef("--tokens, --http-host and --origin need --http")
		}
		return nil
	}
	if strings.HasPrefix(w.address, ":") {
		w.address = "127.0.0.1" + w.address
	}
	for _, origin := range w.origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) {
			return cli.Usagef("--origin %q: want a scheme and a host in lower case, such as https://example.org", origin)
		}
	}
	for _, host := range w.hosts {
		if host == "" || strings.ContainsAny(host, "/ @?#\\") {
			return cli.Usagef("--http-host %q: want a name such as tally.example.org, with the port if clients send one", host)
		}
	}
	var err error
	if l.cert+l.key != "" {
		if w.tls, err = embedded.LoadTLS(l.cert, l.key, ""); err != nil {
			return cli.Usagef("--tls-cert, --tls-key: %w", err)
		}
		w.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	o := &embedded.Listen{Address: w.address, TLS: w.tls, Users: []embedded.Account{{Name: "token"}}}
	if err := o.Check(); err != nil {
		return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: "Give --tls-cert, --tls-key and --tokens, or serve HTTP on 127.0.0.1."}
	}
	list, err := w.read()
	if err != nil {
		return cli.Usagef("--tokens: %w", err)
	}
	if len(list) == 0 && !w.isLocal() {
		return &cli.CodeError{Code: cli.BadUsage, Err: errors.New("--http at " + w.address + ": other machines can reach it, and there are no tokens"),
			Hint: "Make one first: tally token new NAME --scope read"}
	}
	return nil
}

// isLocal reports whether only this machine can connect.
func (w *webbing) isLocal() bool {
	return (&embedded.Listen{Address: w.address}).Check() == nil
}

// read returns the tokens of the file. The default file need not exist.
func (w *webbing) read() ([]web.Token, error) {
	path := w.tokens
	if path == "" {
		path = tokensFile()
		if _, err := os.Lstat(path); path == "" || errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
	}
	return web.ReadTokens(path)
}

// tokensFile returns the default file of tokens, or "" if the home directory is unknown.
func tokensFile() string {
	if dir := config.SettingsFolder(os.Getenv); dir != "" {
		return filepath.Join(dir, "tokens")
	}
	return ""
}

// httpServer is a running HTTP server.
type httpServer struct {
	url, try string // of the server; a command line that asks it
	web      *web.Server
	tokens   *web.Tokens
	server   *http.Server
	end      context.CancelFunc
}

// serveHTTP serves a store until stop is called.
func (w *webbing) serveHTTP(ctx context.Context, a *cmdutil.App, c config.Config, st *tally.Store, m *metrics.Metrics) (*httpServer, error) {
	lg, err := a.Logger()
	if err != nil {
		return nil, err
	}
	h := &httpServer{}
	path := filepath.Join(c.Store, localToken)
	read := w.read
	if w.isLocal() {
		_, local, err := web.LocalToken(path, c.Namespace)
		if err != nil {
			return nil, err
		}
		read = func() ([]web.Token, error) {
			list, err := w.read()
			if slices.ContainsFunc(list, func(t web.Token) bool { return t.Name == local.Name }) {
				return nil, fmt.Errorf("the name %s is that of the token in %s", local.Name, path)
			}
			return append(list, local), err
		}
	}
	if h.tokens, err = web.NewTokens(read, st.Now); err != nil {
		return nil, cli.Usagef("--tokens: %w", err)
	}
	table, err := spend.Prices(os.Getenv)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", w.address)
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	scheme := "http"
	if w.tls != nil {
		scheme, l = "https", tls.NewListener(l, w.tls)
	}
	h.url = scheme + "://" + l.Addr().String()
	h.web = web.Handler(web.Env{Store: st, Tokens: h.tokens, Hosts: hostsOf(l.Addr().(*net.TCPAddr), w.tls != nil, w.hosts), Origins: w.origins, TLS: w.tls != nil,
		Version: cmdutil.BuildOf().Version, Metrics: m.Handler(), Count: m.Answered, Logger: lg}, api.Door{Prices: table}.Routes()...)
	h.server = cmdutil.HTTPServer(context.WithoutCancel(ctx), l, h.web)
	h.server.ErrorLog = slog.NewLogLogger(lg.Handler(), slog.LevelDebug)
	life, end := context.WithCancel(ctx)
	h.end = end
	go h.tokens.Run(life, func(err error) { lg.Warn("tokens were not reloaded; the earlier ones stay valid", "error", err) })
	go h.server.Serve(l) // runs until stop
	// A header on the command line would show the token to other users.
	header := `echo "Authorization: Bearer $TALLY_TOKEN"`
	if w.isLocal() {
		header = "sed 's/^/Authorization: Bearer /' " + cmdutil.Quoted(path)
	}
	h.try = header + " | curl -H @- " + h.url + "/v1"
	return h, nil
}

// renew reads the tokens again, on SIGHUP.
func (h *httpServer) renew() (use func(), err error) { return h.tokens.Renew() }

// hostsOf returns the values of the header Host that a server accepts.
func hostsOf(addr *net.TCPAddr, isTLS bool, names []string) []string {
	port := fmt.Sprint(addr.Port)
	usual := "80"
	if isTLS {
		usual = "443"
	}
	var list []string
	add := func(name string) {
		list = append(list, name+":"+port)
		if port == usual {
			list = append(list, name)
		}
	}
	add("localhost")
	add("127.0.0.1")
	add("[::1]")
	if ip := addr.IP; !ip.IsUnspecified() && !ip.IsLoopback() {
		host, _, _ := strings.Cut(net.JoinHostPort(ip.String(), ""), "]")
		add(strings.TrimSuffix(host, ":") + map[bool]string{true: "]"}[strings.HasPrefix(host, "[")])
	}
	for _, name := range names {
		name = strings.ToLower(name)
		list = append(list, name, name+":"+port) // behind a proxy, clients send another port or none
	}
	return list
}

// stopWithin bounds how long appends under way may go on.
const stopWithin = 5 * time.Second

// stop refuses new requests, ends streams, and waits for the appends under way.
func (h *httpServer) stop() {
	h.web.Stop()
	h.end()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if h.server.Shutdown(ctx) != nil {
		h.server.Close()
	}
}

// watchDisk adds the metrics of a store that are computed when they are read.
func watchDisk(c config.Config, st *tally.Store, m *metrics.Metrics) {
	m.Watch(st, func() (int64, uint64, error) {
		free, err := storedir.FreeBytes(c.Store)
		return cmdutil.DiskUse(c.Store), free, err
	})
}
