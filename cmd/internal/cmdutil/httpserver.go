package cmdutil

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Limits of each HTTP server. A client that is slow, silent or sends much takes a connection from others.
const (
	maxHeaderTime  = 5 * time.Second
	maxIdle        = 2 * time.Minute
	maxHeaderBytes = 32 << 10
)

// HTTPServer returns a server for a listener's address. Contexts of requests end with ctx, so that answers that last end
// too.
func HTTPServer(ctx context.Context, l net.Listener, h http.Handler) *http.Server {
	return &http.Server{
		Addr: l.Addr().String(), Handler: h, ReadHeaderTimeout: maxHeaderTime, IdleTimeout: maxIdle,
		MaxHeaderBytes: maxHeaderBytes - headerSlack, BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// headerSlack is what net/http reads beyond MaxHeaderBytes before it refuses a request.
const headerSlack = 4 << 10
